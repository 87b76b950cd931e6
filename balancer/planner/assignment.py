"""Assigns Paxos groups to nodes at the least cost, exactly: each group to a number of different
nodes.

A minimum cost flow. The costs, most important first: penalties of places; nodes of a group in one
zone above what the zone may have; unevenness of nodes, the sum of count² / capacity, and then of
zones, the sum of count² / share (zones before nodes with `zones_first`); the prices of places. All
of it is convex, so an assignment is optimal as soon as no *negative cycle* is left: a chain of
nodes where each passes one group on to the next, from one that has too much to one that has too
little, or in a cycle. There are few nodes, so the search runs over nodes alone: the cheapest group
makes the step from one to another.

This is exact with zones, too: a flow decomposes into cycles that pass a zone of a group once, and
those cost the sum of their steps. A cycle that was found may be of another kind and cost more than
its steps; then the search goes on, CYCLES_TRIED_MAX times. When no cycle is left, the search yields
the nodes' *prices* (potentials): every step costs at least what the price falls by, which anybody
can check, and so no cycle has a negative cost.
"""

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain, pairwise
from math import lcm
from typing import Final, NamedTuple

import attrs

from paxos.ids import GroupId, NodeId

CYCLES_TRIED_MAX: Final = 16
CYCLES_PER_UNIT_MAX: Final = 4
"""Never reached: each cycle makes the assignment cheaper."""


class Place(NamedTuple):
    """What it costs to assign a group to a node."""

    penalty: int = 0
    price: int = 0


@attrs.frozen(kw_only=True)
class AssignmentProblem:
    """What to assign where. `start` is the present assignment; it is completed if need be."""

    choices: Mapping[GroupId, Mapping[NodeId, Place]]
    demand: Mapping[GroupId, int]
    """How many nodes a group needs; at most as many as it has choices."""
    start: Mapping[GroupId, Collection[NodeId]]
    """Nodes among its choices; at most as many as it needs."""
    capacity: Mapping[NodeId, int]
    """All nodes there are, each above 0."""
    fixed: Mapping[NodeId, int]
    """Load that stays where it is, but counts."""
    zone: Mapping[NodeId, str]
    zone_most: Mapping[GroupId, int] = attrs.field(factory=dict)
    """Most nodes of a group in one zone; a group that is missing here has no bound."""
    zone_share: Mapping[str, int] = attrs.field(factory=dict)
    """What each zone should have, up to a common factor; empty: zones need not be even."""
    zones_first: bool = False
    """Whether zones are levelled before nodes, or after."""


@attrs.frozen
class Assignment:
    sets: Mapping[GroupId, frozenset[NodeId]]
    prices: Mapping[str, int] | None
    """Of all vertices a cycle can pass; None: not proven to be optimal."""


class _Step(NamedTuple):
    """An arc of the graph in which cycles are searched; with `group` None, a count changes."""

    source: int
    target: int
    cost: int
    group: GroupId | None


def best(problem: AssignmentProblem) -> Assignment:
    """The optimal assignment: as even as possible, then the cheapest."""
    table = _Table(problem)
    proven = table.improve()
    prices = dict(zip(table.names, table.prices, strict=True)) if proven else None
    return Assignment({group: frozenset(sets) for group, sets in table.sets.items()}, prices)


def prices_of(problem: AssignmentProblem) -> Mapping[str, int] | None:
    """Prices that prove `start`, which must be complete, to be optimal; None if it is not."""
    table = _Table(problem)
    return None if table.find_cycle() else dict(zip(table.names, table.prices, strict=True))


def objection(problem: AssignmentProblem, prices: Mapping[str, int]) -> str | None:
    """Why these prices do not prove `start` to be optimal; None if they do."""
    table = _Table(problem)
    if any(len(set(problem.start[group])) != need for group, need in problem.demand.items()):
        return "a group has not as many nodes as it needs"
    if set(prices) != set(table.names):
        return "a price is missing"
    worth = [prices[name] for name in table.names]
    for step in table.all_steps():
        if worth[step.source] + step.cost < worth[step.target]:
            source, target = table.names[step.source], table.names[step.target]
            what = "a unit" if step.group is None else f"group {step.group}"
            return f"{what} from {source} to {target} costs less than its price"
    return None


