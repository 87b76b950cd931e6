"""The acceptor's rules as tables, and the small parts beside it: ballots, quorums, the learner."""

import pytest

from paxos.acceptor import Acceptor
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, NodeId, Slot
from paxos.learner import Learner
from paxos.messages import Accept, Accepted, Behind, Nack, Prepare, Promise
from paxos.quorum import is_quorum, quorum_size
from paxos.step import AcceptRecord, PromiseRecord, Step
from paxos.timing import ACCEPT_AHEAD_SLOTS_MAX
from tests.paxos.core import accept, ballot, messages, some

GROUP = GroupId(1)
SENDER = NodeId(2)
APPLIED = Slot(4)


def acceptor() -> Acceptor:
    """It has applied slots 1 to 4, promised (5, 1), and voted for slot 6 at (3, 0)."""
    one = Acceptor(group=GROUP, promised=ballot(3, 0))
    step = Step()
    one.on_accept(SENDER, accept(3, 0, 6, some("six")), APPLIED, False, step)
    one.on_prepare(SENDER, Prepare(GROUP, ballot(5, 1), Slot(5)), APPLIED, step)
    return one


def test_a_ballot_orders_by_round_and_then_by_node() -> None:
    ordered = [BALLOT_ZERO, Ballot(1, NodeId(0)), Ballot(1, NodeId(2)), Ballot(2, NodeId(0))]
    assert sorted(reversed(ordered)) == ordered


@pytest.mark.parametrize(("members", "size"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_any_two_quorums_share_a_member(members: int, size: int) -> None:
    everybody = [NodeId(n) for n in range(members)]
    assert quorum_size(everybody) == size
    assert 2 * size > members
    assert is_quorum(everybody[:size], everybody)
    assert not is_quorum(everybody[: size - 1], everybody)


def test_outsiders_do_not_count() -> None:
    assert not is_quorum([NodeId(7), NodeId(8), NodeId(0)], [NodeId(n) for n in range(3)])


@pytest.mark.parametrize(
    ("round_", "node", "start", "answer", "promised"),
    [
        (6, 0, 5, Promise, (6, 0)),  # higher: promise
        (5, 1, 5, Promise, (5, 1)),  # a duplicate: promised already
        (5, 0, 5, Nack, (5, 1)),  # lower by the node
        (4, 2, 5, Nack, (5, 1)),  # lower by the round
        (6, 0, 4, Behind, (5, 1)),  # it starts at a slot whose vote is forgotten
        (4, 0, 4, Nack, (5, 1)),
        (6, 0, 9, Promise, (6, 0)),
    ],
)
def test_prepare(
    round_: int, node: int, start: int, answer: type, promised: tuple[int, int]
) -> None:
    one, step = acceptor(), Step()
    one.on_prepare(SENDER, Prepare(GROUP, ballot(round_, node), Slot(start)), APPLIED, step)
    (sent,) = step.before + step.after
    assert (type(sent.message), sent.to) == (answer, SENDER)
    assert one.promised == ballot(*promised)
    if isinstance(sent.message, Promise):
        assert step.after, "a promise leaves when it is durable"
        assert [type(record) for record in step.persist] == [PromiseRecord]
        assert [vote[0] for vote in sent.message.votes] == ([6] if start <= 6 else [])
    else:
        assert not step.persist


@pytest.mark.parametrize(
    ("round_", "node", "slot", "chosen", "answer", "votes"),
    [
        (6, 0, 5, False, Accepted, True),  # R9: higher than promised, not prepared here
        (5, 1, 5, False, Accepted, True),
        (5, 1, 9, False, Accepted, True),  # gaps below do not matter
        (5, 0, 5, False, Nack, False),
        (5, 1, 4, True, Accepted, False),  # chosen: yes, and no vote record over the chosen one
        (4, 0, 4, True, Nack, False),
        (5, 1, 4 + ACCEPT_AHEAD_SLOTS_MAX, False, Accepted, True),
        (5, 1, 5 + ACCEPT_AHEAD_SLOTS_MAX, False, None, False),  # too far ahead: treated as lost
    ],
)
def test_accept(
    round_: int, node: int, slot: int, chosen: bool, answer: type | None, votes: bool
) -> None:
    one, step = acceptor(), Step()
    stands = one.on_accept(SENDER, accept(round_, node, slot, some("v")), APPLIED, chosen, step)
    assert stands is (answer is not Nack)
    assert [type(message) for message in messages(step.after)] == ([answer] if answer else [])
    assert not step.before, "nothing about a vote overtakes its fsync"
    assert [type(record) for record in step.persist] == ([AcceptRecord] if votes else [])


def test_an_accept_of_a_chosen_slot_still_promises() -> None:
    one, step = acceptor(), Step()
    one.on_accept(SENDER, accept(7, 0, 4, some("v")), APPLIED, True, step)
    assert one.promised == ballot(7, 0)
    assert [type(record) for record in step.persist] == [PromiseRecord]


def test_a_duplicate_accept_is_answered_and_not_written_again() -> None:
    one = acceptor()
    again: Accept = accept(5, 1, 5, some("v"))
    one.on_accept(SENDER, again, APPLIED, False, Step())
    step = Step()
    one.on_accept(SENDER, again, APPLIED, False, step)
    assert not step.persist
    assert len(messages(step.after, Accepted)) == 1


def test_the_next_slot_always_has_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A full table of open votes must not block the one slot that would empty it."""
    monkeypatch.setattr("paxos.acceptor.ACCEPT_AHEAD_BYTES_MAX", 10)
    one, step = acceptor(), Step()
    one.on_accept(SENDER, accept(5, 1, 7, some("x" * 50)), APPLIED, False, step)
    assert not step.after
    one.on_accept(SENDER, accept(5, 1, 5, some("x" * 50)), APPLIED, False, step)
    assert len(step.after) == 1


def test_a_ballot_of_ones_own_is_never_used_twice() -> None:
    one = acceptor()
    with pytest.raises(AssertionError, match="used or outbid"):
        one.promise_own(ballot(5, 1), Step())


def test_the_learner_applies_in_order_and_once() -> None:
    learner = Learner()
    assert learner.add(Slot(2), some("b"))
    assert list(learner.take_ready()) == []
    assert learner.behind
    assert learner.add(Slot(1), some("a"))
    assert not learner.add(Slot(1), some("a"))
    assert [slot for slot, _ in learner.take_ready()] == [1, 2]
    assert not learner.add(Slot(2), some("b"))
    assert not learner.behind
    learner.note_chosen(Slot(9))
    assert learner.behind
