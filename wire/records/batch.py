"""RecordBatch v2 (magic 2), the only message format that is supported.

A stored batch is opaque to us except for its 61-byte header. The CRC covers bytes 21 to the end, so
the base offset (bytes 0-7) and the leader epoch (12-15) can be patched on the way out without a new
CRC. Records themselves are read before they are stored (`wire.records.validation`), to find offsets
by time, in compacted topics, in tests and in our own client. This module decompresses gzip and
refuses other codecs with a typed error (`wire.records.compression` has their libraries).
`wire.records.batch_writer` makes batches.

    offset  0 baseOffset i64           17 crc u32 (CRC-32C)      43 producerId i64
            8 batchLength i32          21 attributes i16         51 producerEpoch i16
           12 partitionLeaderEpoch i32 23 lastOffsetDelta i32    53 baseSequence i32
           16 magic i8                 27 baseTimestamp i64      57 records i32
                                       35 maxTimestamp i64       61 the records
"""

import struct
import zlib
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from wire.codec.primitives import Buffer
from wire.codec.schema import RecordsField
from wire.error_codes import ErrorCode

HEADER_BYTES: Final = 61
PATCHED_BYTES: Final = 16
LOG_OVERHEAD_BYTES: Final = 12
"""Bytes of baseOffset and batchLength, which batchLength does not count."""
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40
"""The base timestamp is the time from which the tombstones in the batch may be deleted (KIP-534);
the records' times are still relative to it."""

