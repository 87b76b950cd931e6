"""Which recorded waits are still valid when their group changes.

Part of the replicated state machine: the same on every replica. A wait is forgotten as soon as it
may have ended; the next coordinator then starts it with its full time.
"""

from collections.abc import Iterable, Mapping

from coordinator.replicated.assigned_group import AssignedSnapshot
from coordinator.replicated.commands import GroupSnapshot
from coordinator.replicated.stored import StoredGroup
from coordinator.replicated.waits import WaitFor
from coordinator.timers import TimerKind, Wait


def after_snapshot(
    known: Mapping[WaitFor, Wait], generation: int, command: GroupSnapshot
) -> dict[WaitFor, Wait]:
    """A new generation ends the rebalance. Its members have joined, except for static members,
    which may be away."""
    same = command.generation == generation
    sessions = {
        WaitFor(TimerKind.SESSION, one.member_id)
        for one in command.members
        if same or one.instance_id is not None
    }
    return {
        what: wait
        for what, wait in known.items()
        if what in sessions or (same and what.kind in (TimerKind.REBALANCE, TimerKind.SYNC))
    }


def after_assigned(
    known: Mapping[WaitFor, Wait], before: AssignedSnapshot | None, command: AssignedSnapshot
) -> dict[WaitFor, Wait]:
    """A member that has to give up other partitions than before has the full time for that."""
    if not known:
        return {}
    former = {one.member_id: one for one in before.members} if before is not None else {}
    kept = {WaitFor(TimerKind.CONSUMER, one.member_id) for one in command.members}
    kept |= {
        WaitFor(TimerKind.REVOCATION, one.member_id)
        for one in command.members
        if one.member_id in former and one.revoking == former[one.member_id].revoking
    }
    return {what: wait for what, wait in known.items() if what in kept}


def still_valid(
    group: StoredGroup, generation: int, said: Iterable[tuple[WaitFor, Wait]]
) -> dict[WaitFor, Wait]:
    """The recorded waits that still apply to a group that may have changed since."""
    assigned = group.assigned.members if group.assigned is not None else ()
    holds = {WaitFor(TimerKind.SESSION, one) for one in group.members}
    for one in assigned:
        holds.add(WaitFor(TimerKind.CONSUMER, one.member_id))
        if one.revoking:
            holds.add(WaitFor(TimerKind.REVOCATION, one.member_id))
    return {
        what: wait
        for what, wait in said
        if what in holds
        or (what.kind in (TimerKind.REBALANCE, TimerKind.SYNC) and generation == group.generation)
    }
