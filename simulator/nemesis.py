"""What goes wrong in a world: faults at random, and faults aimed at the moment a Steal leaves.

Every action is one that a real machine room can do, or a legal move of the protocol that no timer
would make at that moment (a rival's Prepare).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from paxos.ids import MS, NodeId
from paxos.proposer import Role
from simulator.dice import between, dice, exponential
from simulator.options import Clocks, Fault

if TYPE_CHECKING:
    from paxos.replica import Replica
    from simulator.node import SimNode
    from simulator.world import World

BEYOND_FACTOR_MAX: Final = 12
"""Clocks beyond the bound are off by up to so many times the bound."""
MEMBERS_MIN: Final = 3


class Nemesis:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._chance = dice(world.options.seed, "nemesis")
        self._stopped = False
        self.offset_max_ns = 0
        """The furthest any clock has been off."""
        everything: dict[Fault, Callable[[], None]] = {
            Fault.CRASH: self._crash_or_boot,
            Fault.CUT_ONE: lambda: self._cut(inbound=True, outbound=True),
            Fault.CUT_ONE_WAY: self._cut_one_way,
            Fault.CUT_HALVES: self._cut_halves,
            Fault.LOSSY: self._lossy,
            Fault.PAUSE: self._pause,
            Fault.CLOCK: self._clock,
            Fault.RIVAL: self._rival,
            Fault.MEMBERS: self._members,
            Fault.CRASH_ALL: self._crash_all,
        }
        faults = [everything[fault] for fault in Fault if fault in world.options.faults]
        mends = [self._mend] * (1 + len(faults) // 2)  # a cluster that is down shows nothing
        self._actions = faults + mends

    def start(self) -> None:
        for node in self._world.nodes.values():
            self._set_clock(node)
        self._world.loop.after(2_000 * MS, self._next)
        self._world.loop.at(self._world.options.heal_at_ns, self._heal)

    def _next(self) -> None:
        if self._stopped:
            return
        self._chance.choice(self._actions)()
        gap = exponential(self._chance, self._world.options.fault_gap_ns)
        self._world.loop.after(gap, self._next)

    def _note(self, what: str, *values: object) -> None:
        self._world.trace.note(self._world.loop.now_ns, what, *values)

    def _somebody(self) -> "SimNode":
        return self._chance.choice(list(self._world.nodes.values()))

    # -- faults -------------------------------------------------------------------------------

    def _mend(self) -> None:
        if self._chance.random() < 0.5:
            self._note("mend")
            self._world.network.heal()
        for node in self._world.nodes.values():
            if not node.up:
                node.boot()

    def _crash_or_boot(self) -> None:
        node = self._somebody()
        if node.up:
            self.crash(node)
        else:
            node.boot()

    def crash(self, node: "SimNode") -> None:
        self._world.statistics["crashes"] += 1
        node.crash(reboot=self._chance.random() < 0.5)

    def _crash_all(self) -> None:
        for node in self._world.nodes.values():
            if node.up and self._chance.random() < 0.9:
                self.bounce(node)

    def bounce(self, node: "SimNode") -> None:
        """Crash, and come back soon."""
        if node.up:
            self.crash(node)
            delay = between(self._chance, 1 * MS, 300 * MS)
            self._world.loop.after(delay, self._boot_if_down, node)

    def _boot_if_down(self, node: "SimNode") -> None:
        if not node.up:
            node.boot()

    def _cut_one_way(self) -> None:
        inbound = self._chance.random() < 0.5
        self._cut(inbound=inbound, outbound=not inbound)

    def _cut(self, *, inbound: bool, outbound: bool) -> None:
        node = self._somebody().me
        others = [o for o in self._world.addresses if self._chance.random() < 0.9]
        self._note("cut", node, "in" * inbound, "out" * outbound, others)
        self._world.network.isolate(node, others, inbound=inbound, outbound=outbound)

    def _cut_halves(self) -> None:
        left = [node for node in self._world.addresses if self._chance.random() < 0.5]
        self._note("halves", left)
        for one in left:
            rest = [node for node in self._world.addresses if node not in left]
            self._world.network.isolate(one, rest, inbound=True, outbound=True)

    def _lossy(self) -> None:
        network, choice = self._world.network, self._chance.choice
        network.loss = choice((0.0, 0.01, 0.05, 0.3))
        network.duplication = choice((0.0, 0.1, 0.5))
        network.slow = choice((0.0, 0.0, 0.05, 0.3))
        network.slow_mean_ns = between(self._chance, 20, 800) * MS
        network.late = choice((0.0, 0.002, 0.02))
        self._note("lossy", network.loss, network.duplication, network.slow, network.late)

    def _pause(self) -> None:
        node = self._somebody()
        if node.up:
            length = int(self._chance.random() * 1.5 * self._world.options.timing.lease_ns)
            self._note("pause", node.me, length)
            node.pause(self._world.loop.now_ns + length)

    def _clock(self) -> None:
        self._set_clock(self._somebody())

    def _set_clock(self, node: "SimNode", bound: int = 1) -> None:
        """Within the bound the whole excursion, drift until the next step included, fits in it."""
        world, chance = self._world, self._chance
        if world.options.clocks is Clocks.EXACT:
            return
        limit = world.options.timing.margin_ns
        if world.options.clocks is Clocks.BEYOND and not self._stopped and chance.random() < 0.6:
            limit *= between(chance, 2, BEYOND_FACTOR_MAX)
            node.clock.trusted = chance.random() < 0.5
        else:
            node.clock.trusted = True
        drift_ppm = between(chance, -200, 200)
        drifted = world.options.duration_ns * 200 // 1_000_000
        offset = int((2 * chance.random() - 1) * (limit - drifted))
        if chance.random() < 0.5:
            offset = (limit - drifted) * chance.choice((-1, 1))
        self.offset_max_ns = max(self.offset_max_ns, abs(offset))
        node.clock.step(world.loop.now_ns, offset, drift_ppm)
        self._note("clock", node.me, offset, drift_ppm, node.clock.trusted)
        world.check_all_masters()

    def _rival(self) -> None:
        node = self._somebody()
        if node.up and node.paused_until <= self._world.loop.now_ns:
            group = self._chance.choice(list(node.groups.values()))
            self._prepare(node, group.replica)

    def _prepare(self, node: "SimNode", replica: "Replica") -> None:
        if (
            replica.proposer.role is Role.FOLLOWER
            and replica.can_vote()
            and replica.me in replica.members
        ):
            self._note("rival", node.me, replica.group)
            node.act(replica.group, "prepare")

    def _members(self) -> None:
        """One node joins or leaves a group, if its master is willing."""
        world = self._world
        ident = self._chance.choice(list(world.members))
        for node in world.nodes.values():
            if node.up and node.paused_until <= world.loop.now_ns:
                replica = node.groups[ident].replica
                if replica.can_propose(node.now()):
                    who = self._chance.choice(world.addresses)
                    if who not in replica.members or len(replica.members) > MEMBERS_MIN:
                        world.chosen.members_change(ident)
                        self._note("members", ident, node.me, who)
                        node.act(ident, "members", NodeId(who))
                    return

    # -- aimed --------------------------------------------------------------------------------

    def suspended(self, master: "SimNode", replica: "Replica") -> None:
        """A Steal is leaving `master`: something may go wrong just now."""
        world, chance = self._world, self._chance
        if self._stopped or not world.options.hostile or chance.random() < 0.4:
            return
        assert replica.handover is not None
        target = world.nodes[replica.handover.target]
        others = [n for n in world.nodes.values() if n is not master and n is not target]
        delay = between(chance, 0, 30 * MS)
        after = world.loop.after
        self._note("aim", master.me, target.me)
        match chance.randrange(7):
            case 0:
                after(delay, self.bounce, master)
            case 1:
                after(delay, self.bounce, target)
            case 2 | 3 as way:
                world.network.isolate(
                    master.me, world.addresses, inbound=way == 2, outbound=way == 3
                )
                after(between(chance, 100 * MS, 1_500 * MS), world.network.cut.clear)
            case 4:
                world.network.slow = 0.7
                after(500 * MS, self._not_slow)
            case 5 if others:
                rival = chance.choice(others)
                after(delay, self._rival_at, rival, replica.group)
            case _:
                master.pause(world.loop.now_ns + between(chance, 0, 1_000 * MS))

    def _not_slow(self) -> None:
        self._world.network.slow = 0.0

    def _rival_at(self, node: "SimNode", group: int) -> None:
        if node.up and node.paused_until <= self._world.loop.now_ns and not self._stopped:
            for ident, held in node.groups.items():
                if ident == group:
                    self._prepare(node, held.replica)

    # -- the end of it ------------------------------------------------------------------------

    def _heal(self) -> None:
        self._stopped = True
        self._note("heal")
        self._world.network.heal()
        for node in self._world.nodes.values():
            node.paused_until = 0
            if not node.up:
                node.boot()
            self._set_clock(node)
