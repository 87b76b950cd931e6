"""The sink's input: its columns, their types, and how they become records.

Columns are those of Spark's own Kafka sink: value, and optionally key, topic, partition and
headers; and timestamp, which the source has, so that a topic can be copied unchanged. Others are
ignored, as there. Types are checked on the driver, before anything runs.
"""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_evenkeel.errors import ConfigurationError, RowError
from pyspark_evenkeel.write.chunks import Rows
from wire.records.columns import Column, encode_headers, sizes_max

RecordBatch: TypeAlias = Any
"""A pyarrow.RecordBatch, as Spark passes them to a sink."""

TEXT_TYPES: Final = ("string", "varchar", "char")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "key": ("binary", *TEXT_TYPES),
    "value": ("binary", *TEXT_TYPES),
    "topic": TEXT_TYPES,
    "partition": ("int",),
    "headers": ("array<struct<key:string,value:binary>>",),
    "timestamp": ("timestamp",),
}
"""Each column with the types it may have, in Spark's notation."""
_HEADERS: Final = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
_US_PER_MS: Final = 1000


def check_columns(
    types: Mapping[str, str], *, has_topic: bool, order_by: Sequence[str] = ()
) -> None:
    """Whether rows with these columns can be written; `has_topic`: all go to one topic anyway.

    Raises:
        ConfigurationError: if a column is missing or has a type that it cannot have.
    """
    for name in ("value",) if has_topic else ("value", "topic"):
        if name not in types:
            similar = difflib.get_close_matches(name, [one.lower() for one in types], 1)
            meant = [one for one in types if similar and one.lower() == similar[0]]
            or_else = " or set option topic" if name == "topic" else ""
            raise ConfigurationError(
                f"there is no column '{name}'",
                why=f"there are {', '.join(types) or 'none'}",
                advice=f"rename '{meant[0]}' to it" if meant else f"select one{or_else}",
            )
    for name in order_by:
        if name not in types:
            raise ConfigurationError(
                f"there is no column '{name}' to order by",
                why=f"there are {', '.join(types)}",
                advice="select it, too: columns that are not written are passed over",
            )
    for name, allowed in COLUMNS.items():
        given = types.get(name)
        if given is not None and not _is_one_of(given, allowed):
            wanted = " or ".join(one for one in allowed if one not in TEXT_TYPES[1:])
            raise ConfigurationError(
                f"column '{name}' is of type {given}",
                why=f"{wanted} is needed",
                advice="cast it, or leave it out"
                if name != "value"
                else "cast it, or make one of several columns with to_json(struct(...))",
            )


def _is_one_of(given: str, allowed: tuple[str, ...]) -> bool:
    """Strings may have a length or a collation."""
    return given in allowed or (given.startswith(TEXT_TYPES) and "string" in allowed)


class Part(NamedTuple):
    """Rows of one Arrow batch."""

    rows: Rows
    topics: Column | None
    partitions: Column | None


def part_of(batch: RecordBatch, now_ms: int) -> Part:
    """The columns of a batch in the form to be written; `now_ms` is the time of rows without one.

    Raises:
        RowError: if a row has a header without a name, or a time before 1970.
    """
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    values = _as_binary(columns["value"])
    given = columns.get("key")
    keys = pa.nulls(len(values), pa.binary()) if given is None else _as_binary(given)
    headers = columns.get("headers")
    encoded = None if headers is None else _headers(headers)
    times = columns.get("timestamp")
    sizes = sizes_max(keys, values, encoded)
    rows = Rows(keys, values, encoded, None if times is None else _times(times, now_ms), sizes)
    topics = columns.get("topic")
    if topics is not None and topics.type != pa.string():
        topics = topics.cast(pa.string())
    return Part(rows, topics, columns.get("partition"))


def _as_binary(column: Column) -> Column:
    return column if column.type == pa.binary() else column.cast(pa.binary())


def _headers(column: Column) -> Column | None:
    """None if no row has any."""
    lists = column.cast(_HEADERS)
    pairs = lists.flatten()
    if not len(pairs):
        return None
    if pairs.null_count or pairs.field("key").null_count:
        raise RowError(
            "a row has a header without a name",
            why="an element of its column 'headers' is null, or the key in it",
            advice="filter those out: filter(headers, h -> h.key IS NOT NULL)",
        )
    return encode_headers(lists)


def _times(column: Column, now_ms: int) -> Any:  # noqa: ANN401 (numbers, see wire.records.columns)
    micros = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    times = pc.fill_null(micros, now_ms * _US_PER_MS).to_numpy(zero_copy_only=False) // _US_PER_MS
    if len(times) and times.min() < 0:
        row = int(np.argmin(times))
        raise RowError(
            "a row has a timestamp before 1970",
            why=f"{times[row]} ms",
            advice="Kafka has none that early: put it into the value",
        )
    return times


def non_empty(batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
    """Spark may pass batches without rows, as for an empty partition."""
    return (batch for batch in batches if batch.num_rows)


def in_order(
    batches: Iterable[RecordBatch], order_by: Sequence[str], bytes_max: int
) -> Iterator[RecordBatch]:
    """All rows of a task, sorted by these columns; a struct stands for its fields.

    Raises:
        RowError: if they exceed `bytes_max`, or a column's type has no order.
    """
    held: list[RecordBatch] = []
    size = 0
    for batch in batches:
        size += batch.nbytes
        if size > bytes_max:
            raise RowError(
                f"a task has more than {bytes_max:,} bytes of rows to sort (option orderBy)",
                advice="raise bufferBytes, let more tasks write, or make micro-batches smaller",
            )
        held.append(batch)
    if not held:
        return
    rows = pa.Table.from_batches(held).combine_chunks()
    keys: list[Column] = []
    for name in order_by:
        column = rows[name].combine_chunks()
        keys += column.flatten() if pa.types.is_struct(column.type) else [column]
    named = {str(number): key for number, key in enumerate(keys)}
    try:
        order = pc.sort_indices(pa.table(named), [(name, "ascending") for name in named])
    except pa.ArrowException as error:
        raise RowError(
            "rows cannot be sorted (option orderBy)",
            why=str(error),
            advice="choose columns with numbers, times or text",
        ) from error
    yield from rows.take(order).to_batches()
