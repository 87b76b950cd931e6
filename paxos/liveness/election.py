"""When a node may try to become master, and how long it waits: liveness only, no safety rule.

Random, doubled by each fruitless attempt, and only after hearing a majority: cut-off or half-deaf
nodes raise no ballot storm (scenario 20), and simultaneous attempts soon part.
"""

from typing import Final, Protocol

import attrs

from paxos.ids import Now
from paxos.timing import Timing

PREPARE_DOUBLINGS_MAX: Final = 2


class Dice(Protocol):
    """The only chance in the core; `random.Random` fits."""

    def randrange(self, stop: int, /) -> int: ...


@attrs.define(kw_only=True, eq=False)
class Election:
    timing: Timing
    dice: Dice
    preferred: bool = False
    """The ideal master of a free group tries a little earlier than the others."""
    abstaining: bool = False
    """A node that is being drained neither takes nor renews leases."""
    attempts: int = 0
    backoff_until: int = 0
    was_free: bool = False
    eager: bool = False
    """Take the lease in the very round in which that is possible, and not at the next tick."""

    def back_off(self, now: Now) -> None:
        timing = self.timing
        doublings = min(self.attempts, 16)
        if self.preferred and not doublings:
            low, high = 0, timing.backoff_min_ns
        else:
            low, high = timing.backoff_min_ns << doublings, timing.backoff_max_ns << doublings
        low, high = min(low, timing.backoff_cap_ns // 2), min(high, timing.backoff_cap_ns)
        self.backoff_until = now.boot_ns + low + self.dice.randrange(max(1, high - low))
        self.attempts += 1

    def try_at_once(self) -> None:
        """There are other members now: whoever led has stepped down, and is missed."""
        self.backoff_until = 0

    def succeeded(self) -> None:
        self.attempts = 0

    def tried(self) -> None:
        """The lease that we were eager for is proposed; what comes of it, its entry says."""
        self.eager = False

    def lease_is_held(self) -> None:
        """Somebody else holds the lease: nothing to try for."""
        self.was_free = self.eager = False
        self.attempts = 0

    def lease_is_free(self, now: Now) -> None:
        """Called every tick while the lease is free; the first one draws the waiting time."""
        if not self.was_free:
            self.was_free = True
            self.back_off(now)

    def called(self, now: Now) -> None:
        """The lease was freed for us: we try at once, the others after their waiting time."""
        self.was_free = self.eager = True
        self.backoff_until = now.boot_ns

    @property
    def prepare_patience_ns(self) -> int:
        """How long a Prepare may take: longer after fruitless ones, for a new ballot that comes
        before the answers to the old one has links and disks begin again, and so for ever."""
        doublings = min(max(self.attempts - 1, 0), PREPARE_DOUBLINGS_MAX)
        return self.timing.prepare_timeout_ns << doublings

    def may_try(self, now: Now) -> bool:
        return now.trusted and now.boot_ns >= self.backoff_until
