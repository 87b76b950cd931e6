"""Logs that differ: a member that may be the wrong one neither acts nor votes, and the rest know
it."""

import pytest

from paxos.entry import NOOP, batch
from paxos.ids import BALLOT_ZERO, Incarnation, NodeId, Slot
from paxos.messages import Accepted, Learn, Learned, Prepare, Progress, Promise, RejoinAsk, Trimmed
from paxos.proposer import Role
from paxos.state.core import Recovered
from paxos.step import Step, VotingRecord
from tests.paxos.core import GROUP, LIFE, Member, accept, ballot, member, messages, some

WRONG = 7


def reaching(slots: int = 5, nodes: int = 3) -> Member:
    """Node 0, which has applied that many slots and may vote."""
    one = member(nodes=nodes)
    one.give(1, Learned(GROUP, Slot(1), tuple(some(f"{slot}") for slot in range(slots))))
    return one


def says(one: Member, node: int, slot: int, *, wrong: bool = False) -> Step:
    """The node reports its position and its hash there: the same as ours, or another."""
    ours = one.replica.chain.at(Slot(slot))
    assert ours is not None
    chain = ours ^ WRONG if wrong else ours
    return one.give(node, Progress(GROUP, Slot(slot), Slot(slot), BALLOT_ZERO, LIFE, chain))


def notices(step: Step) -> list[str]:
    return [notice.what for notice in step.notices]


def votes(one: Member) -> bool:
    at = one.replica.learner.applied + 1
    round_ = one.replica.acceptor.promised.round + 1
    return bool(messages(one.give(2, accept(round_, 2, at, some("vote"))).after, Accepted))


def test_who_differs_from_one_of_three_waits_for_the_third() -> None:
    one = reaching()
    says(one, 2, 3)
    assert votes(one)
    step = says(one, 1, 5, wrong=True)
    assert notices(step) == ["diverged", "in-doubt"]
    assert len(messages(step.before, Learn)) == 1, "the third is asked at once"
    assert not votes(one)
    assert not messages(one.give(2, Prepare(GROUP, ballot(90, 2), Slot(6))).after, Promise)
    says(one, 2, 4)
    assert not votes(one), "that the third agreed before they differed says nothing"
    assert notices(says(one, 2, 5)) == ["out-of-doubt"]
    assert votes(one)
    assert one.replica.diverged == {1}
    assert not notices(says(one, 1, 4, wrong=True)), "it is told once, and costs no vote again"
    assert votes(one)


def test_a_master_that_differs_acts_no_more() -> None:
    one = reaching()
    one.lead()
    assert one.replica.proposer.role is Role.LEADER
    says(one, 1, 5, wrong=True)
    assert one.replica.proposer.role is Role.FOLLOWER
    assert not one.replica.acting(one.now)
    assert not messages(one.tick(20_000).after, Prepare)


def test_who_differs_from_a_majority_is_silent_for_good_and_leaves_its_log_as_it_is() -> None:
    one = reaching()
    says(one, 1, 5, wrong=True)
    step = says(one, 2, 4, wrong=True)
    assert notices(step) == ["diverged", "hopeless", "non-voting"]
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [False]
    applied = one.replica.learner.applied
    assert not one.give(1, Learned(GROUP, Slot(applied + 1), (NOOP,))).applied
    assert not one.give(1, Learn(GROUP, Slot(0))).serve, "it teaches nobody"
    assert not one.give(1, RejoinAsk(GROUP, LIFE)).after
    assert not one.give(1, Trimmed(GROUP, Slot(90), Slot(99))).fetch, "nor takes another's state"
    assert not votes(one)


def test_a_restart_finds_it_silent_until_a_majority_has_its_log() -> None:
    one = member(recovered=Recovered(voting=False, floor=ballot(9, 1)))
    assert one.replica.rejoin is not None
    assert not one.replica.can_vote()
    one.give(1, Learned(GROUP, Slot(1), (NOOP, NOOP)))
    says(one, 1, 2, wrong=True)
    assert one.replica.doubt
    says(one, 2, 1, wrong=True)
    assert one.replica.hopeless


def test_what_is_told_of_slots_ahead_is_compared_when_they_are_reached() -> None:
    one = reaching()
    other = reaching(slots=7)
    right = other.replica.chain.value
    one.give(1, Progress(GROUP, Slot(7), Slot(7), BALLOT_ZERO, LIFE, right))
    one.give(2, Progress(GROUP, Slot(7), Slot(7), BALLOT_ZERO, LIFE, right ^ WRONG))
    assert not one.replica.diverged
    step = one.give(1, Learned(GROUP, Slot(6), (some("5"), some("6"))))
    assert one.replica.diverged == {2}
    assert "diverged" in notices(step)
    assert not one.replica.doubt, "node 1 has the same"


@pytest.mark.parametrize(
    ("nodes", "wrong", "hopeless"),
    [(2, (1,), True), (3, (1,), False), (4, (1,), False), (4, (1, 2), True), (5, (1, 2), False)],
)
def test_when_no_majority_can_agree_any_more(
    nodes: int, wrong: tuple[int, ...], hopeless: bool
) -> None:
    one = reaching(nodes=nodes)
    for node in wrong:
        says(one, node, 5, wrong=True)
    assert one.replica.doubt
    assert one.replica.hopeless is hopeless


def test_a_member_that_was_given_another_directory_is_compared_anew() -> None:
    one = reaching()
    says(one, 1, 5, wrong=True)
    one.multi.peer_up(one.now, NodeId(1), Incarnation(9))
    assert notices(says(one, 1, 5)) == ["out-of-doubt"]
    assert votes(one)


def test_entries_cut_in_another_way_are_the_same_log() -> None:
    one = member()
    one.give(1, Learned(GROUP, Slot(1), (batch((b"a", b"b")),)))
    other = member()
    other.give(1, Learned(GROUP, Slot(1), (batch((b"ab",)),)))
    assert one.replica.chain.value == other.replica.chain.value
