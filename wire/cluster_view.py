"""A client's view of the cluster: its nodes, and the leader and epoch of each partition.

It learns from Metadata responses and from the leader hints in error responses (KIP-951). A broker
that lags must not send us back to an old leader, so a lower leader epoch than the known one is
ignored, unless the topic was deleted and recreated, which its id shows.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import attrs

from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from wire.messages.metadata import MetadataResponse, MetadataResponseTopic

NO_LEADER = -1
NO_EPOCH = -1


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class Node(NamedTuple):
    id: int
    host: str
    port: int
    rack: str | None = None


@attrs.define
class PartitionView:
    """`leader` is NO_LEADER while there is none; `epoch` NO_EPOCH if brokers report none."""

    leader: int = NO_LEADER
    epoch: int = NO_EPOCH
    replicas: tuple[int, ...] = ()
    in_sync: tuple[int, ...] = ()


@attrs.define
class TopicView:
    name: str
    topic_id: bytes
    internal: bool
    partitions: dict[int, PartitionView]


@attrs.define
class ClusterView:
    """The newest known state. `changes` goes up whenever a leader or a topic changes."""

    nodes: dict[int, Node] = attrs.Factory(dict)
    topics: dict[str, TopicView] = attrs.Factory(dict)
    errors: dict[str, int] = attrs.Factory(dict)
    """The error code of each requested topic that is not among `topics`."""
    cluster_id: str | None = None
    controller: int = -1
    changes: int = 0

    def take(self, response: MetadataResponse, asked: Iterable[str] | None) -> None:
        """Take in a response to a request for the topics `asked`; None: for all topics."""
        self.nodes = {
            one.node_id: Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers
        }
        self.cluster_id = response.cluster_id
        self.controller = response.controller_id
        topics = {one.name: one for one in response.topics if one.name is not None}
        if asked is None:
            for gone in self.topics.keys() - topics.keys():
                del self.topics[gone]
                self.changes += 1
        for name in sorted(topics):
            self._take_topic(name, topics[name])

    def _take_topic(self, name: str, topic: MetadataResponseTopic) -> None:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            self.errors[name] = topic.error_code
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and name in self.topics:
                del self.topics[name]
                self.changes += 1
            return
        self.errors.pop(name, None)
        known = self.topics.get(name)
        if known is None or UUID_ZERO != known.topic_id != topic.topic_id:
            known = TopicView(name, topic.topic_id, topic.is_internal, {})
            self.topics[name] = known
            self.changes += 1
        known.topic_id = topic.topic_id
        for one in topic.partitions:
            view = known.partitions.get(one.partition_index)
            if view is not None and one.leader_epoch < view.epoch:
                continue
            new = PartitionView(
                one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes)
            )
            if new != view:
                known.partitions[one.partition_index] = new
                self.changes += 1

    def learn(
        self,
        place: TopicPartition,
        leader: LeaderIdAndEpoch | None,
        endpoints: Sequence[NodeEndpoint],
    ) -> bool:
        """Take in a leader hint; True if it names a leader newer than the known one."""
        if leader is None or leader.leader_id < 0:
            return False
        view = self.partition(place)
        if view is None or leader.leader_epoch <= view.epoch:
            return False
        for one in endpoints:
            self.nodes[one.node_id] = Node(one.node_id, one.host, one.port, one.rack)
        if leader.leader_id not in self.nodes:
            return False
        view.leader, view.epoch = leader.leader_id, leader.leader_epoch
        self.changes += 1
        return True

    def partition(self, place: TopicPartition) -> PartitionView | None:
        topic = self.topics.get(place.topic)
        return None if topic is None else topic.partitions.get(place.partition)

    def leader(self, place: TopicPartition) -> int | None:
        """The partition's leader, or None if it or its address is not known."""
        view = self.partition(place)
        return view.leader if view is not None and view.leader in self.nodes else None

    def partitions_of(self, topic: str) -> Mapping[int, PartitionView]:
        view = self.topics.get(topic)
        return {} if view is None else view.partitions

    def name_of(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id. A linear search: there are few topics."""
        for name, view in self.topics.items():
            if view.topic_id == topic_id:
                return name
        return None
