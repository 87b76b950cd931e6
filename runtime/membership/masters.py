"""The masters of groups that this node does not host, from the masters' own claims.

A node hosts only some of the groups, and still has to name the leader of every partition and the
coordinator of every consumer group, and to forward commands for the registry. So every master tells
the nodes that are not members of its group (frame MASTERS): group, lease epoch, lease version and
absolute expiry. It does so on every change, on a new link, and once a second or at every renewal,
because that moves the expiry.

A claim is believed as long as the lease runs by this node's clocks, and never longer than a lease
can run. Like the lease itself it may be outdated; that costs a refused request, never safety. If
two nodes claim a group, the higher lease version is newer, as long as that lease runs: a false
number is forgotten with it.
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
    """A master's claim for one group."""

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
    """Decode claims. Raises PeerError if they are malformed or impossible."""
    if len(body) % _ROW.size or len(body) > ROWS_MAX * _ROW.size:
        raise PeerError(f"{len(body)} bytes about masters")
    words = [
        MasterClaim(GroupId(group), Epoch(epoch), Slot(ver), expires)
        for group, epoch, ver, expires in _ROW.iter_unpack(body)
    ]
    for word in words:
        if not REGISTRY_GROUP <= word.group <= GROUPS_MAX or not 0 < word.epoch <= _EPOCH_MAX:
            raise PeerError(f"a master of group {word.group} in epoch {word.epoch}")
        if not word.epoch <= word.lease_ver < 1 << 62:  # each epoch has its own slot
            raise PeerError(f"a lease of group {word.group} in slot {word.lease_ver}")
    return words


class Masters:
    """The claims that this node has heard. `longest_ns`: no lease runs longer than this after its
    claim was heard."""

    def __init__(self, longest_ns: int) -> None:
        self._longest_ns = longest_ns
        self._heard: dict[GroupId, KnownMaster] = {}

    def __len__(self) -> int:
        return len(self._heard)

    def hear(self, now: Now, node: NodeId, words: Iterable[MasterClaim]) -> bool:
        """Take in claims; returns whether a group has a new master, or has one again."""
        changed = False
        for word in words:
            known = self._heard.get(word.group)
            if (
                known is not None
                and known.lease_ver > word.lease_ver
                and known.node != node  # a node may correct its own claim
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
        """The last claim for a group, if its lease still runs."""
        heard = self._heard.get(group)
        return None if heard is None or heard.until_boot_ns <= now.boot_ns else heard

    def groups(self, now: Now) -> Iterator[GroupId]:
        """The groups whose masters are known here from their claims."""
        for group, heard in self._heard.items():
            if heard.until_boot_ns > now.boot_ns:
                yield group

    def epoch(self, group: GroupId) -> int:
        """The epoch of the last claim, even if its lease is over; -1 if there was none."""
        heard = self._heard.get(group)
        return -1 if heard is None else heard.epoch


def claims_for(
    node: NodeId, replicas: Mapping[GroupId, Replica], now: Now
) -> Iterator[MasterClaim]:
    """The claims to send to a node: the groups that this node acts for and that one is not a member
    of."""
    for group, replica in replicas.items():
        if node not in replica.members and replica.acting(now):
            lease = replica.lease
            yield MasterClaim(group, lease.epoch, lease.ver, lease.expires_wall_ns)


class MasterGossip:
    """When to send claims, and to which nodes: `due` says so. As often as leases are renewed,
    because each renewal moves the expiry: with one claim per second, the known expiry of a lease of
    800 ms passed before the next claim came, and half of the time there seemed to be no master
    (whole world 14)."""

    def __init__(self, renew_every_ns: int = TELL_EVERY_NS) -> None:
        self._every_ns = min(TELL_EVERY_NS, renew_every_ns)
        self._told_boot_ns: dict[NodeId, int] = {}
        self._changed = False

    def masters_changed(self) -> None:
        self._changed = True

    def due(self, now: Now, linked: Iterable[NodeId]) -> list[NodeId]:
        """The linked nodes to send claims to now: all after a change, else each periodically."""
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
