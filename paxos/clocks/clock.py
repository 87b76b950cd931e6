"""The clock that a node acts by, made of its machine's clocks (R12).

The wall clock is an anchor plus CLOCK_BOOTTIME, slewed slowly toward the system's wall clock, so it
never jumps with a step of NTP or an operator's `date`. Peers exchange readings; a node whose clock
may be off by nearly the configured margin gives up its masterships (paxos.clocks.trust).

Pure: the machine's clocks are an argument. runtime.system.clock gives it those of Linux, and
simulator.clock_world those of machines that stand still, drift and are set.
"""

from typing import Final, Protocol

from paxos.clocks.trust import Trust
from paxos.ids import MS, NodeId, Now

SLEW_PER_SECOND_NS: Final = 1 * MS
"""Faster would use up the clock margin within one lease; slower could not follow a bad crystal."""


class SystemClock(Protocol):
    """The operating system's clocks, in nanoseconds."""

    def wall_ns(self) -> int: ...

    def boot_ns(self) -> int: ...


def reading(
    asked_wall_ns: int, asked_boot_ns: int, theirs_ns: int, boot_ns: int
) -> tuple[int, int]:
    """How far a peer's wall clock is ahead of ours, and the possible error, in nanoseconds. It
    showed `theirs_ns` at some moment between our question and now (`boot_ns`)."""
    half = (boot_ns - asked_boot_ns) // 2
    return theirs_ns - (asked_wall_ns + half), half


class Clock:
    """A node's clock. `margin_ns` is the configured bound on its error (R12), `others_needed` how
    many other nodes make a majority with this one."""

    def __init__(self, margin_ns: int, system: SystemClock, *, others_needed: int = 0) -> None:
        self._system = system
        self.boot_ns = self._read_boot_ns = self._system.boot_ns
        """The half of `now` that never steps: enough for measuring durations."""
        self._slewed_at_boot = self._system.boot_ns()
        self._offset = self._system.wall_ns() - self._slewed_at_boot
        self.trust = Trust(margin_ns, others_needed=others_needed)

    def now(self) -> Now:
        boot = self._read_boot_ns()
        # Called several times per request: this takes less than half the time of `Now(...)`.
        return tuple.__new__(Now, (boot + self._offset, boot, self.trust.trusted))

    def slew(self) -> None:
        """Follow the system's wall clock, at most SLEW_PER_SECOND_NS per second; call regularly."""
        boot = self._system.boot_ns()
        most = SLEW_PER_SECOND_NS * (boot - self._slewed_at_boot) // 1_000_000_000
        wanted = self._system.wall_ns() - boot - self._offset
        self._offset += max(-most, min(most, wanted))
        self._slewed_at_boot = boot
        self.trust.look(boot)

    # -- what peers say ------------------------------------------------------------------------

    def needs(self, others: int) -> None:
        """The cluster has grown or shrunk: so many others make a majority with this node."""
        self.trust.needs(others, self._read_boot_ns())

    def on_reading(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        """A peer's wall clock is ahead of ours by `offset_ns`, plus or minus `error_ns`."""
        self.trust.on_answer(node, offset_ns, error_ns, self._read_boot_ns())

    def on_told(self, node: NodeId, wall_ns: int) -> None:
        """A peer's wall clock showed this at some time in the past, so it shows no less now."""
        boot = self._read_boot_ns()
        self.trust.on_told(node, wall_ns - boot - self._offset, boot)

    def forget(self, node: NodeId) -> None:
        """The link to the peer is gone."""
        self.trust.unlinked(node)

    def drop(self, node: NodeId) -> None:
        """The node has left the cluster."""
        self.trust.drop(node, self._read_boot_ns())

    # -- what it reports -----------------------------------------------------------------------

    @property
    def trusted(self) -> bool:
        return self.trust.trusted

    @trusted.setter
    def trusted(self, trusted: bool) -> None:
        self.trust.trusted = trusted

    @property
    def complaint(self) -> str:
        """Why this clock is not trusted, or ""."""
        return self.trust.complaint(self._read_boot_ns())

    @property
    def offsets_ns(self) -> dict[NodeId, int]:
        return self.trust.offsets_ns
