"""The master's side of a steal: drain, one entry, then wait for its fate (protocol.md "steal").

The entry expires the master's lease, installs the target, and gives it the master's own ballot for
all later slots, so that the target goes on without a Prepare. Nothing is given up before it leaves;
from then on only applying its slot ends the suspension (R7), and the ballot above it is gone for
ever (R4).

The older strategies (`timing.Strategy`) run through the same stages with a weaker entry, or none,
and leave the rest to an ordinary election, in which the target should be first.
"""

from collections.abc import Mapping
from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs

from paxos import entry as entries
from paxos import rejoin
from paxos.entry import EntryKind, Steal
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Incarnation, NodeId, Now, Slot
from paxos.messages import StealAbort, StealRequest
from paxos.proposer import Role
from paxos.step import Notice, Send, Step
from paxos.timing import STEAL_LAG_SLOTS_MAX, Strategy

if TYPE_CHECKING:
    from paxos.replica import Replica


class Stage(Enum):
    DRAINING = "draining"
    """No new entries; can be called off at no cost."""
    SENT = "sent"
    """Suspended until the entry's slot is applied."""
    EXPIRING = "expiring"
    """Not renewing: whoever is elected when the lease is over ends the handover."""


FIRST_STAGE: Final[Mapping[Strategy, Stage]] = {
    Strategy.DELEGATE: Stage.DRAINING,
    Strategy.TWO_PROPOSES: Stage.DRAINING,
    Strategy.MOVE_EXPIRY: Stage.DRAINING,
    Strategy.WAIT_EXPIRY: Stage.EXPIRING,
}


@attrs.define(eq=False)
class Handover:
    target: NodeId
    target_incarnation: Incarnation
    since_boot_ns: int
    stage: Stage
    sent_boot_ns: int = 0
    """When the last entry left, 0 before."""

    @property
    def draining(self) -> bool:
        return self.stage is Stage.DRAINING


def on_request(
    replica: "Replica", now: Now, sender: NodeId, request: StealRequest, step: Step
) -> None:
    """The ideal node asks: begin, or refuse with a reason."""
    why = refusal(replica, now, sender, request)
    if why:
        step.before.append(Send(sender, StealAbort(replica.group, request.lease_ver, why)))
    else:
        begin(replica, now, sender, request.incarnation)


def refusal(replica: "Replica", now: Now, target: NodeId, request: StealRequest) -> str:
    """Why the group is not handed over for this request, or ""."""
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
    in_flight = replica.proposer.in_flight.values()
    if replica.changing is not None or any(f.entry.kind == EntryKind.CONFIG for f in in_flight):
        return "members are changing"
    return ""


def steal_away(replica: "Replica", now: Now, target: NodeId) -> str:
    """Hand the group to `target` on our own initiative (drain); returns "" or why not."""
    why = away_refusal(replica, now, target)
    if not why:
        begin(replica, now, target, replica.incarnations[target])
    return why


def away_refusal(replica: "Replica", now: Now, target: NodeId) -> str:
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


def begin(replica: "Replica", now: Now, target: NodeId, incarnation: Incarnation) -> None:
    assert replica.handover is None
    assert target != replica.me
    replica.wake()
    stage = FIRST_STAGE[replica.timing.strategy]
    replica.handover = Handover(target, incarnation, now.boot_ns, stage)


def serves_on(replica: "Replica", now: Now) -> bool:
    """Whether the master still takes commands: where it only lets its lease run out, nearly to the
    end."""
    assert replica.handover is not None
    last_ns = replica.timing.last_commands_ns
    return (
        replica.handover.stage is Stage.EXPIRING
        and replica.acting(now)
        and replica.lease.safely_before_expiry(now, replica.timing.margin_ns + last_ns)
    )


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
    handover.stage, handover.sent_boot_ns = Stage.SENT, now.boot_ns
    replica.place(now, entries.steal(_last_word(replica, now)), step)
    proposer.close_at(slot)  # everything above is given away, whatever happens (R4)


def _last_word(replica: "Replica", now: Now) -> Steal:
    """What our last entry at this ballot says, by the strategy."""
    handover, lease, timing = replica.handover, replica.lease, replica.timing
    assert handover is not None
    to, incarnation = handover.target, handover.target_incarnation
    ballot, expires_ns = BALLOT_ZERO, now.wall_ns
    if timing.strategy is Strategy.DELEGATE:
        ballot, expires_ns = replica.proposer.ballot, now.wall_ns + timing.lease_ns
    elif timing.strategy is Strategy.MOVE_EXPIRY:
        to, incarnation = replica.me, replica.incarnation
        expires_ns = now.wall_ns + timing.margin_ns  # so that our own part of it is over
    return Steal(replica.me, to, incarnation, ballot, lease.ver, expires_ns)


def call_off(replica: "Replica", reason: str, step: Step) -> None:
    """End a steal that has given nothing up yet: the master carries on."""
    handover = replica.handover
    assert handover is not None
    assert handover.stage is not Stage.SENT
    abort = StealAbort(replica.group, replica.lease.ver, reason)
    step.before.append(Send(handover.target, abort))
    step.notices.append(Notice(replica.group, "steal-called-off", reason))
    replica.handover = None


def entry_applied(replica: "Replica") -> None:
    """Something was applied. If it is the slot of our Steal, its fate is known, either way (R7);
    if it has made somebody else master, there is nothing left to hand over."""
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


def tick_draining(replica: "Replica", now: Now, step: Step) -> None:
    handover = replica.handover
    assert handover is not None
    waited = now.boot_ns - handover.since_boot_ns
    if waited > replica.timing.drain_ns or not replica.acting(now):
        call_off(replica, "drain timed out", step)


def tick_expiring(replica: "Replica", now: Now, step: Step) -> None:
    """Wait for the end of the lease, and then for its new holder, but not for ever."""
    handover, timing = replica.handover, replica.timing
    assert handover is not None
    if not replica.is_heard(handover.target, now):
        call_off(replica, "target not heard", step)
    elif replica.lease.free(now, timing.margin_ns + timing.settle_ns):
        call_off(replica, "not taken", step)


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
