"""The balancer as JSON, for GET /balancer and POST /admin/plan (docs/reference.md)."""

from collections import Counter
from collections.abc import Mapping
from typing import Any

import attrs

from balancer import replica_planning
from balancer.planner.planner import Plan
from balancer.planner.problem import WEIGHT_NORMAL, Problem
from balancer.planning import PlanningView, Weighing, fresh, loads, weighing
from balancer.problem_json import to_json
from balancer.registry.policy import PlanRecord, Policy
from balancer.registry.records import ReplicaRecord, StealRecord
from balancer.registry.registry import Registry
from balancer.replica_planning import moving
from balancer.replicas import ReplicaPlan, ReplicaProblem
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop


def balancer_status(loop: BalancingLoop, planner: PlanningLoop, now: Now) -> dict[str, Any]:
    """The whole state of the balancer, as this node sees it."""
    view, planning = loop.view(now), planner.view(now)
    registry = planning.registry
    weighed = weighing(planning, planner.asked.config)
    machine = loop.machine
    reasons = {} if machine is None else dict(machine.explain(view))
    problem = planner.asked.problem(planning, weighed)
    return {
        "node": view.me,
        "planner": planner.state,
        "ours": planning.ours,
        "placement_version": registry.versions.placement,
        "policy_version": registry.versions.policy,
        "paused": registry.paused,
        "policy": policy_json(registry.policy),
        "weights": weights_json(planner, planning, weighed),
        "nodes": _nodes(registry, planner, problem, planning.masters, now),
        "groups": [
            {
                "group": group,
                "master": planning.masters.get(group),
                "ideal": registry.placement.get(group),
                "why": reasons[group].value if group in reasons else "off",
                "weight": _weight(weighed, group),
                "pinned": group in registry.pins,
                "paused": group in registry.paused_groups,
                "members": list(registry.members(group)),
                "replica_set": list(registry.replica_set(group)),
                "set_by_hand": group in registry.sets_by_hand,
            }
            for group in map(GroupId, registry.groups)
        ],
        "tokens": [
            {"token": one.token, "group": one.group, "source": one.source, "target": one.target}
            for one in registry.tokens
            if not one.free_at(now.wall_ns)
        ],
        "steals": [_steal(one) for one in registry.history],
        "plans": [_record(one) for one in registry.plans],
        "replicas_version": registry.versions.replicas,
        "replicas_state": planner.asked.replicas.state.value,
        "replica_moves": list(moving(registry)),
        "replica_changes": [_change(one) for one in registry.replica_history],
    }


def weights_json(planner: PlanningLoop, view: PlanningView, weighed: Weighing) -> dict[str, Any]:
    """The weights that plans use, and those that were last published, used or not."""
    published = view.registry.weights
    return {
        "by": weighed.evenness.name.lower(),
        "source": weighed.source,
        "published": {
            "source": published.source,
            "computed_wall_ms": published.computed_wall_ns // MS,
            "age_ms": (view.now.wall_ns - published.computed_wall_ns) // MS,
            "groups": len(published.weights),
            "fresh": fresh(published, view.now, planner.asked.config),
        }
        if published.source
        else None,
    }


def problem_view(planner: PlanningLoop, now: Now) -> dict[str, Any]:
    """The planning problem, for planners outside of the nodes (GET /problem)."""
    view = planner.view(now)
    weighed = weighing(view, planner.asked.config)
    return {
        "node": view.me,
        "placement_version": view.registry.versions.placement,
        "policy": policy_json(view.registry.policy),
        "paused": view.registry.paused,
        "weights": weights_json(planner, view, weighed),
        "problem": to_json(planner.asked.problem(view, weighed)),
    }


def _weight(weighed: Weighing, group: GroupId) -> float:
    return round(weighed.weights.get(group, WEIGHT_NORMAL) / WEIGHT_NORMAL, 3)


