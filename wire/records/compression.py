"""Compressing and decompressing the records of a batch: gzip, snappy, LZ4 and Zstandard.

For our client, and for nodes, which read the records that producers send and compact topics.
gzip is the standard library's, the others are cramjam's (ADR 12). Decompressed sizes are limited,
because a small batch may decompress to any size. If the format does not give the size of the
contents (LZ4, Zstandard), memory is allocated in steps, so that a false claim costs little.

Snappy comes in two formats. Java frames it ("xerial": a magic, two version numbers, then blocks
with a length each), librdkafka sends one bare block. Both are read; the framed one is written,
because all clients understand it.
"""

import struct
from collections.abc import Callable
from typing import Final

import cramjam

from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    Batch,
    BatchError,
    Compression,
    TooMuchError,
    decompressed,
    parse_header,
)
from wire.records.batch_writer import compress_gzip
from wire.records.spans import rebuilt

FIRST_GUESS_FACTOR: Final = 4
GUESS_BYTES_MIN: Final = 64 * 1024
LZ4_LEVEL: Final = 1
ZSTD_LEVEL: Final = 3
XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_BLOCK_BYTES: Final = 32 * 1024

_XERIAL_HEAD: Final = struct.Struct(">8sii")
_XERIAL_LENGTH: Final = struct.Struct(">i")


LEVELS: Final = {
    Compression.GZIP: -1,
    Compression.LZ4: LZ4_LEVEL,
    Compression.ZSTD: ZSTD_LEVEL,
}
"""What producers use; the other codecs have none."""


def compress(payload: Buffer, codec: Compression, level: int | None = None) -> Buffer:
    """Compress the records of a batch that has this codec in its attributes."""
    return _COMPRESSORS[codec](payload, LEVELS.get(codec, 0) if level is None else level)


def recompressed(batch: Batch, codec: Compression, level: int, bytes_max: int) -> Batch:
    """The same records with another codec; everything else in the header stays. Needs up to
    three times the memory of the decompressed records.

    Raises:
        BatchError: as `unpack`.
    """
    header = batch.header
    changed = header._replace(attributes=header.attributes & ~COMPRESSION_MASK | codec)
    data = memoryview(rebuilt(changed, compress(unpack(batch, bytes_max), codec, level)))
    return Batch(parse_header(data), data)


def decompress(batch: Batch, bytes_max: int) -> bytes:
    """Like `unpack`, but returns bytes: a copy if `unpack` returns another type."""
    payload = unpack(batch, bytes_max)
    return payload if isinstance(payload, bytes) else bytes(payload)


def unpack(batch: Batch, bytes_max: int) -> Buffer:
    """The decompressed records of a batch with any codec, in no more memory than they need.

    Raises:
        TooMuchError: CORRUPT_MESSAGE if they are longer than `bytes_max`.
        BatchError: CORRUPT_MESSAGE if they are damaged,
            UNSUPPORTED_COMPRESSION_TYPE for a codec that Kafka does not have.
    """
    codec = batch.header.attributes & COMPRESSION_MASK
    if codec in (Compression.NONE, Compression.GZIP):
        return decompressed(batch, bytes_max)
    payload = batch.data[HEADER_BYTES:]
    try:
        if codec == Compression.SNAPPY:
            return _snappy(payload, bytes_max)
        if codec == Compression.LZ4:
            return _in_steps(cramjam.lz4.decompress_into, payload, bytes_max)
        if codec == Compression.ZSTD:
            return _in_steps(cramjam.zstd.decompress_into, payload, bytes_max)
    except cramjam.DecompressionError as error:
        raise _corrupt(f"{Compression(codec).name}: {error}") from error
    raise BatchError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"codec {codec} is not one of Kafka's")


def _corrupt(what: str) -> BatchError:
    return BatchError(ErrorCode.CORRUPT_MESSAGE, what)


def _too_much(limit: int) -> TooMuchError:
    return TooMuchError(ErrorCode.CORRUPT_MESSAGE, f"more than {limit} bytes when decompressed")


def _in_steps(
    into: Callable[[Buffer, bytearray], int], payload: memoryview, limit: int
) -> bytearray:
    """Decompress into a buffer that grows fourfold until it is large enough, up to `limit`."""
    room = min(limit, max(GUESS_BYTES_MIN, FIRST_GUESS_FACTOR * len(payload)))
    while True:
        out = bytearray(room)
        try:
            size = into(payload, out)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if room == limit:
                raise _too_much(limit) from error
            room = min(limit, FIRST_GUESS_FACTOR * room)
            del out  # before the larger one is made
        else:
            del out[size:]
            return out


def _snappy(payload: memoryview, limit: int) -> bytearray:
    if bytes(payload[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _snappy_block(payload, limit)
    out = bytearray()
    at = _XERIAL_HEAD.size
    while at < len(payload):
        if at + _XERIAL_LENGTH.size > len(payload):
            raise _corrupt("a snappy frame is cut short")
        size = _XERIAL_LENGTH.unpack_from(payload, at)[0]
        at += _XERIAL_LENGTH.size
        if not 0 <= size <= len(payload) - at:
            raise _corrupt(f"a snappy block of {size} bytes with {len(payload) - at} left")
        out += _snappy_block(payload[at : at + size], limit - len(out))
        at += size
    return out


def _snappy_block(block: memoryview, limit: int) -> bytearray:
    """Decompress one block; it says how long its contents are."""
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise _too_much(limit)
    out = bytearray(size)
    written = cramjam.snappy.decompress_raw_into(block, out)
    if written != size:
        raise _corrupt(f"a snappy block of {written} bytes instead of {size}")
    return out


def _compress_snappy(payload: Buffer, _: int) -> bytes:
    out = bytearray(_XERIAL_HEAD.pack(XERIAL_MAGIC, 1, 1))
    view = memoryview(payload)
    for at in range(0, len(view), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[at : at + XERIAL_BLOCK_BYTES]))
        out += _XERIAL_LENGTH.pack(len(block))
        out += block
    return bytes(out)


def _compress_lz4(payload: Buffer, level: int) -> bytes:
    """The frame format with independent blocks: Java's reader refuses linked blocks."""
    compressor = cramjam.lz4.Compressor(level=level, content_checksum=False, block_linked=False)
    compressor.compress(payload if isinstance(payload, bytes) else bytes(payload))
    return bytes(compressor.finish())


def _compress_zstd(payload: Buffer, level: int) -> bytes:
    return bytes(cramjam.zstd.compress(payload, level=level))


_COMPRESSORS: Final[dict[Compression, Callable[[Buffer, int], Buffer]]] = {
    Compression.NONE: lambda payload, _: payload,
    Compression.GZIP: compress_gzip,
    Compression.SNAPPY: _compress_snappy,
    Compression.LZ4: _compress_lz4,
    Compression.ZSTD: _compress_zstd,
}
