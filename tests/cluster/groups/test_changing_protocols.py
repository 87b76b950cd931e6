"""Consumers change from the classic protocol to KIP-848 and back, one by one, with librdkafka.

Records keep coming. Each member leaves in good order, so nothing is lost and nothing is read twice.
"""

import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupType, admin

from tests.cluster.scenery import FULL, PARTITIONS, STEP_S, TOPIC, in_thread, load, three_nodes
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

GROUP = "changing"
MEMBERS = 2
Place = tuple[int, int]
"""Partition and offset."""


class Member:
    """A consumer in a thread of its own; `read` counts how often each record was read."""

    def __init__(self, bootstrap: str, protocol: str, strategy: str, read: Counter[Place]) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
        }
        if protocol == "classic":
            settings["partition.assignment.strategy"] = strategy
        self._consumer = Consumer(settings)
        self._read, self._end = read, threading.Event()
        self.lost = 0
        self.errors: list[str] = []
        self._consumer.subscribe([TOPIC], on_lost=self._on_lost)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.is_set():
            message = self._consumer.poll(0.1)
            if message is None:
                continue
            if message.error() is not None:
                self.errors.append(str(message.error()))
                continue
            self._read[message.partition() or 0, message.offset() or 0] += 1
        self._consumer.close()

    def _on_lost(self, *_: object) -> None:
        self.lost += 1

    def close(self) -> None:
        self._end.set()
        self._thread.join()


def is_stable(client: admin.AdminClient, kind: ConsumerGroupType) -> bool:
    listed = client.list_consumer_groups().result(STEP_S).valid
    return [(one.type, one.state) for one in listed if one.group_id == GROUP] == [
        (kind, ConsumerGroupState.STABLE)
    ]


async def becomes(bootstrap: str, kind: ConsumerGroupType, read: Counter[Place]) -> None:
    """The group is stable, of this kind, and somebody reads every partition."""
    client = admin.AdminClient({"bootstrap.servers": bootstrap})
    before: Counter[int] = Counter(partition for partition, _ in list(read))
    deadline = time.monotonic() + STEP_S
    while time.monotonic() < deadline:
        now = Counter(partition for partition, _ in list(read))
        goes_on = all(now[one] > before[one] for one in range(PARTITIONS))
        if goes_on and await in_thread(partial(is_stable, client, kind)):
            return
        await trio.sleep(0.2)
    raise AssertionError(f"no stable group of the kind {kind} after {STEP_S} s")


def all_read(read: Counter[Place], count: int) -> None:
    """Waits for it, but not for ever: what is missing then is lost."""
    deadline = time.monotonic() + STEP_S
    while len(read) < count and time.monotonic() < deadline:
        time.sleep(0.2)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
async def test_members_change_one_by_one_both_ways(tmp_path: Path, strategy: str) -> None:
    read: Counter[Place] = Counter()
    gone: list[Member] = []
    async with three_nodes(tmp_path) as cluster:
        bootstrap = cluster.spec.bootstrap
        started = partial(Member, bootstrap, strategy=strategy, read=read)
        members = [started("classic") for _ in range(MEMBERS)]
        async with load(cluster, "changing", rate=200) as producer:
            await becomes(bootstrap, ConsumerGroupType.CLASSIC, read)
            for protocol in ("consumer", "classic"):
                for number in range(MEMBERS):
                    member = members.pop(0)
                    await in_thread(member.close)
                    gone.append(member)
                    members.append(started(protocol))
                    back = protocol == "classic" and number == MEMBERS - 1
                    kind = ConsumerGroupType.CLASSIC if back else ConsumerGroupType.CONSUMER
                    await becomes(bootstrap, kind, read)
        await in_thread(partial(all_read, read, producer.acknowledged))
        for member in members:
            await in_thread(member.close)
    assert len(read) == producer.acknowledged, "lost"
    assert read.total() == len(read), "read twice"
    assert [one.errors for one in (*gone, *members) if one.errors] == []
    assert sum(one.lost for one in (*gone, *members)) == 0
