"""A compacted topic on real processes: it shrinks on every node, and a consumer that reads from the
beginning gets the last value of each key, with any master and after any damage."""

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from cluster import health, workload
from cluster.status import ClusterView
from tests.cluster.scenery import everything_has_a_master, in_thread, three_nodes, until
from tests.cluster.trimmed import MIB, SHORT_LOG, storage_of

pytestmark = pytest.mark.cluster

TABLE = TopicPartition("table", 0)
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(MIB),
    "min.cleanable.dirty.ratio": "0.1",
}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 100
WAIT_S = 30.0


@attrs.define
class Table:
    """What was written, and what a consumer must get from it."""

    bootstrap: str
    last: dict[bytes, bytes] = attrs.field(factory=dict)
    written: int = 0
    dice: random.Random = attrs.field(factory=lambda: random.Random(1))
    refused: list[int] = attrs.field(factory=list)

    def write(self, count: int) -> None:
        """With every codec; a tenth of the records are tombstones."""
        for codec in CODECS:
            producer = Producer(
                {"bootstrap.servers": self.bootstrap, "compression.type": codec, "linger.ms": 20}
            )
            for _ in range(count // len(CODECS)):
                key = b"key-%d" % self.dice.randrange(KEYS)
                value = None if self.dice.random() < 0.1 else self.dice.randbytes(3_000)
                producer.produce(TABLE.topic, value, key, TABLE.partition, self._told)
                self.last.pop(key, None)
                if value is not None:
                    self.last[key] = value
                producer.poll(0)
            assert producer.flush(WAIT_S) == 0

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.written += 1

    def write_without_a_key(self) -> None:
        producer = Producer({"bootstrap.servers": self.bootstrap})
        note: Callable[..., None] = lambda error, _message: self.refused.append(error.code())  # noqa: E731
        producer.produce(TABLE.topic, b"no key", partition=TABLE.partition, on_delivery=note)
        assert producer.flush(WAIT_S) == 0

    def leader(self) -> int:
        client = Producer({"bootstrap.servers": self.bootstrap})
        known: int = (
            client.list_topics(TABLE.topic, WAIT_S).topics[TABLE.topic].partitions[0].leader
        )
        return known

    def read(self) -> int:
        """Read from the beginning; returns how many records are left."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "reader"})
        assert consumer.get_watermark_offsets(TABLE, WAIT_S) == (0, self.written)
        consumer.assign([TopicPartition(TABLE.topic, TABLE.partition, 0)])
        learned: dict[bytes, bytes] = {}
        count, offset = 0, -1
        while offset < self.written - 1:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"nothing more after offset {offset}"
            assert message.error() is None
            assert message.offset() > offset
            count, offset = count + 1, message.offset()
            learned.pop(message.key(), None)
            if message.value() is not None:
                learned[message.key()] = message.value()
        consumer.close()
        assert learned == self.last
        return count


def has_settled(view: ClusterView) -> bool:
    """Every node has tiered much of the topic."""
    found = [storage_of(view, node.spec.id) for node in view.nodes]
    return all(one and one["settled_bytes"] > 6 * MIB for one in found)


def is_small(view: ClusterView) -> bool:
    """The cold data of every node is small."""
    found = [storage_of(view, node.spec.id) for node in view.nodes]
    return all(one and 0 < one["cold_bytes"] < 3 * MIB for one in found)


def is_mended(view: ClusterView, node: int) -> bool:
    mended: int = storage_of(view, node)["mended"]
    return mended > 0


def damage(directory: Path) -> None:
    """In the middle of the compacted data: in the largest file except the one being written."""
    files = sorted(directory.glob("cold-*.seg"))[:-1]
    largest = max(files, key=lambda file: file.stat().st_size)
    data = bytearray(largest.read_bytes())
    data[len(data) // 2] ^= 1
    largest.write_bytes(data)


async def test_a_compacted_topic_shrinks_and_every_key_keeps_its_last_value(tmp_path: Path) -> None:
    async with three_nodes(tmp_path, *SHORT_LOG, "storage.compact_check_ms=100") as cluster:
        bootstrap = cluster.spec.bootstrap
        create = partial(workload.create_topic, partitions=1, replication=3, configs=SETTINGS)
        await in_thread(partial(create, bootstrap, TABLE.topic))
        table = Table(bootstrap)
        await in_thread(table.write_without_a_key)
        assert table.refused == [KafkaError.INVALID_RECORD]
        await in_thread(partial(table.write, 4_000))
        await until(cluster, has_settled, "all nodes have data out of their log")
        await until(cluster, is_small, "all nodes have compacted it")
        assert await in_thread(table.read) < 4_000 * 2 / 3

        source = await in_thread(table.leader)
        target = source % 3 + 1
        await health.place(cluster.spec.node(target).http, {"all_on": target})
        await until(cluster, lambda view: view.count_by_master()[source] == 0, "a steal")
        assert await in_thread(table.leader) == target
        await in_thread(table.read)

        await in_thread(partial(table.write, 500))
        for node in (target, source):
            await cluster.kill(node)
            if node == target:
                damage(cluster.spec.data_dir / f"node-{node}")
            await cluster.restart(node)
        await until(cluster, everything_has_a_master, "masters again")
        await in_thread(partial(table.write, 500))
        await until(cluster, is_small, "and have done so again")
        assert await in_thread(table.read) < 5_000 * 2 / 3
        await until(cluster, partial(is_mended, node=target), "a peer's data is in its place")
