"""A damaged log leaves a gap: entries that were chosen are lost, and so are the votes for them.

A Promise without those votes would let another value be chosen. So the node promises nothing until
it has learned the entries again. Learning needs nobody's vote (docs/adr/0046).
"""

import pytest

from paxos.changes.testimony import TOLD_MAX
from paxos.entry import NOOP
from paxos.ids import BALLOT_ZERO, Incarnation, NodeId, Slot
from paxos.messages import (
    Accepted,
    Behind,
    Commit,
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
"""Slots 1 to 3 are chosen and lost."""


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


def test_nor_does_it_promise_itself_whoever_asks_it_to() -> None:
    """Its own Promise would count towards the quorum, so the check cannot be left to the timers."""
    one = gapped()
    with pytest.raises(AssertionError):
        one.prepare()
    tells(one, 2, LOST)
    one.give(2, Learned(GROUP, Slot(1), (NOOP,) * LOST))
    assert one.replica.can_vote()
    assert messages(one.prepare().after, Promise)


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
    """It asks for a promise in vain; the rule for two members can bring this one's vote back."""
    one = gapped(nodes=2)
    ticks(one, 1, 0)
    assert one.replica.rejoin is not None
    one.give(1, RejoinAnswer(GROUP, LIFE, ballot(4, 1), Slot(5), Slot(0)))
    assert one.replica.rejoin is None, "it has applied what the other has"
    floor = one.replica.acceptor.promised
    step = one.give(1, Prepare(GROUP, ballot(floor.round + 1, 1), Slot(1)))
    assert messages(step.after, Promise), "and what it leaves out the other has voted for"


@pytest.mark.parametrize(("applied", "chosen"), [(1, 1), (LOST, LOST)])
def test_of_two_the_other_may_still_come_to_know_it(applied: int, chosen: int) -> None:
    one = gapped(nodes=2)
    ticks(one, 1, applied, chosen)
    assert one.replica.rejoin is None


def test_of_two_the_other_knows_a_later_slot_and_not_the_lost_one() -> None:
    """It will not find out by itself. (A gap of its own would keep it from answering.)"""
    one = gapped(nodes=2)
    ticks(one, 1, 0, 1)
    assert one.replica.rejoin is not None


def test_of_two_nothing_is_given_up_while_the_other_is_not_heard() -> None:
    one = gapped(nodes=2)
    for _ in range(100):
        one.tick(100)
    assert one.replica.rejoin is None


def test_of_three_it_waits() -> None:
    """The others can choose without it, and then it learns the entries."""
    one = gapped()
    ticks(one, 1, 0)
    assert one.replica.rejoin is None
    assert not one.replica.can_vote()
    assert one.replica.others(one.replica.members) == [NodeId(1), NodeId(2)]


# -- the ballot of a lost vote (paxos.changes.testimony) ------------------------------------------


def bereft(last: int = LOST, *, lost: dict[int, int] | None = None) -> Member:
    """Slots up to `last` are lost; the lost votes were at a ballot of the given round."""
    rounds = lost or dict.fromkeys(range(1, last + 1), 4)
    ballots = {Slot(slot): ballot(round_, 1) for slot, round_ in rounds.items()}
    recovered = Recovered(promised=ballot(4, 1), proven=Slot(last), lost=ballots)
    return member(recovered=recovered)


def told(one: Member, ms: int = 1_000) -> list[tuple[int, int, int]]:
    """The Commits for lost slots: to whom, for which slot, at which round."""
    found = []
    for send in one.tick(ms).before:
        if isinstance(send.message, Commit):
            assert send.message.counted_from == send.message.counted_to
            found.append((send.to, send.message.counted_to, send.message.ballot.round))
    return found


def test_who_needs_a_lost_slot_is_told_the_ballot_of_the_vote_that_had_it() -> None:
    one = bereft()
    tells(one, 1, LOST)
    tells(one, 2, 1)
    assert told(one) == [(2, 2, 4), (2, 3, 4)], "node 1 has it all, node 2 has the first"
    assert told(one, 20) == [], "not again before the next Progress"
    assert told(one, one.replica.timing.progress_every_ns // 10**6) == [(2, 2, 4), (2, 3, 4)]


def test_nobody_is_told_of_slots_beyond_one_of_which_nothing_is_known() -> None:
    """In a group of two it would look as if the other could still learn the slot before them."""
    one = bereft(lost={1: 2, 3: 4})
    assert told(one) == [(1, 1, 2), (2, 1, 2)]


def test_there_is_a_limit_to_what_is_told_at_a_time() -> None:
    assert len(told(bereft(100))) == 2 * TOLD_MAX


def test_what_is_learned_again_is_not_told_any_more() -> None:
    one = bereft()
    one.give(2, Learned(GROUP, Slot(1), (NOOP, NOOP)))
    assert set(one.replica.lost) == {LOST}
    assert told(one) == [], "no other member is known to have slots 1 and 2"
    tells(one, 2, 2)
    assert told(one) == [(2, 3, 4)]
    one.give(2, Learned(GROUP, Slot(LOST), (NOOP,)))
    assert not one.replica.lost


def test_who_doubts_its_own_log_tells_nothing() -> None:
    one = bereft()
    one.replica.doubt = True
    assert told(one) == []


def test_a_vote_at_another_ballot_does_not_follow_from_it() -> None:
    """Nor above it: we may have voted at 2 in vain and learned by value what was chosen at 4, while
    another member voted at 3 for a different entry."""
    one = member()
    for round_, learns in ((1, False), (3, False), (2, True)):
        one = member()
        one.give(1, accept(round_, 1, 1, some("x")))
        one.give(2, Commit(GROUP, ballot(2, 1), Slot(1), Slot(1)))
        assert (one.replica.learner.applied == 1) == learns
