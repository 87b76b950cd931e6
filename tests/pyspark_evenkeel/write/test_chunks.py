"""A task's buffer: the same chunks for the same rows, within their limits, nothing lost."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_evenkeel.errors import RowError
from pyspark_evenkeel.write import chunks as chunking
from pyspark_evenkeel.write.chunks import RECORD_BYTES_MAX, Chunk, Chunks, Rows
from wire.cluster_view import TopicPartition
from wire.records.batch import Compression, Record, iterate_records, split
from wire.records.batch_writer import build_batch
from wire.records.columns import sizes_max
from wire.records.compression import decompress
from wire.records.write_tokens import Position, position_of, token_of

NOW_MS = 1_700_000_000_000
ALL = 1 << 62


class Row(NamedTuple):
    destination: int
    value: bytes | None
    key: bytes | None = None
    time_ms: int = 0


ROWS = st.lists(
    st.builds(
        Row,
        destination=st.integers(0, 3),
        value=st.none() | st.binary(max_size=120),
        key=st.none() | st.binary(max_size=10),
        time_ms=st.integers(0, 1 << 40),
    ),
    min_size=1,
    max_size=40,
)


def place(number: int) -> TopicPartition:
    return TopicPartition("orders", number)


def columns(rows: Sequence[Row], *, timed: bool = True) -> tuple[Rows, Any]:
    keys = pa.array([one.key for one in rows], pa.binary())
    values = pa.array([one.value for one in rows], pa.binary())
    times = np.array([one.time_ms for one in rows]) if timed else None
    made = Rows(keys, values, None, times, sizes_max(keys, values, None))
    return made, np.array([one.destination for one in rows])


def sent(
    rows: Sequence[Row], cuts: Sequence[int] = (), chunk_bytes: int = 400, buffer_bytes: int = ALL
) -> list[tuple[Chunk, bool]]:
    """All chunks with their `more`, for rows that came in pieces ending at `cuts`."""
    made = Chunks(chunk_bytes, buffer_bytes)
    found: list[tuple[Chunk, bool]] = []
    edges = [0, *sorted(set(cuts)), len(rows)]
    for start, stop in pairwise(edges):
        if start < stop:
            found += [(one, True) for one in made.add(*columns(rows[start:stop]), place, NOW_MS)]
    return found + [(one, False) for one in made.last()]


def records(chunk: Chunk) -> list[Record]:
    token = token_of(1 << 62, Position(0, 0, False))
    (batch,) = split(memoryview(chunk.seal(token, Compression.NONE)))
    found = list(iterate_records(batch))
    header = batch.header
    assert header.max_timestamp_ms == max(one.timestamp_ms for one in found)
    assert header.base_timestamp_ms == found[0].timestamp_ms
    assert [one.offset for one in found] == list(range(len(found)))
    return found


def contents(chunks: Sequence[tuple[Chunk, bool]]) -> list[object]:
    return [
        (one.place, one.number, more, one.records_before, bytes(one.writer.payload))
        for one, more in chunks
    ]


@settings(max_examples=150, deadline=None, database=None)
@given(rows=ROWS, cuts=st.lists(st.integers(1, 39), max_size=5), tight=st.booleans())
def test_every_row_is_sent_once_in_order_whatever_arrow_batches_they_come_in(
    rows: list[Row], cuts: list[int], tight: bool
) -> None:
    """Chunks are numbered from 0; only the last one of a destination says that it is the last."""
    limit = 500 if tight else ALL
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "BLOCK_ROWS", 8)
        found = sent(rows, buffer_bytes=limit)
        assert contents(found) == contents(sent(rows, cuts, buffer_bytes=limit))
    for number in range(4):
        mine = [(chunk, more) for chunk, more in found if chunk.place.partition == number]
        assert [chunk.number for chunk, _ in mine] == list(range(len(mine)))
        assert [more for _, more in mine] == [True] * (len(mine) - 1) + [False] * bool(mine)
        read = [records(chunk) for chunk, _ in mine]
        assert [(one.value, one.key, one.timestamp_ms) for each in read for one in each] == [
            (row.value, row.key, row.time_ms) for row in rows if row.destination == number
        ]
        before = 0
        for (chunk, _), each in zip(mine, read, strict=True):
            assert chunk.records_before == before
            assert len(chunk.writer.payload) <= chunk.size <= 400
            before += len(each)


def test_above_the_limit_the_largest_go_out_but_for_their_last_row() -> None:
    """The buffer holds no more than the limit; the kept row later shows that these chunks were not
    all."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "BLOCK_ROWS", 10)
        made = Chunks(chunk_bytes=10_000, buffer_bytes=1_000)
        rows = [Row(0, b"x" * 200, time_ms=9 - n) for n in range(6)] + [Row(1, b"y")] * 4
        early = list(made.add(*columns(rows), place, NOW_MS))
        assert [(chunk.place.partition, chunk.writer.count) for chunk in early] == [(0, 5)]
        assert made.held <= 1_000
        assert [len(records(chunk)) for chunk in early] == [5]
        last = made.last()
    assert [(chunk.number, chunk.records_before, len(records(chunk))) for chunk in last] == [
        (1, 5, 1),
        (0, 0, 4),
    ]
    assert records(last[0])[0].timestamp_ms == 4


def test_what_goes_out_early_has_the_latest_time_of_its_own_records() -> None:
    """Not that of the last record, which came alone and is kept back."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunking, "BLOCK_ROWS", 3)
        rows = [Row(0, b"x", time_ms=0), Row(0, b"x", time_ms=0), Row(0, b"x", time_ms=1)]
        (early, _), (last, _) = sent(rows, cuts=[2], buffer_bytes=10)
    assert [one.timestamp_ms for one in records(early)] == [0, 0]
    assert [one.timestamp_ms for one in records(last)] == [1]


def test_rows_without_a_time_have_that_of_their_chunk() -> None:
    made = Chunks(chunk_bytes=10_000, buffer_bytes=ALL)
    for moment in (NOW_MS, NOW_MS + 5_000):
        rows, destinations = columns([Row(0, b"a"), Row(0, b"b")], timed=False)
        assert not list(made.add(rows, destinations, place, moment))
    (chunk,) = made.last()
    assert {one.timestamp_ms for one in records(chunk)} == {NOW_MS}


def test_a_large_row_has_a_chunk_of_its_own() -> None:
    rows = [Row(0, b"a"), Row(0, b"b" * 5_000), Row(0, b"c")]
    assert [len(records(chunk)) for chunk, _ in sent(rows)] == [1, 1, 1]


def test_a_row_that_nobody_can_take_is_refused() -> None:
    rows = [Row(0, b"a"), Row(2, bytes(RECORD_BYTES_MAX))]
    with pytest.raises(RowError, match=f"orders/2 has {RECORD_BYTES_MAX + 36:,} bytes"):
        sent(rows)


@pytest.mark.parametrize("codec", list(Compression))
def test_a_chunk_is_the_batch_that_others_would_make(codec: Compression) -> None:
    rows = [Row(0, b"value %d" % n, b"key", NOW_MS + n) for n in range(50)]
    ((chunk, _),) = sent(rows, chunk_bytes=1 << 20)
    position = Position(70_000, 3, True)
    sealed = chunk.seal(token_of(5 | 1 << 62, position), codec)
    (batch,) = split(memoryview(sealed))
    assert batch.header.producer_id == 5 | 1 << 62
    assert position_of(batch.header.producer_epoch, batch.header.base_sequence) == position
    made = build_batch([Record(one.value, one.key, one.time_ms) for one in rows])
    assert decompress(batch, 1 << 20) == made[61:]
