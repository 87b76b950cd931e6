"""What goes wrong in a world: faults at random, and faults aimed at the moment a Steal is sent.

Every strike can happen in a real machine room, or is a legal move of the protocol that no timer
would make at that moment (a rival's Prepare). Strikes are numbered, and each has its own dice: one
can be left out without changing the others (simulator/shrink.py).
"""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

from paxos.changes import membership
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId
from paxos.proposer import Role
from simulator.environment.dice import between, dice, exponential
from simulator.environment.options import Fault
from simulator.nemesis.clocks import ClockFaults
from simulator.nemesis.disks import DiskFaults
from simulator.nemesis.false_messages import FalseMessages
from simulator.nemesis.network import NetworkFaults
from simulator.nemesis.surroundings import Surroundings
from simulator.node.crash_points import draw_crash_point
from simulator.node.hosting import leave

if TYPE_CHECKING:
    from paxos.replica import Replica
    from simulator.node.node import SimNode

Strike: TypeAlias = Callable[[Random], None]

FIRST_AT_NS: Final = 2_000 * MS
MEMBERS_MIN: Final = 3
LEAVE_CHANCE: Final = 0.4
JOIN_CHANCE: Final = 0.6
MEMBER_TRIES: Final = 10
TRY_AGAIN_NS: Final = 150 * MS
NOTES_MAX: Final = 30
STALL_NS: Final = 600 * MS
"""Longer than what a simulated coordinator takes for idling (`pause_ms_max`)."""
CORE_CHANCE: Final = 0.6
"""This share of the worlds heals a majority first, and must make progress with it."""


