"""By count: how many free groups each node must end with, exactly.

Unevenness is the sum over nodes of count² / capacity; smaller is more even (with equal capacities,
counts differ by at most one). Among sharings that are equally even over nodes, the one is chosen
that is even over zones, since a zone is a machine with several nodes, or a rack: the sum over zones
of count² / share, where a zone's share is what its nodes have together. (If masters are to be
spread over zones, shares are equal, and zones come before nodes.) Among those, the one in which the
most groups stay where they are.

Each of the three is convex, of a node's count or of a zone's, and zones do not overlap. For such a
sum (laminar convex, so M-convex) handing out groups one by one, each where the whole rises least,
is optimal; `proof.py` checks every result.
"""

from heapq import heapify, heapreplace

from balancer.planner.problem import Frame
from paxos.ids import NodeId


def fixed_loads(frame: Frame) -> dict[NodeId, int]:
    """Groups that are on each allowed node whatever the plan."""
    loads = dict.fromkeys(frame.allowed, 0)
    for node in frame.fixed.values():
        if node in loads:
            loads[node] += 1
    return loads


def quotas(frame: Frame) -> dict[NodeId, int]:
    """How many free groups each allowed node ends with: as even as possible, then fewest moves."""
    sharing = _Sharing(frame)
    for _ in frame.free:
        sharing.give_one()
    return sharing.given


class _Sharing:
    """Groups handed out so far, and where the next one raises the unevenness least."""

    def __init__(self, frame: Frame) -> None:
        self._scales, self._zones_first = frame.scales, frame.problem.objectives.spread_zones
        self._held = {node: len(groups) for node, groups in frame.held().items()}
        self._loads = fixed_loads(frame)
        self.given = dict.fromkeys(frame.allowed, 0)
        zones = frame.by_zone
        self._totals = frame.zone_totals(self._loads)
        self._in_zone = {zone: [*map(self._rise, members)] for zone, members in zones.items()}
        for members in self._in_zone.values():
            heapify(members)
        self._zones = [(*self._zone_rise(zone), zone) for zone in zones]
        heapify(self._zones)

    def give_one(self) -> None:
        zone = self._zones[0][-1]
        members = self._in_zone[zone]
        node = members[0][-1]
        self.given[node] += 1
        self._totals[zone] += 1
        heapreplace(members, self._rise(node))
        heapreplace(self._zones, (*self._zone_rise(zone), zone))

    def _rise(self, node: NodeId) -> tuple[int, bool, NodeId]:
        """What one more group adds on the node, and whether it has to move there."""
        given = self.given[node]
        count = self._loads[node] + given
        return (2 * count + 1) * self._scales.node[node], self._held[node] <= given, node

    def _zone_rise(self, zone: str) -> tuple[int, int, bool, NodeId]:
        """What one more group adds in the zone, on its best node."""
        on_node, moves, node = self._in_zone[zone][0]
        in_zone = (2 * self._totals[zone] + 1) * self._scales.zone[zone]
        first, second = (in_zone, on_node) if self._zones_first else (on_node, in_zone)
        return first, second, moves, node
