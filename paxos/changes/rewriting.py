"""What a running replica does about damage in its log: it has not lost any vote yet (ADR 46).

What this life has promised and voted is in memory, and only the next life will ask the disk for it.
So the replica writes it down once more, behind the damage, and keeps its right to vote. It also
writes how far it has applied. A vote for an applied slot is not written again, but the next life
must know that the slot was chosen, and not take it for one in which it never voted
(`Core.has_gap`).

This is impossible for an open vote below the promise, because the ballots of a group never go back
in its log. Then the replica gives up its vote, as after a restart that finds the damage.
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
    """Write again what may be damaged: the promise, and what we hold of the slots that are `lost`
    (None: of any slot). False, and nothing is done, if that is impossible."""
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
        votes = not replica.incomplete_to  # as the disk has said until now (rejoin.py)
        records.append(VotingRecord(replica.group, votes, acceptor.promised, applied))
    for slot in sorted(slots):
        vote = acceptor.votes.get(slot)
        if vote is not None and vote[0] != acceptor.promised:
            return False
        if vote is not None:
            records.append(AcceptRecord(replica.group, slot, *vote, applied))
        if slot in learner.chosen:
            records.append(LearnedRecord(replica.group, slot, learner.chosen[slot], applied))
    step.persist.extend(records)
    if records:
        acceptor.note_recorded(applied)
    step.notices.append(Notice(replica.group, "written-again", why))
    return True
