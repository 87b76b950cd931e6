"""The newest batches of the whole node, kept in memory so that tailing consumers cost no disk.

What is kept are the very buffers that went into the log: a large batch is a view of the frame its
producer sent, a small one a view of its entry's command. A view keeps all of its buffer alive, and
one buffer may hold batches of many partitions (a follower's entry, a Java producer's request), so
what is counted are the buffers, each once, for as long as any batch of it is kept. Over the limit
the oldest batches of the node go, whatever their partition.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

import attrs

BATCH_OVERHEAD_BYTES: Final = 208
"""What a kept batch costs beside its bytes, measured: a view, and its places in two queues."""
BUFFER_OVERHEAD_BYTES: Final = 288
"""What a buffer costs beside its bytes: its own head, what holds it for views, its count."""
_COMPACT_OVER: Final = 64


@attrs.define(eq=False)
class KeptBatches:
    """The last batches of one partition; `first` is the number of the oldest one."""

    first: int
    live: bool = True
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

    def extend(self, batches: Sequence[memoryview]) -> None:
        self._buffers += batches

    def pop(self) -> memoryview:
        """Forget the oldest; the list is moved up now and then, so this costs little."""
        data = self._buffers[self._gone]
        assert data is not None
        self._buffers[self._gone] = None
        self._gone += 1
        self.first += 1
        if self._gone > _COMPACT_OVER and 2 * self._gone > len(self._buffers):
            del self._buffers[: self._gone]
            self._gone = 0
        return data

    def clear(self) -> list[memoryview]:
        """Forget all; returns what was kept."""
        kept = self.between(self.first, self.stop)
        self.live = False
        self._buffers = []
        self._gone = 0
        return kept


DEAD_MIN: Final = 1024
"""Fewer dead places than this are not worth a walk over the order."""


class Tail:
    """`bytes_max` bounds `bytes_held`; 0 keeps nothing."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_held = 0
        self._kept: dict[int, KeptBatches] = {}
        self._order: deque[KeptBatches] = deque()
        """Whose batch came when: the oldest batch of the node is the oldest of the first one."""
        self._dead = 0
        """Places in the order whose partition was forgotten since."""
        self._buffers: dict[int, list[int]] = {}
        """id of a buffer -> how many batches of it are kept, and its cost. The batches keep the
        buffer alive, so no other object can have its id meanwhile."""

    def kept(self, uid: int) -> KeptBatches | None:
        return self._kept.get(uid)

    def append(self, uid: int, number: int, batch: memoryview) -> None:
        """Keep the batch with this number; a gap before it forgets the partition's older ones."""
        self.append_row(uid, number, (batch,))

    def append_row(self, uid: int, first: int, batches: Sequence[memoryview]) -> None:
        """Keep batches with the numbers from `first` on, as `append` would one after the other."""
        kept = self._kept.get(uid)
        if kept is None or first != kept.stop:
            self.drop(uid)
            kept = self._kept[uid] = KeptBatches(first)
        buffers, added = self._buffers, BATCH_OVERHEAD_BYTES * len(batches)
        for batch in batches:
            key = id(batch.obj)
            held = buffers.get(key)
            if held is None:
                size = len(batch.obj) + BUFFER_OVERHEAD_BYTES  # type: ignore[arg-type] # all have one
                buffers[key] = [1, size]
                added += size
            else:
                held[0] += 1
        kept.extend(batches)
        self._order.extend([kept] * len(batches))
        self.bytes_held += added
        if self.bytes_held > self.bytes_max:
            self._evict()

    def drop(self, uid: int) -> None:
        """Forget a partition; its places in the order go when they are half of all."""
        kept = self._kept.pop(uid, None)
        if kept is None:
            return
        for batch in kept.clear():
            self._release(batch)
            self._dead += 1
        if self._dead > DEAD_MIN and 2 * self._dead > len(self._order):
            self._order = deque(kept for kept in self._order if kept.live)
            self._dead = 0

    def _evict(self) -> None:
        """Forget the oldest batches until the bound holds."""
        take = self._order.popleft
        while self.bytes_held > self.bytes_max:
            kept = take()
            if kept.live:
                self._release(kept.pop())
            else:
                self._dead -= 1

    def _release(self, batch: memoryview) -> None:
        self.bytes_held -= BATCH_OVERHEAD_BYTES
        key = id(batch.obj)
        held = self._buffers[key]
        held[0] -= 1
        if not held[0]:
            del self._buffers[key]
            self.bytes_held -= held[1]
