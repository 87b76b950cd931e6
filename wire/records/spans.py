"""The records of a batch as positions in its payload, without an object per value.

For code that keeps some records of a batch and drops the others (`broker.lifecycle.compaction`), or
only needs their keys: a kept record is copied byte for byte. Batches are rewritten under their old
header, so that their offsets, producer and times do not change.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    RECORD_BYTES_MIN,
    TIMESTAMP_END,
    BatchError,
    BatchHeader,
    read_varint,
)

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21


class RecordSpan(NamedTuple):
    """The position of a record in the payload; `start` is that of its length."""

    start: int
    timestamp_at: int
    offset_at: int
    stop: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def record_spans(header: BatchHeader, payload: bytes) -> Iterator[RecordSpan]:
    """The records of a batch in order; their offsets ascend, and are within the batch.

    Raises:
        BatchError: CORRUPT_MESSAGE if the records are not what the header says.
    """
    if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(payload):
        raise _corrupt(f"{header.record_count} records in {len(payload)} bytes")
    before = -1
    pos = 0
    for _ in range(header.record_count):
        try:
            span = _span(payload, pos)
        except IndexError as error:
            raise _corrupt(f"a record at byte {pos} goes beyond the end") from error
        if not before < span.offset_delta <= header.last_offset_delta:
            raise _corrupt(f"offset delta {span.offset_delta} after {before}")
        timestamp_ms = header.base_timestamp_ms + span.timestamp_delta
        if not -TIMESTAMP_END <= timestamp_ms < TIMESTAMP_END:
            raise _corrupt(f"timestamp {timestamp_ms}")
        before, pos = span.offset_delta, span.stop
        yield span
    if pos != len(payload):
        raise _corrupt(f"{len(payload) - pos} bytes after the last record")


def _span(payload: bytes, start: int) -> RecordSpan:
    size, pos = read_varint(payload, start)
    stop = pos + size
    if size < 0 or stop > len(payload):
        raise _corrupt(f"a record of {size} bytes with {len(payload) - pos} left")
    timestamp_at = pos + 1  # after the attributes, which no record uses
    timestamp_delta, offset_at = read_varint(payload, timestamp_at)
    offset_delta, pos = read_varint(payload, offset_at)
    key_size, pos = read_varint(payload, pos)
    key = None
    if key_size >= 0:
        key = payload[pos : pos + key_size]
        pos += key_size
    value_size, pos = read_varint(payload, pos)
    if key_size < -1 or value_size < -1 or pos + max(0, value_size) > stop:
        raise _corrupt(f"a key of {key_size} and a value of {value_size} bytes at byte {start}")
    return RecordSpan(
        start, timestamp_at, offset_at, stop, timestamp_delta, offset_delta, key, value_size == -1
    )


def rebuilt(header: BatchHeader, payload: Buffer) -> bytes:
    """A batch of these records with this header, whose length and checksum are corrected."""
    head = bytearray(
        _HEADER.pack(
            *header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload), crc=0)
        )
    )
    _CRC.pack_into(head, _CRC_AT, crc32c(payload, crc32c(head[_COVERED_FROM:])))
    return bytes(head) + payload


def _corrupt(what: str) -> BatchError:
    return BatchError(ErrorCode.CORRUPT_MESSAGE, what)
