"""What an acceptor that has lost part of its disk knows of its way back, and when it may vote.

The exchanges are in paxos/changes/rejoin.py; the argument why the rule is right stands there, too.
"""

from collections.abc import Iterator
from typing import NamedTuple

import attrs

from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, Incarnation, NodeId, Slot
from paxos.messages import RejoinAnswer
from paxos.quorum import quorum_size
from paxos.timing import WINDOW_MAX


def is_pair(me: NodeId, members: tuple[NodeId, ...]) -> bool:
    """Whether this is one of two; who is to become a third is not."""
    return len(members) == 2 and me in members


class Told(NamedTuple):
    """What one member has said. `bar`: the least that it ever named, for it only grows, so more was
    wrong or came later; `applied` and `promised` are of its newest answer, both."""

    bar: Slot
    applied: Slot
    promised: Ballot


@attrs.define(kw_only=True, eq=False)
class Rejoin:
    answers: dict[NodeId, Told] = attrs.Factory(dict)
    floor: Ballot = BALLOT_ZERO
    bar: Slot = SLOT_ZERO
    """What we know ourselves; the answers of members are on top of it."""

    def on_answer(self, sender: NodeId, answer: RejoinAnswer) -> None:
        """The bar does not rise with later answers: the group goes on meanwhile, and a bar that
        rose with it would never be passed. A word replaces the one before it, so that one wrong
        number keeps nobody from voting for ever (docs/adr/0045)."""
        bar = max(answer.last_voted, answer.applied)
        told = self.answers.get(sender)
        if told is not None:
            bar = min(bar, told.bar)
        self.answers[sender] = Told(bar, answer.applied, answer.promised)

    def bar_of(self, members: tuple[NodeId, ...]) -> Slot:
        return max([self.bar, *(one.bar for one in self._of(members))])

    def floor_of(self, members: tuple[NodeId, ...]) -> Ballot:
        return max([self.floor, *(one.promised for one in self._of(members))])

    def may_vote(
        self, me: NodeId, members: tuple[NodeId, ...], applied: Slot, configured: Slot = SLOT_ZERO
    ) -> bool:
        """Whether nothing that this acceptor has forgotten can do harm any more.

        Lemmas (ADR 4; ADR 22 for members that change):
        - every quorum that it was part of has another member in the majority that answered, so a
          slot that was decided with its vote is at most `bar`;
        - a master proposes at most WINDOW_MAX slots beyond what is chosen, so all its votes are in
          slots up to `bar + WINDOW_MAX`: these are decided when one beyond is applied;
        - who is still in phase 1 with its forgotten promise has a member in its quorum that is past
          the bar: either that one told of the promise (`floor_of`), or it answers Behind.

        `configured`: the slot since which these are the members. What was decided by others than
        them, and their majority cannot tell of, lies below it.
        """
        bar = max(self.bar_of(members), configured)
        if is_pair(me, members):
            told = [one.applied for node, one in self.answers.items() if node in members]
            return bool(told) and applied >= told[0] >= configured
        past = [node for node, one in self.answers.items() if one.applied > bar]
        others = sum(1 for node in past if node in members and node != me)
        return others >= quorum_size(members) and applied > bar + WINDOW_MAX

    def _of(self, members: tuple[NodeId, ...]) -> Iterator[Told]:
        """What those who are no members say counts for nothing."""
        return (told for node, told in self.answers.items() if node in members)


class Doubt(NamedTuple):
    """A peer says that we have forgotten a promise: when, and in which life of its own."""

    since_boot_ns: int
    life: Incarnation | None


@attrs.define(eq=False)
class Help:
    """What a master does for a member that cannot vote: fill slots up to `until`, if it is idle."""

    incarnation: Incarnation
    until: Slot
    asked_boot_ns: int
