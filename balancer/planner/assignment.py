"""Groups to nodes at the least cost, exactly: some seats for each group, on different nodes.

A minimum cost flow. What it costs, the first thing first: penalties of places; seats of a group in
one zone above what the zone may have; unevenness (of zones, where they are to be level; then of
nodes: the sum of count² / capacity); the prices of places. All of it is convex, so a seating is
best as soon as no *round* makes it cheaper: a chain of nodes where each passes one group on to the
next, from one that has too much to one that has too little, or in a circle. There are few nodes, so
the chain is looked for among nodes alone: from one to another leads the group that costs least.

That is exact with zones, too: a flow falls into rounds that pass a zone of a group once, and those
cost what their steps cost. A round that was found may be of another kind, and cost more than its
steps; then another one is looked for, ROUNDS_TRIED_MAX times. What remains when none is found are
the nodes' *prices*: every step costs at least what the price falls by, which anybody can check, and
so every round costs at least nothing.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import lcm
from typing import Final, NamedTuple

import attrs

from paxos.ids import GroupId, NodeId

ROUNDS_TRIED_MAX: Final = 16
ROUNDS_PER_SEAT_MAX: Final = 4
"""A bound for what never happens: each round is cheaper than the one before."""


class Place(NamedTuple):
    """What a seat on a node costs."""

    penalty: int = 0
    price: int = 0


@attrs.frozen(kw_only=True)
class AssignmentProblem:
    """What is to be seated where; `start` says how it is now, and is completed where it must be."""

    choices: Mapping[GroupId, Mapping[NodeId, Place]]
    seats: Mapping[GroupId, int]
    """At most as many as a group has choices."""
    start: Mapping[GroupId, Collection[NodeId]]
    """Among its choices; at most as many as it has seats."""
    capacity: Mapping[NodeId, int]
    """All nodes there are, each above 0."""
    fixed: Mapping[NodeId, int]
    """Seats that nobody moves; they count."""
    zone: Mapping[NodeId, str]
    zone_most: Mapping[GroupId, int] = attrs.field(factory=dict)
    """Seats of a group in one zone, at most; nothing for those who are not in it."""
    level_zones: bool = False


@attrs.frozen
class Assignment:
    sets: Mapping[GroupId, frozenset[NodeId]]
    prices: Mapping[str, int] | None
    """Of all places where a chain can pass; None: it is not proven to be the best."""


class _Step(NamedTuple):
    """An arc of the graph in which rounds are looked for; `group` None: a count changes."""

    source: int
    target: int
    cost: int
    group: GroupId | None


def best(problem: AssignmentProblem) -> Assignment:
    """The best seating there is: as even as can be, then the cheapest."""
    table = _Table(problem)
    proven = table.improve()
    prices = dict(zip(table.names, table.prices, strict=True)) if proven else None
    return Assignment({group: frozenset(sets) for group, sets in table.sets.items()}, prices)


def prices_of(problem: AssignmentProblem) -> Mapping[str, int] | None:
    """Prices that prove `start`, which must be complete, to be the best; None if it is not."""
    table = _Table(problem)
    return None if table.find_round() else dict(zip(table.names, table.prices, strict=True))


def objection(problem: AssignmentProblem, prices: Mapping[str, int]) -> str | None:
    """Why these prices do not prove `start` to be the best; None if they do."""
    table = _Table(problem)
    if any(len(set(problem.start[group])) != seats for group, seats in problem.seats.items()):
        return "a group has not its seats"
    if set(prices) != set(table.names):
        return "a price is missing"
    worth = [prices[name] for name in table.names]
    for step in table.all_steps():
        if worth[step.source] + step.cost < worth[step.target]:
            source, target = table.names[step.source], table.names[step.target]
            what = "a seat" if step.group is None else f"group {step.group}"
            return f"{what} from {source} to {target} costs less than its price"
    return None


class _Table:
    """Who sits where, and what every step would cost."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self._problem = problem
        self._nodes = sorted(problem.capacity)
        self._number = {node: at for at, node in enumerate(self._nodes)}
        zones = sorted(set(problem.zone.values())) if problem.level_zones else []
        self._zone_number = {zone: len(self._nodes) + at for at, zone in enumerate(zones)}
        self.names = [f"node {node}" for node in self._nodes]
        self.names += [f"zone {zone}" for zone in zones] + ["all"]
        self.prices = [0] * len(self.names)
        self._gave_up = False
        self.sets = {group: set(problem.start.get(group, ())) for group in sorted(problem.seats)}
        self._weigh()
        self._complete()
        self._in_zones = {group: self._by_zone(group) for group in problem.zone_most}
        self._counts = [problem.fixed.get(node, 0) for node in self._nodes]
        for members in self.sets.values():
            for node in members:
                self._counts[self._number[node]] += 1
        self._moved = dict.fromkeys(self.sets, 0)
        """How often each group has moved: what it cost before is not true any more."""
        self._heaps: dict[tuple[NodeId, NodeId], list[tuple[int, GroupId, int]]] = {
            (one, other): [] for one in self._nodes for other in self._nodes
        }
        self._rows: list[list[_Step]] = [[] for _ in self._nodes]
        self._stale = set(range(len(self._nodes)))
        """Whose row is not true any more."""
        for group in self.sets:
            for one, other, cost in self._passes(group):
                self._heaps[one, other].append((cost, group, 0))
        for heap in self._heaps.values():
            heapify(heap)

    # ---- what it costs ---------------------------------------------------------------------------

    def _weigh(self) -> None:
        """Units in which everything is one sum, and what comes first weighs more than all after."""
        problem = self._problem
        seats = sum(problem.seats.values()) + 1
        whole = seats + sum(problem.fixed.values())
        scale = lcm(*problem.capacity.values()) if problem.capacity else 1
        self._share = [scale // problem.capacity[node] for node in self._nodes]
        places = [place for choices in problem.choices.values() for place in choices.values()]
        unit = 1 + seats * max((place.price for place in places), default=0)
        self._node_unit = unit
        unit *= 1 + 2 * whole * whole * scale
        self._zone_unit = unit
        unit *= 1 + (2 * whole * whole if problem.level_zones else 0)
        self._excess_unit = unit
        penalty_unit = unit * seats
        self._cost = {
            group: {
                node: place.penalty * penalty_unit + place.price for node, place in choices.items()
            }
            for group, choices in problem.choices.items()
        }

    def _by_zone(self, group: GroupId) -> dict[str, int]:
        """Seats of a group by zone."""
        zones = [self._problem.zone[node] for node in self.sets.get(group, ())]
        return {zone: zones.count(zone) for zone in set(zones)}

    def _pass_cost(self, group: GroupId, one: NodeId, other: NodeId) -> int:
        """What it costs that `one` passes a seat of the group on to `other`; its count aside."""
        cost = self._cost[group]
        change = cost[other] - cost[one]
        there, zone = self._in_zones.get(group), self._problem.zone
        if there is not None and zone[one] != zone[other]:
            most = self._problem.zone_most[group]
            worse = there.get(zone[other], 0) >= most
            better = there[zone[one]] > most
            if worse != better:
                change += self._excess_unit if worse else -self._excess_unit
        return change

    def _passes(self, group: GroupId) -> list[tuple[NodeId, NodeId, int]]:
        """All steps a group can take."""
        sets, cost = self.sets[group], self._cost[group]
        others = [node for node in cost if node not in sets]
        if group not in self._in_zones:
            return [
                (one, other, cost[other] - cost[one]) for one in sorted(sets) for other in others
            ]
        return [
            (one, other, self._pass_cost(group, one, other))
            for one in sorted(sets)
            for other in others
        ]

    # ---- the beginning ---------------------------------------------------------------------------

    def _complete(self) -> None:
        """Seat those who have none: where it is cheap and there are few."""
        load = dict.fromkeys(self._nodes, 0) | dict(self._problem.fixed)
        for members in self.sets.values():
            for node in members:
                load[node] += 1
        share = dict(zip(self._nodes, self._share, strict=True))
        for group, members in self.sets.items():
            cost = self._cost[group]
            for _ in range(self._problem.seats[group] - len(members)):
                zones = [self._problem.zone[one] for one in members]
                node = min(
                    (one for one in cost if one not in members),
                    key=lambda one: (
                        zones.count(self._problem.zone[one]),
                        load[one] * share[one],
                        cost[one],
                        one,
                    ),
                )
                members.add(node)
                load[node] += 1

    # ---- rounds ----------------------------------------------------------------------------------

    def improve(self) -> bool:
        """Make rounds until there is none; False if it is not known whether there is one."""
        for _ in range(ROUNDS_PER_SEAT_MAX * (1 + sum(self._problem.seats.values()))):
            if not self._improve_once():
                return not self._gave_up
        return False

    def _improve_once(self) -> bool:
        banned: list[_Step] = []
        made = False
        while not made and len(banned) < ROUNDS_TRIED_MAX:
            steps = self.find_round()
            if not steps:
                break
            passed = [step for step in steps if step.group is not None]
            made = self._make(steps, passed)
            if not made:
                # Two steps of one group that cost more together: without one of them, then.
                banned.append(passed[-1])
                heappop(self._heaps[self._pair(passed[-1])])
                self._stale.add(passed[-1].source)
        self._gave_up = bool(banned) and not made
        for step in banned:
            assert step.group is not None
            entry = (step.cost, step.group, self._moved[step.group])
            heappush(self._heaps[self._pair(step)], entry)
            self._stale.add(step.source)
        return made

    def _pair(self, step: _Step) -> tuple[NodeId, NodeId]:
        return self._nodes[step.source], self._nodes[step.target]

    def _make(self, steps: Sequence[_Step], passed: Sequence[_Step]) -> bool:
        """Make the round, unless its steps are dearer together than each by itself."""
        groups = [step.group for step in passed if step.group is not None]
        shared = {one for one in groups if groups.count(one) > 1 and one in self._in_zones}
        before = {one: self._excess(one) for one in shared}
        for step, group in zip(passed, groups, strict=True):
            one, other = self._pair(step)
            self.sets[group].remove(one)
            self.sets[group].add(other)
        if shared:
            alone = sum(self._excess_of(step) for step in passed if step.group in shared)
            together = sum(self._excess(one) - before[one] for one in shared)
            dearer = (together - alone) * self._excess_unit
            if sum(step.cost for step in steps) + dearer >= 0:
                for step, group in zip(passed, groups, strict=True):
                    one, other = self._pair(step)
                    self.sets[group].remove(other)
                    self.sets[group].add(one)
                return False
        for step in passed:
            self._stale.add(step.source)
            self._counts[step.source] -= 1
            self._counts[step.target] += 1
        for group in sorted(set(groups)):
            if group in self._in_zones:
                self._in_zones[group] = self._by_zone(group)
            self._moved[group] += 1
            self._stale.update(self._number[node] for node in self.sets[group])
            for one, other, cost in self._passes(group):
                heappush(self._heaps[one, other], (cost, group, self._moved[group]))
        return True

    def _excess(self, group: GroupId) -> int:
        zones = [self._problem.zone[node] for node in self.sets[group]]
        most = self._problem.zone_most[group]
        return sum(max(0, zones.count(zone) - most) for zone in set(zones))

    def _excess_of(self, step: _Step) -> int:
        """What a step was reckoned to add to the excess of its group's zones."""
        assert step.group is not None
        one, other = self._pair(step)
        cost = self._cost[step.group]
        return (step.cost - cost[other] + cost[one]) // self._excess_unit

    def find_round(self) -> list[_Step]:
        """Steps that make it cheaper together; none: there are none, and `prices` says why.

        By Bellman and Ford, from everywhere at once; a circle of predecessors is a round.
        """
        steps = self._cheapest_steps()
        worth = [0] * len(self.names)
        last: list[_Step | None] = [None] * len(self.names)
        for _ in range(len(self.names) + 1):
            changed = False
            for step in steps:
                value = worth[step[0]] + step[2]
                if value < worth[step[1]]:
                    worth[step[1]] = value
                    last[step[1]] = step
                    changed = True
            if not changed:
                self.prices = worth
                return []
            found = _circle(last)
            if found:
                return found
        raise AssertionError("prices that fall for ever have a circle")

    def _cheapest_steps(self) -> list[_Step]:
        for source in self._stale:
            self._rows[source] = self._row(source)
        self._stale = set()
        return [*self._count_steps(), *chain.from_iterable(self._rows)]

    def _row(self, source: int) -> list[_Step]:
        """The cheapest step from a node to each other one."""
        moved, one = self._moved, self._nodes[source]
        row = []
        for target, other in enumerate(self._nodes):
            heap = self._heaps[one, other]
            while heap and heap[0][2] != moved[heap[0][1]]:
                heappop(heap)
            if heap:
                cost, group, _ = heap[0]
                row.append(_Step(source, target, cost, group))
        return row

    def _count_steps(self) -> list[_Step]:
        """A seat more or less on a node, in a zone: what that costs."""
        end = len(self.names) - 1
        steps = []
        for at, node in enumerate(self._nodes):
            count, share = self._counts[at], self._share[at] * self._node_unit
            above = self._zone_number.get(self._problem.zone[node], end)
            steps.append(_Step(at, above, (2 * count + 1) * share, None))
            if count > self._problem.fixed.get(node, 0):
                steps.append(_Step(above, at, -(2 * count - 1) * share, None))
        for zone, at in self._zone_number.items():
            members = [one for one in self._nodes if self._problem.zone[one] == zone]
            count = sum(self._counts[self._number[one]] for one in members)
            fixed = sum(self._problem.fixed.get(one, 0) for one in members)
            steps.append(_Step(at, end, (2 * count + 1) * self._zone_unit, None))
            if count > fixed:
                steps.append(_Step(end, at, -(2 * count - 1) * self._zone_unit, None))
        return steps

    def all_steps(self) -> list[_Step]:
        """Not only the cheapest of each kind: for whoever checks."""
        number = self._number
        return self._count_steps() + [
            _Step(number[one], number[other], cost, group)
            for group in self.sets
            for one, other, cost in self._passes(group)
        ]


def _circle(last: Sequence[_Step | None]) -> list[_Step]:
    """The steps of a circle of predecessors, if there is one."""
    state = [0] * len(last)
    for start in range(len(last)):
        at, path = start, []
        while state[at] == 0:
            state[at] = start + 1
            step = last[at]
            if step is None:
                break
            path.append(step)
            at = step.source
        else:
            if state[at] == start + 1:
                circle = path[next(i for i, step in enumerate(path) if step.target == at) :]
                circle.reverse()
                assert all(one.target == other.source for one, other in pairwise(circle))
                return circle
    return []
