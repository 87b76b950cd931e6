"""What follows from a quorum that another member has counted (R17), or from a vote it has lost: the
value of that ballot and slot is the chosen one (paxos.testimony)."""

from typing import TYPE_CHECKING

from paxos.ids import NodeId, Now, Slot
from paxos.messages import Accept, Commit
from paxos.step import Step

if TYPE_CHECKING:
    from paxos.replica import Replica


def learn(
    replica: "Replica", now: Now, sender: NodeId, message: Accept | Commit, step: Step
) -> None:
    """The sender counted quorums at a ballot for some slots: our votes at it are chosen there."""
    ballot, first, last = message.ballot, message.counted_from, message.counted_to
    learner, votes = replica.learner, replica.acceptor.votes
    if last > learner.chosen_to:
        replica.peer(sender).chosen = last
        learner.told(last)
    if last <= learner.applied:
        return
    slot = Slot(learner.applied + 1)
    vote = votes.get(slot) if slot >= first else None
    while vote is not None and vote[0] == ballot and slot <= last:  # nearly always all of them
        replica.learn(now, slot, vote[1], step)
        slot = Slot(slot + 1)
        vote = votes.get(slot)
    if slot <= last:
        for later in sorted(one for one in votes if first <= one <= last):
            vote = votes.get(later)
            if vote is not None and vote[0] == ballot:
                replica.learn(now, later, vote[1], step)
    replica.vote_missing = first <= learner.applied + 1 <= last
