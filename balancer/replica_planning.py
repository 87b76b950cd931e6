"""When replica sets change: the loop around `replicas.py`, on the master of the registry.

Triggers: a node arrived, was added, leaves, returned, or has been gone for so long that its data is
copied elsewhere (`balancer.replace_after_s`); uneven sets; very different sizes. Every change
copies data, so only a limited number of groups change at a time, and the next ones wait until these
have their members. Every step plans anew: one by one the changes copy no more than all at once.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from balancer.registry.commands import SetReplicaSets
from balancer.registry.policy import CODE_CHARS_MAX, TEXT_CHARS_MAX
from balancer.registry.registry import Registry
from balancer.replicas import (
    Host,
    HostState,
    Kept,
    ReplicaMove,
    ReplicaPlan,
    ReplicaProblem,
    ReplicaReason,
    size_wanted,
)
from balancer.solving import Decision
from paxos.ids import MS, GroupId, NodeId, Now

URGENT: Final = (ReplicaReason.NODE_DEAD, ReplicaReason.TOO_FEW, ReplicaReason.NODE_LEAVING)
"""For these reasons a set that is already changing is changed again."""
LOOK_EVERY_NS: Final = 60_000 * MS
"""Sizes grow without an event: this is how often they are checked."""


class ReplicaState(StrEnum):
    """What the loop does, or waits for."""

    UNKNOWN = "unknown"
    """Nothing was planned yet, or another node plans."""
    ALL = "all"
    """A cluster older than replica sets: all nodes have all groups."""
    AS_WANTED = "as-wanted"
    MOVING = "moving"
    """Groups are on their way to their sets; everything else comes after them."""
    PROPOSED = "proposed"


@attrs.frozen(kw_only=True)
class ReplicaView:
    """What is known at one moment."""

    now: Now
    me: NodeId
    registry: Registry
    away: frozenset[NodeId] = frozenset()
    """Silent for a while, or longer."""
    dead: frozenset[NodeId] = frozenset()
    """Silent for so long that they are replaced."""
    bytes: Mapping[GroupId, int] = attrs.field(factory=dict)


def moving(registry: Registry) -> tuple[GroupId, ...]:
    """The groups whose members are not yet what they should be."""
    return tuple(
        group
        for group in map(GroupId, registry.groups)
        if set(registry.members(group)) != set(registry.replica_set(group))
    )


class ReplicaPlanning:
    """`moves_max`: groups under change at once. One instance per node and boot."""

    def __init__(self, moves_max: int) -> None:
        self._moves_max = moves_max
        self.state = ReplicaState.UNKNOWN
        self._settled: object = None
        """The situation in which there was nothing to do."""
        self._looked_boot_ns = 0

    def decide(self, view: ReplicaView) -> Decision[SetReplicaSets | None]:
        """The change to propose now, if any."""
        registry = view.registry
        if registry.cluster is None or not registry.cluster.founders:
            self.state = ReplicaState.ALL
            return None
        versions, now = registry.versions, view.now.boot_ns
        situation = (
            versions.nodes,
            versions.replicas,
            versions.members,
            versions.policy,
            registry.paused_groups,
            view.away,
            view.dead,
        )
        if situation == self._settled and now < self._looked_boot_ns + LOOK_EVERY_NS:
            return None
        plan = yield problem(view)
        self._looked_boot_ns = now
        under_way = moving(registry)
        chosen = self.chosen(view, plan, under_way)
        if chosen:
            self.state = ReplicaState.PROPOSED
            return command(view, chosen)
        self._settled = situation
        self.state = ReplicaState.MOVING if under_way else ReplicaState.AS_WANTED
        return None

    def chosen(
        self, view: ReplicaView, plan: ReplicaPlan, under_way: tuple[GroupId, ...]
    ) -> list[ReplicaMove]:
        """As many of the plan's moves as may begin now, the gravest first."""
        room = self._moves_max - len(under_way)
        chosen = []
        for move in plan.moves:
            if move.group in view.registry.paused_groups:
                continue
            if move.group in under_way:
                if move.reason in URGENT:
                    chosen.append(move)
            elif room > 0:
                room -= 1
                chosen.append(move)
        return chosen


def problem(view: ReplicaView) -> ReplicaProblem:
    """The problem to plan."""
    registry = view.registry
    cluster, policy = registry.cluster, registry.policy
    assert cluster is not None
    hosts = [
        Host(node, one.zone, policy.capacity(node), _state(view, node))
        for node, one in registry.nodes.items()
    ]
    hosts += [  # founders that have not arrived: their groups wait for them, each in its own zone
        Host(node, f"?{node}", state=HostState.AWAY)
        for node in cluster.founders
        if node not in registry.nodes and node not in registry.removed
    ]
    staying = [host for host in hosts if host.state is not HostState.LEAVING]
    zones = Counter(host.zone for host in staying).values()
    groups = tuple(
        Kept(
            group,
            registry.replica_set(group),
            registry.members(group),
            size_wanted(group, cluster.replicas, len(staying), zones),
            view.bytes.get(group, 0),
            group in registry.sets_by_hand,
        )
        for group in map(GroupId, registry.groups)
    )
    return ReplicaProblem(hosts=tuple(hosts), groups=groups, level=policy.automatic)


def _state(view: ReplicaView, node: NodeId) -> HostState:
    one = view.registry.nodes[node]
    if one.leaving:
        return HostState.LEAVING
    if node in view.dead:
        return HostState.DEAD
    return HostState.AWAY if one.draining or node in view.away else HostState.FIT


def command(view: ReplicaView, moves: list[ReplicaMove]) -> SetReplicaSets:
    """The command for these moves, with the record that will be kept of them."""
    first = moves[0].code
    return SetReplicaSets(
        view.registry.versions.replicas,
        {move.group: move.after for move in moves},
        by_hand=False,
        wall_ns=view.now.wall_ns,
        node=view.me,
        trigger=f"{first}, and {len(moves) - 1} more"[:TEXT_CHARS_MAX] if moves[1:] else first,
        reasons={move.group: move.code[:CODE_CHARS_MAX] for move in moves},
    )
