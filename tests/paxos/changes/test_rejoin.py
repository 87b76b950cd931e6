"""A node that has lost a promise stays silent until it cannot contradict what it has forgotten."""

import random

import pytest

from paxos.changes import handover
from paxos.changes.rejoin import SILENT_ASKS, distrust, recover_unsafely
from paxos.changes.witness import progress_for
from paxos.entry import NOOP, Config, Entry, config
from paxos.ids import BALLOT_ZERO, MS, Incarnation, NodeId, Slot
from paxos.messages import (
    Accept,
    Accepted,
    Learned,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
)
from paxos.replica import Replica
from paxos.state.core import Recovered
from paxos.state.rejoin import Rejoin
from paxos.step import Step, VotingRecord
from paxos.timing import WINDOW_MAX
from tests.paxos.core import GROUP, LIFE, Member, accept, ballot, member, messages, some

THREE = (NodeId(0), NodeId(1), NodeId(2))


def answer(one: Member, promised: int, voted: int, applied: int = 0) -> RejoinAnswer:
    return RejoinAnswer(
        GROUP, one.replica.incarnation, ballot(promised, 1), Slot(voted), Slot(applied)
    )


def forgetful() -> Member:
    """A peer tells it, twice, that it once promised (9, 1)."""
    one = member(verified=False)
    one.give(2, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
    assert not one.give(1, Progress(GROUP, Slot(0), Slot(0), ballot(9, 1), LIFE)).persist
    step = one.give(1, Progress(GROUP, Slot(0), Slot(0), ballot(9, 1), LIFE))
    (record,) = step.persist
    assert isinstance(record, VotingRecord)
    assert not record.voting
    assert len(messages(step.before, RejoinAsk)) == 2
    return one


def test_it_neither_promises_nor_votes_nor_prepares() -> None:
    one = forgetful()
    assert not one.give(2, Prepare(GROUP, ballot(10, 2), Slot(1))).after
    assert not one.give(2, accept(10, 2, 1, some("a"))).after
    assert not messages(one.tick(5_000).after, Prepare)


def test_it_learns_and_applies_all_the_same() -> None:
    one = forgetful()
    assert len(one.give(1, Learned(GROUP, Slot(1), (NOOP, NOOP))).applied) == 2


@pytest.mark.parametrize(
    ("answers", "applied", "votes"),
    [
        ([(1, 3)], 3 + WINDOW_MAX + 1, False),  # one answer is no majority of three
        ([(1, 3), (1, 3)], 3 + WINDOW_MAX + 1, False),  # nor is the same one twice
        ([(1, 3), (2, 5)], 5 + WINDOW_MAX, False),  # these may have been begun before the answers
        ([(1, 3), (2, 5)], 5 + WINDOW_MAX + 1, True),
        ([(1, 3), (7, 0)], 3 + WINDOW_MAX + 1, False),  # outsiders know nothing
    ],
)
def test_when_it_votes_again(answers: list[tuple[int, int]], applied: int, votes: bool) -> None:
    one, rejoin = member(), Rejoin()
    for node, voted in answers:
        rejoin.on_answer(NodeId(node), answer(one, 9, voted))
    for node, _ in answers:  # asked again, they are far beyond the bar
        rejoin.on_answer(NodeId(node), answer(one, 9, 200, 199))
    assert rejoin.may_vote(NodeId(0), THREE, Slot(applied)) is votes


def test_it_votes_again_above_what_the_others_promised() -> None:
    one = forgetful()
    one.give(1, answer(one, 9, 2))
    one.give(2, answer(one, 9, 1))
    one.give(2, answer(one, 11, 9, 3))
    assert one.replica.rejoin is not None
    one.give(1, answer(one, 9, 9, 3))
    entries = tuple(NOOP for _ in range(WINDOW_MAX + 3))
    step = one.give(1, Learned(GROUP, Slot(1), entries))
    assert [r.voting for r in step.persist if isinstance(r, VotingRecord)] == [True]
    assert one.replica.acceptor.promised == ballot(11, 1)
    next_slot = one.replica.learner.applied + 1
    vote = one.give(2, accept(11, 1, next_slot, some("a")))
    assert messages(vote.after, Accepted)


def test_answers_to_an_earlier_life_do_not_count() -> None:
    one = forgetful()
    old = RejoinAnswer(GROUP, type(one.replica.incarnation)(0), ballot(9, 1), Slot(0), Slot(0))
    one.give(1, old)
    assert one.replica.rejoin is not None
    assert not one.replica.rejoin.answers


def test_a_restart_finds_it_silent_still() -> None:
    one = member(recovered=Recovered(voting=False, floor=ballot(9, 1)))
    assert not one.replica.can_vote()
    assert one.replica.acceptor.promised == ballot(9, 1)


def test_who_has_forgotten_answers_nobody_else() -> None:
    one = forgetful()
    assert not one.give(2, RejoinAsk(GROUP, one.replica.incarnation)).after


def test_who_may_have_forgotten_answers_nobody_else_either() -> None:
    """After a restart, before its peers have told it what they witnessed, it could answer too
    little."""
    one = member()
    one.replica.verified.clear()
    assert not one.give(2, RejoinAsk(GROUP, one.replica.incarnation)).after
    one.verify()
    assert one.give(2, RejoinAsk(GROUP, one.replica.incarnation)).after


def test_who_was_verified_by_members_that_have_left_is_not_verified() -> None:
    """A quorum of the new members may hold a promise that this log has lost, and the members before
    them know nothing of it."""
    one = member(verified=False)
    one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
    assert one.replica.can_vote()
    one.replica.members = (NodeId(0), NodeId(3), NodeId(4))
    assert not one.replica.can_vote()
    assert not one.give(3, Prepare(GROUP, ballot(10, 3), Slot(1))).after
    one.give(4, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
    assert one.replica.can_vote()


def test_an_answer_covers_what_was_proposed_and_voted() -> None:
    one = member()
    one.lead()
    one.place(some("a"))
    one.give(2, accept(9, 2, 7, some("b")))
    (reply,) = one.give(1, RejoinAsk(GROUP, one.replica.incarnation)).after
    assert isinstance(reply.message, RejoinAnswer)
    assert (reply.message.promised, reply.message.last_voted) == (ballot(9, 2), 7)


def test_an_answer_says_of_applied_slots_only_what_a_restart_will_know() -> None:
    """It knows that the slots are chosen and applied, but without a record a restart would not."""

    def told() -> Slot:
        (reply,) = one.give(1, RejoinAsk(GROUP, one.replica.incarnation)).after
        assert isinstance(reply.message, RejoinAnswer)
        assert reply.message.last_voted >= one.replica.learner.applied
        return reply.message.applied

    one = member()
    one.give(2, accept(1, 2, 1, some("a")))
    one.give(2, accept(1, 2, 2, some("b"), counted=1))
    assert (one.replica.learner.applied, told()) == (1, 0)
    one.give(2, accept(1, 2, 3, some("c"), counted=2))
    assert (one.replica.learner.applied, told()) == (2, 1)
    one.give(2, Learned(GROUP, Slot(3), (some("c"), NOOP)))
    assert (one.replica.learner.applied, told()) == (4, 3)


def test_a_restart_knows_how_far_its_log_proves_it_applied() -> None:
    one = member()
    restarted = Replica(
        GROUP,
        NodeId(0),
        Incarnation(2),
        THREE,
        one.replica.timing,
        random.Random(0),
        heard={},
        incarnations={},
        recovered=Recovered(),
    )
    for slot in (1, 2, 3):
        restarted.replay(one.now, Slot(slot), NOOP)
    restarted.replayed(one.now, Step())
    assert restarted.acceptor.recorded == 3


def test_others_who_have_not_passed_the_bar_are_waited_for() -> None:
    """One of them may be in the quorum of a candidate that holds a promise we have forgotten, and
    would not answer Behind to that candidate (scenario 27)."""
    rejoin, one = Rejoin(), member(nodes=5)
    five = one.replica.members
    for node in (1, 2, 3):
        rejoin.on_answer(NodeId(node), answer(one, 3, 40, 30))
    assert rejoin.bar_of(five) == 40
    for node, applied in ((1, 120), (2, 120), (3, 40)):
        rejoin.on_answer(NodeId(node), answer(one, 4, 120, applied))
    assert not rejoin.may_vote(NodeId(0), five, Slot(200))
    rejoin.on_answer(NodeId(3), answer(one, 7, 120, 41))
    assert rejoin.may_vote(NodeId(0), five, Slot(200))
    assert (rejoin.bar_of(five), rejoin.floor_of(five)) == (40, ballot(7, 1))


def choose_all(one: Member) -> list[Entry]:
    """Everything it has proposed gets its votes."""
    chosen = []
    while flights := one.replica.proposer.in_flight:
        slot = min(flights)
        chosen.append(flights[slot].entry)
        for node in (0, 2):
            one.accepted(slot, node)
    return chosen


def master() -> Member:
    one = member()
    one.lead()
    one.tick()
    choose_all(one)
    assert one.replica.can_propose(one.now)
    return one


def asked(one: Member, after_ms: int = 500) -> list[Entry]:
    """Member 1 asks once more; returns what the master filled in for it."""
    one.tick(after_ms)
    choose_all(one)  # a renewal of the lease, now and then
    one.give(1, RejoinAsk(GROUP, one.replica.incarnation))
    return choose_all(one)


def test_nobody_hands_a_group_to_a_member_that_may_not_vote() -> None:
    """It would hold the lease and could propose nothing: the group would stand still until the
    lease is over. One group changed hands 25 times in 30 s this way, and never reached the slot
    beyond which the member may vote again."""
    one = master()
    one.multi.peer_up(one.now, NodeId(1), Incarnation(1))
    for _ in range(3):
        asked(one)
        assert handover.steal_away(one.replica, one.now, NodeId(1)) == "target does not vote"
    asks_ms = one.replica.timing.progress_every_ns // MS
    for _ in range(SILENT_ASKS + 1):
        one.tick(asks_ms)
        choose_all(one)
        applied = one.replica.learner.applied
        one.give(1, Progress(GROUP, applied, applied, BALLOT_ZERO, LIFE))
    assert handover.steal_away(one.replica, one.now, NodeId(1)) == ""


def test_an_idle_master_fills_slots_for_one_that_cannot_vote() -> None:
    """It fills as many as the member may need, and no more however often the member asks."""
    one = master()
    filled = [entry for _ in range(100) for entry in asked(one)]
    assert set(filled) == {NOOP}
    assert WINDOW_MAX < len(filled) <= 2 * WINDOW_MAX
    assert asked(one) == []
    for _ in range(5):
        one.tick(500)
        choose_all(one)
    assert asked(one), "another time"


def test_a_busy_master_does_not() -> None:
    one = master()
    one.place(some("a"))
    step = one.give(1, RejoinAsk(GROUP, one.replica.incarnation))
    assert not messages(step.before, Accept)


def test_an_answer_to_an_earlier_question_of_this_life_is_not_enough() -> None:
    """It found damage, voted again, voted on, and found damage again."""
    one = member()
    one.give(2, accept(3, 2, 40, some("a")))
    step = Step()
    distrust(one.replica, one.now, (Slot(40),), "damage", step)
    for other in (1, 2):
        one.give(other, answer(one, 3, 2))
        one.give(other, answer(one, 3, 60, 60))
    one.give(1, Learned(GROUP, Slot(1), (NOOP,) * (40 + WINDOW_MAX)))
    assert one.replica.rejoin is not None
    one.give(1, Learned(GROUP, Slot(41 + WINDOW_MAX), (NOOP,)))
    assert one.replica.rejoin is None


def test_before_a_majority_has_spoken_a_restarted_node_does_not_vote() -> None:
    one = member()
    one.replica.verified.clear()
    assert not one.give(2, accept(1, 2, 1, some("a"))).after
    one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE))
    sent = one.give(2, Accept(GROUP, ballot(1, 2), Slot(1), some("a"), Slot(1), Slot(0)))
    assert messages(sent.after, Accepted)


