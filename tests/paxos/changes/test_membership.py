"""Membership changes: one at a time, of a node that is ready, with nothing else under way."""

import pytest

from paxos.changes import handover
from paxos.changes.membership import is_able, is_settled, next_change
from paxos.entry import Config, EntryKind, config
from paxos.ids import BALLOT_ZERO, Incarnation, NodeId, Slot
from paxos.messages import Accept, Learned, Prepare, Progress, Promise, RejoinAsk
from paxos.proposer import Role
from paxos.step import LearnedRecord, Step
from paxos.timing import STEAL_LAG_SLOTS_MAX, Strategy, Timing
from tests.paxos.core import GROUP, LIFE, Member, ballot, member, messages, some
from tests.paxos.test_lease import acting_master


def nodes(*idents: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(ident) for ident in idents)


def told(one: Member, node: int, applied: int) -> Step:
    return one.give(node, Progress(GROUP, Slot(applied), Slot(applied), BALLOT_ZERO, LIFE))


def change(one: Member, *members: int) -> tuple[str, list[Accept]]:
    step = Step()
    why = one.replica.change_members(one.now, nodes(*members), step)
    sent = [m for m in messages(step.before, Accept) if isinstance(m, Accept)]
    return why, [m for m in sent if m.entry.kind == EntryKind.CONFIG]


def heard_master() -> Member:
    """Node 0 is master of 0, 1 and 2, all of which are up to date; slot 1 holds its lease."""
    one = acting_master()
    for node in (1, 2):
        told(one, node, 1)
    return one


# -- the next step towards a replica set ------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "wanted", "able", "then"),
    [
        ((0, 1, 2), (0, 1, 2), (1, 2), None),
        ((0, 1, 2), (0, 1, 2, 3), (1, 2, 3), (0, 1, 2, 3)),
        ((0, 1, 2), (0, 1, 2, 3), (1, 2), None),  # not caught up yet
        ((0, 1, 2), (0, 1, 3), (1, 2, 3), (0, 1, 2, 3)),  # added first
        ((0, 1, 2, 3), (0, 1, 3), (1, 2, 3), (0, 1, 3)),
        ((0, 1, 2), (0, 1, 3), (1, 3), (0, 1, 2, 3)),  # 2 is dead and is replaced
        ((0, 1, 2, 3), (0, 1, 3), (1, 3), (0, 1, 3)),
        ((0, 1, 2), (0, 1, 3), (1,), None),  # ... once 3 is ready, not before
        ((0, 1, 2, 3, 4), (0,), (1, 2, 3), (0, 1, 2, 3)),  # failed members go first
        ((0, 1, 2), (0, 2), (1,), None),  # the remaining members would have no majority
        ((0, 1, 2), (1, 2, 3), (1, 2, 3), (0, 1, 2, 3)),
        ((0, 1, 2, 3), (1, 2, 3), (1, 2, 3), None),  # not itself: it is stolen first
        ((0,), (0, 1, 2), (1, 2), (0, 1)),
        ((0, 1), (0, 1, 2), (1, 2), (0, 1, 2)),
    ],
)
def test_what_comes_next(
    members: tuple[int, ...],
    wanted: tuple[int, ...],
    able: tuple[int, ...],
    then: tuple[int, ...] | None,
) -> None:
    found = next_change(nodes(*members), nodes(*wanted), me=NodeId(0), able=nodes(*able))
    assert found == (None if then is None else nodes(*then))


def test_every_way_from_one_set_to_another_ends_there() -> None:
    """As long as all nodes are able and the master stays: one node at a time, never too few
    members."""
    for start in range(1, 32, 2):
        for end in range(1, 32, 2):
            have = {n for n in range(5) if start >> n & 1}
            want = {n for n in range(5) if end >> n & 1}
            for _ in range(10):
                found = next_change(nodes(*have), nodes(*want), me=NodeId(0), able=nodes(*range(5)))
                if found is None:
                    break
                assert len(set(found) ^ have) == 1
                assert len(found) >= min(len(have), len(want))
                have = set(found)
            assert have == want


# -- adding a node: which one, and when -------------------------------------------------------


