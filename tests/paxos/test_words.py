"""False messages of a peer harm only that peer, and cost nobody else's vote (F3)."""

import attrs
import pytest

from paxos.changes.rejoin import distrust
from paxos.changes.witness import progress_for
from paxos.codec import PeerError
from paxos.entry import NOOP
from paxos.ids import BALLOT_ZERO, MS, Ballot, Incarnation, NodeId, Slot
from paxos.messages import (
    Accept,
    Accepted,
    Behind,
    Commit,
    Learn,
    Learned,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
    StealAbort,
    Trimmed,
)
from paxos.step import Step, VotingRecord
from paxos.timing import ACCEPT_AHEAD_SLOTS_MAX, ROUND_AHEAD_MAX, WINDOW_MAX
from tests.paxos.core import GROUP, LIFE, Member, accept, ballot, member, messages, some

FAR = Slot(2**31)


def says(witnessed: Ballot, applied: int = 0, life: Incarnation = LIFE) -> Progress:
    return Progress(GROUP, Slot(applied), Slot(applied), witnessed, life)


def starting() -> Member:
    """A node that has just started: its peers have not yet said what they remember of it."""
    return member(verified=False)


# -- what peers remember of us --------------------------------------------------------------------


def test_a_running_node_is_not_told_that_it_forgot_what_it_promised_in_this_life() -> None:
    one = member()
    for _ in range(3):
        step = one.give(1, says(ballot(9, 1)))
        assert not step.persist
    assert one.replica.can_vote()
    assert [notice.what for notice in step.notices] == ["impossible"]


def test_one_word_at_the_start_takes_no_vote_and_a_second_one_does() -> None:
    one = starting()
    one.give(2, says(BALLOT_ZERO))
    assert one.replica.can_vote()
    step = one.give(1, says(ballot(9, 1)))
    assert not step.persist
    assert not one.replica.can_vote(), "until it is clear"
    assert messages(step.before, Learn), "asked once more, at once"
    step = one.give(1, says(ballot(9, 1)))
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [False]


def test_a_word_that_is_not_repeated_is_forgotten() -> None:
    one = starting()
    one.give(2, says(BALLOT_ZERO))
    one.give(1, says(ballot(9, 1)))
    assert not one.give(1, says(BALLOT_ZERO)).persist
    assert one.replica.can_vote()


def test_what_was_sent_to_an_earlier_life_clears_nothing() -> None:
    one = starting()
    one.give(1, says(ballot(9, 1)))
    one.give(1, says(BALLOT_ZERO, life=Incarnation(0)))
    assert one.replica.alleged


@pytest.mark.parametrize("how", ["silent", "born again"])
def test_a_witness_that_is_lost_before_it_repeats_itself_is_believed(how: str) -> None:
    one = starting()
    one.multi.peer_up(one.now, NodeId(1), Incarnation(1))
    one.give(1, says(ballot(9, 1)))
    if how == "silent":
        step = one.tick(one.replica.timing.heard_ns / MS + 1)
    else:
        one.multi.peer_up(one.now, NodeId(1), Incarnation(2))
        step = one.give(1, says(BALLOT_ZERO))
    assert [record.voting for record in step.persist if isinstance(record, VotingRecord)] == [False]


def test_the_number_itself_goes_nowhere() -> None:
    """If we promised a round near the end of the range, nobody would have a higher one left."""
    one = starting()
    for _ in range(2):
        step = one.give(1, says(ballot(2**31, 1)))
    (record,) = [record for record in step.persist if isinstance(record, VotingRecord)]
    assert record.floor == BALLOT_ZERO
    assert one.replica.acceptor.promised == BALLOT_ZERO


def test_only_answers_to_ballots_that_were_used_are_remembered() -> None:
    """Otherwise one false Accepted would make us tell its sender for ever that it has forgotten
    it."""
    one = member()
    one.lead()
    mine = one.replica.proposer.ballot
    one.give(1, Accepted(GROUP, ballot(50, 1), Slot(1)))
    one.give(1, Promise(GROUP, ballot(51, 1), ()))
    assert progress_for(one.replica, NodeId(1)).witnessed == mine, "its Promise to us"
    assert progress_for(one.replica, NodeId(2)).witnessed == BALLOT_ZERO
    one.replica.step_down(one.now, Step())
    one.give(2, Accepted(GROUP, mine, Slot(1)))
    assert progress_for(one.replica, NodeId(2)).witnessed == mine, "late, and an answer to us"