def test_what_an_earlier_life_was_told_does_not_let_it_vote() -> None:
    """A peer may have sent its Progress before that life made the promise it lost (seed 122)."""
    one = member(incarnation=5)
    for other in (1, 2):
        one.give(other, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, Incarnation(4)))
    assert not one.give(2, Prepare(GROUP, ballot(9, 2), Slot(1))).after
    one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, Incarnation(5)))
    (promise,) = one.give(2, Prepare(GROUP, ballot(9, 2), Slot(1))).after
    assert isinstance(promise.message, Promise)


def test_progress_names_the_life_it_is_meant_for() -> None:
    one = member()
    one.multi.peer_up(one.now, NodeId(2), Incarnation(7))
    assert progress_for(one.replica, NodeId(2)).incarnation == 7
    assert progress_for(one.replica, NodeId(1)).incarnation == 0, "no link to it came up yet"


# -- two members ----------------------------------------------------------------------------------

TWO = (NodeId(0), NodeId(1))


@pytest.mark.parametrize(
    ("answers", "applied", "configured", "votes"),
    [
        ([], 90, 0, False),  # it has not answered
        ([(1, 5)], 4, 0, False),  # there may be a Config among what it knows
        ([(1, 5)], 5, 0, True),
        ([(1, 5)], 9, 9, False),  # it cannot tell for slots before it knew these members
        ([(7, 5)], 9, 0, False),  # outsiders know nothing
    ],
)
def test_when_one_of_two_votes_again(
    answers: list[tuple[int, int]], applied: int, configured: int, votes: bool
) -> None:
    one, rejoin = member(nodes=2), Rejoin()
    for node, told in answers:
        rejoin.on_answer(NodeId(node), answer(one, 9, 200, told))
    assert rejoin.may_vote(NodeId(0), TWO, Slot(applied), Slot(configured)) is votes


