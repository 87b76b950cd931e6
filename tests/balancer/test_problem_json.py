"""A planning problem as JSON: it round-trips, or is refused with a reason."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from balancer.planner.planner import solve
from balancer.planner.problem import Evenness, GroupNeed, NodeOffer, Objectives, Problem, Unfit
from balancer.problem_json import NODE_ID_MAX, ProblemError, from_json, to_json
from balancer.registry.policy import PERCENT_MAX, WEIGHT_MAX
from balancer.registry.records import GROUPS_MAX
from paxos.ids import GroupId, NodeId

node_ids = st.integers(0, NODE_ID_MAX).map(NodeId)
group_ids = st.integers(0, GROUPS_MAX).map(GroupId)
places = st.dictionaries(group_ids, node_ids, max_size=5)
offers = st.builds(
    NodeOffer,
    node_ids,
    st.text(max_size=4),
    st.integers(0, PERCENT_MAX),
    st.none() | st.sampled_from(Unfit),
)
needs = st.builds(
    GroupNeed,
    group_ids,
    st.integers(0, WEIGHT_MAX),
    st.dictionaries(st.text(max_size=4), st.integers(0, 99), max_size=3),
    st.none() | st.frozensets(node_ids, max_size=4),
)
problems = st.builds(
    Problem,
    nodes=st.lists(offers, max_size=4, unique_by=lambda one: one.node).map(tuple),
    groups=st.lists(needs, max_size=4, unique_by=lambda one: one.group).map(tuple),
    current=places,
    pinned=places,
    paused=st.frozensets(group_ids, max_size=4),
    objectives=st.builds(
        Objectives,
        evenness=st.sampled_from(Evenness),
        spread_zones=st.booleans(),
        preferred_zones=st.lists(st.text(max_size=4), max_size=3).map(tuple),
        tolerance_percent=st.integers(0, PERCENT_MAX),
        topic_excess_max=st.none() | st.integers(0, PERCENT_MAX),
    ),
)
SMALL = Problem(
    nodes=(NodeOffer(NodeId(1), "a"), NodeOffer(NodeId(2), "b", 50, Unfit.LAGGING)),
    groups=(GroupNeed(GroupId(3), 500, {"orders": 2}, frozenset({NodeId(1)})),),
    current={GroupId(3): NodeId(2)},
    pinned={GroupId(3): NodeId(1)},
    paused=frozenset({GroupId(4)}),
    objectives=Objectives(evenness=Evenness.WEIGHT, preferred_zones=("a",), topic_excess_max=2),
)


@given(problems)
def test_a_problem_comes_back_as_it_went(problem: Problem) -> None:
    assert from_json(json.loads(json.dumps(to_json(problem)))) == problem


def test_the_plan_is_the_one_the_node_would_make() -> None:
    assert solve(from_json(to_json(SMALL))) == solve(SMALL)


def test_what_a_newer_node_adds_is_passed_over() -> None:
    told = to_json(SMALL) | {"weather": "fine"}
    told["nodes"][0]["colour"] = "blue"
    assert from_json(told) == SMALL


@pytest.mark.parametrize(
    ("path", "wrong"),
    [
        ("nodes", {}),
        ("nodes.0", 1),
        ("nodes.0.id", "1"),
        ("nodes.0.id", True),
        ("nodes.0.id", 2),
        ("nodes.0.zone", None),
        ("nodes.0.capacity", -1),
        ("nodes.0.unfit", "tired"),
        ("groups.0.group", GROUPS_MAX + 1),
        ("groups.0.weight", 1.5),
        ("groups.0.topics", []),
        ("groups.0.topics.orders", None),
        ("groups.0.members", 7),
        ("groups.0.members.0", -1),
        ("current.3", "1"),
        ("current.x", 1),
        ("pinned", []),
        ("paused.0", None),
        ("wishes", 3),
        ("wishes.evenness", "size"),
        ("wishes.spread_zones", 1),
        ("wishes.preferred_zones", "a"),
        ("wishes.tolerance_percent", PERCENT_MAX + 1),
        ("wishes.topic_excess_max", -2),
    ],
)
def test_what_makes_no_sense_is_refused(path: str, wrong: object) -> None:
    told: Any = to_json(SMALL)
    *way, last = (int(part) if part.isdigit() else part for part in path.split("."))
    spot = told
    for part in way:
        spot = spot[part]
    spot[str(last) if isinstance(spot, dict) else last] = wrong
    with pytest.raises(ProblemError):
        from_json(told)


@pytest.mark.parametrize("value", [None, [], 5, "x"])
def test_what_is_no_object_is_refused(value: object) -> None:
    with pytest.raises(ProblemError):
        from_json(value)
