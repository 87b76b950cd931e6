"""The bytes of a checkpoint of the replicated groups: a head, then one chunk for each group.

One chunk per group, so that a checkpoint can be written and sent piece by piece.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

import attrs

from coordinator.assigned_codec import read_assigned, write_assigned
from coordinator.assigned_group import AssignedSnapshot
from coordinator.codec import I32, I64, U8, U32, Buffer, CommandError, Reader, Writer
from coordinator.commands import GroupSnapshot, read_snapshot, write_snapshot
from coordinator.limits import IMAGE_BYTES_MAX, OFFSETS_PER_GROUP_MAX

VERSION: Final = 2
"""2 added the groups that the broker shares out (KIP-848)."""
NEVER_EMPTY: Final = -(1 << 63)
"""Stands for "not known to be empty" where a wall clock's milliseconds are written."""


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


@attrs.frozen
class GroupImage:
    """`snapshot.prev_revision` holds the group's revision itself."""

    snapshot: GroupSnapshot
    empty_since_wall_ms: int | None
    offsets: tuple[OffsetImage, ...]
    assigned: AssignedSnapshot | None = None


_OFFSET: Final = struct.Struct(">iqiq")


def encode_head(head: Head) -> bytes:
    writer = Writer()
    writer.pack(U8, VERSION)
    writer.pack(I64, head.revision)
    writer.pack(U32, head.groups_count)
    return writer.finish()


def encode_group(group: GroupImage) -> bytes:
    writer = Writer(bytes_max=IMAGE_BYTES_MAX)
    write_snapshot(writer, group.snapshot)
    since = group.empty_since_wall_ms
    writer.pack(I64, NEVER_EMPTY if since is None else since)
    writer.pack(U32, len(group.offsets))
    for one in group.offsets:
        writer.text(one.topic)
        writer.pack(_OFFSET, one.partition, one.offset, one.leader_epoch, one.commit_wall_ms)
        writer.text(one.metadata)
    writer.pack(U8, int(group.assigned is not None))
    if group.assigned is not None:
        write_assigned(writer, group.assigned)
    return writer.finish()


def decode_all(chunks: Sequence[Buffer]) -> tuple[Head, list[GroupImage]]:
    """Read a whole checkpoint.

    Raises:
        CommandError: if the chunks are not exactly one.
    """
    if not chunks:
        raise CommandError("no head")
    reader = Reader(chunks[0])
    version = reader.number(U8)
    if version != VERSION:
        raise CommandError(f"a checkpoint of version {version}, known is {VERSION}")
    head = Head(reader.number(I64), reader.number(U32))
    reader.finish()
    images = [_decode_group(chunk) for chunk in chunks[1:]]
    names = [one.snapshot.group for one in images]
    if len(images) != head.groups_count or names != sorted(set(names)):
        raise CommandError(f"{len(images)} groups, {head.groups_count} announced, or out of order")
    return head, images


def _decode_group(chunk: Buffer) -> GroupImage:
    reader = Reader(chunk, bytes_max=IMAGE_BYTES_MAX)
    snapshot = read_snapshot(reader)
    since = reader.number(I64)
    offsets = []
    for _ in range(reader.count(OFFSETS_PER_GROUP_MAX, _OFFSET.size + 4)):
        topic, partition, offset = reader.text(), reader.number(I32), reader.number(I64)
        epoch, wall_ms = reader.number(I32), reader.number(I64)
        offsets.append(OffsetImage(topic, partition, offset, epoch, reader.text(), wall_ms))
    assigned = read_assigned(reader) if reader.number(U8) else None
    reader.finish()
    places = [(one.topic, one.partition) for one in offsets]
    if places != sorted(set(places)):
        raise CommandError("offsets twice or out of order")
    empty_since = None if since == NEVER_EMPTY else since
    return GroupImage(snapshot, empty_since, tuple(offsets), assigned)
