"""Which nodes host which group: conditions for every plan, and clusters that grow and shrink."""

from collections import Counter
from fractions import Fraction
from itertools import combinations, product
from random import Random

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.planner.assignment import objection
from balancer.planner.planner import solve
from balancer.planner.problem import GroupNeed, NodeOffer, Problem
from balancer.planner.proof import Proof
from balancer.registry.records import REPLICAS_MAX
from balancer.replicas import (
    Host,
    HostState,
    Kept,
    ReplicaPlan,
    ReplicaProblem,
    ReplicaReason,
    assignment_problem,
    plan_replicas,
    size_wanted,
)
from paxos.ids import GroupId, NodeId

MARKS = {"!": HostState.LEAVING, "x": HostState.DEAD, "?": HostState.AWAY}
Sets = dict[GroupId, tuple[NodeId, ...]]


def hosts(text: str) -> tuple[Host, ...]:
    """`"1a 2a 3b 4b! 5b? 6bx*50"`: node, zone, leaving, away or dead, capacity in percent."""
    made = []
    for word in text.split():
        name, _, capacity = word.partition("*")
        state = MARKS.get(name[-1], HostState.FIT)
        name = name.rstrip("!x?")
        made.append(Host(NodeId(int(name[0])), name[1:], int(capacity or 100), state))
    return tuple(made)


def kept(text: str, replicas: int = 3, sizes: str = "") -> tuple[Kept, ...]:
    """`"123 124 234"`: the nodes of each group; sizes as digits."""
    return tuple(
        Kept(
            GroupId(at),
            tuple(NodeId(int(one)) for one in word),
            tuple(NodeId(int(one)) for one in word),
            replicas,
            int(sizes[at - 1]) if sizes else 0,
        )
        for at, word in enumerate(text.split(), start=1)
    )


def planned(nodes: str, before: str, replicas: int = 3, sizes: str = "") -> ReplicaPlan:
    return checked(ReplicaProblem(hosts=hosts(nodes), groups=kept(before, replicas, sizes)))


def checked(problem: ReplicaProblem) -> ReplicaPlan:
    plan = plan_replicas(problem)
    assert_valid(problem, plan)
    return plan


def assert_valid(problem: ReplicaProblem, plan: ReplicaPlan) -> None:
    """Sizes, nodes, and what the plan's prices prove."""
    states = {host.node: host.state for host in problem.hosts}
    for one in problem.groups:
        after = plan.sets[one.group]
        assert list(after) == sorted(set(after))
        for node in set(after) - {*one.wanted, *one.members}:
            assert states[node] is HostState.FIT, "who is not there gets nothing"
        if after != one.wanted:
            assert not any(states.get(node) is HostState.LEAVING for node in after)
    if plan.proof is Proof.PRICES:
        assert plan.prices is not None
        assert objection(assignment_problem(problem, dict(plan.sets)), plan.prices) is None


def drawn(plan: ReplicaPlan) -> str:
    return " ".join("".join(map(str, members)) for members in plan.sets.values())


def reasons(plan: ReplicaPlan) -> list[str]:
    return [move.code for move in plan.moves]


# ---- stories -------------------------------------------------------------------------------------


def test_what_is_even_stays() -> None:
    plan = planned("1 2 3 4", "123 124 134 234")
    assert plan.moves == ()
    assert plan.proof is Proof.PRICES


def test_a_new_node_gets_its_share_and_no_more() -> None:
    plan = planned("1 2 3 4", "123 123 123 123")
    assert Counter(drawn(plan).replace(" ", "")) == dict.fromkeys("1234", 3)
    assert reasons(plan) == ["evenness"] * 3


def test_what_a_leaving_node_has_goes_to_the_others_evenly() -> None:
    plan = planned("1 2 3 4 5!", "125 345 135 245 123")
    assert "5" not in drawn(plan)
    assert sorted(Counter(drawn(plan).replace(" ", "")).values()) == [3, 4, 4, 4]
    assert reasons(plan) == ["node-leaving:5"] * 4


