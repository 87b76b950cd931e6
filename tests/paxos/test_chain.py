"""The chain hash: equal logs agree on it; one different entry is noticed and reported once."""

from paxos import entry as entries
from paxos.chain import REMEMBERED_SLOTS, ChainHash
from paxos.ids import BALLOT_ZERO, Incarnation, NodeId, Slot
from paxos.messages import Progress
from tests.paxos.core import GROUP, LIFE, member


def chain_of(*values: bytes) -> ChainHash:
    chain = ChainHash()
    for slot, value in enumerate(values, start=1):
        chain.extend(Slot(slot), entries.batch((value,)))
    return chain


def test_equal_logs_have_equal_hashes_however_the_entries_are_cut() -> None:
    whole, cut = chain_of(b"ab", b"c"), ChainHash()
    cut.extend(Slot(1), entries.batch((b"a", b"b")))
    cut.extend(Slot(2), entries.batch((b"c",)))
    assert [whole.at(Slot(slot)) for slot in range(3)] == [cut.at(Slot(slot)) for slot in range(3)]


def test_one_different_entry_changes_every_later_value() -> None:
    one, other = chain_of(b"a", b"b", b"c"), chain_of(b"a", b"x", b"c")
    assert one.at(Slot(1)) == other.at(Slot(1))
    assert one.at(Slot(2)) != other.at(Slot(2))
    assert one.at(Slot(3)) != other.at(Slot(3))


def test_what_is_too_old_or_not_reached_is_not_compared() -> None:
    chain = chain_of(*[b"x"] * (REMEMBERED_SLOTS + 10))
    assert chain.at(Slot(10)) is None
    assert chain.at(Slot(REMEMBERED_SLOTS + 10)) == chain.value
    assert chain.at(Slot(9)) is None
    assert chain.at(Slot(REMEMBERED_SLOTS + 11)) is None
    assert chain.at(Slot(11)) is not None


def test_a_member_with_another_log_is_told_once() -> None:
    core = member()
    wrong = Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE, 7)
    step = core.give(1, wrong)
    assert [notice.what for notice in step.notices] == ["diverged"]
    assert core.replica.diverged == {1}
    assert core.give(1, wrong).notices == []


def test_a_member_that_was_given_another_log_is_compared_anew() -> None:
    core = member()
    wrong = Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE, 7)
    right = Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE, 0)
    core.multi.peer_up(core.now, NodeId(1), Incarnation(5))
    core.give(1, wrong)
    core.multi.peer_up(core.now, NodeId(1), Incarnation(5))
    core.give(1, right)
    assert core.replica.diverged == {1}, "the same life: what was wrong once stays so"
    core.multi.peer_up(core.now, NodeId(1), Incarnation(6))
    core.give(1, right)
    assert not core.replica.diverged
    assert [notice.what for notice in core.give(1, wrong).notices] == ["diverged"]


def test_a_member_with_our_log_or_of_an_older_kind_is_not() -> None:
    core = member()
    for chain in (0, -1):
        assert (
            core.give(1, Progress(GROUP, Slot(0), Slot(0), BALLOT_ZERO, LIFE, chain)).notices == []
        )
    assert not core.replica.diverged
