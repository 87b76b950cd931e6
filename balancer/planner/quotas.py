"""By count: how many free groups each node must end with, exactly.

Evenness is the sum over nodes of count² / capacity; smaller is more even (with equal capacities,
counts differ by at most one). It is separable and convex, so handing out the groups one by one,
each to the node whose cost rises least, is optimal. A node's cost rises by more each time, so all
optimal results agree except for *extras*: the last few places, which raise the cost by the same
amount on several nodes (`takers`). Nodes that hold more than their base already get the extras
first, because there the extra group need not move. If masters are to be spread over zones, zones
get their totals by the same rule before the nodes inside them.
"""

from collections.abc import Mapping
from fractions import Fraction
from heapq import heapify, heapreplace

import attrs

from balancer.planner.problem import Frame
from paxos.ids import NodeId


@attrs.frozen
class Shares:
    """Every optimal way to share: `base` for all, and one more for `extras` of the `takers`."""

    base: Mapping[NodeId, int]
    takers: tuple[NodeId, ...]
    extras: int

    def stays(self, held: Mapping[NodeId, int]) -> int:
        """How many groups can stay where they are, at most."""
        base = sum(min(held[node], count) for node, count in self.base.items())
        return base + min(self.extras, sum(held[node] > self.base[node] for node in self.takers))

    def quotas(self, held: Mapping[NodeId, int]) -> dict[NodeId, int]:
        """One optimal sharing in which that many stay; lower node ids first among equals."""
        ordered = sorted(self.takers, key=lambda node: (held[node] <= self.base[node], node))
        lucky = ordered[: self.extras]
        return {node: count + (node in lucky) for node, count in self.base.items()}


def rise(count: int, capacity: int) -> Fraction:
    """What one more group adds to count² / capacity."""
    return Fraction(2 * count + 1, capacity)


def share(loads: Mapping[NodeId, int], capacities: Mapping[NodeId, int], amount: int) -> Shares:
    """Hand out `amount` groups to nodes that carry `loads` already."""
    given = dict.fromkeys(sorted(loads), 0)
    heap = [(rise(loads[node], capacities[node]), node) for node in given]
    heapify(heap)
    for _ in range(amount):
        _, node = heap[0]
        given[node] += 1
        heapreplace(heap, (rise(loads[node] + given[node], capacities[node]), node))
    if not amount:
        return Shares(given, (), 0)

    def last_rise(node: NodeId) -> Fraction:
        return rise(loads[node] + given[node] - 1, capacities[node])

    level = max(last_rise(node) for node, count in given.items() if count)
    raised = {node for node, count in given.items() if count and last_rise(node) == level}
    takers = raised | {node for rises, node in heap if rises == level}
    base = {node: count - (node in raised) for node, count in given.items()}
    return Shares(base, tuple(sorted(takers)), len(raised))


def zone_totals(
    frame: Frame, loads: Mapping[NodeId, int], held: Mapping[NodeId, int]
) -> dict[str, int]:
    """How many free groups each zone gets: even between zones, then nodes; then the most stay."""
    zones = frame.zones
    if len(zones) == 1:
        return {zone: len(frame.free) for zone in zones}
    # Zones take the place of nodes here, numbered in sorted order.
    names = list(zones)
    numbers = [NodeId(at) for at in range(len(names))]
    zone_loads = {at: sum(loads[node] for node in zones[names[at]]) for at in numbers}
    totals = share(zone_loads, dict.fromkeys(numbers, 1), len(frame.free))

    def price(at: NodeId) -> tuple[Fraction, int]:
        """The cost of an extra in evenness of nodes, and how many groups it lets stay."""
        members, base = zones[names[at]], totals.base[at]
        few, more = (_within(frame, members, loads, base + extra) for extra in (0, 1))
        counts = few.quotas(held)
        rises = [rise(loads[one] + counts[one], frame.allowed[one].capacity) for one in members]
        return min(rises), few.stays(held) - more.stays(held)

    lucky = sorted(totals.takers, key=lambda at: (price(at), at))[: totals.extras]
    return {names[at]: totals.base[at] + (at in lucky) for at in numbers}


def _within(
    frame: Frame, members: list[NodeId], loads: Mapping[NodeId, int], amount: int
) -> Shares:
    capacities = {node: frame.allowed[node].capacity for node in members}
    return share({node: loads[node] for node in members}, capacities, amount)


def fixed_loads(frame: Frame) -> dict[NodeId, int]:
    """Groups that are on each allowed node whatever the plan."""
    loads = dict.fromkeys(frame.allowed, 0)
    for node in frame.fixed.values():
        if node in loads:
            loads[node] += 1
    return loads


def quotas(frame: Frame) -> dict[NodeId, int]:
    """How many free groups each allowed node ends with: as even as possible, then fewest moves."""
    loads = fixed_loads(frame)
    held = {node: len(groups) for node, groups in frame.held().items()}
    result: dict[NodeId, int] = {}
    for zone, total in zone_totals(frame, loads, held).items():
        members = frame.zones[zone]
        result |= _within(frame, members, loads, total).quotas(held)
    return dict(sorted(result.items()))