class Nemesis:
    def __init__(self, world: Surroundings) -> None:
        self._world = world
        self._gaps = dice(world.options.seed, "nemesis")
        self.stopped = False
        self.left_out: frozenset[NodeId] = frozenset()
        """Nodes that are still down or cut off when the others have healed."""
        self.busy_until = 0
        """Until then a plot of several steps is under way: random faults would only spoil it."""
        self._timed = self._aimed = 0
        self.struck: list[int] = []
        """The strikes that happened: 1, 2, ... by the clock, -1, -2, ... aimed at a Steal."""
        self.notes: deque[str] = deque(maxlen=NOTES_MAX)
        """Its last actions, for the reader of a shrunk world."""
        self.network = NetworkFaults(world, self)
        self.clocks = ClockFaults(world, self)
        self.disks = DiskFaults(world, self)
        everything: Mapping[Fault, Strike] = {
            Fault.CRASH: self._crash_or_boot,
            Fault.CRASH_ALL: self._crash_all,
            Fault.DOOM: self._doom,
            Fault.PAUSE: self._pause,
            Fault.RIVAL: self._rival,
            Fault.MEMBERS: self._members,
            **self.network.strikes(),
            **self.clocks.strikes(),
            **self.disks.strikes(),
            **FalseMessages(world, self).strikes(),
        }
        assert everything.keys() == set(Fault)
        faults = [everything[fault] for fault in Fault if fault in world.options.faults]
        mends: list[Strike] = [self._mend] * (1 + len(faults) // 2)  # a cluster that is down shows
        self._strikes = faults + mends  # nothing

    def start(self) -> None:
        self.clocks.start()
        self._world.loop.after(FIRST_AT_NS, self._next)
        if self._world.options.stall_every_ns:
            self._world.loop.after(FIRST_AT_NS, self._stall)
        self._world.loop.at(self._world.options.heal_at_ns, self._heal)

    def _next(self) -> None:
        if self.stopped:
            return
        gap = exponential(self._gaps, self._world.options.fault_gap_ns)
        self._world.loop.after(gap, self._next)
        self._timed += 1
        number = self._timed
        if self._world.loop.now_ns >= self.busy_until and self._happens(number):
            chance = dice(self._world.options.seed, "strike", number)
            chance.choice(self._strikes)(chance)

    def _happens(self, number: int) -> bool:
        kept = self._world.options.kept
        if kept is not None and number not in kept:
            return False
        self.struck.append(number)
        return True

    def note(self, what: str, *values: object) -> None:
        world = self._world
        world.trace.note(world.loop.now_ns, what, *values)
        line = f"{world.loop.now_ns / 1e6:10.3f} {what} {' '.join(map(str, values))}"
        self.notes.append(line)

    def later(self, delay_ns: int, call: Callable[..., None], *args: object) -> None:
        """Call it then, unless everything has healed by that time."""

        def unless_healed() -> None:
            if not self.stopped:
                call(*args)

        self._world.loop.after(delay_ns, unless_healed)

    # -- nodes --------------------------------------------------------------------------------

    def _mend(self, chance: Random) -> None:
        if chance.random() < 0.5:
            self.note("mend")
            self._world.network.heal()
        for node in self._world.nodes.values():
            node.disk.mend()
            if not node.up:
                node.boot()

    def _crash_or_boot(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        if node.up:
            self.crash(node, chance)
        else:
            node.boot()

    def crash(self, node: "SimNode", chance: Random) -> None:
        self._world.statistics["crashes"] += 1
        self.note("crashes", node.me)
        node.crash(reboot=chance.random() < 0.5)

    def _crash_all(self, chance: Random) -> None:
        for node in self._world.nodes.values():
            if node.up and chance.random() < 0.9:
                self.bounce(node, chance)

    def bounce(self, node: "SimNode", chance: Random) -> None:
        """Crash, and come back soon."""
        if node.up:
            self.crash(node, chance)
            self._world.loop.after(between(chance, 1 * MS, 300 * MS), self._boot_if_down, node)

    def _boot_if_down(self, node: "SimNode") -> None:
        if not node.up and not self._world.loop.now_ns < self.busy_until:
            node.boot()

    def _doom(self, chance: Random) -> None:
        """A node, preferably a master, dies at its next boundary of some kind."""
        masters = self._world.all_masters()
        node = self._world.somebody(chance)
        if masters and chance.random() < 0.5:
            node = chance.choice(masters)[0]
        checkpoints = self._world.options.checkpoint_slots > 0
        node.doom = None
        if node.up:
            node.doom = draw_crash_point(
                chance, checkpoints=checkpoints, settles=self._world.settles
            )
        self.note("doomed", node.me, node.doom)

    def died(self, node: "SimNode") -> None:
        """A doomed node has reached its end."""
        chance = dice(self._world.options.seed, "doom", node.me, node.life)
        if chance.random() < 0.7:
            self.bounce(node, chance)
        else:
            self.crash(node, chance)

    def _stall(self) -> None:
        """The consumer group's coordinator freezes for a moment, again and again."""
        self.later(self._world.options.stall_every_ns, self._stall)
        node = self._world.deaths.coordinator()
        if node is not None:
            self.note("stall", node.me)
            node.pause(self._world.loop.now_ns + STALL_NS)

    def _pause(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        if node.up:
            length = int(chance.random() * 1.5 * self._world.options.timing.lease_ns)
            self.note("pause", node.me, length)
            node.pause(self._world.loop.now_ns + length)

    def _rival(self, chance: Random) -> None:
        node = self._world.somebody(chance)
        if self._world.runs(node):
            group = chance.choice(list(node.groups.values()))
            self._prepare(node, group.replica)

    def _prepare(self, node: "SimNode", replica: "Replica") -> None:
        if (
            replica.proposer.role is Role.FOLLOWER
            and replica.can_vote()
            and replica.me in replica.members
        ):
            self.note("rival", node.me, replica.group)
            node.act(replica.group, "prepare")

    def _members(self, chance: Random) -> None:
        """One node joins or leaves a group, as soon as the group's master agrees."""
        ident = chance.choice(list(self._world.members))
        self._try_members(chance, ident, MEMBER_TRIES)
        nodes = self._world.nodes.values()
        outside = [one for one in nodes if one.me not in one.groups[ident].replica.members]
        if outside and chance.random() < LEAVE_CHANCE:
            self._leave_group(chance.choice(outside), ident)

    def _try_members(self, chance: Random, ident: GroupId, tries: int) -> None:
        if tries and not self._members_changed(chance, ident):
            self.later(TRY_AGAIN_NS, self._try_members, chance, ident, tries - 1)

    def _members_changed(self, chance: Random, ident: GroupId) -> bool:
        """Only while all vote: a minority of impaired members must not become half."""
        world = self._world
        if self.disks.impaired():
            return False
        for node in world.nodes.values():
            replica = node.groups[ident].replica
            if not (world.runs(node) and replica.can_propose(node.now())):
                continue
            outside = [n for n in world.addresses if n not in replica.members]
            joins = bool(outside) and chance.random() < JOIN_CHANCE
            who = NodeId(chance.choice(outside if joins else list(replica.members)))
            votes = world.nodes[who].groups[ident].replica.rejoin is None
            if (joins and votes) or (not joins and len(replica.members) > MEMBERS_MIN):
                world.chosen.members_change(ident)
                self.note("members", ident, node.me, who)
                return node.act(ident, "members", who) == ""
        return False

    def _leave_group(self, node: "SimNode", ident: GroupId) -> None:
        """A node that is no member drops the group; it may be added again, having forgotten all."""
        world, replica = self._world, node.groups[ident].replica
        registry = ident == REGISTRY_GROUP and (world.brokers or world.options.balancing)
        if world.options.judged or registry or not world.runs(node):
            return
        told = any(  # by the registry, whom a master that knows this would tell
            one.acting(other.now()) and node.me not in one.members and membership.is_settled(one)
            for other in world.nodes.values()
            if world.runs(other)
            for one in (other.groups[ident].replica,)
        )
        if told and replica.me not in replica.members and not world.may_be_member(replica):
            self.note("leaves", ident, node.me)
            leave(node, ident)

    # -- aimed --------------------------------------------------------------------------------

    def suspended(self, master: "SimNode", replica: "Replica") -> None:
        """A Steal is leaving `master`: something may go wrong at this very moment."""
        world = self._world
        self._aimed -= 1
        number = self._aimed
        chance = dice(world.options.seed, "strike", number)
        if self.stopped or not world.options.hostile or world.loop.now_ns < self.busy_until:
            return
        if chance.random() < 0.4 or not self._happens(number):
            return
        assert replica.handover is not None
        target = world.nodes[replica.handover.target]
        self.note("aim", master.me, target.me)
        chance.choice(
            (
                self._bounce_soon,
                self._bounce_soon,
                self._doom_one,
                self._cut_a_while,
                self._cut_a_while,
                self._slow_a_while,
                self._rival_soon,
                self._pause_master,
            )
        )(chance, master, target, replica)

    def _bounce_soon(
        self, chance: Random, master: "SimNode", target: "SimNode", _replica: "Replica"
    ) -> None:
        """The master, the target, or both at once."""
        for node in chance.choice(((master,), (target,), (master, target))):
            self._world.loop.after(between(chance, 0, 30 * MS), self.bounce, node, chance)

    def _doom_one(
        self, chance: Random, master: "SimNode", target: "SimNode", _replica: "Replica"
    ) -> None:
        chance.choice((master, target)).doom = draw_crash_point(chance)

    def _cut_a_while(
        self, chance: Random, master: "SimNode", _target: "SimNode", _replica: "Replica"
    ) -> None:
        world = self._world
        inbound = chance.random() < 0.5
        world.network.isolate(master.me, world.addresses, inbound=inbound, outbound=not inbound)
        world.loop.after(between(chance, 100 * MS, 1_500 * MS), self._end_cut)

    def _end_cut(self) -> None:
        """Unless a plot has begun meanwhile: it ends its own cut."""
        if self._world.loop.now_ns >= self.busy_until:
            self._world.network.cut.clear()

    def _slow_a_while(
        self, _chance: Random, _master: "SimNode", _target: "SimNode", _replica: "Replica"
    ) -> None:
        self.network.slow_a_while(500 * MS)

    def _rival_soon(
        self, chance: Random, master: "SimNode", target: "SimNode", replica: "Replica"
    ) -> None:
        others = [n for n in self._world.nodes.values() if n is not master and n is not target]
        if others:
            delay = between(chance, 0, 30 * MS)
            self._world.loop.after(delay, self._rival_at, chance.choice(others), replica.group)

    def _rival_at(self, node: "SimNode", group: int) -> None:
        if self._world.runs(node) and not self.stopped:
            for ident, held in node.groups.items():
                if ident == group:
                    self._prepare(node, held.replica)

    def _pause_master(
        self, chance: Random, master: "SimNode", _target: "SimNode", _replica: "Replica"
    ) -> None:
        master.pause(self._world.loop.now_ns + between(chance, 0, 1_000 * MS))

    # -- the end of it ------------------------------------------------------------------------

    def _heal(self) -> None:
        """Everything works again; in some worlds all but a minority, which must not be needed."""
        world = self._world
        self.stopped = True
        chance = dice(world.options.seed, "core")
        self.left_out = self._draw_left_out(chance)
        self.note("heal", sorted(self.left_out))
        world.network.heal()
        for node in world.nodes.values():
            node.paused_until = 0
            node.doom = None
            node.disk.mend()
            if node.me in self.left_out:
                self._leave_out(node, chance)
            elif not node.up:
                node.boot()
        self.clocks.heal()

    def _draw_left_out(self, chance: Random) -> frozenset[NodeId]:
        """Leaves out so few that a majority of every group's members is healed and votes; also of
        those that it may have soon (seed 158: a membership change was chosen after the heal, and
        then the two that were left out were half of the group)."""
        world, out = self._world, set(self.disks.impaired())
        left_out: set[NodeId] = set()
        order = [NodeId(node) for node in world.addresses]
        chance.shuffle(order)
        for node in order if chance.random() < CORE_CHANCE else ():
            groups = [some for group in world.members for some in world.configurations(group)]
            if all(2 * len(set(some) - out - {node}) > len(some) for some in groups):
                out.add(node)
                left_out.add(node)
        return frozenset(left_out)

    def _leave_out(self, node: "SimNode", chance: Random) -> None:
        world = self._world
        if node.up and chance.random() < 0.5:
            self.crash(node, chance)
        clients = [client.address for client in world.clients]
        world.network.isolate(node.me, [*world.addresses, *clients])

    def heal_rest(self) -> None:
        """The majority has shown that it can do without the others; now they come back, too."""
        self._world.network.heal()
        for ident in sorted(self.left_out):
            node = self._world.nodes[ident]
            if not node.up:
                node.boot()
        self.left_out = frozenset()
