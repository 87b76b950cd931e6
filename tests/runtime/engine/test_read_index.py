"""A former master asks how far it must be before it serves a read; the answer is never too old."""

import pytest

from paxos.ids import MS
from runtime.engine.read_index import PATIENCE_NS
from tests.runtime.engines import GROUP, Net


@pytest.fixture
def net() -> Net:
    return Net()


def ask(net: Net, node: int) -> list[bool]:
    told: list[bool] = []
    net[node].engine.ask_index(GROUP, told.append)
    return told


def test_a_member_is_told_once_it_has_what_the_master_had(net: Net) -> None:
    net.elect(2)
    for text in "abc":
        net[2].submit(text)
    net.settle()
    there = net[2].replica.learner.applied
    told = ask(net, 1)
    assert told == []
    net.until(lambda: bool(told))
    assert told == [True]
    assert net[1].ledger.applied >= there
    assert net[1].engine.statistics.forwarded_out == 0, "it is no command"
    assert len(net[1].engine.read_index) == 0


def test_one_that_is_behind_waits_until_it_has_caught_up(net: Net) -> None:
    net.elect(2)
    net.settle()
    net.cut(1, 2)
    net.cut(1, 3)
    net[2].submit("x")
    net.settle()
    assert net[1].ledger.texts() == []
    told = ask(net, 1)
    net.settle()
    assert told == []
    net.heal(1, 2)
    seen: list[list[str]] = []
    net[1].engine.ask_index(GROUP, lambda _: seen.append(net[1].ledger.texts()))
    net.until(lambda: bool(told and seen))
    assert told == [True]
    assert seen == [["x"]], "when it was told"


def test_what_comes_while_a_question_is_under_way_gets_one_of_its_own(net: Net) -> None:
    """The answer on its way may be older than what was acknowledged meanwhile."""
    net.elect(2)
    net.settle()
    first = ask(net, 1)
    second, third = ask(net, 1), ask(net, 1)
    net.until(lambda: bool(first and second and third))
    assert (first, second, third) == ([True], [True], [True])
    assert len(net.forwards) == 2


def test_a_copy_that_may_differ_is_not_read(net: Net) -> None:
    """ADR 39: it neither acts nor votes, and says nothing of what was chosen."""
    net.elect(2)
    net.settle()
    net[1].replica.doubt = True
    told = ask(net, 1)
    net.advance(200)
    assert told == []
    net[1].replica.doubt = False
    net.until(lambda: bool(told))
    assert told == [True]


def test_nobody_is_asked_for_ever(net: Net) -> None:
    net.elect(2)
    net.settle()
    net.cut(1, 2)
    net.cut(1, 3)
    told = ask(net, 1)
    net.advance(PATIENCE_NS // MS + 100)
    assert told == [False]


def test_a_node_that_does_not_act_gives_no_answer(net: Net) -> None:
    """Its lease is over, and it does not know who is master now: it must not vouch for its log."""
    net.elect(2)
    net.settle()
    told = ask(net, 1)
    replica = net[2].replica
    acts = type(replica).acting
    try:
        type(replica).acting = lambda self, now: self is not replica and acts(self, now)
        net.settle()
        assert told == []
    finally:
        type(replica).acting = acts
    net.until(lambda: bool(told))
    assert told == [True]


def test_who_is_master_again_answers_itself(net: Net) -> None:
    net.elect(1)
    net[1].submit("x")
    net.settle()
    told = ask(net, 1)
    net.settle()
    assert told == [True]
    assert not net.forwards
