"""Making record batches: records are encoded as they come, then sealed under one header.

A producer appends one record at a time, must know the size so far, compresses the records
(`wire.records.compression`) and writes the header last, when it knows the sequence number. A retry
under another sequence number seals the same payload again.
"""

import struct
import zlib
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchError,
    Compression,
    Record,
)

RECORD_OVERHEAD_BYTES_MAX: Final = 5 + 1 + 10 + 5 + 5 + 5 + 5
"""What a record takes in addition to its contents, at most: length, attributes, time, offset, and
the lengths of key, value and headers, all at their longest."""
HEADER_OVERHEAD_BYTES_MAX: Final = 10

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_COVERED_FROM: Final = 21


class BatchWriter:
    """The encoded records of one batch; their times are relative to the first one's."""

    def __init__(self) -> None:
        self.payload = bytearray()
        self.count = 0
        self.base_timestamp_ms = 0
        self.max_timestamp_ms = 0

    @property
    def size(self) -> int:
        """Bytes of the batch if it is sealed uncompressed."""
        return HEADER_BYTES + len(self.payload)

    def append(self, record: Record) -> None:
        """Add a record; it gets the next offset of the batch, its own offset is ignored."""
        value, key, timestamp_ms, headers, _ = record
        if not self.count:
            self.base_timestamp_ms = self.max_timestamp_ms = timestamp_ms
        elif timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = timestamp_ms
        one = bytearray(1)
        put_varint(one, timestamp_ms - self.base_timestamp_ms)
        put_varint(one, self.count)
        _put_bytes(one, key)
        _put_bytes(one, value)
        put_varint(one, len(headers))
        for name, content in headers:
            _put_bytes(one, name.encode())
            _put_bytes(one, content)
        put_varint(self.payload, len(one))
        self.payload += one
        self.count += 1

    def seal(
        self,
        payload: Buffer,
        *,
        base_offset: int = 0,
        leader_epoch: int = -1,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = -1,
        base_sequence: int = NO_SEQUENCE,
        compression: Compression = Compression.NONE,
    ) -> bytes:
        """The batch as bytes; `payload` is `self.payload` compressed with `compression`."""
        assert self.count, "a batch has at least one record"
        head = bytearray(
            _HEADER.pack(
                base_offset,
                HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload),
                leader_epoch,
                MAGIC,
                0,
                compression,
                self.count - 1,
                self.base_timestamp_ms,
                self.max_timestamp_ms,
                producer_id,
                producer_epoch,
                base_sequence,
                self.count,
            )
        )
        _CRC.pack_into(head, _CRC_AT, crc32c(payload, crc32c(head[_COVERED_FROM:])))
        return bytes(head) + payload


def record_bytes_max(
    value: bytes | None, key: bytes | None, headers: Sequence[tuple[str, bytes | None]]
) -> int:
    """An upper bound of the encoded size of such a record, at any position in a batch."""
    size = RECORD_OVERHEAD_BYTES_MAX + len(value or b"") + len(key or b"")
    for name, content in headers:
        size += HEADER_OVERHEAD_BYTES_MAX + len(name.encode()) + len(content or b"")
    return size


def compress_gzip(payload: Buffer, level: int = -1) -> bytes:
    deflater = zlib.compressobj(level, wbits=31)
    return deflater.compress(payload) + deflater.flush()


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    compression: Compression = Compression.NONE,
) -> bytes:
    """Encode records as one batch, with consecutive offsets; their own offsets are ignored.

    Raises:
        BatchError: UNSUPPORTED_COMPRESSION_TYPE for a codec that the standard library does not
            have.
    """
    writer = BatchWriter()
    for record in records:
        writer.append(record)
    payload: Buffer = writer.payload
    if compression is Compression.GZIP:
        payload = compress_gzip(payload)
    elif compression is not Compression.NONE:
        raise BatchError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"cannot compress with {compression.name}"
        )
    return writer.seal(
        payload,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        compression=compression,
    )


def put_varint(out: bytearray, value: int) -> None:
    """Append a zig-zag varint of up to 64 bits."""
    value = value << 1 if value >= 0 else (-value << 1) - 1
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    put_varint(out, len(value))
    out += value
