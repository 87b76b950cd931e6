"""The disk's health, judged by how long the log's batches take to become durable.

*Hung*: the batch under way has waited for HUNG_NS. *Slow*: for SLOW_AFTER_NS the median of the last
batches has been SLOW_NS or more, while half of the other nodes reported far better times. If all
disks are alike, for example on one machine, none is slow: there is nowhere to go. Reports are half
a second old and a few batches are soon over, so being worse than the others for a moment says
nothing. A batch may take NS_PER_BYTE longer for each of its bytes, so a node with large messages
does not blame a disk that is only busy with them.

Time is an argument. It is counted in steps between ticks, and a step counts for STEP_NS_MAX at
most, little more than a tick: while a process stands still (SIGSTOP, a collection of garbage, no
processor to be had) nobody hears of the disk, and that is not the disk's fault.
"""

from collections import deque
from collections.abc import Iterable
from statistics import median_low
from typing import Final

HUNG_NS: Final = 1_000_000_000
SLOW_NS: Final = 40_000_000
FAR_BETTER: Final = 2
"""Classes below ours: two to four times as fast, or more."""
SLOW_AFTER_NS: Final = 1_000_000_000
SLOW_FOR_NS: Final = 30_000_000_000
"""How long a disk counts as slow at least, so that masters do not move to and fro."""
BATCHES_KEPT: Final = 15
BATCHES_NEEDED: Final = 5
STEP_NS_MAX: Final = 25_000_000
NS_PER_BYTE: Final = 10
"""100 MB/s: 100 ms for 10 MB, which would be slow for a small batch."""
CLASS_MAX: Final = 15


def class_of(ns: int) -> int:
    """Doublings of half a millisecond, 0 to CLASS_MAX: what nodes report of their disks."""
    return min(CLASS_MAX, (2 * ns // 1_000_000).bit_length())


class DiskHealth:
    def __init__(self) -> None:
        self.hung = self.slow = False
        self.waited_ns = 0
        """How long the batch under way has taken so far."""
        self._under_way = False
        self._allowed_ns = 0
        """How much of its time the batch under way may take for its size alone."""
        self._looked_ns = 0
        self._taken: deque[int] = deque(maxlen=BATCHES_KEPT)
        self.usual_ns = 0
        """The median of what the last batches took beyond what their size allows; 0 while too few
        are known."""
        self._worse_since_ns: int | None = None
        self._slow_until_ns = 0

    @property
    def degraded(self) -> bool:
        """Whether masters should move to other nodes."""
        return self.hung or self.slow

    @property
    def own_class(self) -> int:
        """What the others are told; the worst class while unknown. Otherwise, of several nodes that
        start on slow disks, the first to know its own class would take the others for better."""
        return CLASS_MAX if self.hung or not self.usual_ns else class_of(self.usual_ns)

    def begun(self, boot_ns: int, size: int = 0) -> None:
        """A batch of so many bytes goes to the disk."""
        self._step(boot_ns)
        self._allowed_ns = size * NS_PER_BYTE
        self._under_way = True
        self.waited_ns = 0

    def ended(self, boot_ns: int) -> None:
        """It is durable."""
        self._step(boot_ns)
        self._taken.append(max(0, self.waited_ns - self._allowed_ns))
        if len(self._taken) >= BATCHES_NEEDED:
            self.usual_ns = median_low(self._taken)
        self._under_way = self.hung = False
        self.waited_ns = 0

    def look(self, boot_ns: int, others: Iterable[int] = ()) -> None:
        """Call at every tick, with the classes that the other nodes have reported."""
        self._step(boot_ns)
        self.hung = self.waited_ns >= HUNG_NS + self._allowed_ns
        if self.usual_ns < SLOW_NS or not self._is_worse_than(sorted(others)):
            self._worse_since_ns = None
        elif self._worse_since_ns is None:
            self._worse_since_ns = boot_ns
        if self._worse_since_ns is not None and boot_ns >= self._worse_since_ns + SLOW_AFTER_NS:
            self.slow, self._slow_until_ns = True, boot_ns + SLOW_FOR_NS
        elif boot_ns >= self._slow_until_ns:
            self.slow = False

    def _is_worse_than(self, others: list[int]) -> bool:
        return bool(others) and median_low(others) + FAR_BETTER <= class_of(self.usual_ns)

    def _step(self, boot_ns: int) -> None:
        if self._under_way:
            self.waited_ns += min(boot_ns - self._looked_ns, STEP_NS_MAX)
        self._looked_ns = boot_ns
