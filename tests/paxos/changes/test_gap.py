"""Damage has left a gap: slots that are proven to be chosen are lost, and the votes there.

A Promise that leaves them out would let another value be chosen. So there is none before the
entries are learned again, which takes no vote of anybody (docs/adr/0046).
"""

import pytest

from paxos.entry import NOOP
from paxos.ids import BALLOT_ZERO, Incarnation, NodeId, Slot
from paxos.messages import (
    Accepted,
    Behind,
    Learn,
    Learned,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
)
from paxos.state.core import Recovered
from paxos.step import VotingRecord
from tests.paxos.core import GROUP, LIFE, Member, accept, ballot, member, messages, some

LOST = 3
"""Slots 1 to 3 are chosen, and gone."""


def gapped(nodes: int = 3) -> Member:
    votes = {Slot(5): (ballot(4, 1), some("open"))}
    return member(
        nodes=nodes,
        recovered=Recovered(promised=ballot(4, 1), votes=votes, proven=Slot(LOST)),
    )


def tells(one: Member, node: int, applied: int, chosen: int = 0) -> None:
    chain = one.replica.chain.value if applied == one.replica.learner.applied else -1
    chosen = max(applied, chosen)
    one.give(node, Progress(GROUP, Slot(applied), Slot(chosen), BALLOT_ZERO, LIFE, chain))


def test_who_has_lost_votes_for_what_is_chosen_promises_nothing_before_it_has_learned() -> None:
    one = gapped()
    assert not one.replica.can_vote()
    for start in (1, LOST + 1):
        step = one.give(2, Prepare(GROUP, ballot(9, 2), Slot(start)))
        assert not messages([*step.before, *step.after], Promise, Behind)
    assert not messages(one.give(2, accept(9, 2, 1, some("other"))).after, Accepted)
    assert not messages(one.give(2, RejoinAsk(GROUP, Incarnation(1))).after, RejoinAnswer)
    for _ in range(100):
        step = one.tick(100)
        assert not messages(step.after, Prepare)
        assert not [one for one in step.persist if isinstance(one, VotingRecord)]


def test_it_asks_for_what_it_has_lost_and_votes_as_soon_as_it_has_that() -> None:
    one = gapped()
    tells(one, 2, LOST)
    asked = [message for _ in range(30) for message in messages(one.tick().before, Learn)]
    assert Learn(GROUP, Slot(0)) in asked
    one.give(2, Learned(GROUP, Slot(1), (NOOP, NOOP)))
    assert not one.replica.can_vote()
    one.give(2, Learned(GROUP, Slot(3), (NOOP,)))
    assert one.replica.can_vote()
    step = one.give(2, Prepare(GROUP, ballot(9, 2), Slot(LOST)))
    assert messages(step.before, Behind), "not from a slot that is chosen"
    (promise,) = messages(one.give(2, Prepare(GROUP, ballot(9, 2), Slot(LOST + 1))).after, Promise)
    assert isinstance(promise, Promise)
    assert [vote[:2] for vote in promise.votes] == [(5, ballot(4, 1))]


def test_what_was_proven_is_told_to_others_as_chosen() -> None:
    one = gapped()
    (told, *_) = messages(one.tick(1_000).before, Progress)
    assert isinstance(told, Progress)
    assert (told.applied, told.chosen_to) == (0, LOST)


def ticks(one: Member, node: int, applied: int, chosen: int = 0) -> None:
    for _ in range(100):
        tells(one, node, applied, chosen)
        one.tick(100)


def test_of_two_the_other_does_not_know_it_to_be_chosen_and_has_the_votes() -> None:
    """It asks for a promise in vain; this one's vote is what the rule for two can bring back."""
    one = gapped(nodes=2)
    ticks(one, 1, 0)
    assert one.replica.rejoin is not None
    one.give(1, RejoinAnswer(GROUP, LIFE, ballot(4, 1), Slot(5), Slot(0)))
    assert one.replica.rejoin is None, "it has applied what the other has"
    floor = one.replica.acceptor.promised
    step = one.give(1, Prepare(GROUP, ballot(floor.round + 1, 1), Slot(1)))
    assert messages(step.after, Promise), "and what it leaves out the other has voted for"


@pytest.mark.parametrize(("applied", "chosen"), [(1, 1), (LOST, LOST), (0, 1)])
def test_of_two_the_other_may_still_come_to_know_it(applied: int, chosen: int) -> None:
    one = gapped(nodes=2)
    ticks(one, 1, applied, chosen)
    assert one.replica.rejoin is None


def test_of_two_nothing_is_given_up_while_the_other_is_not_heard() -> None:
    one = gapped(nodes=2)
    for _ in range(100):
        one.tick(100)
    assert one.replica.rejoin is None


def test_of_three_it_waits() -> None:
    """The others can do without it, and then it learns."""
    one = gapped()
    ticks(one, 1, 0)
    assert one.replica.rejoin is None
    assert not one.replica.can_vote()
    assert one.replica.others(one.replica.members) == [NodeId(1), NodeId(2)]