DECOMPRESSED_BYTES_MAX: Final = 128 * 1024 * 1024
"""The default limit of a decompressed batch; a batch of 16 MiB could hold far more."""
RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp delta, offset delta, key, value and header count."""
HEADER_PAIR_BYTES_MIN: Final = 2
TIMESTAMP_END: Final = 1 << 63
"""Above every timestamp: they are signed 64-bit integers."""

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
APPEND_FIELDS: Final = struct.Struct(">8xi4xb4xhi8xqqhi")
"""The header fields that a replica needs: batch length, magic, attributes, last offset delta,
greatest timestamp, producer id, epoch and base sequence. Every replica reads them from every batch,
and making a BatchHeader would take longer than the rest of an append."""
_PLAIN_FIELDS: Final = struct.Struct(">qi4xbIhi16xqhii")
"""The header fields that `plain_batch` reads: all but the leader epoch and the times."""
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21
_ATTRIBUTES: Final = struct.Struct(">h")
_TIMESTAMP: Final = struct.Struct(">q")
_MAX_TIMESTAMP_AT: Final = 35
_MAGIC_AT: Final = 16
_PATCH: Final = struct.Struct(">qii")
_LENGTH: Final = struct.Struct(">8xi")

assert _HEADER.size == HEADER_BYTES


class Compression(IntEnum):
    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class BatchError(Exception):
    """The bytes are not a batch that we accept; `code` is the error that Kafka answers."""

    def __init__(self, code: ErrorCode, what: str) -> None:
        super().__init__(f"{what} ({code.name})")
        self.code = code
        self.what = what


class TooMuchError(BatchError):
    """The records are longer when decompressed than is allowed."""


class BatchHeader(NamedTuple):
    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp_ms: int
    max_timestamp_ms: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD_BYTES + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta


class Batch(NamedTuple):
    header: BatchHeader
    data: memoryview
    """The bytes of the whole batch, header included."""


class Record(NamedTuple):
    """A record as users see it; `offset` is -1 until the log assigns one."""

    value: bytes | None
    key: bytes | None = None
    timestamp_ms: int = 0
    headers: tuple[tuple[str, bytes | None], ...] = ()
    offset: int = -1


def as_view(records: RecordsField) -> memoryview:
    """The records field of a message as one view; copied only if it has several parts."""
    if records is None:
        return memoryview(b"")
    if isinstance(records, bytes | bytearray | memoryview):
        return memoryview(records)
    return memoryview(b"".join(records)) if len(records) != 1 else memoryview(records[0])


def parse_header(data: memoryview, at: int = 0) -> BatchHeader:
    """Read the header of the batch that begins at byte `at`, without checking it.

    Raises:
        BatchError: CORRUPT_MESSAGE if there are fewer bytes than a header has.
    """
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(data, at))  # a third of _make's cost
    except struct.error:
        raise BatchError(
            ErrorCode.CORRUPT_MESSAGE, f"{len(data) - at} bytes are not a batch header"
        ) from None


def split(records: memoryview, *, partial_tail: bool = False) -> list[Batch]:
    """Split a records field into its batches without a copy; `validate` checks their contents.

    With `partial_tail` an incomplete last batch is left out instead of refused: a fetch response
    may end with one.

    Raises:
        BatchError: UNSUPPORTED_FOR_MESSAGE_FORMAT for an old format (before its length is used,
            which has another meaning there), CORRUPT_MESSAGE if lengths and bytes disagree.
    """
    batches = []
    at, end = 0, len(records)
    while at < end:
        left = end - at
        if left > _MAGIC_AT and records[at + _MAGIC_AT] != MAGIC:
            raise BatchError(
                ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                f"message format {records[at + _MAGIC_AT]} at byte {at}, only {MAGIC} is supported",
            )
        if left < HEADER_BYTES and partial_tail:
            break
        header = parse_header(records, at)
        size = LOG_OVERHEAD_BYTES + header.batch_length
        if size < HEADER_BYTES or (size > left and not partial_tail):
            raise BatchError(
                ErrorCode.CORRUPT_MESSAGE,
                f"a batch of {size} bytes at byte {at} with {left} left",
            )
        if size > left:
            break
        batches.append(Batch(header, records[at : at + size]))
        at += size
    return batches


def may_be_one(records: RecordsField) -> bool:
    """Whether the lengths allow that these are exactly one batch."""
    view = as_view(records)
    try:
        return len(view) > 0 and len(split(view)) == 1
    except BatchError:
        return False


def validate(batch: Batch, *, log_time: bool = False) -> ErrorCode:
    """Check whether a producer's batch may be appended; returns NONE, or the error to answer.

    With `log_time` it may have the log's append time: another node has set it (`stamped`) and then
    forwarded the batch.

    The order of the checks is Kafka's: first the CRC, then the fields.
    """
    header, data = batch
    if header.magic != MAGIC:
        return ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    if len(data) != header.batch_length + LOG_OVERHEAD_BYTES or len(data) < HEADER_BYTES:
        return ErrorCode.CORRUPT_MESSAGE
    if not is_intact(batch):
        return ErrorCode.CORRUPT_MESSAGE
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        return ErrorCode.INVALID_RECORD
    attributes = header.attributes
    if (
        not attributes & COMPRESSION_MASK
        and header.record_count * RECORD_BYTES_MIN > len(data) - HEADER_BYTES
    ):
        return ErrorCode.INVALID_RECORD  # or 70 bytes could use up two billion offsets
    if attributes & (CONTROL_BIT | DELETE_HORIZON_BIT):
        return ErrorCode.INVALID_RECORD  # only the log itself writes such batches
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        return ErrorCode.INVALID_RECORD  # neither a sequence nor a write token's position
    if attributes & LOG_APPEND_TIME_BIT and not log_time:
        return ErrorCode.INVALID_TIMESTAMP
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    return ErrorCode.NONE


def is_intact(batch: Batch) -> bool:
    """Whether the checksum of the batch is correct."""
    return crc32c(batch.data[_COVERED_FROM:]) == batch.header.crc


def produced_batch(records: memoryview | None, *, log_time: bool = False) -> Batch:
    """Check the records of one partition in a Produce request (version 3 and later), which must be
    exactly one batch, and return it.

    `log_time` as in `validate`.

    Raises:
        BatchError: with the code to answer for this partition.
    """
    if records and len(records) > _MAGIC_AT and records[_MAGIC_AT] != MAGIC:
        known = records[_MAGIC_AT] < MAGIC
        raise BatchError(
            ErrorCode.INVALID_RECORD if known else ErrorCode.CORRUPT_MESSAGE,
            f"message format {records[_MAGIC_AT]}, only {MAGIC} is accepted",
        )
    batches = split(records) if records else []
    if len(batches) != 1:
        raise BatchError(ErrorCode.INVALID_RECORD, f"{len(batches)} batches instead of one")
    if batches[0].header.base_offset:
        raise BatchError(
            ErrorCode.INVALID_RECORD, "the log assigns offsets, a producer's begin at 0"
        )
    code = validate(batches[0], log_time=log_time)
    if code is not ErrorCode.NONE:
        raise BatchError(code, "the batch is not valid")
    return batches[0]


def plain_batch(data: memoryview) -> tuple[int, int] | None:
    """The fast path of `produced_batch`: the producer id and the number of records of a valid batch
    without special attributes. None: call `produced_batch`, which accepts the batch or says what is
    wrong with it."""
    size = len(data)
    if size < HEADER_BYTES:
        return None
    (base, length, magic, crc, attributes, last_delta, producer_id, epoch, sequence, count) = (
        _PLAIN_FIELDS.unpack_from(data)
    )
    if (
        base
        or magic != MAGIC
        or length + LOG_OVERHEAD_BYTES != size
        or not 0 <= attributes <= Compression.ZSTD
        or count <= 0
        or last_delta != count - 1
        or (not attributes and count * RECORD_BYTES_MIN > size - HEADER_BYTES)
        or (producer_id >= 0 and (sequence < 0 or epoch < 0))
        or crc32c(data[_COVERED_FROM:]) != crc
    ):
        return None
    return producer_id, count


def stamped(batch: Batch, time_ms: int) -> memoryview:
    """A copy of the batch with the log's append time instead of the producer's time (KIP-32).

    The records keep their own timestamps; readers use the header's if the bit is set.
    """
    data = bytearray(batch.data)
    _ATTRIBUTES.pack_into(data, _COVERED_FROM, batch.header.attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, time_ms)
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_COVERED_FROM:]))
    return memoryview(data)


def with_greatest_time(batch: Batch, time_ms: int) -> memoryview:
    """The batch, or a copy of it, with this as the greatest timestamp in its header."""
    if batch.header.max_timestamp_ms == time_ms:
        return batch.data
    data = bytearray(batch.data)
    _TIMESTAMP.pack_into(data, _MAX_TIMESTAMP_AT, time_ms)
    _CRC.pack_into(data, _CRC_AT, crc32c(memoryview(data)[_COVERED_FROM:]))
    return memoryview(data)


def patched_head(data: Buffer, base_offset: int, leader_epoch: int) -> bytes:
    """The first 16 bytes of the batch with its offset and epoch; the rest is sent as it is."""
    return _PATCH.pack(base_offset, *_LENGTH.unpack_from(data), leader_epoch)


def checked_head(
    data: memoryview, at: int, size: int, base_offset: int, end_offset: int, leader_epoch: int
) -> tuple[bytes, int] | None:
    """The `patched_head` of the batch of `size` bytes that begins at byte `at`, and its greatest
    timestamp; None if it does not have these offsets, or its checksum is wrong. For reading many
    batches: it does what `split`, `is_intact` and `patched_head` do at a third of their cost."""
    if size < HEADER_BYTES or len(data) < at + size:
        return None
    header = _HEADER.unpack_from(data, at)
    if (
        header[1] + LOG_OVERHEAD_BYTES != size
        or header[3] != MAGIC
        or header[6] != end_offset - base_offset - 1
        or header[4] != crc32c(data[at + _COVERED_FROM : at + size])
    ):
        return None
    return _PATCH.pack(base_offset, header[1], leader_epoch), header[8]


def iterate_records(batch: Batch, payload: bytes | None = None) -> Iterator[Record]:
    """The records of a batch, with absolute offsets and timestamps.

    Callers may rely on ascending offsets and on 64-bit timestamps, whatever the producer wrote.
    `payload` is the result of `decompressed`, if that was called before.

    Raises:
        BatchError: UNSUPPORTED_COMPRESSION_TYPE for a codec that the standard library does not
            have, CORRUPT_MESSAGE if the records are not what the header says.
    """
    header = batch.header
    if payload is None:
        payload = decompressed(batch, DECOMPRESSED_BYTES_MAX)
    log_append = header.attributes & LOG_APPEND_TIME_BIT
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(payload):
        raise _corrupt(f"{header.record_count} records in {len(payload)} bytes")
    pos = 0
    before = header.base_offset - 1
    for _ in range(header.record_count):
        try:
            record, pos = _read_record(payload, pos, header)
        except IndexError as error:
            raise _corrupt(f"a record is malformed at byte {pos}: {error}") from error
        if record.offset <= before:
            raise _corrupt(f"offset {record.offset} after {before}")
        before = record.offset
        yield record._replace(timestamp_ms=header.max_timestamp_ms) if log_append else record
    if pos != len(payload):
        raise _corrupt(f"{len(payload) - pos} bytes after the last record")


def _corrupt(what: str) -> BatchError:
    return BatchError(ErrorCode.CORRUPT_MESSAGE, what)


def decompressed(batch: Batch, bytes_max: int) -> bytes:
    """The decompressed records, at most `bytes_max` (> 0): a batch may decompress to a thousand
    times its size.

    Raises:
        TooMuchError: CORRUPT_MESSAGE for more than `bytes_max`.
        BatchError: as `iterate_records`.
    """
    codec = batch.header.attributes & COMPRESSION_MASK
    data = batch.data[HEADER_BYTES:]
    if codec == Compression.NONE:
        return bytes(data)
    if codec != Compression.GZIP:
        raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"cannot decompress codec {codec}")
    inflater = zlib.decompressobj(wbits=31)
    try:
        payload = inflater.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise _corrupt(f"gzip: {error}") from error
    if len(payload) > bytes_max:
        raise TooMuchError(
            ErrorCode.CORRUPT_MESSAGE, f"a gzip stream that is longer than {bytes_max} bytes"
        )
    if not inflater.eof:
        raise _corrupt("a gzip stream is cut short")
    if inflater.unused_data:  # Java reads it as another stream, librdkafka does not
        raise _corrupt(f"{len(inflater.unused_data)} bytes after the gzip stream")
    return payload


def _read_record(payload: bytes, pos: int, header: BatchHeader) -> tuple[Record, int]:
    length, pos = read_varint(payload, pos)
    stop = pos + length
    if length < 0 or stop > len(payload):
        raise _corrupt(f"a record of {length} bytes with {len(payload) - pos} left")
    pos += 1  # attributes, which no record uses
    timestamp_delta, pos = read_varint(payload, pos)
    offset_delta, pos = read_varint(payload, pos)
    key, pos = _read_bytes(payload, pos)
    value, pos = _read_bytes(payload, pos)
    count, pos = read_varint(payload, pos)
    if count < 0 or count * HEADER_PAIR_BYTES_MIN > stop - pos:
        raise _corrupt(f"{count} record headers in {stop - pos} bytes")
    headers = []
    for _ in range(count):
        name, pos = _read_bytes(payload, pos)
        if name is None:
            raise _corrupt("a record header without a name")
        content, pos = _read_bytes(payload, pos)
        headers.append((name.decode(errors="replace"), content))  # as Java does
    if pos != stop:
        raise _corrupt(f"a record ends at byte {pos} instead of {stop}")
    offset = header.base_offset + offset_delta
    timestamp_ms = header.base_timestamp_ms + timestamp_delta
    if not 0 <= offset_delta <= header.last_offset_delta:
        raise _corrupt(f"offset delta {offset_delta}, the last is {header.last_offset_delta}")
    if not -TIMESTAMP_END <= timestamp_ms < TIMESTAMP_END:
        raise _corrupt(f"timestamp {timestamp_ms}")
    return Record(value, key, timestamp_ms, tuple(headers), offset), pos


def _read_bytes(payload: bytes, pos: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(payload, pos)
    if length == -1:
        return None, pos
    stop = pos + length
    if length < 0 or stop > len(payload):
        raise _corrupt(f"{length} bytes of key, value or header with {len(payload) - pos} left")
    return payload[pos:stop], stop


def read_varint(payload: Buffer, pos: int) -> tuple[int, int]:
    """Read a zig-zag varint of up to 64 bits; returns its value, and the position after it.

    Raises:
        BatchError: CORRUPT_MESSAGE for a longer one.
        IndexError: the bytes end before the varint does.
    """
    value = 0
    for shift in range(0, 70, 7):
        byte = payload[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), pos
    raise _corrupt("a varint longer than 10 bytes")
