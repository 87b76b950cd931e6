"""A certificate for each plan that no plan with fewer moves is as even, and its checker.

The certificate holds what the claim rests on; `objections` checks it from the problem alone,
without the planner. Four kinds of proof, and an honest fifth:

- EXCHANGE, by count: evenness is a convex function of the counts, zone totals included (laminar
  convex, whichever comes first), and the number of groups that may stay is a concave one. For such
  a pair a local optimum is a global one (M-convexity, Murota 2003): it is enough that no transfer
  of one place between two nodes makes the plan more even, and none that leaves it as even saves a
  move.
- PRICES, by count where groups may not be everywhere: prices of nodes that no step undercuts, and
  so no chain of steps makes the plan more even, or as even with a move less (`assignment.py`).
- BOUND: whatever is planned, a node above its ceiling must give away so many groups (its heaviest
  would do), and what has no home or no choice moves anyway. The plan makes no more moves than that.
- SEARCH: every placement with fewer moves was tried; only for small clusters.
- OPEN: between `at_least` and `moves` nothing is proven.
"""

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from balancer.planner.assignment import AssignmentProblem, Place, objection, prices_of
from balancer.planner.levels import ceilings, fewest_leaving, fixed_weights, weights_on
from balancer.planner.problem import Evenness, Frame
from balancer.planner.quotas import fixed_loads
from balancer.planner.topic_spread import even_shares, total_excess
from paxos.ids import GroupId, NodeId

SEARCH_GROUPS_MAX: Final = 12
SEARCH_STEPS_MAX: Final = 10_000
"""The planner runs on a node's loop: a search may take some tens of milliseconds, no more."""
SEARCH_LEAF_STEPS: Final = 8
"""Cost of checking a complete placement, in steps."""


class Proof(StrEnum):
    EXCHANGE = "exchange"
    BOUND = "bound"
    SEARCH = "search"
    PRICES = "prices"
    OPEN = "open"


@attrs.frozen
class Certificate:
    proof: Proof
    moves: int
    at_least: int
    """The fewest moves of any equally even placement."""
    limits: Mapping[NodeId, int]
    """What "as even" means: the counts of all groups, or the ceilings of weight, by node."""
    prices: Mapping[str, int] | None = None
    """With PRICES: the prices."""

    @property
    def proven(self) -> bool:
        return self.moves == self.at_least


def count_moves(frame: Frame, placement: Mapping[GroupId, NodeId]) -> int:
    current = frame.problem.current
    return sum(current.get(group) != node for group, node in placement.items())


# ---- evenness ------------------------------------------------------------------------------------


def counts_on(frame: Frame, placement: Mapping[GroupId, NodeId]) -> dict[NodeId, int]:
    counts = Counter(node for group, node in placement.items() if group not in frame.left)
    return {node: counts[node] for node in frame.allowed}


def count_cost(frame: Frame, counts: Mapping[NodeId, int]) -> tuple[int, int]:
    """Unevenness by count: of nodes, then of zones; the other way round if zones come first."""
    scales = frame.scales
    nodes = sum(count**2 * scales.node[node] for node, count in counts.items())
    totals = frame.zone_totals(counts)
    return _ordered(frame, nodes, sum(one**2 * scales.zone[zone] for zone, one in totals.items()))


def _ordered(frame: Frame, nodes: int, zones: int) -> tuple[int, int]:
    return (zones, nodes) if frame.problem.objectives.spread_zones else (nodes, zones)


@attrs.frozen
class EvennessBound:
    """How even a plan is, by the operator's objectives: computed once, compared with many."""

    frame: Frame
    excess: int
    cost: tuple[int, int] | None
    """By count; None by weight."""
    most: Mapping[NodeId, int]
    """By weight."""

    @classmethod
    def of(cls, frame: Frame, plan: Mapping[GroupId, NodeId]) -> "EvennessBound":
        excess = total_excess(frame, plan)
        if frame.problem.objectives.evenness is Evenness.COUNT:
            return cls(frame, excess, count_cost(frame, counts_on(frame, plan)), {})
        return cls(frame, excess, None, reached(frame, plan))

    def reached_by(self, candidate: Mapping[GroupId, NodeId]) -> bool:
        """Whether a placement is at least as even."""
        if total_excess(self.frame, candidate) > self.excess:
            return False
        if self.cost is not None:
            return count_cost(self.frame, counts_on(self.frame, candidate)) <= self.cost
        loads = weights_on(self.frame, candidate)
        return all(load <= self.most[node] for node, load in loads.items())


def reached(frame: Frame, plan: Mapping[GroupId, NodeId]) -> dict[NodeId, int]:
    """The ceilings of weight a plan respects: its own loads where it could not meet the wanted
    ones."""
    loads = weights_on(frame, plan)
    return {node: max(most, loads[node]) for node, most in ceilings(frame).limits.items()}


# ---- lower bounds --------------------------------------------------------------------------------


