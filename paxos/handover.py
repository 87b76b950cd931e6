"""The master's side of a steal: drain, one entry, then wait for its fate (protocol.md "steal").

The entry expires the master's lease, installs the target, and gives it the master's own ballot for
all later slots, so that the target goes on without a Prepare. Nothing is given up before it leaves;
from then on only applying its slot ends the suspension (R7), and the ballot above it is gone for
ever (R4).
"""

from typing import TYPE_CHECKING

import attrs

from paxos import entry as entries
from paxos.entry import EntryKind, Steal
from paxos.ids import SLOT_ZERO, Incarnation, NodeId, Now, Slot
from paxos.messages import StealAbort, StealRequest
from paxos.proposer import Role
from paxos.step import Notice, Send, Step
from paxos.timing import STEAL_LAG_SLOTS_MAX

if TYPE_CHECKING:
    from paxos.replica import Replica


@attrs.define(eq=False)
class Handover:
    """While `draining`, the steal can be called off at no cost."""

    target: NodeId
    target_incarnation: Incarnation
    since_boot_ns: int
    draining: bool = True


def on_request(
    replica: "Replica", now: Now, sender: NodeId, request: StealRequest, step: Step
) -> None:
    """The ideal node asks: begin, or refuse with a reason."""
    refusal = _refusal(replica, now, sender, request)
    if refusal:
        step.before.append(Send(sender, StealAbort(replica.group, request.lease_ver, refusal)))
    else:
        begin(replica, now, sender, request.incarnation)


def _refusal(replica: "Replica", now: Now, target: NodeId, request: StealRequest) -> str:
    if not (replica.acting(now) and replica.ready()):
        return "not master"
    if replica.handover is not None:
        return "busy"
    if request.lease_ver != replica.lease.ver:
        return "stale version"
    known = replica.incarnations.get(target)
    if known is not None and known != request.incarnation:
        return "stale incarnation"
    return _target_refusal(replica, target, request.applied)


def _target_refusal(replica: "Replica", target: NodeId, applied: Slot) -> str:
    if target not in replica.members or target == replica.me:
        return "not a member"
    if replica.learner.applied - applied > STEAL_LAG_SLOTS_MAX:
        return "target behind"
    if any(f.entry.kind == EntryKind.CONFIG for f in replica.proposer.in_flight.values()):
        return "members are changing"
    return ""


def steal_away(replica: "Replica", now: Now, target: NodeId) -> str:
    """Hand the group to `target` on our own initiative (drain); returns "" or why not."""
    if not (replica.acting(now) and replica.ready()):
        return "not master"
    if replica.handover is not None:
        return "busy"
    incarnation = replica.incarnations.get(target)
    if incarnation is None or not replica.is_heard(target, now):
        return "target not heard"
    refusal = _target_refusal(replica, target, replica.peer(target).applied)
    if not refusal:
        begin(replica, now, target, incarnation)
    return refusal


def begin(replica: "Replica", now: Now, target: NodeId, incarnation: Incarnation) -> None:
    assert replica.handover is None
    assert target != replica.me
    replica.handover = Handover(target, incarnation, now.boot_ns)


def try_to_send(replica: "Replica", now: Now, step: Step) -> None:
    """Propose the Steal once everything before it is applied.

    Called by broker.intake once it has answered what was applied: from here on this node is
    suspended, so an answer still owed for an earlier slot could not be given any more.
    """
    proposer, handover = replica.proposer, replica.handover
    if handover is None or not handover.draining or proposer.in_flight:
        return
    drained = replica.learner.applied == proposer.next - 1
    if not (drained and replica.ready() and replica.acting(now)):
        return
    slot = proposer.next
    replica.suspended = slot  # before the first Accept leaves: no reads, acks, renewals (R3)
    replica.settle_since = now.boot_ns
    handover.draining = False
    value = Steal(
        replica.me,
        handover.target,
        handover.target_incarnation,
        proposer.ballot,
        replica.lease.ver,
        now.wall_ns + replica.timing.lease_ns,
    )
    replica.place(now, entries.steal(value), step)
    proposer.close_at(slot)  # everything above is given away, whatever happens (R4)


def call_off(replica: "Replica", reason: str, step: Step) -> None:
    """End a steal that is still draining: the master carries on with its ballot."""
    handover = replica.handover
    assert handover is not None
    assert handover.draining
    abort = StealAbort(replica.group, replica.lease.ver, reason)
    step.before.append(Send(handover.target, abort))
    step.notices.append(Notice(replica.group, "steal-called-off", reason))
    replica.handover = None


def slot_applied(replica: "Replica") -> None:
    """The slot of our Steal is applied: only now is its fate known, either way (R7)."""
    if SLOT_ZERO < replica.suspended <= replica.learner.applied:
        replica.suspended, replica.handover = SLOT_ZERO, None


def tick_draining(replica: "Replica", now: Now, step: Step) -> None:
    handover = replica.handover
    assert handover is not None
    waited = now.boot_ns - handover.since_boot_ns
    if waited > replica.timing.drain_ns or not replica.acting(now):
        call_off(replica, "drain timed out", step)


def tick_suspended(replica: "Replica", now: Now, step: Step, may_prepare: bool) -> None:
    """An unresolved Steal is settled by a higher ballot, never by waiting it out (R4, R7).

    As every Prepare it waits for a majority to be heard: cut off, it would only raise ballots.
    """
    if (
        now.boot_ns - replica.settle_since > replica.timing.settle_ns
        and replica.election.may_try(now)
        and replica.proposer.role is not Role.PREPARING
        and may_prepare
    ):
        replica.settle_since = now.boot_ns
        step.notices.append(Notice(replica.group, "steal-settling"))
        replica.prepare(now, step)
