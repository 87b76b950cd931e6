"""Chosen slots whose entry this node's log has lost, and what it can still say about them (ADR 46).

The header of a damaged record has a checksum of its own, so it may still say that the record was a
vote at ballot b. If that was the record of a chosen entry, this is enough for the others:

*Lemma.* Let a log hold, as the record of a slot's chosen entry, a vote at ballot b. Then a vote in
that slot at *exactly* b has the chosen entry: the vote in the log has it, and a ballot has one
value in a slot (R2, I1). It does not matter at which ballot the slot was chosen, nor by whom.

This does not hold for other ballots. Votes above the ballot at which the slot was *chosen* have the
same entry, but b may be lower than that: we may have voted at b in vain and later learned the entry
by value, which leaves no new record if it is the same entry. In between somebody may have voted for
another entry at a ballot above b. So "b or above" would be wrong.

So we tell a node that lacks such a slot "(b, slot) is counted", in a Commit. As with any Commit,
only the receiver's own vote at that ballot follows from it, and it is believed no more and no less.
The receiver then applies the slot, and teaches it to us in the usual way. We say so with every
Progress while the entry is missing here and the other has not applied the slot: a few bytes twice a
second.

We can say nothing if the header is damaged as well, or if we learned the entry by value, so that
its record has no ballot. Then the others have to choose the slot without us (`Replica._on_behind`).
In a group of two they cannot, and it takes a restart of this node (ADR 46, "Open").
"""

from collections.abc import Iterable
from typing import Final

from paxos.ids import Ballot, Slot
from paxos.messages import Commit
from paxos.state.core import Core
from paxos.step import Send, Step

TOLD_MAX: Final = 8
"""Slots that we tell a member of at a time. Nearly always only one is missing."""


def note(replica: Core, slot: Slot, ballot: Ballot) -> None:
    """The record of an applied slot is damaged: it was a vote at this ballot. (Open votes may never
    have been chosen, and are written again: rewriting.py.)"""
    if slot <= replica.learner.applied:
        replica.lost[slot] = ballot


def found_again(replica: Core, slots: Iterable[Slot]) -> None:
    """Their entries are in the log again, or are no longer needed."""
    for slot in slots:
        replica.lost.pop(slot, None)


def tell(replica: Core, step: Step) -> None:
    """Call with every Progress. If a member lacks its next slot, tell it of that slot and of lost
    ones right behind it, but not of slots further ahead: in a group of two, one has to see that the
    other does not know what is lost here (`rejoin.tick_gap`). A node in doubt teaches nobody."""
    if not replica.lost or replica.doubt:
        return
    for node in replica.others(replica.members):
        slot = Slot(replica.peer(node).applied + 1)
        end = slot + TOLD_MAX
        while slot < end and (ballot := replica.lost.get(slot)) is not None:
            step.before.append(Send(node, Commit(replica.group, ballot, slot, slot)))
            slot = Slot(slot + 1)
