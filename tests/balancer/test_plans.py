"""The planner with all options of an operator, and the proofs that come with its plans."""

from collections.abc import Mapping
from itertools import product
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.planner import proof as proofs
from balancer.planner.levels import Ceilings, ceilings, weights_on
from balancer.planner.planner import Plan, PlanReason, solve
from balancer.planner.problem import (
    Evenness,
    Frame,
    GroupNeed,
    NodeOffer,
    Objectives,
    Problem,
    Unfit,
    frame,
)
from balancer.planner.proof import (
    Certificate,
    Proof,
    count_moves,
    counts_on,
    objections,
    reached,
)
from balancer.planner.topic_spread import total_excess
from paxos.ids import GroupId, NodeId


def offers(text: str) -> tuple[NodeOffer, ...]:
    """`"1a 2a 3b*50 4b!"`: node, zone, capacity in percent; `!` is draining."""
    made = []
    for word in text.split():
        unfit = Unfit.DRAINING if word.endswith("!") else None
        name, _, capacity = word.rstrip("!").partition("*")
        made.append(NodeOffer(NodeId(int(name[0])), name[1:], int(capacity or 100), unfit))
    return tuple(made)


def placed(text: str) -> dict[GroupId, NodeId]:
    return {GroupId(at): NodeId(int(node)) for at, node in enumerate(text) if node != "."}


def needs(text: str, weights: str = "", topics: str = "") -> tuple[GroupNeed, ...]:
    """One group per character; weights as digits; a topic's letter per group."""
    return tuple(
        GroupNeed(
            GroupId(at),
            int(weights[at]) * 100 if weights else 1_000,
            {topics[at]: 1} if topics and topics[at] != "." else {},
        )
        for at in range(len(text))
    )


def planned(
    nodes: str,
    before: str,
    objectives: Objectives | None = None,
    *,
    weights: str = "",
    topics: str = "",
    pinned: dict[int, int] | None = None,
    paused: tuple[int, ...] = (),
) -> tuple[Problem, Plan]:
    problem = Problem(
        nodes=offers(nodes),
        groups=needs(before, weights, topics),
        current=placed(before),
        pinned={GroupId(group): NodeId(node) for group, node in (pinned or {}).items()},
        paused=frozenset(GroupId(group) for group in paused),
        objectives=objectives or Objectives(),
    )
    plan = solve(problem)
    assert plan.certificate is not None
    assert objections(frame(problem), plan.placement, plan.certificate) == []
    return problem, plan


def drawn(plan: Plan) -> str:
    return "".join(str(node) for node in plan.placement.values())


def reasons(plan: Plan) -> dict[int, PlanReason]:
    return {int(one.group): one.reason for one in plan.moves}


# ---- by count ------------------------------------------------------------------------------------


def test_a_node_of_half_the_capacity_gets_half_the_groups() -> None:
    _, plan = planned("1*100 2*100 3*50", "1111111111")
    assert sorted(drawn(plan)) == list("1111222233")


def test_a_node_without_capacity_is_no_target_and_says_so() -> None:
    _, plan = planned("1 2*0", "1122")
    assert drawn(plan) == "1111"
    assert [one.detail for one in plan.moves] == ["no-capacity", "no-capacity"]


def test_zones_get_equal_shares_before_nodes_do() -> None:
    """Three nodes in zone a, one in zone b: with zones first, b's node gets half."""
    _, plan = planned("1a 2a 3a 4b", "111222333444", Objectives(spread_zones=True))
    assert sorted(drawn(plan)) == list("112233444444")
    _, level = planned("1a 2a 3a 4b", "111222333444")
    assert level.moves == ()


def test_the_odd_group_goes_to_the_zone_where_nodes_stay_level() -> None:
    """Found by Hypothesis: zone totals of 1 and 2 are as even as 2 and 1, but the nodes are not."""
    _, plan = planned("1a 2a 3b", "33.", Objectives(spread_zones=True))
    assert sorted(drawn(plan)) == list("123")


def test_preferred_zones_hold_while_one_of_their_nodes_is_usable() -> None:
    """Groups are even inside the zone; when all of it drains, the others take over."""
    objectives = Objectives(preferred_zones=("a",))
    _, plan = planned("1a 2a 3b", "123123", objectives)
    assert sorted(drawn(plan)) == list("111222")
    assert set(reasons(plan).values()) == {PlanReason.ZONE}
    _, elsewhere = planned("1a! 2a! 3b", "112233", objectives)
    assert drawn(elsewhere) == "333333"


def test_a_paused_group_stays_even_on_a_node_that_drains() -> None:
    _, plan = planned("1! 2", "11", paused=(0,))
    assert drawn(plan) == "12"
    assert plan.decisions[0].reason is PlanReason.PAUSED
    assert plan.decisions[1].detail == "draining"


