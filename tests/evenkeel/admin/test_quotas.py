"""Clients with quotas, and others beside them, on real nodes with another client."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer as TheirConsumer
from confluent_kafka import Producer as TheirProducer

from evenkeel import Admin, BrokerError
from evenkeel.admin.quotas import ClientQuota
from tests.evenkeel.shared_cluster import SharedCluster

pytestmark = pytest.mark.cluster

RECORDS = 150
RECORD_BYTES = 1_000
RATE = 50_000.0
"""A third of all records a second."""
GIVE_UP_S = 60.0


async def set_quotas(cluster: SharedCluster, client_id: str, rates: Mapping[str, float]) -> None:
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_quotas({"client-id": client_id}, rates)
        assert ClientQuota({"client-id": client_id}, rates) in await admin.quotas()


class Sender:
    """A producer of librdkafka, which reports throttle times."""

    def __init__(self, cluster: SharedCluster, client_id: str) -> None:
        self.throttled: list[float] = []
        self.outcomes: list[Any] = []
        self._producer = TheirProducer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "client.id": client_id,
                "batch.size": 10 * RECORD_BYTES,
                "throttle_cb": lambda event: self.throttled.append(event.throttle_time),
            }
        )

    def send(self, topic: str) -> None:
        for _ in range(RECORDS):
            self._producer.produce(
                topic,
                b"x" * RECORD_BYTES,
                partition=0,
                on_delivery=lambda error, _: self.outcomes.append(error),
            )

    def flush(self, seconds: float = GIVE_UP_S) -> int:
        """How many are not delivered yet."""
        left: int = self._producer.flush(seconds)
        return left


async def test_a_throttled_producer_gets_no_error_and_holds_up_nobody(
    cluster: SharedCluster, topic: str
) -> None:
    """While it waits, the other one delivers as many records."""
    await set_quotas(cluster, "slow", {"producer_byte_rate": RATE})
    slow, fast = Sender(cluster, "slow"), Sender(cluster, "fast")
    slow.send(topic)
    slow.flush(0.1)
    fast.send(topic)
    assert await trio.to_thread.run_sync(fast.flush) == 0
    assert slow.flush(0) > 0, "the other one has overtaken it"
    assert await trio.to_thread.run_sync(slow.flush) == 0
    assert slow.outcomes == fast.outcomes == [None] * RECORDS
    assert max(slow.throttled, default=0) > 0
    assert not fast.throttled


async def test_a_throttled_consumer_gets_everything_in_its_time(
    cluster: SharedCluster, topic: str
) -> None:
    await set_quotas(cluster, "slow reader", {"consumer_byte_rate": RATE})
    sender = Sender(cluster, "unthrottled")
    sender.send(topic)
    assert await trio.to_thread.run_sync(sender.flush) == 0
    throttled: list[float] = []
    consumer = TheirConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "client.id": "slow reader",
            "group.id": f"readers of {topic}",
            "auto.offset.reset": "earliest",
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    consumer.subscribe([topic])
    read = 0
    with trio.fail_after(GIVE_UP_S):
        while read < RECORDS:
            poll = partial(consumer.consume, 500, 0.2)
            for message in await trio.to_thread.run_sync(poll):
                assert message.error() is None
                read += 1
    await trio.to_thread.run_sync(consumer.close)
    assert read == RECORDS
    assert max(throttled, default=0) > 0


async def test_a_quota_is_taken_back_and_a_wrong_one_refused(cluster: SharedCluster) -> None:
    await set_quotas(cluster, "for a while", {"request_percentage": 50.0})
    async with Admin(cluster.bootstrap) as admin:
        await admin.alter_quotas({"client-id": "for a while"}, {"request_percentage": None})
        assert all(one.entity != {"client-id": "for a while"} for one in await admin.quotas())
        with pytest.raises(BrokerError, match="INVALID_REQUEST"):
            await admin.alter_quotas({"user": None}, {"no_such_rate": 1.0})
