"""How a leader divides tasks among members, and how it is chosen: functions of members' metadata.

A sharding gets the tasks in order, the present members, oldest first, and the current shares; all
members would compute the same result. Oldest first means that the last to join is served last: a
surplus member gets nothing and moves nothing.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, Final, Self

import attrs

from evenkeel.errors import ConfigurationError
from wire.murmur import partition_of_key

SLICES_MAX: Final = 1_000
DIGITS: Final = re.compile(r"(\d+)")


@attrs.frozen
class Candidate:
    """A member as shardings and elections see it; `metadata` is what it says about itself."""

    id: str
    metadata: Mapping[str, Any] = attrs.field(factory=dict)

    def wants(self, task: str) -> bool:
        """Members may restrict themselves to `topics` (the part of a task before its last '/')."""
        topics = self.metadata.get("topics")
        return topics is None or topic_of(task) in topics


@attrs.frozen
class TaskShares:
    """Which member should run which tasks. `version` is the plan's, 0 before the first."""

    owners: Mapping[str, tuple[str, ...]] = attrs.field(factory=dict)
    version: int = 0

    @classmethod
    def of(cls, owners: Mapping[str, Iterable[str]]) -> Self:
        return cls({owner: tuple(tasks) for owner, tasks in owners.items()})

    def of_owner(self, owner: str) -> tuple[str, ...]:
        return self.owners.get(owner, ())

    def all_tasks(self) -> list[str]:
        return [task for tasks in self.owners.values() for task in tasks]


class Sharding(ABC):
    """How tasks are divided, and how shares are encoded. All members of a task group need the same
    one."""

    @abstractmethod
    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        """Give each task to at most one of these members, of which there is at least one."""

    def equal(self, one: TaskShares, other: TaskShares) -> bool:
        """Whether a plan would change nothing; then none is made."""
        return _filled(one) == _filled(other)

    def encode(self, shares: TaskShares) -> str:
        return json.dumps(shares.owners, ensure_ascii=False, separators=(",", ":"))

    def decode(self, text: str) -> TaskShares:
        """Raises ValueError for text that is not in our form: such a plan is void."""
        found = json.loads(text)
        if not isinstance(found, dict) or not all(
            isinstance(tasks, list) and all(isinstance(task, str) for task in tasks)
            for tasks in found.values()
        ):
            raise ValueError("not a mapping of owners to lists of tasks")
        return TaskShares.of(found)


def _filled(shares: TaskShares) -> dict[str, frozenset[str]]:
    return {owner: frozenset(tasks) for owner, tasks in shares.owners.items() if tasks}


def natural(task: str) -> tuple[list[tuple[int, str]], str]:
    """A sort key that puts `orders/2` before `orders/10`."""
    parts = [(int(one), "") if one.isdecimal() else (0, one) for one in DIGITS.split(task)]
    return parts, task


def topic_of(task: str) -> str:
    return task.rpartition("/")[0] or task


def _by_topic(tasks: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for task in tasks:
        found.setdefault(topic_of(task), []).append(task)
    return found


def _split(tasks: Sequence[str], takers: Sequence[Candidate]) -> dict[str, list[str]]:
    """Contiguous parts; the first members get one more."""
    least, more = divmod(len(tasks), len(takers))
    shares: dict[str, list[str]] = {}
    at = 0
    for number, member in enumerate(takers):
        count = least + (number < more)
        shares[member.id] = list(tasks[at : at + count])
        at += count
    return shares


class Contiguous(Sharding):
    """Equal contiguous parts of the list; the first members get the remainder."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        return TaskShares.of(_split(tasks, members))


class Interleaved(Sharding):
    """Deals tasks to the members in turn."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        count = len(members)
        return TaskShares.of({one.id: tasks[at::count] for at, one in enumerate(members)})


class Range(Sharding):
    """Kafka's: each topic separately in contiguous parts, among the members that want it. Over many
    topics the first members get more."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        shares: dict[str, list[str]] = {member.id: [] for member in members}
        for ours in _by_topic(tasks).values():
            takers = [member for member in members if member.wants(ours[0])]
            for owner, part in (_split(ours, takers) if takers else {}).items():
                shares[owner] += part
        return TaskShares.of(shares)


class RoundRobin(Sharding):
    """Kafka's: deals all tasks in order round the members, skipping those that do not want the
    topic."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        shares: dict[str, list[str]] = {member.id: [] for member in members}
        turn = cycle(members)
        for task in tasks:
            for member in islice(turn, len(members)):
                if member.wants(task):
                    shares[member.id].append(task)
                    break
        return TaskShares.of(shares)


class Sticky(Sharding):
    """A member keeps a task unless another member has two fewer: as few moves as possible."""

    def rebalance(
        self, tasks: Sequence[str], members: Sequence[Candidate], now: TaskShares
    ) -> TaskShares:
        owner_of = {task: owner for owner, ours in now.owners.items() for task in ours}
        held: dict[str, list[str]] = {member.id: [] for member in members}
        takers = {
            topic: [member.id for member in members if member.wants(ours[0])]
            for topic, ours in _by_topic(tasks).items()
        }
        free = []
        for task in tasks:
            owner = owner_of.get(task)
            if owner in takers[topic_of(task)]:
                held[owner].append(task)
            else:
                free.append(task)
        # Tasks that few members can take come first, or no member may be left for them.
        for task in sorted(free, key=lambda one: len(takers[topic_of(one)])):
            possible = takers[topic_of(task)]
            if possible:
                held[min(possible, key=lambda one: len(held[one]))].append(task)
        while _level(held, takers):
            pass
        return TaskShares.of({owner: sorted(ours, key=natural) for owner, ours in held.items()})


def _level(held: dict[str, list[str]], takers: Mapping[str, Sequence[str]]) -> bool:
    """Move one task to a member with at least two fewer; each makes the sum of squares smaller."""
    for rich in sorted(held, key=lambda member: -len(held[member])):
        for task in reversed(held[rich]):
            poor = min(takers[topic_of(task)], key=lambda member: len(held[member]))
            if len(held[rich]) - len(held[poor]) > 1:
                held[rich].remove(task)
                held[poor].append(task)
                return True
    return False


# -- leaders --------------------------------------------------------------------------------------

Election = Callable[[Sequence[Candidate], str], str]
"""Chooses the leader; the second argument is the member that the group coordinator chose."""


def coordinators_choice(members: Sequence[Candidate], chosen: str) -> str:
    """Kafka's leader: the member that has led longest."""
    return chosen


def largest_offset(members: Sequence[Candidate], chosen: str) -> str:
    """The member that reports the largest `offset` in its metadata; among equals the first."""

    def offset_of(member: Candidate) -> int:
        offset = member.metadata.get("offset", 0)
        return offset if isinstance(offset, int) else 0

    return max(members, key=offset_of).id


# -- one topic for many members -------------------------------------------------------------------


def slices(topic: str, count: int) -> list[str]:
    """One topic (table, queue) as this many tasks, for as many members."""
    if not 0 < count <= SLICES_MAX:
        raise ConfigurationError(f"cannot make {count} slices", advice=f"1 to {SLICES_MAX}")
    return [f"{topic}/{number}" for number in range(count)]


def slice_of(topic: str, key: bytes, count: int) -> str:
    """The task that a key belongs to, hashed as for partitions."""
    return f"{topic}/{partition_of_key(key, count)}"


def in_order(tasks: Collection[str]) -> list[str]:
    return sorted(tasks, key=natural)
