"""Chosen slots whose entry this node's log has lost, and what it can still say of them.

The header of a damaged record has a checksum of its own, so it may still say that the record was a
vote at ballot b. Where that was the record of a chosen entry, this is enough for others:

*Lemma.* Let a log hold, as the record of a slot's chosen entry, a vote at ballot b. Then whoever
has a vote at *exactly* b in that slot has the chosen entry: the vote in the log has it, and there
is one value for a ballot and a slot (R2, I1). It does not matter at which ballot the slot was
chosen, nor by whom.

It is not so for other ballots. Those above the one at which the slot was *chosen* carry the same
entry, but b may be lower than that: we may have voted at b in vain and learned the entry by value
later, which leaves no new record where it is the same entry. In between somebody may have voted for
another entry, at a ballot above b. So "b or above" would be wrong.

So whoever is behind such a slot is told "(b, slot) is counted", in the words of a Commit: as there,
only its own vote at that ballot follows from it, and it is believed no more and no less. Then it
has applied the slot, and teaches it to us in the usual way. It is told with every Progress, while
the entry is missing here and the other has not applied the slot: a few bytes twice a second.

Nothing can be said where the header is damaged as well, or where the entry was learned by value and
its record has no ballot. Then others have to choose the slot without us (`Replica._on_behind`); of
two members they cannot, and it takes a restart of this one (docs/adr/0046, "Open").
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from paxos.ids import Ballot, Slot
from paxos.messages import Commit
from paxos.step import Send, Step

if TYPE_CHECKING:
    from paxos.replica import Replica

TOLD_MAX: Final = 8
"""Slots that a member is told of at a time. Nearly always one is missing."""


def note(replica: "Replica", slot: Slot, ballot: Ballot) -> None:
    """The record of an applied slot is damaged: it was a vote at this ballot. What was open is
    written again (paxos.rewriting), and was perhaps never chosen."""
    if slot <= replica.learner.applied:
        replica.lost[slot] = ballot


def found_again(replica: "Replica", slots: Iterable[Slot]) -> None:
    """Their entries are in the log once more, or are not needed any more."""
    for slot in slots:
        replica.lost.pop(slot, None)


def tell(replica: "Replica", step: Step) -> None:
    """Call with every Progress: whoever lacks the next slot is told of that, and of those behind it
    that are lost as well; not of slots further ahead. Of two members one has to see that the other
    does not know what is lost here (`rejoin.tick_gap`). Who doubts its own log teaches nobody."""
    if not replica.lost or replica.doubt:
        return
    for node in replica.others(replica.members):
        slot = Slot(replica.peer(node).applied + 1)
        end = slot + TOLD_MAX
        while slot < end and (ballot := replica.lost.get(slot)) is not None:
            step.before.append(Send(node, Commit(replica.group, ballot, slot, slot)))
            slot = Slot(slot + 1)
