"""Machines: no two replicas of a group on one while there are enough, masters even over machines
and over processes, and what the loss of a machine costs is told."""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations_with_replacement

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.machines import MachineReplicas, machines_of, statement
from balancer.planner.planner import solve
from balancer.planner.problem import GroupNeed, NodeOffer, Problem, Unfit, frame
from balancer.planner.proof import objections
from balancer.registry.commands import FoundCluster
from balancer.registry.registry import Registry
from balancer.replica_planning import ReplicaView, problem
from balancer.replicas import (
    Host,
    HostState,
    Kept,
    ReplicaPlan,
    ReplicaProblem,
    ReplicaReason,
    plan_replicas,
    size_wanted,
)
from paxos.changes.membership import first_members
from paxos.ids import GroupId, NodeId, Now
from tests.balancer.literals import register

Zones = Mapping[NodeId, str]
Sets = Mapping[GroupId, tuple[NodeId, ...]]


def numbered(processes: list[int]) -> dict[NodeId, str]:
    """The zones of a new cluster's nodes, as `evenkeel init --processes` numbers them."""
    zones: dict[NodeId, str] = {}
    for turn in range(max(processes)):
        for at, count in enumerate(processes):
            if turn < count:
                zones[NodeId(len(zones) + 1)] = "abcdefgh"[at]
    return zones


def founded(zones: Zones, groups: int, replicas: int = 3) -> Sets:
    return {
        GroupId(group): first_members(GroupId(group), zones, replicas)
        for group in range(groups + 1)
    }


def replanned(zones: Zones, sets: Sets, states: Mapping[str, HostState] | None = None,
              replicas: int = 3) -> ReplicaPlan:  # fmt: skip
    """The plan when all nodes of some machines are in another state."""
    states = states or {}
    hosts = tuple(
        Host(node, zone, state=states.get(zone, HostState.FIT)) for node, zone in zones.items()
    )
    staying = [host for host in hosts if host.state is not HostState.LEAVING]
    apart = Counter(host.zone for host in staying).values()
    groups = tuple(
        Kept(
            group,
            mine,
            mine,
            size_wanted(group, replicas, len(staying), apart),
            1000,
        )
        for group, mine in sets.items()
    )
    return plan_replicas(ReplicaProblem(hosts=hosts, groups=groups))


def placed(zones: Zones, sets: Sets, away: str = "") -> Mapping[GroupId, NodeId]:
    """Masters by count; proven."""
    problem = Problem(
        nodes=tuple(
            NodeOffer(node, zone, unfit=Unfit.DEAD if zone == away else None)
            for node, zone in zones.items()
        ),
        groups=tuple(GroupNeed(group, members=frozenset(mine)) for group, mine in sets.items()),
        current={},
    )
    plan = solve(problem)
    assert plan.certificate is not None
    assert objections(frame(problem), plan.placement, plan.certificate) == []
    assert plan.certificate.proven
    return plan.placement


def most_on_a_machine(zones: Zones, sets: Sets) -> int:
    """Of any group but the registry's."""
    return max(
        max(Counter(zones[node] for node in mine).values()) for group, mine in sets.items() if group
    )


def registry_survives(zones: Zones, sets: Sets) -> bool:
    """Whether its group keeps a majority without any one machine."""
    mine = Counter(zones[node] for node in sets[GroupId(0)])
    return 2 * max(mine.values()) < mine.total()


@pytest.mark.parametrize("processes", [[1, 1, 1], [2, 2, 2], [4, 4, 4], [2, 2, 2, 2], [3] * 5])
@pytest.mark.parametrize("groups", [4, 12, 13, 48])
def test_equal_machines_begin_as_they_are_to_be(processes: list[int], groups: int) -> None:
    """No data is copied to bring replicas apart."""
    zones = numbered(processes)
    sets = founded(zones, groups)
    assert most_on_a_machine(zones, sets) == 1
    plan = replanned(zones, sets)
    assert not [move for move in plan.moves if move.reason is ReplicaReason.ZONE]
    assert not [move for move in plan.moves if move.group == 0 and move.bytes]
    assert most_on_a_machine(zones, plan.sets) == 1
    assert registry_survives(zones, plan.sets)


@pytest.mark.parametrize("machines", [3, 4, 5])
def test_the_registry_survives_the_loss_of_any_machine(machines: int) -> None:
    """All clusters of so many machines with one to six nodes each, from the first members on."""
    for processes in combinations_with_replacement(range(1, 7), machines):
        zones = numbered([*processes])
        plan = replanned(zones, founded(zones, 0))
        assert registry_survives(zones, plan.sets), (processes, plan.sets)
        settled = replanned(zones, plan.sets)
        assert not settled.moves


