"""Encoding records from Arrow columns, without Python code per record.

`wire.records.batch_writer` takes a microsecond per record, this module a tenth of that: each part
of a record (its varints, key, value) is a column of bytes, Arrow joins the columns row by row, and
the buffer of the result is the payload, one record after the other. Nodes have no Arrow and do not
import this module: it is for data sinks that get columns anyway.

    record    length varint | attributes 0 | time delta varint | offset delta varint
              | key length varint (-1: null) | key | value length varint | value
              | number of headers varint, then for each: name length | name | length | content
"""

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from wire.records.batch_writer import RECORD_OVERHEAD_BYTES_MAX, put_varint

Column: TypeAlias = Any
"""A pyarrow.Array; each function says what type its values have."""
Numbers: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

_ATTRIBUTES: Final = b"\0"
_ZERO: Final = b"\0"
"""The varint 0."""


class EncodedRecords(NamedTuple):
    """Record n is `payload[bounds[n] : bounds[n + 1]]`."""

    payload: memoryview
    bounds: Numbers


def sizes_max(keys: Column, values: Column, headers: Column | None) -> Numbers:
    """An upper bound of the encoded size of each row (`record_bytes_max`).

    `headers` is a result of `encode_headers`.
    """
    sizes = _lengths(values, 0) + _lengths(keys, 0) + RECORD_OVERHEAD_BYTES_MAX
    return sizes if headers is None else sizes + _lengths(headers, 0)


def encode_headers(lists: Column) -> Column:
    """Encode each list of structs (name: binary, content: binary) as one binary, count first.

    A null list counts as an empty one. No list may contain a null, and no name may be null.
    """
    pairs = lists.flatten()
    names, contents = pairs.field(0), pairs.field(1)
    encoded = _joined(
        _varints(_lengths(names, -1)), names, _varints(_lengths(contents, -1)), contents
    )
    counts = pc.fill_null(pc.list_value_length(lists), 0).to_numpy(zero_copy_only=False)
    each = pc.binary_join(pa.ListArray.from_arrays(pa.array(_ends(counts)), encoded), b"")
    return _joined(_varints(counts.astype(np.int64)), each)


def encode_records(
    keys: Column,
    values: Column,
    headers: Column | None,
    *,
    time_deltas: Numbers | None,
    offset_deltas: Numbers,
) -> EncodedRecords:
    """Encode rows of binary columns as records; deltas are relative to the batch of each row.

    `headers` is a result of `encode_headers`, or None if there are none. Without `time_deltas` all
    records have the base time of their batch. Keys, values and headers together must stay below a
    gigabyte.
    """
    body = _joined(
        _ATTRIBUTES,
        _ZERO if time_deltas is None else _varints(time_deltas),
        _varints(offset_deltas),
        _varints(_lengths(keys, -1)),
        keys,
        _varints(_lengths(values, -1)),
        values,
        _ZERO if headers is None else headers,
    )
    records = _joined(_varints(_lengths(body, 0)), body)
    _, bounds, data = records.buffers()
    starts = np.frombuffer(bounds, np.int32, len(records) + 1, 4 * records.offset)
    return EncodedRecords(memoryview(data), starts.astype(np.int64))


def _joined(*parts: Column | bytes) -> Column:
    """Concatenate row by row; bytes are the same in every row, a null counts as empty."""
    return pc.binary_join_element_wise(*parts, b"", null_handling="replace", null_replacement=b"")


def _ends(sizes: Numbers) -> Numbers:
    """Where each of several adjacent items begins, and where the last one ends."""
    return np.concatenate((np.zeros(1, np.int32), np.cumsum(sizes, dtype=np.int32)))


def _lengths(column: Column, of_null: int) -> Numbers:
    lengths = pc.fill_null(pc.binary_length(column), of_null)
    found: Numbers = lengths.to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def _varints(numbers: Numbers) -> Column | bytes:
    """Each number as a zig-zag varint: a column of bytes, or bytes if all rows are equal."""
    if not len(numbers):
        return b""
    if numbers.min() == numbers.max():
        same = bytearray()
        put_varint(same, int(numbers[0]))
        return bytes(same)
    zigzag = (numbers << 1 ^ numbers >> 63).view(np.uint64)
    sizes = np.ones(len(zigzag), np.int32)
    for shift in range(7, 64, 7):
        sizes += zigzag >> np.uint64(shift) > 0
    ends = _ends(sizes)
    data = np.empty(int(ends[-1]), np.uint8)
    for place in range(int(sizes.max())):
        rows = np.flatnonzero(sizes > place)
        piece = (zigzag[rows] >> np.uint64(7 * place)).astype(np.uint8) & 0x7F
        data[ends[rows] + place] = piece | np.where(sizes[rows] > place + 1, 0x80, 0)
    return pa.BinaryArray.from_buffers(
        pa.binary(), len(numbers), [None, pa.py_buffer(ends), pa.py_buffer(data)]
    )
