"""The commands in the log that change consumer groups, their results, and their bytes.

A command is a version byte, a kind byte and a body. Every replica applies it alike, so it contains
everything that its outcome depends on. The wall clock (Sweep, CommitOffsets) is the proposer's too,
and is only compared with other proposers' clocks.
"""

import struct
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

import attrs

from coordinator.limits import MEMBERS_MAX, PARTITIONS_MAX, PROTOCOLS_MAX, TOPICS_MAX
from coordinator.model import (
    ConsumerGroupId,
    ErrorCode,
    MemberId,
    PartitionOffset,
    Protocol,
    TopicOffsets,
    TopicPartitions,
)
from coordinator.replicated.assigned_codec import (
    TOPIC_ID_BYTES,
    has_since,
    is_plain,
    read_assigned,
    read_assigned_since,
    read_mixed,
    write_assigned,
    write_mixed,
)
from coordinator.replicated.assigned_group import AssignedSnapshot
from coordinator.replicated.codec import I32, I64, U8, U32, Buffer, CommandError, Reader, Writer
from coordinator.replicated.waits import TimeLeft, read_time_left, write_time_left
from coordinator.states import GroupState
from coordinator.topics import ANY_TOPIC

VERSION: Final = 1


class CommandKind(IntEnum):
    GROUP_SNAPSHOT = 1
    COMMIT_OFFSETS = 2
    DROP_GROUP = 3
    DROP_OFFSETS = 4
    SWEEP = 5
    ASSIGNED_SNAPSHOT = 6
    TIME_LEFT = 7
    COMMIT_OFFSETS_OF = 8
    """As COMMIT_OFFSETS, with the uid of each partition."""
    TIE_OFFSETS = 9
    ASSIGNED_SNAPSHOT_SINCE = 10
    """As ASSIGNED_SNAPSHOT, with the epochs in which parts were assigned."""
    COMMIT_OFFSETS_HELD = 11
    """As COMMIT_OFFSETS_OF, with the topics' ids."""
    ASSIGNED_SNAPSHOT_MIXED = 12
    """As ASSIGNED_SNAPSHOT_SINCE, with classic members, or in the place of a classic group."""
    GROUP_SNAPSHOT_CONVERTING = 13
    """As GROUP_SNAPSHOT, in the place of a group with broker-side assignment."""


@attrs.frozen
class MemberRecord:
    """A member as recorded in the log. The fields are Kafka's; `assignment` is opaque (D8)."""

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""


@attrs.frozen
class GroupSnapshot:
    """The whole of a group except its offsets; replaces the previous snapshot.

    `prev_revision` is the revision (the count of changes) of the group that this snapshot was made
    from; applied to any other revision it does nothing. As with the lease's `prev_ver` (R8), a
    snapshot that was under way when the coordinator moved cannot undo what the next one has
    written.

    In state PREPARING_REBALANCE it says that members have left since: the next coordinator
    continues the rebalance instead of waiting for the members that are gone.
    """

    group: ConsumerGroupId
    prev_revision: int
    generation: int
    state: GroupState
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId | None = None
    members: tuple[MemberRecord, ...] = ()
    converts: bool = False
    """It takes over a group with broker-side assignment, whose last member of that kind left."""

    def flaw(self) -> str | None:
        """What makes this snapshot impossible, if anything."""
        ids = {member.member_id for member in self.members}
        instances = [m.instance_id for m in self.members if m.instance_id is not None]
        if len(ids) != len(self.members) or len(set(instances)) != len(instances):
            return "a member is there twice"
        if self.state == GroupState.DEAD or (self.state == GroupState.EMPTY) != (not ids):
            return f"{len(ids)} members in state {self.state.name}"
        if self.leader is not None and self.leader not in ids:
            return "the leader is not a member"
        if self.generation < 0 or self.prev_revision < 0:
            return "a negative generation or revision"
        return None


@attrs.frozen
class CommitOffsets:
    """Fenced when it is applied: by generation and member id, or by the group being empty.

    `topic_ids`, one for each of `topics` or none at all, tell the log which partitions the member
    holds in a group with broker-side assignment. Empty bytes: there is no such topic.
    """

    group: ConsumerGroupId
    generation: int
    member_id: MemberId
    instance_id: str | None
    commit_wall_ms: int
    topics: tuple[TopicOffsets, ...]
    topic_ids: tuple[bytes, ...] = ()


class OffsetBinding(NamedTuple):
    """Binds the offset of a partition, if it was committed under uid `was`, to `now`; NO_TOPIC
    forgets it."""

    partition: int
    was: int
    now: int


