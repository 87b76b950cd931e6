"""The registry as bytes: what a node that was away for long gets instead of the log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from balancer.registry.packing import (
    FLAG,
    I32,
    I64,
    STRING,
    U8,
    U32,
    Field,
    PackingError,
    decode,
    encode,
    mapping,
    opening,
    optional,
    record,
    sequence,
)
from balancer.registry.policy import (
    PINS,
    PLAN_RECORD,
    PLANS_MAX,
    POLICY,
    STEALS_MAX,
    WEIGHTS,
    PlanRecord,
    Policy,
    Weights,
)
from balancer.registry.records import (
    ADMITTED,
    CLUSTER,
    CLUSTER_3,
    EPOCH_FLOOR_MAX,
    EPOCHS,
    GROUPS_MAX,
    HISTORY_MAX,
    MEMBERS,
    NODE,
    NODE_3,
    NODES_MAX,
    PLACEMENT,
    REMOVED_MAX,
    REPLICA_RECORD,
    REPLICA_RECORDS_MAX,
    REPLICA_SETS,
    STEAL_RECORD,
    TOKEN,
    TOPIC,
    TOPIC_4,
    TOPICS_MAX,
    Admitted,
    Cluster,
    Node,
    Noted,
    PartitionUid,
    ReplicaRecord,
    StealRecord,
    StealToken,
    Topic,
)
from balancer.registry.security import NO_SECURITY, SECURITY, Security, check_security
from balancer.registry.versions import CLUSTER_VERSION, ClusterVersion
from paxos.ids import SLOT_ZERO, GroupId, NodeId, Slot

IMAGE_VERSION: Final = 9
"""2: tokens, policy, pins, weights and plans. 3: all cancelled tokens instead of the last. 4: node
lives, replica sets and members. 5: the slots of decisions. 6: the bases of leader epochs. 7: the
orders of replicas. 8: the cluster version. 9: security. Without that 8 is written, and without a
cluster version 7, so that nodes of before can read it. Versions from 3 on are read."""
_VERSIONS_COUNTS: Final = {3: 6, 4: 8, 5: 8, 6: 8, 7: 8, 8: 8, 9: 8}
DECISIONS_MAX: Final = TOPICS_MAX + 4 * GROUPS_MAX + 2 * REMOVED_MAX
"""For every topic, every node there ever was, and the pause, pin and set of each group."""
PIECE_TOPICS: Final = 500
PIECE_PARTITIONS: Final = 2_000
"""In one piece: checkpoints are made between the rounds of a node and must not delay one."""


@attrs.frozen(kw_only=True)
class Image:
    """Everything a registry consists of; what can be derived is left out."""

    applied: Slot
    versions: tuple[int, ...]
    cluster: Cluster | None
    nodes: tuple[Node, ...]
    topics: tuple[Topic, ...]
    next_uid: PartitionUid
    next_producer_id: int
    placement: Mapping[GroupId, NodeId]
    tokens: tuple[StealToken, ...]
    next_token: int
    history: tuple[StealRecord, ...]
    stolen_versions: Mapping[GroupId, Slot]
    cancelled: tuple[int, ...]
    paused: bool
    paused_groups: tuple[GroupId, ...]
    policy: Policy
    pins: Mapping[GroupId, NodeId]
    weights: Weights
    plans: tuple[PlanRecord, ...]
    admitted: tuple[Admitted, ...] = ()
    removed: tuple[NodeId, ...] = ()
    replica_sets: Mapping[GroupId, tuple[NodeId, ...]] = attrs.field(factory=dict)
    by_hand: tuple[GroupId, ...] = ()
    members: Mapping[GroupId, Noted] = attrs.field(factory=dict)
    replica_history: tuple[ReplicaRecord, ...] = ()
    fenced_since: Slot = SLOT_ZERO
    decided: Mapping[str, Slot] = attrs.field(factory=dict)
    epochs: Mapping[GroupId, int] = attrs.field(factory=dict)
    epoch_floor: int = 0
    orders: Mapping[GroupId, tuple[NodeId, ...]] = attrs.field(factory=dict)
    cluster_version: ClusterVersion = attrs.field(factory=ClusterVersion)
    security: Security = NO_SECURITY


_TOPICS: Final[Mapping[int, Field[tuple[Topic, ...]]]] = {
    version: sequence(TOPIC if version >= 6 else TOPIC_4, TOPICS_MAX)
    for version in _VERSIONS_COUNTS
}
_REST_3: Final = (
    U32,
    I64,
    PLACEMENT,
    sequence(TOKEN, STEALS_MAX),
    I64,
    sequence(STEAL_RECORD, HISTORY_MAX),
    mapping(U32, I64, GROUPS_MAX + 1),
    sequence(I64, STEALS_MAX),
    FLAG,
    sequence(U32, GROUPS_MAX + 1),
    POLICY,
    PINS,
    WEIGHTS,
    sequence(PLAN_RECORD, PLANS_MAX),
)
_OPENING_4: Final = (
    I64,
    sequence(I64, _VERSIONS_COUNTS[4]),
    optional(CLUSTER),
    sequence(NODE, NODES_MAX),
)
_REST_4: Final = (
    *_REST_3,
    sequence(ADMITTED, NODES_MAX),
    sequence(I32, REMOVED_MAX),
    REPLICA_SETS,
    sequence(U32, GROUPS_MAX + 1),
    MEMBERS,
    sequence(REPLICA_RECORD, REPLICA_RECORDS_MAX),
)
_REST_5: Final = (*_REST_4, I64, mapping(STRING, I64, DECISIONS_MAX))
_REST_6: Final = (*_REST_5, EPOCHS, I32)
_REST_8: Final = (*_REST_6, REPLICA_SETS, CLUSTER_VERSION)
_IMAGES: Final[Mapping[int, Field[Image]]] = {
    3: opening(
        Image,
        I64,
        sequence(I64, _VERSIONS_COUNTS[3]),
        optional(CLUSTER_3),
        sequence(NODE_3, NODES_MAX),
        _TOPICS[3],
        *_REST_3,
    ),
    4: opening(Image, *_OPENING_4, _TOPICS[4], *_REST_4),
    5: opening(Image, *_OPENING_4, _TOPICS[5], *_REST_5),
    6: opening(Image, *_OPENING_4, _TOPICS[6], *_REST_6),
    7: opening(Image, *_OPENING_4, _TOPICS[7], *_REST_6, REPLICA_SETS),
    8: opening(Image, *_OPENING_4, _TOPICS[8], *_REST_8),
    9: record(Image, *_OPENING_4, _TOPICS[9], *_REST_8, SECURITY),
}


def version_for(image: Image) -> int:
    """The version that an image is written in."""
    if not image.security.is_empty:
        return IMAGE_VERSION
    return 7 if image.cluster_version.unsaid else 8


def encode_image(image: Image) -> bytes:
    version = version_for(image)
    return encode(U8, version) + encode(_IMAGES[version], image)


def decode_image(data: bytes | memoryview) -> Image:
    """The image that these bytes encode.

    Raises:
        PackingError: if they are no image of a known version, or its parts contradict each other.
    """
    image = _decode(data)
    _check_topics(image)
    return image


def encode_pieces(image: Image) -> Iterator[bytes]:
    """The image in pieces that take a few milliseconds each: first all but the topics, then
    these."""
    yield encode_image(attrs.evolve(image, topics=()))
    field = _TOPICS[version_for(image)]
    piece: list[Topic] = []
    partitions = 0
    for topic in image.topics:
        if partitions >= PIECE_PARTITIONS or len(piece) >= PIECE_TOPICS:
            yield encode(field, tuple(piece))
            piece, partitions = [], 0
        piece.append(topic)
        partitions += len(topic.partitions)
    if piece:
        yield encode(field, tuple(piece))


def decode_pieces(pieces: Sequence[bytes | memoryview]) -> Image:
    """The image that `encode_pieces` was given.

    Raises:
        PackingError: if the pieces are not those of one image.
    """
    if not pieces:
        raise PackingError("no piece of a registry")
    image = _decode(pieces[0])
    if image.topics:
        raise PackingError("topics in the first piece of a registry")
    field = _TOPICS[pieces[0][0]]
    topics = [topic for piece in pieces[1:] for topic in decode(field, piece)]
    if len(topics) > TOPICS_MAX:
        raise PackingError(f"{len(topics)} topics, at most {TOPICS_MAX}")
    image = attrs.evolve(image, topics=tuple(topics))
    _check_topics(image)
    return image


def _decode(data: bytes | memoryview) -> Image:
    view = memoryview(data)
    if not len(view) or view[0] not in _IMAGES:
        raise PackingError("not a registry snapshot of a known version")
    version = view[0]
    image = decode(_IMAGES[version], view[1:])
    if len(image.versions) != _VERSIONS_COUNTS[version]:
        raise PackingError(f"{len(image.versions)} versions in an image of version {version}")
    if version >= 8 and version != version_for(image):
        raise PackingError(f"version {version} where an older one says as much")
    check_security(image.security)
    if image.cluster is not None and image.cluster.groups_count > GROUPS_MAX:
        raise PackingError(f"{image.cluster.groups_count} groups, at most {GROUPS_MAX}")
    ascending = (
        [node.node for node in image.nodes],
        [node.node for node in image.admitted],
        image.removed,
        image.paused_groups,
        image.by_hand,
        list(image.security.listeners),
    )
    if any(list(one) != sorted(set(one)) for one in ascending):
        raise PackingError("nodes or groups are there twice or out of order")
    return image


def _check_topics(image: Image) -> None:
    uids = [place.uid for topic in image.topics for place in topic.partitions]
    if len(set(uids)) != len(uids) or any(uid >= image.next_uid for uid in uids):
        raise PackingError("a partition uid is used twice or lies in the future")
    if any(len(topic.epoch_bases) not in (0, len(topic.partitions)) for topic in image.topics):
        raise PackingError("a topic with more partitions than leader epochs, or fewer")
    bases = [base for topic in image.topics for base in topic.epoch_bases]
    if not all(0 <= base <= EPOCH_FLOOR_MAX for base in (*bases, image.epoch_floor)):
        raise PackingError("leader epochs that begin nowhere")
    names, ids = (
        {topic.name for topic in image.topics},
        {topic.topic_id for topic in image.topics},
    )
    if len(names) != len(image.topics) or len(ids) != len(image.topics):
        raise PackingError("two topics share a name or an id")
