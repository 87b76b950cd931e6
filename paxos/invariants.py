"""What must be true of one replica after every event: cheap assertions about its own state.

The simulator and the scenario tests call this after each event. Whatever concerns several nodes
(agreement, one master at a time) is for the simulator's checkers.
"""

from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Now
from paxos.proposer import Role
from paxos.replica import Replica
from paxos.state.handover import Stage


def check(replica: Replica, now: Now) -> None:
    """Raise AssertionError if the replica contradicts itself."""
    _check_acceptor(replica)
    _check_proposer(replica)
    _check_learner(replica)
    _check_lease(replica, now)
    _check_handover(replica, now)


def _check_acceptor(replica: Replica) -> None:
    acceptor, applied = replica.acceptor, replica.learner.applied
    assert acceptor.votes_bytes >= 0
    assert acceptor.voting == (replica.rejoin is None)
    size = 0
    for slot, (ballot, entry) in acceptor.votes.items():
        assert slot > applied, f"the vote of applied slot {slot} was kept"
        assert ballot <= acceptor.promised, f"voted {ballot} above the promise {acceptor.promised}"
        size += entry.size
    assert size == acceptor.votes_bytes


def _check_proposer(replica: Replica) -> None:
    proposer, acceptor = replica.proposer, replica.acceptor
    if proposer.role is Role.FOLLOWER:
        assert proposer.ballot == BALLOT_ZERO
        assert not proposer.in_flight
        return
    # Whoever has promised a higher ballot stepped down in the same event.
    assert acceptor.promised <= proposer.ballot, f"{acceptor.promised} above {proposer.ballot}"
    assert replica.me in proposer.members
    assert replica.rejoin is None
    if proposer.role is Role.PREPARING:
        assert proposer.ballot.node == replica.me, "phase 1 is only for one's own ballots"
        assert not proposer.in_flight
        return
    assert proposer.lo <= proposer.next <= proposer.hi + 1, "R2, R4: only slots one owns"
    assert proposer.lo - 1 <= proposer.counted_to < proposer.next, "R17: counted what it proposed"
    if proposer.in_flight:
        lowest, highest = min(proposer.in_flight), max(proposer.in_flight)
        assert replica.learner.applied < lowest, "an applied slot is still in flight"
        assert proposer.lo <= lowest <= highest < proposer.next


def _check_learner(replica: Replica) -> None:
    learner = replica.learner
    assert learner.applied + 1 not in learner.chosen, "the next slot is chosen and not applied"
    assert learner.applied <= learner.chosen_to
    if learner.chosen:
        assert learner.applied < min(learner.chosen)
        assert max(learner.chosen) <= learner.chosen_to


def _check_lease(replica: Replica, now: Now) -> None:
    lease = replica.lease
    assert lease.since <= lease.ver <= replica.learner.applied
    if replica.acting(now):
        assert not lease.free(now, replica.timing.margin_ns), "acting under a free lease (R12)"
        assert now.trusted


def _check_handover(replica: Replica, now: Now) -> None:
    handover, suspended = replica.handover, replica.suspended
    if suspended != SLOT_ZERO:
        assert handover is not None
        assert handover.stage is Stage.SENT
        assert suspended > replica.learner.applied, "R7: applied, and still suspended"
        assert not replica.acting(now), "R13"
    elif handover is not None:
        assert handover.stage is not Stage.SENT
        assert replica.proposer.role is Role.LEADER or not handover.draining
