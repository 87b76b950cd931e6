"""The times and limits of the protocol, in one frozen value that cannot be inconsistent."""

from enum import Enum
from typing import Final

import attrs

from paxos.ids import MS

WINDOW_MAX: Final = 64
"""No master ever has more undecided slots than this; `paxos.changes.rejoin` relies on it."""

ACCEPT_AHEAD_SLOTS_MAX: Final = 4 * WINDOW_MAX
"""An acceptor ignores slots further than this beyond its applied prefix (it learns them later)."""

ACCEPT_AHEAD_BYTES_MAX: Final = 48 * 1024 * 1024
"""... and entries beyond this many undecided bytes per group. Ignoring is as legal as losing."""

CHOSEN_AHEAD_MAX: Final = 4 * ACCEPT_AHEAD_SLOTS_MAX
"""A member knows of no chosen slot further than this beyond its applied prefix: it has no vote
there, and others send it entries only from the end of that prefix on."""

SERVE_SLOTS_MAX: Final = 128
"""Entries served in one go when a member catches up. Learning a hundred of them holds up a node's
loop for about ten milliseconds."""

ROUND_AHEAD_MAX: Final = 1 << 32
"""No honest round is further than this beyond those that a member has seen: each Prepare raises it
by one, so this is a Prepare every second for a century. A wrong round costs one part in 2**30 of
what there is (`ids.ROUND_MAX`)."""

LARGE_ENTRY_BYTES: Final = 256 * 1024
"""An entry of this size keeps links and disks busy for a while, and whatever follows it waits."""

STEAL_LAG_SLOTS_MAX: Final = 2 * WINDOW_MAX
"""A node further behind than this is not caught up: a steal to it is refused."""


class Strategy(Enum):
    """How a master gives its group away (docs/handoff.md compares them). All but the first end in
    an ordinary election; they exist to be measured against it (paxos/strategies)."""

    DELEGATE = "delegate"
    """One entry: expire the lease, install the target, hand the ballot over."""
    TWO_PROPOSES = "two-proposes"
    """One entry frees the lease at once; the target prepares, and proposes its own BeMaster."""
    MOVE_EXPIRY = "move-expiry"
    """One entry moves the expiry to the nearest moment that is safe by the clocks."""
    WAIT_EXPIRY = "wait-expiry"
    """No entry: the master stops renewing and serves on until its lease is over."""

    @property
    def waits(self) -> bool:
        """Whether the mastership ends by the clock, and not by what is applied."""
        return self in (Strategy.MOVE_EXPIRY, Strategy.WAIT_EXPIRY)


@attrs.frozen(kw_only=True)
class Timing:
    """All in nanoseconds. Defaults suit one data centre (docs/reference.md, "Settings")."""

    lease_ns: int = 3_000 * MS
    renew_every_ns: int = 1_000 * MS
    margin_ns: int = 200 * MS
    """The clock bound eps: the holder stops this much before the expiry, others start after."""
    retransmit_ns: int = 400 * MS
    """A link loses nothing while it lasts, so this only repeats what a full queue dropped."""
    drain_ns: int = 200 * MS
    """A handover or a change of members that has waited longer for the window is called off."""
    last_commands_ns: int = 50 * MS
    """A master that lets its lease run out takes no commands in its last moments, so that what it
    has proposed is applied and answered while it still may answer."""
    settle_ns: int = 500 * MS
    """An unresolved Steal older than this is settled by a higher ballot (T_steal)."""
    prepare_timeout_ns: int = 300 * MS
    backoff_min_ns: int = 20 * MS
    backoff_max_ns: int = 200 * MS
    backoff_cap_ns: int = 2_000 * MS
    progress_every_ns: int = 500 * MS
    heard_ns: int = 1_500 * MS
    """A member not heard for longer does not count towards the majority that precedes Prepare."""
    learn_patience_ns: int = 300 * MS
    """A gap without progress for this long is filled by value: its Commit must have been lost."""
    learn_timeout_ns: int = 500 * MS
    """If a Learn is not answered for this long, somebody is asked again."""
    window: int = 8
    """How many slots a master may have proposed and not yet chosen."""
    strategy: Strategy = Strategy.DELEGATE

    def __attrs_post_init__(self) -> None:
        if 2 * self.renew_every_ns + 2 * self.margin_ns >= self.lease_ns:
            raise ValueError(
                "a lease must outlive one lost renewal: "
                "2 * renew_every + 2 * clock_margin must be below the lease duration"
            )
        if self.renew_every_ns <= 2 * self.margin_ns:
            raise ValueError("renew_every must be above twice the clock margin (rule R15)")
        if not 1 <= self.window < WINDOW_MAX:  # one more slot may hold a renewal of the lease
            raise ValueError(f"window must be 1 to {WINDOW_MAX - 1}, not {self.window}")
        if not 0 < self.backoff_min_ns <= self.backoff_max_ns <= self.backoff_cap_ns:
            raise ValueError("election backoff: 0 < min <= max <= cap")