class TopicBindings(NamedTuple):
    topic: str
    partitions: tuple[OffsetBinding, ...]


@attrs.frozen
class BindOffsets:
    """Binds offsets that were committed by name alone to a topic, and forgets those of deleted
    topics. Offsets committed since then, under another uid, stay as they are."""

    group: ConsumerGroupId
    topics: tuple[TopicBindings, ...]


@attrs.frozen
class DropGroup:
    """Forget a group and its offsets, if it has no members when this is applied."""

    group: ConsumerGroupId


@attrs.frozen
class DropOffsets:
    group: ConsumerGroupId
    topics: tuple[TopicPartitions, ...]


@attrs.frozen
class Sweep:
    """Forgets the offsets of groups that have had no members for `retention_ms`, and such groups.

    The first sweep that finds a group without members records its `wall_ms`; later ones count from
    there. So no clock is needed elsewhere, and a moved coordinator does not start over.
    """

    wall_ms: int
    retention_ms: int
    idle_ms: int


Command: TypeAlias = (
    GroupSnapshot
    | CommitOffsets
    | DropGroup
    | DropOffsets
    | Sweep
    | AssignedSnapshot
    | TimeLeft
    | BindOffsets
)


@attrs.frozen
class Result:
    """`value`: the new revision (GroupSnapshot), or how many offsets were dropped (Drop..., Sweep).

    `stale`: indices in the command of the partitions that a CommitOffsets left out, because the
    member does not hold them, or has not held them since the epoch it named.
    """

    error: ErrorCode
    value: int = 0
    stale: tuple[int, ...] = ()


_RESULT: Final = struct.Struct(">Bhq")
VERSION_IN_PART: Final = 2
"""Of a result: the indices of partitions that were left out follow."""


def encode_result(result: Result) -> bytes:
    version = VERSION_IN_PART if result.stale else VERSION
    head = _RESULT.pack(version, result.error, result.value)
    return head + b"".join(map(U32.pack, result.stale))


def decode_result(data: Buffer) -> Result:
    """Read what `GroupStore.apply` returned.

    Raises:
        CommandError: if the bytes are not a result.
    """
    try:
        version, error, value = _RESULT.unpack_from(data)
        rest = memoryview(data)[_RESULT.size :]
        if version != (VERSION_IN_PART if rest else VERSION):
            raise CommandError(f"a result of version {version}")
        stale = tuple(place for (place,) in U32.iter_unpack(rest))
        return Result(ErrorCode(error), value, stale)
    except (struct.error, ValueError) as error:
        raise CommandError(f"not a result: {error}") from error


def encode(command: Command) -> bytes:
    writer = Writer()
    writer.pack(U8, VERSION)
    match command:
        case GroupSnapshot():
            kind = CommandKind.GROUP_SNAPSHOT
            writer.pack(U8, CommandKind.GROUP_SNAPSHOT_CONVERTING if command.converts else kind)
            write_snapshot(writer, command)
        case CommitOffsets():
            _write_any_commit(writer, command)
        case DropGroup():
            writer.pack(U8, CommandKind.DROP_GROUP)
            writer.text(command.group)
        case DropOffsets():
            writer.pack(U8, CommandKind.DROP_OFFSETS)
            _write_drop_offsets(writer, command)
        case Sweep():
            writer.pack(U8, CommandKind.SWEEP)
            for number in (command.wall_ms, command.retention_ms, command.idle_ms):
                writer.pack(I64, number)
        case AssignedSnapshot():
            _write_any_assigned(writer, command)
        case BindOffsets():
            writer.pack(U8, CommandKind.TIE_OFFSETS)
            _write_bindings(writer, command)
        case TimeLeft():
            writer.pack(U8, CommandKind.TIME_LEFT)
            write_time_left(writer, command)
    return writer.finish()


def decode(data: Buffer) -> Command:
    """Read a command back.

    Raises:
        CommandError: if the bytes are not exactly one possible command.
    """
    reader = Reader(data)
    version, kind = reader.number(U8), reader.number(U8)
    if version != VERSION:
        raise CommandError(f"a command of version {version}, known is {VERSION}")
    read = _READERS.get(kind)
    if read is None:
        raise CommandError(f"a command of kind {kind}")
    command = read(reader)
    reader.finish()
    return command


