"""What a running replica does about damage in its log: nothing of its votes is lost yet.

What this life has promised and voted is in memory. The disk will be asked for it by the next life
only. So it is written down once more, behind the damage, and the vote stays (docs/adr/0046). That
cannot be done for an open vote below the promise: ballots of a group never go back in its log. Then
the replica does as after a restart that finds the damage: it gives up its vote.
"""

from collections.abc import Iterable

from paxos.ids import BALLOT_ZERO, Slot
from paxos.state.core import Core
from paxos.step import (
    AcceptRecord,
    LearnedRecord,
    Notice,
    PromiseRecord,
    Record,
    Step,
    VotingRecord,
)


def write_again(replica: Core, lost: Iterable[Slot] | None, why: str, step: Step) -> bool:
    """Write down again what may be damaged: what this replica is bound by, and what it holds of the
    slots that are `lost`; None: of any slot. False, and nothing is done, where that is no way."""
    acceptor, learner = replica.acceptor, replica.learner
    if replica.rejoin is not None:
        return False
    applied = learner.applied
    open_slots = {*acceptor.votes, *learner.chosen}
    slots = open_slots if lost is None else {slot for slot in lost if slot > applied}
    if slots - open_slots:
        return False
    records: list[Record] = []
    if acceptor.promised != BALLOT_ZERO:
        records.append(PromiseRecord(replica.group, acceptor.promised))
        records.append(VotingRecord(replica.group, True, acceptor.promised))
    for slot in sorted(slots):
        vote = acceptor.votes.get(slot)
        if vote is not None and vote[0] != acceptor.promised:
            return False
        if vote is not None:
            records.append(AcceptRecord(replica.group, slot, *vote, applied))
        if slot in learner.chosen:
            records.append(LearnedRecord(replica.group, slot, learner.chosen[slot], applied))
    step.persist.extend(records)
    step.notices.append(Notice(replica.group, "written-again", why))
    return True