def test_a_node_that_is_ready_is_added() -> None:
    one = heard_master()
    told(one, 3, 1)
    why, sent = change(one, 0, 1, 2, 3)
    assert (why, len(sent)) == ("", 2)  # to the old members: the ballot is theirs
    assert change(one, 0, 1, 2) == ("not master or busy", [])
    one.accepted(2, 0, 1)
    assert one.replica.members == nodes(0, 1, 2, 3)
    assert one.replica.configured == 2
    assert one.replica.proposer.role is Role.FOLLOWER
    assert len(messages(one.tick().after, Prepare)) == 3


@pytest.mark.parametrize("state", ["silent", "behind", "gone", "not voting"])
def test_a_node_that_is_not_ready_is_not_added(state: str) -> None:
    one = heard_master()
    if state != "silent":
        told(one, 3, 1)
    if state == "behind":
        for slot in range(2, STEAL_LAG_SLOTS_MAX + 3):
            one.place(some("x"))
            one.accepted(slot, 0, 1)
        for node in (1, 2):
            told(one, node, slot)
    elif state == "gone":
        one.now_ns += one.replica.timing.heard_ns + one.replica.timing.progress_every_ns + 1
        one.replica.lease.deadline_boot_ns += 10**10
        one.replica.lease.expires_wall_ns += 10**10
        for node in (1, 2):
            told(one, node, 1)
    elif state == "not voting":
        one.give(3, RejoinAsk(GROUP, LIFE))
        slot = one.replica.proposer.next - 1  # it was helped: slots were filled
        for filled in range(2, slot + 1):
            one.accepted(filled, 0, 1)
    why, sent = change(one, 0, 1, 2, 3)
    assert why == "the new member is not heard, not caught up, or does not vote"
    assert not sent


def test_who_begins_a_new_life_has_to_say_anew_what_it_has() -> None:
    """It may come back with an empty disk: what it had in an earlier life does not make it
    ready."""
    one = heard_master()
    told(one, 3, 1)
    assert is_able(one.replica, one.now, NodeId(3))
    for _ in range(2):
        one.multi.peer_up(one.now, NodeId(3), Incarnation(9))
        assert not is_able(one.replica, one.now, NodeId(3))
    told(one, 3, 1)
    one.multi.peer_up(one.now, NodeId(3), Incarnation(9))
    assert is_able(one.replica, one.now, NodeId(3)), "the same life, another link"


def test_who_said_that_it_does_not_vote_while_we_could_not_either_is_not_counted() -> None:
    """It got no answer. When it was added all the same, a group of four kept two voters for ever
    (whole nodes, seed 72: the second of them had lost its directory)."""
    one = heard_master()
    told(one, 3, 1)
    one.replica.verified.clear()
    assert not one.give(3, RejoinAsk(GROUP, LIFE)).after
    one.verify()
    assert not is_able(one.replica, one.now, NodeId(3))
    assert change(one, 0, 1, 2, 3)[0] == (
        "the new member is not heard, not caught up, or does not vote"
    )


def test_nobody_is_removed_if_too_few_able_ones_are_left() -> None:
    one = heard_master()
    one.give(2, RejoinAsk(GROUP, LIFE))
    for filled in range(2, one.replica.proposer.next):
        one.accepted(filled, 0, 1)
    assert change(one, 0, 2)[0] == "too few of the members are heard, caught up and vote"
    assert change(one, 0, 1)[0] == ""


def test_the_master_does_not_remove_itself() -> None:
    assert change(heard_master(), 1, 2)[0] == "the master does not remove itself"


def test_a_change_waits_until_nothing_is_under_way() -> None:
    """Otherwise two changes could run that do not know of each other (docs/adr/0022)."""
    one = heard_master()
    told(one, 3, 1)
    one.place(some("x"))
    assert change(one, 0, 1, 2, 3) == ("", [])
    assert not one.replica.can_propose(one.now)
    (step,) = one.accepted(2, 1)
    assert not messages(step.before, Accept)  # one vote: the slot is not chosen yet
    step = one.accepted(2, 0)[0]
    assert all(m.entry.kind == EntryKind.CONFIG for m in messages(step.before, Accept))  # type: ignore[union-attr] # Accepts
    assert len(messages(step.before, Accept)) == 2
    assert one.replica.proposer.hi == 3