def test_a_paused_group_counts_for_its_node() -> None:
    """Of four groups on node 1, the two that may move do."""
    _, plan = planned("1 2", "1111", paused=(0, 1))
    assert drawn(plan) == "1122"


def test_topics_break_ties_without_a_move_more() -> None:
    """Node 1 gives two groups away: one of each topic, and each goes to a node without its
    topic."""
    _, plan = planned("1 2", "1111", topics="aabb")
    assert len(plan.moves) == 2
    for node in "12":
        there = [topic for topic, at in zip("aabb", drawn(plan), strict=True) if at == node]
        assert sorted(there) == ["a", "b"]


def test_a_topic_on_one_node_is_spread_by_swaps_if_an_operator_wants_it() -> None:
    """Counts are even already; topic a has all its partitions on node 1."""
    _, as_it_is = planned("1 2", "1111222222"[:8], topics="aaaabbbb")
    assert as_it_is.moves == ()
    problem, plan = planned("1 2", "11112222", Objectives(topic_excess_max=0), topics="aaaabbbb")
    assert total_excess(frame(problem), plan.placement) == 0
    assert set(reasons(plan).values()) == {PlanReason.TOPICS}
    assert len(plan.moves) == 4
    assert plan.certificate is not None
    assert plan.certificate.proven


# ---- groups that are not everywhere --------------------------------------------------------------


def on_members(nodes: str, before: str, members: str, **rest: dict[int, int]) -> Plan:
    """`members`: `"12 23"`, the members of each group."""
    problem = Problem(
        nodes=offers(nodes),
        groups=tuple(
            GroupNeed(GroupId(at), members=frozenset(NodeId(int(one)) for one in word))
            for at, word in enumerate(members.split())
        ),
        current=placed(before),
        pinned={GroupId(group): NodeId(node) for group, node in rest.get("pinned", {}).items()},
    )
    plan = solve(problem)
    assert plan.certificate is not None
    assert objections(frame(problem), plan.placement, plan.certificate) == []
    return plan


def test_a_master_is_on_a_member_and_as_even_as_members_allow() -> None:
    """Node 3 can only get the last group; the certificate proves that two moves are necessary."""
    plan = on_members("1 2 3", "1111", "12 12 12 13")
    assert drawn(plan) == "2113"
    assert plan.certificate is not None
    assert plan.certificate.proof is Proof.PRICES


def test_masters_change_places_in_a_chain_where_members_leave_no_other_way() -> None:
    """Node 1 has two, node 3 none, and they share no group: node 2 passes one on."""
    plan = on_members("1 2 3", "112", "12 12 23")
    assert drawn(plan) in ("123", "213")
    assert [one.reason for one in plan.moves] == [PlanReason.EVENNESS] * 2


def test_a_master_that_is_no_member_any_more_has_to_go() -> None:
    plan = on_members("1 2 3", "13", "12 12")
    assert drawn(plan) == "12"
    assert reasons(plan) == {1: PlanReason.NOT_A_MEMBER}


def test_without_a_usable_member_a_group_stays_and_a_pin_elsewhere_is_only_mentioned() -> None:
    plan = on_members("1 2! 3", "21", "2 12", pinned={1: 3})
    assert drawn(plan) == "21"
    assert [(one.reason, one.detail) for one in plan.decisions] == [
        (PlanReason.WAITS, "no usable member"),
        (PlanReason.STAYS, "pinned to 3, no member"),
    ]


# ---- by weight -----------------------------------------------------------------------------------

BY_WEIGHT = Objectives(evenness=Evenness.WEIGHT)


def test_weights_within_the_tolerance_move_nothing() -> None:
    _, plan = planned("1 2", "1122", BY_WEIGHT, weights="5556")
    assert plan.moves == ()


def test_one_heavy_group_moves_rather_than_two_light_ones() -> None:
    """And of those that suffice alone, the lightest."""
    _, plan = planned("1 2", "111112", BY_WEIGHT, weights="532116")
    assert reasons(plan) == {1: PlanReason.EVENNESS}
    assert plan.certificate is not None
    assert plan.certificate.proven


def test_a_group_heavier_than_a_share_keeps_its_node_to_itself() -> None:
    """It cannot be divided: the other groups share the other nodes."""
    _, plan = planned("1 2 3", "111111", BY_WEIGHT, weights="922222")
    assert drawn(plan)[0] == "1"
    loads = {node: drawn(plan)[1:].count(node) for node in "123"}
    assert loads["1"] == 0
    assert sorted((loads["2"], loads["3"])) == [2, 3]


