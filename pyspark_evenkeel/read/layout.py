"""The records of many batches as arrays of positions, without an object for any of them.

Where a record begins is known only after the one before it, so their lengths are walked one by one.
Everything else is done for all records of a fetch at once: a varint is read at a thousand places
with a handful of array operations. That is ten times as fast as reading records one by one in
Python, and faster than a decoder in C that creates an object for each.

`wire.records.batch.iterate_records` defines what a record is; tests compare the two. Nothing here
trusts a length: what does not fit into its record is refused.
"""

from collections.abc import Sequence
from itertools import repeat
from typing import Any, Final, NoReturn, TypeAlias

import attrs
import numpy as np

from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import (
    COMPRESSION_MASK,
    DECOMPRESSED_BYTES_MAX,
    HEADER_BYTES,
    HEADER_PAIR_BYTES_MIN,
    LOG_APPEND_TIME_BIT,
    RECORD_BYTES_MIN,
    Batch,
    BatchError,
    BatchHeader,
    read_varint,
)
from wire.records.compression import decompress

Bytes: TypeAlias = Any
Numbers: TypeAlias = Any
Flags: TypeAlias = Any
"""Arrays of uint8, int64 and bool: numpy may be missing where types are checked."""

VARINT_BITS_MAX: Final = 63
_LOW_BITS: Final = 0x7F


@attrs.frozen(eq=False)
class Spans:
    """A field of every record: where it begins and ends in the payload, and whether it is null."""

    start: Numbers
    end: Numbers
    null: Flags


@attrs.frozen(eq=False)
class Layout:
    """Records in the order of their offsets; every array has one number for each of them."""

    payload: bytes
    offset: Numbers
    timestamp_ms: Numbers
    log_append_time: Flags
    key: Spans
    value: Spans
    stop: Numbers
    """Where the record ends; its headers begin where its value ends."""


def payload_of(batch: Batch) -> Buffer:
    """The records of a batch, decompressed; no copy is made if they were not compressed.

    Raises:
        BatchError: if they cannot be decompressed.
    """
    if batch.header.attributes & COMPRESSION_MASK:
        return decompress(batch, DECOMPRESSED_BYTES_MAX)
    return batch.data[HEADER_BYTES:]


def layout_of(headers: Sequence[BatchHeader], payloads: Sequence[Buffer]) -> Layout:
    """Where every field is in these batches' records (at least one batch; some may be empty).

    Raises:
        BatchError: CORRUPT_MESSAGE if the records are not what their batch's header says.
    """
    payload = b"".join(payloads)
    starts: list[int] = []
    pos = 0
    try:
        for header, part in zip(headers, payloads, strict=True):
            if header.record_count < 0 or header.record_count * RECORD_BYTES_MIN > len(part):
                _corrupt(f"{header.record_count} records in {len(part)} bytes")
            end = pos + len(part)
            _walk(payload, pos, end, header.record_count, starts)
            pos = end
        return _fields(payload, headers, np.array(starts, np.int64))
    except IndexError:
        _corrupt("a record goes beyond the end")


def _walk(payload: bytes, pos: int, end: int, count: int, starts: list[int]) -> None:
    """Note where each record begins.

    Lengths of one and two bytes are decoded inline: this loop is half of the whole work. Negative
    lengths are detected later, for all at once.
    """
    append = starts.append
    for _ in repeat(None, count):
        append(pos)
        low = payload[pos]
        if low <= _LOW_BITS:
            pos += 1 + (low >> 1)
        elif (high := payload[pos + 1]) <= _LOW_BITS:
            pos += 2 + ((high << 7 | low & _LOW_BITS) >> 1)
        else:
            length, pos = read_varint(payload, pos)
            pos += length
    if pos != end:
        _corrupt(f"{end - pos} bytes after the last record")


