"""Which nodes should keep which group: even, spread over zones, with the fewest bytes moved.

Pure and deterministic, like the planner of masters beside it, which places a group's master on one
of its members. A plan is exact (`assignment.py`): leaving nodes are emptied first, then dead ones
that can be replaced; then each zone gets its part of every group where possible; then nodes get
replicas in proportion to their capacities, and zones what their nodes should have together; and
among all such sets the plan has those that copy the fewest bytes.

A zone is a machine with several nodes, or a rack. With at least as many zones as replicas no zone
has two replicas of a group, so the loss of one costs every group at most one; with fewer, replicas
must share, and `balancer.machines` says what the loss of each zone would stop. Only the registry's
group, which has more replicas, may have several in a zone, and never a majority.

If groups have very different sizes, groups of two nodes change places until no node has more bytes
than its share plus the tolerance.

Masters can then always be placed evenly: with `r` members each and replicas even by count, every
node can be master of one `r`-th of its groups, rounded up or down.

A dead node is replaced, never just dropped: a group that already has all other possible nodes keeps
the dead one, because dropping it gains nothing, and the group is complete again once the node is
back.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

import attrs

from balancer.planner.assignment import AssignmentProblem, Place, best
from balancer.planner.byte_spread import spread_bytes
from balancer.planner.problem import CAPACITY_NORMAL
from balancer.planner.proof import Proof
from balancer.registry.records import REPLICAS_MAX
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId

BYTES_TOLERANCE_PERCENT: Final = 30
ZONES_APART_MIN: Final = 3
"""With fewer, one zone has a majority in any case."""


class HostState(StrEnum):
    FIT = "fit"
    AWAY = "away"
    """Absent for a while, or draining: it keeps what it has and gets nothing."""
    DEAD = "dead"
    """Absent for so long that its data is copied elsewhere."""
    LEAVING = "leaving"


@attrs.frozen
class Host:
    """A node that keeps replicas."""

    node: NodeId
    zone: str = ""
    capacity: int = CAPACITY_NORMAL
    state: HostState = HostState.FIT


@attrs.frozen
class Kept:
    """A group seen as data that is kept."""

    group: GroupId
    wanted: tuple[NodeId, ...]
    """Its replica set."""
    members: tuple[NodeId, ...]
    """The nodes that have it."""
    replicas: int
    """How many should have it."""
    bytes: int = 0
    by_hand: bool = False
    """An operator chose its set: it is only changed for a node that leaves or is dead."""


@attrs.frozen(kw_only=True)
class ReplicaProblem:
    hosts: tuple[Host, ...]
    groups: tuple[Kept, ...]
    level: bool = True
    """Whether replicas also move for evenness or zones, not only away from nodes that are gone."""
    bytes_tolerance_percent: int = BYTES_TOLERANCE_PERCENT


class ReplicaReason(StrEnum):
    """Why a replica set changes; the gravest first."""

    NODE_DEAD = "node-dead"
    TOO_FEW = "too-few"
    """It should have more members, and there are nodes for them."""
    NODE_LEAVING = "node-leaving"
    TOO_MANY = "too-many"
    ZONE = "zone"
    EVENNESS = "evenness"
    BYTES = "bytes"
    """It changes places with another group, because one node has too many bytes."""


_RANK: Final = {reason: at for at, reason in enumerate(ReplicaReason)}


@attrs.frozen
class ReplicaMove:
    group: GroupId
    before: tuple[NodeId, ...]
    after: tuple[NodeId, ...]
    reason: ReplicaReason
    detail: str = ""
    bytes: int = 0
    """Bytes to be copied."""

    @property
    def code(self) -> str:
        return f"{self.reason}:{self.detail}" if self.detail else self.reason.value


@attrs.frozen
class ReplicaPlan:
    sets: Mapping[GroupId, tuple[NodeId, ...]]
    """Of all groups, ascending."""
    moves: tuple[ReplicaMove, ...]
    """The gravest reasons first."""
    proof: Proof
    """PRICES: no plan as even copies fewer bytes; OPEN: groups have changed places for bytes."""
    prices: Mapping[str, int] | None = None

    @property
    def bytes_moved(self) -> int:
        return sum(move.bytes for move in self.moves)


def plan_replicas(problem: ReplicaProblem) -> ReplicaPlan:
    """The replica sets for a problem."""
    framed = _Frame.of(problem)
    assigned = best(framed.assignment)
    sets = dict(framed.fixed)
    sets |= {group: tuple(sorted(members)) for group, members in assigned.sets.items()}
    swapped = spread_bytes(
        sets=sets,
        free=framed.assignment.choices,
        bytes_of={group: kept.bytes for group, kept in framed.kept.items()},
        capacity=framed.assignment.capacity,
        zone=framed.assignment.zone,
        tolerance_percent=problem.bytes_tolerance_percent,
    )
    sets |= swapped
    moves = [
        _move(framed, group, sets[group], group in swapped)
        for group, kept in framed.kept.items()
        if sets[group] != kept.wanted
    ]
    moves.sort(key=lambda move: (_RANK[move.reason], move.group))
    proof = Proof.OPEN if swapped or assigned.prices is None else Proof.PRICES
    return ReplicaPlan(dict(sorted(sets.items())), tuple(moves), proof, assigned.prices)


def assignment_problem(
    problem: ReplicaProblem, sets: Mapping[GroupId, tuple[NodeId, ...]]
) -> AssignmentProblem:
    """The assignment problem with `sets` as its start: to check a plan's prices."""
    assignment = _Frame.of(problem).assignment
    return attrs.evolve(assignment, start={group: sets[group] for group in assignment.demand})


