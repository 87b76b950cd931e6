"""What a node knows of the groups that it hosts, and of others (broker.ports.Groups).

A group that this node hosts is known from its replica. Of the others, the masters tell
(runtime.membership.masters), and the registry knows the members.
"""

from collections.abc import Callable
from typing import Final

from paxos.ids import MS, NOBODY, GroupId, NodeId, Now, Slot
from paxos.liveness import progress
from paxos.multigroup import MultiGroup
from runtime.membership.masters import Masters
from runtime.system.clock import Clock

ALIVE_NS: Final = 1_500 * MS
"""A node that was not heard for longer is not alive for this node."""


class KnownGroups:
    def __init__(self, multi: MultiGroup, clock: Clock) -> None:
        self.multi, self.clock = multi, clock
        self.elsewhere = Masters(multi.timing.lease_ns)
        self.members_elsewhere: Callable[[GroupId], tuple[NodeId, ...]] = lambda _group: ()
        """The nodes that have a group which this node does not host, according to the registry."""

    def now(self) -> Now:
        return self.clock.now()

    def acting(self, group: GroupId) -> bool:
        replica = self.multi.replicas.get(group)
        return replica is not None and replica.acting(self.clock.now())

    def epoch(self, group: GroupId) -> int:
        replica = self.multi.replicas.get(group)
        told = self.elsewhere.epoch(group)
        return told if replica is None else max(replica.lease.epoch, told)

    def master(self, group: GroupId) -> NodeId | None:
        """The master according to our own replica, or to the master's claim if that names a later
        lease: we may not have the group, or may still be learning it. None: not known."""
        now = self.clock.now()
        replica = self.multi.replicas.get(group)
        heard = self.elsewhere.of(group, now)
        if replica is not None and (heard is None or heard.lease_ver <= replica.lease.ver):
            lease = replica.lease
            return None if lease.holder == NOBODY or lease.free(now, 0) else lease.holder
        return None if heard is None else heard.node

    def members(self, group: GroupId) -> tuple[NodeId, ...]:
        replica = self.multi.replicas.get(group)
        return self.members_elsewhere(group) if replica is None else replica.members

    def alive(self) -> frozenset[NodeId]:
        now, multi = self.clock.now(), self.multi
        heard = (node for node, at in multi.heard.items() if now.boot_ns - at < ALIVE_NS)
        return frozenset([multi.me, *heard])

    def caught_up(self, group: GroupId) -> bool:
        replica = self.multi.replicas.get(group)
        return replica is not None and replica.ready()

    def is_current(self, group: GroupId) -> bool:
        replica = self.multi.replicas.get(group)
        return replica is not None and progress.is_current(replica, self.clock.now())

    def lacks_entries(self, group: GroupId) -> bool:
        replica = self.multi.replicas.get(group)
        return replica is None or replica.learner.behind

    def known_to_have_applied(self, group: GroupId, slot: Slot) -> bool:
        replica = self.multi.replicas.get(group)
        if replica is None:
            return True  # we get no news of that group
        others = self.alive() & set(replica.members) - {self.multi.me}
        return all(replica.peer(node).applied >= slot for node in others)
