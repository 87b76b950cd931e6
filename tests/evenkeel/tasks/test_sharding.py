"""Shardings and elections: literal examples of the seeds, and properties of all."""

import json
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from evenkeel.errors import ConfigurationError
from evenkeel.tasks.sharding import (
    SLICES_MAX,
    Candidate,
    Contiguous,
    Interleaved,
    Range,
    RoundRobin,
    Sharding,
    Sticky,
    TaskShares,
    coordinators_choice,
    in_order,
    largest_offset,
    slice_of,
    slices,
)

ALL = [Contiguous(), Interleaved(), Range(), RoundRobin(), Sticky()]
EVEN = [Contiguous(), Interleaved(), RoundRobin(), Sticky()]
NOTHING = TaskShares()
names = some.lists(some.sampled_from([f"t/{n}" for n in range(30)]), unique=True).map(in_order)
teams = some.lists(some.sampled_from("ABCDEFGH"), min_size=1, unique=True).map(
    lambda found: [Candidate(one) for one in found]
)


def team(*members: str) -> list[Candidate]:
    return [Candidate(one) for one in members]


def owners(shares: TaskShares) -> dict[str, list[str]]:
    return {owner: list(tasks) for owner, tasks in shares.owners.items()}


def test_A12_contiguous_parts_and_the_first_get_what_is_left_over() -> None:
    shares = Contiguous().rebalance(list("12345"), team("1", "2", "3"), NOTHING)
    assert owners(shares) == {"1": ["1", "2"], "2": ["3", "4"], "3": ["5"]}
    shares = Contiguous().rebalance(list("12345"), team("1", "2"), NOTHING)
    assert owners(shares) == {"1": ["1", "2", "3"], "2": ["4", "5"]}


def test_B6_interleaved_as_in_the_seed() -> None:
    """A:1,3 B:2,4; then C comes: A:1,4 B:2 C:3."""
    shares = Interleaved().rebalance(list("1234"), team("A", "B"), NOTHING)
    assert owners(shares) == {"A": ["1", "3"], "B": ["2", "4"]}
    shares = Interleaved().rebalance(list("1234"), team("A", "B", "C"), shares)
    assert owners(shares) == {"A": ["1", "4"], "B": ["2"], "C": ["3"]}


def test_D11_range_is_uneven_over_many_topics() -> None:
    tasks = [f"{topic}/{number}" for topic in "xyz" for number in range(3)]
    shares = Range().rebalance(tasks, team("A", "B"), NOTHING)
    assert owners(shares)["B"] == ["x/2", "y/2", "z/2"]


def test_D11_round_robin_is_even_and_minds_who_wants_what() -> None:
    tasks = [f"{topic}/{number}" for topic in "xy" for number in range(3)]
    shares = RoundRobin().rebalance(tasks, team("A", "B"), NOTHING)
    assert owners(shares) == {"A": ["x/0", "x/2", "y/1"], "B": ["x/1", "y/0", "y/2"]}
    picky = [Candidate("A"), Candidate("B", {"topics": ["y"]})]
    shares = RoundRobin().rebalance(tasks, picky, NOTHING)
    assert owners(shares) == {"A": ["x/0", "x/1", "x/2", "y/1"], "B": ["y/0", "y/2"]}


@pytest.mark.parametrize("sharding", ALL, ids=lambda one: type(one).__name__)
@settings(max_examples=20)
@given(tasks=names, members=teams)
def test_every_task_has_one_owner(
    sharding: Sharding, tasks: list[str], members: list[Candidate]
) -> None:
    shares = sharding.rebalance(tasks, members, NOTHING)
    assert sorted(shares.all_tasks()) == sorted(tasks)
    assert list(shares.owners) == [member.id for member in members]


@pytest.mark.parametrize("sharding", EVEN, ids=lambda one: type(one).__name__)
@settings(max_examples=20)
@given(tasks=names, members=teams)
def test_B3_shares_differ_by_one_at_most(
    sharding: Sharding, tasks: list[str], members: list[Candidate]
) -> None:
    sizes = [len(ours) for ours in sharding.rebalance(tasks, members, NOTHING).owners.values()]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("sharding", EVEN, ids=lambda one: type(one).__name__)
