"""How long dead members of a consumer group are waited for, where whole nodes run.

The rules are `simulator.checkers.dead_members`'; here is who listens, and what is heard.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Protocol

from broker.groups.consumer_groups import paxos_group_of
from coordinator.limits import CoordinatorConfig
from coordinator.model import GroupNotice
from paxos.entry import BeMaster, Control, Steal
from paxos.ids import GroupId, NodeId, Now, Slot
from paxos.lease import Lease
from simulator.checkers.dead_members import MemberWatch
from simulator.environment.loop import Loop
from simulator.whole.host import Host

NO_TIME = Now(0, 0)


class Watched(Protocol):
    """What this needs of the world."""

    loop: Loop
    nodes: dict[NodeId, Host]


class WholeDeaths(MemberWatch[Host]):
    """`limits`: by which the coordinators of this world go."""

    def __init__(self, world: Watched, name: str, limits: CoordinatorConfig) -> None:
        super().__init__(world.loop, name)
        self._watched_world, self._limits = world, limits
        self._leases: defaultdict[GroupId, Lease] = defaultdict(Lease)

    @property
    def hosts(self) -> Mapping[NodeId, Host]:
        return self._watched_world.nodes

    def died(self, member_id: str, session_ms: int, grace_ms: int) -> None:
        super().died(member_id, session_ms, self._limits.grace_ms)

    def told(self, notice: GroupNotice) -> None:
        self.notice(notice.what, notice.detail, self._limits.grace_ms)

    def reached(self, frame: memoryview) -> None:
        """A request has come to a node."""
        if self.waits:
            self.heard(bytes(frame))

    def lease_entry(self, group: GroupId, slot: Slot, control: Control) -> None:
        """A node has applied it, perhaps not the first."""
        lease = self._leases[group]
        epoch = lease.epoch
        if isinstance(control, BeMaster):
            lease.apply_be_master(slot, control, NO_TIME, 0)
        elif isinstance(control, Steal):
            lease.apply_steal(slot, control, NO_TIME, 0)
        if lease.epoch != epoch:
            self.moved(group, stolen=isinstance(control, Steal))

    def coordinator(self) -> Host | None:
        """Who listens to the group's members at this moment."""
        nodes = [host.node for host in self.hosts.values() if host.node is not None]
        if self._group is None:
            known = (paxos_group_of(node.registry, self._name) for node in nodes)
            self._group = next((group for group in known if group is not None), None)
        group = self._group
        if group is None:
            return None
        for host in self.hosts.values():
            node = host.node
            if node is not None and host.runs():
                engine = node.engine
                if engine.acting(group) and engine.caught_up(group):
                    return host
        return None

    def life_of(self, node: Host) -> int:
        return node.life
