"""The bytes of a cold segment: the batches of ONE partition in the order of their offsets.

A file is named after the partition's uid and the first offset that it covers, and begins with::

    magic 8s | version u32 | header bytes u32 | uid u64 | base offset i64 | first timestamp i64
    | node i32 | cluster 64s | clean to i64 | crc32c u32

`clean to`: the offset up to which compaction has left only the last record of each key; 0 if it has
not been here. Then come blocks, without padding. They tile the offsets: each begins at the offset
where the one before ended, and the first at that of the name, so a missing block is noticed::

    magic u32 | header crc32c u32 | content crc32c u32 | payload bytes u32 | batches u32
    | base offset i64 | end offset i64 | max timestamp i64 | synced u64 | table | payload

`synced` is a position below which the whole file was durable when the block was written: a bad
block there is damage; beyond the last such position it may be a torn write. The table has an entry
for each batch, {base - block's base u32, end - base u32, bytes u32, max timestamp i64}; the payload
is the batches, whole and as a consumer gets them (the base offset and the leader epoch are in
place), so a fetch sends slices of it. The content of a batch is opaque here.

A file that is full, or was ended early, is sealed: after its blocks come their base offsets i64,
positions u64 and max timestamps i64, and a trailer at the very end::

    magic 8s | index crc32c u32 | blocks u32 | index position u64 | end offset i64
    | max timestamp i64 | crc32c u32

All checksums begin with a seed made of cluster, uid and base offset, so no block of another file is
taken for one of this. All numbers are big-endian.
"""

import struct
import sys
from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import attrs
from crc32c import crc32c

from paxos.entry import Buffer
from paxos.ids import NodeId
from storage.disk.files import join_small
from storage.format import CLUSTER_BYTES_MAX
from storage.identity import Identity

FORMAT_VERSION: Final = 1
SUFFIX: Final = ".seg"
TEMPORARY_NAME: Final = "cold.tmp"
BLOCK_BYTES: Final = 64 * 1024
"""A block is closed when its payload reaches this; one larger batch is a block of its own."""
BLOCK_BYTES_MAX: Final = 1 << 30
BATCHES_MAX: Final = 1 << 20

_MAGIC: Final = b"EVENCOLD"
_SEAL_MAGIC: Final = b"COLDSEAL"
BLOCK_MAGIC: Final = 0xE7C0B10C
BLOCK_MAGIC_BYTES: Final = BLOCK_MAGIC.to_bytes(4, "big")
_HEADER: Final = struct.Struct(f">8sIIQqqi{CLUSTER_BYTES_MAX}sq")
_CHECKSUM: Final = struct.Struct(">I")
HEADER_BYTES: Final = 128
assert _HEADER.size + _CHECKSUM.size <= HEADER_BYTES
_BLOCK: Final = struct.Struct(">IIIIIqqqQ")
_BLOCK_PREFIX: Final = struct.Struct(">II")
_BLOCK_BODY: Final = struct.Struct(">IIIqqqQ")
BLOCK_HEADER_BYTES: Final = _BLOCK.size
TABLE_ENTRY: Final = struct.Struct(">IIIq")
_TRAILER: Final = struct.Struct(">8sIIQqq")
TRAILER_BYTES: Final = _TRAILER.size + _CHECKSUM.size
_SEED: Final = struct.Struct(">Qq")
NO_TIMESTAMP: Final = -(1 << 63)

Written: TypeAlias = tuple[int, int, int, Sequence[Buffer]]
"""A batch to be written: base offset, end offset, max timestamp in ms, its bytes in pieces."""


class ColdSegment(NamedTuple):
    """A file of one partition's batches: offsets `base` to `end` - 1, where compaction left any."""

    base: int
    end: int
    max_timestamp_ms: int
    bytes: int


class ColdFacts(NamedTuple):
    """What compaction needs to know of a file."""

    base: int
    end: int
    max_timestamp_ms: int
    bytes: int
    first_timestamp_ms: int
    clean_to: int
    sealed: bool
    """It was ended, or there is a later one: nothing is appended to it any more."""


class ColdBatch(NamedTuple):
    base: int
    end: int
    max_timestamp_ms: int
    data: memoryview


class Block(NamedTuple):
    """A block's header."""

    content_crc: int
    payload_bytes: int
    batches: int
    base: int
    end: int
    max_timestamp_ms: int
    synced: int

    @property
    def size(self) -> int:
        """Bytes of the whole block."""
        return BLOCK_HEADER_BYTES + self.batches * TABLE_ENTRY.size + self.payload_bytes


@attrs.frozen
class Trailer:
    index_crc: int
    blocks: int
    position: int
    end: int
    max_timestamp_ms: int


def cold_name(uid: int, base: int) -> str:
    return f"cold-{uid:010d}-{base:020d}{SUFFIX}"


def parse_cold_name(name: str) -> tuple[int, int] | None:
    """Uid and base offset in a file's name; None if it is not one."""
    parts = name.removeprefix("cold-").removesuffix(SUFFIX).split("-")
    if len(parts) != 2 or not all(part.isascii() and part.isdigit() for part in parts):
        return None
    uid, base = map(int, parts)
    return (uid, base) if cold_name(uid, base) == name else None


def seed_of(cluster: str, uid: int, base: int) -> int:
    return crc32c(_SEED.pack(uid, base), crc32c(b"cold " + cluster.encode("ascii")))


# ---- the header -----------------------------------------------------------------------------


