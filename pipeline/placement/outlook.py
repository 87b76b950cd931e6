"""What the balancer would do with weights: its own planner, run beforehand, outside of the nodes.

`document` is a node's answer to GET /problem: nodes, groups, members, pins and objectives as the
planner sees them now. With other weights in it, `balancer.planner.planner.solve` makes the plan
that the master of the registry will make, as long as nothing else changes.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from balancer.planner.planner import Plan, solve
from balancer.planner.problem import WEIGHT_NORMAL, Evenness, Problem
from balancer.planning import loads
from balancer.problem_json import ProblemError, from_json
from paxos.ids import GroupId, NodeId

BY_WEIGHT: Final = "weight"


@attrs.frozen
class NodeLoad:
    """Groups and weight (in thousandths of an average group) of a usable node, now and planned."""

    node: NodeId
    groups: tuple[int, int]
    weight: tuple[int, int]


@attrs.frozen(kw_only=True)
class Outlook:
    """A plan by weight that has not been adopted."""

    problem: Problem
    plan: Plan
    nodes: tuple[NodeLoad, ...]
    ratio: tuple[float, float]
    """Weight of the fullest node to its share, now and planned; 1 is perfectly even."""
    acts: str
    """What the balancer will do about it by itself, in words."""

    @property
    def weights(self) -> dict[GroupId, int]:
        return {need.group: need.weight for need in self.problem.groups}


def groups_of(document: object) -> tuple[GroupId, ...]:
    """The groups of the registry.

    Raises:
        ProblemError: if the document contains no planning problem.
    """
    return tuple(need.group for need in _problem(document).groups)


def outlook(document: Any, weights: Mapping[GroupId, int]) -> Outlook:  # noqa: ANN401 # JSON
    """The plan by these weights; groups without one weigh an average group.

    Raises:
        ProblemError: if the document contains no planning problem.
    """
    problem = _weighed(_problem(document), weights)
    plan = solve(problem)
    before, after = loads(problem, problem.current), loads(problem, plan.placement)
    nodes = tuple(
        NodeLoad(node, (before[node][0], after[node][0]), (before[node][1], after[node][1]))
        for node in sorted(before)
    )
    return Outlook(
        problem=problem,
        plan=plan,
        nodes=nodes,
        ratio=(_ratio(problem, nodes, 0), _ratio(problem, nodes, 1)),
        acts=_acts(document, problem, plan),
    )


def _problem(document: object) -> Problem:
    if not isinstance(document, dict) or not isinstance(document.get("policy"), dict):
        raise ProblemError("there is no policy beside the problem")
    return from_json(document.get("problem"))


def _weighed(problem: Problem, weights: Mapping[GroupId, int]) -> Problem:
    needs = tuple(
        attrs.evolve(need, weight=weights.get(need.group, WEIGHT_NORMAL)) for need in problem.groups
    )
    objectives = attrs.evolve(problem.objectives, evenness=Evenness.WEIGHT)
    return attrs.evolve(problem, groups=needs, objectives=objectives)


def _ratio(problem: Problem, nodes: tuple[NodeLoad, ...], when: int) -> float:
    capacity = {one.node: one.capacity for one in problem.nodes}
    whole = sum(one.weight[when] for one in nodes)
    places = sum(capacity[one.node] for one in nodes)
    if not whole:
        return 1.0
    return max(one.weight[when] * places / (capacity[one.node] * whole) for one in nodes)


def _acts(document: Mapping[str, Any], problem: Problem, plan: Plan) -> str:
    policy = document["policy"]
    if policy.get("evenness") != BY_WEIGHT:
        return "nothing: it goes by counts (evenkeel balance policy evenness=weight)"
    if document.get("paused") is True:
        return "nothing: it is paused (evenkeel balance resume)"
    if policy.get("automatic") is not True:
        return "nothing: its placement was set by hand (evenkeel balance run)"
    if not plan.moves:
        return "nothing: it is even"
    trigger = policy.get("trigger_percent")
    if not isinstance(trigger, int) or trigger < 0:
        raise ProblemError("the policy does not say what triggers a plan")
    objectives = attrs.evolve(problem.objectives, tolerance_percent=trigger)
    if not solve(attrs.evolve(problem, objectives=objectives)).moves:
        return f"nothing: no node is {trigger} % above its share"
    return f"{len(plan.moves)} move(s), once it has been so for balancer.uneven_for_ms"


def in_words(found: Outlook, *, explain: bool = False) -> str:
    """The plan for people; with `explain` also the groups that stay, and why."""
    certificate = found.plan.certificate
    moves = found.plan.moves
    proof = "nothing can be planned"
    if certificate is not None:
        fewest = certificate.moves == certificate.at_least
        claim = "no equally even plan has fewer" if fewest else f"at least {certificate.at_least}"
        proof = f"{claim} (proof: {certificate.proof.value})"
    before, after = found.ratio
    lines = [
        f"plan by these weights: {len(moves)} move(s), {proof}",
        f"fullest node to its share: {before:.2f} now, {after:.2f} planned",
        f"the balancer by itself: {found.acts}",
        "",
        "node  groups now  planned  weight now  planned",
    ]
    for one in found.nodes:
        weights = [part / WEIGHT_NORMAL for part in one.weight]
        lines.append(
            f"{one.node:>4}  {one.groups[0]:>10}  {one.groups[1]:>7}  "
            f"{weights[0]:>10.2f}  {weights[1]:>7.2f}"
        )
    shown = found.plan.decisions if explain else moves
    if shown:
        lines += ["", "group  weight  from    to  reason"]
    weight = found.weights
    for decision in shown:
        detail = f": {decision.detail}" if decision.detail else ""
        lines.append(
            f"{decision.group:>5}  {weight[decision.group] / WEIGHT_NORMAL:>6.2f}  "
            f"{_or_dash(decision.source):>4}  {_or_dash(decision.target):>4}  "
            f"{decision.reason.value}{detail}"
        )
    return "\n".join(lines)


def _or_dash(node: NodeId | None) -> str:
    return "-" if node is None else str(node)
