"""The registry as bytes: what a node that has been away for long gets instead of the log."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import attrs

from balancer.packing import (
    FLAG,
    I64,
    U8,
    U32,
    Field,
    PackingError,
    decode,
    encode,
    mapping,
    optional,
    record,
    sequence,
)
from balancer.policy import (
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
from balancer.records import (
    CLUSTER,
    GROUPS_MAX,
    HISTORY_MAX,
    NODE,
    NODES_MAX,
    PLACEMENT,
    STEAL_RECORD,
    TOKEN,
    TOPIC,
    TOPICS_MAX,
    Cluster,
    Node,
    PartitionUid,
    StealRecord,
    StealToken,
    Topic,
)
from paxos.ids import GroupId, NodeId, Slot

IMAGE_VERSION: Final = 3
"""2: tokens, policy, pins, weights and plans. 3: all cancelled tokens instead of the last."""
_VERSIONS_COUNT: Final = 6
PIECE_TOPICS: Final = 500
PIECE_PARTITIONS: Final = 2_000
"""In one piece: a checkpoint is made between the rounds of a node, and should not hold one up."""


@attrs.frozen(kw_only=True)
class Image:
    """Everything a registry is made of; what can be derived is left out."""

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


_IMAGE: Final[Field[Image]] = record(
    Image,
    I64,
    sequence(I64, _VERSIONS_COUNT),
    optional(CLUSTER),
    sequence(NODE, NODES_MAX),
    sequence(TOPIC, TOPICS_MAX),
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

_TOPICS: Final = sequence(TOPIC, TOPICS_MAX)


def encode_image(image: Image) -> bytes:
    return encode(U8, IMAGE_VERSION) + encode(_IMAGE, image)


def decode_image(data: bytes | memoryview) -> Image:
    """The image these bytes stand for.

    Raises:
        PackingError: if they are no image of this version, or its parts contradict each other.
    """
    image = _decode(data)
    _check_topics(image)
    return image


def encode_pieces(image: Image) -> Iterator[bytes]:
    """The image in pieces that take a few milliseconds each: all but the topics, then these."""
    yield encode_image(attrs.evolve(image, topics=()))
    piece: list[Topic] = []
    partitions = 0
    for topic in image.topics:
        if partitions >= PIECE_PARTITIONS or len(piece) >= PIECE_TOPICS:
            yield encode(_TOPICS, tuple(piece))
            piece, partitions = [], 0
        piece.append(topic)
        partitions += len(topic.partitions)
    if piece:
        yield encode(_TOPICS, tuple(piece))


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
    topics = [topic for piece in pieces[1:] for topic in decode(_TOPICS, piece)]
    if len(topics) > TOPICS_MAX:
        raise PackingError(f"{len(topics)} topics, at most {TOPICS_MAX}")
    image = attrs.evolve(image, topics=tuple(topics))
    _check_topics(image)
    return image


def _decode(data: bytes | memoryview) -> Image:
    view = memoryview(data)
    if not len(view) or view[0] != IMAGE_VERSION:
        raise PackingError("not a registry snapshot of a known version")
    image = decode(_IMAGE, view[1:])
    if len(image.versions) != _VERSIONS_COUNT:
        raise PackingError(f"{len(image.versions)} versions, expected {_VERSIONS_COUNT}")
    if image.cluster is not None and image.cluster.groups_count > GROUPS_MAX:
        raise PackingError(f"{image.cluster.groups_count} groups, at most {GROUPS_MAX}")
    numbers = [node.node for node in image.nodes]
    if numbers != sorted(set(numbers)) or list(image.paused_groups) != sorted(
        set(image.paused_groups)
    ):
        raise PackingError("nodes or paused groups are there twice or out of order")
    return image


def _check_topics(image: Image) -> None:
    uids = [place.uid for topic in image.topics for place in topic.partitions]
    if len(set(uids)) != len(uids) or any(uid >= image.next_uid for uid in uids):
        raise PackingError("a partition uid is used twice or lies in the future")
    names, ids = (
        {topic.name for topic in image.topics},
        {topic.topic_id for topic in image.topics},
    )
    if len(names) != len(image.topics) or len(ids) != len(image.topics):
        raise PackingError("two topics share a name or an id")
