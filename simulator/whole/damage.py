"""Files that are damaged below a running node, and a wall clock that is far off.

One node of a world at most has its files damaged, and nobody else loses a directory from then on;
what the tools would not take away is not damaged (`Membership.may_lose`). Where groups get other
members the only good copy could be dropped, so in worlds with damage they do not.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from paxos.ids import MS, NodeId
from simulator.environment.dice import between
from simulator.whole.host import Host
from simulator.whole.membership import Membership
from simulator.whole.nemesis import Hurt, Strikes
from simulator.whole.options import Fault
from storage.cold.format import SUFFIX as COLD
from storage.format import SEGMENT_SUFFIX as LOG

CHECKPOINTS: Final = ".ckpt"
SECTOR_BYTES: Final = 512
CLOCK_NODES_MIN: Final = 3
PAIR: Final = 2
RESTARTS: Final = frozenset(
    {
        Fault.KILL,
        Fault.POWER,
        Fault.POWER_ALL,
        Fault.FULL_DISK,
        Fault.FAILED_DISK,
        Fault.STOP,
        Fault.ROLL,
        Fault.OTHER_VERSION,
        Fault.LOST_DIRECTORY,
        Fault.OLD_DIRECTORY,
    }
)
FAR_MAX: Final = 12
"""A wall clock is off by up to so many margins; or by hours."""
HOUR_NS: Final = 3_600_000 * MS


class Damage(Strikes):
    name = "damage"

    def __init__(self, world: Hurt, membership: Membership) -> None:
        super().__init__(world)
        self._membership = membership
        self._wrong: NodeId | None = None
        """Whose clock is far off now and then: always the same one's, a minority."""

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.DAMAGE: partial(self._one, self._damage),
            Fault.WRONG_CLOCK: self._wrong_clock,
        }

    # -- files --------------------------------------------------------------------------------

    def _damage(self, host: Host) -> None:
        if not self._membership.may_lose(host) or self._may_be_for_good():
            return
        files = host.disk.keep()
        kinds = [
            [name for name in files if name.endswith(kind) and files[name]]
            for kind in (LOG, COLD, CHECKPOINTS)
        ]
        found = [names for names in kinds if names]
        if not found:
            return
        self._membership.victim = host.me
        name = self._chance.choice(self._chance.choice(found))
        written = len(files[name].rstrip(b"\0")) or 1
        start = self._chance.randrange(written)
        self._note("damage", host.me, name, start)
        self._world.statistics["files damaged"] += 1
        if self._chance.random() < 0.2:
            host.disk.lose_block(name, start)
            return
        length = self._chance.choice((1, 1, 12, SECTOR_BYTES))
        for offset in range(start, min(start + length, written)):
            host.disk.corrupt(name, offset, between(self._chance, 1, 255))

    def _may_be_for_good(self) -> bool:
        """Of two nodes, one refuses its damaged log when it starts, and the other one, restarted
        too, waits for its word: which log counts is an operator's decision (seed 515)."""
        return self._world.options.nodes == PAIR and bool(self._world.options.faults & RESTARTS)

    # -- clocks -------------------------------------------------------------------------------

    def _wrong_clock(self) -> None:
        world = self._world
        if min(world.options.nodes, world.options.replicas) < CLOCK_NODES_MIN:
            return
        if self._wrong is None:
            self._wrong = NodeId(self._chance.choice(world.addresses))
        host = world.nodes[self._wrong]
        margin_ns = world.options.lease_ms * MS // 16
        far_ns = between(self._chance, margin_ns, FAR_MAX * margin_ns)
        if self._chance.random() < 0.2:
            far_ns = between(self._chance, HOUR_NS, 24 * HOUR_NS)
        far_ns *= self._chance.choice((-1, 1))
        self._note("wrong clock", host.me, far_ns)
        world.statistics["clocks far off"] += 1
        # Without its directory, its next life would have a number below the last one.
        host.may_be_refused |= far_ns < 0
        host.clock.step(world.loop.now_ns, far_ns)
        self._soon(8_000, partial(self._right_clock, host))

    def _right_clock(self, host: Host) -> None:
        host.clock.step(self._world.loop.now_ns, 0)

    def heal(self) -> None:
        """A process that began by a wrong clock follows the right one by a millisecond a second,
        and is not ready for minutes: it is begun anew."""
        if self._wrong is not None:
            host = self._world.nodes[self._wrong]
            self._right_clock(host)
            host.kill()
            self._boot(host)