# -- positions of peers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        Progress(GROUP, FAR, FAR, BALLOT_ZERO, LIFE),
        Progress(GROUP, Slot(0), FAR, BALLOT_ZERO, LIFE),
        Commit(GROUP, ballot(1, 1), Slot(1), FAR),
        Trimmed(GROUP, FAR, FAR),
    ],
)
def test_a_wrong_number_does_not_spread_and_ends_with_the_next_word(wrong: Message) -> None:
    one = member()
    one.give(1, wrong)
    assert one.replica.learner.behind
    assert progress_for(one.replica, NodeId(2)).chosen_to == 0
    one.give(1, says(BALLOT_ZERO))
    assert not one.replica.learner.behind


def test_the_number_of_one_who_is_gone_ends_with_it() -> None:
    one = member()
    one.give(1, says(BALLOT_ZERO, applied=FAR))
    one.now_ns += one.replica.timing.heard_ns
    one.give(2, says(BALLOT_ZERO))
    assert not one.replica.learner.behind


def test_behind_counts_as_an_answer_only() -> None:
    one = member()
    one.give(1, Behind(GROUP, ballot(3, 0), FAR))
    assert one.replica.peer(NodeId(1)).applied == 0


def test_what_was_not_asked_for_is_not_learned() -> None:
    one = member()
    step = Step()
    one.multi.on_message(one.now, NodeId(1), Learned(GROUP, Slot(1), (NOOP,)), step)
    one.multi.on_message(one.now, NodeId(1), Trimmed(GROUP, Slot(5), Slot(9)), step)
    assert one.replica.learner.applied == 0
    assert not step.persist
    assert not step.fetch


def test_entries_far_ahead_are_not_kept() -> None:
    one = member()
    one.give(1, Learned(GROUP, FAR, (NOOP,)))
    assert not one.replica.learner.chosen


# -- impossible numbers ---------------------------------------------------------------------------


def preparing() -> Member:
    one = member()
    one.prepare()
    return one


def wrong_votes() -> list[Promise]:
    mine = preparing().replica.proposer.ballot
    beyond = Slot(1 + ACCEPT_AHEAD_SLOTS_MAX)
    return [
        Promise(GROUP, mine, ((beyond, BALLOT_ZERO, NOOP),)),
        Promise(GROUP, mine, ((Slot(1), Ballot(mine.round + 1, NodeId(1)), NOOP),)),
    ]


TOO_FAR = ROUND_AHEAD_MAX + 2


