"""The master's side of a steal: drain, propose one entry, wait for its fate.

The entry ends the master's lease, makes the target the holder, and gives it the master's ballot for
all later slots, so that the target goes on without a Prepare. Nothing is given up before the entry
leaves. From then on the ballot above its slot is gone for ever (R4), and only applying that slot
ends the suspension (R7).

Why this is safe: phase 1 of the ballot has covered every slot that it may propose in (R4b), and the
master has proposed nothing above the Steal's slot under it. So no lower ballot has or can get a
value chosen up there that the ballot does not know, and under the ballot each slot still has one
proposer. A fresh ballot without a phase 1 would have no such guarantee (scenario 2).

The older strategies run through the same stages (paxos/strategies).
"""

from paxos import entry as entries
from paxos.changes import rejoin
from paxos.entry import EntryKind, Steal
from paxos.ids import SLOT_ZERO, Incarnation, NodeId, Now, Slot
from paxos.messages import StealAbort, StealRequest
from paxos.proposer import Role
from paxos.state.core import Core
from paxos.state.handover import Handover, Stage
from paxos.step import Notice, Send, Step
from paxos.strategies import older
from paxos.timing import STEAL_LAG_SLOTS_MAX, Strategy


def on_request(replica: Core, now: Now, sender: NodeId, request: StealRequest, step: Step) -> None:
    """The ideal node asks: begin, or refuse with a reason."""
    why = refusal(replica, now, sender, request)
    if why:
        step.before.append(Send(sender, StealAbort(replica.group, request.lease_ver, why)))
    else:
        begin(replica, now, sender, request.incarnation)


def refusal(replica: Core, now: Now, target: NodeId, request: StealRequest) -> str:
    """Why this request is refused, or ""."""
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


def _target_refusal(replica: Core, target: NodeId, applied: Slot) -> str:
    if target not in replica.members or target == replica.me:
        return "not a member"
    if replica.learner.applied - applied > STEAL_LAG_SLOTS_MAX:
        return "target behind"
    in_flight = replica.proposer.in_flight.values()
    if replica.changing is not None or any(f.entry.kind == EntryKind.CONFIG for f in in_flight):
        return "members are changing"
    return ""


def steal_away(replica: Core, now: Now, target: NodeId) -> str:
    """Hand the group to `target` on our own initiative (drain); returns "" or why not."""
    why = away_refusal(replica, now, target)
    if not why:
        begin(replica, now, target, replica.incarnations[target])
    return why


def away_refusal(replica: Core, now: Now, target: NodeId) -> str:
    """Why the group cannot be handed to `target` on our own initiative, or ""."""
    if not (replica.acting(now) and replica.ready()):
        return "not master"
    if replica.handover is not None:
        return "busy"
    if target not in replica.incarnations or not replica.is_heard(target, now):
        return "target not heard"
    if rejoin.is_asking(replica, now, target):
        return "target does not vote"
    return _target_refusal(replica, target, replica.peer(target).applied)


def begin(replica: Core, now: Now, target: NodeId, incarnation: Incarnation) -> None:
    assert replica.handover is None
    assert target != replica.me
    replica.wake()
    stage = older.FIRST_STAGE.get(replica.timing.strategy, Stage.DRAINING)
    replica.handover = Handover(target, incarnation, now.boot_ns, stage)


def try_to_send(replica: Core, now: Now, step: Step) -> None:
    """Propose the Steal once everything before it is applied.

    broker.proposals.intake calls this when it has answered all that was applied. From here on this
    node is suspended, so it could no longer answer for an earlier slot.
    """
    proposer, handover = replica.proposer, replica.handover
    if handover is None or not handover.draining or proposer.in_flight:
        return
    drained = replica.learner.applied == proposer.next - 1
    if not (drained and replica.ready() and replica.acting(now)):
        return
    slot = proposer.next
    replica.suspended = slot  # before any Accept of it exists: no reads, acks, renewals (R3)
    replica.settle_since = now.boot_ns
    handover.stage, handover.sent_boot_ns = Stage.SENT, now.boot_ns
    replica.place(now, entries.steal(_last_entry(replica, now)), step)
    proposer.close_at(slot)  # everything above it is given away, whatever happens (R4)


def _last_entry(replica: Core, now: Now) -> Steal:
    """Our last entry at this ballot: it ends our lease, and gives the ballot away with it."""
    handover, timing = replica.handover, replica.timing
    assert handover is not None
    if timing.strategy is not Strategy.DELEGATE:
        return older.last_entry(replica, handover, now)
    return Steal(
        replica.me,
        handover.target,
        handover.target_incarnation,
        replica.proposer.ballot,
        replica.lease.ver,
        now.wall_ns + timing.lease_ns,
    )


def entry_applied(replica: Core) -> None:
    """Something was applied. If that includes the slot of our Steal, its fate is known and the
    suspension ends (R7). If somebody else became master, there is nothing left to hand over."""
    handover, lease = replica.handover, replica.lease
    assert handover is not None
    ours = lease.held_by(replica.me, replica.incarnation)
    if SLOT_ZERO < replica.suspended <= replica.learner.applied:
        moved = lease.ver == replica.suspended and ours
        replica.suspended = SLOT_ZERO
        if moved:
            handover.stage = Stage.EXPIRING
        else:
            replica.handover = None
    elif handover.stage is Stage.EXPIRING and not ours:
        replica.handover = None


def tick_draining(replica: Core, now: Now, step: Step) -> None:
    handover = replica.handover
    assert handover is not None
    waited = now.boot_ns - handover.since_boot_ns
    if waited > replica.timing.drain_ns or not replica.acting(now):
        replica.call_off_handover("drain timed out", step)


def tick_suspended(replica: Core, now: Now, step: Step, *, may_prepare: bool) -> None:
    """Settle an unresolved Steal by a higher ballot, never by waiting it out (R4, R7).

    `may_prepare`: a majority is heard, for a node that is cut off would only raise ballots; and
    this node may vote, which `prepare` asserts.
    """
    if (
        now.boot_ns - replica.settle_since > replica.timing.settle_ns
        and replica.proposer.role is not Role.PREPARING
        and may_prepare
    ):
        replica.settle_since = now.boot_ns
        step.notices.append(Notice(replica.group, "steal-settling"))
        replica.prepare(now, step)
