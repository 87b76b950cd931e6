"""The node's two clocks, and whether its peers agree with the first.

The wall clock is an anchor plus CLOCK_BOOTTIME, slewed slowly toward the system's wall clock, so it
never jumps with a step of NTP or an operator's `date`. Peers exchange readings; a node whose clock
is off from the median of all by nearly the configured margin gives its masters up (protocol.md 4).

A clock that is wrong when the node starts is the one that does harm: every lease seems to be over,
and one taken with it runs until nobody knows when. So a clock is not trusted at all before it has
been compared with those of a majority, and it takes one that contradicts it to stay so.
"""

import time
from statistics import median
from typing import Final, Protocol

from paxos.ids import MS, NodeId, Now

SLEW_PER_SECOND_NS: Final = 1 * MS
"""Faster would use up the clock margin within one lease; slower could not follow a bad crystal."""

SUSPECT_SHARE: Final = 0.8
"""Masters are given up when this share of the margin is used (CockroachDB stops at 80 %)."""


class SystemClock(Protocol):
    """What the operating system says, in nanoseconds."""

    def wall_ns(self) -> int: ...

    def boot_ns(self) -> int: ...


class LinuxClock:
    """CLOCK_REALTIME and CLOCK_BOOTTIME, which goes on while the machine is suspended."""

    def wall_ns(self) -> int:
        return time.time_ns()

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Clock:
    """`others_needed`: how many other nodes make a majority with this one."""

    def __init__(
        self, margin_ns: int, system: SystemClock | None = None, *, others_needed: int = 0
    ) -> None:
        self._system = system or LinuxClock()
        self._read_boot_ns = self._system.boot_ns
        self._margin_ns = margin_ns
        self._slewed_at_boot = self._system.boot_ns()
        self._offset = self._system.wall_ns() - self._slewed_at_boot
        self._offsets: dict[NodeId, int] = {}
        self._others_needed = others_needed
        self._agreed: set[NodeId] = set()
        """Who has not contradicted us, until they are enough for the first time."""
        self.compared = others_needed == 0
        """Whether enough have been asked what time it is."""
        self.trusted = self.compared

    def now(self) -> Now:
        boot = self._read_boot_ns()
        # Several times in every request, and so less than half of what `Now(...)` takes.
        return tuple.__new__(Now, (boot + self._offset, boot, self.trusted))

    def slew(self) -> None:
        """Follow the system's wall clock, at most SLEW_PER_SECOND_NS per second; call regularly."""
        boot = self._system.boot_ns()
        most = SLEW_PER_SECOND_NS * (boot - self._slewed_at_boot) // 1_000_000_000
        wanted = self._system.wall_ns() - boot - self._offset
        self._offset += max(-most, min(most, wanted))
        self._slewed_at_boot = boot

    def on_reading(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        """A peer's wall clock is ahead of ours by `offset_ns`, give or take `error_ns`."""
        most = SUSPECT_SHARE * self._margin_ns
        if error_ns <= self._margin_ns // 2:
            self._offsets[node] = offset_ns
        elif abs(offset_ns) - error_ns < most:
            offset_ns = 0  # too slow an exchange to say anything but that it may well be right
        if not self.compared:
            self._compare(node, agrees=abs(offset_ns) < most)
        self._judge()

    def _compare(self, node: NodeId, *, agrees: bool) -> None:
        if agrees:
            self._agreed.add(node)
        else:
            self._agreed.discard(node)
        self.compared = len(self._agreed) >= self._others_needed

    def _judge(self) -> None:
        off = abs(self.off_by_ns())
        self.trusted = self.compared and off < SUSPECT_SHARE * self._margin_ns

    def forget(self, node: NodeId) -> None:
        """The peer is gone: its last reading must not vote any more."""
        if self._offsets.pop(node, None) is not None:
            self._judge()

    def off_by_ns(self) -> int:
        """How far the middle of all clocks, ours included, is ahead of ours."""
        return int(median([0, *self._offsets.values()])) if len(self._offsets) > 1 else 0

    @property
    def complaint(self) -> str:
        """Why this clock is not trusted, or ""."""
        if self.trusted:
            return ""
        most = SUSPECT_SHARE * self._margin_ns
        if self.compared or any(abs(offset) >= most for offset in self._offsets.values()):
            return "this node's clock is off: check its time synchronisation"
        return "its clock has not been compared with others yet: is a majority of the nodes up?"

    @property
    def offsets_ns(self) -> dict[NodeId, int]:
        return dict(self._offsets)
