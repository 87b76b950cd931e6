"""Batches of a partition read from the log, with their offsets and epochs: for the cold store, and
for a peer. The loop, which knows the index, plans what to copy; any thread may copy.
"""

from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from broker.ports import LogReader
from broker.reads.stored_batch import Batch
from broker.state_machine.partition import CopyPlan
from paxos.entry import Buffer
from storage.cold.format import Written
from storage.errors import StorageError
from storage.format import Place
from wire.records.batch import PATCHED_BYTES, checked_head

GAP_BYTES_MAX: Final = 16 * 1024
SPAN_BYTES_MAX: Final = 1024 * 1024
JOIN_BELOW_BYTES: Final = 2048
"""Smaller batches are joined with their heads: copying is cheaper than a separate reference."""
PIECE_BYTES: Final = 1024 * 1024
PIECES_MAX: Final = 17
"""16 MiB of the log, which need not begin at a piece's border."""

_Row: TypeAlias = tuple[int, int, int, int, int, int]
"""A row of CopyPlan.batches."""
PLACE: Final = 3
SIZE: Final = 4


def whole(one: Written) -> Batch:
    """A copy in its own memory, which may be kept."""
    base, end, max_timestamp_ms, chunks = one
    return Batch(base, end, max_timestamp_ms, b"".join(chunks))


@attrs.frozen
class Copied:
    """What could be read; then the batch that could not, by its place and its offsets.

    The batches are views of memory that the log's readers share: keep them for one job only.
    """

    batches: Sequence[Written]
    """Rewritten heads, each followed by the log's bytes."""
    size: int
    damaged: Place | None = None
    damaged_from: int = 0
    damaged_to: int = 0


class NearbyReader:
    """Reads a region of the log in large pieces and keeps the latest of them: for reading one
    partition's batches in it, then the next one's, and so on. Not thread-safe."""

    def __init__(self, log: LogReader) -> None:
        self._log = log
        self._pieces: dict[int, bytes | None] = {}
        """By their number in the log; None: one that cannot be read as a whole."""

    def forget(self) -> None:
        self._pieces.clear()

    def read_span(self, position: int, size: int) -> memoryview:
        """As LogReader.read_span."""
        number, start = divmod(position, PIECE_BYTES)
        stop = start + size
        if stop <= 2 * PIECE_BYTES:
            piece = self._piece(number)
            if piece is not None and stop <= PIECE_BYTES:
                return memoryview(piece)[start:stop]
            following = None if piece is None else self._piece(number + 1)
            if piece is not None and following is not None:
                return memoryview(piece[start:] + following[: stop - PIECE_BYTES])
        return self._log.read_span(position, size)

    def _piece(self, number: int) -> bytes | None:
        try:
            return self._pieces[number]
        except KeyError:
            pass
        while len(self._pieces) >= PIECES_MAX:
            del self._pieces[next(iter(self._pieces))]  # the one read first
        try:
            piece = bytes(self._log.read_span(number * PIECE_BYTES, PIECE_BYTES))
        except StorageError:  # damage, or a segment ends here: the actual read will see
            piece = None
        self._pieces[number] = piece
        return piece


def copy(log: LogReader, plan: CopyPlan, bytes_max: int) -> Copied:
    """Read planned batches from the first on, at least one and as many as fit, or up to one that
    cannot be read. May run in any thread."""
    rows: list[_Row] = []
    left = bytes_max
    for row in plan.batches():
        left -= row[SIZE]
        if rows and left < 0:
            break
        rows.append(row)
    batches: list[Written] = []
    size = at = 0
    while at < len(rows):
        stop = _run(rows, at)
        start, last = rows[at][PLACE], rows[stop - 1]
        try:
            span = log.read_span(start, last[PLACE] + last[SIZE] - start)
        except StorageError:
            span = memoryview(b"")
        for base, end, _, place, length, epoch in rows[at:stop]:
            begin = place - start
            found = checked_head(span, begin, length, base, end, epoch)
            if found is None:
                return Copied(batches, size, Place(place), base, end)
            head, time_ms = found
            chunks: tuple[Buffer, ...] = (head, span[begin + PATCHED_BYTES : begin + length])
            if length < JOIN_BELOW_BYTES:
                chunks = (b"".join(chunks),)
            batches.append((base, end, time_ms, chunks))
            size += length
        at = stop
    return Copied(batches, size)


def _run(rows: Sequence[_Row], at: int) -> int:
    """The batches from `at` on that are worth reading in one go."""
    start = rows[at][PLACE]
    end = start + rows[at][SIZE]
    for stop in range(at + 1, len(rows)):
        _, _, _, place, size, _ = rows[stop]
        reached = place + size
        if not 0 <= place - end <= GAP_BYTES_MAX or reached - start > SPAN_BYTES_MAX:
            return stop
        end = reached
    return len(rows)