@pytest.mark.parametrize("processes", [[2, 1, 1], [1, 2, 4], [2, 2, 4], [1, 1, 1, 6], [3, 2, 2, 1]])
@pytest.mark.parametrize("groups", [3, 12, 31])
def test_a_large_machine_has_one_replica_of_a_group_too(processes: list[int], groups: int) -> None:
    zones = numbered(processes)
    plan = replanned(zones, founded(zones, groups))
    assert most_on_a_machine(zones, plan.sets) == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=3, max_size=5), st.integers(1, 24))
def test_masters_are_even_over_machines_and_over_processes(
    processes: list[int], groups: int
) -> None:
    """With equal machines: both differ by at most one, at once."""
    zones = numbered([processes[0]] * len(processes))
    sets = replanned(zones, founded(zones, groups)).sets
    on = Counter(placed(zones, sets).values())
    by_machine = Counter[str]()
    for node, zone in zones.items():
        by_machine[zone] += on[node]
    counts = [on[node] for node in zones]
    assert max(counts) - min(counts) <= 1
    assert max(by_machine.values()) - min(by_machine.values()) <= 1


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(1, 3), min_size=2, max_size=4), st.integers(1, 12))
def test_unequal_machines_have_masters_by_their_processes(
    processes: list[int], groups: int
) -> None:
    """Where every node has everything, each node's count is an even share, rounded; and so is each
    machine's of its processes, as far as even nodes allow."""
    zones = numbered(processes)
    everywhere = {GroupId(group): tuple(zones) for group in range(groups)}
    on = Counter(placed(zones, everywhere).values())
    counts = [on[node] for node in zones]
    assert max(counts) - min(counts) <= 1
    squares = machine_squares(zones, on)
    for giver in zones:
        for taker in zones:
            if on[giver] == on[taker] + 1:  # nodes stay as even, whoever of them has one more
                other = Counter(on)
                other[giver] -= 1
                other[taker] += 1
                assert machine_squares(zones, other) >= squares


def machine_squares(zones: Zones, on: Mapping[NodeId, int]) -> float:
    size = Counter(zones.values())
    total = Counter[str]()
    for node, zone in zones.items():
        total[zone] += on[node]
    return round(sum(total[zone] ** 2 / size[zone] for zone in size), 9)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 3), min_size=4, max_size=5),
    st.integers(1, 16),
    st.sampled_from([HostState.DEAD, HostState.LEAVING]),
)
def test_replacing_a_machine_keeps_its_copies_apart(
    processes: list[int], groups: int, state: HostState
) -> None:
    """A machine is gone for good, or leaves: its replicas go to machines that have none."""
    zones = numbered(processes)
    before = replanned(zones, founded(zones, groups)).sets
    after = replanned(zones, before, {"b": state}).sets
    data = [mine for group, mine in after.items() if group]
    assert not any(zones[node] == "b" for mine in data for node in mine)
    assert most_on_a_machine(zones, after) == 1
    back = zones if state is HostState.DEAD else {n: one for n, one in zones.items() if one != "b"}
    assert most_on_a_machine(zones, replanned(back, after).sets) == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(3, 5), st.integers(1, 16), st.data())
def test_a_lost_machine_costs_each_group_one_replica_and_masters_stay_even(
    processes: int, machines: int, groups: int, data: st.DataObject
) -> None:
    zones = numbered([processes] * machines)
    sets = replanned(zones, founded(zones, groups)).sets
    lost = data.draw(st.sampled_from(sorted(set(zones.values()))))
    left = {
        group: tuple(node for node in mine if zones[node] != lost) for group, mine in sets.items()
    }
    assert all(len(sets[group]) - len(mine) <= 1 for group, mine in left.items() if group)
    assert registry_survives(zones, sets)
    placement = placed(zones, sets, away=lost)
    assert all(node in left[group] for group, node in placement.items())


def test_a_group_is_not_moved_for_two_machines() -> None:
    """Fewer machines than replicas: two on one of them, evenly, and it is said."""
    zones = numbered([2, 2])
    plan = replanned(zones, founded(zones, 8))
    assert most_on_a_machine(zones, plan.sets) == 2
    found = machines_of(zones, plan.sets)
    assert [one.machine for one in found] == ["a", "b"]
    assert sum(len(one.crowded) for one in found) == 8 + 2, "the registry's group is on all four"
    assert all(one.stopped for one in found)
    said = statement(found[0], len(found), 3)
    assert said.startswith("5 Paxos groups have two or more copies on machine a, and its loss")
    assert "2 cannot keep 3 copies apart: add a machine" in said


