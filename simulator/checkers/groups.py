"""What must hold of consumer groups: one set of members and one owner of each partition in a
generation, generations that only grow, commits only by members, and offsets that never go back.

The truth is again the chosen log. What a client is told must be in it (durable before visible).
"""

from collections.abc import Callable
from typing import Final

import attrs

from coordinator.model import ErrorCode
from coordinator.replicated.commands import CommitOffsets, GroupSnapshot, decode, decode_result
from coordinator.replicated.waits import TimeLeft
from coordinator.states import GroupState
from simulator.environment.violation import Violation

MEMBERLESS: Final = "readers of reborn"
"""A group that commits without members; its client (clients.recreated_topic) checks it."""
ASSIGNED: Final = (GroupState.STABLE,)


@attrs.define(eq=False)
class ConsumerGroup:
    """One consumer group according to the chosen log."""

    generation: int = 0
    members: frozenset[str] = frozenset()
    joined: dict[int, tuple[str | None, frozenset[str]]] = attrs.Factory(dict)
    """Generation -> its leader and members, as first written."""
    plans: dict[int, dict[str, bytes]] = attrs.Factory(dict)
    """Generation -> member -> its partitions."""
    offsets: dict[int, int] = attrs.Factory(dict)
    commits: set[str] = attrs.Factory(set)
    failed: set[str] = attrs.Factory(set)
    """Commits of which a client was told that they are not, and will not be, in the log."""
    floor: dict[int, int] = attrs.Factory(dict)
    """Partition -> the highest offset whose commit was acknowledged."""


class GroupLogs:
    def __init__(self, *, fresh: bool) -> None:
        self._fresh = fresh
        self.groups: dict[str, ConsumerGroup] = {}
        self.time_left: Callable[[TimeLeft], None] = lambda _: None
        """Called with the waits that a coordinator records for the next one."""
        self.commits = self.generations = self.fenced = self.stale = self.late = 0

    def group(self, name: str) -> ConsumerGroup:
        return self.groups.setdefault(name, ConsumerGroup())

    # -- what nodes do ------------------------------------------------------------------------

    def applied(self, body: memoryview, result: bytes, *, late: bool = False) -> None:
        """A command of a coordinator, and the result at the first node that applied it. `late`: its
        mastership was over by then."""
        command, verdict = decode(body), decode_result(result)
        if late:
            self.late += 1
            if verdict.error != ErrorCode.NOT_COORDINATOR:
                raise Violation(f"late: {command} of an earlier mastership is carried out")
        if verdict.error != ErrorCode.NONE:
            self.fenced += 1
        elif isinstance(command, GroupSnapshot):
            self._write(command)
        elif isinstance(command, CommitOffsets):
            self._commit(command)
        elif isinstance(command, TimeLeft):
            self.time_left(command)

    def _write(self, snapshot: GroupSnapshot) -> None:
        group, generation = self.group(snapshot.group), snapshot.generation
        members = frozenset(member.member_id for member in snapshot.members)
        if generation < group.generation:
            raise Violation(f"generation: {group.generation} is followed by {generation}")
        if generation > group.generation:
            self.generations += 1
            group.joined[generation] = (snapshot.leader, members)
        elif not members <= group.members:
            raise Violation(f"generation: {members - group.members} come into {generation}")
        group.generation, group.members = generation, members
        if snapshot.state in ASSIGNED:
            self._assign(group, snapshot)

    def _assign(self, group: ConsumerGroup, snapshot: GroupSnapshot) -> None:
        plan = {str(member.member_id): member.assignment for member in snapshot.members}
        known = group.plans.setdefault(snapshot.generation, plan)
        if any(known.get(member) != part for member, part in plan.items()):
            raise Violation(f"generation: {snapshot.generation} is shared out twice")
        owned = [partition for part in plan.values() for partition in part]
        if len(owned) != len(set(owned)):
            raise Violation(f"owner: {snapshot.generation} gives a partition to two: {plan}")

    def _commit(self, commit: CommitOffsets) -> None:
        if commit.group == MEMBERLESS:
            return
        group = self.group(commit.group)
        if commit.generation != group.generation or commit.member_id not in group.members:
            raise Violation(
                f"fenced: a commit of {commit.member_id} in generation {commit.generation} is "
                f"accepted in {group.generation} of {sorted(group.members)}"
            )
        for _, partitions in commit.topics:
            for partition, offset, _, name, _ in partitions:
                if offset < group.offsets.get(partition, 0):
                    raise Violation(
                        f"committed: {offset} after {group.offsets[partition]} of {partition}"
                    )
                if name in group.failed:
                    raise Violation(f"G1a: commit {name} was refused for good, and is carried out")
                group.offsets[partition] = offset
                group.commits.add(name)
        self.commits += 1

    # -- what clients are told ----------------------------------------------------------------

    def told_members(
        self, name: str, generation: int, member: str, leader: str, members: frozenset[str]
    ) -> None:
        """A JoinGroup was answered; `members` is empty for all but the leader."""
        group = self.group(name)
        known = group.joined.get(generation)
        if known is None or member not in known[1] or (members and members != known[1]):
            raise Violation(
                f"generation: {member} is told of {generation}, {sorted(members)}; the log: {known}"
            )
        if leader != known[0]:
            raise Violation(
                f"generation: {generation} is led by {leader}, in the log by {known[0]}"
            )

    def told_plan(self, name: str, generation: int, member: str, part: bytes) -> None:
        """A SyncGroup was answered."""
        plan = self.group(name).plans.get(generation, {})
        if plan.get(member) != part:
            raise Violation(f"owner: {member} is given {part!r} in {generation}; the log: {plan}")

    def told_committed(self, name: str, commit: str, partition: int, offset: int) -> None:
        group = self.group(name)
        if commit not in group.commits:
            raise Violation(f"lost-commit: {commit} ({offset} of {partition}) is not in the log")
        group.floor[partition] = max(offset, group.floor.get(partition, 0))

    def told_failed(self, name: str, commit: str) -> None:
        group = self.group(name)
        group.failed.add(commit)
        if commit in group.commits:
            raise Violation(f"G1a: commit {commit} was refused for good, and is in the log")

    def floor(self, name: str, partition: int) -> int:
        """What an OffsetFetch that begins now must return at least."""
        return self.group(name).floor.get(partition, 0)

    def told_offset(self, name: str, partition: int, floor: int, offset: int) -> None:
        """An OffsetFetch was answered; -1 if nothing was committed."""
        if max(offset, 0) < floor:
            self.stale += 1
            if self._fresh:
                raise Violation(f"I7: {offset} of {partition} was fetched, {floor} was committed")