def test_without_anybody_to_replace_it_a_dead_node_stays() -> None:
    """Its groups gain nothing by leaving; they would only have to copy everything when it is
    back."""
    assert planned("1 2 3x", "123 123").moves == ()
    plan = planned("1 2 3x 4", "123 123")
    assert drawn(plan) == "124 124"
    assert reasons(plan) == ["node-dead:3"] * 2


def test_of_two_that_are_gone_as_many_are_replaced_as_can_be() -> None:
    plan = planned("1 2x 3x 4", "123")
    assert drawn(plan) in ("124", "134")


def test_who_leaves_is_let_go_even_where_there_are_too_few_then() -> None:
    plan = planned("1 2 3!", "123 123")
    assert drawn(plan) == "12 12"


def test_who_is_away_keeps_what_it_has_and_gets_nothing() -> None:
    """A drain or a restart: no bytes are copied for it."""
    plan = planned("1 2 3 4?", "123 123 123 124")
    assert plan.moves == ()
    assert planned("1 2 3 4? 5", "124 134 234 124").sets[GroupId(1)][-1] in (4, 5)


def test_a_zone_has_its_part_of_every_group_where_that_can_be() -> None:
    plan = planned("1a 2a 3a 4b 5b", "123 123")
    for members in drawn(plan).split():
        assert {"4", "5"} & set(members)
    assert {move.reason for move in plan.moves} <= {ReplicaReason.ZONE, ReplicaReason.EVENNESS}
    assert drawn(planned("1a 2a 3a", "123")) == "123", "there is no other zone"


def test_the_small_groups_are_copied_rather_than_the_large_ones() -> None:
    plan = planned("1 2 3 4", "123 123 123 123", sizes="9171")
    assert {int(move.group) for move in plan.moves} == {2, 3, 4}
    assert plan.bytes_moved == 9


def test_a_set_made_by_hand_stays_until_one_of_its_nodes_goes() -> None:
    crowded = [attrs.evolve(one, by_hand=True) for one in kept("123 123 123 123")]
    problem = ReplicaProblem(hosts=hosts("1 2 3 4"), groups=tuple(crowded))
    assert checked(problem).moves == ()
    gone = checked(attrs.evolve(problem, hosts=hosts("1 2 3! 4")))
    assert drawn(gone) == "124 124 124 124"


def test_where_nothing_is_to_be_levelled_only_what_must_moves() -> None:
    problem = ReplicaProblem(hosts=hosts("1 2 3 4 5!"), groups=kept("123 123 125"), level=False)
    assert drawn(checked(problem)) == "123 123 124"


def test_groups_get_the_number_of_replicas_there_should_be() -> None:
    assert drawn(planned("1 2 3 4", "12 123 1234", 3)).count("4") <= 2
    sizes = [len(one) for one in planned("1 2 3 4", "12 123 1234", 3).sets.values()]
    assert sizes == [3, 3, 3]


def test_the_registrys_group_is_on_all_nodes_up_to_a_limit() -> None:
    assert size_wanted(GroupId(0), 3, 5) == 5
    assert size_wanted(GroupId(0), 3, 40) == REPLICAS_MAX
    assert size_wanted(GroupId(1), 3, 40) == 3


