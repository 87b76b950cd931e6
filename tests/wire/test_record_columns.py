"""Columns of records give the same bytes as writing record by record."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wire.records import columns as record_columns
from wire.records.batch import Record
from wire.records.batch_writer import BatchWriter

HEADERS = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
RECORDS = st.lists(
    st.builds(
        Record,
        value=st.none() | st.binary(max_size=300),
        key=st.none() | st.binary(max_size=80),
        timestamp_ms=st.integers(-(1 << 40), 1 << 62),
        headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70))).map(
            tuple
        ),
    ),
    min_size=1,
    max_size=8,
)


def columns(records: list[Record]) -> tuple[object, object, object]:
    """Keys, values and headers, each a slice of a longer column, as after a shuffle."""
    keys = pa.array([b"before", *(one.key for one in records), None], pa.binary())
    values = pa.array([None, *(one.value for one in records), b"after"], pa.binary())
    pairs = [[(name.encode(), content) for name, content in one.headers] for one in records]
    before = [(b"before", b""), (b"", None)]
    headers = pa.array([before, *(each or None for each in pairs), before], HEADERS)
    return tuple(one.slice(1, len(records)) for one in (keys, values, headers))


@settings(max_examples=200, deadline=None, database=None)
@given(records=RECORDS)
def test_the_same_bytes_as_record_by_record(records: list[Record]) -> None:
    writer = BatchWriter()
    ends = []
    for record in records:
        writer.append(record)
        ends.append(len(writer.payload))
    keys, values, headers = columns(records)
    times = np.array([one.timestamp_ms for one in records])
    encoded = record_columns.encode_records(
        keys,
        values,
        record_columns.encode_headers(headers),
        time_deltas=times - times[0],
        offset_deltas=np.arange(len(records)),
    )
    assert encoded.bounds.tolist() == [0, *ends]
    assert bytes(encoded.payload[: ends[-1]]) == bytes(writer.payload)


@settings(max_examples=100, deadline=None, database=None)
@given(records=RECORDS)
def test_no_record_is_longer_than_promised(records: list[Record]) -> None:
    keys, values, headers = columns(records)
    encoded = record_columns.encode_headers(headers)
    sizes = record_columns.sizes_max(keys, values, encoded)
    assert all(
        len(longest(record)) <= size for record, size in zip(records, sizes.tolist(), strict=True)
    )


def longest(record: Record) -> bytes:
    """A record as long as possible: far from the first of its batch."""
    writer = BatchWriter()
    writer.count = 1 << 30
    writer.base_timestamp_ms = -(1 << 61)
    writer.append(record)
    return bytes(writer.payload)


@pytest.mark.parametrize("step", [1, 7, 1 << 40])
def test_many_records_with_and_without_times(step: int) -> None:
    """Offsets and times of one, two, three and more bytes, all of them alike or not."""
    count = 9_000
    keys = pa.array([None, b"k"] * (count // 2), pa.binary())
    values = pa.array([b"v"] * count, pa.binary())
    for times in (None, np.arange(count) * step):
        writer = BatchWriter()
        for number in range(count):
            moment = 0 if times is None else number * step
            writer.append(Record(b"v", b"k" if number % 2 else None, moment))
        encoded = record_columns.encode_records(
            keys, values, None, time_deltas=times, offset_deltas=np.arange(count)
        )
        assert bytes(encoded.payload[: encoded.bounds[-1]]) == bytes(writer.payload)
