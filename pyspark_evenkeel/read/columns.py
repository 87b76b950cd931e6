"""Record batches of a log as Arrow batches of rows: the columns of Spark's own Kafka source.

The reader's schema decides which columns are made: all of them, or those that a user's own
`.schema("value binary, offset bigint")` names; other columns cost nothing. Types are exactly those
that Spark derives from the schema, because Spark compares them.

Arrow cuts keys and values out of the payload: the payload is treated as an array of adjacent
strings (key, gap, value, gap), two of every four of which are taken.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

from pyspark_evenkeel.read.layout import (
    Flags,
    Layout,
    Numbers,
    Spans,
    header_pairs,
    layout_of,
    payload_of,
)
from wire.codec.primitives import Buffer
from wire.records.batch import Batch, BatchHeader

PAYLOAD_BYTES_MAX: Final = 8 * 1024 * 1024
"""Size of the rows in one Arrow batch, unless a single record batch has more. It bounds memory;
larger ones are not faster."""
CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
US_PER_MS: Final = 1000
TIMESTAMP_MS_MAX: Final = ((1 << 63) - 1) // US_PER_MS
"""Spark counts microseconds in 64 bits. Whatever a producer wrote, every row gets a valid time."""

Arrow: TypeAlias = Any
"""A type, an array, a schema or a batch of pyarrow, which has no type annotations."""


@attrs.frozen(eq=False)
class _Rows:
    topic: str
    partition: int
    layout: Layout
    chosen: Flags | None
    """Which records are in the requested range; None for all."""

    @property
    def count(self) -> int:
        return len(self.layout.offset) if self.chosen is None else int(self.chosen.sum())

    def of(self, values: Arrow) -> Arrow:
        """The elements of a numpy array that belong to these rows."""
        return values if self.chosen is None else values[self.chosen]


def record_batches(
    place: tuple[str, int], start: int, end: int, batches: Sequence[Batch], schema: Arrow
) -> Iterator[Arrow]:
    """The records from offset `start` up to `end` (exclusive), as `pyarrow.RecordBatch`es.

    `schema` is the `pyarrow.Schema` of the result, made of some of our columns.

    Raises:
        wire.records.batch.BatchError: if the records are not what their batch says.
    """
    headers: list[BatchHeader] = []
    payloads: list[Buffer] = []
    size = 0
    for batch in batches:
        payload = payload_of(batch)
        if headers and size + len(payload) > PAYLOAD_BYTES_MAX:
            yield from _one(place, start, end, layout_of(headers, payloads), schema)
            headers, payloads, size = [], [], 0
        headers.append(batch.header)
        payloads.append(payload)
        size += len(payload)
    if headers:
        yield from _one(place, start, end, layout_of(headers, payloads), schema)


def _one(
    place: tuple[str, int], start: int, end: int, layout: Layout, schema: Arrow
) -> Iterator[Arrow]:
    inside: Flags = (layout.offset >= start) & (layout.offset < end)
    rows = _Rows(*place, layout, None if inside.all() else inside)
    if rows.count:
        columns = [_COLUMNS[field.name](rows, field.type) for field in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


# -- columns --------------------------------------------------------------------------------------


def _numbers(values: Arrow, kind: Arrow) -> Arrow:
    """An array of fixed size as it lies in memory."""
    values = np.ascontiguousarray(values)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _cut_out(rows: _Rows, spans: Spans, kind: Arrow) -> Arrow:
    edges: Numbers = np.empty(2 * len(spans.start) + 1, np.int32)
    edges[0:-1:2] = spans.start
    edges[1:-1:2] = spans.end
    edges[-1] = spans.end[-1]
    buffers = [None, pa.py_buffer(edges), pa.py_buffer(rows.layout.payload)]
    touching = pa.Array.from_buffers(kind, len(edges) - 1, buffers)
    wanted = rows.of(np.arange(0, len(edges) - 1, 2))
    null = rows.of(spans.null)
    return touching.take(pa.array(wanted, mask=null if null.any() else None))


def _timestamps(rows: _Rows, kind: Arrow) -> Arrow:
    in_range = np.clip(rows.of(rows.layout.timestamp_ms), -TIMESTAMP_MS_MAX, TIMESTAMP_MS_MAX)
    return _numbers(in_range * US_PER_MS, kind)


def _headers(rows: _Rows, kind: Arrow) -> Arrow:
    pairs = header_pairs(rows.layout)
    if not pairs.names:
        return pa.nulls(rows.count, kind)
    ends = np.cumsum(pairs.counts)
    edges = np.concatenate((np.zeros(1, np.int64), ends)).astype(np.int32)
    item = kind.value_type
    items = pa.StructArray.from_arrays(
        [pa.array(pairs.names, item[0].type), pa.array(pairs.contents, item[1].type)],
        fields=[item[0], item[1]],
    )
    nothing = pa.array(pairs.counts == 0)
    lists = pa.ListArray.from_arrays(edges, items, type=kind, mask=nothing)
    return lists if rows.chosen is None else lists.filter(pa.array(rows.chosen))


def _offsets(rows: _Rows, kind: Arrow) -> Arrow:
    numbers: Numbers = rows.of(rows.layout.offset)
    return _numbers(numbers, kind)


_COLUMNS: Final[dict[str, Callable[[_Rows, Arrow], Arrow]]] = {
    "key": lambda rows, kind: _cut_out(rows, rows.layout.key, kind),
    "value": lambda rows, kind: _cut_out(rows, rows.layout.value, kind),
    "topic": lambda rows, kind: pa.repeat(pa.scalar(rows.topic, kind), rows.count),
    "partition": lambda rows, kind: pa.repeat(pa.scalar(rows.partition, kind), rows.count),
    "offset": _offsets,
    "timestamp": _timestamps,
    "timestampType": lambda rows, kind: _numbers(
        np.where(rows.of(rows.layout.log_append_time), LOG_APPEND_TIME, CREATE_TIME).astype(
            np.int32
        ),
        kind,
    ),
    "headers": _headers,
}