@settings(max_examples=20)
@given(tasks=names, extra=some.integers(1, 4))
def test_B3_members_too_many_change_nothing(
    sharding: Sharding, tasks: list[str], extra: int
) -> None:
    """They are the youngest, so they are last; then the plan is equal and stays."""
    enough = team(*(f"m{number}" for number in range(max(1, len(tasks)))))
    more = enough + team(*(f"a{number}" for number in range(extra)))
    before = sharding.rebalance(tasks, enough, NOTHING)
    assert sharding.equal(sharding.rebalance(tasks, more, before), before)


@settings(max_examples=20)
@given(tasks=names, members=teams, more=teams)
def test_B15_sticky_moves_no_more_than_evenness_needs(
    tasks: list[str], members: list[Candidate], more: list[Candidate]
) -> None:
    """A member that has at most the rounded-up mean keeps all it has."""
    before = Sticky().rebalance(tasks, members, NOTHING)
    after = Sticky().rebalance(tasks, more, before)
    was = {task: owner for owner, ours in before.owners.items() for task in ours}
    stay = {member.id for member in more}
    kept = Counter(
        owner for owner, ours in after.owners.items() for task in ours if was[task] == owner
    )
    floor = len(tasks) // len(more)
    for owner in stay & before.owners.keys():
        assert kept[owner] >= min(len(before.owners[owner]), floor)
    assert Sticky().equal(Sticky().rebalance(tasks, more, after), after)


@pytest.mark.parametrize("sharding", ALL, ids=lambda one: type(one).__name__)
@settings(max_examples=20)
@given(tasks=names, members=teams)
def test_C10_encoding_is_read_back_and_equality_minds_no_empty_shares(
    sharding: Sharding, tasks: list[str], members: list[Candidate]
) -> None:
    shares = sharding.rebalance(tasks, members, NOTHING)
    text = sharding.encode(shares)
    assert sharding.equal(sharding.decode(text), shares)
    assert json.loads(text) == owners(shares)  # B11: {owner: [topics]}
    with_one_idle = TaskShares.of({**shares.owners, "idle": []})
    assert sharding.equal(with_one_idle, shares)
    if tasks:
        less = TaskShares.of({owner: ours[1:] for owner, ours in shares.owners.items()})
        assert not sharding.equal(less, shares)


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": [1]}', "{"])
def test_C10_what_is_no_plan_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        Sticky().decode(text)


class ByWeight(Sharding):
    """What a user may write: big ones first, each to the member with the least."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        loads = {member.id: 0 for member in members}
        given: dict[str, list[str]] = {member.id: [] for member in members}
        for task in sorted(tasks, key=lambda one: -int(one.partition("=")[2])):
            least = min(loads, key=lambda one: loads[one])
            loads[least] += int(task.partition("=")[2])
            given[least].append(task)
        return TaskShares.of(given)


def test_C10_a_sharding_of_ones_own() -> None:
    shares = ByWeight().rebalance(["a=1", "b=5", "c=3", "d=1"], team("A", "B"), NOTHING)
    assert owners(shares) == {"A": ["b=5"], "B": ["c=3", "a=1", "d=1"]}


def test_A10_the_largest_offset_leads() -> None:
    members = [Candidate("1", {"offset": 7}), Candidate("2", {"offset": 9}), Candidate("3", {})]
    assert largest_offset(members, "1") == "2"
    assert largest_offset(list(reversed(members)), "3") == "2"
    assert largest_offset([Candidate("4"), Candidate("5")], "5") == "4"
    assert coordinators_choice(members, "3") == "3"


def test_B16_a_topic_is_shared_by_slices_of_its_keys() -> None:
    tasks = slices("orders", 12)
    assert in_order(reversed(tasks)) == tasks  # orders/2 before orders/10
    keys = [b"key-%d" % number for number in range(500)]
    found = {slice_of("orders", key, 12) for key in keys}
    assert found == set(tasks)
    for count in (0, SLICES_MAX + 1):
        with pytest.raises(ConfigurationError):
            slices("orders", count)
