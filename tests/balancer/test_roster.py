"""Nodes that come and go, and replica sets, by the registry's rules."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.registry.commands import (
    AddNode,
    Command,
    Done,
    DrainNode,
    FinishRemoval,
    FoundCluster,
    MergePlacement,
    NoteMembers,
    PinGroup,
    Refusal,
    Refused,
    RemoveNode,
    Result,
    SetReplicaSets,
    TokenRefused,
)
from balancer.registry.records import (
    NODES_MAX,
    REPLICA_RECORDS_MAX,
    REPLICAS_MAX,
    Address,
    ReplicaChange,
)
from balancer.registry.registry import Registry
from paxos.ids import GroupId, NodeId, Slot
from tests.balancer.literals import acquire, founded, placement, register, run


def refusal(result: Result) -> Refusal | None:
    return result.reason if isinstance(result, Refused | TokenRefused) else None


def one(registry: Registry, command: Command) -> Result:
    return run(registry, command)[0]


def nodes(*numbers: int) -> tuple[NodeId, ...]:
    return tuple(map(NodeId, numbers))


def five(groups: int = 5, replicas: int = 3) -> Registry:
    """Five founders, every group on three of them."""
    registry = Registry()
    run(registry, FoundCluster("test", groups, nodes(1, 2, 3, 4, 5), replicas))
    run(registry, *(register(node) for node in range(1, 6)))
    return registry


def add(node: int, host: str = "") -> AddNode:
    return AddNode(NodeId(node), Address(host or f"10.0.0.{node}", 7000))


def remove(node: int) -> RemoveNode:
    return RemoveNode(NodeId(node))


def sets(wanted: dict[int, tuple[int, ...]], expected: int | None = None, **rest: Any) -> Command:
    return SetReplicaSets(
        expected, {GroupId(group): nodes(*those) for group, those in wanted.items()}, **rest
    )


def note(group: int, slot: int, *members: int) -> NoteMembers:
    return NoteMembers(GroupId(group), Slot(slot), nodes(*members))


# ---- founding ------------------------------------------------------------------------------------


def test_a_groups_first_members_follow_from_the_founding() -> None:
    registry = five()
    assert registry.members(GroupId(0)) == (1, 2, 3, 4, 5)
    assert registry.members(GroupId(4)) == (1, 2, 5)
    assert registry.replica_set(GroupId(4)) == (1, 2, 5)


@pytest.mark.parametrize(
    "command",
    [
        FoundCluster("test", 5, nodes(1, 1), 2),
        FoundCluster("test", 5, nodes(1, 2), 0),
        FoundCluster("test", 5, nodes(1, 2), REPLICAS_MAX + 1),
        FoundCluster("test", 5, (), 3),
    ],
)
def test_a_founding_that_makes_no_sense_is_refused(command: FoundCluster) -> None:
    assert refusal(one(Registry(), command)) is Refusal.INVALID_CLUSTER


def test_the_founders_are_part_of_what_is_founded() -> None:
    registry = five()
    same = FoundCluster("test", 5, nodes(5, 4, 3, 2, 1), 3)
    assert isinstance(one(registry, same), Done)
    for other in (nodes(1, 2, 3, 4), nodes(1, 2, 3, 4, 6)):
        assert refusal(one(registry, FoundCluster("test", 5, other, 3))) is Refusal.ALREADY_FOUNDED


def test_a_cluster_of_before_there_were_founders_learns_of_them() -> None:
    """Until then no node is added or removed. All its nodes had all groups: fewer would be
    untrue."""
    registry = founded(5)
    assert refusal(one(registry, add(4))) is Refusal.INVALID_CLUSTER
    assert refusal(one(registry, sets({1: (1,)}))) is Refusal.INVALID_CLUSTER
    few = one(registry, FoundCluster("test", 5, nodes(1, 2, 3), 2))
    assert isinstance(few, Refused)
    assert few.detail == "all nodes have all groups: groups.replicas is 3 here"
    assert isinstance(one(registry, FoundCluster("test", 5, nodes(1, 2, 3), 3)), Done)
    assert registry.members(GroupId(5)) == (1, 2, 3)
    assert isinstance(one(registry, add(4)), Done)


# ---- lives ---------------------------------------------------------------------------------------


def test_only_founders_and_nodes_that_were_added_may_register() -> None:
    registry = five()
    stranger = one(registry, register(6))
    assert isinstance(stranger, Refused)
    assert stranger.reason is Refusal.NODE_NOT_ADMITTED
    assert "evenkeel node add" in stranger.detail
    run(registry, add(6))
    assert registry.peers[NodeId(6)] == Address("10.0.0.6", 7000)
    assert 6 not in registry.nodes
    assert isinstance(one(registry, register(6)), Done)
    assert registry.admitted == {}
    assert list(registry.peers) == [1, 2, 3, 4, 5, 6]


def test_a_node_is_added_once_and_at_one_address() -> None:
    registry = five()
    run(registry, add(6))
    seen = registry.versions
    run(registry, add(6))
    assert registry.versions == seen
    run(registry, add(6, "elsewhere"))  # it has not started yet: the operator may have mistyped
    assert registry.peers[NodeId(6)].host == "elsewhere"
    assert refusal(one(registry, add(1, "elsewhere"))) is Refusal.NODE_EXISTS
    assert isinstance(one(registry, add(1)), Done)


def test_a_node_leaves_when_it_has_nothing_any_more_and_never_comes_back() -> None:
    registry = five(groups=1)
    run(registry, placement({0: 2, 1: 2}), PinGroup(GroupId(1), NodeId(2)), remove(2))
    assert registry.nodes[NodeId(2)].leaving
    gone = FinishRemoval(NodeId(2))

    def in_use() -> str:
        result = one(registry, gone)
        assert isinstance(result, Refused)
        assert result.reason is Refusal.NODE_IN_USE
        return result.detail

    assert in_use() == "node 2 is a member of Paxos group 0"
    run(registry, sets({0: (1, 3, 4, 5)}), note(0, 5, 1, 3, 4, 5))
    assert in_use() == "node 2 is a member of Paxos group 1"
    run(registry, note(1, 5, 3, 4))
    run(registry, sets({1: (3, 4, 5)}), note(1, 6, 3, 4, 5))
    assert in_use() == "node 2 should be master of a Paxos group"
    run(registry, placement({0: 1, 1: 3}))
    assert isinstance(one(registry, gone), Done)
    assert isinstance(one(registry, gone), Done), "the same again"
    assert 2 not in registry.nodes
    assert registry.pins == {}
    for back in (register(2, 9), add(2)):
        refused = one(registry, back)
        assert isinstance(refused, Refused)
        assert refused.reason is Refusal.NODE_REMOVED
        assert "never used again" in refused.detail


def test_a_leaving_node_stays_leaving_over_a_restart_until_it_is_added_again() -> None:
    registry = five()
    run(registry, remove(3), register(3, 2), DrainNode(NodeId(3), True))
    assert registry.nodes[NodeId(3)].leaving
    assert registry.nodes[NodeId(3)].draining
    assert refusal(one(registry, sets({1: (3, 4, 5)}))) is Refusal.NODE_LEAVING
    run(registry, placement({1: 3}))
    stolen = acquire(1, 1, 3, target_incarnation=2)
    assert refusal(one(registry, stolen)) is Refusal.NODE_DRAINING
    run(registry, DrainNode(NodeId(3), False))
    assert refusal(one(registry, stolen)) is Refusal.NODE_LEAVING
    run(registry, add(3))
    assert not registry.nodes[NodeId(3)].leaving
    assert refusal(one(registry, FinishRemoval(NodeId(3)))) is Refusal.NODE_IN_USE
    assert refusal(one(registry, FinishRemoval(NodeId(9)))) is Refusal.UNKNOWN_NODE


def test_somebody_stays_and_who_never_came_leaves_no_trace() -> None:
    registry = five()
    run(registry, add(6), remove(6))
    assert (registry.admitted, registry.removed) == ({}, frozenset())
    results = run(registry, *map(remove, range(1, 6)))
    assert [refusal(result) for result in results] == [None] * 4 + [Refusal.LAST_NODE]
    assert refusal(one(registry, remove(9))) is Refusal.UNKNOWN_NODE


def test_nodes_that_are_to_come_count_as_nodes() -> None:
    registry = five()
    results = run(registry, *(add(node) for node in range(6, NODES_MAX + 2)))
    assert [refusal(result) for result in results[-2:]] == [None, Refusal.TOO_MANY_NODES]
    assert isinstance(one(registry, register(NODES_MAX)), Done), "it has its room already"


# ---- replica sets --------------------------------------------------------------------------------


def test_sets_are_compared_and_set_and_the_groups_not_named_keep_theirs() -> None:
    registry = five()
    assert isinstance(one(registry, sets({1: (5, 1, 4)}, 0)), Done)
    assert registry.replica_set(GroupId(1)) == (1, 4, 5)
    assert registry.members(GroupId(1)) == (2, 3, 4), "it is a wish, so far"
    assert refusal(one(registry, sets({2: (1, 2, 5)}, 0))) is Refusal.REPLICAS_CONFLICT
    assert isinstance(one(registry, sets({2: (1, 2, 5)}, 1)), Done)
    assert registry.replica_set(GroupId(1)) == (1, 4, 5)
    seen = registry.versions
    run(registry, sets({2: (5, 2, 1)}))
    assert registry.versions == seen, "nothing new"


@pytest.mark.parametrize(
    ("wanted", "reason"),
    [
        ({9: (1,)}, Refusal.UNKNOWN_GROUP),
        ({1: (9,)}, Refusal.UNKNOWN_NODE),
        ({1: ()}, Refusal.INVALID_REPLICAS),
        ({1: (1, 1)}, Refusal.INVALID_REPLICAS),
        ({2: (1, 2, 5), 1: (9,)}, Refusal.UNKNOWN_NODE),
    ],
)
def test_sets_that_make_no_sense_change_nothing(
    wanted: dict[int, tuple[int, ...]], reason: Refusal
) -> None:
    registry = five()
    before = registry.versions
    assert refusal(one(registry, sets(wanted))) is reason
    assert registry.versions == before


def test_the_newest_slot_knows_the_members() -> None:
    """A late master, or a command that is applied twice, sets nothing back."""
    registry = five()
    run(registry, note(1, 7, 2, 3, 4, 5))
    seen = registry.versions
    run(registry, note(1, 7, 2, 3), note(1, 6, 2))
    assert registry.versions == seen
    assert (registry.members(GroupId(1)), registry.members_since(GroupId(1))) == ((2, 3, 4, 5), 7)
    run(registry, note(1, 8, 3, 4, 5))
    assert registry.members(GroupId(1)) == (3, 4, 5)
    for wrong in (note(1, 9), note(1, 9, 3, 3)):
        assert refusal(one(registry, wrong)) is Refusal.INVALID_REPLICAS
    assert refusal(one(registry, note(6, 9, 3))) is Refusal.UNKNOWN_GROUP


def test_a_masters_place_is_on_a_member_or_on_who_is_to_be_one() -> None:
    registry = five()
    wrong = one(registry, MergePlacement(None, GroupId(1), NodeId(5)))
    assert isinstance(wrong, Refused)
    assert (wrong.reason, wrong.detail) == (
        Refusal.NOT_A_MEMBER,
        "node 5 has no replica of Paxos group 1",
    )
    assert refusal(one(registry, PinGroup(GroupId(1), NodeId(5)))) is Refusal.NOT_A_MEMBER
    assert registry.pins == {}
    run(registry, sets({1: (3, 4, 5)}))
    run(registry, MergePlacement(None, GroupId(1), NodeId(5)))
    assert registry.placement == {1: 5}
    run(registry, sets({1: (2, 3, 4)}))  # existing ones may stay while others change
    run(registry, MergePlacement(None, GroupId(2), NodeId(3)))
    assert registry.placement == {1: 5, 2: 3}


def test_a_set_made_by_hand_is_the_operators_until_it_is_given_back() -> None:
    registry = five()
    run(registry, sets({1: (1, 2, 3)}, by_hand=True))
    assert registry.sets_by_hand == {1}
    run(registry, PinGroup(GroupId(1), None))
    assert registry.sets_by_hand == frozenset()
    run(registry, sets({2: (3, 4, 5)}, by_hand=True), sets({2: (1, 4, 5)}))
    assert registry.sets_by_hand == frozenset(), "the planner had to change it"


def test_changes_of_sets_are_remembered_with_their_reasons() -> None:
    registry = five()
    reasons = {GroupId(1): "node-dead:2"}
    run(registry, sets({1: (3, 4, 5)}, node=NodeId(2), wall_ns=5, trigger="t", reasons=reasons))
    assert registry.replica_history[-1].changes == (
        ReplicaChange(GroupId(1), nodes(2, 3, 4), nodes(3, 4, 5), "node-dead:2"),
    )
    for turn in range(REPLICA_RECORDS_MAX + 3):
        run(registry, sets({1: (1, 2, 3 + turn % 2)}))
    assert len(registry.replica_history) == REPLICA_RECORDS_MAX


# ---- any commands --------------------------------------------------------------------------------

few_nodes = st.integers(1, 7)
few_groups = st.integers(0, 3)
some_nodes = st.lists(few_nodes, min_size=1, max_size=4, unique=True).map(tuple)
SCRIPTS = st.lists(
    st.one_of(
        st.builds(register, few_nodes, st.integers(1, 3)),
        st.builds(add, few_nodes),
        st.builds(remove, few_nodes),
        few_nodes.map(lambda node: FinishRemoval(NodeId(node))),
        st.builds(sets, st.dictionaries(few_groups, some_nodes, min_size=1, max_size=3)),
        st.builds(lambda group, slot, them: note(group, slot, *them), few_groups, few_groups,
                  some_nodes),
        st.builds(lambda group, node: placement({group: node}), few_groups, few_nodes),
        st.builds(lambda group, node: PinGroup(GroupId(group), NodeId(node)), few_groups,
                  few_nodes),
    ),
    max_size=40,
)  # fmt: skip


@given(SCRIPTS)
def test_whatever_is_asked_the_registry_stays_whole(script: list[Command]) -> None:
    """A removed node is in no set and never comes back; a node that has something stays; every
    group is on some node; and a node that restores an image has the same state."""
    registry = five(groups=3)
    removed: frozenset[NodeId] = frozenset()
    for command in script:
        run(registry, command)
        assert removed <= registry.removed
        removed = registry.removed
        assert removed.isdisjoint(registry.peers)
        assert removed.isdisjoint(registry.placement.values())
        assert registry.nodes.keys().isdisjoint(registry.admitted)
        assert any(not known.leaving for known in registry.nodes.values())
        for group in map(GroupId, registry.groups):
            assert registry.members(group)
            assert 0 < len(registry.replica_set(group)) <= REPLICAS_MAX
    assert Registry.restore(registry.snapshot()).snapshot() == registry.snapshot()
