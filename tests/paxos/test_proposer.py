"""The slots of one ballot: what may be proposed where, what is counted, and the changes of role."""

import itertools

import pytest

from paxos.entry import Config, EntryKind, config
from paxos.ids import BALLOT_ZERO, NodeId, Slot
from paxos.messages import Accept, Commit, Learned, Nack, Prepare, Progress
from paxos.proposer import NEXT_ROLE, Proposer, Role, Transition
from paxos.step import Step
from tests.paxos.core import GROUP, LIFE, accept, ballot, member, messages, some
from tests.paxos.test_lease import acting_master, steal_entry

MEMBERS = (NodeId(0), NodeId(1), NodeId(2))


def leading(start: int = 1) -> Proposer:
    one = Proposer()
    one.start_preparing(ballot(1, 0), Slot(start), MEMBERS, 0)
    one.on_promise(NodeId(0), ())
    assert one.on_promise(NodeId(1), ())
    one.lead(0)
    one.start_at(Slot(start))
    return one


@pytest.mark.parametrize(("role", "transition"), list(itertools.product(Role, Transition)))
def test_a_move_that_is_not_in_the_table_raises(role: Role, transition: Transition) -> None:
    one = Proposer(role=role)
    if (role, transition) in NEXT_ROLE:
        one._change_role(transition)
        assert one.role is NEXT_ROLE[role, transition]
    else:
        with pytest.raises(KeyError):
            one._change_role(transition)


def test_nothing_is_proposed_before_a_quorum_has_promised() -> None:
    one = Proposer()
    one.start_preparing(ballot(1, 0), Slot(1), MEMBERS, 0)
    with pytest.raises(AssertionError):
        one.place(some("a"), 0)
    assert not one.on_promise(NodeId(7), ()), "outsiders do not promise"
    assert not one.on_promise(NodeId(1), ())
    assert not one.on_promise(NodeId(1), ()), "nor does one member twice"


def test_of_each_slot_the_highest_vote_is_found() -> None:
    one = Proposer()
    one.start_preparing(ballot(9, 0), Slot(3), MEMBERS, 0)
    one.on_promise(NodeId(0), ((Slot(3), ballot(2, 1), some("old")),))
    one.on_promise(
        NodeId(1),
        ((Slot(2), ballot(8, 1), some("before")), (Slot(3), ballot(4, 0), some("new"))),
    )
    found = one.found()
    assert list(found) == [3]
    assert found[Slot(3)].same_as(some("new"))


def test_what_was_given_away_cannot_be_proposed_in() -> None:
    """R4: whatever happens to the Steal in slot 2, slot 3 is not ours any more."""
    one = leading()
    one.place(some("a"), 0)
    one.place(some("steal"), 0)
    one.close_at(Slot(2))
    with pytest.raises(AssertionError, match="outside"):
        one.place(some("c"), 0)


def test_a_delegated_range_starts_above_its_steal() -> None:
    """R6b."""
    one = leading()
    one.place(some("a"), 0)
    one.take_over(Slot(7), ballot(1, 0), MEMBERS, 0)
    assert (one.lo, one.next, one.counted_to) == (8, 8, 7)
    assert not one.in_flight


def test_counting_goes_on_over_slots_chosen_out_of_order() -> None:
    """R17: counted_to covers only slots seen accepted by a quorum, without a gap."""
    one = leading()
    for text in "abcd":
        one.place(some(text), 0)
    for slot in (2, 4, 1):
        for node in (0, 1):
            one.on_accepted(NodeId(node), Slot(slot))
    assert one.counted_to == 2
    one.on_accepted(NodeId(2), Slot(3))
    assert one.on_accepted(NodeId(1), Slot(3)) is not None
    assert one.counted_to == 4


def test_late_and_foreign_votes_change_nothing() -> None:
    one = leading()
    one.place(some("a"), 0)
    assert one.on_accepted(NodeId(1), Slot(5)) is None
    assert one.on_accepted(NodeId(8), Slot(1)) is None
    assert one.on_accepted(NodeId(9), Slot(1)) is None
    assert one.on_accepted(NodeId(1), Slot(1)) is None
    assert one.on_accepted(NodeId(2), Slot(1)) is not None
    assert one.on_accepted(NodeId(0), Slot(1)) is None, "chosen once"


def test_open_slots_are_filled_and_proposed_again() -> None:
    """A gap that nobody of the quorum voted in becomes a no-op."""
    one = member()
    step = one.lead(votes=((Slot(3), ballot(0, 2), some("c")),))
    kinds = {m.slot: m.entry.kind for m in messages(step.before, Accept) if isinstance(m, Accept)}
    assert kinds == {1: EntryKind.NOOP, 2: EntryKind.NOOP, 3: EntryKind.BATCH}
    assert not one.replica.ready(), "not before all that was found is applied (R4b)"
    for slot in (1, 2, 3):
        one.accepted(slot, 0, 1)
    assert one.replica.ready()


