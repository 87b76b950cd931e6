"""The bytes of a segment file. docs/storage-format.md draws the same tables with the reasons.

A segment file has a fixed size and is full of zeros, or of another segment's stale content, before
it is used. It begins with one 512-byte sector, written whole or not at all, that holds this header
twice (at byte 0 and at byte 256), because without it the records after it cannot be checked::

    magic 8s | version u32 | header bytes u32 | number u64 | size u64 | previous end u64
    | oldest u64 | seed u32 | node i32 | incarnation i64 | cluster 64s | crc32c u32 | zeros

`number` counts the segments of this node from 1. `seed` is the checksum of the last record of the
segment before (of the identity, for the first), `previous end` that record's end: they continue the
chain over the border. `oldest` is the oldest segment that was still kept when this one was begun.

Then come records, without padding, none of them across the border of a segment::

    crc32c u32 | header crc32c u32 | magic u16 | kind u8 | flags u8 | payload bytes u32
    | crc of the previous record u32 | offset u32 | synced u64 | group u32 | ballot node i32
    | ballot round i64 | slot u64 | applied u64 | payload

Both checksums begin with the segment's seed at the magic; the second ends with the header, and the
first goes on over the payload. So the second costs nothing but its bytes, and tells for a record
with a damaged payload whose it was and where the next one begins.

A record is valid only at its own `offset`, in its own segment (the seed), after its very
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

FORMAT_VERSION: Final = 3
"""3: what is left of the log may begin above a checkpoint, which version 2 does not know."""
READABLE_VERSIONS: Final = (2, 3)
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
older segments can be retired. slot = highest slot recorded before; payload = the voting floor.
Elsewhere it carries FLAG_SKIP or FLAG_FORGOTTEN."""
RETIRE: Final = 6
"""Written by the log itself: segments below number `slot` are no longer needed."""
DAMAGE: Final = 7
"""Written by the log itself: the log from place `slot` to place `applied` is known to be damaged,
and the consequences were written before this record."""

FLAG_VOTING: Final = 1
FLAG_SKIP: Final = 2
"""In a STATE record: the group's state up to `slot` came from a peer, in a checkpoint. What the log
holds up to there no longer counts, and the next slot recorded may be far ahead."""
FLAG_FORGOTTEN: Final = 4
"""In a STATE record: this node is no longer a member of the group, and none of its slots counts. It
keeps its promises."""

RECORD_MAGIC: Final = 0xE7B1
RECORD_HEADER_BYTES: Final = 64
CHECKSUMS_BYTES: Final = 8
MAGIC_OFFSET: Final = CHECKSUMS_BYTES
"""Where the magic is in a record header."""
RECORD_CHECKSUMS: Final = struct.Struct(">II")
RECORD_BODY: Final = struct.Struct(">HBBIIIQIiqQQ")
"""A record header after its checksums."""
RECORD: Final = struct.Struct(">IIHBBIIIQIiqQQ")
assert RECORD.size == RECORD_HEADER_BYTES == RECORD_BODY.size + CHECKSUMS_BYTES

RecordFields: TypeAlias = tuple[
    int, int, int, int, int, int, int, int, int, int, int, int, int, int
]
"""crc, header crc, magic, kind, flags, payload bytes, previous, offset, synced, group, ballot node,
ballot round, slot, applied: in the order of the bytes. A class would cost more than parsing."""

FLOOR: Final = struct.Struct(">qi")
"""The payload of a STATE record: the round and node of the voting floor."""

_SEGMENT_MAGIC: Final = b"EVENKEEL"
_SEGMENT: Final = struct.Struct(">8sIIQQQQIiq64s")
_SEGMENT_CHECKSUM: Final = struct.Struct(">I")
_SEGMENT_COPIES: Final = (0, SEGMENT_HEADER_BYTES // 2)
assert _SEGMENT.size + _SEGMENT_CHECKSUM.size <= SEGMENT_HEADER_BYTES // 2


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
    """The seed with which the chain of a new log begins."""
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
        copy = body + _SEGMENT_CHECKSUM.pack(crc32c(body))
        return copy.ljust(SEGMENT_HEADER_BYTES // 2, b"\0") * len(_SEGMENT_COPIES)


def decode_segment_header(data: bytes) -> SegmentHeader | None:
    """The header, from whichever copy is intact; None if there is none.

    Later versions keep the magic, the version and the checksum where they are.
    """
    for at in _SEGMENT_COPIES:
        header = _decode_copy(data[at : at + SEGMENT_HEADER_BYTES // 2])
        if header is not None:
            return header
    return None


def header_copies_intact(data: bytes) -> int:
    """How many of the header's copies are intact."""
    half = SEGMENT_HEADER_BYTES // 2
    return sum(_decode_copy(data[at : at + half]) is not None for at in _SEGMENT_COPIES)


def _decode_copy(data: bytes) -> SegmentHeader | None:
    if len(data) < SEGMENT_HEADER_BYTES // 2 or not data.startswith(_SEGMENT_MAGIC):
        return None
    (checksum,) = _SEGMENT_CHECKSUM.unpack_from(data, _SEGMENT.size)
    if crc32c(data[: _SEGMENT.size]) != checksum:
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


def header_intact(data: memoryview, offset: int, seed: int) -> bool:
    """Whether `data` begins with the header of the record at `offset`, whatever its payload."""
    (_, checksum, magic, _, _, _, _, own_offset, *_) = RECORD.unpack_from(data)
    return bool(
        magic == RECORD_MAGIC
        and own_offset == offset
        and crc32c(data[CHECKSUMS_BYTES:RECORD_HEADER_BYTES], seed) == checksum
    )


def record_intact(data: memoryview, place: Place, seed: int) -> bool:
    """Whether `data`, a header and its payload, is the record of `place`, intact."""
    checksum, _, magic, _, _, size, _, offset, *_ = RECORD.unpack_from(data)
    return bool(
        magic == RECORD_MAGIC
        and offset == place & OFFSET_MASK
        and size == len(data) - RECORD_HEADER_BYTES
        and crc32c(data[CHECKSUMS_BYTES:], seed) == checksum
    )


def encode_floor(floor: Ballot) -> bytes:
    return FLOOR.pack(floor.round, floor.node)


def decode_floor(payload: memoryview) -> Ballot:
    round_, node = FLOOR.unpack(payload)
    return Ballot(round_, NodeId(node))
