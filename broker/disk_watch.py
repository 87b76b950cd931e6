"""Who cannot write does not renew.

The votes of the others would be enough for a renewal, for ever, and the node would stay a master
that cannot serve what is on its disk, and whose memory fills with what waits for it. So while its
disk hangs a node renews no lease and tries for none. It may hand its masters over: a Steal needs
nothing of its disk (docs/protocol.md). What it has not handed over runs out. To stop early is
always safe; nothing else is changed, least of all what has to be durable before it is told.
"""

from collections.abc import Iterable

from paxos.ids import Now
from paxos.replica import Replica
from storage.disk.health import DiskHealth


class DiskWatch:
    def __init__(self) -> None:
        self.health = DiskHealth()
        self.leaving = False
        """This node stops: it takes no masters and renews none, however its disk is."""
        self._abstains = False

    def look(self, now: Now, others: Iterable[int], replicas: Iterable[Replica]) -> None:
        """Every tick; `others`: the classes of the other nodes' disks."""
        health = self.health
        health.look(now.boot_ns, others)
        if health.hung or self._abstains:
            self._abstains = health.hung
            for replica in replicas:
                replica.election.abstaining = health.hung or self.leaving
