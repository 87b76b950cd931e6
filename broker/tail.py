"""The newest batches of the whole node, kept in memory so that tailing consumers cost no disk
reads.

The buffers kept are the very ones that went into the log: a large batch is a view of the frame its
producer sent, a small one a view of its entry's command. A view keeps its whole buffer alive, and
one buffer may hold batches of many partitions (a follower's entry, a Java producer's request), so
the buffers are counted. Batches come and go in rows: those of one entry for one partition. A row
that is more than half of its buffer is charged the whole buffer; for other rows the buffer is
counted once, while any of them is kept: never less than what is kept alive. Above the limit the
node's oldest rows are dropped, whatever their partition.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

BATCH_OVERHEAD_BYTES: Final = 208
"""Measured cost of a kept batch beside its bytes: a view, and its place in the list."""
BUFFER_OVERHEAD_BYTES: Final = 144
"""Cost of a buffer beside its bytes: its own header, and the object that views refer to."""
SHARED_OVERHEAD_BYTES: Final = BUFFER_OVERHEAD_BYTES + 144
"""The same plus its count, where it has batches of several rows."""
ROW_OVERHEAD_BYTES: Final = 120
"""Cost of a row beside its batches: the row itself, and its places in two queues."""
_COMPACT_OVER: Final = 64


_Row: TypeAlias = tuple[int, int, int | None]
"""Batches that come and go together: how many; their cost in bytes; the id of their buffer where
that is counted once for many rows, and not with this one."""


@attrs.define(eq=False)
class KeptBatches:
    """The last batches of one partition; `first` is the number of the oldest one."""

    first: int
    live: bool = True
    rows: deque[_Row] = attrs.field(init=False, factory=deque)
    _buffers: list[memoryview | None] = attrs.field(init=False, factory=list)
    _gone: int = attrs.field(init=False, default=0)

    @property
    def stop(self) -> int:
        return self.first + len(self._buffers) - self._gone

    def between(self, first: int, stop: int) -> list[memoryview]:
        """The batches numbered `first` to `stop` - 1; all of them must be here."""
        assert self.first <= first <= stop <= self.stop
        shift = self.first - self._gone
        return self._buffers[first - shift : stop - shift]  # type: ignore[return-value]  # evicted
        # ones, which are None, all lie before `first`

    def extend(self, batches: Sequence[memoryview], row: _Row) -> None:
        self._buffers += batches
        self.rows.append(row)

    def pop_row(self) -> _Row:
        """Forget the oldest row; the list is shifted only now and then, so this is cheap."""
        row = self.rows.popleft()
        count = row[0]
        buffers, gone = self._buffers, self._gone + count
        if gone > _COMPACT_OVER and 2 * gone > len(buffers):
            del buffers[:gone]
            self._gone = 0
        else:
            buffers[self._gone : gone] = [None] * count
            self._gone = gone
        self.first += count
        return row

    def clear(self) -> deque[_Row]:
        """Forget all; return the rows that were kept."""
        self.live = False
        self.first, self._buffers, self._gone = self.stop, [], 0
        rows, self.rows = self.rows, deque()
        return rows


DEAD_MIN: Final = 1024
"""Fewer dead places than this are not worth a pass over the order."""


class Tail:
    """`bytes_max` bounds `bytes_held`; 0 keeps nothing."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._kept: dict[int, KeptBatches] = {}
        self._order: deque[KeptBatches] = deque()
        """Partitions in the order of their rows: the node's oldest row is the first of the
        first."""
        self._dead = 0
        """Places in the order whose partition has been forgotten since."""
        self._shared: dict[int, list[int]] = {}
        """Buffer id -> how many of its rows are kept, and its cost. Their batches keep the buffer
        alive, so no other object can get its id meanwhile."""

    def kept(self, uid: int) -> KeptBatches | None:
        return self._kept.get(uid)

    def append(self, uid: int, number: int, batch: memoryview) -> None:
        """Keep the batch with this number; if there is a gap before it, forget the older ones."""
        self.append_row(uid, number, (batch,))

    def append_row(self, uid: int, first: int, batches: Sequence[memoryview]) -> None:
        """Keep batches numbered from `first` on, views of one buffer; they are dropped together."""
        kept = self._kept.get(uid)
        if kept is None or first != kept.stop:
            self.drop(uid)
            kept = self._kept[uid] = KeptBatches(first)
        buffer, count = batches[0].obj, len(batches)
        size = len(buffer)  # type: ignore[arg-type]  # every buffer of ours has a length
        cost, shared = ROW_OVERHEAD_BYTES + count * BATCH_OVERHEAD_BYTES, None
        if 2 * sum(map(len, batches)) > size:  # nearly always
            cost += size + BUFFER_OVERHEAD_BYTES
        else:
            shared = self._share(buffer, size)
        kept.extend(batches, (count, cost, shared))
        self._order.append(kept)
        self.bytes_held += cost
        if self.bytes_held > self.bytes_max:
            self._evict()

    def _share(self, buffer: object, size: int) -> int:
        """Count a buffer when its first row arrives; return its id."""
        key = id(buffer)
        held = self._shared.get(key)
        if held is None:
            size += SHARED_OVERHEAD_BYTES
            self._shared[key] = [1, size]
            self.bytes_held += size
        else:
            held[0] += 1
        return key

    def drop(self, uid: int) -> None:
        """Forget a partition; its places in the order are removed once they are half of all."""
        kept = self._kept.pop(uid, None)
        if kept is None:
            return
        for row in kept.clear():
            self._release(row)
            self._dead += 1
        if self._dead > DEAD_MIN and 2 * self._dead > len(self._order):
            self._order = deque(kept for kept in self._order if kept.live)
            self._dead = 0

    def _evict(self) -> None:
        """Forget the oldest rows until the limit holds."""
        take = self._order.popleft
        while self.bytes_held > self.bytes_max:
            kept = take()
            if kept.live:
                self._release(kept.pop_row())
            else:
                self._dead -= 1

    def _release(self, row: _Row) -> None:
        _, cost, shared = row
        self.bytes_held -= cost
        if shared is not None:
            held = self._shared[shared]
            held[0] -= 1
            if not held[0]:
                del self._shared[shared]
                self.bytes_held -= held[1]
