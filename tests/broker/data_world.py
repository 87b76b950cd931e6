"""A World in which delayed fetches are tried again at the end of every round, as the engine does
it."""

from typing import Any

from balancer.registry.commands import CreateTopic
from paxos.ids import GroupId
from tests.broker.world import Asked, World
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TOPIC = "orders"
TOPIC_ID = bytes(15) + b"\x2a"


class DataWorld(World):
    """One topic with one partition per group: partition i is in group i + 1."""

    def __init__(self, nodes: int = 3, groups: int = 4, **settings: Any) -> None:
        super().__init__(nodes, groups, **settings)
        self.run(CreateTopic(TOPIC, TOPIC_ID, groups))

    def group(self, partition: int) -> GroupId:
        return self[1].registry.topics[TOPIC].partitions[partition].group

    def uid(self, partition: int) -> int:
        return self[1].registry.topics[TOPIC].partitions[partition].uid

    def settle(self) -> None:
        """End the round: apply what was submitted, then try the fetches that wait for it."""
        self.cluster.settle()
        for node in self.nodes.values():
            for machine in node.machines.values():
                node.broker.delayed_fetches.appended(machine.take_grown())
            assert not node.bugs, node.bugs

    def masters_changed(self) -> None:
        super().masters_changed()
        for node in self.nodes.values():
            node.broker.delayed_fetches.masters_changed()

    def advance(self, ms: int, *, step_ms: int = 10) -> None:
        for _ in range(0, ms, step_ms):
            super().advance(step_ms, step_ms=step_ms)
            self.settle()

    # -- client requests --------------------------------------------------------------------------

    def begin_produce(
        self, node: int, batches: dict[int, bytes], *, version: int = 10, **fields: Any
    ) -> Asked:
        data = [PartitionProduceData(index, memoryview(one)) for index, one in batches.items()]
        values = {"acks": -1, "timeout_ms": 30_000} | fields
        request = ProduceRequest(topic_data=[TopicProduceData(TOPIC, data)], **values)
        return self.send(node, request, version)

    def produce(self, node: int, partition: int, data: bytes, **fields: Any) -> Any:
        """Produce one batch and return the partition's answer."""
        asked = self.begin_produce(node, {partition: data}, **fields)
        self.settle()
        return asked.response.responses[0].partition_responses[0]

    def begin_fetch(
        self, node: int, *wanted: FetchPartition, version: int = 16, **fields: Any
    ) -> Asked:
        values = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": 50 << 20} | fields
        topic = FetchTopic(TOPIC, TOPIC_ID, list(wanted))
        return self.send(node, FetchRequest(topics=[topic], **values), version)

    def fetch(self, node: int, *wanted: FetchPartition, version: int = 16, **fields: Any) -> Any:
        """Fetch without waiting and return the answer of the (first) partition."""
        fields = {"max_wait_ms": 0} | fields
        return partition_of(self.begin_fetch(node, *wanted, version=version, **fields))

    def list_offsets(
        self, node: int, partition: int, timestamp: int, *, version: int = 7, epoch: int = -1
    ) -> Any:
        asked = self.begin_list_offsets(node, partition, timestamp, version=version, epoch=epoch)
        return asked.response.topics[0].partitions[0]

    def begin_list_offsets(
        self, node: int, partition: int, timestamp: int, *, version: int = 7, epoch: int = -1
    ) -> Asked:
        asked = ListOffsetsPartition(partition, epoch, timestamp)
        topic = ListOffsetsTopic(TOPIC, [asked])
        return self.send(node, ListOffsetsRequest(-1, 0, [topic]), version)

    def end_of_epoch(self, node: int, partition: int, epoch: int, *, current: int = -1) -> Any:
        asked = OffsetForLeaderPartition(partition, current, epoch)
        topic = OffsetForLeaderTopic(TOPIC, [asked])
        response = self.send(node, OffsetForLeaderEpochRequest(-1, [topic]), 4).response
        return response.topics[0].partitions[0]


def want(
    partition: int, offset: int, *, bytes_max: int = 1 << 20, epoch: int = -1
) -> FetchPartition:
    return FetchPartition(
        partition, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=bytes_max
    )


def partition_of(asked: Asked, number: int = 0) -> Any:
    return asked.response.responses[0].partitions[number]