def bound_of(frame: Frame, placement: Mapping[GroupId, NodeId]) -> int:
    """The number of moves that every placement as even as this one makes."""
    by_topic = _topic_bound(frame, placement)
    if frame.problem.objectives.evenness is Evenness.COUNT:
        return frame.forced_moves() + by_topic
    most, fixed = reached(frame, placement), fixed_weights(frame)
    leaving = 0
    for node, mine in frame.held().items():
        # A group that fits below no other ceiling does not leave.
        room = max((most[other] - fixed[other] for other in most if other != node), default=0)
        weights = [frame.needs[group].weight for group in mine]
        able = [weight for weight in weights if weight <= room]
        leaving += fewest_leaving(able, fixed[node] + sum(weights) - most[node])
    return frame.forced_moves() + max(leaving, by_topic)


def _topic_bound(frame: Frame, placement: Mapping[GroupId, NodeId]) -> int:
    """The bound from the worst topic alone, if the plan keeps the operator's bound on topics."""
    slack = frame.problem.objectives.topic_excess_max
    if slack is None or total_excess(frame, placement):
        return 0
    held = frame.held()
    fixed: dict[NodeId, Counter[str]] = {node: Counter() for node in held}
    for group, node in frame.fixed.items():
        if node in fixed:
            fixed[node].update(frame.needs[group].topics)
    bounds = [0]
    for topic, share in even_shares(frame).items():
        leaving = 0
        for node, mine in held.items():
            parts = [frame.needs[group].topics.get(topic, 0) for group in mine]
            leaving += fewest_leaving(parts, fixed[node][topic] + sum(parts) - share - slack)
        bounds.append(leaving)
    return max(bounds)


# ---- exchanges -----------------------------------------------------------------------------------


def exchange_objection(frame: Frame, placement: Mapping[GroupId, NodeId]) -> str | None:
    """Why a plan by count is not proven by exchanges; None if it is."""
    counts = counts_on(frame, placement)
    floor = fixed_loads(frame)
    held = {node: len(mine) for node, mine in frame.held().items()}
    costs = _ExchangeCosts(frame, counts)
    for giver in counts:
        if counts[giver] <= floor[giver]:
            continue  # all its groups are fixed
        gives = held[giver] < counts[giver] - floor[giver]
        for taker in counts:
            if taker == giver:
                continue
            change = costs.of(giver, taker)
            if change < (0, 0):
                return f"a group from node {giver} to node {taker} would be more even"
            if gives and change == (0, 0) and held[taker] > counts[taker] - floor[taker]:
                return f"as even with a move less: node {giver} one less, node {taker} one more"
    stays = sum(min(held[node], counts[node] - floor[node]) for node in counts)
    needed = frame.forced_moves() + sum(held.values()) - stays
    made = count_moves(frame, placement)
    return None if made == needed else f"{made} moves where these counts need {needed}"


class _ExchangeCosts:
    """How `count_cost` changes when one node gives a group to another."""

    def __init__(self, frame: Frame, counts: Mapping[NodeId, int]) -> None:
        self._zone = frame.zone_of
        self._zones_first = frame.problem.objectives.spread_zones
        nodes, zones = frame.scales
        totals = frame.zone_totals(counts)
        self._less = {node: (1 - 2 * count) * nodes[node] for node, count in counts.items()}
        self._more = {node: (1 + 2 * count) * nodes[node] for node, count in counts.items()}
        self._zone_less = {zone: (1 - 2 * total) * zones[zone] for zone, total in totals.items()}
        self._zone_more = {zone: (1 + 2 * total) * zones[zone] for zone, total in totals.items()}

    def of(self, giver: NodeId, taker: NodeId) -> tuple[int, int]:
        here, there = self._zone[giver], self._zone[taker]
        on_nodes = self._less[giver] + self._more[taker]
        in_zones = 0 if here == there else self._zone_less[here] + self._zone_more[there]
        return (in_zones, on_nodes) if self._zones_first else (on_nodes, in_zones)


# ---- prices --------------------------------------------------------------------------------------


def assignment_problem(
    frame: Frame, placement: Mapping[GroupId, NodeId] | None = None
) -> AssignmentProblem:
    """Masters as an assignment: one node for each free group; now as in `placement`, if given."""
    fixed = fixed_loads(frame)
    start = {}
    for group in frame.free:
        node = frame.home(group) if placement is None else placement[group]
        start[group] = () if node is None else (node,)
    return AssignmentProblem(
        choices={
            group: {node: Place(0, int(node != frame.home(group))) for node in frame.may(group)}
            for group in frame.free
        },
        demand=dict.fromkeys(frame.free, 1),
        start=start,
        capacity=frame.capacity_of,
        fixed={**fixed, **frame.waiting},
        zone=frame.zone_of,
        zone_share=frame.zone_shares,
        zones_first=frame.problem.objectives.spread_zones,
    )


# ---- search --------------------------------------------------------------------------------------


