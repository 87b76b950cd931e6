"""An operator uses the balancer: show, plan, move, drain, cancel, policy; on three whole nodes.

Time is simulated; the stealing and the planning loops are the production ones. Each test waits
until the masters are where they should be.
"""

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from balancer.planner.planner import Plan, solve
from balancer.planner.problem import Evenness, Problem
from balancer.problem_json import from_json
from balancer.registry.commands import (
    AddNode,
    FoundCluster,
    NoteMembers,
    PauseBalancer,
    SetReplicaSets,
)
from balancer.registry.policy import Policy
from balancer.registry.records import Address
from cli import balance_view
from paxos.ids import GroupId, Incarnation, NodeId, Slot
from paxos.messages import StealRequest
from runtime.admin import balancer as admin
from tests.balancer.literals import register
from tests.runtime.http.test_http import Operator
from tests.runtime.offices import GROUPS, Cluster, everything_on


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster()
    cluster.until(cluster.is_placed)
    cluster.advance(1_000)
    return cluster


@pytest.fixture
def operator(cluster: Cluster) -> Operator:
    return Operator(cluster)


def counts(cluster: Cluster) -> list[int]:
    return sorted(Counter(cluster.masters().values()).values())


def is_even(cluster: Cluster) -> bool:
    return counts(cluster) == [2, 2, 3] and cluster.is_placed()


async def done(operator: Operator, path: str, body: object) -> Any:
    reply = await operator.post(path, body)
    assert reply.status == 200, reply.body
    return reply.json()


async def test_show_says_what_there_is(operator: Operator) -> None:
    shown = (await operator.get("/balancer")).json()
    assert [row["why"] for row in shown["groups"]] == ["in-place"] * (GROUPS + 1)
    assert [row["masters"] for row in shown["nodes"]] == [
        Counter(operator.placement().values())[node] for node in (1, 2, 3)
    ]
    assert shown["policy"]["automatic"] is True
    assert shown["planner"] in ("even", "not-ours")
    assert (shown["tokens"], shown["plans"]) == ([], [])
    assert {steal["outcome"] for steal in shown["steals"]} <= {"done"}


async def test_drain_empties_a_node_and_undrain_gives_it_its_share(
    cluster: Cluster, operator: Operator
) -> None:
    """The plan, its steals, and the way back; the operator asks for nothing but the drain."""
    await done(operator, "/admin/drain", {"node": 3, "draining": True})
    cluster.until(lambda: 3 not in cluster.masters().values() and cluster.is_placed())
    shown = (await operator.get("/balancer")).json()
    assert [row["unfit"] for row in shown["nodes"]] == [None, None, "draining"]
    assert shown["plans"][0]["trigger"] == "node 3 is draining"
    assert {move["reason"] for move in shown["plans"][0]["moves"]} == {"node-unusable:draining"}
    await done(operator, "/admin/drain", {"node": 3, "draining": False})
    cluster.until(lambda: is_even(cluster))
    assert set(cluster.finished()) == {"done"}


async def test_a_dead_node_is_planned_away_and_gets_its_share_when_it_is_back(
    cluster: Cluster, operator: Operator
) -> None:
    cluster.net.crash(cluster[3].member.node)
    cluster.until(lambda: 3 not in operator.placement().values(), ms_max=60_000)
    shown = (await operator.get("/balancer")).json()
    assert shown["plans"][-1]["trigger"] == "node 3 is dead"
    cluster.restart(3)
    cluster.until(lambda: is_even(cluster), ms_max=60_000)


async def test_a_dry_run_explains_and_changes_nothing(cluster: Cluster, operator: Operator) -> None:
    before = operator.placement()
    cluster.set_placement(everything_on(1))
    plan = await done(operator, "/admin/plan", {"dry_run": True})
    assert sum(one["move"] for one in plan["decisions"]) == plan["certificate"]["moves"] == 4
    assert plan["certificate"]["at_least"] == 4
    assert [one["groups_before"] for one in plan["nodes"]] == [7, 0, 0]
    assert sorted(one["groups_after"] for one in plan["nodes"]) == [2, 2, 3]
    assert operator.placement() == everything_on(1)
    adopted = await done(operator, "/admin/plan", {"dry_run": False})
    assert adopted["adopted"]
    cluster.until(lambda: is_even(cluster))
    assert operator.placement().keys() == before.keys()
    assert operator.cluster[1].registry.policy.automatic
    assert operator.cluster[1].registry.plans[-1].trigger == "operator"