def _nodes(
    registry: Registry,
    planner: PlanningLoop,
    problem: Problem,
    masters: Mapping[GroupId, NodeId | None],
    now: Now,
) -> list[dict[str, Any]]:
    reports = planner.cluster_load.fresh(now)
    on = list(masters.values())
    ideals = list(registry.placement.values())
    rows = []
    for offer in problem.nodes:
        report = reports.get(offer.node)
        rows.append(
            {
                "id": offer.node,
                "zone": offer.zone,
                "capacity": offer.capacity,
                "draining": registry.nodes[offer.node].draining,
                "unfit": None if offer.why_unfit is None else offer.why_unfit.value,
                "masters": on.count(offer.node),
                "ideals": ideals.count(offer.node),
                "replicas": sum(
                    offer.node in registry.members(group) for group in map(GroupId, registry.groups)
                ),
                "produce_p99_ms": None if report is None else report.produce_p99_us / 1_000,
                "lag_slots": None if report is None else report.lag_slots,
            }
        )
    return rows


def _steal(one: StealRecord) -> dict[str, Any]:
    return {
        "group": one.group,
        "source": one.source,
        "target": one.target,
        "outcome": one.outcome.name.lower(),
        "duration_ms": one.duration_us / 1_000,
        "finished_wall_ms": one.finished_wall_ns // MS,
    }


def _record(one: PlanRecord) -> dict[str, Any]:
    return {
        "wall_ms": one.wall_ns // MS,
        "node": one.node,
        "trigger": one.trigger,
        "by": one.evenness.name.lower(),
        "weights": one.weights,
        "moves": [move._asdict() for move in one.moves],
        "moves_count": one.moves_count,
        "at_least": one.at_least,
        "proof": one.proof,
    }


def _change(one: ReplicaRecord) -> dict[str, Any]:
    return {
        "wall_ms": one.wall_ns // MS,
        "node": one.node,
        "trigger": one.trigger,
        "changes": [change._asdict() for change in one.changes],
        "changes_count": one.changes_count,
    }


def replica_problem(
    planner: PlanningLoop, view: PlanningView, without: frozenset[NodeId]
) -> ReplicaProblem | None:
    """Which replica sets would be planned now; None before groups have noted their members."""
    if not view.registry.members(REGISTRY_GROUP):
        return None
    asked = planner.asked.replica_view(view)
    return replica_planning.problem(attrs.evolve(asked, dead=asked.dead | without))


def replicas_json(plan: ReplicaPlan | None) -> Any:  # noqa: ANN401 # JSON
    """The replica sets of a plan, with the reason for every change."""
    if plan is None:
        return None
    return {
        "moves": [
            {
                "group": move.group,
                "before": list(move.before),
                "after": list(move.after),
                "reason": move.reason.value,
                "detail": move.detail,
                "bytes": move.bytes,
            }
            for move in plan.moves
        ],
        "bytes": plan.bytes_moved,
        "proof": plan.proof.value,
    }


def policy_json(policy: Policy) -> dict[str, Any]:
    value = attrs.asdict(policy)
    value["evenness"] = policy.evenness.name.lower()
    value["preferred_zones"] = list(policy.preferred_zones)
    value["capacities"] = {str(node): percent for node, percent in policy.capacities.items()}
    return value


def plan_json(
    placement: Mapping[GroupId, NodeId], problem: Problem, plan: Plan, weighed: Weighing
) -> Any:  # noqa: ANN401 # JSON
    """A plan, adopted or not: every group with its reason, and the load before (`placement`) and
    after."""
    certificate = plan.certificate
    before, after = (loads(problem, one) for one in (placement, plan.placement))
    ideals = Counter(placement.values())
    return {
        "by": weighed.evenness.name.lower(),
        "weights": weighed.source,
        "decisions": [
            {
                "group": one.group,
                "source": placement.get(one.group),
                "target": one.target,
                "move": one.target != placement.get(one.group),
                "reason": one.reason.value,
                "detail": one.detail,
            }
            for one in plan.decisions
        ],
        "certificate": None
        if certificate is None
        else {
            "proof": certificate.proof.value,
            "moves": certificate.moves,
            "at_least": certificate.at_least,
        },
        "nodes": [
            {
                "id": offer.node,
                "unfit": None if offer.why_unfit is None else offer.why_unfit.value,
                "groups_before": ideals[offer.node],
                "groups_after": after.get(offer.node, (0, 0))[0],
                "weight_before": before.get(offer.node, (0, 0))[1] / WEIGHT_NORMAL,
                "weight_after": after.get(offer.node, (0, 0))[1] / WEIGHT_NORMAL,
            }
            for offer in problem.nodes
        ],
    }
