"""Who is master of groups this node does not keep: what their masters say of themselves.

A node hosts some of the groups only, and still has to say who leads a partition, who coordinates a
consumer group, and where a command for the registry goes. So every master tells the nodes that are
no members of its group (frame MASTERS): group, lease epoch, lease version and the absolute expiry.
It is told on every change, with a new link, and once a second or as often as the lease is renewed,
since that moves the expiry.

What was heard is believed for as long as the lease runs, by this node's clocks, and never longer
than a lease can: like the lease itself it may be old, and costs a refused request then, never
safety. Of two nodes' words about a group the one with the higher lease version is the newer one,
for as long as that lease runs: a number that was wrong is forgotten with it.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from balancer.registry.records import GROUPS_MAX
from paxos.codec import PeerError
from paxos.ids import MS, REGISTRY_GROUP, Epoch, GroupId, NodeId, Now, Slot
from paxos.replica import Replica

_ROW: Final = struct.Struct(">IqQQ")
ROWS_MAX: Final = GROUPS_MAX + 1
TELL_EVERY_NS: Final = 1_000 * MS
_EPOCH_MAX: Final = 2**31 - 1
"""Kafka's leader epoch is an int32."""


class MasterClaim(NamedTuple):
    """What a master says of one group."""

    group: GroupId
    epoch: Epoch
    lease_ver: Slot
    expires_wall_ns: int


class KnownMaster(NamedTuple):
    node: NodeId
    epoch: Epoch
    lease_ver: Slot
    until_boot_ns: int


def encode_claims(words: Iterable[MasterClaim]) -> bytes:
    return b"".join(_ROW.pack(*word) for word in words)


def decode_claims(body: memoryview) -> list[MasterClaim]:
    """Raises PeerError for what no master says."""
    if len(body) % _ROW.size or len(body) > ROWS_MAX * _ROW.size:
        raise PeerError(f"{len(body)} bytes about masters")
    words = [
        MasterClaim(GroupId(group), Epoch(epoch), Slot(ver), expires)
        for group, epoch, ver, expires in _ROW.iter_unpack(body)
    ]
    for word in words:
        if not REGISTRY_GROUP <= word.group <= GROUPS_MAX or not 0 < word.epoch <= _EPOCH_MAX:
            raise PeerError(f"a master of group {word.group} in epoch {word.epoch}")
        if not word.epoch <= word.lease_ver < 1 << 62:  # each epoch has a slot of its own
            raise PeerError(f"a lease of group {word.group} in slot {word.lease_ver}")
    return words


class Masters:
    """What this node was told. `longest_ns`: no lease runs longer from when it was heard of."""

    def __init__(self, longest_ns: int) -> None:
        self._longest_ns = longest_ns
        self._heard: dict[GroupId, KnownMaster] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, now: Now, node: NodeId, words: Iterable[MasterClaim]) -> bool:
        """Whether a group has another master now, or any at all."""
        changed = False
        for word in words:
            known = self._heard.get(word.group)
            if (
                known is not None
                and known.lease_ver > word.lease_ver
                and known.node != node  # who has the last word on its own
                and known.until_boot_ns > now.boot_ns
            ):
                continue
            left_ns = min(max(0, word.expires_wall_ns - now.wall_ns), self._longest_ns)
            heard = KnownMaster(node, word.epoch, word.lease_ver, now.boot_ns + left_ns)
            changed |= known is None or (known.node, known.epoch) != (node, word.epoch)
            changed |= known is not None and known.until_boot_ns <= now.boot_ns
            self._heard[word.group] = heard
        return changed

    def of(self, group: GroupId, now: Now) -> KnownMaster | None:
        """The last word about a group, if its lease still runs."""
        heard = self._heard.get(group)
        return None if heard is None or heard.until_boot_ns <= now.boot_ns else heard

    def groups(self, now: Now) -> Iterator[GroupId]:
        """The groups whose masters are known here by their own word."""
        for group, heard in self._heard.items():
            if heard.until_boot_ns > now.boot_ns:
                yield group

    def epoch(self, group: GroupId) -> int:
        """The highest epoch heard of, also of a lease that is over; -1 if nothing was heard."""
        heard = self._heard.get(group)
        return -1 if heard is None else heard.epoch


def claims_for(
    node: NodeId, replicas: Mapping[GroupId, Replica], now: Now
) -> Iterator[MasterClaim]:
    """What to tell a node: the groups this node acts for and that one is no member of."""
    for group, replica in replicas.items():
        if node not in replica.members and replica.acting(now):
            lease = replica.lease
            yield MasterClaim(group, lease.epoch, lease.ver, lease.expires_wall_ns)


class MasterGossip:
    """When to tell whom: `due` says which nodes are. As often as leases are renewed, for each
    renewal moves the expiry: told once a second, what was heard of a lease of 800 ms ran out before
    the next word came, and half of the time nobody seemed to be master (whole world 14)."""

    def __init__(self, renew_every_ns: int = TELL_EVERY_NS) -> None:
        self._every_ns = min(TELL_EVERY_NS, renew_every_ns)
        self._told_boot_ns: dict[NodeId, int] = {}
        self._changed = False

    def masters_changed(self) -> None:
        self._changed = True

    def due(self, now: Now, linked: Iterable[NodeId]) -> list[NodeId]:
        """The linked nodes to be told now: all after a change, else each now and then."""
        told, self._told_boot_ns = self._told_boot_ns, {}
        changed, self._changed = self._changed, False
        nodes = []
        for node in linked:
            at = told.get(node)
            if changed or at is None or now.boot_ns - at >= self._every_ns:
                nodes.append(node)
                at = now.boot_ns
            self._told_boot_ns[node] = at
        return nodes