def write_snapshot(writer: Writer, snapshot: GroupSnapshot) -> None:
    flaw = snapshot.flaw()
    assert flaw is None, f"{snapshot.group}: {flaw}"
    writer.text(snapshot.group)
    writer.pack(I64, snapshot.prev_revision)
    writer.pack(I32, snapshot.generation)
    writer.pack(U8, snapshot.state)
    writer.text(snapshot.protocol_type)
    writer.text(snapshot.protocol_name)
    writer.text(snapshot.leader)
    writer.pack(U32, len(snapshot.members))
    for member in snapshot.members:
        writer.text(member.member_id)
        writer.text(member.instance_id)
        writer.text(member.client_id)
        writer.text(member.client_host)
        writer.pack(I32, member.session_timeout_ms)
        writer.pack(I32, member.rebalance_timeout_ms)
        writer.pack(U32, len(member.protocols))
        for protocol in member.protocols:
            writer.text(protocol.name)
            writer.blob(protocol.metadata)
        writer.blob(member.assignment)


def _write_any_assigned(writer: Writer, command: AssignedSnapshot) -> None:
    if not is_plain(command):
        writer.pack(U8, CommandKind.ASSIGNED_SNAPSHOT_MIXED)
        write_mixed(writer, command)
        return
    kind = CommandKind.ASSIGNED_SNAPSHOT
    writer.pack(U8, CommandKind.ASSIGNED_SNAPSHOT_SINCE if has_since(command) else kind)
    write_assigned(writer, command)


def _read_converting(reader: Reader) -> GroupSnapshot:
    return attrs.evolve(read_snapshot(reader), converts=True)


def read_snapshot(reader: Reader) -> GroupSnapshot:
    group = ConsumerGroupId(reader.text())
    prev_revision, generation = reader.number(I64), reader.number(I32)
    state_number = reader.number(U8)
    if state_number not in GroupState.__members__.values():
        raise CommandError(f"state {state_number}")
    protocol_type, protocol_name = reader.optional_text(), reader.optional_text()
    leader = reader.optional_text()
    snapshot = GroupSnapshot(
        group,
        prev_revision,
        generation,
        GroupState(state_number),
        protocol_type,
        protocol_name,
        None if leader is None else MemberId(leader),
        tuple([_read_member(reader) for _ in range(reader.count(MEMBERS_MAX, 24))]),
    )
    flaw = snapshot.flaw()
    if flaw is not None:
        raise CommandError(flaw)
    return snapshot


def _read_member(reader: Reader) -> MemberRecord:
    member_id, instance_id = MemberId(reader.text()), reader.optional_text()
    client_id, client_host = reader.text(), reader.text()
    session_timeout_ms, rebalance_timeout_ms = reader.number(I32), reader.number(I32)
    count = reader.count(PROTOCOLS_MAX, 6)
    protocols = tuple([Protocol(reader.text(), reader.blob()) for _ in range(count)])
    return MemberRecord(
        member_id,
        instance_id,
        client_id,
        client_host,
        session_timeout_ms,
        rebalance_timeout_ms,
        protocols,
        reader.blob(),
    )


_PARTITION: Final = struct.Struct(">iqi")
_TIE: Final = struct.Struct(">iII")


def _write_any_commit(writer: Writer, command: CommitOffsets) -> None:
    if command.topic_ids:
        writer.pack(U8, CommandKind.COMMIT_OFFSETS_HELD)
        writer.pack(U32, len(command.topic_ids))
        for topic_id in command.topic_ids:
            writer.blob(topic_id)
        _write_commit(writer, command, named=True)
        return
    named = _has_uids(command)
    writer.pack(U8, CommandKind.COMMIT_OFFSETS_OF if named else CommandKind.COMMIT_OFFSETS)
    _write_commit(writer, command, named)


def _write_commit(writer: Writer, command: CommitOffsets, named: bool) -> None:
    writer.text(command.group)
    writer.pack(I32, command.generation)
    writer.text(command.member_id)
    writer.text(command.instance_id)
    writer.pack(I64, command.commit_wall_ms)
    writer.pack(U32, len(command.topics))
    for topic, partitions in command.topics:
        writer.text(topic)
        writer.pack(U32, len(partitions))
        for partition, offset, leader_epoch, metadata, uid in partitions:
            writer.pack(_PARTITION, partition, offset, leader_epoch)
            writer.text(metadata)
            if named:
                writer.pack(U32, uid)


def _read_commit(reader: Reader) -> CommitOffsets:
    return _read_commit_fields(reader, named=False)


def _read_commit_of(reader: Reader) -> CommitOffsets:
    command = _read_commit_fields(reader, named=True)
    if not _has_uids(command):
        raise CommandError("uids announced where there are none")
    return command


