"""Where each batch of a partition lies: 32 bytes per batch in four arrays, searched by bisection.

Batches have numbers that never change: the first one ever is number 0, and the arrays hold those
from `first` on. Maximum timestamps need not be monotone (producers set them), so a search by time
first looks at the maxima of blocks of batches.
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate, islice
from operator import le, sub
from typing import Final, NamedTuple

BLOCK_BATCHES: Final = 512
OUT_OF_ORDER: Final = -1


def _signed() -> "array[int]":
    return array("q")


def _unsigned() -> "array[int]":
    return array("Q")


class Columns(NamedTuple):
    """Some batches in a row, in the form that a checkpoint has."""

    bases: "array[int]"
    positions: "array[int]"
    starts: "array[int]"
    times: "array[int]"


class BatchIndex:
    """A batch ends where the next one begins, in offsets as well as in bytes."""

    __slots__ = (
        "_bases",
        "_blocks",
        "_ordered",
        "_positions",
        "_starts",
        "_times",
        "bytes_end",
        "first",
    )

    def __init__(self, bytes_end: int = 0) -> None:
        self.first = 0
        self.bytes_end = bytes_end
        """Bytes of all batches ever appended."""
        self._ordered = 0
        """Batches before this number are known to lie in the log in the order of their offsets."""
        self._bases = _signed()
        self._positions = _unsigned()
        self._starts = _unsigned()
        """Bytes of all earlier batches of the partition, still held or not."""
        self._times = _signed()
        self._blocks = _signed()
        """The greatest time in each block of numbers; the first and the last block may be
        partial."""

    def __len__(self) -> int:
        return len(self._bases)

    @property
    def bytes_held(self) -> int:
        """Bytes of the batches from `first` on."""
        return self.bytes_end - self._starts[0] if self._starts else 0

    @property
    def stop(self) -> int:
        """The number the next batch gets."""
        return self.first + len(self._bases)

    def append(self, base_offset: int, position: int, size: int, timestamp_ms: int) -> int:
        """Add a batch whose greatest timestamp is `timestamp_ms`; return its number."""
        at = len(self._bases)
        self._bases.append(base_offset)
        self._positions.append(position)
        self._starts.append(self.bytes_end)
        self._times.append(timestamp_ms)
        self.bytes_end += size
        if (self.first + at) % BLOCK_BATCHES == 0 or not at:
            self._blocks.append(timestamp_ms)
        elif timestamp_ms > self._blocks[-1]:
            self._blocks[-1] = timestamp_ms
        return self.first + at

    def append_row(
        self, bases: list[int], positions: list[int], sizes: list[int], times: list[int]
    ) -> None:
        """Add several batches, as repeated calls of `append` would."""
        before, count = self.stop, len(bases)
        if count == 1:
            self.append(bases[0], positions[0], sizes[0], times[0])
            return
        if not self._bases or before // BLOCK_BATCHES != (before + count - 1) // BLOCK_BATCHES:
            for row in zip(bases, positions, sizes, times, strict=True):
                self.append(*row)
            return
        self._bases.fromlist(bases)
        self._positions.fromlist(positions)
        *starts, self.bytes_end = accumulate(sizes, initial=self.bytes_end)
        self._starts.fromlist(starts)
        self._times.fromlist(times)
        latest = max(times)
        if before % BLOCK_BATCHES == 0:
            self._blocks.append(latest)
        elif latest > self._blocks[-1]:
            self._blocks[-1] = latest

    def columns(self, first: int, stop: int) -> Columns:
        """A copy of the columns of the batches numbered `first` to `stop` - 1."""
        at, end = first - self.first, stop - self.first
        held = (self._bases, self._positions, self._starts, self._times)
        return Columns(*(column[at:end] for column in held))

    def extend(self, first: int, columns: Columns) -> None:
        """Add batches that begin with this number, after those that are held."""
        if not self._bases:
            self.first = first
        assert first == self.stop
        self._bases.extend(columns.bases)
        self._positions.extend(columns.positions)
        self._starts.extend(columns.starts)
        times = columns.times
        at, count = 0, len(times)
        while at < count:
            number = first + at
            end = min(count, at + BLOCK_BATCHES - number % BLOCK_BATCHES)
            latest = max(times[at:end])
            if number % BLOCK_BATCHES == 0 or not self._blocks:
                self._blocks.append(latest)
            else:
                self._blocks[-1] = max(self._blocks[-1], latest)
            at = end
        self._times.extend(times)

    def find(self, offset: int) -> int:
        """The number of the batch that contains `offset`, or of the last one if it is the end; a
        number below `first` if it lies before all that are held."""
        return self.first + bisect_right(self._bases, offset) - 1

    def at_or_after(self, offset: int) -> int:
        """The number of the first batch that begins at `offset` or later."""
        return self.first + bisect_left(self._bases, offset)

    def lowest_position(self) -> int | None:
        """The lowest position in the log that is still needed; None if no batch is held."""
        positions = self._positions
        if not positions:
            return None
        return positions[0] if self._in_order() else min(positions)

    def lies_within(self, start: int, stop: int) -> bool:
        """Whether any held batch begins at a position from `start` to `stop` - 1."""
        positions = self._positions
        if self._in_order():
            return bisect_left(positions, start) < bisect_left(positions, stop)
        return any(start <= position < stop for position in positions)

    def below(self, position: int) -> int:
        """The number after the last batch below `position` of the log; `first` if there is none."""
        positions = self._positions
        if self._in_order():
            return self.first + bisect_left(positions, position)
        last = next((at for at in reversed(range(len(positions))) if positions[at] < position), -1)
        return self.first + last + 1

    def _in_order(self) -> bool:
        """Whether positions ascend: nearly always. A follower may receive entries out of order, and
        rewritten entries lie further on; each batch is checked once."""
        if self._ordered == OUT_OF_ORDER:
            return False
        if self._ordered < self.stop:
            new = self._positions[max(0, self._ordered - self.first - 1) :]
            in_order = all(map(le, new, islice(new, 1, None)))
            self._ordered = self.stop if in_order else OUT_OF_ORDER
        return self._ordered != OUT_OF_ORDER

    def base(self, number: int) -> int:
        return self._bases[number - self.first]

    def bases(self, first: int, stop: int) -> Sequence[int]:
        """The base offsets of the batches numbered `first` to `stop` - 1."""
        return self._bases[first - self.first : stop - self.first]

    def timestamp(self, number: int) -> int:
        """The greatest timestamp in the batch, according to its producer."""
        return self._times[number - self.first]

    def position(self, number: int) -> int:
        return self._positions[number - self.first]

    def relocate(self, old: int, new: int) -> None:
        """The batch at position `old` now lies at `new`; if there is none, nothing changes."""
        positions = self._positions
        at = bisect_left(positions, old)  # they ascend, except those relocated before
        if at == len(positions) or positions[at] != old:
            if old not in positions:
                return
            at = positions.index(old)
        positions[at] = new
        self._ordered = OUT_OF_ORDER

    def places(self, first: int, stop: int) -> tuple[Sequence[int], Sequence[int]]:
        """Positions and sizes of the batches numbered `first` to `stop` - 1."""
        at, end = first - self.first, stop - self.first
        starts = self._starts[at : end + 1]
        if end == len(self._starts):
            starts.append(self.bytes_end)
        return self._positions[at:end], list(map(sub, starts[1:], starts))

    def size(self, number: int) -> int:
        return self.bytes_before(number + 1) - self.bytes_before(number)

    def bytes_before(self, number: int) -> int:
        at = number - self.first
        return self.bytes_end if at == len(self._starts) else self._starts[at]

    def within(self, first: int, bytes_max: int) -> int:
        """Where to stop so that the batches from `first` on take at most `bytes_max`."""
        target = self._starts[first - self.first] + bytes_max
        if target >= self.bytes_end:
            return self.stop
        return self.first + bisect_right(self._starts, target, first - self.first) - 1

    def reaching(self, timestamp_ms: int, since: int = 0) -> int | None:
        """The first batch, from the one with offset `since` on, that claims a record of this time
        or later; None if there is none. `since` is below the end of the last batch."""
        start = max(0, bisect_right(self._bases, since) - 1)
        block = (self.first + start) // BLOCK_BATCHES - self.first // BLOCK_BATCHES
        for latest in islice(self._blocks, block, None):
            if latest >= timestamp_ms:
                low, high = self._within_block(block)
                for at in range(max(low, start), high):
                    if self._times[at] >= timestamp_ms:
                        return self.first + at
            block += 1
        return None

    def next_latest(self, seen: tuple[int, int] | None = None) -> int | None:
        """Go through the batches by the greatest times they claim, latest first, equal times by
        their numbers: the batch after `seen`, a time and a number."""
        best, best_ms = None, 0
        for block, latest in enumerate(self._blocks):
            if best is not None and latest <= best_ms:
                continue
            low, high = self._within_block(block)
            if seen is None or latest < seen[0]:
                best, best_ms = self.first + self._times.index(latest, low, high), latest
                continue
            for at in range(low, high):
                time_ms = self._times[at]
                if best is not None and time_ms <= best_ms:
                    continue
                if time_ms < seen[0] or (time_ms == seen[0] and self.first + at > seen[1]):
                    best, best_ms = self.first + at, time_ms
        return best

    def _within_block(self, block: int) -> tuple[int, int]:
        """Where the batches of the `block`th block lie in the arrays."""
        low = (self.first // BLOCK_BATCHES + block) * BLOCK_BATCHES - self.first
        return max(0, low), min(len(self._times), low + BLOCK_BATCHES)

    def behind_last_timed(self, stop: int) -> int:
        """The number after the last batch before `stop` that has a time at all (not negative)."""
        at = stop - self.first
        while at > 0:
            block = (self.first + at - 1) // BLOCK_BATCHES
            if self._blocks[block - self.first // BLOCK_BATCHES] < 0:
                at = max(0, block * BLOCK_BATCHES - self.first)
                continue
            if self._times[at - 1] >= 0:
                break
            at -= 1
        return self.first + at

    def drop_before(self, number: int) -> None:
        """Forget the batches before `number`."""
        count = number - self.first
        assert 0 <= count <= len(self._bases)
        if not count:
            return
        for column in (self._bases, self._positions, self._starts, self._times):
            del column[:count]
        gone = number // BLOCK_BATCHES - self.first // BLOCK_BATCHES
        self.first = number
        del self._blocks[:gone]
        left = BLOCK_BATCHES - number % BLOCK_BATCHES  # of the block that is cut
        if self._ordered == OUT_OF_ORDER:
            self._ordered = 0  # what was not in order may be gone
        if not self._times:
            self._blocks = _signed()
        elif left < BLOCK_BATCHES:
            self._blocks[0] = max(self._times[:left])
