"""Commands inside an entry: length, kind, body, one after the other (E2: an entry carries many).

This is the encoding of an entry's payload, version 1. A command lies entirely in one buffer, or its
head (everything before the record batch) is one buffer and the batch the next: that is how a
produced batch travels from the client's frame into the log without a copy.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from paxos.entry import Buffer

SMALL_BYTES: Final = 8 * 1024
"""Smaller commands are joined into one buffer: copying is cheaper than a longer writev."""

HEAD: Final = struct.Struct(">IB")
RECORDS_HEAD: Final = struct.Struct(">IBI")
UID_BYTES: Final = 4
RECORDS_RESULT: Final = struct.Struct(">hqq")
DELETE_RECORDS_RESULT: Final = struct.Struct(">hq")
"""Error code and the partition's first offset."""
_DELETE_RECORDS: Final = struct.Struct(">Iq")
_ADMIT: Final = struct.Struct(">Iqhi")
ADMIT_RESULT: Final = struct.Struct(">h")
_FENCE: Final = struct.Struct(">qB")
FENCED_KIND_AT: Final = 8
"""Where the body of a FENCED command has the kind of what is fenced."""
EVERYTHING: Final = -1


class CommandKind(IntEnum):
    RECORDS = 1
    """A record batch for one partition: partition uid, then the batch as the client sent it."""
    CONSUMER_GROUP = 2
    """A command of the consumer group coordinator."""
    REGISTRY = 3
    """A command of the registry; only in the registry's Paxos group."""
    DELETE_RECORDS = 4
    """Partition uid, then the offset below which records go (KIP-107)."""
    FENCED = 5
    """The epoch of the mastership that decided on a command, and its kind and body: refused in any
    other epoch."""
    ADMIT = 6
    """Partition uid, and id, epoch and first sequence number of a producer unknown to the
    partition: it begins there (`broker.producers.unknown_producers`)."""


_RECORDS: Final = int(CommandKind.RECORDS)
"""Looked up once: access to an enum's member costs as much as a slice."""
_NONE: Final = (0, 0, 0)

FENCEABLE: Final = frozenset(
    {CommandKind.CONSUMER_GROUP, CommandKind.DELETE_RECORDS, CommandKind.ADMIT}
)
"""Kinds that a mastership decides on its own; a registry command says itself what it was based
on."""

TRIMS: Final = frozenset({CommandKind.DELETE_RECORDS})
"""Commands that free space, now or later: accepted even when the disk is nearly full."""


class CommandError(ValueError):
    """An entry's payload is not a sequence of commands: a peer's lie or a damaged record."""


class Command(NamedTuple):
    """One parsed command; `at` is the position of `body`, counted from the first payload byte."""

    kind: int
    uid: int
    body: memoryview
    at: int


def records(uid: int, batch: memoryview) -> tuple[Buffer, ...]:
    """A RECORDS command. A large batch is referenced, not copied: its memory must not change."""
    size = len(batch)
    head = RECORDS_HEAD.pack(4 + size, CommandKind.RECORDS, uid)
    if size <= SMALL_BYTES:
        return (head + batch,)
    return (head, batch)


def trims(chunk: Buffer) -> bool:
    """Whether the command that begins with this buffer is one of TRIMS, fenced or not."""
    kind_at = HEAD.size - 1 + (_FENCE.size if is_fenced(chunk) else 0)
    return len(chunk) > kind_at and chunk[kind_at] in TRIMS


def fenced(epoch: int, command: tuple[Buffer, ...]) -> tuple[Buffer, ...]:
    """The command, to be applied under this epoch of the lease or not at all.

    It may have been delayed anywhere (a queue, a link, a slot that a later master finds): meanwhile
    another master has answered clients, and it would undo what they were told (F1).
    """
    chunk = b"".join(command)
    kind, body = chunk[HEAD.size - 1], chunk[HEAD.size :]
    assert kind in FENCEABLE
    head = HEAD.pack(_FENCE.size + len(body), CommandKind.FENCED)
    return (head + _FENCE.pack(epoch, kind) + body,)


def is_fenced(chunk: Buffer) -> bool:
    """Whether the command that begins with this buffer is valid for one mastership only."""
    return len(chunk) >= HEAD.size and chunk[HEAD.size - 1] == CommandKind.FENCED


def delete_records(uid: int, before: int) -> tuple[Buffer, ...]:
    """A DELETE_RECORDS command. EVERYTHING (all there is when it is applied) occurs only in old
    logs: nobody can decide on records that come after the decision."""
    body = _DELETE_RECORDS.pack(uid, before)
    return (HEAD.pack(len(body), CommandKind.DELETE_RECORDS) + body,)


