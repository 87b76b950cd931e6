"""The ideal placement: masters even by count over the usable nodes, with the fewest moves.

Pure and deterministic: every node that is given the same arguments makes the same plan. How it is
found: water is poured on the nodes' pinned load, which fixes how many free groups each node must
end with (`base`, and one more for `extras` of the nodes that stand lowest); of all ways to hand out
the extras the one wins that lets most groups stay, that is nodes which have more than their base
already. A node then keeps its lowest-numbered groups up to its quota, and the rest goes, in
ascending order, to whoever has fewest. No placement as even as this needs fewer moves: with the
quotas q, at least sum(max(0, held - q)) groups must leave, and exactly those do.
"""

from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from typing import Final

import attrs

from paxos.ids import GroupId, NodeId

_NOTHING_PINNED: Final[Mapping[GroupId, NodeId]] = {}


class PlanReason(StrEnum):
    """Why a group is planned where it is."""

    STAYS = "stays"
    PINNED = "pinned"
    """An operator chose the node (it may be a move)."""
    EVENNESS = "evenness"
    """Its node has more groups than its share."""
    UNPLACED = "unplaced"
    """It had no node."""
    NODE_UNUSABLE = "node-unusable"
    """Its node is excluded or not in the cluster."""
    NO_USABLE_NODE = "no-usable-node"
    """Nothing can be planned; it stays where it is."""


@attrs.frozen
class Decision:
    """`source` is where the group is, `target` where it should be; equal means it stays."""

    group: GroupId
    source: NodeId | None
    target: NodeId | None
    reason: PlanReason

    @property
    def is_move(self) -> bool:
        return self.source != self.target


@attrs.frozen
class Plan:
    """One decision for every group, in ascending order; `moves` are those that change something."""

    placement: Mapping[GroupId, NodeId]
    decisions: tuple[Decision, ...]

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


def plan_placement(
    groups: Iterable[GroupId],
    nodes: Iterable[NodeId],
    current: Mapping[GroupId, NodeId],
    *,
    excluded: Collection[NodeId] = (),
    pinned: Mapping[GroupId, NodeId] = _NOTHING_PINNED,
) -> Plan:
    """Place `groups` on `nodes` minus `excluded`, starting from `current`.

    A group pinned to a usable node goes there and counts for that node's load; a pin to an unusable
    node is disregarded. Without pins the loads differ by at most one; with pins they are as even as
    the pins allow.
    """
    usable = sorted(set(nodes).difference(excluded))
    wanted = sorted(set(groups))
    if not usable:
        return _nothing_usable(wanted, current)
    fixed = {group: pinned[group] for group in wanted if pinned.get(group) in usable}
    free = [group for group in wanted if group not in fixed]
    load = dict.fromkeys(usable, 0)
    for node in fixed.values():
        load[node] += 1
    held: dict[NodeId, list[GroupId]] = {node: [] for node in usable}
    for group in free:
        if current.get(group) in held:
            held[current[group]].append(group)
    quota = _quotas(load, {node: len(mine) for node, mine in held.items()}, len(free))

    placement = dict(fixed)
    for node, mine in held.items():
        placement.update(dict.fromkeys(mine[: quota[node]], node))
    room = {node: quota[node] - min(quota[node], len(mine)) for node, mine in held.items()}
    for group in free:
        if group not in placement:
            # Who has most room is furthest below its share; the lowest id among equals.
            node = max(usable, key=lambda node: (room[node], -node))
            room[node] -= 1
            placement[group] = node
    assert not any(room.values()), f"quotas do not add up: {room}"
    ordered = {group: placement[group] for group in wanted}
    decisions = tuple(
        _decide(group, current.get(group), ordered[group], group in fixed, held) for group in wanted
    )
    return Plan(ordered, decisions)


def _quotas(
    pinned_load: Mapping[NodeId, int], held: Mapping[NodeId, int], free: int
) -> dict[NodeId, int]:
    """How many free groups each node ends with."""
    level = _water_level(sorted(pinned_load.values()), free)
    base = {node: max(0, level - load) for node, load in pinned_load.items()}
    extras = free - sum(base.values())
    takers = [node for node, load in pinned_load.items() if load <= level]
    # First those for which the extra group is one that need not move.
    takers.sort(key=lambda node: (held[node] <= base[node], node))
    assert 0 <= extras < max(len(takers), 1), f"{extras} extras for {len(takers)} nodes"
    return {node: base[node] + (node in takers[:extras]) for node in base}


def _water_level(loads: list[int], amount: int) -> int:
    """The highest level to which `amount` fills every one of the ascending `loads`."""
    poured_over = 0
    for count, load in enumerate(loads, start=1):
        poured_over += load
        level = (poured_over + amount) // count
        if count == len(loads) or level < loads[count]:
            return level
    raise AssertionError("no node to pour on")


def _decide(
    group: GroupId,
    source: NodeId | None,
    target: NodeId,
    is_pinned: bool,
    usable: Collection[NodeId],
) -> Decision:
    if is_pinned:
        reason = PlanReason.PINNED
    elif source == target:
        reason = PlanReason.STAYS
    elif source is None:
        reason = PlanReason.UNPLACED
    else:
        reason = PlanReason.EVENNESS if source in usable else PlanReason.NODE_UNUSABLE
    return Decision(group, source, target, reason)


def _nothing_usable(groups: list[GroupId], current: Mapping[GroupId, NodeId]) -> Plan:
    return Plan(
        {group: current[group] for group in groups if group in current},
        tuple(
            Decision(group, current.get(group), current.get(group), PlanReason.NO_USABLE_NODE)
            for group in groups
        ),
    )