def _fields(payload: bytes, headers: Sequence[BatchHeader], starts: Numbers) -> Layout:
    data = np.frombuffer(payload, np.uint8)
    length, at = _varints(data, starts)
    if np.any(length < 0):
        _corrupt("a record of a negative length")
    stop = at + length
    columns = dict(zip(BatchHeader._fields, zip(*headers, strict=True), strict=True))

    def of_batches(field: str) -> Numbers:
        return np.repeat(np.array(columns[field], np.int64), columns["record_count"])

    timestamp_delta, at = _varints(data, at + 1)  # after the attributes, which records do not use
    offset_delta, at = _varints(data, at)
    if np.any((offset_delta < 0) | (offset_delta > of_batches("last_offset_delta"))):
        _corrupt("an offset that is not in its batch")
    batch_of = np.repeat(np.arange(len(headers)), columns["record_count"])
    if np.any((np.diff(offset_delta) <= 0) & (np.diff(batch_of) == 0)):
        _corrupt("offsets that do not ascend in their batch")
    key, at = _spans(data, at, stop)
    value, at = _spans(data, at, stop)
    log_append_time = of_batches("attributes") & LOG_APPEND_TIME_BIT != 0
    base_timestamp_ms = of_batches("base_timestamp_ms")
    timestamp_ms = base_timestamp_ms + timestamp_delta
    if np.any((timestamp_ms < base_timestamp_ms) != (timestamp_delta < 0)):
        _corrupt("a timestamp of more than 64 bits")
    if np.any(log_append_time):
        timestamp_ms = np.where(log_append_time, of_batches("max_timestamp_ms"), timestamp_ms)
    return Layout(
        payload=payload,
        offset=of_batches("base_offset") + offset_delta,
        timestamp_ms=timestamp_ms,
        log_append_time=log_append_time,
        key=key,
        value=value,
        stop=stop,
    )


def _spans(data: Bytes, at: Numbers, stop: Numbers) -> tuple[Spans, Numbers]:
    """The field that begins with its length at `at`, and where the next one begins."""
    length, start = _varints(data, at)
    if np.any((length < -1) | (length > stop - start)):
        _corrupt("a key or value that is longer than its record")
    null = length < 0
    end = np.where(null, start, start + length)
    return Spans(start, end, null), end


def _varints(data: Bytes, at: Numbers) -> tuple[Numbers, Numbers]:
    """The zig-zag varints of up to 64 bits at these positions, and where each ends."""
    byte = data[at]
    value = (byte & _LOW_BITS).astype(np.uint64)
    after = at + 1
    longer = np.flatnonzero(byte > _LOW_BITS)
    for shift in range(7, VARINT_BITS_MAX + 1, 7):
        if not longer.size:
            break
        byte = data[after[longer]]
        value[longer] |= (byte & _LOW_BITS).astype(np.uint64) << np.uint64(shift)
        after[longer] += 1
        longer = longer[byte > _LOW_BITS]
    if longer.size:
        _corrupt("a varint longer than 10 bytes")
    one = np.uint64(1)
    return ((value >> one) ^ (~(value & one) + one)).view(np.int64), after


# -- headers --------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class HeaderPairs:
    """The headers of all records, one after the other; `counts` says how many each record has."""

    counts: Numbers
    names: list[str]
    contents: list[bytes | None]


def header_pairs(layout: Layout) -> HeaderPairs:
    """The headers, which most records lack; records that have some are decoded one by one.

    Raises:
        BatchError: CORRUPT_MESSAGE if they are not what the records say.
    """
    payload = layout.payload
    names: list[str] = []
    contents: list[bytes | None] = []
    try:
        counts, after = _varints(np.frombuffer(payload, np.uint8), layout.value.end)
        for which in np.flatnonzero(counts | (after - layout.stop)).tolist():
            pos, stop, count = int(after[which]), int(layout.stop[which]), int(counts[which])
            if not 0 <= count * HEADER_PAIR_BYTES_MIN <= stop - pos:
                _corrupt(f"{count} record headers in {stop - pos} bytes")
            for _ in range(count):
                name, pos = _header_field(payload, pos, stop)
                content, pos = _header_field(payload, pos, stop)
                if name is None:
                    _corrupt("a record header without a name")
                names.append(name.decode(errors="replace"))
                contents.append(content)
            if pos != stop:
                _corrupt(f"a record ends at byte {pos} instead of {stop}")
    except IndexError as error:
        _corrupt(f"a record header is malformed: {error}")
    return HeaderPairs(counts, names, contents)


def _header_field(payload: bytes, pos: int, stop: int) -> tuple[bytes | None, int]:
    length, pos = read_varint(payload, pos)
    if length == -1:
        return None, pos
    if not 0 <= length <= stop - pos:
        _corrupt(f"{length} bytes of a header with {stop - pos} left")
    return payload[pos : pos + length], pos + length


def _corrupt(what: str) -> NoReturn:
    raise BatchError(ErrorCode.CORRUPT_MESSAGE, what)