@attrs.define
class _Search:
    """Depth-first over the free groups: each stays, or goes anywhere, as long as moves remain."""

    frame: Frame
    plan: Mapping[GroupId, NodeId]
    moves_max: int
    bar: EvennessBound
    loads: dict[NodeId, int]
    """Of what is placed so far: by weight, no node may exceed the bound."""
    steps: int = 0
    found: dict[GroupId, NodeId] | None = None

    def run(self) -> bool:
        """Look for a placement as even with at most `moves_max` moves; False if cut short."""
        frame = self.frame
        fixed = {group: self.plan[group] for group in self.plan if group not in frame.free}
        return self._place(0, dict(fixed), self.moves_max - count_moves(frame, fixed))

    def _place(self, at: int, placed: dict[GroupId, NodeId], moves_left: int) -> bool:
        self.steps += 1
        if self.steps > SEARCH_STEPS_MAX:
            return False
        frame, most = self.frame, self.bar.most
        if at == len(frame.free):
            self.steps += SEARCH_LEAF_STEPS
            if self.bar.reached_by(placed):
                self.found = dict(placed)
            return True
        group = frame.free[at]
        home, weight = frame.home(group), frame.needs[group].weight
        for node in frame.may(group):
            left = moves_left - (node != home)
            if left < 0 or (most and self.loads[node] + weight > most[node]):
                continue
            placed[group] = node
            self.loads[node] += weight
            complete = self._place(at + 1, placed, left)
            self.loads[node] -= weight
            if not complete or self.found is not None:
                return complete
        placed.pop(group, None)
        return True


def search(
    frame: Frame, plan: Mapping[GroupId, NodeId], moves_max: int
) -> tuple[dict[GroupId, NodeId] | None, bool]:
    """A placement as even as `plan` with at most `moves_max` moves, and whether all were tried."""
    if len(frame.free) > SEARCH_GROUPS_MAX:
        return None, False
    one = _Search(frame, plan, moves_max, EvennessBound.of(frame, plan), fixed_weights(frame))
    complete = one.run()
    return one.found, complete


# ---- the certificate -----------------------------------------------------------------------------


def certify(frame: Frame, placement: Mapping[GroupId, NodeId]) -> Certificate:
    """The strongest certificate there is for a plan."""
    moves = count_moves(frame, placement)
    by_count = frame.problem.objectives.evenness is Evenness.COUNT
    limits = counts_on(frame, placement) if by_count else reached(frame, placement)
    if by_count and frame.choices:
        prices = prices_of(assignment_problem(frame, placement))
        if prices is not None:
            return Certificate(Proof.PRICES, moves, moves, limits, prices)
    elif by_count and exchange_objection(frame, placement) is None:
        return Certificate(Proof.EXCHANGE, moves, moves, limits)
    at_least = bound_of(frame, placement)
    if moves == at_least:
        return Certificate(Proof.BOUND, moves, at_least, limits)
    found, complete = search(frame, placement, moves - 1)
    if complete and found is None:
        return Certificate(Proof.SEARCH, moves, moves, limits)
    return Certificate(Proof.OPEN, moves, at_least, limits)


def objections(
    frame: Frame, placement: Mapping[GroupId, NodeId], certificate: Certificate
) -> list[str]:
    """What is wrong with a plan or its certificate; nothing if both hold."""
    wrong = _misplacements(frame, placement)
    if wrong:
        return wrong
    if certificate.moves != count_moves(frame, placement):
        wrong.append(f"the plan makes {count_moves(frame, placement)} moves")
    by_count = frame.problem.objectives.evenness is Evenness.COUNT
    limits = counts_on(frame, placement) if by_count else reached(frame, placement)
    if certificate.limits != limits:
        wrong.append(f"the plan's evenness is {limits}")
    match certificate.proof:
        case Proof.EXCHANGE:
            found_wrong = exchange_objection(frame, placement)
            if frame.choices:
                found_wrong = "exchanges prove nothing where groups may not be everywhere"
            wrong += [] if found_wrong is None else [found_wrong]
        case Proof.PRICES:
            prices = certificate.prices or {}
            undercut = objection(assignment_problem(frame, placement), prices)
            wrong += [] if undercut is None else [undercut]
        case Proof.BOUND | Proof.OPEN:
            at_least = bound_of(frame, placement)
            if certificate.at_least != at_least:
                wrong.append(f"the bound is {at_least}")
        case Proof.SEARCH:
            found, complete = search(frame, placement, certificate.moves - 1)
            if found is not None or not complete:
                wrong.append(f"fewer moves: {found}" if complete else "the search is not complete")
    return wrong


def _misplacements(frame: Frame, placement: Mapping[GroupId, NodeId]) -> list[str]:
    """Groups that are where no plan may put them."""
    wrong = []
    for group in frame.needs:
        node = placement.get(group)
        if group in frame.fixed and node != frame.fixed[group]:
            wrong.append(f"group {group} is fixed on node {frame.fixed[group]}, planned on {node}")
        elif group in frame.left and node != frame.problem.current.get(group):
            wrong.append(f"group {group} is paused and was to be left where it is")
        elif group in frame.free and node not in frame.may(group):
            wrong.append(f"group {group} is planned on node {node}, which is not allowed")
    return wrong