def test_who_is_to_become_a_third_waits_for_both() -> None:
    one, rejoin = member(nodes=2), Rejoin()
    far = Slot(5 + WINDOW_MAX + 1)
    rejoin.on_answer(NodeId(0), answer(one, 9, 5, 5))
    assert not rejoin.may_vote(NodeId(2), TWO, far)
    rejoin.on_answer(NodeId(1), answer(one, 9, 5, 5))
    for node in TWO:
        rejoin.on_answer(node, answer(one, 9, 80, 6))
    assert rejoin.may_vote(NodeId(2), TWO, far)
    assert not rejoin.may_vote(NodeId(2), TWO, Slot(far - 1))


def test_a_vote_of_two_that_came_back_is_no_second_copy_yet() -> None:
    """The other has voted in slots 3 and 4 and does not know whether they are chosen. Both may have
    chosen them before one of them forgot (whole nodes, seed 289)."""
    one = member(nodes=2)
    distrust(one.replica, one.now, [], "damage", Step())
    assert not one.replica.can_vote()
    one.give(1, Learned(GROUP, Slot(1), (some("a"), some("b"))))
    step = one.give(1, answer(one, 9, 4, 2))
    assert one.replica.can_vote()
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [False]
    ask = RejoinAsk(GROUP, LIFE)
    assert not messages(one.give(1, ask).after, RejoinAnswer)
    assert not one.replica.statistics(one.now).voting

    floor = one.replica.acceptor.promised.round
    step = one.give(1, accept(floor + 1, 1, 3, some("c")))
    assert messages(step.after, Accepted), "its vote counts: without it the two stood still"
    one.give(1, Learned(GROUP, Slot(3), (some("c"),)))
    assert not one.replica.speaks_for_the_chosen()
    step = one.give(1, Learned(GROUP, Slot(4), (some("d"),)))
    records = [record for record in step.persist if isinstance(record, VotingRecord)]
    assert [(record.voting, record.applied) for record in records] == [(True, 4)]
    assert records[0].floor == one.replica.acceptor.promised
    assert one.replica.statistics(one.now).voting
    assert messages(one.give(1, ask).after, RejoinAnswer)


def test_an_operator_may_let_it_speak_for_what_was_chosen() -> None:
    one = member(nodes=2)
    distrust(one.replica, one.now, [], "damage", Step())
    one.give(1, answer(one, 9, 4, 0))
    assert not one.replica.speaks_for_the_chosen()
    step = Step()
    recover_unsafely(one.replica, step)
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [True]
    assert one.replica.speaks_for_the_chosen()


def test_one_of_two_does_not_answer_while_there_may_be_a_third() -> None:
    """It has voted for a Config and does not know whether that vote was counted."""
    one = member(nodes=2)
    ask = RejoinAsk(GROUP, one.replica.incarnation)
    one.give(1, accept(1, 1, 1, config(Config((NodeId(0), NodeId(1), NodeId(2))))))
    assert not one.give(1, ask).after
    one.give(1, Learned(GROUP, Slot(1), (NOOP,)))
    assert one.give(1, ask).after


def test_an_operator_may_let_it_vote_all_the_same() -> None:
    one = forgetful()
    step = Step()
    recover_unsafely(one.replica, step)
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [True]
    assert one.replica.can_vote()
    assert one.replica.acceptor.promised.round > 9
