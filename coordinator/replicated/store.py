"""The replicated half: consumer groups and committed offsets, the same on every replica.

Only `apply` changes them, called with each command in the order of the log. A command that no
longer applies (an old generation, an old revision) changes nothing and says so. This is what stops
a commit that was in flight through a rebalance or a steal, whatever the coordinators then and now
believed.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import attrs

from coordinator.limits import OFFSETS_PER_GROUP_MAX
from coordinator.model import ConsumerGroupId, ErrorCode, MemberId, TopicOffsets
from coordinator.replicated import image, kept_waits
from coordinator.replicated.assigned_group import AssignedMember, AssignedSnapshot
from coordinator.replicated.codec import Buffer
from coordinator.replicated.commands import (
    BindOffsets,
    Command,
    CommitOffsets,
    DropGroup,
    DropOffsets,
    GroupSnapshot,
    Result,
    Sweep,
    decode,
    encode_result,
)
from coordinator.replicated.stored import NO_REVISION, StoredGroup, StoredOffset
from coordinator.replicated.waits import TimeLeft, WaitFor
from coordinator.states import GroupState
from coordinator.subscription import CONSUMER_PROTOCOL, subscribed_topics
from coordinator.timers import Wait
from coordinator.topics import ANY_TOPIC, NO_TOPIC


class _Frozen:
    """A checkpoint in the making: the groups it has not come to yet, the next one last.

    For those that have changed since it began, it has their state from before.
    """

    def __init__(self, groups: Iterable[ConsumerGroupId]) -> None:
        self.order = sorted(groups, reverse=True)
        self.waiting: dict[ConsumerGroupId, image.GroupImage | None] = dict.fromkeys(self.order)


NEVER_MS: Final = 1 << 63


class GroupStore:
    """All consumer groups of one Paxos group's log."""

    def __init__(self) -> None:
        self._groups: dict[ConsumerGroupId, StoredGroup] = {}
        self._revision = NO_REVISION
        self._waiting: set[ConsumerGroupId] = set()
        """The groups that have waits."""
        self._frozen: _Frozen | None = None
        """The checkpoint in the making."""

    def __len__(self) -> int:
        return len(self._groups)

    def get(self, name: ConsumerGroupId) -> StoredGroup | None:
        """A group, read only: changing it other than through `apply` makes replicas differ."""
        return self._groups.get(name)

    def names(self) -> list[ConsumerGroupId]:
        return list(self._groups)

    def groups(self) -> Iterator[StoredGroup]:
        """All groups by name."""
        return (self._groups[name] for name in sorted(self._groups))

    def waiting(self) -> Iterator[StoredGroup]:
        """The groups for which a coordinator has recorded waits, by name."""
        return (self._groups[name] for name in sorted(self._waiting))

    def apply(self, command: Buffer) -> bytes:
        """Carry out one command of the log; returns an encoded Result.

        Raises:
            CommandError: if the bytes are not a command; nothing has changed then.
        """
        decoded = decode(command)
        if self._frozen is not None:
            self._keep_frozen(self._frozen, decoded)
        match decoded:
            case GroupSnapshot():
                result = self._write_group(decoded)
            case AssignedSnapshot():
                result = self._write_assigned(decoded)
            case CommitOffsets():
                result = self._commit(decoded)
            case DropGroup():
                result = self._drop_group(decoded)
            case DropOffsets():
                result = self._drop_offsets(decoded)
            case Sweep():
                result = self._sweep(decoded)
            case BindOffsets():
                result = self._bind(decoded)
            case TimeLeft():
                result = self._write_waits(decoded)
        return encode_result(result)

    def sweep_due(self, sweep: Sweep) -> bool:
        """Whether applying `sweep` would change anything; if not, keep it out of the log."""
        return any(_sweeps(group, sweep) for group in self._groups.values())

    def snapshot(self) -> list[bytes]:
        """A checkpoint, in pieces that mean something only together."""
        return list(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """A checkpoint of the store as it is at this moment, made while commands are applied.

        Only one at a time: do not ask for pieces of an earlier one any more.
        """
        frozen = self._frozen = _Frozen(self._groups)
        head = image.Head(self._revision, len(self._groups))
        return image.encode(head, self._frozen_groups(frozen))

    @classmethod
    def restore(cls, chunks: Sequence[Buffer]) -> "GroupStore":
        """The store that `snapshot` was taken of.

        Raises:
            CommandError: if the chunks are not a whole checkpoint.
        """
        store = cls()
        head, images = image.decode_all(chunks)
        store._revision = head.revision
        for one in images:
            group = store._groups[one.snapshot.group] = _from_image(one)
            store._keep_waits(group, group.waits)
        return store

    def _frozen_groups(self, frozen: "_Frozen") -> Iterator[image.GroupImage]:
        while frozen.order:
            assert self._frozen is frozen, "two checkpoints of one store at a time"
            name = frozen.order.pop()
            kept = frozen.waiting.pop(name)
            yield _to_image(self._groups[name]) if kept is None else kept
        self._frozen = None

    def _keep_frozen(self, frozen: "_Frozen", command: Command) -> None:
        """Keep the state of groups that the command may change and the checkpoint has yet to
        write."""
        names: Iterable[ConsumerGroupId]
        if isinstance(command, Sweep):
            names = [group.name for group in self._groups.values() if _sweeps(group, command)]
        elif isinstance(command, TimeLeft):
            names = {*self._waiting, *(one.group for one in command.groups)}
        else:
            names = [command.group]
        for name in names:
            if name in frozen.waiting and frozen.waiting[name] is None:
                frozen.waiting[name] = _to_image(self._groups[name])

    def _write_group(self, command: GroupSnapshot) -> Result:
        group = self._groups.get(command.group)
        revision = NO_REVISION if group is None else group.revision
        if command.prev_revision != revision:
            return Result(ErrorCode.INVALID_UPDATE_VERSION, revision)
        if group is None:
            group = self._groups[command.group] = StoredGroup(command.group)
        elif command.generation < group.generation:
            return Result(ErrorCode.ILLEGAL_GENERATION, revision)
        elif group.assigned is not None and group.assigned.members and not command.converts:
            return Result(ErrorCode.NON_EMPTY_GROUP, revision)
        self._revision += 1  # never reused, not even by a group that is deleted and created again
        group.revision = self._revision
        self._keep_waits(group, kept_waits.after_snapshot(group.waits, group.generation, command))
        group.generation = command.generation
        group.state = command.state
        group.assigned = None  # its members are of the classic kind from now on
        group.protocol_type = command.protocol_type
        group.protocol_name = command.protocol_name
        group.leader = command.leader
        group.members = {member.member_id: member for member in command.members}
        group.empty_since_wall_ms = group.oldest_wall_ms = None
        return Result(ErrorCode.NONE, group.revision)

    def _write_assigned(self, command: AssignedSnapshot) -> Result:
        """Offsets stay, and so does the generation, in case the group becomes a classic one
        again."""
        group = self._groups.get(command.group)
        revision = NO_REVISION if group is None else group.revision
        if command.prev_revision != revision:
            return Result(ErrorCode.INVALID_UPDATE_VERSION, revision)
        if group is None:
            group = self._groups[command.group] = StoredGroup(command.group)
        elif group.members and not command.converts:
            return Result(ErrorCode.NON_EMPTY_GROUP, revision)
        elif group.assigned is not None and command.epoch < group.assigned.epoch:
            return Result(ErrorCode.ILLEGAL_GENERATION, revision)
        self._revision += 1
        group.revision = self._revision
        self._keep_waits(group, kept_waits.after_assigned(group.waits, group.assigned, command))
        group.assigned = attrs.evolve(command, prev_revision=NO_REVISION, converts=False)
        group.members = {}  # classic members of a group that is converted are among `command`'s
        group.state = GroupState.EMPTY
        group.protocol_type = group.protocol_name = group.leader = None
        group.empty_since_wall_ms = group.oldest_wall_ms = None
        return Result(ErrorCode.NONE, group.revision)

    def _commit(self, command: CommitOffsets) -> Result:
        group = self._groups.get(command.group)
        error = _fence(group, command)
        if error != ErrorCode.NONE:
            return Result(error)
        stale = _stale(group, command)
        if stale:
            command = _without(command, stale)
            if not command.topics:
                return Result(stale_error(group, command.member_id))
        count = sum(len(partitions) for _, partitions in command.topics)
        if group is None:
            group = StoredGroup(command.group)
        if group.offsets_count + count > OFFSETS_PER_GROUP_MAX:
            new = sum(
                one.partition not in group.offsets.get(topic, {})
                for topic, partitions in command.topics
                for one in partitions
            )
            if group.offsets_count + new > OFFSETS_PER_GROUP_MAX:
                return Result(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        self._groups[command.group] = group
        if group.oldest_wall_ms is not None:
            group.oldest_wall_ms = min(group.oldest_wall_ms, command.commit_wall_ms)
        for topic, partitions in command.topics:
            stored = group.offsets.setdefault(topic, {})
            before = len(stored)
            for partition, offset, leader_epoch, metadata, uid in partitions:
                there = stored.get(partition)
                if there is not None and ANY_TOPIC != uid < there.uid:
                    continue  # the offset is for an earlier topic of that name
                stored[partition] = StoredOffset(
                    offset, leader_epoch, metadata, command.commit_wall_ms, uid
                )
            group.offsets_count += len(stored) - before
            if not stored:
                del group.offsets[topic]
        return Result(ErrorCode.NONE, count, tuple(sorted(stale)))

    def _drop_group(self, command: DropGroup) -> Result:
        group = self._groups.get(command.group)
        if group is None:
            return Result(ErrorCode.GROUP_ID_NOT_FOUND)
        if group.occupied:
            return Result(ErrorCode.NON_EMPTY_GROUP)
        self._remove(group)
        return Result(ErrorCode.NONE, group.offsets_count)

    def _drop_offsets(self, command: DropOffsets) -> Result:
        group = self._groups.get(command.group)
        if group is None:
            return Result(ErrorCode.GROUP_ID_NOT_FOUND)
        keys = [(topic, p) for topic, partitions in command.topics for p in partitions]
        return Result(ErrorCode.NONE, _forget(group, keys))

    def _bind(self, command: BindOffsets) -> Result:
        group = self._groups.get(command.group)
        if group is None:
            return Result(ErrorCode.GROUP_ID_NOT_FOUND)
        gone = []
        for topic, ties in command.topics:
            stored = group.offsets.get(topic, {})
            for partition, was, now in ties:
                one = stored.get(partition)
                if one is None or one.uid != was:
                    continue
                if now == NO_TOPIC:
                    gone.append((topic, partition))
                else:
                    stored[partition] = one._replace(uid=now)
        return Result(ErrorCode.NONE, _forget(group, gone))

    def _write_waits(self, command: TimeLeft) -> Result:
        for name in sorted(self._waiting):
            self._keep_waits(self._groups[name], {})
        for name, generation, known in command.groups:
            group = self._groups.get(name)
            if group is not None:
                self._keep_waits(group, kept_waits.still_valid(group, generation, known))
        return Result(ErrorCode.NONE)

    def _keep_waits(self, group: StoredGroup, kept: dict[WaitFor, Wait]) -> None:
        group.waits = kept
        if kept:
            self._waiting.add(group.name)
        else:
            self._waiting.discard(group.name)

    def _remove(self, group: StoredGroup) -> None:
        del self._groups[group.name]
        self._waiting.discard(group.name)

    def _sweep(self, sweep: Sweep) -> Result:
        gone = 0
        for group in list(self._groups.values()):
            if not _sweeps(group, sweep):
                continue
            gone += _forget(group, _older(group, sweep))
            if group.occupied:
                continue
            if group.empty_since_wall_ms is None:
                group.empty_since_wall_ms = sweep.wall_ms
            if _idle(group, sweep):
                self._remove(group)
        return Result(ErrorCode.NONE, gone)


def _fence(group: StoredGroup | None, command: CommitOffsets) -> ErrorCode:
    """Who may commit: any client without a generation if there are no members, else a member."""
    if command.generation < 0 and (group is None or not group.occupied):
        return ErrorCode.NONE
    if group is None:
        return no_member_error(group)
    if group.assigned is not None and group.assigned.members:
        return fence_assigned(group.assigned, command.member_id, command.generation)
    member = group.members.get(command.member_id)
    if command.instance_id is not None and (
        member is None or member.instance_id != command.instance_id
    ):
        if any(one.instance_id == command.instance_id for one in group.members.values()):
            return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.NONE


def no_member_error(group: StoredGroup | None) -> ErrorCode:
    """What somebody hears who commits as a member of a group that has none, or is not there."""
    return ErrorCode.GROUP_ID_NOT_FOUND if group is None else ErrorCode.UNKNOWN_MEMBER_ID


def fence_assigned(group: AssignedSnapshot, member_id: MemberId, epoch: int) -> ErrorCode:
    """A member of a group with broker-side assignment commits under an epoch it has reached."""
    member = _member(group, member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if 0 <= epoch <= member.epoch else _too_old(member)


def stale_error(group: StoredGroup | None, member_id: MemberId) -> ErrorCode:
    """What a member of a group with broker-side assignment hears of an epoch that is too old."""
    assigned = group.assigned if group is not None else None
    return _too_old(_member(assigned, member_id) if assigned is not None else None)


def _too_old(member: AssignedMember | None) -> ErrorCode:
    """A classic member calls it a generation, and knows no other error for it."""
    if member is not None and member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def _member(group: AssignedSnapshot, member_id: MemberId) -> AssignedMember | None:
    return next((one for one in group.members if one.member_id == member_id), None)


def _stale(group: StoredGroup | None, command: CommitOffsets) -> frozenset[int]:
    """Indices of the partitions that a member may not commit under the epoch it named (KIP-1251).

    Its heartbeat may have brought it to the next epoch while the commit was on its way. That does
    no harm if it has held the partition all the time: since the epoch it named, or longer.
    """
    if group is None or group.assigned is None or not group.assigned.members:
        return frozenset()
    member = _member(group.assigned, command.member_id)
    assert member is not None, "fenced before"
    if command.generation == member.epoch:
        return frozenset()
    ids = command.topic_ids or (b"",) * len(command.topics)
    held = [
        member.held_since((topic_id, one.partition))
        for topic_id, (_, partitions) in zip(ids, command.topics, strict=True)
        for one in partitions
    ]
    return frozenset(
        place for place, since in enumerate(held) if since is None or since > command.generation
    )


def _without(command: CommitOffsets, places: frozenset[int]) -> CommitOffsets:
    topics, place = [], 0
    for topic, partitions in command.topics:
        kept = tuple(one for at, one in enumerate(partitions, place) if at not in places)
        place += len(partitions)
        if kept:
            topics.append(TopicOffsets(topic, kept))
    return attrs.evolve(command, topics=tuple(topics))


def _sweeps(group: StoredGroup, sweep: Sweep) -> bool:
    """Whether `sweep` changes anything in the group."""
    if group.occupied:
        return _has_older(group, sweep)
    since = group.empty_since_wall_ms
    if since is None or _idle(group, sweep):
        return True
    return since <= sweep.wall_ms - sweep.retention_ms and _has_older(group, sweep)


def _has_older(group: StoredGroup, sweep: Sweep) -> bool:
    limit_ms = sweep.wall_ms - sweep.retention_ms
    if group.oldest_wall_ms is None or group.oldest_wall_ms <= limit_ms:
        times = (
            stored.commit_wall_ms
            for topic in _removable(group)
            for stored in group.offsets[topic].values()
        )
        group.oldest_wall_ms = min(times, default=NEVER_MS)
    return group.oldest_wall_ms <= limit_ms


def _removable(group: StoredGroup) -> Iterable[str]:
    """The topics whose offsets may get too old: all, or in a group with members those that no
    member reads (KIP-211)."""
    if not group.occupied:
        return group.offsets.keys()
    read = _topics_read(group)
    return () if read is None else group.offsets.keys() - read


def _topics_read(group: StoredGroup) -> frozenset[str] | None:
    """The topics that members subscribe to; None if that is unknown, or about to change."""
    if group.assigned is not None and group.assigned.members:
        said = [member.subscription for member in group.assigned.members]
        if any(one.pattern is not None for one in said):
            return None
        return frozenset(topic for one in said for topic in one.topics)
    if group.protocol_type != CONSUMER_PROTOCOL or group.state != GroupState.STABLE:
        return None
    read: frozenset[str] = frozenset()
    for member in group.members.values():
        metadata = dict(member.protocols).get(group.protocol_name or "", b"")
        theirs = subscribed_topics(metadata)
        if theirs is None:
            return None
        read |= theirs
    return read


def _older(group: StoredGroup, sweep: Sweep) -> list[tuple[str, int]]:
    """The offsets that `sweep` removes."""
    since = group.empty_since_wall_ms
    if not group.occupied and (since is None or since > sweep.wall_ms - sweep.retention_ms):
        return []
    return [
        (topic, partition)
        for topic in sorted(_removable(group))
        for partition, stored in group.offsets[topic].items()
        if stored.commit_wall_ms <= sweep.wall_ms - sweep.retention_ms
    ]


def _idle(group: StoredGroup, sweep: Sweep) -> bool:
    """Whether a group without members can be forgotten as a whole."""
    return (
        group.offsets_count == 0
        and group.empty_since_wall_ms is not None
        and sweep.wall_ms - group.empty_since_wall_ms >= sweep.idle_ms
    )


def _forget(group: StoredGroup, keys: list[tuple[str, int]]) -> int:
    gone = 0
    for topic, partition in keys:
        partitions = group.offsets.get(topic)
        if partitions is not None and partitions.pop(partition, None) is not None:
            gone += 1
            if not partitions:
                del group.offsets[topic]
    group.offsets_count -= gone
    return gone


def _to_image(group: StoredGroup) -> image.GroupImage:
    """The group as it is now, whatever happens to it later: what changes in place is copied."""
    offsets = {topic: dict(partitions) for topic, partitions in group.offsets.items()}
    return image.GroupImage(
        group.snapshot(),
        group.empty_since_wall_ms,
        group.offsets_count,
        _flat(offsets),
        group.assigned,
        tuple(group.waits.items()),
    )


def _flat(offsets: Mapping[str, Mapping[int, StoredOffset]]) -> Iterator[image.OffsetImage]:
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield image.OffsetImage(topic, partition, *offsets[topic][partition])


def _from_image(one: image.GroupImage) -> StoredGroup:
    snapshot = one.snapshot
    group = StoredGroup(
        snapshot.group,
        snapshot.prev_revision,
        snapshot.generation,
        snapshot.state,
        snapshot.protocol_type,
        snapshot.protocol_name,
        snapshot.leader,
        {member.member_id: member for member in snapshot.members},
    )
    for kept in one.offsets:
        group.offsets.setdefault(kept.topic, {})[kept.partition] = StoredOffset(
            kept.offset, kept.leader_epoch, kept.metadata, kept.commit_wall_ms, kept.uid
        )
    group.offsets_count = one.offsets_count
    group.assigned = one.assigned
    group.waits = dict(one.waits)
    group.empty_since_wall_ms = one.empty_since_wall_ms
    return group
