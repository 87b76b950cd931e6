"""How long nothing was acknowledged in a partition, while nothing hurts the cluster.

Counted from the moment in which all nodes must be ready again. Steals go on then, and so do
producers, so a hole longer than a lease and what a client needs to find another node is nobody's
fault but ours.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from paxos.ids import MS
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation

LOOK_NS: Final = 100 * MS
CLIENT_NS: Final = 6_000 * MS
"""A request that is not answered, pauses, and another node that is asked in vain."""


class PartitionLog(Protocol):
    acknowledged_to: int


class Holes:
    def __init__(
        self, loop: Loop, logs: Mapping[int, PartitionLog], lease_ns: int, over: Callable[[], bool]
    ) -> None:
        self._loop, self._logs, self._over = loop, logs, over
        self._most_ns = lease_ns + CLIENT_NS
        self._seen: dict[int, tuple[int, int]] = {}
        """Of each partition: up to where it was acknowledged, and since when."""
        self.longest_ns = 0

    def watch(self) -> None:
        """Until `over`."""
        if self._over():
            return
        now = self._loop.now_ns
        for number, log in self._logs.items():
            to, since_ns = self._seen.get(number, (-1, now))
            if log.acknowledged_to != to:
                self._seen[number] = (log.acknowledged_to, now)
                continue
            self.longest_ns = max(self.longest_ns, now - since_ns)
            if now - since_ns > self._most_ns:
                waited_s = (now - since_ns) / 1e9
                raise Violation(f"hole: partition {number} has had nothing for {waited_s:.1f} s")
        self._loop.after(LOOK_NS, self.watch)
