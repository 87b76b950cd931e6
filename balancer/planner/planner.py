"""The ideal placement: as even as possible over the usable nodes, with the fewest moves.

Pure and deterministic: every node makes the same plan for the same problem. By count
capacities, pins and pauses hold in both. Every plan carries a certificate (`proof.py`) and a reason
for each group, moved or not.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum

import attrs

from balancer.planner.assignment import best
from balancer.planner.levels import WeightBalancer, weights_on
from balancer.planner.problem import (
    Evenness,
    Frame,
    Problem,
    frame,
    may_be_on,
)
from balancer.planner.proof import Certificate, assignment_problem, certify, reached, search
from balancer.planner.quotas import quotas
from balancer.planner.topic_spread import TopicLoad, spread_topics
from paxos.ids import GroupId, NodeId


class PlanReason(StrEnum):
    """Why a group is planned where it is."""

    STAYS = "stays"
    PINNED = "pinned"
    """An operator chose the node (this may be a move)."""
    PAUSED = "paused"
    """An operator wants it left alone."""
    WAITS = "waits"
    """Its node is temporarily unfit: it gets nothing, and keeps what it has."""
    EVENNESS = "evenness"
    """Its node has more groups, or more weight, than its share."""
    TOPICS = "topics"
    """It changes places with another group, to spread a topic."""
    ZONE = "zone"
    """Its node is not in a preferred zone."""
    UNPLACED = "unplaced"
    """It had no node."""
    NOT_A_MEMBER = "not-a-member"
    """Its node has no replica of it, or should have none."""
    NODE_UNUSABLE = "node-unusable"
    """Its node is excluded or not in the cluster."""
    NO_USABLE_NODE = "no-usable-node"
    """Nothing can be planned; it stays where it is."""


@attrs.frozen
class Decision:
    """`source` is where the group is, `target` where it should be; it stays if they are equal."""

    group: GroupId
    source: NodeId | None
    target: NodeId | None
    reason: PlanReason
    detail: str = ""

    @property
    def is_move(self) -> bool:
        return self.source != self.target


@attrs.frozen
class Plan:
    """One decision for every group, in ascending order; `moves` are those that change something."""

    placement: Mapping[GroupId, NodeId]
    decisions: tuple[Decision, ...]
    certificate: Certificate | None = None
    """None where nothing could be planned."""

    @property
    def moves(self) -> tuple[Decision, ...]:
        return tuple(one for one in self.decisions if one.is_move)


def even_placement(groups: Iterable[GroupId], nodes: Iterable[NodeId]) -> dict[GroupId, NodeId]:
    """For a new cluster: groups and nodes in ascending order, interleaved (as in B6)."""
    ordered = sorted(set(nodes))
    if not ordered:
        return {}
    return {group: ordered[at % len(ordered)] for at, group in enumerate(sorted(set(groups)))}


def all_on(groups: Iterable[GroupId], node: NodeId) -> dict[GroupId, NodeId]:
    """Every group on one node: how masters are concentrated, for measurements and for a drain."""
    return {group: node for group in sorted(set(groups))}


def solve(problem: Problem) -> Plan:
    """The plan for a problem.

    A group pinned to a usable node goes there and counts for that node's load; a pin to an unusable
    node is disregarded. By count, without pins and with equal capacities, the loads differ by at
    most one; otherwise they are as even as pins and capacities allow.
    """
    framed = frame(problem)
    if not framed.usable:
        return _nothing_usable(framed)
    by_count = problem.objectives.evenness is Evenness.COUNT
    placed = {**framed.fixed, **(_by_count(framed) if by_count else WeightBalancer(framed).run())}
    before = dict(placed)
    _spread(framed, placed)
    placement = _ordered(framed, placed)
    certificate = certify(framed, placement)
    if not certificate.proven:
        placement, certificate = _improve(framed, placement, certificate)
    decisions = tuple(_decide(framed, group, placement, before) for group in framed.needs)
    return Plan(placement, decisions, certificate)


def _by_count(framed: Frame) -> dict[GroupId, NodeId]:
    """Each node keeps groups up to its quota; the rest go to the node with most room.

    Where groups may not be everywhere, no node could be sure to reach its quota: then the plan is a
    minimum cost flow, equally exact, which ignores topics.
    """
    if framed.choices:
        sets = best(assignment_problem(framed)).sets
        return {group: node for group, (node,) in sets.items()}
    quota = quotas(framed)
    topics = TopicLoad(framed)
    for group, node in framed.fixed.items():
        topics.add(node, group)
    placed: dict[GroupId, NodeId] = {}
    room = {}
    for node, mine in framed.held().items():
        kept = topics.groups_to_keep(node, mine, quota[node])
        placed |= dict.fromkeys(kept, node)
        room[node] = quota[node] - len(kept)
    for group in framed.free:
        if group in placed:
            continue
        # The node where its topics are rarest; then furthest below its share; then the lowest id.
        target = min(
            (node for node in room if room[node]),
            key=lambda node: (topics.rise(node, group), -room[node], node),
        )
        room[target] -= 1
        topics.add(target, group)
        placed[group] = target
    assert not any(room.values()), f"quotas do not add up: {room}"
    return placed


def _spread(framed: Frame, placed: dict[GroupId, NodeId]) -> None:
    """Swaps for topics, which must not undo the levelling."""

    def may(mine: GroupId, theirs: GroupId) -> bool:
        return placed[theirs] in framed.may(mine) and placed[mine] in framed.may(theirs)

    if framed.problem.objectives.evenness is Evenness.COUNT:
        spread_topics(framed, placed, may)
        return
    most, weight = reached(framed, placed), framed.needs

    def fits(mine: GroupId, theirs: GroupId) -> bool:
        if not may(mine, theirs):
            return False
        loads = weights_on(framed, placed)
        here, there = placed[mine], placed[theirs]
        shift = weight[mine].weight - weight[theirs].weight
        return loads[here] - shift <= most[here] and loads[there] + shift <= most[there]

    spread_topics(framed, placed, fits)


def _improve(
    framed: Frame, placement: dict[GroupId, NodeId], certificate: Certificate
) -> tuple[dict[GroupId, NodeId], Certificate]:
    """Where all can be tried: look for fewer moves, until it is proven that there are none."""
    while not certificate.proven:
        found, _ = search(framed, placement, certificate.moves - 1)
        if found is None:
            break
        placement = _ordered(framed, found)
        certificate = certify(framed, placement)
    return placement, certificate


def _ordered(framed: Frame, placed: Mapping[GroupId, NodeId]) -> dict[GroupId, NodeId]:
    """All groups ascending, including those that do not move."""
    current = framed.problem.current
    return {
        group: placed[group] if group in placed else current[group]
        for group in framed.needs
        if group in placed or group in current
    }


def _decide(
    framed: Frame,
    group: GroupId,
    placement: Mapping[GroupId, NodeId],
    before: Mapping[GroupId, NodeId],
) -> Decision:
    """`before` is the plan without the swaps for topics."""
    problem = framed.problem
    source, target = problem.current.get(group), placement.get(group)
    detail = ""
    if group in problem.paused:
        reason = PlanReason.PAUSED
    elif group in framed.left:
        reason, detail = PlanReason.WAITS, _why_waits(framed, group)
    elif group in framed.fixed:
        reason = PlanReason.PINNED
    elif source == target:
        reason = PlanReason.STAYS
    elif source is None:
        reason = PlanReason.UNPLACED
    elif source not in framed.usable:
        reason, detail = PlanReason.NODE_UNUSABLE, _why_unfit(problem, source)
    elif not may_be_on(framed.needs[group], source):
        reason, detail = PlanReason.NOT_A_MEMBER, f"node {source}"
    elif source not in framed.may(group):
        reason, detail = PlanReason.ZONE, framed.usable[source].zone
    elif before.get(group) == source:
        reason = PlanReason.TOPICS
    else:
        reason = PlanReason.EVENNESS
    pin = problem.pinned.get(group)
    if not detail and pin is not None and not may_be_on(framed.needs[group], pin):
        detail = f"pinned to {pin}, no member"
    return Decision(group, source, target, reason, detail)


def _why_waits(framed: Frame, group: GroupId) -> str:
    """Why a group that is not paused stays where it is."""
    source, members = framed.problem.current.get(group), framed.needs[group].members
    if members is not None and not members & framed.usable.keys():
        return "no usable member"
    return _why_unfit(framed.problem, source)


def _why_unfit(problem: Problem, node: NodeId | None) -> str:
    why = next((one.why_unfit for one in problem.nodes if one.node == node), None)
    return "not in the cluster" if why is None else why.value


def _nothing_usable(framed: Frame) -> Plan:
    current = framed.problem.current
    return Plan(
        {group: current[group] for group in framed.needs if group in current},
        tuple(
            Decision(group, current.get(group), current.get(group), PlanReason.NO_USABLE_NODE)
            for group in framed.needs
        ),
    )
