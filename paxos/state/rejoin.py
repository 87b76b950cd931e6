"""The state of an acceptor that has lost part of its disk, and when it may vote again.

The exchanges are in paxos/changes/rejoin.py, with the argument why the rule is right.
"""

from collections.abc import Iterator
from typing import NamedTuple

import attrs

from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, Incarnation, NodeId, Slot
from paxos.messages import RejoinAnswer
from paxos.quorum import quorum_size
from paxos.timing import WINDOW_MAX


def is_pair(me: NodeId, members: tuple[NodeId, ...]) -> bool:
    """Whether this is one of two members. A node that is to become the third is not."""
    return len(members) == 2 and me in members


class Answer(NamedTuple):
    """What one member has answered. `bar` is the lowest that it ever named: the true one can only
    grow, so a higher number is wrong or came later. The rest is of its newest answer."""

    bar: Slot
    applied: Slot
    promised: Ballot


@attrs.define(kw_only=True, eq=False)
class Rejoin:
    answers: dict[NodeId, Answer] = attrs.Factory(dict)
    floor: Ballot = BALLOT_ZERO
    bar: Slot = SLOT_ZERO
    """What we know ourselves; the answers of members come on top."""

    def on_answer(self, sender: NodeId, answer: RejoinAnswer) -> None:
        """The bar does not rise with later answers: the group goes on meanwhile, and we would never
        pass a bar that rose with it. An answer replaces the one before it, so that one wrong number
        does not keep us from voting for ever (ADR 45)."""
        bar = max(answer.last_voted, answer.applied)
        told = self.answers.get(sender)
        if told is not None:
            bar = min(bar, told.bar)
        self.answers[sender] = Answer(bar, answer.applied, answer.promised)

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
        - a proposer that is still in phase 1 with the forgotten promise has a member in its quorum
          that is past the bar: that member told us of the promise (`floor_of`), or answers Behind.

        `configured` is the slot since which these are the members. Whatever earlier members have
        decided, and this majority cannot know, lies below it.
        """
        bar = max(self.bar_of(members), configured)
        if is_pair(me, members):
            told = [one.applied for node, one in self.answers.items() if node in members]
            return bool(told) and applied >= told[0] >= configured
        past = [node for node, one in self.answers.items() if one.applied > bar]
        others = sum(1 for node in past if node in members and node != me)
        return others >= quorum_size(members) and applied > bar + WINDOW_MAX

    def _of(self, members: tuple[NodeId, ...]) -> Iterator[Answer]:
        """Answers of nodes that are not members do not count."""
        return (told for node, told in self.answers.items() if node in members)


class Allegation(NamedTuple):
    """A peer says that we have forgotten a promise: since when, and in which life of the peer."""

    since_boot_ns: int
    life: Incarnation | None


@attrs.define(eq=False)
class Help:
    """A member that cannot vote has asked: an idle master fills slots up to `until` with NoOps."""

    incarnation: Incarnation
    until: Slot
