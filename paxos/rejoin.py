"""How an acceptor that lost part of its disk may vote again (protocol.md section 4, "Lost disk").

Such a node no longer knows what it promised and voted. It becomes non-voting, asks all members what
they have seen, and votes again once

- a majority of the members, itself not counted, has answered this incarnation: every quorum it was
  ever part of shares a member with that majority, so `floor`, the highest ballot they promised, is
  at least any ballot it promised, and `bar` covers every slot such a quorum may have decided;
- a slot beyond `bar + WINDOW_MAX` is applied. A master has at most WINDOW_MAX open slots, so such a
  slot was begun after the answers, and older votes of ours still in flight concern earlier slots.
"""

import attrs

from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, NodeId, Slot
from paxos.messages import RejoinAnswer
from paxos.quorum import quorum_size
from paxos.timing import WINDOW_MAX


@attrs.define(kw_only=True, eq=False)
class Rejoin:
    answered: set[NodeId] = attrs.Factory(set)
    floor: Ballot = BALLOT_ZERO
    bar: Slot = SLOT_ZERO

    def on_answer(self, sender: NodeId, answer: RejoinAnswer) -> None:
        """Only the first answer of each counts: the group goes on meanwhile, and a bar that rose
        with it would never be passed."""
        if sender in self.answered:
            return
        self.answered.add(sender)
        self.floor = max(self.floor, answer.promised)
        self.bar = max(self.bar, answer.last_voted, answer.applied)

    def may_vote(self, me: NodeId, members: tuple[NodeId, ...], applied: Slot) -> bool:
        others = sum(1 for node in self.answered if node in members and node != me)
        return others >= quorum_size(members) and applied > self.bar + WINDOW_MAX