@pytest.mark.parametrize(
    ("path", "body"), [("/admin/plan", {"dry_run": False}), ("/admin/placement", {"even": True})]
)
async def test_a_helper_thread_plans_and_an_outdated_plan_is_not_adopted(
    cluster: Cluster,
    operator: Operator,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    body: dict[str, object],
) -> None:
    """With hundreds of groups a plan takes longer than anything may hold the event loop."""
    cluster.set_placement(everything_on(1))
    loop, threads = threading.get_ident(), []

    def slow(problem: Problem) -> Plan:
        threads.append(threading.get_ident())
        if len(threads) == 1:  # meanwhile another operator decides
            trio.from_thread.run_sync(cluster.set_placement, everything_on(2))
        return solve(problem)

    monkeypatch.setattr(admin, "solve", slow)
    refused = await operator.post(path, body)
    assert refused.status == 409, refused.body
    assert operator.placement() == everything_on(2)
    await done(operator, path, body)
    assert len(threads) == 2
    assert loop not in threads
    cluster.until(lambda: is_even(cluster))


async def test_what_if_a_node_died(operator: Operator) -> None:
    before = operator.placement()
    plan = await done(operator, "/admin/plan", {"without": [2]})
    moved = {one["group"] for one in plan["decisions"] if one["move"]}
    assert moved == {group for group, node in before.items() if node == 2}
    assert {one["detail"] for one in plan["decisions"] if one["move"]} == {"dead"}
    assert operator.placement() == before


async def test_a_group_is_moved_by_hand_and_stays(cluster: Cluster, operator: Operator) -> None:
    group = next(group for group, node in operator.placement().items() if node == 2)
    await done(operator, "/admin/move", {"group": group, "node": 3})
    cluster.until(lambda: cluster.masters()[group] == 3)
    cluster.until(lambda: is_even(cluster))
    assert cluster.masters()[group] == 3
    shown = (await operator.get("/balancer")).json()
    assert [row["group"] for row in shown["groups"] if row["pinned"]] == [group]
    await done(operator, "/admin/move", {"group": group, "node": None})
    assert cluster[1].registry.pins == {}


async def test_a_paused_group_is_left_where_it_is(cluster: Cluster, operator: Operator) -> None:
    group = next(group for group, node in operator.placement().items() if node == 3)
    await done(operator, "/admin/balancer", {"paused": True, "group": group})
    await done(operator, "/admin/drain", {"node": 3, "draining": True})
    cluster.until(lambda: list(cluster.masters().values()).count(cluster[3].member.node) == 1)
    cluster.advance(3_000)
    assert cluster.masters()[group] == 3


async def test_a_cancelled_steal_is_not_handed_over_for(
    cluster: Cluster, operator: Operator, autojump_clock: MockClock
) -> None:
    """The master checks the token when it is asked; the group moves later, with another token."""
    assert "no steal is running" in await operator.refused("/admin/cancel", {})
    cluster.set_placement(everything_on(2))
    registry = cluster[1].registry
    cluster.until(lambda: registry.tokens)
    token = registry.tokens[0]
    office = cluster[token.source]
    version, number = token.master_version, token.token
    request = StealRequest(token.group, token.target_incarnation, version, Slot(0), number)
    now = office.member.engine.now()
    cluster.until(lambda: office.registry.last_token >= token.token)
    assert office.loop.may_hand_over(now, token.target, request) is True
    reply = await operator.post("/admin/cancel", {})
    assert reply.status == 200
    cluster.until(lambda: office.registry.token_numbered(token.token) is None)
    assert office.loop.may_hand_over(now, token.target, request) is False
    cluster.until(lambda: cluster.masters() == everything_on(2), ms_max=60_000)


async def test_the_policy_is_changed_field_by_field(operator: Operator) -> None:
    await done(operator, "/admin/policy", {"evenness": "weight", "capacities": {"2": 50}})
    await done(
        operator,
        "/admin/policy",
        {
            "steals_max": 2,
            "spread_zones": True,
            "preferred_zones": ["a", "b"],
            "topic_excess_max": 3,
            "capacities": {"1": 200},
        },
    )
    assert operator.cluster[1].registry.policy == Policy(
        evenness=Evenness.WEIGHT,
        capacities={1: 200, 2: 50},  # type: ignore[dict-item]
        steals_max=2,
        spread_zones=True,
        preferred_zones=("a", "b"),
        topic_excess_max=3,
    )
    shown = (await operator.get("/balancer")).json()["policy"]
    assert (shown["evenness"], shown["capacities"]) == ("weight", {"1": 200, "2": 50})
    reply = await operator.post("/admin/policy", {"steals_max": 99})
    assert reply.status == 409
    assert "invalid_policy" in reply.json()["error"]


