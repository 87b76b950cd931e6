"""What is chosen in a slot: an opaque batch of commands, or a control entry the core understands.

The proposer encodes an entry once, as a list of buffers. Those very buffers go into the Accept
frames and the write-ahead log; nobody joins or re-encodes them.
"""

import struct
from enum import IntEnum
from typing import Final, TypeAlias

import attrs

from paxos.ids import ROUND_MAX, Ballot, Incarnation, NodeId, Slot

Buffer: TypeAlias = bytes | bytearray | memoryview

ENTRY_BYTES_MAX: Final = 24 * 1024 * 1024
"""Larger entries are refused on decode: a frame never holds more than one produce request."""


class EntryError(ValueError):
    """The bytes are not an entry: a peer's lie or a damaged record, never our own bug."""


class EntryKind(IntEnum):
    NOOP = 0
    BATCH = 1
    BE_MASTER = 2
    STEAL = 3
    CONFIG = 4


@attrs.frozen
class BeMaster:
    """Take or renew the lease: valid iff `prev_ver` is the lease's version when applied (R8)."""

    node: NodeId
    incarnation: Incarnation
    prev_ver: Slot
    expires_wall_ns: int


@attrs.frozen
class Steal:
    """Expire `source`'s lease, install `target`, give it `ballot` for all later slots (R4-R6).

    With BALLOT_ZERO it gives no ballot and installs nobody: see `Lease.apply_steal`.
    """

    source: NodeId
    target: NodeId
    target_incarnation: Incarnation
    ballot: Ballot
    prev_ver: Slot
    expires_wall_ns: int


@attrs.frozen
class Config:
    """The group's members from the next slot on; it closes the ballot it is chosen in (R10)."""

    members: tuple[NodeId, ...]


Control: TypeAlias = BeMaster | Steal | Config


@attrs.define(eq=False)
class Entry:
    """`chunks` is the whole encoding, kind byte first; `size` the sum of their lengths in bytes."""

    kind: EntryKind
    chunks: tuple[Buffer, ...]
    size: int
    control: Control | None = None

    def payload(self) -> tuple[Buffer, ...]:
        """The opaque commands of a BATCH (also those riding on a STEAL); empty for other kinds."""
        if self.kind == EntryKind.BATCH or self.kind == EntryKind.STEAL:
            return self.chunks[1:]
        return ()

    def same_as(self, other: "Entry") -> bool:
        """Whether both encode the same value, byte for byte."""
        return self is other or (
            self.size == other.size and b"".join(self.chunks) == b"".join(other.chunks)
        )


_BE_MASTER: Final = struct.Struct(">BiqQq")
_STEAL: Final = struct.Struct(">BiiqqiQq")
_CONFIG: Final = struct.Struct(">BH")
_BATCH_PREFIX: Final = bytes([EntryKind.BATCH])
CONFIG_MEMBERS_MAX: Final = 64

NOOP: Final = Entry(EntryKind.NOOP, (bytes([EntryKind.NOOP]),), 1)


def batch(chunks: tuple[Buffer, ...]) -> Entry:
    """An entry of opaque commands. It keeps the buffers without a copy: do not change them."""
    return Entry(EntryKind.BATCH, (_BATCH_PREFIX, *chunks), 1 + sum(map(len, chunks)))


def be_master(value: BeMaster) -> Entry:
    head = _BE_MASTER.pack(
        EntryKind.BE_MASTER, value.node, value.incarnation, value.prev_ver, value.expires_wall_ns
    )
    return Entry(EntryKind.BE_MASTER, (head,), len(head), value)


def steal(value: Steal, chunks: tuple[Buffer, ...] = ()) -> Entry:
    """A Steal; `chunks` are commands to apply in this slot before the lease changes."""
    head = _STEAL.pack(
        EntryKind.STEAL,
        value.source,
        value.target,
        value.target_incarnation,
        value.ballot.round,
        value.ballot.node,
        value.prev_ver,
        value.expires_wall_ns,
    )
    return Entry(EntryKind.STEAL, (head, *chunks), len(head) + sum(map(len, chunks)), value)


def config(value: Config) -> Entry:
    if not 0 < len(value.members) <= CONFIG_MEMBERS_MAX or len(set(value.members)) != len(
        value.members
    ):
        raise ValueError(f"a group has 1 to {CONFIG_MEMBERS_MAX} distinct members: {value.members}")
    head = _CONFIG.pack(EntryKind.CONFIG, len(value.members)) + struct.pack(
        f">{len(value.members)}i", *value.members
    )
    return Entry(EntryKind.CONFIG, (head,), len(head), value)


def decode(data: memoryview) -> Entry:
    """Read an entry back from its encoding, without copying a batch.

    Raises:
        EntryError: if the bytes are not exactly one entry.
    """
    size = len(data)
    if not 0 < size <= ENTRY_BYTES_MAX:
        raise EntryError(f"an entry of {size} bytes: expected 1 to {ENTRY_BYTES_MAX}")
    kind = data[0]
    if kind == EntryKind.BATCH:
        return Entry(EntryKind.BATCH, (_BATCH_PREFIX, data[1:]), size)
    try:
        return _decode_control(kind, data)
    except struct.error as error:
        raise EntryError(f"an entry of kind {kind} is cut short: {size} bytes") from error


def _decode_control(kind: int, data: memoryview) -> Entry:
    size = len(data)
    if kind == EntryKind.NOOP and size == 1:
        return NOOP
    if kind == EntryKind.BE_MASTER and size == _BE_MASTER.size:
        _, node, incarnation, prev_ver, expires = _BE_MASTER.unpack(data)
        value = BeMaster(NodeId(node), Incarnation(incarnation), Slot(prev_ver), expires)
        return Entry(EntryKind.BE_MASTER, (bytes(data),), size, value)
    if kind == EntryKind.STEAL:
        _, source, target, incarnation, round_, owner, prev_ver, expires = _STEAL.unpack_from(data)
        if not 0 <= round_ < ROUND_MAX:
            raise EntryError(f"a Steal of round {round_}")
        stolen = Steal(
            NodeId(source),
            NodeId(target),
            Incarnation(incarnation),
            Ballot(round_, NodeId(owner)),
            Slot(prev_ver),
            expires,
        )
        head, rest = bytes(data[: _STEAL.size]), data[_STEAL.size :]
        return Entry(EntryKind.STEAL, (head, rest) if len(rest) else (head,), size, stolen)
    if kind == EntryKind.CONFIG:
        _, count = _CONFIG.unpack_from(data)
        if 0 < count <= CONFIG_MEMBERS_MAX and size == _CONFIG.size + 4 * count:
            members = struct.unpack_from(f">{count}i", data, _CONFIG.size)
            if len(set(members)) == count:
                new = Config(tuple(NodeId(member) for member in members))
                return Entry(EntryKind.CONFIG, (bytes(data),), size, new)
    raise EntryError(f"an entry of kind {kind} and {size} bytes is malformed")
