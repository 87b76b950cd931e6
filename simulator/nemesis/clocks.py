"""Clock faults: steps, drift, standing still, strobing; within the bound, or far beyond it.

`SET_BACK` goes beyond the bound in a world that promises one master nevertheless: a master is cut
off and its wall clock jumps back. Its boot clock ends the lease in time (docs/protocol.md, "Who may
act"), because no lease entry reaches the master while it is cut off.
"""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final

from paxos.ids import MS
from simulator.environment.clock import STOPPED_PPM
from simulator.environment.dice import between, dice
from simulator.environment.options import Clocks, Fault
from simulator.nemesis.surroundings import Conductor, Surroundings

if TYPE_CHECKING:
    from simulator.node.node import SimNode

BEYOND_FACTOR_MAX: Final = 12
"""Clocks beyond the bound are off by up to this many times the bound."""
SLOW_DRIFT_PPM_MAX: Final = 200
"""A clock that is left alone drifts at up to this rate for the rest of the world."""
STROBES: Final = 20
_MILLION: Final = 1_000_000


class ClockFaults:
    def __init__(self, world: Surroundings, nemesis: Conductor) -> None:
        self._world, self._nemesis = world, nemesis
        self.offset_max_ns = 0
        """The furthest that any clock has been off."""
        self._settings: dict[int, int] = {}
        """How often each node's clock was set: plans made for an earlier setting are void."""

    def strikes(self) -> Mapping[Fault, Callable[[Random], None]]:
        return {
            Fault.CLOCK: lambda chance: self._set(self._world.somebody(chance), chance),
            Fault.STROBE: self._strobe,
            Fault.SET_BACK: self._set_back,
        }

    def start(self) -> None:
        for node in self._world.nodes.values():
            self._set(node, dice(self._world.options.seed, "clock", node.me))

    def heal(self) -> None:
        """In a world of exact clocks, too: one may have been set back just now."""
        for node in self._world.nodes.values():
            self._step(node, 0, 0)
            self._set(node, dice(self._world.options.seed, "clock healed", node.me))

    def _set(self, node: "SimNode", chance: Random) -> None:
        """Within the bound, the whole excursion with its drift until the next step stays inside."""
        world = self._world
        if world.options.clocks is Clocks.EXACT:
            return
        limit = world.options.timing.margin_ns
        node.clock.trusted = True
        healed = self._nemesis.stopped
        if world.options.clocks is Clocks.BEYOND and not healed and chance.random() < 0.6:
            limit *= between(chance, 2, BEYOND_FACTOR_MAX)
            node.clock.trusted = chance.random() < 0.5
        limit -= world.options.duration_ns * SLOW_DRIFT_PPM_MAX // _MILLION
        offset = int((2 * chance.random() - 1) * limit)
        if chance.random() < 0.5:
            offset = limit * chance.choice((-1, 1))
        self.offset_max_ns = max(self.offset_max_ns, limit)
        if chance.random() < 0.3:
            self._run_to(node, offset, int((2 * chance.random() - 1) * limit), chance)
        else:
            slowly = between(chance, -SLOW_DRIFT_PPM_MAX, SLOW_DRIFT_PPM_MAX)
            self._step(node, offset, slowly)

    def _run_to(self, node: "SimNode", offset: int, target: int, chance: Random) -> None:
        """Fast, slow, or stopped (a clock that stands still falls behind), then true again."""
        away = abs(target - offset)
        if target < offset and chance.random() < 0.5:
            ppm, length = STOPPED_PPM, away
        else:
            length = away + between(chance, 100, 5_000) * MS
            ppm = (target - offset) * _MILLION // length
        self._step(node, offset, ppm)
        self._world.loop.after(length, self._hold, node, self._settings[node.me], target)

    def _hold(self, node: "SimNode", setting: int, offset: int) -> None:
        if self._settings[node.me] == setting:
            self._step(node, offset, 0)

    def _step(self, node: "SimNode", offset: int, ppm: int) -> None:
        world = self._world
        self._settings[node.me] = self._settings.get(node.me, 0) + 1
        node.clock.step(world.loop.now_ns, offset, ppm)
        world.trace.note(world.loop.now_ns, "clock", node.me, offset, ppm, node.clock.trusted)
        world.check_all_masters()

    def _strobe(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        gap = between(chance, 1, 50) * MS
        for index in range(STROBES):
            self._nemesis.later(index * gap, self._set, node, chance)

    def _set_back(self, chance: Random) -> None:
        """A cut-off master's wall clock jumps back by several leases; later it is corrected."""
        world = self._world
        masters = [node for node, _ in world.all_masters() if self._is_settled(node)]
        if not masters or world.options.clocks is Clocks.BEYOND:
            return
        node = chance.choice(masters)
        lease_ns = world.options.timing.lease_ns
        length = 3 * lease_ns
        if world.loop.now_ns + length >= world.options.heal_at_ns:
            return  # the cut would end before the clock is right again
        self._nemesis.busy_until = world.loop.now_ns + length
        self._nemesis.note("set back", node.me)
        world.network.heal()
        world.network.isolate(node.me, world.addresses)
        before = node.clock.wall_offset(world.loop.now_ns)
        self._step(node, before - between(chance, lease_ns, 5 * lease_ns), 0)
        world.loop.after(length - 1, self._set_right, node, self._settings[node.me])

    def _set_right(self, node: "SimNode", setting: int) -> None:
        if self._settings[node.me] == setting:
            self._step(node, 0, 0)
        self._world.network.cut.clear()

    def _is_settled(self, node: "SimNode") -> bool:
        """No lease entry that concerns it can still be on its way."""
        for ident, held in node.groups.items():
            replica = held.replica
            if replica.handover is not None or replica.lease_in_flight():
                return False
            for other in self._world.nodes.values():
                theirs = other.groups.get(ident)
                if theirs is None:
                    continue
                one = theirs.replica
                if one.handing_to == node.me or one.learner.applied > replica.learner.applied:
                    return False
        return True