def test_what_is_apart_needs_no_statement() -> None:
    zones = numbered([2, 2, 2])
    sets = replanned(zones, founded(zones, 8)).sets
    found = machines_of(zones, sets)
    assert [one.groups for one in found] == [9, 9, 9]
    assert not any(statement(one, 3, 3) for one in found)


def test_a_set_chosen_by_hand_is_told_though_machines_are_enough() -> None:
    zones = numbered([2, 2, 2])
    one = machines_of(zones, {GroupId(1): (NodeId(1), NodeId(4), NodeId(2))})[0]
    assert one == MachineReplicas("a", (NodeId(1), NodeId(4)), 1, (GroupId(1),), (GroupId(1),))
    assert "1 Paxos group has two or more copies on machine a" in statement(one, 3, 3)
    assert "chosen by hand" in statement(one, 3, 3)


def test_nodes_without_zones_are_of_no_machine() -> None:
    assert machines_of({NodeId(1): "", NodeId(2): ""}, {GroupId(0): (NodeId(1), NodeId(2))}) == ()


@pytest.mark.parametrize(
    ("zones", "wanted"),
    [
        ((), 6),
        ((3, 3), 6),
        ((2, 2, 2), 6),
        ((4, 4, 4), 9),
        ((2, 1, 1), 3),
        ((4, 1, 1), 3),
        ((2, 2, 4), 7),
        ((1,) * 12, 9),
        ((6, 1, 1, 1), 5),
    ],
)
def test_how_many_nodes_have_the_registry(zones: tuple[int, ...], wanted: int) -> None:
    assert size_wanted(GroupId(0), 3, sum(zones) or 6, zones) == wanted
    assert size_wanted(GroupId(1), 3, sum(zones) or 6, zones) == 3


def test_a_node_that_is_unfit_for_a_moment_still_counts_for_its_machine() -> None:
    """Found with real nodes: node 4 had just started, and one of the other node's three masters
    moved to another machine, and back when node 4 was fit."""
    zones = numbered([2, 2, 2])
    current = {GroupId(group): NodeId(1 + group % 6) for group in range(13)}
    groups = tuple(GroupNeed(group) for group in current)
    for unfit in ([], [4], [4, 5], [2, 3, 5, 6], [1]):
        nodes = tuple(
            NodeOffer(node, zone, unfit=Unfit.RESTARTED if node in unfit else None)
            for node, zone in zones.items()
        )
        for needs in (groups, members_of(groups, zones)):
            plan = solve(Problem(nodes=nodes, groups=needs, current=current))
            assert plan.moves == (), unfit
            assert plan.certificate is not None
            assert plan.certificate.proven


def members_of(groups: tuple[GroupNeed, ...], zones: Zones) -> tuple[GroupNeed, ...]:
    """The same, each on three nodes only."""
    return tuple(
        attrs.evolve(one, members=frozenset(first_members(one.group, zones, 3) if one.group else
                                            map(NodeId, (1, 2, 3))))
        for one in groups
    )  # fmt: skip


def test_a_machine_of_normal_capacity_is_its_processes() -> None:
    """Capacities count on top: half a machine has half the masters."""
    zones = numbered([2, 2, 2])
    offers = [NodeOffer(node, zone, 50 if zone == "a" else 100) for node, zone in zones.items()]
    groups = tuple(GroupNeed(GroupId(group)) for group in range(10))
    plan = solve(Problem(nodes=tuple(offers), groups=groups, current={}))
    on = Counter(zones[node] for node in plan.placement.values())
    assert on == {"a": 2, "b": 4, "c": 4}
    crowd = attrs.evolve(Problem(nodes=tuple(offers), groups=groups, current=plan.placement))
    assert solve(crowd).moves == ()


@pytest.mark.parametrize("arrived", [8, 7, 6])
def test_founders_that_have_not_arrived_are_not_taken_for_one_machine(arrived: int) -> None:
    """Of five machines with two nodes each only some run yet: nothing is copied meanwhile."""
    zones, registry = numbered([2] * 5), Registry()
    registry.apply_command(FoundCluster("test", 10, tuple(zones), 3), 1)
    here = [node for node in zones if zones[node] in "abcd"[: (arrived + 1) // 2]][:arrived]
    for at, node in enumerate(here, 2):
        registry.apply_command(register(node, 1, zones[node]), at)
    view = ReplicaView(now=Now(boot_ns=0, wall_ns=0), me=NodeId(1), registry=registry)
    plan = plan_replicas(problem(view))
    assert [move for move in plan.moves if move.group] == []
