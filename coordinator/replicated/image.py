"""The bytes of a checkpoint of the replicated groups: a head, then group after group.

They come in pieces, so that making, writing and sending a checkpoint holds nothing up: a piece ends
when it has taken long enough, even in the middle of a group's offsets. The pieces joined together
are the checkpoint; the cuts have no meaning.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import attrs

from coordinator.limits import IMAGE_BYTES_MAX, OFFSETS_PER_GROUP_MAX
from coordinator.replicated.assigned_codec import (
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
from coordinator.replicated.commands import GroupSnapshot, read_snapshot, write_snapshot
from coordinator.replicated.waits import WaitFor, read_waits, write_waits
from coordinator.timers import Wait
from coordinator.topics import ANY_TOPIC

VERSION: Final = 6
"""2 added groups with broker-side assignment (KIP-848); 3 is one sequence of bytes, cut anywhere; 4
has the uid of each offset's partition; 5 has the remaining time of waits, and since when members of
groups with broker-side assignment hold their partitions; 6 has such groups with classic members
among them. The newest is written."""
OLDEST_READ: Final = 3
UIDS_SINCE: Final = 4
WAITS_SINCE: Final = 5
MIXED_SINCE: Final = 6
SINCE: Final = 2
"""A group with broker-side assignment, with the epochs of assignments; 1 is one without."""
MIXED: Final = 3
"""One with classic members."""
NEVER_EMPTY: Final = -(1 << 63)
"""Stands for "not known to be empty" where a wall clock's milliseconds are written."""
PIECE_WORK: Final = 2_000
"""Offsets in one piece: a few milliseconds. A member costs about ten offsets, a group five."""
MEMBER_WORK: Final = 10
GROUP_WORK: Final = 5


@attrs.frozen
class Head:
    revision: int
    groups_count: int


class OffsetImage(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_wall_ms: int
    uid: int = ANY_TOPIC


@attrs.frozen
class GroupImage:
    """`snapshot.prev_revision` holds the group's own revision; `offsets` are in order."""

    snapshot: GroupSnapshot
    empty_since_wall_ms: int | None
    offsets_count: int
    offsets: Iterable[OffsetImage]
    assigned: AssignedSnapshot | None = None
    waits: tuple[tuple[WaitFor, Wait], ...] = ()


_OFFSET: Final = struct.Struct(">iqiq")


def encode(head: Head, groups: Iterable[GroupImage]) -> Iterator[bytes]:
    """The pieces of a checkpoint; each group is read when its turn comes."""
    writer = Writer(bytes_max=IMAGE_BYTES_MAX)
    writer.pack(U8, VERSION)
    writer.pack(I64, head.revision)
    writer.pack(U32, head.groups_count)
    work = 0
    for group in groups:
        write_snapshot(writer, group.snapshot)
        since = group.empty_since_wall_ms
        writer.pack(I64, NEVER_EMPTY if since is None else since)
        writer.pack(U8, _kind(group.assigned))
        if group.assigned is not None:
            plain = is_plain(group.assigned)
            (write_assigned if plain else write_mixed)(writer, group.assigned)
            work += sum(
                MEMBER_WORK + len(one.assigned) + len(one.target) for one in group.assigned.members
            )
        write_waits(writer, group.waits)
        work += GROUP_WORK + len(group.waits) + MEMBER_WORK * len(group.snapshot.members)
        writer.pack(U32, group.offsets_count)
        for one in group.offsets:
            if work >= PIECE_WORK:
                yield writer.finish()
                writer, work = Writer(bytes_max=IMAGE_BYTES_MAX), 0
            writer.text(one.topic)
            writer.pack(_OFFSET, one.partition, one.offset, one.leader_epoch, one.commit_wall_ms)
            writer.text(one.metadata)
            writer.pack(U32, one.uid)
            work += 1
        if work >= PIECE_WORK:
            yield writer.finish()
            writer, work = Writer(bytes_max=IMAGE_BYTES_MAX), 0
    yield writer.finish()


def _kind(assigned: AssignedSnapshot | None) -> int:
    if assigned is None:
        return 0
    if not is_plain(assigned):
        return MIXED
    return SINCE if has_since(assigned) else 1


def decode_all(pieces: Sequence[Buffer]) -> tuple[Head, list[GroupImage]]:
    """Read a whole checkpoint.

    Raises:
        CommandError: if the pieces are not exactly one checkpoint.
    """
    data = b"".join(pieces)
    if not data:
        raise CommandError("no head")
    reader = Reader(data, bytes_max=len(data))
    version = reader.number(U8)
    if not OLDEST_READ <= version <= VERSION:
        raise CommandError(f"a checkpoint of version {version}, known is {VERSION}")
    head = Head(reader.number(I64), reader.number(U32))
    images = [_decode_group(reader, version) for _ in range(head.groups_count)]
    reader.finish()
    names = [one.snapshot.group for one in images]
    if names != sorted(set(names)):
        raise CommandError("groups twice or out of order")
    return head, images


_READ_ASSIGNED: Final = {1: read_assigned, SINCE: read_assigned_since, MIXED: read_mixed}


def _decode_group(reader: Reader, version: int) -> GroupImage:
    snapshot = read_snapshot(reader)
    since = reader.number(I64)
    known = reader.number(U8)
    newest = MIXED if version >= MIXED_SINCE else SINCE if version >= WAITS_SINCE else 1
    if known > newest:
        raise CommandError(f"unknown kind of group {known}")
    assigned = _READ_ASSIGNED[known](reader) if known else None
    waits = read_waits(reader) if version >= WAITS_SINCE else ()
    offsets = []
    for _ in range(reader.count(OFFSETS_PER_GROUP_MAX, _OFFSET.size + 4)):
        topic, partition, offset = reader.text(), reader.number(I32), reader.number(I64)
        epoch, wall_ms = reader.number(I32), reader.number(I64)
        metadata = reader.text()
        uid = reader.number(U32) if version >= UIDS_SINCE else ANY_TOPIC
        offsets.append(OffsetImage(topic, partition, offset, epoch, metadata, wall_ms, uid))
    places = [(one.topic, one.partition) for one in offsets]
    if places != sorted(set(places)):
        raise CommandError("offsets twice or out of order")
    empty_since = None if since == NEVER_EMPTY else since
    return GroupImage(snapshot, empty_since, len(offsets), tuple(offsets), assigned, waits)
