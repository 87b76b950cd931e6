"""Small commands are proposed all together instead of in two alternating halves (group commit).

Clients that wait for their answers ask again as soon as they have them. If everything is proposed
as early as possible, they split into two halves: one is on its way to a quorum while the other is
answered and asks again. Each half then costs an entry in every group, a sync on every node and all
messages for these. When many were answered together it pays to wait: until nothing is in flight,
and for those that are about to ask again. Latency improves as well, because this work dominates it
(measured: docs/performance.md).

If few are answered together, nothing waits. Large commands never wait, nor do those of a group that
is being handed over; and nothing waits longer than `WAITS_NS_MAX`.
"""

from collections.abc import Iterable
from typing import Final, Protocol

import attrs

from paxos.ids import MS, Now

TOGETHER_MIN: Final = 4
"""This many commands answered together make it likely that as many come back together."""
BYTES_MAX: Final = 256 * 1024
SMALL_BYTES: Final = 32 * 1024
"""Queued commands of this many bytes in all, or each on average, are proposed at once: moving them
is the work, not proposing them."""
EXPECTED_SHARE: Final = 0.95
"""Share of the answered clients to wait for: a few may have no further request."""
UNDER_WAY_SHARE: Final = 0.1
"""Share of those answered together: as few as this still in flight delay nothing."""
WAITS_NS_MAX: Final = 10 * MS
"""Nothing waits for a quorum that takes longer than this."""
AGAIN_NS_MAX: Final = 3 * MS
AGAIN_SHARE: Final = 0.6
"""Share of the time from a proposal to its answers: where that takes long, the machine is slow or
much is in flight, and the answered clients ask again more slowly, too."""


class Queued(Protocol):
    """What we need of an intake: its commands that wait to be proposed."""

    @property
    def waiting(self) -> tuple[int, int]:
        """Their number, and their bytes."""
        ...


@attrs.define(eq=False)
class GroupCommit:
    """What all Paxos groups of a node have in flight, and whether to propose now."""

    again_ns: int = 1 * MS
    """The least time that answered clients have to ask again; 0: nothing ever waits here."""
    under_way: int = 0
    """Commands proposed and not answered yet."""
    waits: bool = False
    """The last result of `should_wait`."""
    _together: int = 0
    """Answered since the last proposal: one client that keeps asking is no crowd."""
    _proposed: bool = False
    _proposed_boot_ns: int = 0
    """Time of the first proposal since something was answered."""
    _patience_ns: int = 0
    """How long the clients answered last have to ask again."""
    _answered_boot_ns: int = 0
    _queued: int = 0
    _queued_before: int = 0
    _since_boot_ns: int = 0

    def proposed(self, now: Now, count: int) -> None:
        self.under_way += count
        if not self._proposed:
            self._proposed = True
            self._proposed_boot_ns = now.boot_ns

    def forgotten(self, count: int) -> None:
        """The outcome of so many proposed commands will not be known here."""
        self.under_way -= count

    def answered(self, now: Now, count: int) -> None:
        self.under_way -= count
        if self._proposed:
            self._proposed = False
            self._together = 0
            self._queued_before = self._queued
            took_ns = now.boot_ns - self._proposed_boot_ns
            self._patience_ns = min(int(took_ns * AGAIN_SHARE), AGAIN_NS_MAX)
        self._answered_boot_ns = now.boot_ns
        self._together += count

    def should_wait(self, now: Now, intakes: Iterable[Queued]) -> bool:
        """Whether to hold back what is queued; asked again at the end of each round."""
        together = self._together >= TOGETHER_MIN and self.again_ns > 0
        self.waits = together and self._wait(now, intakes)
        if not self.waits:
            self._queued = self._since_boot_ns = 0
        return self.waits

    def _wait(self, now: Now, intakes: Iterable[Queued]) -> bool:
        queued = size = 0
        for intake in intakes:
            more, more_bytes = intake.waiting
            queued += more
            size += more_bytes
        if not queued or size > min(BYTES_MAX, queued * SMALL_BYTES):
            return False
        self._queued = queued
        if not self._since_boot_ns:
            self._since_boot_ns = now.boot_ns
        elif now.boot_ns - self._since_boot_ns > WAITS_NS_MAX:
            return False
        if self.under_way > UNDER_WAY_SHARE * self._together:
            return True
        expected = self._queued_before + EXPECTED_SHARE * self._together
        patience_ns = max(self.again_ns, self._patience_ns)
        return queued < expected and now.boot_ns - self._answered_boot_ns < patience_ns