def _read_commit_held(reader: Reader) -> CommitOffsets:
    ids = tuple([reader.blob() for _ in range(reader.count(TOPICS_MAX, 4))])
    command = attrs.evolve(_read_commit_fields(reader, named=True), topic_ids=ids)
    if not ids or len(ids) != len(command.topics):
        raise CommandError(f"{len(ids)} ids for {len(command.topics)} topics")
    if any(len(one) not in (0, TOPIC_ID_BYTES) for one in ids):
        raise CommandError("a topic id has the wrong length")
    return command


def _has_uids(command: CommitOffsets) -> bool:
    return any(one.uid != ANY_TOPIC for _, partitions in command.topics for one in partitions)


def _read_commit_fields(reader: Reader, *, named: bool) -> CommitOffsets:
    return CommitOffsets(
        ConsumerGroupId(reader.text()),
        reader.number(I32),
        MemberId(reader.text()),
        reader.optional_text(),
        reader.number(I64),
        tuple([_read_topic_offsets(reader, named) for _ in range(reader.count(TOPICS_MAX, 6))]),
    )


def _read_topic_offsets(reader: Reader, named: bool) -> TopicOffsets:
    topic = reader.text()
    partitions = []
    for _ in range(reader.count(PARTITIONS_MAX, _PARTITION.size + 2)):
        partition, offset = reader.number(I32), reader.number(I64)
        leader_epoch = reader.number(I32)
        metadata, uid = reader.text(), reader.number(U32) if named else ANY_TOPIC
        partitions.append(PartitionOffset(partition, offset, leader_epoch, metadata, uid))
    return TopicOffsets(topic, tuple(partitions))


def _write_bindings(writer: Writer, command: BindOffsets) -> None:
    writer.text(command.group)
    writer.pack(U32, len(command.topics))
    for topic, partitions in command.topics:
        writer.text(topic)
        writer.pack(U32, len(partitions))
        for one in partitions:
            writer.pack(_TIE, *one)


def _read_bindings(reader: Reader) -> BindOffsets:
    group, topics = ConsumerGroupId(reader.text()), []
    for _ in range(reader.count(TOPICS_MAX, 6)):
        topic = reader.text()
        count = reader.count(PARTITIONS_MAX, _TIE.size)
        ties = [
            OffsetBinding(reader.number(I32), reader.number(U32), reader.number(U32))
            for _ in range(count)
        ]
        topics.append(TopicBindings(topic, tuple(ties)))
    return BindOffsets(group, tuple(topics))


def _write_drop_offsets(writer: Writer, command: DropOffsets) -> None:
    writer.text(command.group)
    writer.pack(U32, len(command.topics))
    for topic, partitions in command.topics:
        writer.text(topic)
        writer.pack(U32, len(partitions))
        for partition in partitions:
            writer.pack(I32, partition)


def _read_drop_offsets(reader: Reader) -> DropOffsets:
    group, topics = ConsumerGroupId(reader.text()), []
    for _ in range(reader.count(TOPICS_MAX, 6)):
        topic = reader.text()
        count = reader.count(PARTITIONS_MAX, I32.size)
        topics.append(TopicPartitions(topic, tuple([reader.number(I32) for _ in range(count)])))
    return DropOffsets(group, tuple(topics))


def _read_drop_group(reader: Reader) -> DropGroup:
    return DropGroup(ConsumerGroupId(reader.text()))


def _read_sweep(reader: Reader) -> Sweep:
    wall_ms, retention_ms, idle_ms = (reader.number(I64) for _ in range(3))
    if retention_ms < 0 or idle_ms < 0:
        raise CommandError("a negative retention")
    return Sweep(wall_ms, retention_ms, idle_ms)


_READERS: Final[Mapping[int, Callable[[Reader], Command]]] = {
    CommandKind.GROUP_SNAPSHOT: read_snapshot,
    CommandKind.COMMIT_OFFSETS: _read_commit,
    CommandKind.DROP_GROUP: _read_drop_group,
    CommandKind.DROP_OFFSETS: _read_drop_offsets,
    CommandKind.SWEEP: _read_sweep,
    CommandKind.ASSIGNED_SNAPSHOT: read_assigned,
    CommandKind.COMMIT_OFFSETS_OF: _read_commit_of,
    CommandKind.TIE_OFFSETS: _read_bindings,
    CommandKind.ASSIGNED_SNAPSHOT_SINCE: read_assigned_since,
    CommandKind.COMMIT_OFFSETS_HELD: _read_commit_held,
    CommandKind.TIME_LEFT: read_time_left,
    CommandKind.ASSIGNED_SNAPSHOT_MIXED: read_mixed,
    CommandKind.GROUP_SNAPSHOT_CONVERTING: _read_converting,
}
