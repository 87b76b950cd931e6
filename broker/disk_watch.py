"""A node that cannot write does not renew its leases.

The other members' votes would suffice to renew its leases for ever, and the node would remain a
master that cannot serve data from its disk, and whose memory fills with waiting requests. So while
its disk hangs, a node neither renews nor acquires leases. It may hand over its groups: a Steal
needs nothing from its disk (docs/protocol.md). Leases that it has not handed over expire. Stopping
early is always safe. Nothing else changes, least of all what must be durable before it is answered.
"""

from collections.abc import Iterable

from paxos.ids import Now
from paxos.replica import Replica
from storage.disk.health import DiskHealth


class DiskWatch:
    def __init__(self) -> None:
        self.health = DiskHealth()
        self.leaving = False
        """This node is stopping: it acquires and renews no leases, whatever the state of its
        disk."""
        self._abstains = False

    def look(self, now: Now, others: Iterable[int], replicas: Iterable[Replica]) -> None:
        """Call it every tick; `others`: the classes of the other nodes' disks."""
        health = self.health
        health.look(now.boot_ns, others)
        if health.hung or self._abstains:
            self._abstains = health.hung
            for replica in replicas:
                replica.election.abstaining = health.hung or self.leaving
