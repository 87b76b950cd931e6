"""The planner: always even, fewest moves, the same on every node."""

from collections.abc import Collection, Mapping
from itertools import product
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.planner.planner import Plan, PlanReason, all_on, even_placement, solve
from balancer.planner.problem import GroupNeed, NodeOffer, Problem, Unfit
from paxos.ids import GroupId, NodeId


def groups(count: int) -> list[GroupId]:
    return [GroupId(number) for number in range(count)]


def nodes(*numbers: int) -> list[NodeId]:
    return [NodeId(number) for number in numbers]


def placed(text: str) -> dict[GroupId, NodeId]:
    """`"1123"`: groups 0 and 1 on node 1, group 2 on node 2, group 3 on node 3; `.` is nowhere."""
    return {GroupId(at): NodeId(int(node)) for at, node in enumerate(text) if node != "."}


def drawn(plan: Plan) -> str:
    return "".join(str(node) for node in plan.placement.values())


def loads(plan: Plan, usable: list[NodeId]) -> list[int]:
    return [list(plan.placement.values()).count(node) for node in usable]


def planned(
    groups: list[GroupId],
    nodes: list[NodeId],
    current: Mapping[GroupId, NodeId],
    *,
    excluded: Collection[NodeId] = (),
    pinned: Mapping[GroupId, NodeId] | None = None,
) -> Plan:
    """By count, all nodes alike."""
    offers = [NodeOffer(node, unfit=Unfit.DRAINING if node in excluded else None) for node in nodes]
    return solve(
        Problem(
            nodes=tuple(offers),
            groups=tuple(map(GroupNeed, groups)),
            current=current,
            pinned=pinned or {},
        )
    )


@attrs.frozen
class Case:
    groups: list[GroupId]
    nodes: list[NodeId]
    current: dict[GroupId, NodeId]
    excluded: list[NodeId]
    pinned: dict[GroupId, NodeId]

    def plan(self) -> Plan:
        return planned(
            self.groups, self.nodes, self.current, excluded=self.excluded, pinned=self.pinned
        )

    @property
    def usable(self) -> list[NodeId]:
        return sorted(set(self.nodes) - set(self.excluded))


@st.composite
def cases(draw: st.DrawFn, groups_max: int = 60, nodes_max: int = 10, pins_max: int = 4) -> Case:
    some_groups = groups(draw(st.integers(0, groups_max)))
    known = nodes(*range(1, draw(st.integers(1, nodes_max)) + 1))
    anyone = st.sampled_from([*known, NodeId(99)])
    current = draw(st.dictionaries(st.sampled_from(some_groups), anyone)) if some_groups else {}
    pinned = {}
    if some_groups and pins_max:
        pinned = draw(st.dictionaries(st.sampled_from(some_groups), anyone, max_size=pins_max))
    return Case(
        some_groups,
        draw(st.permutations(known)),
        current,
        draw(st.lists(st.sampled_from(known), max_size=len(known) - 1, unique=True)),
        pinned,
    )


@pytest.mark.parametrize(
    ("before", "usable", "after"),
    [
        ("111111", (1, 2, 3), "112323"),
        ("123123", (1, 2, 3), "123123"),
        ("1122", (1, 2, 3), "1123"),
        ("11112", (1, 2), "11122"),
        ("22221", (1, 2), "22211"),
        ("......", (1, 2, 3), "123123"),
        ("121212", (1, 3), "131313"),
        ("1112223", (1, 2, 3), "1112233"),
        ("1", (2,), "2"),
        ("", (1, 2), ""),
    ],
)
def test_small_clusters(before: str, usable: tuple[int, ...], after: str) -> None:
    """A cluster as a literal, and the plan for it."""
    plan = planned(groups(len(before)), nodes(*usable), placed(before))
    assert drawn(plan) == after


def test_every_decision_has_its_reason() -> None:
    """Node 3 is drained, group 5 is pinned, group 6 is new: each reason is given."""
    plan = planned(
        groups(7),
        nodes(1, 2, 3),
        placed("111132."),
        excluded=nodes(3),
        pinned={GroupId(5): NodeId(1)},
    )
    assert drawn(plan) == "1112212"
    assert [one.reason for one in plan.decisions] == [
        PlanReason.STAYS,
        PlanReason.STAYS,
        PlanReason.STAYS,
        PlanReason.EVENNESS,
        PlanReason.NODE_UNUSABLE,
        PlanReason.PINNED,
        PlanReason.UNPLACED,
    ]
    assert [one.group for one in plan.moves] == [3, 4, 5, 6]


