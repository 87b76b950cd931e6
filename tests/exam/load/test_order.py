"""A healthy cluster refuses, loses and reorders nothing, however fast clients send.

The producers are ordinary ones without pauses. A connection may have more under way than a group
may queue, so the cluster has to slow them down. Masters stay in one test and move in another. What
is read back per producer must be exactly what was sent.
"""

import struct
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio
from confluent_kafka import Consumer, Producer, TopicPartition

from cluster import health, workload
from cluster.launcher import Launcher
from cluster.workload import CLIENT_LOG
from tests.cluster.scenery import FULL, PARTITIONS, READ_S, in_thread, three_nodes
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

HEAD: Final = struct.Struct(">II")
LARGE: Final = 10_000_000
MOVE_EVERY_S: Final = 1.0
FLUSH_S: Final = 120.0


class Dose(NamedTuple):
    producers: int
    message_bytes: int
    messages: int
    """Per producer."""
    acks: int
    idempotent: bool = False
    steals: bool = False
    eager: bool = False
    """Small batches and immediate retries: so there is always a pipeline."""


def doses(size: int, count: int) -> tuple[Dose, ...]:
    """All combinations with messages of one size, `count` messages each."""
    return tuple(
        Dose(producers, size, count // producers, acks, steals=steals)
        for producers in (1, 4, 40)
        for acks in (-1, 0, 1)
        for steals in (False, True)
    )


WHOLE: Final[Mapping[str, tuple[Dose, ...]]] = {
    "1 KB": doses(1_000, 60_000),
    "20 KB": doses(20_000, 8_000),
    "900 KB": doses(900_000, 240),
    "10 MB": tuple(
        Dose(producers, LARGE, 40 // producers, acks) for producers in (1, 4) for acks in (-1, 0, 1)
    ),
    "10 MB, 40 producers": (
        *(Dose(40, LARGE, 2, acks) for acks in (-1, 0, 1)),
        *(Dose(40, LARGE, 2, acks, steals=True) for acks in (-1, 0, 1)),
        Dose(40, LARGE, 2, -1, idempotent=True, steals=True),
    ),
    "idempotent": tuple(
        Dose(4, size, 500, -1, idempotent=True, steals=True) for size in (1_000, 20_000, 500_000)
    ),
}


def settings(dose: Dose) -> Mapping[str, str | int | bool]:
    eager = {"batch.size": max(20_000, 2 * dose.message_bytes), "retry.backoff.ms": 1}
    return {
        **(eager if dose.eager else {}),
        "acks": dose.acks,
        "enable.idempotence": dose.idempotent,
        "message.max.bytes": LARGE + 1_000_000,
        "queue.buffering.max.kbytes": 400_000,
        "linger.ms": 5,
        "reconnect.backoff.max.ms": 500,
    }


def produce(bootstrap: str, topic: str, number: int, dose: Dose, told: Counter[str]) -> None:
    """As fast as the client's queue takes it."""
    producer = Producer({**settings(dose), "bootstrap.servers": bootstrap}, logger=CLIENT_LOG)
    pad = bytes(dose.message_bytes - HEAD.size)

    def delivered(error: object, _message: object) -> None:
        told[str(error)] += 1

    for index in range(dose.messages):
        while True:
            try:
                producer.produce(
                    topic,
                    HEAD.pack(number, index) + pad,
                    partition=number % PARTITIONS,
                    on_delivery=delivered,
                )
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(FLUSH_S)


def read_back(bootstrap: str, topic: str, expected: int) -> dict[int, list[int]]:
    """Each producer's messages, in the order of the log."""
    found: dict[int, list[int]] = {}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": topic,
            "enable.auto.commit": False,
            "fetch.message.max.bytes": LARGE + 1_000_000,
        },
        logger=CLIENT_LOG,
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    try:
        silent = 0
        while silent < 3:  # reads on, to find what should not be there
            message = consumer.poll(1.0)
            if message is None:
                silent += sum(map(len, found.values())) >= expected
                continue
            assert not message.error(), message.error()
            number, index = HEAD.unpack_from(message.value() or b"")
            found.setdefault(number, []).append(index)
    finally:
        consumer.close()
    return found


@asynccontextmanager
async def moving(cluster: Launcher, wanted: bool) -> AsyncIterator[None]:
    """Move all masters to one node after the other while the body runs."""

    async def move() -> None:
        for node in cycle((1, 2, 3)):
            await health.place(cluster.spec.node(1).http, {"all_on": node})
            await trio.sleep(MOVE_EVERY_S)

    async with trio.open_nursery() as nursery:
        if wanted:
            nursery.start_soon(move)
        yield
        nursery.cancel_scope.cancel()


async def run(cluster: Launcher, number: int, dose: Dose) -> None:
    bootstrap, topic = cluster.spec.bootstrap, f"order-{number}"
    await in_thread(
        partial(workload.create_topic, bootstrap, topic, partitions=PARTITIONS, replication=3)
    )
    told: Counter[str] = Counter()
    async with moving(cluster, dose.steals), trio.open_nursery() as nursery:
        for producer in range(dose.producers):
            call = partial(produce, bootstrap, topic, producer, dose, told)
            nursery.start_soon(in_thread, call)
    total = dose.producers * dose.messages
    assert told == {"None": total}, dose
    with trio.fail_after(READ_S):
        found = await in_thread(partial(read_back, bootstrap, topic, total))
    for producer in range(dose.producers):
        assert found[producer] == list(range(dose.messages)), (dose, producer)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("doses", WHOLE.values(), ids=WHOLE)
async def test_what_is_sent_without_a_pause_arrives_once_and_in_order(
    tmp_path: Path, doses: tuple[Dose, ...]
) -> None:
    async with three_nodes(tmp_path) as cluster:
        for number, dose in enumerate(doses):
            await run(cluster, number, dose)
