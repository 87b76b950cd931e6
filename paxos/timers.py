"""What a replica does as time passes: learn, retransmit, prepare, renew (protocol.md "tick")."""

from typing import TYPE_CHECKING, Final

from paxos import asking, base, handover, membership, progress, rejoin, testimony
from paxos.entry import Entry
from paxos.ids import NOBODY
from paxos.messages import RejoinAsk
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.step import Send, Step
from paxos.timing import LARGE_ENTRY_BYTES

if TYPE_CHECKING:
    from paxos.ids import Now
    from paxos.replica import Replica

RETRANSMIT_SLOTS_MAX: Final = 8
"""Undecided slots sent again in one tick, oldest first: a slow peer must not be drowned."""

LARGE_NS_PER_BYTE: Final = 100
"""A large entry takes its time on links and disks. Sent again meanwhile it would be in its own way,
and in that of all others."""


def rests(replica: "Replica", now: "Now") -> bool:
    """Whether `tick` would find nothing to do: nothing has happened since it last found so, and
    what it waits for is not due. Most groups of a node are like this most of the time."""
    if now.boot_ns >= replica.rests_until_boot_ns or now.wall_ns >= replica.rests_until_wall_ns:
        return False
    replica.standstill.since = now.boot_ns  # the one thing that `tick` would have noted
    return True


def rest(replica: "Replica", now: "Now") -> None:
    """Note until when nothing is due by time alone; whatever happens ends it (`Replica.wake`).

    Only what is settled rests: everything applied, nothing under way, a lease that runs, and a role
    that goes with it. What is due next is the progress told to others, and what the lease wants.
    """
    lease, proposer, timing = replica.lease, replica.proposer, replica.timing
    replica.wake()
    if (
        replica.commit_due
        or proposer.in_flight
        or replica.learner.behind
        or now.boot_ns < replica.learn_at
        or replica.changing is not None
        or replica.suspended
        or replica.handover is not None
        or replica.election.abstaining
        or not replica.can_vote()
    ):
        return
    if lease.holder == replica.me:
        if not (lease.held_by(replica.me, replica.incarnation) and replica.ready()):
            return
        replica.rests_until_wall_ns = lease.expires_wall_ns - timing.lease_ns
        replica.rests_until_wall_ns += timing.renew_every_ns  # `renewal_due`
    elif lease.holder != NOBODY and proposer.role is Role.FOLLOWER:
        replica.rests_until_wall_ns = lease.expires_wall_ns + timing.margin_ns  # not `free` before
    else:
        return
    replica.rests_until_boot_ns = replica.progress_at


def tick(replica: "Replica", now: "Now", step: Step, *, renew_early: bool = False) -> None:
    """Call every few tens of milliseconds, unless it `rests`. `renew_early`: other groups of this
    master renew now, so this one joins them if it would be due soon (one frame per peer and one
    fsync for all)."""
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
        handover.tick_suspended(replica, now, step, _may_prepare(replica, now, step))
    elif replica.handover is not None and replica.handover.draining:
        handover.tick_draining(replica, now, step)
    elif replica.handover is not None:
        handover.tick_expiring(replica, now, step)
    elif not replica.election.abstaining:
        mastership(replica, now, step, renew_early=renew_early)


def renewal_due(replica: "Replica", now: "Now", early_ns: int = 0) -> bool:
    """Whether a held lease wants a renewal now, or within `early_ns`."""
    timing = replica.timing
    left = replica.lease.expires_wall_ns - now.wall_ns
    return left < timing.lease_ns - timing.renew_every_ns + early_ns


def _prepare_patience_ns(replica: "Replica") -> int:
    """A promise brings along what was voted for, and that may be large."""
    votes_ns = replica.acceptor.votes_bytes * LARGE_NS_PER_BYTE
    return replica.election.prepare_patience_ns + votes_ns


def renew_before(replica: "Replica", now: "Now", entry: Entry, step: Step) -> None:
    """A renewal counts when all before it is applied. So a lease that is no longer fresh is renewed
    before a large entry, and has nearly all of its time for what that takes."""
    if entry.size < LARGE_ENTRY_BYTES or not now.trusted:
        return
    if replica.handover is not None or replica.election.abstaining or replica.lease_in_flight():
        return
    early_ns = replica.timing.renew_every_ns // 2
    if renewal_due(replica, now, early_ns):
        replica.propose_lease(now, step)