def encode_header(
    identity: Identity, uid: int, base: int, first_timestamp_ms: int, clean_to: int = 0
) -> bytes:
    body = _HEADER.pack(
        _MAGIC,
        FORMAT_VERSION,
        HEADER_BYTES,
        uid,
        base,
        first_timestamp_ms,
        identity.node,
        identity.cluster.encode("ascii"),
        clean_to,
    ).ljust(HEADER_BYTES - _CHECKSUM.size, b"\0")
    return body + _CHECKSUM.pack(crc32c(body))


@attrs.frozen
class Header:
    version: int
    uid: int
    base: int
    first_timestamp_ms: int
    node: NodeId
    cluster: str
    clean_to: int


def decode_header(data: bytes) -> Header | None:
    """None if it is damaged. Later versions keep these fields, and the checksum at the end."""
    if len(data) < HEADER_BYTES or not data.startswith(_MAGIC):
        return None
    _, version, size, uid, base, first, node, cluster, clean_to = _HEADER.unpack_from(data)
    if size != HEADER_BYTES:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, HEADER_BYTES - _CHECKSUM.size)
    if crc32c(data[: HEADER_BYTES - _CHECKSUM.size]) != checksum:
        return None
    name = cluster.rstrip(b"\0").decode("ascii", "replace")
    return Header(version, uid, base, first, NodeId(node), name, clean_to)


# ---- blocks ---------------------------------------------------------------------------------


def encode_block(
    seed: int, base: int, end: int, synced: int, batches: Sequence[Written]
) -> list[Buffer]:
    """A block of these batches that covers the offsets from `base` to `end`."""
    assert len(batches) <= BATCHES_MAX, f"{len(batches)} batches in a block"
    table = bytearray()
    payload = 0
    latest = NO_TIMESTAMP
    pieces: list[Buffer] = []
    reached = base
    for first, behind, timestamp, buffers in batches:
        assert reached <= first < behind <= end, f"offsets {first} to {behind} after {reached}"
        size = sum(map(len, buffers))
        table += TABLE_ENTRY.pack(first - base, behind - first, size, timestamp)
        payload += size
        latest = max(latest, timestamp)
        pieces.extend(buffers)
        reached = behind
    assert payload <= BLOCK_BYTES_MAX, f"a block of {payload} bytes"
    content = crc32c(bytes(table), seed)
    pieces = join_small(pieces)
    for piece in pieces:
        content = crc32c(piece, content)
    block = Block(content, payload, len(batches), base, end, latest, synced)
    return [encode_block_header(block, seed) + bytes(table), *pieces]


def encode_block_header(block: Block, seed: int) -> bytes:
    body = _BLOCK_BODY.pack(*block)
    return _BLOCK_PREFIX.pack(BLOCK_MAGIC, crc32c(body, seed)) + body


def decode_block_header(data: memoryview | bytes, seed: int) -> Block | None:
    """None if there is no intact one."""
    if len(data) < BLOCK_HEADER_BYTES:
        return None
    magic, checksum, *fields = _BLOCK.unpack_from(data)
    if magic != BLOCK_MAGIC:
        return None
    if crc32c(data[_BLOCK_PREFIX.size : BLOCK_HEADER_BYTES], seed) != checksum:
        return None
    return Block(*fields)


def content_intact(block: Block, data: memoryview, seed: int) -> bool:
    """Whether `data`, the whole block, holds what its header says."""
    return len(data) == block.size and crc32c(data[BLOCK_HEADER_BYTES:], seed) == block.content_crc


def batches_of(block: Block, data: memoryview) -> list[ColdBatch]:
    """The batches of an intact block, as slices of it."""
    at = BLOCK_HEADER_BYTES + block.batches * TABLE_ENTRY.size
    found = []
    for first, length, size, timestamp in TABLE_ENTRY.iter_unpack(data[BLOCK_HEADER_BYTES:at]):
        base = block.base + first
        found.append(ColdBatch(base, base + length, timestamp, data[at : at + size]))
        at += size
    return found


# ---- the seal -------------------------------------------------------------------------------


def encode_seal(
    seed: int,
    bases: "array[int]",
    positions: "array[int]",
    timestamps: "array[int]",
    position: int,
    end: int,
) -> bytes:
    """The index of a full file, to be written at `position`, and the trailer after it."""
    index = b"".join(map(_big_endian, (bases, positions, timestamps)))
    latest = max(timestamps, default=NO_TIMESTAMP)
    body = _TRAILER.pack(_SEAL_MAGIC, crc32c(index, seed), len(bases), position, end, latest)
    return index + body + _CHECKSUM.pack(crc32c(body, seed))


def decode_trailer(data: bytes, seed: int) -> Trailer | None:
    if len(data) != TRAILER_BYTES or not data.startswith(_SEAL_MAGIC):
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, _TRAILER.size)
    if crc32c(data[: _TRAILER.size], seed) != checksum:
        return None
    return Trailer(*_TRAILER.unpack_from(data)[1:])


def index_bytes(trailer: Trailer) -> int:
    return trailer.blocks * 24


def decode_index(
    data: bytes, trailer: Trailer, seed: int
) -> "tuple[array[int], array[int], array[int]] | None":
    """Base offsets, positions, max timestamps; None if the index is damaged."""
    if len(data) != index_bytes(trailer) or crc32c(data, seed) != trailer.index_crc:
        return None
    third = trailer.blocks * 8
    bases, positions, timestamps = array("q"), array("Q"), array("q")
    for column, start in ((bases, 0), (positions, third), (timestamps, 2 * third)):
        column.frombytes(data[start : start + third])
        if sys.byteorder == "little":
            column.byteswap()
    return bases, positions, timestamps


def _big_endian(column: "array[int]") -> bytes:
    if sys.byteorder == "little":
        column = array(column.typecode, column)
        column.byteswap()
    return column.tobytes()