class _Table:
    """The assignment, and what every step would cost."""

    def __init__(self, problem: AssignmentProblem) -> None:
        self._problem = problem
        self._nodes = sorted(problem.capacity)
        self._number = {node: at for at, node in enumerate(self._nodes)}
        zones = _levelled_zones(problem)
        self._zone_number = {zone: len(self._nodes) + at for at, zone in enumerate(zones)}
        self.names = [f"node {node}" for node in self._nodes]
        self.names += [f"zone {zone}" for zone in zones] + ["all"]
        self.prices = [0] * len(self.names)
        self._gave_up = False
        self.sets = {group: set(problem.start.get(group, ())) for group in sorted(problem.demand)}
        self._weigh()
        self._complete()
        self._in_zones = {group: self._by_zone(group) for group in problem.zone_most}
        self._counts = [problem.fixed.get(node, 0) for node in self._nodes]
        for members in self.sets.values():
            for node in members:
                self._counts[self._number[node]] += 1
        self._moved = dict.fromkeys(self.sets, 0)
        """How often each group has moved: its earlier costs are outdated."""
        self._heaps: dict[tuple[NodeId, NodeId], list[tuple[int, GroupId, int]]] = {
            (one, other): [] for one in self._nodes for other in self._nodes
        }
        self._rows: list[list[_Step]] = [[] for _ in self._nodes]
        self._stale = set(range(len(self._nodes)))
        """Nodes whose row is outdated."""
        for group in self.sets:
            for one, other, cost in self._passes(group):
                self._heaps[one, other].append((cost, group, 0))
        for heap in self._heaps.values():
            heapify(heap)

    # ---- what it costs ---------------------------------------------------------------------------

    def _weigh(self) -> None:
        """Compute units that combine all costs into one sum, in which each outweighs all later
        ones."""
        problem = self._problem
        total = sum(problem.demand.values()) + 1
        whole = total + sum(problem.fixed.values())
        scale = lcm(*problem.capacity.values()) if problem.capacity else 1
        self._share = [scale // problem.capacity[node] for node in self._nodes]
        places = [place for choices in problem.choices.values() for place in choices.values()]
        unit = 1 + total * max((place.price for place in places), default=0)
        zone_scale = lcm(*(problem.zone_share[zone] for zone in self._zone_number))
        most = 2 * whole * whole
        if problem.zones_first:
            node_unit, zone_unit = unit, unit * (1 + most * scale)
            unit = zone_unit * (1 + most * zone_scale)
        else:
            zone_unit, node_unit = unit, unit * (1 + most * zone_scale)
            unit = node_unit * (1 + most * scale)
        self._node_unit = node_unit
        self._zone_units = {
            zone: zone_unit * (zone_scale // problem.zone_share[zone]) for zone in self._zone_number
        }
        self._excess_unit = unit
        penalty_unit = unit * total
        self._cost = {
            group: {
                node: place.penalty * penalty_unit + place.price for node, place in choices.items()
            }
            for group, choices in problem.choices.items()
        }

    def _by_zone(self, group: GroupId) -> dict[str, int]:
        """How many nodes a group has in each zone."""
        zones = [self._problem.zone[node] for node in self.sets.get(group, ())]
        return {zone: zones.count(zone) for zone in set(zones)}

    def _pass_cost(self, group: GroupId, one: NodeId, other: NodeId) -> int:
        """The cost of `one` passing the group to `other`, apart from the counts."""
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
        """Give groups the nodes they still need: cheap ones with few groups first."""
        load = dict.fromkeys(self._nodes, 0) | dict(self._problem.fixed)
        for members in self.sets.values():
            for node in members:
                load[node] += 1
        share = dict(zip(self._nodes, self._share, strict=True))
        for group, members in self.sets.items():
            cost = self._cost[group]
            for _ in range(self._problem.demand[group] - len(members)):
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

    # ---- cycles ----------------------------------------------------------------------------------

    def improve(self) -> bool:
        """Cancel cycles until there are none; False if it is unknown whether one is left."""
        for _ in range(CYCLES_PER_UNIT_MAX * (1 + sum(self._problem.demand.values()))):
            if not self._improve_once():
                return not self._gave_up
        return False

    def _improve_once(self) -> bool:
        banned: list[_Step] = []
        made = False
        while not made and len(banned) < CYCLES_TRIED_MAX:
            steps = self.find_cycle()
            if not steps:
                break
            passed = [step for step in steps if step.group is not None]
            made = self._make(steps, passed)
            if not made:
                # Two steps of one group that cost more together: search again without one of them.
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
        """Cancel the cycle, unless its steps cost more together than separately."""
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
        """What a step was assumed to add to the excess in its group's zones."""
        assert step.group is not None
        one, other = self._pair(step)
        cost = self._cost[step.group]
        return (step.cost - cost[other] + cost[one]) // self._excess_unit

    def find_cycle(self) -> list[_Step]:
        """The steps of a negative cycle; empty if there is none, and then `prices` proves it.

        Bellman-Ford, from all nodes at once; a cycle of predecessors is a negative cycle.
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
            found = _cycle(last)
            if found:
                return found
        raise AssertionError("prices that fall for ever have a cycle")

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
        """The costs of having one more or one less on a node or in a zone."""
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
            unit = self._zone_units[zone]
            steps.append(_Step(at, end, (2 * count + 1) * unit, None))
            if count > fixed:
                steps.append(_Step(end, at, -(2 * count - 1) * unit, None))
        return steps

    def all_steps(self) -> list[_Step]:
        """All steps, not only the cheapest of each kind: for checks."""
        number = self._number
        return self._count_steps() + [
            _Step(number[one], number[other], cost, group)
            for group in self.sets
            for one, other, cost in self._passes(group)
        ]


def _levelled_zones(problem: AssignmentProblem) -> list[str]:
    """Zones that get a vertex; none where level nodes make level zones in any case."""
    zones = sorted(set(problem.zone.values())) if problem.zone_share else []
    apart = len(zones) < len(problem.zone) if zones[1:] else False
    return zones if apart or problem.zones_first else []


def _cycle(last: Sequence[_Step | None]) -> list[_Step]:
    """The steps of a cycle of predecessors, if there is one."""
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
                cycle = path[next(i for i, step in enumerate(path) if step.target == at) :]
                cycle.reverse()
                assert all(one.target == other.source for one, other in pairwise(cycle))
                return cycle
    return []