def mastership(replica: "Replica", now: "Now", step: Step, *, renew_early: bool = False) -> None:
    """Renew the lease we hold, or try for one that is free."""
    lease, election, proposer = replica.lease, replica.election, replica.proposer
    mine = lease.holder == replica.me  # an old incarnation's too: CAS protects (R11)
    if not mine:
        if not lease.free(now, replica.timing.margin_ns):
            election.lease_is_held()
            return
        election.lease_is_free(now)
    if proposer.role is Role.FOLLOWER:
        if election.may_try(now) and _may_prepare(replica, now, step):
            replica.prepare(now, step)
    elif proposer.role is Role.LEADER and proposer.next > proposer.hi:
        if not proposer.in_flight:
            replica.step_down(now, step)
    elif now.trusted and replica.ready() and not replica.lease_in_flight():
        early_ns = replica.timing.renew_every_ns // 2 if renew_early else 0
        held = lease.held_by(replica.me, replica.incarnation)
        if not held or renewal_due(replica, now, early_ns):
            replica.propose_lease(now, step)


def _may_prepare(replica: "Replica", now: "Now", step: Step) -> bool:
    """Heard by a majority, and behind none of those: first learn, then prepare.

    Unless the group stands still meanwhile (paxos.standstill): one that is ahead may be heard by us
    and hear nobody, and never answer. Who has answered that its log is gone is not such a one.
    """
    if replica.me not in replica.members or not replica.can_vote():
        return False
    near = [node for node in replica.others(replica.members) if replica.is_heard(node, now)]
    if not is_quorum([*near, replica.me], replica.members):
        return False
    ahead = [node for node in near if replica.peer(node).applied > replica.learner.applied]
    if ahead and now.boot_ns >= replica.learn_at:
        asking.ask_to_learn(replica, now, ahead[0], step)
    return not ahead or (
        replica.learner.behind
        and replica.standstill.is_dead(now.boot_ns, replica.timing)
        and not base.is_fetching(replica, now)
    )


def _retransmit(replica: "Replica", now: "Now", step: Step) -> None:
    proposer, timing = replica.proposer, replica.timing
    for slot in sorted(proposer.in_flight)[:RETRANSMIT_SLOTS_MAX]:
        flight = proposer.in_flight[slot]
        wait_ns = timing.retransmit_ns + flight.entry.size * LARGE_NS_PER_BYTE
        wait_ns <<= min(flight.sends - 1, 4)
        if now.boot_ns - flight.sent_boot_ns > wait_ns:
            flight.sent_boot_ns = now.boot_ns
            flight.sends += 1
            deaf = [n for n in replica.others(proposer.members) if n not in flight.votes]
            replica.send_accept(slot, flight.entry, deaf, step)


def spread(replica: "Replica", now: "Now", step: Step) -> None:
    """What we have just applied the others shall apply, and know that we have, now: somebody waits
    for it. Else both would wait for the next tick, or for what is proposed next."""
    if replica.commit_due:
        replica.flush_commit(step)
    _tell_progress(replica, now, step)
    replica.wake()


def _tell_progress(replica: "Replica", now: "Now", step: Step) -> None:
    replica.progress_at = now.boot_ns + replica.timing.progress_every_ns
    others = replica.acquaintances()
    step.before.extend(Send(node, progress.progress_for(replica, node)) for node in others)


def _progress_and_learning(replica: "Replica", now: "Now", step: Step) -> None:
    if now.boot_ns >= replica.progress_at:
        _tell_progress(replica, now, step)
        testimony.tell(replica, step)
        if replica.rejoin is not None:
            ask = RejoinAsk(replica.group, replica.incarnation)
            step.before.extend(Send(node, ask) for node in replica.acquaintances())
    if replica.hopeless:
        return
    if replica.rejoin is None and not replica.can_vote():
        rejoin.tick_doubts(replica, now, step)
        rejoin.tick_gap(replica, now, step)
        asking.ask_what_they_remember(replica, now, step)
    if now.boot_ns >= replica.learn_at and _gap_needs_values(replica, now):
        _learn_from_somebody(replica, now, step)


def _gap_needs_values(replica: "Replica", now: "Now") -> bool:
    """Slots known chosen and not applied are usual for a moment: their votes are here, their Commit
    is on its way. Ask for values where a vote is missing, or where nothing has moved for long."""
    replica.standstill.look(now.boot_ns, replica.learner)
    stalled_ns = now.boot_ns - replica.standstill.since
    return replica.learner.behind and (
        replica.vote_missing or stalled_ns > replica.timing.learn_patience_ns
    )


def _learn_from_somebody(replica: "Replica", now: "Now", step: Step) -> None:
    """Ask one who is ahead of us, as far as we know; else anybody: the answer says who is."""
    applied = replica.learner.applied
    others = replica.acquaintances()
    ahead = [n for n in others if replica.peer(n).applied > applied and replica.is_heard(n, now)]
    candidates = ahead or others
    if candidates:
        node = candidates[replica.election.dice.randrange(len(candidates))]
        asking.ask_to_learn(replica, now, node, step)