async def test_published_weights_are_planned_by(cluster: Cluster, operator: Operator) -> None:
    now_ms = cluster[1].member.engine.now().wall_ns // 1_000_000
    group = next(iter(operator.placement()))
    weights = {str(group): 6_000 for group in operator.placement()} | {str(group): 100}
    body = {"source": "spark", "computed_wall_ms": now_ms - 301_000, "weights": weights}
    await done(operator, "/admin/weights", body)
    assert "ignored" in balance_view.show((await operator.get("/balancer")).json())
    await done(operator, "/admin/weights", body | {"computed_wall_ms": now_ms})
    await done(operator, "/admin/policy", {"evenness": "weight"})
    plan = await done(operator, "/admin/plan", {})
    assert (plan["by"], plan["weights"]) == ("weight", "spark")
    assert operator.cluster[1].registry.weights.weights[GroupId(group)] == 100
    shown = (await operator.get("/balancer")).json()
    assert shown["weights"]["published"]["computed_wall_ms"] == now_ms
    assert "published by spark" in balance_view.show(shown)
    assert "in use" in balance_view.show(shown)
    await done(operator, "/admin/policy", {"evenness": "count"})
    shown = (await operator.get("/balancer")).json()
    assert "not in use: evenness=count" in balance_view.show(shown)


async def test_weights_of_a_time_to_come_are_refused(cluster: Cluster, operator: Operator) -> None:
    """Otherwise a job with a wrong clock would keep all others out for as long as it is ahead."""
    now_ms = cluster[1].member.engine.now().wall_ns // 1_000_000
    body = {"source": "s", "computed_wall_ms": now_ms + 61_000, "weights": {"1": 1_000}}
    assert "61000 ms ahead" in await operator.refused("/admin/weights", body)
    await done(operator, "/admin/weights", body | {"computed_wall_ms": now_ms + 59_000})


async def test_the_problem_is_told_to_who_plans_elsewhere(operator: Operator) -> None:
    """From the problem, with its weights, the planner makes the same plan as the node."""
    wanted = {str(group): 100 + 900 * group for group in operator.placement()}
    told = (await operator.get("/problem")).json()
    problem = from_json(told["problem"])
    assert {str(need.group) for need in problem.groups} == wanted.keys()
    assert told["placement_version"] == operator.cluster[1].registry.versions.placement
    weighed = attrs.evolve(
        problem,
        groups=tuple(attrs.evolve(one, weight=wanted[str(one.group)]) for one in problem.groups),
        objectives=attrs.evolve(problem.objectives, evenness=Evenness.WEIGHT),
    )
    ours = {one.group: one.target for one in solve(weighed).decisions}
    now_ms = operator.cluster[1].member.engine.now().wall_ns // 1_000_000
    body = {"source": "job", "computed_wall_ms": now_ms, "weights": wanted}
    await done(operator, "/admin/weights", body)
    await done(operator, "/admin/policy", {"evenness": "weight"})
    theirs = await done(operator, "/admin/plan", {})
    assert {one["group"]: one["target"] for one in theirs["decisions"]} == ours
    assert any(one["move"] for one in theirs["decisions"])


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/admin/plan", {"dry_run": 1}, "expected"),
        ("/admin/plan", {"without": 2}, "expected"),
        ("/admin/plan", {"without": [9]}, "not registered"),
        ("/admin/plan", {"without": [2], "dry_run": False}, "only asks"),
        ("/admin/move", {"group": 1}, "expected"),
        ("/admin/move", {"group": "1", "node": 2}, "expected"),
        ("/admin/move", {"group": 1, "node": 9}, "not registered"),
        ("/admin/drain", {"node": 1}, "expected"),
        ("/admin/drain", {"node": True, "draining": True}, "not registered"),
        ("/admin/cancel", {"token": "x"}, "must be a number"),
        ("/admin/policy", {"evenness": "size"}, "unknown setting or value"),
        ("/admin/policy", {"tolerance_percent": -1}, "unknown setting or value"),
        ("/admin/policy", {"preferred_zones": "a"}, "unknown setting or value"),
        ("/admin/policy", {"capacities": {"9": 1}}, "not registered"),
        ("/admin/weights", {"source": 1}, "expected"),
        ("/admin/weights", {"source": "s", "weights": {}}, "computed_wall_ms"),
        (
            "/admin/weights",
            {"source": "s", "computed_wall_ms": 1, "weights": {"99": 1}},
            "Paxos groups are 0 to",
        ),
    ],
)
async def test_what_makes_no_sense_is_refused(
    operator: Operator, path: str, body: object, why: str
) -> None:
    assert why in await operator.refused(path, body)


