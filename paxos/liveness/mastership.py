"""When to take the lease, when to renew it, and when to prepare for it.

A proposal from here may lose the race for the lease's version, and then does nothing (R8). A
Prepare at a bad moment costs an election. What matters for safety is when a lease entry may be
proposed at all (R12, R13), and `propose_lease` asserts that.
"""

from paxos.entry import Entry
from paxos.ids import Now
from paxos.liveness import asking
from paxos.liveness.live import Live
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.step import Step
from paxos.timing import LARGE_ENTRY_BYTES


def renewal_due(replica: Live, now: Now, early_ns: int = 0) -> bool:
    """Whether a held lease is due for renewal now, or within `early_ns`."""
    timing = replica.timing
    left = replica.lease.expires_wall_ns - now.wall_ns
    return left < timing.lease_ns - timing.renew_every_ns + early_ns


def propose_lease(replica: Live, now: Now, step: Step) -> None:
    """Take or renew the lease. Whoever calls this has asked all of it; safety rests on it, so it is
    asserted here: never while suspended (R13), nobody else's lease before it has run out (R12), by
    a clock that is trusted, one entry at a time (WINDOW_MAX counts on that)."""
    assert not replica.suspended
    lease = replica.lease
    assert lease.holder == replica.me or lease.free(now, replica.timing.margin_ns)
    assert now.trusted
    assert not replica.lease_in_flight()
    replica.election.tried()
    replica.own_be_master = replica.place(now, replica.lease_entry(now), step)


def renew_before(replica: Live, now: Now, entry: Entry, step: Step) -> None:
    """A renewal takes effect when everything before it is applied. So we renew a lease that is no
    longer fresh before a large entry, and then have nearly all of its term for that entry."""
    if entry.size < LARGE_ENTRY_BYTES or not now.trusted:
        return
    if replica.handover is not None or replica.election.abstaining or replica.lease_in_flight():
        return
    early_ns = replica.timing.renew_every_ns // 2
    if renewal_due(replica, now, early_ns):
        propose_lease(replica, now, step)


def take_or_renew(replica: Live, now: Now, step: Step, *, renew_early: bool = False) -> None:
    """Renew the lease that we hold, or try for one that is free."""
    lease, election, proposer = replica.lease, replica.election, replica.proposer
    mine = lease.holder == replica.me  # an old incarnation's too: CAS protects (R11)
    if not mine:
        if not lease.free(now, replica.timing.margin_ns):
            election.lease_is_held()
            return
        election.lease_is_free(now)
    if proposer.role is Role.FOLLOWER:
        if election.may_try(now) and may_prepare(replica, now, step):
            replica.prepare(now, step)
    elif proposer.role is Role.LEADER and proposer.next > proposer.hi:
        if not proposer.in_flight:
            replica.step_down(now, step)
    elif now.trusted and replica.ready() and not replica.lease_in_flight():
        early_ns = replica.timing.renew_every_ns // 2 if renew_early else 0
        held = lease.held_by(replica.me, replica.incarnation)
        if not held or renewal_due(replica, now, early_ns):
            propose_lease(replica, now, step)


def may_prepare(replica: Live, now: Now, step: Step) -> bool:
    """Whether we hear a majority and are behind none of it: first learn, then prepare.

    If the group stands still meanwhile (standstill.py), prepare all the same: a node that is ahead
    may be heard by us, hear nobody, and never answer. One that answered that its log no longer
    reaches back to us is not such a node.
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
        and not is_fetching(replica, now)
    )


def is_fetching(replica: Live, now: Now) -> bool:
    """Whether a peer has told us lately that only a state transfer helps. Then we are not deaf but
    behind, and leave elections to the others."""
    since = replica.trimmed_boot_ns
    timing = replica.timing
    patience_ns = timing.heard_ns + 2 * timing.learn_timeout_ns
    return since is not None and now.boot_ns - since < patience_ns
