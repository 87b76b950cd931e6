"""The bytes of a segment file. docs/storage-format.md draws the same tables with the reasons.

A segment file has a fixed size and is full of zeros, or of another segment's stale content, before
it is used. It begins with one 512-byte sector, written whole or not at all::

    magic 8s | version u32 | header bytes u32 | number u64 | size u64 | previous end u64
    | oldest u64 | seed u32 | node i32 | incarnation i64 | cluster 64s | crc32c u32 | zeros

`number` counts the segments of this node from 1. `seed` is the checksum of the last record of the
segment before (of the identity, for the first), `previous end` that record's end: they continue the
chain over the border. `oldest` is the oldest segment that was still kept when this one was begun.

Then come records, without padding, none of them across the border of a segment::

    crc32c u32 | magic u16 | kind u8 | flags u8 | payload bytes u32 | crc of the previous record u32
    | place u64 | synced u64 | group u32 | ballot node i32 | ballot round i64 | slot u64
    | applied u64 | payload

The checksum begins with the segment's seed and covers everything behind itself, payload included.
A record is what it claims to be only at its own `place`, in its own segment, behind its very
predecessor: stale content of a recycled file, a block written to the wrong place, or a record that
a client has smuggled into a payload is never taken for one. `synced` is a place below which
everything was durable when the record was made: a bad record there is damage, not a torn tail.

All numbers are big-endian. A *place* is one integer: segment number << 32 | byte offset; places
order the log, and place + n is n bytes further in the same segment.
"""

import struct
from typing import Final, TypeAlias

import attrs
from crc32c import crc32c

from paxos.ids import Ballot, Incarnation, NodeId

Place: TypeAlias = int
"""A position in the log: segment number << 32 | byte offset in the segment's file."""

FORMAT_VERSION: Final = 1
SEGMENT_SUFFIX: Final = ".wal"
SEGMENT_HEADER_BYTES: Final = 512
SEGMENT_BYTES_MAX: Final = 1 << 30
CLUSTER_BYTES_MAX: Final = 64
OFFSET_BITS: Final = 32
OFFSET_MASK: Final = (1 << OFFSET_BITS) - 1

PROMISE: Final = 1
ACCEPT: Final = 2
LEARNED: Final = 3
VOTING: Final = 4
STATE: Final = 5
"""Written by the log itself at the head of a segment: what a group had promised before it, so that
older segments can be retired. slot = highest slot recorded before; payload = the voting floor."""
RETIRE: Final = 6
"""Written by the log itself: segments below number `slot` are no longer needed."""

FLAG_VOTING: Final = 1

RECORD_MAGIC: Final = 0xE7B1
RECORD_HEADER_BYTES: Final = 64
CHECKSUM_BYTES: Final = 4
MAGIC_OFFSET: Final = CHECKSUM_BYTES
"""Where the magic stands in a record header."""
RECORD_BODY: Final = struct.Struct(">HBBIIQQIiqQQ")
"""A record header behind its checksum."""
RECORD: Final = struct.Struct(">IHBBIIQQIiqQQ")
assert RECORD.size == RECORD_HEADER_BYTES == RECORD_BODY.size + CHECKSUM_BYTES

RecordFields: TypeAlias = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""crc, magic, kind, flags, payload bytes, previous, place, synced, group, ballot node, ballot
round, slot, applied: in the order of the bytes, because a class would cost more than the parse."""

FLOOR: Final = struct.Struct(">qi")
"""The payload of a STATE record: the round and node of the voting floor."""

_SEGMENT_MAGIC: Final = b"EVENKEEL"
_SEGMENT: Final = struct.Struct(">8sIIQQQQIiq64s")
_SEGMENT_CHECKSUM: Final = struct.Struct(">I")


def place_of(number: int, offset: int) -> Place:
    return number << OFFSET_BITS | offset


def segment_name(number: int) -> str:
    return f"segment-{number:010d}{SEGMENT_SUFFIX}"


def segment_number(name: str) -> int | None:
    """The number in a segment's file name; None if it is not one."""
    digits = name.removeprefix("segment-").removesuffix(SEGMENT_SUFFIX)
    number = int(digits) if digits.isascii() and digits.isdigit() else 0
    return number if number > 0 and segment_name(number) == name else None


def first_seed(cluster: str, node: NodeId) -> int:
    """What the chain of a new log begins with."""
    return crc32c(f"{cluster} {node}".encode())


@attrs.frozen(kw_only=True)
class SegmentHeader:
    number: int
    size: int
    previous_end: Place
    oldest: int
    seed: int
    cluster: str
    node: NodeId
    incarnation: Incarnation
    version: int = FORMAT_VERSION

    def encode(self) -> bytes:
        body = _SEGMENT.pack(
            _SEGMENT_MAGIC,
            self.version,
            SEGMENT_HEADER_BYTES,
            self.number,
            self.size,
            self.previous_end,
            self.oldest,
            self.seed,
            self.node,
            self.incarnation,
            self.cluster.encode("ascii"),
        )
        whole = body + _SEGMENT_CHECKSUM.pack(crc32c(body))
        return whole.ljust(SEGMENT_HEADER_BYTES, b"\0")


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """None if these bytes are no header, or a damaged one: the caller knows which would be wrong.

    Later versions keep the magic, the version and the checksum where they are.
    """
    if len(data) < SEGMENT_HEADER_BYTES or not data.startswith(_SEGMENT_MAGIC):
        return None
    (checksum,) = _SEGMENT_CHECKSUM.unpack_from(data, _SEGMENT.size)
    if crc32c(data[: _SEGMENT.size]) != checksum:
        return None
    if any(data[_SEGMENT.size + _SEGMENT_CHECKSUM.size : SEGMENT_HEADER_BYTES]):
        return None
    fields = _SEGMENT.unpack_from(data)
    _, version, _, number, size, previous_end, oldest, seed, node, incarnation, cluster = fields
    if not SEGMENT_HEADER_BYTES <= size <= SEGMENT_BYTES_MAX:
        return None  # recovery fills a segment up to its size
    return SegmentHeader(
        number=number,
        size=size,
        previous_end=previous_end,
        oldest=oldest,
        seed=seed,
        cluster=cluster.rstrip(b"\0").decode("ascii", "replace"),
        node=NodeId(node),
        incarnation=Incarnation(incarnation),
        version=version,
    )


def record_intact(data: memoryview, place: Place, seed: int) -> bool:
    """Whether `data`, a header and its payload, is the record of `place`, unharmed."""
    fields: RecordFields = RECORD.unpack_from(data)
    checksum, magic, _, _, size, _, own_place, *_ = fields
    return (
        magic == RECORD_MAGIC
        and own_place == place
        and size == len(data) - RECORD_HEADER_BYTES
        and crc32c(data[CHECKSUM_BYTES:], seed) == checksum
    )


def encode_floor(floor: Ballot) -> bytes:
    return FLOOR.pack(floor.round, floor.node)


def decode_floor(payload: memoryview) -> Ballot:
    round_, node = FLOOR.unpack(payload)
    return Ballot(round_, NodeId(node))