@pytest.mark.parametrize(
    "message",
    [
        *wrong_votes(),
        Prepare(GROUP, ballot(3, 2), Slot(1)),  # node 1 prepares with node 2's ballot
        Prepare(GROUP, ballot(TOO_FAR, 1), Slot(1)),
        accept(TOO_FAR, 1, 1, some("a")),
        accept(1, 1, 1, some("a"), counted=2 + WINDOW_MAX),
        Accepted(GROUP, ballot(TOO_FAR, 1), Slot(1)),
        Commit(GROUP, ballot(TOO_FAR, 1), Slot(1), Slot(1)),
        Commit(GROUP, ballot(1, 1), Slot(2), Slot(1)),
        Nack(GROUP, ballot(1, 0), ballot(TOO_FAR, 1)),
        Progress(GROUP, Slot(5), Slot(4), BALLOT_ZERO, LIFE),
        Progress(GROUP, Slot(0), Slot(0), ballot(TOO_FAR, 1), LIFE),
        RejoinAnswer(GROUP, LIFE, ballot(TOO_FAR, 1), Slot(0), Slot(0)),
        RejoinAnswer(GROUP, LIFE, BALLOT_ZERO, Slot(3), Slot(4)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_no_honest_member_says_costs_the_link_and_changes_nothing(message: Message) -> None:
    one = preparing()
    promised, step = one.replica.acceptor.promised, Step()
    with pytest.raises(PeerError):
        one.multi.on_message(one.now, NodeId(1), message, step)
    assert not any([step.before, step.persist, step.after, step.applied])
    assert one.replica.acceptor.promised == promised
    assert not one.replica.learner.behind


def test_the_furthest_vote_that_may_be_is_found() -> None:
    one = preparing()
    last = Slot(ACCEPT_AHEAD_SLOTS_MAX)
    one.give(1, Promise(GROUP, one.replica.proposer.ballot, ((last, ballot(0, 1), some("x")),)))
    one.give(0, Promise(GROUP, one.replica.proposer.ballot, ()))
    assert last in one.replica.proposer.in_flight


def test_a_promise_that_is_not_needed_any_more_may_tell_of_a_slot_learned_meanwhile() -> None:
    """Slots of the Prepare that are chosen by now are not ours to propose in any more."""
    one = preparing()
    mine = one.replica.proposer.ballot
    one.replica.learn(one.now, Slot(1), some("x"), Step())
    one.give(0, Promise(GROUP, mine, ()))
    one.give(1, Promise(GROUP, mine, ()))
    assert one.replica.proposer.lo == 2
    one.give(2, Promise(GROUP, mine, ((Slot(1), ballot(1, 1), some("x")),)))


def test_a_nack_of_somebody_elses_ballot_raises_no_round() -> None:
    one = member()
    before = one.replica.round_seen
    one.give(1, Nack(GROUP, ballot(7, 1), ballot(2**30, 1)))
    assert one.replica.round_seen == before


# -- requests for help, and who answers -----------------------------------------------------------


def rejoining() -> Member:
    one = member()
    distrust(one.replica, one.now, (), "a test", Step())
    return one


def answer(voted: int, applied: int, round_: int = 1) -> RejoinAnswer:
    return RejoinAnswer(GROUP, LIFE, ballot(round_, 1), Slot(voted), Slot(applied))


def test_a_bar_and_a_floor_that_were_wrong_are_gone_with_the_next_word() -> None:
    one = rejoining()
    one.give(1, answer(2**40, 0, round_=2**31))
    one.give(2, answer(0, 0))
    for applied in (9, 10):
        for node in (1, 2):
            one.give(node, answer(applied, applied))
    one.give(1, Learned(GROUP, Slot(1), (NOOP,) * (10 + WINDOW_MAX)))
    assert one.replica.can_vote()
    assert one.replica.acceptor.promised == ballot(1, 1)


def test_what_those_say_who_are_no_members_raises_no_bar() -> None:
    one = rejoining()
    one.give(7, answer(2**40, 2**40, round_=2**31))
    rejoin = one.replica.rejoin
    assert rejoin is not None
    assert rejoin.bar_of(one.replica.members) == 0
    assert rejoin.floor_of(one.replica.members) == BALLOT_ZERO


def test_a_life_that_is_not_there_is_not_helped() -> None:
    """Each life is helped for two windows of slots: invented lives would fill the log."""
    one = member()
    one.multi.peer_up(one.now, NodeId(1), Incarnation(4))
    assert one.give(1, RejoinAsk(GROUP, Incarnation(4))).after
    for life in range(5, 50):
        assert not one.give(1, RejoinAsk(GROUP, Incarnation(life))).after


def test_a_steal_is_refused_by_members_only() -> None:
    one = member()
    refusal = StealAbort(GROUP, Slot(0), "busy")
    assert one.give(1, refusal).notices
    assert not one.give(7, refusal).notices


def test_what_a_faulty_member_can_say_once_leaves_a_group_that_serves() -> None:
    """All of it at once, to a running member: it still votes afterwards."""
    one = member()
    for message in (
        says(ballot(9, 1)),
        says(BALLOT_ZERO, applied=FAR),
        Accepted(GROUP, ballot(50, 1), Slot(1)),
        Learned(GROUP, FAR, (NOOP,)),
        Trimmed(GROUP, FAR, FAR),
        attrs.evolve(answer(5, 5), promised=ballot(2**31, 1)),
        Commit(GROUP, ballot(1, 1), Slot(1), FAR),
    ):
        one.give(1, message)
    sent = one.give(2, Accept(GROUP, ballot(1, 2), Slot(1), some("a"), Slot(1), Slot(0)))
    assert messages(sent.after, Accepted)
