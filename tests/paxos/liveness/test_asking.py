"""A returning node asks for small things first, and never again before it has an answer."""

from typing import Final

from paxos.entry import NOOP
from paxos.ids import BALLOT_ZERO, MS, GroupId, Incarnation, NodeId, Slot
from paxos.liveness.questions import LEARNING_MAX, LOST_INTEREST_NS, Questions
from paxos.messages import ASK_PROGRESS, Learn, Learned, Progress, Trimmed
from paxos.step import Send, Step
from paxos.timing import SERVE_SLOTS_MAX
from tests.paxos.core import GROUP, LIFE, Member, accept, member, messages

A, B = NodeId(1), NodeId(2)


def asked(step: Step) -> list[tuple[NodeId, int]]:
    """Whom it asked, and for what."""
    sends: list[Send] = step.before
    return [(one.to, one.message.applied) for one in sends if isinstance(one.message, Learn)]


def says(applied: int) -> Progress:
    return Progress(GROUP, Slot(applied), Slot(applied), BALLOT_ZERO, LIFE)


def test_who_has_to_be_verified_asks_for_no_entries_and_once_only() -> None:
    """It used to ask everybody for every group's log every 60 ms, answered or not. Serving that
    stopped the others (4.4 s with 48 groups)."""
    one = member(verified=False)
    assert asked(one.tick()) == [(A, ASK_PROGRESS), (B, ASK_PROGRESS)]
    patience = one.replica.timing.learn_timeout_ns // MS
    for _ in range(patience // 20 - 1):
        assert asked(one.tick()) == []
    assert asked(one.tick(40)) == [(A, ASK_PROGRESS), (B, ASK_PROGRESS)]


def test_an_answer_from_one_who_knows_an_earlier_life_is_asked_for_again() -> None:
    one = member(nodes=5, verified=False)
    one.tick()
    one.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, Incarnation(0)))
    one.give(2, says(0))
    assert asked(one.tick()) == [(A, ASK_PROGRESS)], "not who has told all it knows"


def test_a_new_link_may_have_lost_the_question() -> None:
    one = member(verified=False)
    one.tick()
    one.multi.peer_up(one.now, A, Incarnation(1))
    assert asked(one.tick()) == [(A, ASK_PROGRESS)]


def test_the_small_question_is_answered_with_a_word_and_no_entries() -> None:
    one = member()
    one.give(1, Learned(GROUP, Slot(1), (NOOP,) * 9))
    step = one.give(2, Learn(GROUP, ASK_PROGRESS))
    assert not step.serve
    assert len(messages(step.before, Progress)) == 1


def test_so_much_is_served_at_a_time() -> None:
    one = member()
    one.give(1, Learned(GROUP, Slot(1), (NOOP,) * (2 * SERVE_SLOTS_MAX)))
    (serve,) = one.give(2, Learn(GROUP, Slot(0))).serve
    assert (serve.start, serve.end) == (1, SERVE_SLOTS_MAX)


def behind() -> Member:
    """It is far behind both, and has asked one of them."""
    one = member()
    one.give(1, says(900))
    one.give(2, says(900))
    one.tick(1_000)
    return one


def test_one_question_of_a_group_is_under_way_whoever_was_asked() -> None:
    one = behind()
    assert one.multi.questions.under_way == 1
    for _ in range(20):
        one.give(1, says(901))
        one.give(2, says(901))
        assert asked(one.tick()) == []


def test_the_next_question_follows_the_answer() -> None:
    one = behind()
    (node,) = [node for node in (A, B) if one.replica.peer(node).asked]
    step = one.give(node, Learned(GROUP, Slot(1), (NOOP,) * 128))
    assert asked(step) == [(node, 128)]


def test_the_next_gap_does_not_wait_for_the_time_out_of_an_answered_question() -> None:
    """A node that was just added missed the entries before its first Accept, and asked for them
    0.8 s after the last answer: at leases of 0.8 s it knew no master (worlds 76 and 316)."""
    one = behind()
    (node,) = [node for node in (A, B) if one.replica.peer(node).asked]
    one.give(node, Learned(GROUP, Slot(1), (NOOP,) * 900))
    one.give(1, says(901))
    waited_ms = 0
    while not asked(one.tick()):
        waited_ms += 20
    assert waited_ms <= one.replica.timing.learn_patience_ns // MS + 20


def test_who_has_nothing_for_us_has_answered() -> None:
    for nothing in (says(0), Trimmed(GROUP, Slot(1), Slot(0))):
        one = behind()
        (node,) = [node for node in (A, B) if one.replica.peer(node).asked]
        one.give(node, nothing)
        assert one.multi.questions.under_way == 0


CHOSEN_BUT_NOT_APPLIED: Final = Progress(GROUP, Slot(0), Slot(1), BALLOT_ZERO, LIFE)


def test_who_has_nothing_is_not_waited_for_while_another_may_have_it() -> None:
    """A member that had missed an entry asked one that had missed it, too, and waited for half a
    second: at leases of 0.8 s it knew no master (world 100)."""
    one = member(nodes=5)
    one.give(1, accept(1, 1, 2, NOOP, counted=1))
    told: list[NodeId] = []
    for _ in range(4):
        ((node, _),) = asked(one.tick())
        told.append(node)
        one.give(node, CHOSEN_BUT_NOT_APPLIED)
    assert sorted(told) == [NodeId(number) for number in range(1, 5)]


def test_if_nobody_has_anything_one_question_is_asked_in_each_time_out() -> None:
    one = member()
    one.give(1, accept(1, 1, 2, NOOP, counted=1))
    ticks, asked_of = 100, 0
    for _ in range(ticks):
        for node, _ in asked(one.tick()):
            asked_of += 1
            one.give(node, CHOSEN_BUT_NOT_APPLIED)
    time_outs = ticks * 20 * MS // one.replica.timing.learn_timeout_ns
    assert time_outs <= asked_of <= time_outs + 2


def test_a_node_has_so_many_questions_under_way_and_the_others_wait_their_turn() -> None:
    questions, until = Questions(), 1_000 * MS
    groups = [GroupId(number) for number in range(3 * LEARNING_MAX)]
    for turn in range(3):
        granted = [one for one in groups if questions.may_ask(turn, one, A, until)]
        assert granted == groups[turn * LEARNING_MAX : (turn + 1) * LEARNING_MAX], "first come"
        for group in granted:
            questions.answered(group, B)
        assert questions.under_way == LEARNING_MAX, "another one was asked"
        for group in granted:
            questions.answered(group, A)


def test_a_group_that_waits_for_an_answer_does_not_ask_again() -> None:
    questions = Questions()
    assert questions.may_ask(0, GroupId(1), A, 100)
    assert not questions.may_ask(99, GroupId(1), B, 10**12)
    assert questions.may_ask(100, GroupId(1), B, 10**12)


def test_who_does_not_want_to_ask_any_more_keeps_nobody_waiting() -> None:
    questions = Questions()
    for number in range(LEARNING_MAX):
        assert questions.may_ask(0, GroupId(number), A, LOST_INTEREST_NS)
    for number in range(50, 60):
        assert not questions.may_ask(0, GroupId(number), A, 10**12)
    assert questions.may_ask(LOST_INTEREST_NS + 1, GroupId(70), A, 10**12)


def test_an_answer_that_does_not_come_frees_the_place() -> None:
    questions = Questions()
    for number in range(LEARNING_MAX):
        assert questions.may_ask(0, GroupId(number), A, 100)
    assert not questions.may_ask(99, GroupId(70), A, 10**12)
    assert questions.may_ask(100, GroupId(70), A, 10**12)
