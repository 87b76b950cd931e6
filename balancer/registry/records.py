"""The registry's records: nodes, topics, partitions, the steal token and past steals.

All of them are frozen: a change makes a new one, so the shell may keep any of them as a snapshot.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple, NewType

import attrs

from balancer.registry.packing import (
    FLAG,
    I32,
    I64,
    STRING,
    U8,
    U16,
    U32,
    Field,
    enum,
    fixed,
    mapping,
    opening,
    record,
    sequence,
)
from paxos.ids import MS, GroupId, Incarnation, NodeId, Slot

PartitionUid = NewType("PartitionUid", int)
"""Names one partition for ever: never reused, even after its topic was deleted."""

NODES_MAX: Final = 64
GROUPS_MAX: Final = 4_096
TOPICS_MAX: Final = 10_000
TOPIC_PARTITIONS_MAX: Final = 4_096
PARTITIONS_MAX: Final = 65_536
"""Over all topics."""
UIDS_END: Final = 2**32 - 1
"""Uids are encoded in 32 bits, and so is the next one. Topics that come and go use them up at
last."""
TOPIC_NAME_CHARS_MAX: Final = 249
"""Kafka's rule: a directory name may have 255 bytes, and `-delete` and an index are appended."""
CONFIGS_MAX: Final = 64
"""Per topic; the codec accepts more, so that the registry can refuse them by name."""
CONFIGS_ENCODED_MAX: Final = 1_024
CONFIG_VALUE_CHARS_MAX: Final = 4_096
CLUSTER_ID_CHARS_MAX: Final = 64
REPLICAS_MAX: Final = 9
"""Members of one group: a larger quorum would be slower and hardly safer. The registry's group has
no more either, however many nodes there are."""
REMOVED_MAX: Final = 4_096
"""Removed nodes' ids are remembered for ever, because they are never used again."""
HOST_CHARS_MAX: Final = 255
ZONE_CHARS_MAX: Final = 64
REPLICA_RECORDS_MAX: Final = 32
REPLICA_CHANGES_MAX: Final = 64
"""Changes kept in one record; further ones are only counted."""
HISTORY_MAX: Final = 64
"""How many finished steals the registry remembers."""
EPOCH_MARGIN: Final = 100
"""Changes of a group's master that the author of a topic's deletion may not know of, or that happen
before every node knows of the deletion."""
EPOCH_FLOOR_MAX: Final = 2**30
"""Half of the greatest leader epoch: more than ten million deleted topics away."""
TOKEN_NS_MAX: Final = 60_000 * MS
STEAL_US_MAX: Final = 3_600_000_000
"""A longer duration in a release is recorded as this."""
WALL_NS_MAX: Final = 2**62
"""The year 2116; a later "now" is refused, so that sums with durations stay within 64 bits."""
TOKEN_MARGIN_NS: Final = 500 * MS
"""A token is taken over only this long after its expiry: twice the clock bound (R12),
one for the clock of the node that wrote the expiry and one for that of the node that reads it."""


class Address(NamedTuple):
    host: str
    port: int


@attrs.frozen
class Node:
    """A node as it last registered. `draining`: it should be no group's ideal node; `leaving`: nor
    have any replica, and once it has none it is removed for good."""

    node: NodeId
    incarnation: Incarnation
    kafka: Address
    peer: Address
    http: Address
    zone: str
    draining: bool = False
    leaving: bool = False


@attrs.frozen
class Admitted:
    """A node that an operator has added and that has not registered yet: its peers may talk to
    it."""

    node: NodeId
    peer: Address
    zone: str


@attrs.frozen
class Cluster:
    """Set once, by the first command of a cluster's life; it decides where partitions go."""

    cluster_id: str
    groups_count: int
    """Groups 1..groups_count carry partitions; with 0 all partitions live in the registry's
    group."""
    founders: tuple[NodeId, ...] = ()
    """The nodes of the first configuration, ascending. Empty in a cluster older than replica sets:
    every node that registers belongs to it, and has all groups."""
    replicas: int = 0
    """How many members a group has, from the beginning; 0 where there are no founders."""


class Noted(NamedTuple):
    """A group's members, according to its log since `slot`."""

    slot: Slot
    members: tuple[NodeId, ...]


class ReplicaChange(NamedTuple):
    """One group's replica set, before and after."""

    group: GroupId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    reason: str


@attrs.frozen
class ReplicaRecord:
    """One change of replica sets: its author, time and reason."""

    wall_ns: int
    node: NodeId
    trigger: str
    changes: tuple[ReplicaChange, ...]
    changes_count: int
    """The number of all changes; `changes` keeps the first REPLICA_CHANGES_MAX."""


class PartitionPlace(NamedTuple):
    """The two facts a topic keeps about each of its partitions."""

    uid: PartitionUid
    group: GroupId


