"""Groups of very different sizes: nodes that are even by count may be far from it in bytes.

Two groups change places if that brings a node closer to its share and its tolerance; counts and
zones stay as they are. The search is bounded and looks for a good result, not for the best: data
grows and shrinks while it is copied.
"""

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Final

from paxos.ids import GroupId, NodeId

SWAPS_MAX: Final = 64
BYTES_THAT_MATTER: Final = 64 * 2**20
"""On an average node; with less, nothing is copied for evenness of bytes."""
TAKERS: Final = 3
"""How many of the emptiest nodes are considered."""


def spread_bytes(
    *,
    sets: Mapping[GroupId, tuple[NodeId, ...]],
    free: Mapping[GroupId, Collection[NodeId]],
    bytes_of: Mapping[GroupId, int],
    capacity: Mapping[NodeId, int],
    zone: Mapping[NodeId, str],
    tolerance_percent: int,
) -> dict[GroupId, tuple[NodeId, ...]]:
    """The sets that change; `free` has the movable groups, and the nodes each of them may be on."""
    table = _Bytes(sets, free, bytes_of, capacity, zone, tolerance_percent)
    for _ in range(SWAPS_MAX):
        if not table.swap():
            break
    return table.changed


class _Bytes:
    def __init__(
        self,
        sets: Mapping[GroupId, tuple[NodeId, ...]],
        free: Mapping[GroupId, Collection[NodeId]],
        bytes_of: Mapping[GroupId, int],
        capacity: Mapping[NodeId, int],
        zone: Mapping[NodeId, str],
        tolerance_percent: int,
    ) -> None:
        self._sets = {group: set(members) for group, members in sets.items()}
        self._was, self._free, self._bytes, self._zone = sets, free, bytes_of, zone
        self._on = dict.fromkeys(capacity, 0)
        for group, members in sets.items():
            for node in members:
                if node in self._on:
                    self._on[node] += bytes_of[group]
        total, whole = sum(self._on.values()), sum(capacity.values())
        self._share = {node: total * one // whole for node, one in capacity.items()}
        self._most = {
            node: share * (100 + tolerance_percent) // 100 for node, share in self._share.items()
        }
        self._matters = total >= BYTES_THAT_MATTER * len(self._on)

    @property
    def changed(self) -> dict[GroupId, tuple[NodeId, ...]]:
        return {
            group: tuple(sorted(members))
            for group, members in self._sets.items()
            if tuple(sorted(members)) != self._was[group]
        }

    def swap(self) -> bool:
        """Two groups change places if that reduces the bytes on the fullest node."""
        if not self._matters:
            return False
        full = max(self._on, key=lambda node: (self._on[node] - self._most[node], -node))
        if self._on[full] <= self._most[full]:
            return False
        room = sorted(self._on, key=lambda node: (self._on[node] - self._share[node], node))
        found = [
            one
            for other in room[:TAKERS]
            if other != full and self._on[other] < self._share[other]
            for one in self._swaps(full, other)
        ]
        if not found:
            return False
        _, _, mine, theirs, other = min(found)
        for group, here, there in ((mine, full, other), (theirs, other, full)):
            self._sets[group].remove(here)
            self._sets[group].add(there)
            self._on[here] -= self._bytes[group]
            self._on[there] += self._bytes[group]
        return True

    def _swaps(
        self, full: NodeId, other: NodeId
    ) -> list[tuple[int, int, GroupId, GroupId, NodeId]]:
        """(distance from even for the two nodes, bytes, the groups): one for each of `full`'s
        groups."""
        excess = self._on[full] - self._share[full]
        room = self._share[other] - self._on[other]
        wanted = min(excess, room)
        theirs = sorted(
            (self._bytes[group], group) for group in self._free if self._may(group, other, full)
        )
        found = []
        for mine in self._free:
            if not theirs or not self._may(mine, full, other):
                continue
            at = bisect_left(theirs, (self._bytes[mine] - wanted, GroupId(0)))
            for size, group in theirs[max(0, at - 1) : at + 2]:
                shift = self._bytes[mine] - size
                if 0 < shift < excess + room:
                    left = abs(excess - shift) + abs(room - shift)
                    found.append((left, self._bytes[mine] + size, mine, group, other))
        return found

    def _may(self, group: GroupId, here: NodeId, there: NodeId) -> bool:
        members = self._sets[group]
        if here not in members or there in members or there not in self._free[group]:
            return False
        zones = [self._zone[node] for node in members]
        return self._zone[here] == self._zone[there] or zones.count(
            self._zone[there]
        ) < zones.count(self._zone[here])
