"""Topics over nodes: which of several equally good groups to move, and swaps where that is not
enough.

A topic whose partitions share a node shares its CPU and its link. The planner breaks every tie by
the sum of squares of a topic's partitions per node, which costs no move. Where an operator sets a
bound (`Objectives.topic_excess_max`), groups are swapped between nodes until it holds or no swap
helps; counts per node stay as they are.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from balancer.planner.problem import Frame
from paxos.ids import GroupId, NodeId

SWAPS_MAX: Final = 64


class TopicLoad:
    """How many partitions of each topic are on each node."""

    def __init__(self, frame: Frame) -> None:
        self._topics = {group: need.topics for group, need in frame.needs.items()}
        self.counts: dict[NodeId, Counter[str]] = {node: Counter() for node in frame.usable}
        self.matters = any(self._topics.values())

    def add(self, node: NodeId, group: GroupId) -> None:
        self.counts[node].update(self._topics[group])

    def take(self, node: NodeId, group: GroupId) -> None:
        self.counts[node].subtract(self._topics[group])

    def rise(self, node: NodeId, group: GroupId) -> int:
        """How much the group would add to the sum of squares."""
        if not self.matters:
            return 0
        counts = self.counts[node]
        return sum(n * (2 * counts[topic] + n) for topic, n in self._topics[group].items())

    def groups_to_keep(self, node: NodeId, mine: list[GroupId], quota: int) -> list[GroupId]:
        """Choose the `quota` groups that a node keeps, and enter them; the lowest among equals."""
        if quota >= len(mine) or not self.matters:
            kept = mine[:quota]
            for group in kept:
                self.add(node, group)
            return kept
        if quota <= len(mine) // 2:
            left = list(mine)
            kept = []
            for _ in range(quota):
                best = min(left, key=lambda group: (self.rise(node, group), group))
                left.remove(best)
                kept.append(best)
                self.add(node, best)
            return sorted(kept)
        kept = list(mine)
        for group in kept:
            self.add(node, group)
        for _ in range(len(mine) - quota):
            # The rise on adding a group again orders groups as the fall on taking it out does.
            worst = max(kept, key=lambda group: (self.rise(node, group), group))
            kept.remove(worst)
            self.take(node, worst)
        return kept


def even_shares(frame: Frame) -> dict[str, int]:
    """Partitions of each topic per allowed node, rounded up; fixed groups are left out."""
    totals: Counter[str] = Counter()
    for group, need in frame.needs.items():
        if group not in frame.left:
            totals.update(need.topics)
    nodes = max(1, len(frame.allowed))
    return {topic: -(-count // nodes) for topic, count in totals.items()}


def total_excess(frame: Frame, placement: Mapping[GroupId, NodeId]) -> int:
    """Partitions above share and bound, over all topics and allowed nodes; 0 without a bound."""
    slack = frame.problem.objectives.topic_excess_max
    if slack is None:
        return 0
    load = _loaded(frame, placement)
    shares = even_shares(frame)
    return sum(
        max(0, count - shares[topic] - slack)
        for node in frame.allowed
        for topic, count in load.counts[node].items()
    )


def _loaded(frame: Frame, placement: Mapping[GroupId, NodeId]) -> TopicLoad:
    load = TopicLoad(frame)
    for group, node in placement.items():
        if node in load.counts and group not in frame.left:
            load.add(node, group)
    return load


Swappable = Callable[[GroupId, GroupId], bool]
"""Whether two free groups may change places, topics aside."""


class _Swapper:
    def __init__(self, frame: Frame, placement: dict[GroupId, NodeId], may: Swappable) -> None:
        slack = frame.problem.objectives.topic_excess_max
        assert slack is not None, "nobody asked for swaps"
        self._frame, self._placement, self._may = frame, placement, may
        self._most = {topic: share + slack for topic, share in even_shares(frame).items()}
        self._load = _loaded(frame, placement)
        self._on: dict[NodeId, set[GroupId]] = {node: set() for node in frame.allowed}
        for group in frame.free:
            self._on[placement[group]].add(group)

    def run(self) -> None:
        for _ in range(SWAPS_MAX):
            crowded = self._most_crowded()
            if crowded is None or not self._relieve(*crowded):
                return

    def _excess(self, node: NodeId, topic: str) -> int:
        return max(0, self._load.counts[node][topic] - self._most[topic])

    def _most_crowded(self) -> tuple[NodeId, str] | None:
        excess, node, topic = max(
            (
                (self._excess(node, topic), -node, topic)
                for node in self._frame.allowed
                for topic in self._most
            ),
            default=(0, 0, ""),
        )
        return (NodeId(-node), topic) if excess else None

    def _relieve(self, node: NodeId, topic: str) -> bool:
        """Make the best swap that takes partitions of the topic off the node."""
        topics = {group: need.topics for group, need in self._frame.needs.items()}
        guilty = [group for group in sorted(self._on[node]) if topics[group].get(topic)]
        others = sorted(
            (other for other in self._frame.allowed if other != node),
            key=lambda other: (self._load.counts[other][topic], other),
        )
        for other in others:
            found = [
                (gain, self._extra_moves(mine, theirs), mine, theirs)
                for mine in guilty
                for theirs in sorted(self._on[other])
                if topics[theirs].get(topic, 0) < topics[mine][topic]
                and (gain := self._gain(mine, theirs)) < 0
                and self._may(mine, theirs)
            ]
            if found:
                _, _, mine, theirs = min(found)
                self._swap(mine, theirs)
                return True
        return False

    def _gain(self, mine: GroupId, theirs: GroupId) -> int:
        """The change of the total excess: negative is better."""
        here, there = self._placement[mine], self._placement[theirs]
        needs = self._frame.needs
        change = 0
        for topic in needs[mine].topics.keys() | needs[theirs].topics.keys():
            moved = needs[mine].topics.get(topic, 0) - needs[theirs].topics.get(topic, 0)
            for node, sign in ((here, -1), (there, 1)):
                count, most = self._load.counts[node][topic], self._most[topic]
                change += max(0, count + sign * moved - most) - max(0, count - most)
        return change

    def _extra_moves(self, mine: GroupId, theirs: GroupId) -> int:
        here, there = self._placement[mine], self._placement[theirs]
        home = self._frame.home
        before = (home(mine) != here) + (home(theirs) != there)
        return (home(mine) != there) + (home(theirs) != here) - before

    def _swap(self, mine: GroupId, theirs: GroupId) -> None:
        here, there = self._placement[mine], self._placement[theirs]
        for group, source, target in ((mine, here, there), (theirs, there, here)):
            self._on[source].remove(group)
            self._on[target].add(group)
            self._load.take(source, group)
            self._load.add(target, group)
            self._placement[group] = target


def spread_topics(frame: Frame, placement: dict[GroupId, NodeId], may: Swappable) -> None:
    """Swap groups in `placement` until the operator's bound on topics holds or nothing helps."""
    if frame.problem.objectives.topic_excess_max is not None and len(frame.allowed) > 1:
        _Swapper(frame, placement, may).run()