@attrs.frozen
class Topic:
    name: str
    topic_id: bytes
    replication: int
    configs: Mapping[str, str]
    partitions: tuple[PartitionPlace, ...]
    epoch_bases: tuple[int, ...] = ()
    """Added to the lease epoch of each partition's group to make its leader epoch, so that this
    begins above those of all topics deleted before; empty: nothing is added."""

    def epoch_base(self, index: int) -> int:
        return self.epoch_bases[index] if self.epoch_bases else 0


@attrs.frozen
class Partition:
    """A partition looked up by its uid, as the log's state machines know it."""

    uid: PartitionUid
    group: GroupId
    topic: str
    topic_id: bytes
    index: int


class Outcome(IntEnum):
    """How a steal ended. Any outcome but DONE and ABANDONED mutes the group for a while."""

    DONE = 0
    ABORTED = 1
    """The master answered StealAbort."""
    TIMED_OUT = 2
    RENEWED = 3
    """The old master renewed its lease twice during the cycle: it is not letting go (E21)."""
    LOST = 4
    """A node other than the ideal one became master during the cycle."""
    EXPIRED = 5
    """The holder never gave the token back; recorded when another node takes it over."""
    ABANDONED = 6
    """The holder found a token of its own that it no longer waited for."""

    @property
    def failed(self) -> bool:
        return self not in (Outcome.DONE, Outcome.ABANDONED)


@attrs.frozen
class StealToken:
    """The right to run the one steal of the cluster, until an absolute point in time.

    (`target`, `target_incarnation`, `attempt`) names the request it was granted to, so a request
    that was applied twice, or whose answer was lost, is recognised by the node that made it.
    """

    token: int
    group: GroupId
    source: NodeId
    target: NodeId
    target_incarnation: Incarnation
    attempt: int
    master_version: Slot
    placement_version: int
    acquired_wall_ns: int
    expires_wall_ns: int

    def free_at(self, now_wall_ns: int) -> bool:
        return now_wall_ns > self.expires_wall_ns + TOKEN_MARGIN_NS


@attrs.frozen
class StealRecord:
    """A finished steal, as recorded in the registry."""

    token: int
    group: GroupId
    source: NodeId
    target: NodeId
    master_version: Slot
    placement_version: int
    outcome: Outcome
    finished_wall_ns: int
    duration_us: int


TOPIC_ID: Final = fixed(16)
ADDRESS: Final[Field[Address]] = record(Address, STRING, U16)
NODE_3: Final = opening(Node, I32, I64, ADDRESS, ADDRESS, ADDRESS, STRING, FLAG)
NODE: Final = record(Node, I32, I64, ADDRESS, ADDRESS, ADDRESS, STRING, FLAG, FLAG)
"""NODE_3 and CLUSTER_3: their formats in images of version 3."""
ADMITTED: Final = record(Admitted, I32, ADDRESS, STRING)
NODES: Final[Field[tuple[NodeId, ...]]] = sequence(I32, NODES_MAX)
REPLICAS: Final[Field[tuple[NodeId, ...]]] = sequence(I32, REPLICAS_MAX)
CLUSTER_3: Final = opening(Cluster, STRING, U32)
CLUSTER: Final = record(Cluster, STRING, U32, NODES, U8)
REPLICA_SETS: Final[Field[Mapping[GroupId, tuple[NodeId, ...]]]] = mapping(
    U32, REPLICAS, GROUPS_MAX + 1
)
MEMBERS: Final[Field[Mapping[GroupId, Noted]]] = mapping(
    U32, record(Noted, I64, NODES), GROUPS_MAX + 1
)
REPLICA_RECORD: Final = record(
    ReplicaRecord,
    I64,
    I32,
    STRING,
    sequence(record(ReplicaChange, U32, REPLICAS, REPLICAS, STRING), REPLICA_CHANGES_MAX),
    U16,
)
PLACES: Final = sequence(record(PartitionPlace, U32, U32), TOPIC_PARTITIONS_MAX)
PLACED_IN: Final[Field[tuple[GroupId, ...]]] = sequence(U32, TOPIC_PARTITIONS_MAX)
CONFIGS: Final = mapping(STRING, STRING, CONFIGS_ENCODED_MAX)
PLACEMENT: Final[Field[Mapping[GroupId, NodeId]]] = mapping(U32, I32, GROUPS_MAX + 1)
TOPIC_4: Final = opening(Topic, STRING, TOPIC_ID, I32, CONFIGS, PLACES)
"""Its format in images up to version 4, and in results."""
TOPIC: Final = record(
    Topic, STRING, TOPIC_ID, I32, CONFIGS, PLACES, sequence(I32, TOPIC_PARTITIONS_MAX)
)
EPOCHS: Final[Field[Mapping[GroupId, int]]] = mapping(U32, I32, GROUPS_MAX + 1)
TOKEN: Final = record(StealToken, I64, U32, I32, I32, I64, I64, I64, I64, I64, I64)
STEAL_RECORD: Final = record(StealRecord, I64, U32, I32, I32, I64, I64, enum(Outcome), I64, I64)