async def at_once(work: Callable[[], object], *, limiter: object) -> object:
    """Instead of a thread, which takes real time, while a clock that jumps goes on."""
    return work()


async def test_a_group_that_is_not_everywhere_is_shown_and_no_master_goes_where_it_is_not(
    cluster: Cluster,
    operator: Operator,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By its log, group 3 has left node 3; both planner and operator respect that."""
    office, founders = cluster[1], (NodeId(1), NodeId(2), NodeId(3))
    office.propose(FoundCluster("test", GROUPS, founders, 3))
    cluster.until(lambda: office.registry.members(GroupId(3)) == founders)
    office.propose(SetReplicaSets(None, {GroupId(3): founders[:2]}, by_hand=True, trigger="test"))
    office.propose(NoteMembers(GroupId(3), Slot(5), founders[:2]))
    cluster.until(lambda: office.registry.members(GroupId(3)) == founders[:2])
    everything = await done(operator, "/admin/placement", {"all_on": 3})
    assert everything["without_replica"] == [3]
    cluster.until(lambda: counts(cluster) == [1, GROUPS])
    refused = await operator.post("/admin/placement", {"placement": {"3": 3}})
    assert refused.status == 409
    assert "node 3 has no replica of Paxos group 3" in refused.json()["error"]
    answer = (await operator.get("/balancer")).json()
    row = answer["groups"][3]
    assert (row["members"], row["replica_set"], row["set_by_hand"]) == ([1, 2], [1, 2], True)
    assert [node["replicas"] for node in answer["nodes"]] == [GROUPS + 1, GROUPS + 1, GROUPS]
    shown = balance_view.show(answer)
    assert "1 2 by hand" in shown
    assert "group 3: 1 2 3 to 1 2" in balance_view.history(answer)
    monkeypatch.setattr(trio.to_thread, "run_sync", at_once)
    planned = await done(operator, "/admin/plan", {"dry_run": False})
    assert planned["replicas"]["moves"] == []
    assert balance_view.plan(planned, (), explain=True)
    cluster.until(lambda: is_even(cluster))
    gone = await done(operator, "/admin/plan", {"without": [1]})
    assert {one["reason"] for one in gone["replicas"]["moves"]} <= {"node-dead"}


async def test_a_plan_shows_which_groups_would_be_copied_where(
    cluster: Cluster, operator: Operator
) -> None:
    """A fourth node was added: changed replica sets are shown before its masters move."""
    office, founders = cluster[1], (NodeId(1), NodeId(2), NodeId(3))
    office.propose(PauseBalancer(True))
    office.propose(FoundCluster("test", GROUPS, founders, 3))
    office.propose(AddNode(NodeId(4), Address("here", 4)))
    office.propose(register(NodeId(4), Incarnation(1)))
    cluster.until(lambda: 4 in office.registry.nodes)
    cluster.advance(100)
    planned = await done(operator, "/admin/plan", {"dry_run": True})
    moves = planned["replicas"]["moves"]
    assert all(4 in move["after"] for move in moves)
    assert moves[0]["after"] == [1, 2, 3, 4], "the registry's group first"
    assert "replica set(s) of Paxos groups change" in balance_view.plan(planned, (), explain=False)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/admin/policy", {"preferred_zones": ["\ud800"]}),
        ("/admin/policy", {"preferred_zones": ["z" * 70_000]}),
        ("/admin/policy", {"preferred_zones": ["z"] * 50_000}),
        ("/admin/weights", {"source": "s" * 70_000, "computed_wall_ms": 1, "weights": {}}),
    ],
)
async def test_what_no_command_can_hold_is_refused_with_words(
    operator: Operator, path: str, body: dict[str, Any]
) -> None:
    reply = await operator.post(path, body)
    assert reply.status == 400
    assert "no room for such a value" in reply.json()["error"]