def test_zones_share_weight_before_nodes_do() -> None:
    objectives = attrs.evolve(BY_WEIGHT, spread_zones=True)
    _, plan = planned("1a 2a 3b", "121212", objectives, weights="555555")
    assert drawn(plan).count("3") == 3


# ---- any problem ---------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn, groups_max: int, nodes_max: int) -> Problem:
    numbers = [NodeId(number) for number in range(1, draw(st.integers(1, nodes_max)) + 1)]
    zones, capacities = st.sampled_from(["a", "b", "c"]), st.sampled_from([100, 100, 100, 50, 200])
    unfit = st.sampled_from([None, None, None, None, Unfit.DEAD, Unfit.DRAINING, Unfit.LAGGING])
    nodes = [NodeOffer(node, draw(zones), draw(capacities), draw(unfit)) for node in numbers]
    some_members = st.none() | st.frozensets(st.sampled_from([*numbers, NodeId(99)]))
    everywhere = draw(st.booleans())
    groups = []
    for number in range(draw(st.integers(0, groups_max))):
        topics = draw(st.dictionaries(st.sampled_from("xyz"), st.integers(1, 3), max_size=2))
        members = draw(some_members) if not everywhere else None
        groups.append(GroupNeed(GroupId(number), draw(st.integers(1, 12)) * 100, topics, members))
    ids = st.sampled_from([one.group for one in groups]) if groups else st.nothing()
    anyone = st.sampled_from([*numbers, NodeId(99)])
    objectives = Objectives(
        evenness=draw(st.sampled_from(Evenness)),
        spread_zones=draw(st.booleans()),
        preferred_zones=draw(st.sampled_from([(), (), ("a",), ("b", "c")])),
        topic_excess_max=draw(st.sampled_from([None, None, 0, 1])),
    )
    return Problem(
        nodes=tuple(draw(st.permutations(nodes))),
        groups=tuple(draw(st.permutations(groups))),
        current=draw(st.dictionaries(ids, anyone)) if groups else {},
        pinned=draw(st.dictionaries(ids, anyone, max_size=2)) if groups else {},
        paused=draw(st.frozensets(ids, max_size=2)) if groups else frozenset(),
        objectives=objectives,
    )


def every_placement(framed: Frame) -> list[dict[GroupId, NodeId]]:
    current = framed.problem.current
    left = {group: current[group] for group in framed.left if group in current}
    return [
        {**framed.fixed, **left, **dict(zip(framed.free, targets, strict=True))}
        for targets in product(*map(framed.may, framed.free))
    ]


@settings(max_examples=150, deadline=None)
@given(problems(groups_max=5, nodes_max=3))
def test_brute_force_agrees_with_every_certificate(problem: Problem) -> None:
    """No plan with fewer moves is as even; on clusters this small it is always proven."""
    framed, plan = frame(problem), solve(problem)
    if plan.certificate is None:
        assert not framed.usable
        return
    assert plan.certificate.proven
    bar = proofs.EvennessBound.of(framed, plan.placement)
    fewest = min(
        count_moves(framed, candidate)
        for candidate in every_placement(framed)
        if bar.reached_by(candidate)
    )
    assert plan.certificate.moves == fewest


