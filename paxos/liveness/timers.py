"""What a replica does as time passes: learn, retransmit, prepare, renew."""

from typing import Final

from paxos.changes import handover, membership, rejoin, testimony, witness
from paxos.ids import Now
from paxos.liveness import asking, mastership
from paxos.liveness.live import Live
from paxos.messages import RejoinAsk
from paxos.proposer import Role
from paxos.step import Send, Step
from paxos.strategies import older

RETRANSMIT_SLOTS_MAX: Final = 8
"""Undecided slots that one tick retransmits, oldest first, so as not to drown a slow peer."""

LARGE_NS_PER_BYTE: Final = 100
"""A large entry takes time on links and disks. Retransmitting it too soon would delay it, and
everything else."""


def tick(replica: Live, now: Now, step: Step, *, renew_early: bool = False) -> None:
    """Call every few tens of milliseconds, unless the group rests (rests.py). `renew_early`: other
    groups of this node renew now, so this one joins them if it would be due soon: one frame per
    peer and one fsync for all."""
    _progress_and_learning(replica, now, step)
    if replica.commit_due:
        replica.flush_commit(step)
    proposer = replica.proposer
    if proposer.role is Role.LEADER:
        if proposer.in_flight:
            _retransmit(replica, now, step)
    elif (
        proposer.role is Role.PREPARING
        and now.boot_ns - proposer.since_boot_ns > _prepare_patience_ns(replica)
    ):
        replica.step_down(now, step)
    if replica.changing is not None:
        membership.tick(replica, now, step)
    if replica.suspended:
        may_prepare = mastership.may_prepare(replica, now, step)
        may_prepare = may_prepare and replica.election.may_try(now)
        handover.tick_suspended(replica, now, step, may_prepare=may_prepare)
    elif replica.handover is not None and replica.handover.draining:
        handover.tick_draining(replica, now, step)
    elif replica.handover is not None:
        older.tick_expiring(replica, now, step)
    elif not replica.election.abstaining:
        mastership.take_or_renew(replica, now, step, renew_early=renew_early)


def _prepare_patience_ns(replica: Live) -> int:
    """A Promise carries what was voted for, and that may be large."""
    votes_ns = replica.acceptor.votes_bytes * LARGE_NS_PER_BYTE
    return replica.election.prepare_patience_ns + votes_ns


def _retransmit(replica: Live, now: Now, step: Step) -> None:
    proposer, timing = replica.proposer, replica.timing
    for slot in sorted(proposer.in_flight)[:RETRANSMIT_SLOTS_MAX]:
        flight = proposer.in_flight[slot]
        wait_ns = timing.retransmit_ns + flight.entry.size * LARGE_NS_PER_BYTE
        wait_ns <<= min(flight.sends - 1, 4)
        if now.boot_ns - flight.sent_boot_ns > wait_ns:
            flight.sent_again(now.boot_ns)
            deaf = [n for n in replica.others(proposer.members) if n not in flight.votes]
            replica.send_accept(slot, flight.entry, deaf, step)


def spread(replica: Live, now: Now, step: Step) -> None:
    """Tell the others at once what is chosen and how far we are, because somebody waits until they
    have applied it. Otherwise they would wait for the next tick, or for the next proposal."""
    if replica.commit_due:
        replica.flush_commit(step)
    _tell_progress(replica, now, step)
    replica.wake()


def _tell_progress(replica: Live, now: Now, step: Step) -> None:
    replica.progress_at = now.boot_ns + replica.timing.progress_every_ns
    others = replica.others_to_ask()
    step.before.extend(Send(node, witness.progress_for(replica, node)) for node in others)


def _progress_and_learning(replica: Live, now: Now, step: Step) -> None:
    if now.boot_ns >= replica.progress_at:
        _tell_progress(replica, now, step)
        testimony.tell(replica, step)
        if replica.rejoin is not None:
            ask = RejoinAsk(replica.group, replica.incarnation)
            step.before.extend(Send(node, ask) for node in replica.others_to_ask())
    if replica.hopeless:
        return
    if replica.rejoin is None and not replica.can_vote():
        rejoin.tick_allegations(replica, now, step)
        rejoin.tick_gap(replica, now, now.boot_ns - replica.standstill.since, step)
        asking.ask_what_they_remember(replica, now, step)
    replica.standstill.look(now.boot_ns, replica.learner)
    if now.boot_ns >= replica.learn_at and _gap_needs_values(replica, now):
        _learn_from_somebody(replica, now, step)


def _gap_needs_values(replica: Live, now: Now) -> bool:
    """Slots that are chosen and not applied are usual for a moment: we have voted, and the Commit
    is coming. Ask for values if a vote is missing, or if nothing has moved for long."""
    stalled_ns = now.boot_ns - replica.standstill.since
    return replica.learner.behind and (
        replica.vote_missing or stalled_ns > replica.timing.learn_patience_ns
    )


def _learn_from_somebody(replica: Live, now: Now, step: Step) -> None:
    """Ask a node that is ahead of us, as far as we know, else any: its answer says who is."""
    others = replica.others_to_ask()
    known = [node for node in others if replica.peer(node).applied > replica.learner.applied]
    ahead = [node for node in known if replica.is_heard(node, now)]
    candidates = ahead or asking.who_may_have_more(replica) or others
    if candidates:
        node = candidates[replica.election.dice.randrange(len(candidates))]
        asking.ask_to_learn(replica, now, node, step)
