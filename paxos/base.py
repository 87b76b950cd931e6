"""The base: what a replica needs to know of the slots that its log no longer has.

A checkpoint holds the state of a group at a slot, and this is the replica's own part of it: the
hash of the chain up to there, the members and the lease, as the entries up to there have made them.
How a replica goes on from one: paxos/changes/snapshot.py.
"""

import struct
from typing import Final

import attrs

from paxos.entry import CONFIG_MEMBERS_MAX
from paxos.ids import Epoch, Incarnation, NodeId, Slot

VERSION: Final = 1
_HEAD: Final = struct.Struct(">BQIQH")
_LEASE: Final = struct.Struct(">iqQQQqQ")


class BaseError(ValueError):
    """The bytes are no base: a peer's lie or a damaged file, never our own bug."""


@attrs.frozen(kw_only=True)
class Base:
    """The replicated part of a replica after `slot`; equal on every member at the same slot.

    The fields from `holder` on are those of `paxos.lease.Lease`.
    """

    slot: Slot
    chain: int
    members: tuple[NodeId, ...]
    configured: Slot
    """Slot of the Config that made them the members; 0 if they are the first ones."""
    holder: NodeId
    incarnation: Incarnation
    ver: Slot
    since: Slot
    epoch: Epoch
    expires_wall_ns: int
    renewals: int


def encode(base: Base) -> bytes:
    count = len(base.members)
    return b"".join(
        (
            _HEAD.pack(VERSION, base.slot, base.chain, base.configured, count),
            struct.pack(f">{count}i", *base.members),
            _LEASE.pack(
                base.holder,
                base.incarnation,
                base.ver,
                base.since,
                base.epoch,
                base.expires_wall_ns,
                base.renewals,
            ),
        )
    )


def decode(data: bytes | memoryview) -> Base:
    """Read a base back.

    Raises:
        BaseError: if the bytes are not exactly one, or contradict themselves.
    """
    try:
        version, slot, chain, configured, count = _HEAD.unpack_from(data)
        if version != VERSION:
            raise BaseError(f"a base of version {version}, {VERSION} is known")
        if len(data) != _HEAD.size + 4 * count + _LEASE.size:
            raise BaseError(f"a base of {count} members in {len(data)} bytes")
        members = struct.unpack_from(f">{count}i", data, _HEAD.size)
        lease = _LEASE.unpack_from(data, _HEAD.size + 4 * count)
    except struct.error as error:
        raise BaseError(f"a base is cut short: {len(data)} bytes") from error
    holder, incarnation, ver, since, epoch, expires_wall_ns, renewals = lease
    if not 0 < slot < 1 << 62 or configured > slot or not since <= ver <= slot:
        raise BaseError(f"a base of slot {slot}: members of {configured}, lease of {ver}, {since}")
    if not 0 < count <= CONFIG_MEMBERS_MAX or list(members) != sorted(set(members)):
        raise BaseError(f"a base with members {members}")
    return Base(
        slot=Slot(slot),
        chain=chain,
        members=tuple(NodeId(member) for member in members),
        configured=Slot(configured),
        holder=NodeId(holder),
        incarnation=Incarnation(incarnation),
        ver=Slot(ver),
        since=Slot(since),
        epoch=Epoch(epoch),
        expires_wall_ns=expires_wall_ns,
        renewals=renewals,
    )