def test_a_search_costs_the_loop_no_more_than_its_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound for comparison is computed once: at each leaf it took seconds of the loop."""
    bars, leaves = [], []
    ceilings_of, reached_by = proofs.ceilings, proofs.EvennessBound.reached_by

    def counted(framed: Frame) -> Ceilings:
        bars.append(framed)
        return ceilings_of(framed)

    def looked(bar: proofs.EvennessBound, candidate: Mapping[GroupId, NodeId]) -> bool:
        leaves.append(candidate)
        return reached_by(bar, candidate)

    monkeypatch.setattr(proofs, "ceilings", counted)
    monkeypatch.setattr(proofs.EvennessBound, "reached_by", looked)
    plan = solve(
        Problem(
            nodes=offers("1 2 3 4 5"),
            groups=needs("11122233344", "97531864297", "abababababa"),
            current=placed("11122233344"),
            objectives=Objectives(evenness=Evenness.WEIGHT, topic_excess_max=0),
        )
    )
    assert plan.certificate is not None
    assert plan.certificate.proof is Proof.OPEN, "else nothing was searched for long"
    assert len(bars) < 20
    assert len(leaves) < 4 * proofs.SEARCH_STEPS_MAX // proofs.SEARCH_LEAF_STEPS


@settings(max_examples=100, deadline=None)
@given(problems(groups_max=5, nodes_max=3))
def test_by_count_nothing_at_all_is_more_even(problem: Problem) -> None:
    objectives = attrs.evolve(problem.objectives, evenness=Evenness.COUNT, topic_excess_max=None)
    problem = attrs.evolve(problem, objectives=objectives)
    framed, plan = frame(problem), solve(problem)
    if plan.certificate is None:
        return
    assert plan.certificate.proof is (Proof.PRICES if framed.choices else Proof.EXCHANGE)
    assert all(
        proofs.EvennessBound.of(framed, candidate).reached_by(plan.placement)
        for candidate in every_placement(framed)
    )


@settings(max_examples=60, deadline=None)
@given(problems(groups_max=30, nodes_max=8))
def test_every_plan_stands_up_to_its_checker(problem: Problem) -> None:
    framed, plan = frame(problem), solve(problem)
    if plan.certificate is not None:
        assert objections(framed, plan.placement, plan.certificate) == []
        assert plan.certificate.at_least <= plan.certificate.moves == len(plan.moves)
    assert [one.group for one in plan.decisions] == sorted(framed.needs)
    for one in plan.decisions:
        assert one.is_move or one.reason in (
            PlanReason.STAYS,
            PlanReason.PINNED,
            PlanReason.PAUSED,
            PlanReason.WAITS,
            PlanReason.NO_USABLE_NODE,
        )


@settings(max_examples=40, deadline=None)
@given(problems(groups_max=25, nodes_max=8), st.randoms(use_true_random=False))
def test_the_order_of_what_is_given_means_nothing(problem: Problem, dice: Random) -> None:
    nodes, groups, current = list(problem.nodes), list(problem.groups), list(problem.current)
    for one in (nodes, groups, current):
        dice.shuffle(one)
    other = attrs.evolve(
        problem,
        nodes=tuple(nodes),
        groups=tuple(groups),
        current={group: problem.current[group] for group in current},
    )
    assert solve(other) == solve(problem)


@settings(max_examples=60, deadline=None)
@given(problems(groups_max=25, nodes_max=8))
def test_a_plan_carried_out_needs_no_other(problem: Problem) -> None:
    """By count always, and by weight if all nodes ended below their ceilings."""
    first = solve(problem)
    again = attrs.evolve(problem, current=dict(first.placement))
    framed = frame(again)
    if total_excess(framed, first.placement):
        return  # no more swaps helped before the operator's bound was reached
    if problem.objectives.evenness is Evenness.WEIGHT:
        limits = ceilings(framed).limits
        loads = weights_on(framed, first.placement)
        if any(loads[node] > limits[node] for node in limits):
            return  # it cannot be packed so tightly
    assert solve(again).moves == ()


# ---- the checker itself --------------------------------------------------------------------------


def forged(plan: Plan, **changes: object) -> Certificate:
    assert plan.certificate is not None
    return attrs.evolve(plan.certificate, **changes)


def test_the_checker_finds_a_wasted_move() -> None:
    """Groups 0 and 1 have swapped nodes for nothing."""
    problem, plan = planned("1 2", "1212")
    wasteful = placed("2112")
    certificate = forged(plan, moves=2, at_least=2)
    found = objections(frame(problem), wasteful, certificate)
    assert found == ["2 moves where these counts need 0"]


def test_the_checker_finds_a_plan_that_could_be_more_even() -> None:
    problem, plan = planned("1 2", "1111")
    certificate = forged(plan, moves=1, limits=counts_on(frame(problem), placed("1112")))
    found = objections(frame(problem), placed("1112"), certificate)
    assert found == ["a group from node 1 to node 2 would be more even"]


def test_the_checker_finds_an_extra_place_given_to_the_wrong_node() -> None:
    """Three groups on node 1, two on node 2: the third may stay, but the plan moved it."""
    problem, plan = planned("1 2", "11122")
    certificate = forged(plan, moves=1, limits=counts_on(frame(problem), placed("11222")))
    found = objections(frame(problem), placed("11222"), certificate)
    assert found == ["as even with a move less: node 2 one less, node 1 one more"]


@pytest.mark.parametrize(
    ("placement", "text"),
    [("1", "group 1 is"), ("31", "node 3, which is not allowed"), ("12", "fixed on node 1")],
)
def test_the_checker_finds_what_no_plan_may_do(placement: str, text: str) -> None:
    problem, plan = planned("1 2 3!", "11", pinned={1: 1})
    assert plan.certificate is not None
    found = objections(frame(problem), placed(placement), plan.certificate)
    assert text in " ".join(found)


def test_the_checker_does_not_believe_a_bound_or_a_search() -> None:
    problem, plan = planned("1 2", "111112", BY_WEIGHT, weights="322113")
    framed = frame(problem)
    for proof in (Proof.BOUND, Proof.OPEN):
        assert objections(framed, plan.placement, forged(plan, proof=proof, at_least=0))
    worse = placed("112212")
    lied = forged(plan, proof=Proof.SEARCH, limits=reached(framed, worse))
    assert objections(framed, worse, attrs.evolve(lied, moves=2)) != []
