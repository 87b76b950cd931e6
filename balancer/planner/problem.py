"""What a plan is made from, and what it must satisfy: values only, shared by planner and proof.

All numbers are integers, so that every node computes the same plan from the same problem: weights
in thousandths of an average group, capacities in percent of a normal node.
"""

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum, StrEnum
from functools import cached_property
from math import lcm
from typing import Final, NamedTuple

import attrs

from paxos.ids import GroupId, NodeId

CAPACITY_NORMAL: Final = 100
WEIGHT_NORMAL: Final = 1_000
TOLERANCE_PERCENT: Final = 10
_NO_TOPICS: Final[Mapping[str, int]] = {}
_NOTHING: Final[Mapping[GroupId, NodeId]] = {}


class Unfit(StrEnum):
    """Why a node gets no masters."""

    DRAINING = "draining"
    LEAVING = "leaving"
    DEAD = "dead"
    MUTED = "muted"
    """Steals to it have failed repeatedly."""
    LAGGING = "lagging"
    RESTARTED = "just-restarted"
    NO_CAPACITY = "no-capacity"

    @property
    def soft(self) -> bool:
        """Whether it is temporary: such a node gets nothing for now, and keeps what it has."""
        return self in (Unfit.MUTED, Unfit.LAGGING, Unfit.RESTARTED)


class Evenness(IntEnum):
    """What is levelled between nodes, in proportion to their capacities."""

    COUNT = 0
    WEIGHT = 1


@attrs.frozen
class NodeOffer:
    node: NodeId
    zone: str = ""
    capacity: int = CAPACITY_NORMAL
    unfit: Unfit | None = None

    @property
    def why_unfit(self) -> Unfit | None:
        return Unfit.NO_CAPACITY if self.unfit is None and self.capacity <= 0 else self.unfit


@attrs.frozen
class GroupNeed:
    group: GroupId
    weight: int = WEIGHT_NORMAL
    topics: Mapping[str, int] = _NO_TOPICS
    """How many partitions of each topic live in the group."""
    members: frozenset[NodeId] | None = None
    """The nodes its master may be on; None: all."""


@attrs.frozen(kw_only=True)
class Objectives:
    """What an operator wants from a placement."""

    evenness: Evenness = Evenness.COUNT
    spread_zones: bool = False
    """Zones get equal shares first; nodes share within their zone. Else nodes come first, and zones
    are as even as that allows, in proportion to their nodes."""
    preferred_zones: tuple[str, ...] = ()
    """Masters stay in these zones while any of their nodes is usable."""
    tolerance_percent: int = TOLERANCE_PERCENT
    """By weight, how far above its share a node may be: packing is never exact, and load
    changes."""
    topic_excess_max: int | None = None
    """Most partitions of one topic on a node above an even share; None: no bound."""


@attrs.frozen(kw_only=True)
class Problem:
    nodes: tuple[NodeOffer, ...]
    groups: tuple[GroupNeed, ...]
    current: Mapping[GroupId, NodeId]
    pinned: Mapping[GroupId, NodeId] = _NOTHING
    paused: frozenset[GroupId] = frozenset()
    """They stay wherever they are."""
    objectives: Objectives = Objectives()


class Scales(NamedTuple):
    """What count² counts on a node and in a zone, as whole numbers."""

    node: Mapping[NodeId, int]
    zone: Mapping[str, int]


