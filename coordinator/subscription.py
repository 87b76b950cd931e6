"""What members of Kafka's "consumer" protocol say in their metadata, and what they are told.

Most of it is the members' own affair. The coordinator needs the topics to refuse the deletion of
offsets in use, and to see whether a restarted static member asks for more. In a consumer group with
members of both protocols (KIP-848) it plans for the classic members too: then it also reads which
partitions they hold, and writes their assignments.

The layouts are ConsumerProtocolSubscription and ConsumerProtocolAssignment, versions 0 to 3. A
later version is read as far as version 3 goes, as Kafka does. Fields that an old client leaves out
at the end count as absent.
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

CONSUMER_PROTOCOL: Final = "consumer"
OWNED_FROM: Final = 1
GENERATION_FROM: Final = 2
RACK_FROM: Final = 3
VERSION_MAX: Final = 3
NO_GENERATION: Final = -1

Named = tuple[str, int]
"""A partition by the name of its topic."""

_VERSION: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_LENGTH: Final = struct.Struct(">h")
_NO_USER_DATA: Final = _I32.pack(-1)


class SubscriptionError(ValueError):
    """The bytes are not those of the "consumer" protocol."""


class ConsumerSubscription(NamedTuple):
    """`owned`: the partitions that the member held when it wrote this, in `generation`, if it said
    so. A member that gives everything up before it joins (the eager protocol) names none."""

    version: int
    topics: tuple[str, ...]
    owned: frozenset[Named] = frozenset()
    generation: int = NO_GENERATION
    rack_id: str | None = None


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics of a ConsumerProtocolSubscription of any version; None if it is not one."""
    try:
        reader = _Reader(metadata)
        _version(reader)
        return frozenset(reader.texts())
    except SubscriptionError:
        return None


def read_subscription(metadata: bytes) -> ConsumerSubscription:
    """All of a ConsumerProtocolSubscription.

    Raises:
        SubscriptionError: if it is not one.
    """
    reader = _Reader(metadata)
    version, topics = _version(reader), tuple(reader.texts())
    owned: frozenset[Named] = frozenset()
    generation, rack_id = NO_GENERATION, None
    if reader.more():
        reader.blob()
    if version >= OWNED_FROM and reader.more():
        owned = reader.partitions()
    if version >= GENERATION_FROM and reader.more():
        generation = reader.number(_I32)
    if version >= RACK_FROM and reader.more():
        rack_id = reader.optional_text()
    return ConsumerSubscription(version, topics, owned, generation, rack_id)


def read_assignment(assignment: bytes) -> frozenset[Named]:
    """The partitions in a ConsumerProtocolAssignment; empty bytes are an empty one.

    Raises:
        SubscriptionError: if it is not one.
    """
    if not assignment:
        return frozenset()
    reader = _Reader(assignment)
    _version(reader)
    return reader.partitions()


def write_assignment(version: int, parts: Iterable[Named]) -> bytes:
    """A ConsumerProtocolAssignment in the version of its member's subscription."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(parts):
        topics.setdefault(topic, []).append(partition)
    pieces = [_VERSION.pack(min(version, VERSION_MAX)), _I32.pack(len(topics))]
    for topic, partitions in topics.items():
        name = topic.encode()
        pieces += [_LENGTH.pack(len(name)), name, _I32.pack(len(partitions))]
        pieces += map(_I32.pack, partitions)
    return b"".join([*pieces, _NO_USER_DATA])


def _version(reader: "_Reader") -> int:
    version = reader.number(_VERSION)
    if version < 0:
        raise SubscriptionError(f"version {version}")
    return version


class _Reader:
    """Reads with bounds: raises SubscriptionError and nothing else."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def more(self) -> bool:
        return self._at < len(self._data)

    def number(self, layout: struct.Struct) -> int:
        try:
            (value,) = layout.unpack_from(self._data, self._at)
        except struct.error as error:
            raise SubscriptionError(f"cut short at byte {self._at}") from error
        self._at += layout.size
        assert isinstance(value, int)
        return value

    def texts(self) -> list[str]:
        return [self._text(self.number(_LENGTH)) for _ in range(self._count(_LENGTH.size))]

    def optional_text(self) -> str | None:
        length = self.number(_LENGTH)
        return None if length == -1 else self._text(length)

    def blob(self) -> None:
        """Skip bytes that may be null."""
        length = self.number(_I32)
        if length != -1:
            self._take(length)

    def partitions(self) -> frozenset[Named]:
        parts: set[Named] = set()
        for _ in range(self._count(_LENGTH.size + _I32.size)):
            topic = self._text(self.number(_LENGTH))
            parts.update((topic, self.number(_I32)) for _ in range(self._count(_I32.size)))
        return frozenset(parts)

    def _count(self, item_bytes_min: int) -> int:
        count = self.number(_I32)
        if not 0 <= count <= (len(self._data) - self._at) // item_bytes_min:
            raise SubscriptionError(f"{count} items announced before byte {self._at}")
        return count

    def _text(self, length: int) -> str:
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise SubscriptionError("a string that is not UTF-8") from error

    def _take(self, length: int) -> bytes:
        if length < 0 or self._at + length > len(self._data):
            raise SubscriptionError(f"cut short: {length} bytes wanted at byte {self._at}")
        piece = self._data[self._at : self._at + length]
        self._at += length
        return piece
