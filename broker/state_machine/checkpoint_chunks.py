"""What a checkpoint is made of: chunks, each one part of a Paxos group's state at a slot of its
own.

A checkpoint is *fuzzy*: its parts are written one after the other while entries are still being
applied, so that no encoding blocks the loop, however many partitions there are. Each part knows the
slot it was made at, and skips what it already contains while the log is replayed from the base,
which is no later than any of them (`broker.state_machine.machine`).

    LEASE            first of all: no batch may be applied again under a lease that came later
    REGISTRY         in the registry's group: its pieces, all of one moment
    CONSUMER_GROUPS  pieces, all of one moment
    PARTITION        for each partition that has ever had anything in it
    INDEX            where the batches lie in this node's log; means nothing to another node
    END              how many there were

REPLICA (what Paxos needs: `paxos.base`) and COLD (what this node knows of its cold segments) are
made elsewhere and skipped here. Each kind has a version of its own, so that a node of the next
release can say exactly what it cannot read.
"""

import struct
from enum import IntEnum
from typing import Final, NamedTuple

from paxos import base as bases
from paxos.base import Base
from paxos.entry import Buffer
from paxos.ids import Epoch, Incarnation, NodeId, Slot
from paxos.lease import Lease


class ImageError(ValueError):
    """These bytes are no part of a checkpoint, or contradict the others: damage, or a lie."""


class ChunkKind(IntEnum):
    REPLICA = 1
    CONSUMER_GROUPS = 2
    PARTITION = 3
    INDEX = 4
    COLD = 5
    REGISTRY = 6
    LEASE = 7
    END = 8


VERSIONS: Final = {
    ChunkKind.REPLICA: 1,
    ChunkKind.CONSUMER_GROUPS: 1,
    ChunkKind.PARTITION: 2,
    ChunkKind.INDEX: 1,
    ChunkKind.COLD: 1,
    ChunkKind.REGISTRY: 1,
    ChunkKind.LEASE: 1,
    ChunkKind.END: 1,
}
"""Consumer groups and the registry also carry a version of their own. PARTITION 2 has the positions
of write tokens at its end."""
_SINCE: Final = {(ChunkKind.PARTITION, 1): bytes(4)}
"""By kind and older version: what a present body has at its end that the older one lacks."""
PORTABLE: Final = frozenset(ChunkKind) - {ChunkKind.INDEX, ChunkKind.COLD}
"""What another node can use."""
SLOT_MAX: Final = 2**63 - 1

_HEAD: Final = struct.Struct(">BBQQ")
_END: Final = struct.Struct(">I")
_LEASE: Final = struct.Struct(">iqqqqqq")


class Chunk(NamedTuple):
    """`key`: a partition's uid, or the number of a piece; for END, the number of PORTABLE
    chunks."""

    kind: ChunkKind
    key: int
    slot: Slot
    body: Buffer


def encode_chunk(chunk: Chunk) -> bytes:
    head = _HEAD.pack(chunk.kind, VERSIONS[chunk.kind], chunk.key, chunk.slot)
    return head + chunk.body


def decode_chunk(data: Buffer) -> Chunk:
    """A chunk, its body a view into `data`; an older version is converted to the present one.

    Raises:
        ImageError: if it is no chunk, or none that this release can read.
    """
    view = memoryview(data)
    if len(view) < _HEAD.size:
        raise ImageError(f"a chunk of {len(view)} bytes")
    number, version, key, slot = _HEAD.unpack_from(view)
    try:
        kind = ChunkKind(number)
    except ValueError:
        raise ImageError(f"a chunk of kind {number}: made by a later release?") from None
    since = _SINCE.get((kind, version))
    if since is None and version != VERSIONS[kind]:
        raise ImageError(f"{kind.name} of version {version}, known is {VERSIONS[kind]}")
    if slot > SLOT_MAX:
        raise ImageError(f"{kind.name} of slot {slot}")
    body = view[_HEAD.size :]
    return Chunk(kind, key, Slot(slot), body if since is None else bytes(body) + since)


def encode_lease(lease: Lease) -> bytes:
    """The part that follows from the log alone: no deadline by a node's own clock."""
    return _LEASE.pack(
        lease.holder,
        lease.incarnation,
        lease.ver,
        lease.since,
        lease.epoch,
        lease.expires_wall_ns,
        lease.renewals,
    )


def decode_lease(body: Buffer) -> Lease:
    """
    Raises:
        ImageError: if these are not the bytes of a lease.
    """
    if len(body) != _LEASE.size:
        raise ImageError(f"a lease of {len(body)} bytes")
    holder, incarnation, ver, since, epoch, expires, renewals = _LEASE.unpack(body)
    if min(incarnation, since, epoch, renewals) < 0 or not since <= ver:
        raise ImageError(f"a lease of epoch {epoch} since {since}, version {ver}")
    return Lease(
        holder=NodeId(holder),
        incarnation=Incarnation(incarnation),
        ver=Slot(ver),
        since=Slot(since),
        epoch=Epoch(epoch),
        expires_wall_ns=expires,
        renewals=renewals,
    )


def encode_end(indexes: int) -> bytes:
    """INDEX chunks are counted separately, because only the node that made them has them."""
    return _END.pack(indexes)


def decode_end(body: Buffer) -> int:
    """
    Raises:
        ImageError: if these are not the bytes of an end.
    """
    if len(body) != _END.size:
        raise ImageError(f"an end of {len(body)} bytes")
    indexes: int = _END.unpack(body)[0]
    return indexes


class Bytes:
    """A cursor over a body that refuses to run past its end."""

    def __init__(self, data: Buffer) -> None:
        self._view = memoryview(data)
        self._at = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        end = self._at + layout.size
        if end > len(self._view):
            raise ImageError(f"cut short at byte {self._at} of {len(self._view)}")
        values = layout.unpack_from(self._view, self._at)
        self._at = end
        return values

    def take(self, size: int) -> memoryview:
        end = self._at + size
        if size < 0 or end > len(self._view):
            raise ImageError(f"cut short: {size} bytes wanted at {self._at} of {len(self._view)}")
        piece = self._view[self._at : end]
        self._at = end
        return piece

    def finish(self) -> None:
        if self._at != len(self._view):
            raise ImageError(f"{len(self._view) - self._at} bytes too many")


def base_of(chunks: list[Chunk]) -> Base:
    """The replica's part of a state, which comes first.

    Raises:
        ImageError, BaseError: if it is missing or malformed.
    """
    if not chunks or chunks[0].kind != ChunkKind.REPLICA:
        raise ImageError("a state without a base")
    base = bases.decode(memoryview(chunks[0].body))
    if base.slot != chunks[0].slot:
        raise ImageError(f"a base of slot {base.slot} in a chunk of slot {chunks[0].slot}")
    return base
