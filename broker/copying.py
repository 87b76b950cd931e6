"""Batches of a partition read from the log, with their offsets and epochs: for the cold store, and
for a peer. What to copy is noted on the loop, which knows the index; copying may be done anywhere.
"""

from typing import Final

import attrs

from broker.catchup.effects import Batch
from broker.partition import Settling
from broker.ports import LogReader
from storage.cold_format import Written
from storage.errors import StorageError
from storage.format import Place
from wire.batch import PATCHED_BYTES, BatchError, is_intact, patched_head, split

GAP_BYTES_MAX: Final = 16 * 1024
SPAN_BYTES_MAX: Final = 1024 * 1024


@attrs.frozen
class Piece:
    """A batch as it goes on: its head written anew, and behind that what the log has of it."""

    base: int
    end: int
    max_timestamp_ms: int
    chunks: tuple[bytes, memoryview]

    def whole(self) -> Batch:
        """In memory of its own, for as long as it takes."""
        return Batch(self.base, self.end, self.max_timestamp_ms, b"".join(self.chunks))

    def written(self) -> Written:
        return self.base, self.end, self.max_timestamp_ms, self.chunks


@attrs.frozen
class Copied:
    """What could be read; behind that, the batch that could not, by its place and its offsets.

    The batches are views of memory that the log's readers share: keep them for one job.
    """

    batches: tuple[Piece, ...]
    size: int
    damaged: Place | None = None
    damaged_from: int = 0
    damaged_to: int = 0


@attrs.frozen
class _Row:
    base: int
    end: int
    position: Place
    size: int
    epoch: int


def copy(log: LogReader, plan: Settling, bytes_max: int) -> Copied:
    """Read the first of the planned batches, one at least and as many as fit, or up to the first
    that cannot be read; any thread."""
    rows: list[_Row] = []
    left = bytes_max
    for base, end, _, position, size, epoch in plan.batches():
        left -= size
        if rows and left < 0:
            break
        rows.append(_Row(base, end, position, size, epoch))
    batches: list[Piece] = []
    size = at = 0
    while at < len(rows):
        stop = _run(rows, at)
        start = rows[at].position
        try:
            span = log.read_span(start, rows[stop - 1].position + rows[stop - 1].size - start)
        except StorageError:
            span = memoryview(b"")
        for row in rows[at:stop]:
            batch = _checked(span[row.position - start : row.position - start + row.size], row)
            if batch is None:
                return Copied(tuple(batches), size, row.position, row.base, row.end)
            batches.append(batch)
            size += row.size
        at = stop
    return Copied(tuple(batches), size)


def _run(rows: list[_Row], at: int) -> int:
    """The batches from `at` on that are worth reading in one go."""
    start = rows[at].position
    end = start + rows[at].size
    stop = at + 1
    while stop < len(rows):
        position = rows[stop].position
        reached = position + rows[stop].size
        if not 0 <= position - end <= GAP_BYTES_MAX or reached - start > SPAN_BYTES_MAX:
            break
        end, stop = reached, stop + 1
    return stop


def _checked(data: memoryview, row: _Row) -> Piece | None:
    """The batch, its head written anew; None if it is not what was written."""
    try:
        (batch,) = split(data)
    except (BatchError, ValueError):
        return None
    if not is_intact(batch) or batch.header.last_offset_delta != row.end - row.base - 1:
        return None
    head = patched_head(data, row.base, row.epoch)
    return Piece(row.base, row.end, batch.header.max_timestamp_ms, (head, data[PATCHED_BYTES:]))
