"""The master's lease: a record in the replicated state. It says who may act, and until when.

The expiry is an absolute wall-clock time in the log. When a node applies it, the node also derives
a deadline on its own CLOCK_BOOTTIME. The holder acts only while both allow it, and others try only
when both have passed. So a wall clock that steps neither extends nor ends a lease by itself.
Lease entries are compare-and-set on the version (R8); a lease belongs to one incarnation (R11).
"""

import attrs

from paxos.base import Base
from paxos.entry import BeMaster, Steal
from paxos.ids import (
    BALLOT_ZERO,
    EPOCH_ZERO,
    INCARNATION_ZERO,
    NOBODY,
    SLOT_ZERO,
    Epoch,
    Incarnation,
    NodeId,
    Now,
    Slot,
)


@attrs.define(kw_only=True, eq=False)
class Lease:
    """`ver`: slot of the last valid lease entry; `since`: of the last that changed the holder or
    its incarnation; `epoch`: how many did. The epoch is the fencing token. It is a count, not the
    slot, because clients see it as leader epoch in 32 bits."""

    holder: NodeId = NOBODY
    incarnation: Incarnation = INCARNATION_ZERO
    ver: Slot = SLOT_ZERO
    since: Slot = SLOT_ZERO
    epoch: Epoch = EPOCH_ZERO
    expires_wall_ns: int = 0
    deadline_boot_ns: int = 0
    renewals: int = 0
    """Valid renewals since the holder changed: the watchdog of a steal counts them (E21)."""

    def apply_be_master(self, slot: Slot, value: BeMaster, now: Now, longest_ns: int) -> bool:
        """Apply a BeMaster; returns False if it lost the race for the version."""
        if value.prev_ver != self.ver:
            return False
        deadline = _boot_deadline(value.expires_wall_ns, now, longest_ns)
        if (value.node, value.incarnation) == (self.holder, self.incarnation):
            self.expires_wall_ns = max(value.expires_wall_ns, self.expires_wall_ns)  # R15
            self.deadline_boot_ns = max(deadline, self.deadline_boot_ns)
            self.renewals += 1
        else:
            self._install(slot, value.node, value.incarnation, value.expires_wall_ns, deadline)
        self.ver = slot
        return True

    def apply_steal(self, slot: Slot, value: Steal, now: Now, longest_ns: int) -> bool:
        """Apply a Steal; returns False if it lost the race for the version.

        A Steal without a ballot comes from an older strategy (paxos/strategies). With another node
        as target it frees the lease at once; with the holder as target it moves the expiry nearer.
        Both are safe although R15 forbids them: the author stops acting before it proposes the
        entry and does not act until it has applied it (R3), so nobody acts on what it takes away.
        """
        if value.prev_ver != self.ver:
            return False
        expires = value.expires_wall_ns
        deadline = _boot_deadline(expires, now, longest_ns)
        if value.ballot != BALLOT_ZERO:
            self._install(slot, value.target, value.target_incarnation, expires, deadline)
        elif value.target != value.source:
            self._install(slot, NOBODY, INCARNATION_ZERO, 0, 0)
        else:
            self.expires_wall_ns = min(expires, self.expires_wall_ns)
            self.deadline_boot_ns = min(deadline, self.deadline_boot_ns)
        self.ver = slot
        return True

    def restore(self, base: Base) -> None:
        """Take the lease of a base. Its boot deadline has passed, until `start_deadline`."""
        self.holder, self.incarnation = base.holder, base.incarnation
        self.ver, self.since, self.epoch = base.ver, base.since, base.epoch
        self.expires_wall_ns, self.renewals = base.expires_wall_ns, base.renewals
        self.deadline_boot_ns = 0

    def lapse(self, now: Now) -> None:
        """It is ours but came with a peer's state: we renew it before we act on it (R11)."""
        self.deadline_boot_ns = now.boot_ns

    def start_deadline(self, now: Now, longest_ns: int) -> None:
        """The lease came from a base: from now on our own boot clock counts as well."""
        deadline = _boot_deadline(self.expires_wall_ns, now, longest_ns)
        self.deadline_boot_ns = max(deadline, self.deadline_boot_ns)

    def held_by(self, node: NodeId, incarnation: Incarnation) -> bool:
        return self.holder == node and self.incarnation == incarnation

    def safely_before_expiry(self, now: Now, margin_ns: int) -> bool:
        """The holder's check before it acts (R12)."""
        return (
            now.trusted
            and now.wall_ns < self.expires_wall_ns - margin_ns
            and now.boot_ns < self.deadline_boot_ns - margin_ns
        )

    def free(self, now: Now, margin_ns: int) -> bool:
        """The check of everybody else before they try to become master (R12)."""
        return self.holder == NOBODY or (
            now.wall_ns > self.expires_wall_ns + margin_ns
            and now.boot_ns > self.deadline_boot_ns + margin_ns
        )

    def _install(
        self, slot: Slot, node: NodeId, incarnation: Incarnation, expires: int, deadline: int
    ) -> None:
        self.holder = node
        self.incarnation = incarnation
        self.since = slot
        self.epoch = Epoch(self.epoch + 1)
        self.expires_wall_ns = expires
        self.deadline_boot_ns = deadline
        self.renewals = 0


def _boot_deadline(expires_wall_ns: int, now: Now, longest_ns: int) -> int:
    """The expiry on our own boot clock. No lease runs longer than `longest_ns` from now."""
    return now.boot_ns + min(max(expires_wall_ns - now.wall_ns, 0), longest_ns)
