"""The shared cluster of tests with Spark, for tests without an event loop."""

import itertools
import time
from collections.abc import Mapping
from typing import Any

import attrs
import trio
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from pyspark_evenkeel.client.cluster import Cluster
from pyspark_evenkeel.client.settings import ClusterSettings
from tests.evenkeel.shared_cluster import SharedCluster

WAIT_S = 40.0
_numbers = itertools.count(1)

Row = tuple[bytes | None, bytes | None]
"""Key and value."""


@attrs.frozen
class Bus:
    """Any Kafka with bootstrap servers and topics."""

    bootstrap: str

    def produce(self, topic: str, rows: Mapping[int, list[Row]], **settings: Any) -> None:
        """Each partition's rows, all acknowledged on return."""
        failures: list[str] = []

        def told(error: KafkaError | None, _message: Message) -> None:
            if error is not None:
                failures.append(str(error))

        producer = Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 5, **settings})
        for partition, pairs in rows.items():
            for key, value in pairs:
                while True:
                    try:
                        producer.produce(topic, value, key, partition=partition, on_delivery=told)
                        break
                    except BufferError:  # 100,000 wait for an answer, or for being told of theirs
                        producer.poll(0.05)
        assert producer.flush(WAIT_S) == 0, "messages without an answer"
        assert not failures, failures[:3]

    def contents(self, topic: str) -> dict[int, list[Row]]:
        """All rows of every partition, as a plain consumer reads them."""
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": "contents"})
        try:
            found = consumer.list_topics(topic, timeout=WAIT_S).topics[topic].partitions
            return {one: self._partition(consumer, topic, one) for one in sorted(found)}
        finally:
            consumer.close()

    def _partition(self, consumer: Consumer, topic: str, partition: int) -> list[Row]:
        place = TopicPartition(topic, partition)
        start, end = consumer.get_watermark_offsets(place, timeout=WAIT_S)
        rows: list[Row] = []
        consumer.assign([TopicPartition(topic, partition, start)])
        while start < end:
            message = consumer.poll(WAIT_S)
            assert message is not None, f"{place} is readable up to {end}"
            assert message.error() is None, message.error()
            rows.append((message.key(), message.value()))
            start = (message.offset() or 0) + 1
        return rows


@attrs.frozen
class OurBus(Bus):
    """Three nodes of ours; the calls that hurt them return when it is done."""

    cluster: SharedCluster

    def create(
        self, prefix: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> str:
        """The name, beginning with `prefix`, of a new topic that all nodes know."""
        name = f"{prefix}-{next(_numbers)}"
        self.cluster.create_topic(name, partitions, settings)
        self._until_all_say(name, partitions)
        return name

    def delete(self, topic: str) -> None:
        """Gone when this returns, on every node."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.delete_topics([topic])[topic].result(WAIT_S)
        self._until_all_say(topic, None)

    def grow(self, topic: str, partitions: int) -> None:
        """More partitions: that many in total."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(WAIT_S)
        self._until_all_say(topic, partitions)

    def _until_all_say(self, topic: str, partitions: int | None) -> None:
        """The node that has made the change answers; others may hear of it a moment later."""
        deadline = time.monotonic() + WAIT_S
        for node in self.cluster.spec.nodes:
            with Cluster(ClusterSettings(bootstrap=str(node.kafka))) as only_this_one:
                while only_this_one.topics(None).get(topic) != partitions:
                    assert time.monotonic() < deadline, f"node {node.id} does not know of {topic}"

    def forget(self, topic: str, partition: int, before: int) -> None:
        """Delete the records below that offset, as retention would."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        place = TopicPartition(topic, partition, before)
        admin.list_topics(topic, timeout=WAIT_S)  # without it its leaders are not looked for
        admin.delete_records([place])[place].result(WAIT_S)

    def leader_of(self, topic: str, partition: int) -> int:
        return trio.run(self.cluster.leader_of, topic, partition)

    def kill(self, node: int) -> None:
        """SIGKILL; it stays down until `restart`."""
        trio.run(self.cluster.kill, node)

    def pause(self, node: int) -> None:
        trio.run(self.cluster.pause, node)

    def resume(self, node: int) -> None:
        trio.run(self.cluster.resume, node)

    def restart(self, node: int) -> None:
        """Start it (again); returns when it is ready."""
        trio.run(self.cluster.restart, node)

    def steal_to(self, node: int) -> None:
        """Ask for all masters on one node; does not wait: steals happen from now on."""
        trio.run(self.cluster.steal_to, node)

    def place_all_on(self, node: int) -> None:
        """All masters to one node, by steals; returns when they are there."""
        trio.run(self.cluster.place_all_on, node)

    def spread(self) -> None:
        """Masters evenly over the nodes, by steals; returns when they are there."""
        trio.run(self.cluster.spread)