@attrs.frozen(kw_only=True)
class _Frame:
    """A problem in which everything that leaves no choice has been decided."""

    kept: Mapping[GroupId, Kept]
    states: Mapping[NodeId, HostState]
    fixed: Mapping[GroupId, tuple[NodeId, ...]]
    assignment: AssignmentProblem

    @classmethod
    def of(cls, problem: ReplicaProblem) -> "_Frame":
        hosts = {host.node: host for host in sorted(problem.hosts, key=lambda host: host.node)}
        states = {node: host.state for node, host in hosts.items()}
        kept = {one.group: one for one in sorted(problem.groups, key=lambda one: one.group)}
        zones = Counter(host.zone for host in hosts.values() if host.state in _STAYING).values()
        unit = 1 + sum(max(1, one.replicas) for one in kept.values())
        choices: dict[GroupId, dict[NodeId, Place]] = {}
        demand, fixed, zone_most = {}, {}, {}
        for group, one in kept.items():
            places = _places(one, states, unit)
            size = min(len(one.wanted) if one.by_hand else one.replicas, len(places))
            hard = size != len(one.wanted) or not _is_whole(one, states, places)
            if not size or not (hard or (problem.level and not one.by_hand)):
                fixed[group] = one.wanted
                continue
            choices[group], demand[group] = places, size
            if len(zones) > 1:
                zone_most[group] = part_of_zone(size, zones)
        load = Counter(node for members in fixed.values() for node in members)
        start = {
            # Present members before future ones: if there are too many, the last are cut off here.
            group: sorted(
                (node for node in kept[group].wanted if node in choices[group]),
                key=lambda node: (node not in kept[group].members, node),
            )[:size]
            for group, size in demand.items()
        }
        return cls(
            kept=kept,
            states=states,
            fixed=fixed,
            assignment=AssignmentProblem(
                choices=choices,
                demand=demand,
                start=start,
                capacity={node: max(1, host.capacity) for node, host in hosts.items()},
                fixed={node: load[node] for node in hosts},
                zone={node: host.zone for node, host in hosts.items()},
                zone_most=zone_most,
                zone_share=_zone_shares(hosts.values()),
            ),
        )