def test_with_no_usable_node_everything_stays() -> None:
    plan = planned(groups(3), nodes(1, 2), placed("12."), excluded=nodes(1, 2))
    assert plan.placement == placed("12.")
    assert not plan.moves
    assert {one.reason for one in plan.decisions} == {PlanReason.NO_USABLE_NODE}


def test_a_pin_to_an_unusable_node_is_disregarded() -> None:
    pinned = {GroupId(0): NodeId(2)}
    plan = planned(groups(2), nodes(1, 2), placed("12"), excluded=nodes(2), pinned=pinned)
    assert drawn(plan) == "11"
    assert plan.decisions[0].reason is PlanReason.STAYS


def test_pins_count_for_the_load_of_their_node() -> None:
    """Four groups pinned to node 1 are more than its share: the rest is spread evenly over the
    others."""
    pinned = {GroupId(number): NodeId(1) for number in range(4)}
    plan = planned(groups(8), nodes(1, 2, 3), placed("11111111"), pinned=pinned)
    assert drawn(plan) == "11112323"


@given(cases(pins_max=0))
def test_masters_are_always_even(case: Case) -> None:
    """Without pins no node has two groups more than another."""
    counts = loads(case.plan(), case.usable)
    assert sum(counts) == len(case.groups)
    assert max(counts) - min(counts) <= 1


@given(cases())
def test_pins_hold_and_nothing_goes_to_an_excluded_node(case: Case) -> None:
    plan = case.plan()
    assert set(plan.placement.values()) <= set(case.usable)
    for group, node in case.pinned.items():
        if node in case.usable:
            assert plan.placement[group] == node


@given(cases())
def test_an_even_placement_moves_nothing(case: Case) -> None:
    """Planning again from the plan's own result changes nothing."""
    first = case.plan()
    again = attrs.evolve(case, current=dict(first.placement)).plan()
    assert again.moves == ()
    assert again.placement == first.placement


@given(cases(), st.randoms(use_true_random=False))
def test_every_node_makes_the_same_plan(case: Case, dice: Random) -> None:
    """The order in which groups, nodes and masters are listed does not matter."""
    shuffled_groups, shuffled_nodes = list(case.groups), list(case.nodes)
    shuffled_current = list(case.current.items())
    for one in (shuffled_groups, shuffled_nodes, shuffled_current):
        dice.shuffle(one)
    other = attrs.evolve(
        case, groups=shuffled_groups, nodes=shuffled_nodes, current=dict(shuffled_current)
    )
    assert other.plan() == case.plan()


@settings(max_examples=60, deadline=None)
@given(cases(groups_max=6, nodes_max=3, pins_max=2))
def test_no_placement_as_even_needs_fewer_moves(case: Case) -> None:
    """Brute force over all placements of small clusters: as even as possible, then fewest moves."""
    pins = {group: node for group, node in case.pinned.items() if node in case.usable}

    def cost(nodes_of: tuple[NodeId, ...]) -> tuple[int, int]:
        squares = sum(nodes_of.count(node) ** 2 for node in case.usable)
        moved = sum(
            node != case.current.get(group)
            for group, node in zip(case.groups, nodes_of, strict=True)
        )
        return squares, moved

    best = min(
        cost(candidate)
        for candidate in product(case.usable, repeat=len(case.groups))
        if all(candidate[group] == node for group, node in pins.items())
    )
    assert cost(tuple(case.plan().placement.values())) == best


@given(cases(groups_max=200, pins_max=0))
def test_moves_reach_the_lower_bound(case: Case) -> None:
    """At any size: a usable node gives away exactly what it has above its final share."""
    plan = case.plan()
    shares = dict(zip(case.usable, loads(plan, case.usable), strict=True))
    held = [case.current.get(group) for group in case.groups]
    staying = sum(min(held.count(node), share) for node, share in shares.items())
    assert len(plan.moves) == len(case.groups) - staying
    most = len(case.groups) // len(case.usable) + 1
    extras = len(case.groups) % len(case.usable)
    could_stay_more = sum(held.count(node) >= most for node in case.usable)
    used = sum(held.count(node) >= most == shares[node] for node in case.usable)
    assert used == min(extras, could_stay_more), "an extra went where nobody stays for it"


def test_a_new_cluster_is_interleaved() -> None:
    """B6: both sorted, dealt out in turn."""
    assert even_placement(groups(5), nodes(3, 1, 2)) == placed("12312")
    assert even_placement(groups(2), []) == {}


def test_all_on_one_node() -> None:
    assert all_on(groups(3), NodeId(2)) == placed("222")