@attrs.frozen(kw_only=True)
class Frame:
    """A problem in which everything that leaves no choice has been decided."""

    problem: Problem
    needs: Mapping[GroupId, GroupNeed]
    """All groups, ascending."""
    usable: Mapping[NodeId, NodeOffer]
    allowed: Mapping[NodeId, NodeOffer]
    """Nodes that free groups may be placed on, ascending: usable, and in a preferred zone."""
    waiting: Mapping[NodeId, int]
    """Temporarily unfit nodes in the zones of allowed ones, and how many groups stay on each. They
    get none, and yet they count for their zones: soon they are fit again."""
    fixed: Mapping[GroupId, NodeId]
    """Pinned to a usable node, or paused on an allowed one."""
    left: frozenset[GroupId]
    """On a temporarily unfit node, or paused on an unusable one, or paused without a node: the plan
    leaves them alone."""
    free: tuple[GroupId, ...]
    """The rest, ascending."""
    choices: Mapping[GroupId, Mapping[NodeId, NodeOffer]]
    """The nodes a free group may be placed on, if these are not all allowed ones."""

    def may(self, group: GroupId) -> Mapping[NodeId, NodeOffer]:
        """The nodes a free group may be placed on, ascending."""
        return self.choices.get(group, self.allowed)

    @cached_property
    def by_zone(self) -> dict[str, list[NodeId]]:
        """Allowed nodes by zone."""
        by_zone: dict[str, list[NodeId]] = {}
        for node, offer in self.allowed.items():
            by_zone.setdefault(offer.zone, []).append(node)
        return dict(sorted(by_zone.items()))

    @property
    def zones(self) -> dict[str, list[NodeId]]:
        """The same where zones come first; else one zone for all."""
        return self.by_zone if self.problem.objectives.spread_zones else {"": [*self.allowed]}

    @cached_property
    def zone_shares(self) -> dict[str, int]:
        """What each zone should have, up to a common factor: what its nodes have together, or the
        same for all if zones come first."""
        if self.problem.objectives.spread_zones:
            return dict.fromkeys(self.by_zone, 1)
        shares = dict.fromkeys(self.by_zone, 0)
        for node in (*self.allowed, *self.waiting):
            shares[self.zone_of[node]] += self.capacity_of[node]
        return shares

    @cached_property
    def zone_of(self) -> dict[NodeId, str]:
        """Of allowed and waiting nodes."""
        known = {one.node: one.zone for one in self.problem.nodes}
        return {node: known[node] for node in (*self.allowed, *self.waiting)}

    @cached_property
    def capacity_of(self) -> dict[NodeId, int]:
        """Of allowed and waiting nodes; above 0."""
        known = {one.node: max(1, one.capacity) for one in self.problem.nodes}
        return {node: known[node] for node in (*self.allowed, *self.waiting)}

    def zone_totals(self, counts: Mapping[NodeId, int]) -> dict[str, int]:
        """How many groups each zone has, if its allowed nodes have these."""
        totals = dict.fromkeys(self.by_zone, 0)
        for node, count in (*counts.items(), *self.waiting.items()):
            totals[self.zone_of[node]] += count
        return totals

    @cached_property
    def scales(self) -> "Scales":
        capacities, shares = [one.capacity for one in self.allowed.values()], self.zone_shares
        by_node, by_zone = lcm(*capacities), lcm(*shares.values())
        return Scales(
            {node: by_node // offer.capacity for node, offer in self.allowed.items()},
            {zone: by_zone // share for zone, share in shares.items()},
        )

    def home(self, group: GroupId) -> NodeId | None:
        """The allowed node a free group could stay on."""
        node = self.problem.current.get(group)
        return node if node in self.may(group) else None

    def held(self) -> dict[NodeId, list[GroupId]]:
        """Free groups by the allowed node they are on, ascending."""
        held: dict[NodeId, list[GroupId]] = {node: [] for node in self.allowed}
        for group in self.free:
            home = self.home(group)
            if home is not None:
                held[home].append(group)
        return held

    def forced_moves(self) -> int:
        """Moves that every plan makes: groups with a fixed place, and those without a home.

        A group that has no master yet counts as moved, too.
        """
        current = self.problem.current
        elsewhere = sum(current.get(group) != node for group, node in self.fixed.items())
        return elsewhere + sum(self.home(group) is None for group in self.free)


def frame(problem: Problem) -> Frame:
    """Determine which nodes are usable, and which groups are fixed or free.

    A group without a usable member stays where it is: no node could be its master.
    """
    needs = {need.group: need for need in sorted(problem.groups, key=lambda need: need.group)}
    offers = {one.node: one for one in sorted(problem.nodes, key=lambda one: one.node)}
    usable = {node: one for node, one in offers.items() if one.why_unfit is None}
    waiting = {
        node for node, one in offers.items() if one.why_unfit is not None and one.why_unfit.soft
    }
    zones = problem.objectives.preferred_zones
    allowed = {node: one for node, one in usable.items() if one.zone in zones} or usable
    choices = {
        group: _among(need.members, allowed) or _among(need.members, usable)
        for group, need in needs.items()
        if need.members is not None and not need.members >= allowed.keys()
    }
    fixed: dict[GroupId, NodeId] = {}
    left = set()
    for group in needs:
        current, pin = problem.current.get(group), problem.pinned.get(group)
        if (current in waiting or not choices.get(group, allowed)) and group not in problem.paused:
            left.add(group)
        elif group in problem.paused:
            if current is not None and current in usable:
                fixed[group] = current
            else:
                left.add(group)
        elif pin is not None and pin in usable and may_be_on(needs[group], pin):
            fixed[group] = pin
    free = tuple(group for group in needs if group not in fixed and group not in left)
    choices = {group: choices[group] for group in free if group in choices}
    # Nodes outside the preferred zones only serve groups that have no member inside.
    others = {node for nodes in choices.values() for node in nodes} - allowed.keys()
    if others:
        choices |= {group: allowed for group in free if group not in choices}
        allowed = {node: one for node, one in usable.items() if node in allowed or node in others}
    zones_used = {one.zone for one in allowed.values()}
    stay = Counter(problem.current.get(group) for group in left)
    return Frame(
        problem=problem,
        needs=needs,
        usable=usable,
        allowed=allowed,
        waiting={node: stay[node] for node in sorted(waiting) if offers[node].zone in zones_used},
        fixed=fixed,
        left=frozenset(left),
        free=free,
        choices=choices,
    )


def may_be_on(need: GroupNeed, node: NodeId) -> bool:
    return need.members is None or node in need.members


def _among(
    members: frozenset[NodeId] | None, offers: Mapping[NodeId, NodeOffer]
) -> dict[NodeId, NodeOffer]:
    """Those of the nodes that are members."""
    return {node: one for node, one in offers.items() if members is None or node in members}
