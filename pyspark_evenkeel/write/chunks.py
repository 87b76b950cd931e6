"""The rows that a task holds, and what it sends next: pure.

Rows become records immediately and wait, per destination, in one chunk: the record batch to come. A
chunk is complete when the next row for its destination no longer fits; it is sent then, and that
row, which proves that more follow, begins the next one. What is left when the rows end is the last
chunk of each destination. So the `more` bit of a write token is always known.

Where one chunk ends and the next begins must be the same whenever the micro-batch is run again,
however Spark cuts the same rows into Arrow batches, and whatever the clock says. So sizes are upper
bounds for any encoding (`wire.records.columns.sizes_max`), and the total that the task holds is
checked after every BLOCK_ROWS rows: above the limit the largest chunks are sent early, all but
their last record, which is kept so that a last chunk is never empty.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

import attrs
import numpy as np

from pyspark_evenkeel.errors import RowError
from wire.cluster_view import TopicPartition
from wire.framing import KIB, MIB
from wire.records.batch import Batch, Compression, Record, iterate_records, split
from wire.records.batch_writer import BatchWriter
from wire.records.columns import Column, Numbers, encode_records
from wire.records.compression import compress
from wire.records.write_tokens import Token

BLOCK_ROWS: Final = 8192
"""Rows encoded at once; more would not be faster."""
PIECE_BYTES_MAX: Final = 32 * 1024 * KIB
"""Bytes encoded at once, unless a single row is larger: bounds the memory that this takes."""
RECORD_BYTES_MAX: Final = 16 * MIB
"""Of one row, with the overhead of its request: more cannot be sent to any of our nodes."""
RELIEF: Final = 0.5
"""Above the limit, chunks are sent until this share of it is left."""


@attrs.frozen
class Rows:
    """Columns of equal length, ready to be encoded."""

    keys: Column
    values: Column
    """Both binary."""
    headers: Column | None
    """As `wire.records.columns.encode_headers` makes them."""
    times_ms: Numbers | None
    """Since 1970; None for the time at which a chunk is begun."""
    sizes: Numbers
    """Their `wire.records.columns.sizes_max`."""

    @property
    def count(self) -> int:
        return len(self.sizes)

    def slice(self, start: int, stop: int) -> "Rows":
        return Rows(
            self.keys.slice(start, stop - start),
            self.values.slice(start, stop - start),
            None if self.headers is None else self.headers.slice(start, stop - start),
            None if self.times_ms is None else self.times_ms[start:stop],
            self.sizes[start:stop],
        )

    def take(self, order: Numbers) -> "Rows":
        return Rows(
            self.keys.take(order),
            self.values.take(order),
            None if self.headers is None else self.headers.take(order),
            None if self.times_ms is None else self.times_ms[order],
            self.sizes[order],
        )


@attrs.define
class Chunk:
    """One record batch of one destination."""

    place: TopicPartition
    number: int = 0
    """Within the writer, its micro-batch, and the destination."""
    records_before: int = 0
    """In earlier chunks of the same."""
    size: int = 0
    """In bytes, as an upper bound for any encoding."""
    last_size: int = 0
    """Of its last record, in the same way."""
    last_at: int = 0
    """Position in the payload where the last record begins."""
    time_before_last_ms: int = 0
    """The latest time of all records but the last one."""
    writer: BatchWriter = attrs.field(factory=BatchWriter)

    def next(self) -> "Chunk":
        return Chunk(self.place, self.number + 1, self.records_before + self.writer.count)

    def take(self, sizes: Numbers, times_ms: Numbers | None, now_ms: int) -> None:
        """Count these rows in; their records follow through `fill`."""
        writer = self.writer
        begun_ms = writer.base_timestamp_ms if writer.count else now_ms
        first_ms = last_ms = latest_before = begun_ms
        if times_ms is not None:
            first_ms, last_ms = int(times_ms[0]), int(times_ms[-1])
            earliest_ms = writer.max_timestamp_ms if writer.count else first_ms
            latest_before = int(times_ms[:-1].max(initial=earliest_ms))
        if writer.count:
            latest_before = max(latest_before, writer.max_timestamp_ms)
        else:
            writer.base_timestamp_ms = first_ms
        self.time_before_last_ms = latest_before
        writer.max_timestamp_ms = max(latest_before, last_ms)
        writer.count += len(sizes)
        self.size += int(sizes.sum())
        self.last_size = int(sizes[-1])

    def fill(self, records: memoryview, last_size: int) -> None:
        """Append the records of the counted rows; `last_size`: the actual size of the last one."""
        self.writer.payload += records
        self.last_at = len(self.writer.payload) - last_size

    def split_last(self) -> "Chunk":
        """The next chunk, which has taken over the last record of this one."""
        writer = self.writer
        record = _last_record(writer, self.last_at)
        del writer.payload[self.last_at :]
        writer.count -= 1
        writer.max_timestamp_ms = self.time_before_last_ms
        self.size -= self.last_size
        following = self.next()
        following.writer.append(record)
        following.size = following.last_size = self.last_size
        following.time_before_last_ms = record.timestamp_ms
        return following

    def seal(self, token: Token, compression: Compression) -> bytes:
        """The record batch."""
        return self.writer.seal(
            compress(self.writer.payload, compression),
            producer_id=token.producer_id,
            producer_epoch=token.epoch,
            base_sequence=token.sequence,
            compression=compression,
        )


def _last_record(writer: BatchWriter, at: int) -> Record:
    """The last record, which begins at that position of the payload."""
    payload = bytes(memoryview(writer.payload)[at:])
    batch = split(memoryview(writer.seal(payload)))[0]
    alone = Batch(batch.header._replace(record_count=1), batch.data)
    return next(iterate_records(alone, payload))._replace(offset=-1)


class _Cut(NamedTuple):
    """Which rows go to a chunk."""

    chunk: Chunk
    start: int
    stop: int


@attrs.define
class Chunks:
    """The rows of one task, until they are sent. `chunk_bytes` limits one chunk, unless a single
    row is larger; `buffer_bytes` limits all of them, apart from one row per destination."""

    chunk_bytes: int
    buffer_bytes: int
    held: int = attrs.field(default=0, init=False)
    """Bytes of all open chunks, as an upper bound for any encoding."""
    _open: dict[int, Chunk] = attrs.field(factory=dict, init=False)
    """By the number of the destination."""
    _in_block: int = attrs.field(default=0, init=False)

    def add(
        self, rows: Rows, destinations: Numbers, place: Callable[[int], TopicPartition], now_ms: int
    ) -> Iterator[Chunk]:
        """Add rows, each with the number of its destination; yields the complete chunks, to be sent
        in this order. `place` translates a number. More chunks follow all of them.

        Raises:
            RowError: if a row cannot be sent to any broker.
        """
        at = 0
        while at < rows.count:
            stop = min(rows.count, at + BLOCK_ROWS - self._in_block)
            self._in_block = (self._in_block + stop - at) % BLOCK_ROWS
            for start, end in _pieces(rows.sizes, at, stop):
                piece = rows.slice(start, end)
                yield from self._add(piece, destinations[start:end], place, now_ms)
            at = stop
            if not self._in_block:
                yield from self._relieve()

    def last(self) -> list[Chunk]:
        """There are no more rows: the last chunk of each destination that got any."""
        chunks = [self._open[number] for number in sorted(self._open)]
        self._open.clear()
        self.held = 0
        return chunks

    def _add(
        self, rows: Rows, destinations: Numbers, place: Callable[[int], TopicPartition], now_ms: int
    ) -> list[Chunk]:
        if destinations.min() != destinations.max():
            order = np.argsort(destinations, kind="stable")
            rows, destinations = rows.take(order), destinations[order]
        borders = np.flatnonzero(np.diff(destinations)) + 1
        ends = np.cumsum(rows.sizes)
        offsets = np.empty(rows.count, np.int64)
        times = None if rows.times_ms is None else np.empty(rows.count, np.int64)
        cuts: list[_Cut] = []
        full: list[Chunk] = []
        starts = [0, *borders.tolist(), rows.count]
        for start, stop in pairwise(starts):
            number = int(destinations[start])
            chunk = self._open.get(number) or Chunk(place(number))
            at = start
            while at < stop:
                end = self._fitting(chunk, rows, ends, at, stop)
                if end == at:
                    full.append(chunk)
                    self.held -= chunk.size
                    chunk = chunk.next()
                    continue
                before, size = chunk.writer.count, chunk.size
                given = None if rows.times_ms is None else rows.times_ms[at:end]
                chunk.take(rows.sizes[at:end], given, now_ms)
                self.held += chunk.size - size
                offsets[at:end] = np.arange(before, before + end - at)
                if times is not None and given is not None:
                    times[at:end] = given - chunk.writer.base_timestamp_ms
                cuts.append(_Cut(chunk, at, end))
                at = end
            self._open[number] = chunk
        payload, bounds = encode_records(
            rows.keys, rows.values, rows.headers, time_deltas=times, offset_deltas=offsets
        )
        for chunk, start, stop in cuts:
            last_size = int(bounds[stop] - bounds[stop - 1])
            chunk.fill(payload[int(bounds[start]) : int(bounds[stop])], last_size)
        return full

    def _fitting(self, chunk: Chunk, rows: Rows, ends: Numbers, at: int, stop: int) -> int:
        """Up to which row the chunk takes the rows from `at` on."""
        room = self.chunk_bytes - chunk.size + (int(ends[at - 1]) if at else 0)
        end = min(stop, int(np.searchsorted(ends, room, side="right")))
        if end > at or chunk.writer.count:
            return max(at, end)
        size = int(rows.sizes[at])
        if size > RECORD_BYTES_MAX:
            raise RowError(
                f"a row for {chunk.place} has {size:,} bytes",
                why=f"no broker takes more than {RECORD_BYTES_MAX:,} in one record",
                advice="make it smaller, say by compressing the column itself",
            )
        return at + 1

    def _relieve(self) -> Iterator[Chunk]:
        """Above the limit: the largest chunks, each without its last record."""
        if self.held <= self.buffer_bytes:
            return
        for number, chunk in sorted(self._open.items(), key=lambda one: (-one[1].size, one[0])):
            if self.held <= self.buffer_bytes * RELIEF:
                return
            if chunk.writer.count > 1:
                self._open[number] = chunk.split_last()
                self.held -= chunk.size
                yield chunk


def _pieces(sizes: Numbers, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows from `start` to `stop` of at most PIECE_BYTES_MAX each, or of one row."""
    ends = np.cumsum(sizes[start:stop])
    at, before = 0, 0
    while at < len(ends):
        end = max(at + 1, int(np.searchsorted(ends, before + PIECE_BYTES_MAX, side="right")))
        yield start + at, start + end
        at, before = end, int(ends[end - 1])