def parse_delete_records(body: memoryview) -> tuple[int, int]:
    """Partition uid and offset.

    Raises:
        CommandError: if these are not the bytes of such a command.
    """
    if len(body) != _DELETE_RECORDS.size:
        raise CommandError(f"a DELETE_RECORDS command of {len(body)} bytes")
    uid, before = _DELETE_RECORDS.unpack(body)
    return uid, before


def parse_fenced(command: "Command") -> tuple[int, "Command"]:
    """The epoch that a FENCED command was decided in, and the command.

    Raises:
        CommandError: if these are not the bytes of such a command.
    """
    body = command.body
    if len(body) < _FENCE.size:
        raise CommandError(f"a FENCED command of {len(body)} bytes")
    epoch, kind = _FENCE.unpack_from(body)
    if kind not in FENCEABLE:
        raise CommandError(f"a FENCED command of kind {kind}")
    return epoch, Command(kind, 0, body[_FENCE.size :], command.at + _FENCE.size)


def opaque(kind: CommandKind, body: bytes) -> tuple[Buffer, ...]:
    """A CONSUMER_GROUP or REGISTRY command."""
    return (HEAD.pack(len(body), kind) + body,)


def admit(uid: int, producer_id: int, epoch: int, first: int) -> tuple[Buffer, ...]:
    """An ADMIT command, to be fenced."""
    body = _ADMIT.pack(uid, producer_id, epoch, first)
    return (HEAD.pack(len(body), CommandKind.ADMIT) + body,)


def parse_admit(body: memoryview) -> tuple[int, int, int, int]:
    """Partition uid, producer id, its epoch, and the sequence number it begins with.

    Raises:
        CommandError: if these are not the bytes of such a command.
    """
    if len(body) != _ADMIT.size:
        raise CommandError(f"an ADMIT command of {len(body)} bytes")
    uid, producer_id, epoch, first = _ADMIT.unpack(body)
    if producer_id < 0 or epoch < 0 or first <= 0:
        raise CommandError(f"producer {producer_id}, epoch {epoch}, begins at {first}")
    return uid, producer_id, epoch, first


def alone(payload: Buffer) -> bool:
    """Whether an entry's payload consists of a single command."""
    size = len(payload)
    return size < HEAD.size or HEAD.unpack_from(payload)[0] + HEAD.size >= size


def parse(chunks: tuple[Buffer, ...]) -> list[Command]:
    """The commands of an entry's payload, in order, as views into `chunks`.

    Every replica does this for every entry: one `unpack` and one slice per command.

    Raises:
        CommandError: if the payload is malformed.
    """
    found: list[Command] = []
    base = 0
    rest = iter(chunks)
    for buffer in rest:
        chunk = memoryview(buffer)
        at, end = 0, len(chunk)
        while at < end:
            left = end - at - RECORDS_HEAD.size
            size, kind, uid = RECORDS_HEAD.unpack_from(chunk, at) if left >= 0 else _NONE
            if kind == _RECORDS and UID_BYTES <= size <= left + UID_BYTES:  # nearly always
                body, at = at + RECORDS_HEAD.size, at + HEAD.size + size
                command = (kind, uid, chunk[body:at], base + body)
                found.append(tuple.__new__(Command, command))  # half the time of Command()
                continue
            size, kind, uid, body = _head(chunk, at, end)
            if size <= end - body:
                at = body + size
                command = (kind, uid, chunk[body:at], base + body)
            elif body == end and (large := next(rest, None)) is not None and len(large) == size:
                base += end  # the batch is the next buffer
                at = end = size
                command = (kind, uid, memoryview(large), base)
            else:
                raise CommandError(f"a command claims {size} bytes, {end - body} are left")
            found.append(Command(*command))
        base += end
    return found


def _head(chunk: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """Size of the body, kind and partition uid of the command at `at`, and where its body begins.

    Raises:
        CommandError: if the command is cut short.
    """
    if end - at >= RECORDS_HEAD.size:
        size, kind, uid = RECORDS_HEAD.unpack_from(chunk, at)
        if kind != CommandKind.RECORDS:
            return size, kind, 0, at + HEAD.size
        if size >= UID_BYTES:
            return size - UID_BYTES, kind, uid, at + RECORDS_HEAD.size
    elif end - at >= HEAD.size:
        size, kind = HEAD.unpack_from(chunk, at)
        if kind != CommandKind.RECORDS:
            return size, kind, 0, at + HEAD.size
    else:
        raise CommandError(f"{end - at} stray bytes in an entry")
    raise CommandError("a RECORDS command is cut short")
