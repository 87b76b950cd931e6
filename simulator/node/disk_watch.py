"""A simulated node watches its disk like the real one (broker.disk_watch), and is judged.

I11: a node that knows that its disk hangs is nobody's master for longer than a lease. The others'
votes would be enough for it to go on as long as it likes.
"""

from collections.abc import Iterable
from typing import Final

from broker.disk_watch import DiskWatch
from paxos.ids import MS, Now
from paxos.replica import Replica
from paxos.timing import Timing
from simulator.environment.violation import Violation

UNDER_WAY_NS: Final = 1_000 * MS
"""A renewal, or a steal to this node, that was under way may still be chosen."""


class SimDiskWatch(DiskWatch):
    def __init__(self) -> None:
        super().__init__()
        self._known_since: int | None = None
        """By the node's own clock, which its leases use."""

    def tick(self, now: Now, replicas: Iterable[Replica]) -> None:
        self.look(now, (), replicas)
        if not self.health.hung:
            self._known_since = None
        elif self._known_since is None:
            self._known_since = now.boot_ns

    def check(self, now: Now, replica: Replica, since_boot_ns: int, timing: Timing) -> None:
        """If this node acts for the group, it has done so since then.

        Raises:
            Violation: it has been master for too long.
        """
        if self._known_since is None or not replica.acting(now):
            return
        for_ns = now.boot_ns - max(self._known_since, since_boot_ns)
        if for_ns > timing.lease_ns + 2 * timing.margin_ns + UNDER_WAY_NS:
            who = f"node {replica.me} has been master of group {replica.group}"
            raise Violation(f"I11: {who} for {for_ns / 1e9} s with a disk that hangs")
