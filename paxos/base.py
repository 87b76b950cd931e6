"""The base: what a replica needs to know of the slots that its log no longer has.

A checkpoint holds the state of a group at a slot, and this is the replica's own part of it: the
hash of the chain up to there, the members and the lease, as the entries up to there have made them.
A replica starts from one of its own disk (`Recovered.base`), or takes over one that a peer has sent
(`install`), when it is behind and nobody has the log from there on any more.

A base proves that every slot up to its own is chosen; it says nothing about ballots. So what it
covers is treated as applied: votes there are forgotten (docs/adr/0003), a suspension whose slot it
covers ends (R7: the Steal's fate is in the lease). But nothing in it is applied *live*: no ballot
is taken over (R5, R6), and nobody acts on a lease that came that way, its own included, before it
has renewed it (R11).
"""

import struct
from typing import TYPE_CHECKING, Final

import attrs

from paxos import testimony
from paxos.chain import ChainHash
from paxos.entry import CONFIG_MEMBERS_MAX
from paxos.ids import Epoch, Incarnation, NodeId, Now, Slot
from paxos.lease import Lease
from paxos.proposer import Role
from paxos.step import Notice, Step

if TYPE_CHECKING:
    from paxos.replica import Replica

VERSION: Final = 1
_HEAD: Final = struct.Struct(">BQIQH")
_LEASE: Final = struct.Struct(">iqQQQqQ")


class BaseError(ValueError):
    """The bytes are no base: a peer's lie or a damaged file, never our own bug."""


@attrs.frozen(kw_only=True)
class Base:
    """The replicated part of a replica after `slot`; equal on every member at the same slot."""

    slot: Slot
    chain: int
    members: tuple[NodeId, ...]
    configured: Slot
    """The Config that made them members, 0: they are the founders."""
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


def taken(replica: "Replica") -> Base:
    """The base at what is applied now."""
    lease = replica.lease
    return Base(
        slot=replica.learner.applied,
        chain=replica.chain.value,
        members=replica.members,
        configured=replica.configured,
        holder=lease.holder,
        incarnation=lease.incarnation,
        ver=lease.ver,
        since=lease.since,
        epoch=lease.epoch,
        expires_wall_ns=lease.expires_wall_ns,
        renewals=lease.renewals,
    )


def begin_with(replica: "Replica", base: Base) -> None:
    """A restart: the first slot that is replayed comes after the base's."""
    replica.learner.skip(base.slot)
    replica.acceptor.recorded = base.slot
    replica.chain = ChainHash.after(base.slot, base.chain)
    replica.members, replica.configured = base.members, base.configured
    if replica.me in base.members:
        replica.contacts = ()
    replica.lease = lease_of(base)


def lease_of(base: Base) -> Lease:
    """Its boot deadline is long past; `Lease.heard` says when it is."""
    return Lease(
        holder=base.holder,
        incarnation=base.incarnation,
        ver=base.ver,
        since=base.since,
        epoch=base.epoch,
        expires_wall_ns=base.expires_wall_ns,
        renewals=base.renewals,
    )


def install(replica: "Replica", now: Now, base: Base, step: Step) -> bool:
    """Go on from a peer's base, which is durable here; False where we are as far ourselves.

    What we promised and voted above it stays as it is: an acceptor's word is its own.
    """
    if base.slot <= replica.learner.applied:
        return False
    if replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    begun = replica.lease
    begin_with(replica, base)
    testimony.found_again(replica, [slot for slot in replica.lost if slot <= base.slot])
    for slot in [slot for slot in replica.acceptor.votes if slot <= base.slot]:
        replica.acceptor.forget(slot)
    if begun.ver == base.ver:
        replica.lease = begun  # we know it at first hand, and when it ends by our own clock
    elif replica.lease.holder == replica.me:
        replica.lease.deadline_boot_ns = now.boot_ns  # to be renewed before we act on it
    else:
        replica.lease.heard(now, replica.timing.lease_ns)
    replica.trimmed_boot_ns = None
    step.notices.append(Notice(replica.group, "installed", f"slot {base.slot}"))
    replica._apply_ready(now, step)  # what follows from it: of a Steal, a rejoin, waiting entries
    return True


def is_fetching(replica: "Replica", now: Now) -> bool:
    """Whether somebody has told us lately that only a state transfer will help. Such a node is not
    deaf, only behind: it leaves elections to those who are ahead (`timers._may_prepare`)."""
    since = replica.trimmed_boot_ns
    timing = replica.timing
    patience_ns = timing.heard_ns + 2 * timing.learn_timeout_ns
    return since is not None and now.boot_ns - since < patience_ns
