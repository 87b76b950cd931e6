"""When a node may try to become master, and how long it waits: liveness only, no safety rule.

The wait is random, and each failed attempt doubles it. A node tries only while it hears a majority.
So nodes that are cut off or half deaf raise no ballot storm (scenario 20), and attempts that
collide soon drift apart.
"""

from typing import Final, Protocol

import attrs

from paxos.ids import Now
from paxos.timing import Timing

PREPARE_DOUBLINGS_MAX: Final = 2


class Dice(Protocol):
    """The only source of randomness in the core; `random.Random` fits."""

    def randrange(self, stop: int, /) -> int: ...


@attrs.define(kw_only=True, eq=False)
class Election:
    timing: Timing
    dice: Dice
    preferred: bool = False
    """This node is the group's ideal master: it tries a little earlier than the others."""
    abstaining: bool = False
    """This node neither takes nor renews leases: it is being drained, or its disk is hung."""
    attempts: int = 0
    backoff_until: int = 0
    was_free: bool = False
    eager: bool = False
    """Take the lease in the very round in which it is possible, and not at the next tick."""

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
        """The members have changed and the leader stepped down: do not wait to prepare again."""
        self.backoff_until = 0

    def succeeded(self) -> None:
        self.attempts = 0

    def tried(self) -> None:
        """The lease that we were eager for is proposed."""
        self.eager = False

    def lease_is_held(self) -> None:
        """Somebody else holds the lease: nothing to try for."""
        self.was_free = self.eager = False
        self.attempts = 0

    def lease_is_free(self, now: Now) -> None:
        """Call at every tick while the lease is free; the first call draws the waiting time."""
        if not self.was_free:
            self.was_free = True
            self.back_off(now)

    def lease_freed_for_us(self, now: Now) -> None:
        """The lease was freed for us: we try at once, the others after their wait."""
        self.was_free = self.eager = True
        self.backoff_until = now.boot_ns

    @property
    def prepare_patience_ns(self) -> int:
        """How long a Prepare may take. Longer after failures: a new ballot that comes before the
        answers to the old one makes links and disks begin again, perhaps for ever."""
        doublings = min(max(self.attempts - 1, 0), PREPARE_DOUBLINGS_MAX)
        return self.timing.prepare_timeout_ns << doublings

    def may_try(self, now: Now) -> bool:
        return now.trusted and now.boot_ns >= self.backoff_until
