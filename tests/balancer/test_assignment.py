"""Assignments are optimal, by brute force; and their prices prove it at any size."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.planner.assignment import (
    Assignment,
    AssignmentProblem,
    Place,
    best,
    objection,
    prices_of,
)
from paxos.ids import GroupId, NodeId


@st.composite
def problems(
    draw: st.DrawFn, groups_max: int, nodes_max: int, demand_max: int
) -> AssignmentProblem:
    nodes = [NodeId(one) for one in range(1, draw(st.integers(1, nodes_max)) + 1)]
    places = st.builds(Place, st.sampled_from([0, 0, 0, 0, 1]), st.integers(0, 3))
    choices: dict[GroupId, dict[NodeId, Place]] = {}
    demand, start, zone_most = {}, {}, {}
    for group in map(GroupId, range(draw(st.integers(0, groups_max)))):
        mine = draw(st.lists(st.sampled_from(nodes), min_size=1, unique=True))
        choices[group] = {node: draw(places) for node in sorted(mine)}
        demand[group] = draw(st.integers(0, min(demand_max, len(mine))))
        start[group] = draw(st.lists(st.sampled_from(mine), max_size=demand[group], unique=True))
        if draw(st.integers(0, 3)):
            zone_most[group] = draw(st.integers(1, 2))
    zone = {node: draw(st.sampled_from("aabc")) for node in nodes}
    capacity = {node: draw(st.sampled_from([1, 2, 2, 4])) for node in nodes}
    zones_first, level = draw(st.booleans()), draw(st.booleans())
    shares = Counter[str]()
    for node in nodes:
        shares[zone[node]] += 0 if zones_first else capacity[node]
    return AssignmentProblem(
        choices=choices,
        demand=demand,
        start=start,
        capacity=capacity,
        fixed={node: draw(st.integers(0, 2)) for node in nodes},
        zone=zone,
        zone_most=zone_most,
        zone_share={one: share or 1 for one, share in shares.items()} if level else {},
        zones_first=zones_first,
    )


Cost = tuple[int, int, Fraction, Fraction, int]


def cost(problem: AssignmentProblem, sets: dict[GroupId, tuple[NodeId, ...]]) -> Cost:
    """The cost by the module's definition, computed independently."""
    penalty = price = excess = 0
    counts = Counter(problem.fixed)
    for group, members in sets.items():
        counts.update(members)
        penalty += sum(problem.choices[group][node].penalty for node in members)
        price += sum(problem.choices[group][node].price for node in members)
        if group in problem.zone_most:
            zones = Counter(problem.zone[node] for node in members)
            excess += sum(max(0, one - problem.zone_most[group]) for one in zones.values())
    in_zones = Counter[str]()
    for node, count in counts.items():
        in_zones[problem.zone[node]] += count
    squares = sum(
        (Fraction(in_zones[zone] ** 2, share) for zone, share in problem.zone_share.items()),
        Fraction(0),
    )
    nodes = sum(
        (Fraction(counts[node] ** 2, capacity) for node, capacity in problem.capacity.items()),
        Fraction(0),
    )
    uneven = (squares, nodes) if problem.zones_first else (nodes, squares)
    return penalty, excess, *uneven, price


def taken(found: Assignment) -> dict[GroupId, tuple[NodeId, ...]]:
    return {group: tuple(sorted(members)) for group, members in found.sets.items()}


@settings(max_examples=300, deadline=None)
@given(problems(groups_max=4, nodes_max=4, demand_max=2))
def test_brute_force_finds_nothing_better(problem: AssignmentProblem) -> None:
    found = best(problem)
    assert {group: len(members) for group, members in found.sets.items()} == dict(problem.demand)
    candidates = product(
        *(combinations(problem.choices[group], demand) for group, demand in problem.demand.items())
    )
    least = min(cost(problem, dict(zip(problem.demand, one, strict=True))) for one in candidates)
    assert cost(problem, taken(found)) == least
    if found.prices is not None:
        assert objection(_at(problem, found), found.prices) is None


def _at(problem: AssignmentProblem, found: Assignment) -> AssignmentProblem:
    return AssignmentProblem(
        choices=problem.choices,
        demand=problem.demand,
        start=taken(found),
        capacity=problem.capacity,
        fixed=problem.fixed,
        zone=problem.zone,
        zone_most=problem.zone_most,
        zone_share=problem.zone_share,
        zones_first=problem.zones_first,
    )


@settings(max_examples=40, deadline=None)
@given(problems(groups_max=40, nodes_max=9, demand_max=3))
def test_at_any_size_prices_prove_it(problem: AssignmentProblem) -> None:
    found = best(problem)
    assert found.prices is not None
    there = _at(problem, found)
    assert objection(there, found.prices) is None
    assert prices_of(there) is not None
    assert best(there).sets == found.sets, "what is best stays"


def test_prices_prove_nothing_of_another_assignment() -> None:
    """Node 1 has everything; neither the prices of the even assignment nor any others hold
    there."""
    groups = [GroupId(one) for one in range(4)]
    nodes = [NodeId(1), NodeId(2)]
    crowded = AssignmentProblem(
        choices={group: {node: Place(0, node - 1) for node in nodes} for group in groups},
        demand=dict.fromkeys(groups, 1),
        start=dict.fromkeys(groups, nodes[:1]),
        capacity=dict.fromkeys(nodes, 1),
        fixed={},
        zone=dict.fromkeys(nodes, ""),
    )
    found = best(crowded)
    assert Counter(node for members in found.sets.values() for node in members) == {1: 2, 2: 2}
    assert found.prices is not None
    assert objection(crowded, found.prices) is not None
    assert prices_of(crowded) is None
    assert objection(_at(crowded, found), {}) == "a price is missing"