def test_a_found_config_closes_the_ballot_at_its_slot() -> None:
    """R10, also when the Config is only re-proposed: entries found above it are left to a new phase
    1."""
    one = member()
    change = config(Config((NodeId(0), NodeId(1))))
    votes = ((Slot(1), ballot(0, 2), change), (Slot(2), ballot(0, 2), some("above")))
    step = one.lead(votes=votes)
    assert {m.slot for m in messages(step.before, Accept) if isinstance(m, Accept)} == {1}
    one.accepted(1, 0, 1)
    assert one.replica.members == (0, 1)
    assert one.replica.proposer.role is Role.FOLLOWER


def test_the_quorum_of_a_ballot_is_that_of_its_configuration() -> None:
    """After a member was added, the ballot is prepared anew among four members."""
    one = acting_master()
    step, four = Step(), [NodeId(n) for n in range(4)]
    for node in (1, 2, 3):
        one.give(node, Progress(GROUP, Slot(1), Slot(1), BALLOT_ZERO, LIFE))
    assert one.replica.change_members(one.now, four, step) == ""
    assert messages(step.before, Accept)
    one.accepted(2, 0, 1)
    assert one.replica.members == (0, 1, 2, 3)
    assert one.replica.proposer.role is Role.FOLLOWER
    for node in (1, 2, 3):
        one.multi.peer_up(one.now, NodeId(node), one.replica.incarnation)
    prepares = [send for send in one.tick().after if isinstance(send.message, Prepare)]
    assert [send.to for send in prepares] == [1, 2, 3]


def test_a_nack_with_a_higher_ballot_ends_the_leadership_and_not_the_lease() -> None:
    one = acting_master()
    mine = one.replica.proposer.ballot
    one.give(1, Nack(GROUP, mine, mine))
    assert one.replica.proposer.role is Role.LEADER
    one.give(1, Nack(GROUP, mine, ballot(9, 1)))
    assert one.replica.proposer.role is Role.FOLLOWER
    assert one.replica.acting(one.now)


def test_the_target_proposes_right_after_applying_the_steal() -> None:
    one = member(me=1)
    taken = steal_entry(source=0, target=1, round_=5, expires=one.now_ns + 10**9)
    one.give(0, accept(5, 0, 1, taken))
    one.give(0, Commit(GROUP, ballot(5, 0), Slot(1), Slot(1)))
    assert one.replica.acting(one.now)
    assert one.replica.ready()
    step = one.place(some("first"))
    (first, *_) = messages(step.before, Accept)
    assert isinstance(first, Accept)
    assert (first.ballot, first.slot, first.counted_from) == (ballot(5, 0), 2, 2)


@pytest.mark.parametrize("promised", [ballot(5, 2), ballot(6, 0)])
def test_a_target_that_has_promised_more_does_not_use_the_ballot(promised: tuple[int, int]) -> None:
    one = member(me=1)
    one.give(promised[1], Prepare(GROUP, ballot(*promised), Slot(1)))
    taken = steal_entry(source=0, target=1, round_=5, expires=one.now_ns + 10**9)
    one.give(0, Learned(GROUP, Slot(1), (taken,)))
    assert one.replica.lease.holder == 1
    assert one.replica.proposer.role is Role.FOLLOWER


def test_what_others_chose_in_a_slot_of_ours_is_not_counted() -> None:
    """R17: the target of a Steal has learned slot 3 but not slot 2, and then proposes in both. It
    has not heard of a later ballot that adopts its slot 2. A Commit of slot 3 by number at our
    ballot would teach our own value to everybody who voted for it."""
    one = member(me=1)
    one.give(2, Learned(GROUP, Slot(3), (some("theirs"),)))
    taken = steal_entry(source=0, target=1, round_=5, expires=one.now_ns + 10**9)
    one.give(0, accept(5, 0, 1, taken))
    one.give(0, Commit(GROUP, ballot(5, 0), Slot(1), Slot(1)))
    one.place(some("first"))
    one.place(some("second"))
    one.give(2, Learned(GROUP, Slot(2), (some("first"),)))
    assert one.replica.learner.applied == 3
    assert one.replica.proposer.role is Role.LEADER
    (fourth, *_) = messages(one.place(some("third")).before, Accept)
    assert isinstance(fourth, Accept)
    assert (fourth.slot, fourth.counted_from, fourth.counted_to) == (4, 2, 2)
