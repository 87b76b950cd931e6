"""By weight: no node above its share by more than the tolerance, with few moves.

Packing weights exactly is a hard problem, and load changes while it is computed. So a node is even
enough below a ceiling: its share plus the tolerance. If nothing is above its ceiling, nothing
moves. Otherwise overloaded nodes give away as few groups as it takes to bring them below, the
lightest that suffice; each goes, heaviest first, to the node that it loads least; and a bounded
refinement looks for single moves and swaps where something did not fit. `proof.py` says whether
fewer moves would do.

A group heavier than a share gets a ceiling of its own (and the tolerance), on the node where it is:
it cannot be divided, and the others share the rest.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final

import attrs

from balancer.planner.problem import Frame
from balancer.planner.topic_spread import TopicLoad
from paxos.ids import GroupId, NodeId

POLISH_STEPS_MAX: Final = 32


@attrs.frozen
class Ceilings:
    limits: Mapping[NodeId, int]
    """The most weight each allowed node may end with, including what is fixed on it."""
    oversized: Mapping[GroupId, NodeId]
    """Groups heavier than a share, and the node that has its ceiling raised for each."""


def ceilings(frame: Frame) -> Ceilings:
    fixed = fixed_weights(frame)
    parts = _parts(frame)
    left = dict(parts)
    total = sum(fixed.values()) + sum(frame.needs[group].weight for group in frame.free)
    oversized = sorted(frame.free, key=lambda group: (-frame.needs[group].weight, group))
    result: dict[NodeId, int] = {}
    placed: dict[GroupId, NodeId] = {}
    while left:
        limits = _limits(frame, left, total)
        slack = 0
        stuck = next((node for node in left if fixed[node] > limits[node]), None)
        if stuck is not None:
            load = fixed[stuck]
        elif oversized and frame.needs[oversized[0]].weight > max(limits.values()):
            giant = oversized.pop(0)
            home, able = frame.home(giant), [node for node in left if node in frame.may(giant)]
            if not able:
                continue  # all of its nodes have ceilings already: it lies above one of them
            roomy = max(able, key=lambda node: (-fixed[node], parts[node], -node))
            stuck = home if home is not None and home in left else roomy
            weight = frame.needs[giant].weight
            load = fixed[stuck] + weight
            slack = weight * frame.problem.objectives.tolerance_percent // 100
            placed[giant] = stuck
        else:
            result |= limits
            break
        result[stuck] = load + slack
        total -= load
        del left[stuck]
    return Ceilings(dict(sorted(result.items())), placed)


def _parts(frame: Frame) -> dict[NodeId, Fraction]:
    """The part of the total that each node should carry, up to a common factor."""
    parts = {}
    for members in frame.zones.values():
        zone = sum(frame.allowed[node].capacity for node in members)
        divisor = zone if frame.problem.objectives.spread_zones else 1
        for node in members:
            parts[node] = Fraction(frame.allowed[node].capacity, divisor)
    return dict(sorted(parts.items()))


def _limits(frame: Frame, parts: Mapping[NodeId, Fraction], total: int) -> dict[NodeId, int]:
    whole = sum(parts.values())
    percent = 100 + frame.problem.objectives.tolerance_percent
    return {node: -int(-total * part * percent // (whole * 100)) for node, part in parts.items()}


def fixed_weights(frame: Frame) -> dict[NodeId, int]:
    loads = dict.fromkeys(frame.allowed, 0)
    for group, node in frame.fixed.items():
        if node in loads:
            loads[node] += frame.needs[group].weight
    return loads


def weights_on(frame: Frame, placement: Mapping[GroupId, NodeId]) -> dict[NodeId, int]:
    loads = dict.fromkeys(frame.allowed, 0)
    for group, node in placement.items():
        if node in loads and group not in frame.left:
            loads[node] += frame.needs[group].weight
    return loads


def fewest_leaving(weights: Iterable[int], excess: int) -> int:
    """The least number of these groups that must leave to remove `excess`: the heaviest first."""
    count = 0
    for weight in sorted(weights, reverse=True):
        if excess <= 0:
            break
        excess -= weight
        count += 1
    return count


class WeightBalancer:
    """Makes one plan by weight, from the groups that stay to the last swap."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame
        self._weight = {group: need.weight for group, need in frame.needs.items()}
        self._ceilings = ceilings(frame)
        self.limits = self._ceilings.limits
        self._loads = fixed_weights(frame)
        self._topics = TopicLoad(frame)
        self._on: dict[NodeId, set[GroupId]] = {node: set() for node in frame.allowed}
        self.placement: dict[GroupId, NodeId] = {}

    def run(self) -> dict[GroupId, NodeId]:
        """The places of the free groups."""
        for group, node in self._frame.fixed.items():
            self._topics.add(node, group)
        for node, mine in self._frame.held().items():
            for group in mine:
                self._put(group, node)
        for group, node in self._ceilings.oversized.items():
            self._put(group, node)
        moving = [group for group in self._frame.free if group not in self.placement]
        for node in self._frame.allowed:
            moving += self._shed(node)
        for group in sorted(moving, key=lambda group: (-self._weight[group], group)):
            self._put(group, self._best_for(group))
        for _ in range(POLISH_STEPS_MAX):
            if not self._refine():
                break
        self._undo_needless_moves()
        return self.placement

    def _put(self, group: GroupId, node: NodeId) -> None:
        source = self.placement.get(group)
        if source is not None:
            self._on[source].remove(group)
            self._loads[source] -= self._weight[group]
            self._topics.take(source, group)
        self._on[node].add(group)
        self._loads[node] += self._weight[group]
        self._topics.add(node, group)
        self.placement[group] = node

    def _over(self, node: NodeId) -> int:
        return max(0, self._loads[node] - self.limits[node])

    def _shed(self, node: NodeId) -> list[GroupId]:
        """Take as few groups off the node as bring it below its ceiling: the lightest that
        suffice."""
        excess, leaving = self._over(node), []
        mine = sorted(
            self._on[node] - self._ceilings.oversized.keys(),
            key=lambda group: (self._weight[group], -group),
        )
        for left in range(fewest_leaving((self._weight[group] for group in mine), excess), 0, -1):
            others = sum(self._weight[group] for group in mine[len(mine) - left + 1 :])
            chosen = next(group for group in mine if self._weight[group] + others >= excess)
            mine.remove(chosen)
            excess -= self._weight[chosen]
            leaving.append(chosen)
            self._on[node].remove(chosen)
            self._loads[node] -= self._weight[chosen]
            self._topics.take(node, chosen)
            del self.placement[chosen]
        return leaving

    def _best_for(self, group: GroupId) -> NodeId:
        """A node that stays below its ceiling if there is one, then least loaded, then by
        topics."""
        weight = self._weight[group]

        def rank(node: NodeId) -> tuple[bool, Fraction, int, NodeId]:
            after = self._loads[node] + weight
            full = Fraction(after, max(1, self.limits[node]))
            return after > self.limits[node], full, self._topics.rise(node, group), node

        return min(self._frame.may(group), key=rank)

    def _refine(self) -> bool:
        """Make the one move or swap that reduces the excess over the ceilings most."""
        node = max(self._frame.allowed, key=lambda node: (self._over(node), -node))
        if not self._over(node):
            return False
        found: list[tuple[int, int, GroupId, NodeId, GroupId | None]] = []
        for group in sorted(self._on[node] - self._ceilings.oversized.keys()):
            for other in self._frame.may(group):
                if other == node:
                    continue
                self._consider(found, group, other, None)
                for theirs in sorted(self._on[other] - self._ceilings.oversized.keys()):
                    lighter = self._weight[theirs] < self._weight[group]
                    if lighter and node in self._frame.may(theirs):
                        self._consider(found, group, other, theirs)
        if not found:
            return False
        _, _, group, other, back = min(found, key=lambda one: one[:4])
        self._put(group, other)
        if back is not None:
            self._put(back, node)
        return True

    def _consider(
        self,
        found: list[tuple[int, int, GroupId, NodeId, GroupId | None]],
        group: GroupId,
        other: NodeId,
        back: GroupId | None,
    ) -> None:
        node = self.placement[group]
        shift = self._weight[group] - (0 if back is None else self._weight[back])
        change = (
            max(0, self._loads[node] - shift - self.limits[node])
            + max(0, self._loads[other] + shift - self.limits[other])
            - self._over(node)
            - self._over(other)
        )
        if change < 0:
            home = self._frame.home
            extra = (home(group) != other) - (home(group) != node)
            if back is not None:
                extra += (home(back) != node) - (home(back) != other)
            found.append((change, extra, group, other, back))

    def _undo_needless_moves(self) -> None:
        """Undo moves that turned out not to be needed."""
        for group in self._frame.free:
            home = self._frame.home(group)
            if home is None or self.placement[group] == home or group in self._ceilings.oversized:
                continue
            most = max(self.limits[home], self._loads[home])
            if self._loads[home] + self._weight[group] <= most:
                self._put(group, home)