def part_of_zone(size: int, zones: Collection[int]) -> int:
    """The most replicas of a group in one zone, if they are as far apart as can be; `zones`: how
    many nodes each has."""
    least = -(-size // len(zones))
    caps = range(least, size)
    return next((cap for cap in caps if sum(min(zone, cap) for zone in zones) >= size), size)


def _zone_shares(hosts: Collection[Host]) -> dict[str, int]:
    """What the nodes of each zone should have together; at least 1 where none is to stay."""
    shares = dict.fromkeys(sorted({host.zone for host in hosts}), 0)
    for host in hosts:
        shares[host.zone] += max(1, host.capacity) if host.state in _STAYING else 0
    return {zone: max(1, share) for zone, share in shares.items()}


_STAYING: Final = (HostState.FIT, HostState.AWAY)


def _places(one: Kept, states: Mapping[NodeId, HostState], unit: int) -> dict[NodeId, Place]:
    """The nodes that may have a group. A copy costs its bytes, plus one even if it is empty."""
    places = {}
    for node, state in states.items():
        there = node in one.wanted or node in one.members
        if state is HostState.LEAVING or not (there or state is HostState.FIT):
            continue
        price = 0 if node in one.wanted else 1 if there else (one.bytes + 1) * unit
        places[node] = Place(int(state is HostState.DEAD), price)
    return places


def _is_whole(
    one: Kept, states: Mapping[NodeId, HostState], places: Mapping[NodeId, Place]
) -> bool:
    """Whether no node that is gone for good has the group, as far as this can be avoided."""
    dead = sum(node in places and bool(places[node].penalty) for node in one.wanted)
    spare = any(node not in one.wanted and not place.penalty for node, place in places.items())
    return all(node in places for node in one.wanted) and not (dead and spare)


def _move(framed: _Frame, group: GroupId, after: tuple[NodeId, ...], swapped: bool) -> ReplicaMove:
    kept = framed.kept[group]
    before = kept.wanted
    gone = [node for node in before if node not in after]
    new = [node for node in after if node not in before and node not in kept.members]
    detail = ""
    dead = [node for node in gone if framed.states.get(node) is HostState.DEAD]
    leaving = [
        node for node in gone if framed.states.get(node, HostState.LEAVING) is HostState.LEAVING
    ]
    if dead:
        reason, detail = ReplicaReason.NODE_DEAD, str(dead[0])
    elif leaving:
        reason, detail = ReplicaReason.NODE_LEAVING, str(leaving[0])
    elif len(after) > len(before):
        reason = ReplicaReason.TOO_FEW
    elif len(after) < len(before):
        reason = ReplicaReason.TOO_MANY
    elif swapped:
        reason = ReplicaReason.BYTES
    elif _excess(framed, group, after) < _excess(framed, group, before):
        reason = ReplicaReason.ZONE
    else:
        reason = ReplicaReason.EVENNESS
    return ReplicaMove(group, before, after, reason, detail, kept.bytes * len(new))


def _excess(framed: _Frame, group: GroupId, members: tuple[NodeId, ...]) -> int:
    most = framed.assignment.zone_most.get(group)
    if most is None:
        return 0
    zones = Counter(framed.assignment.zone.get(node, "") for node in members)
    return sum(max(0, count - most) for count in zones.values())


def size_wanted(group: GroupId, replicas: int, nodes: int, zones: Collection[int] = ()) -> int:
    """How many nodes should have a group; `zones`: how many of the nodes are in each zone.

    The registry's is on all of them, up to a limit: a node that has it only by hearsay learns of a
    change half a second later, too late for a steal's token. With enough zones it is on as many as
    can be without a majority in one, since all nodes of a zone may be lost together.
    """
    if group != REGISTRY_GROUP:
        return replicas
    most = min(REPLICAS_MAX, nodes)
    if len(zones) < ZONES_APART_MIN:
        return most
    return next(size for size in range(most, 0, -1) if _is_spread(size, zones))


def _is_spread(size: int, zones: Collection[int]) -> bool:
    """Whether so many replicas can be without a majority of them in one zone."""
    return sum(min(zone, (size - 1) // 2) for zone in zones) >= size