def test_bytes_are_levelled_where_counts_say_nothing() -> None:
    """Nodes 1 and 2 have all the large groups, nodes 3 and 4 as many small ones."""
    mib = 2**20
    groups = tuple(
        attrs.evolve(one, bytes=(900 if one.wanted == (1, 2) else 10) * mib)
        for one in kept("12 34 12 34 12 34 12 34", 2)
    )
    plan = checked(ReplicaProblem(hosts=hosts("1 2 3 4"), groups=groups))
    on: Counter[NodeId] = Counter()
    for one in groups:
        on.update(dict.fromkeys(plan.sets[one.group], one.bytes))
    share = sum(on.values()) / 4
    assert max(on.values()) <= 1.3 * share
    assert plan.proof is Proof.OPEN
    assert set(reasons(plan)) == {"bytes"}
    small = tuple(attrs.evolve(one, bytes=one.bytes // mib) for one in groups)
    assert checked(ReplicaProblem(hosts=hosts("1 2 3 4"), groups=small)).moves == ()


# ---- any problem ---------------------------------------------------------------------------------


@st.composite
def problems(draw: st.DrawFn, groups_max: int, nodes_max: int) -> ReplicaProblem:
    nodes = [NodeId(one) for one in range(1, draw(st.integers(1, nodes_max)) + 1)]
    states = st.sampled_from([HostState.FIT] * 5 + list(HostState))
    capacities = st.sampled_from([100, 100, 50])
    them = [Host(node, draw(st.sampled_from("aab")), draw(capacities), draw(states))
            for node in nodes]  # fmt: skip
    some = st.lists(st.sampled_from(nodes), min_size=1, max_size=3, unique=True).map(sorted)
    groups = []
    for number in range(draw(st.integers(0, groups_max))):
        wanted = tuple(draw(some))
        members = tuple(draw(some)) if draw(st.integers(0, 3)) == 0 else wanted
        size = draw(st.integers(1, 3))
        groups.append(Kept(GroupId(number), wanted, members, size, draw(st.integers(0, 5))))
    return ReplicaProblem(hosts=tuple(them), groups=tuple(groups))


def squares(problem: ReplicaProblem, sets: Sets) -> int:
    """100 times the unevenness."""
    counts = Counter(node for members in sets.values() for node in members)
    return sum(counts[host.node] ** 2 * 100 // host.capacity for host in problem.hosts)


def zone_squares(problem: ReplicaProblem, sets: Sets) -> Fraction:
    """How uneven zones are, for what their nodes that stay have together."""
    there, share = Counter[str](), Counter[str]()
    for host in problem.hosts:
        if host.state in (HostState.FIT, HostState.AWAY):
            share[host.zone] += host.capacity
        there[host.zone] += sum(host.node in members for members in sets.values())
    each = (Fraction(count**2, share[zone] or 1) for zone, count in there.items())
    return sum(each, Fraction(0))


def zone_excess(problem: ReplicaProblem, sets: Sets) -> int:
    zone = {host.node: host.zone for host in problem.hosts}
    staying = (HostState.FIT, HostState.AWAY)
    sizes = Counter(host.zone for host in problem.hosts if host.state in staying)
    excess = 0
    for members in sets.values():
        there = Counter(zone[node] for node in members)
        most = 1
        while most < len(members) and sum(min(n, most) for n in sizes.values()) < len(members):
            most += 1
        excess += sum(max(0, count - most) for count in there.values()) if len(sizes) > 1 else 0
    return excess


@settings(max_examples=150, deadline=None)
@given(problems(groups_max=3, nodes_max=4))
def test_brute_force_finds_no_sets_that_are_better_and_copy_less(problem: ReplicaProblem) -> None:
    """Over all sets of a plan's sizes, of nodes that may be in them."""
    plan = checked(problem)
    states = {host.node: host.state for host in problem.hosts}

    def may(one: Kept, node: NodeId) -> bool:
        there = node in one.wanted or node in one.members
        return states[node] is HostState.FIT or (there and states[node] is not HostState.LEAVING)

    def cost(sets: Sets) -> tuple[int, int, int, Fraction, int, int]:
        dead = sum(states[node] is HostState.DEAD for members in sets.values() for node in members)
        copied = copies = 0
        for one in problem.groups:
            new = set(sets[one.group]) - {*one.wanted, *one.members}
            copied += one.bytes * len(new) + len(new)
            copies += len(set(sets[one.group]) - set(one.wanted) - new)
        uneven = squares(problem, sets), zone_squares(problem, sets)
        return dead, zone_excess(problem, sets), *uneven, copied, copies

    free = [one for one in problem.groups if any(may(one, node) for node in states)]
    candidates = (
        dict(zip((one.group for one in free), sets, strict=True))
        for sets in product(
            *(
                combinations([node for node in states if may(one, node)], len(plan.sets[one.group]))
                for one in free
            )
        )
    )
    stuck = {one.group: one.wanted for one in problem.groups if one not in free}
    assert cost(dict(plan.sets)) == min(cost({**stuck, **one}) for one in candidates)


@settings(max_examples=40, deadline=None)
@given(problems(groups_max=30, nodes_max=8), st.randoms(use_true_random=False))
def test_a_plan_carried_out_needs_no_other_and_order_means_nothing(
    problem: ReplicaProblem, dice: Random
) -> None:
    plan = checked(problem)
    mixed = [list(problem.hosts), list(problem.groups)]
    for one in mixed:
        dice.shuffle(one)
    assert plan_replicas(ReplicaProblem(hosts=tuple(mixed[0]), groups=tuple(mixed[1]))) == plan  # type: ignore[arg-type] # of two types
    done = tuple(
        attrs.evolve(one, wanted=plan.sets[one.group], members=plan.sets[one.group])
        for one in problem.groups
    )
    assert checked(attrs.evolve(problem, groups=done)).moves == ()


# ---- clusters that grow and shrink ---------------------------------------------------------------


def walk(groups: int, replicas: int, steps: list[int], at_once: int) -> list[tuple[int, int]]:
    """For each step: (copies made, copies in the first plan, which proves that none needs fewer).

    That many groups at once, and a new plan after each, as the planning loop does it.
    """
    nodes = list(range(1, steps[0] + 1))
    sets: Sets = {
        GroupId(group): tuple(sorted(NodeId(nodes[(group + at) % len(nodes)])
                                     for at in range(replicas)))
        for group in range(1, groups + 1)
    }  # fmt: skip
    told = []
    for size in steps[1:]:
        leaving = nodes[: max(0, len(nodes) - size)]
        nodes = [*nodes[len(leaving) :], *range(nodes[-1] + 1, nodes[-1] + 1 + size - len(nodes))]
        there = (*(Host(NodeId(one), state=HostState.LEAVING) for one in leaving),
                 *(Host(NodeId(one)) for one in nodes))  # fmt: skip
        copies, at_first = 0, None
        while True:
            problem = ReplicaProblem(
                hosts=there,
                groups=tuple(Kept(group, one, one, replicas) for group, one in sets.items()),
            )
            plan = checked(problem)
            assert plan.proof is Proof.PRICES
            if at_first is None:
                at_first = sum(len(set(one.after) - set(one.before)) for one in plan.moves)
            if not plan.moves:
                break
            for move in plan.moves[:at_once]:
                copies += len(set(move.after) - set(move.before))
                sets[move.group] = move.after
        counts = Counter(node for members in sets.values() for node in members)
        assert max(counts.values()) - min(counts[NodeId(one)] for one in nodes) <= 1
        assert not set(leaving) & counts.keys()
        told.append((copies, at_first))
        _masters_can_be_even(sets, nodes)
    return told


def _masters_can_be_even(sets: Sets, nodes: list[int]) -> None:
    """If replicas are even by count, an even placement of masters on members exists; find it."""
    problem = Problem(
        nodes=tuple(NodeOffer(NodeId(one)) for one in nodes),
        groups=tuple(GroupNeed(group, members=frozenset(one)) for group, one in sets.items()),
        current={group: one[0] for group, one in sets.items()},
    )
    placement = solve(problem).placement
    assert all(placement[group] in one for group, one in sets.items())
    counts = Counter(placement.values())
    assert max(counts.values()) - min(counts[NodeId(one)] for one in nodes) <= 1


@pytest.mark.parametrize(("groups", "at_once"), [(12, 1), (30, 4), (53, 1_000)])
def test_from_3_to_5_to_3_to_9_to_7_nodes(groups: int, at_once: int) -> None:
    """Even after every step; planning again at each step copies nothing more."""
    for copies, needed in walk(groups, 3, [3, 5, 3, 9, 7], at_once):
        assert copies == needed