def test_a_change_that_cannot_begin_is_given_up() -> None:
    one = heard_master()
    told(one, 3, 1)
    one.place(some("x"))
    assert change(one, 0, 1, 2, 3) == ("", [])
    step = one.tick(300)
    assert [notice.what for notice in step.notices] == ["change-called-off"]
    assert one.replica.can_propose(one.now)


def test_a_change_excludes_a_handover_and_a_handover_a_change() -> None:
    """Scenario 23 in the core, also for strategies under which the master goes on serving."""
    one = heard_master()
    told(one, 3, 1)
    one.place(some("x"))
    assert change(one, 0, 1, 2, 3) == ("", [])
    one.replica.incarnations[NodeId(1)] = LIFE
    assert handover.steal_away(one.replica, one.now, NodeId(1)) == "members are changing"
    other = acting_master(timing=Timing(strategy=Strategy.WAIT_EXPIRY))
    for node in (1, 2, 3):
        told(other, node, 1)
    other.replica.incarnations[NodeId(1)] = LIFE
    assert handover.steal_away(other.replica, other.now, NodeId(1)) == ""
    assert other.replica.can_propose(other.now)
    assert change(other, 0, 1, 2, 3)[0] == "the group is being handed over"


# -- nodes that are not members ---------------------------------------------------------------


def outsider() -> Member:
    """Node 4 of a group of 0, 1 and 2."""
    one = member(me=4)
    assert one.replica.members == nodes(0, 1, 2)
    return one


def test_it_learns_and_prepares_nothing() -> None:
    one = outsider()
    assert len(one.give(1, Learned(GROUP, Slot(1), (some("a"), some("b")))).applied) == 2
    for _ in range(20):
        for node in (0, 1, 2):
            told(one, node, 2)
        step = one.tick(400)
        assert not messages(step.after, Prepare)
        assert len(messages(step.before, Progress)) in (0, 3)


def test_it_is_told_how_far_the_members_are_even_if_it_is_as_far() -> None:
    """So the members have told it what they remember of it by the time it becomes one of them."""
    one = member()
    assert len(messages(told(one, 4, 0).before, Progress)) == 1
    assert not messages(told(one, 4, 0).before, Progress)  # else two outsiders never end it
    one.now_ns += one.replica.timing.progress_every_ns
    assert len(messages(told(one, 4, 0).before, Progress)) == 1


def test_it_votes_for_a_proposer_that_knows_it_as_a_member() -> None:
    """R9: the voter may not yet have applied the Config that makes it a member."""
    one = outsider()
    assert messages(one.give(1, Prepare(GROUP, ballot(3, 1), Slot(1))).after, Promise)


def test_a_change_is_settled_when_a_majority_of_the_new_members_has_applied_it() -> None:
    """Until then a node that left must keep its votes: simulator seed 128."""
    one = heard_master()
    told(one, 3, 1)
    change(one, 0, 1, 2, 3)
    assert is_settled(one.replica)
    one.accepted(2, 0, 1, 2)
    assert one.replica.members == nodes(0, 1, 2, 3)
    told(one, 1, 2)
    assert not is_settled(one.replica)
    told(one, 3, 1)
    assert not is_settled(one.replica)
    told(one, 3, 2)
    assert is_settled(one.replica)


def test_a_restart_remembers_a_change_that_was_applied() -> None:
    """No later vote proves that the change was chosen, but the node remembers it."""
    one = heard_master()
    told(one, 3, 1)
    change(one, 0, 1, 2, 3)
    (record,) = [step.persist for step in one.accepted(2, 0, 1) if step.persist][-1]
    assert isinstance(record, LearnedRecord)
    assert (record.slot, record.applied) == (2, 2)
    assert record.entry.same_as(config(Config(nodes(0, 1, 2, 3))))
    assert one.replica.acceptor.recorded == 2


def test_a_change_is_applied_sorted() -> None:
    one = member()
    one.give(1, Learned(GROUP, Slot(1), (config(Config(nodes(2, 0, 1, 3))),)))
    assert one.replica.members == nodes(0, 1, 2, 3)
    assert one.replica.configured == 1
