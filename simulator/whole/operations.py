"""What operators and orchestrators do to nodes, and what befalls members of consumer groups."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from balancer.registry.commands import MergePlacement
from paxos.ids import MS, GroupId, NodeId
from simulator.clients.member import Member
from simulator.environment.dice import between
from simulator.environment.violation import Violation
from simulator.whole.host import Host
from simulator.whole.nemesis import Hurt, Strikes, nothing
from simulator.whole.options import Fault

LOOK_NS: Final = 100 * MS
STOP_NS_MAX: Final = 60_000 * MS
"""Draining, and each thread that is waited for; a disk that hangs, and stopped processes."""
AWAY_MS_MAX: Final = 10_000
"""So long a consumer stays away that has died: its group must find that out by itself."""
MOVE_LOOK_NS: Final = MS
MOVE_NS: Final = 3_000 * MS
"""A move that takes longer is not waited for."""
AFTER_MS: Final = 40
"""At most so long after the new master took the group it is hit."""
CUT_MS: Final = (2_500, 6_500)
"""Some longer than what is forwarded is waited for (runtime.engine.forwarding), some shorter."""
CALM: Final = frozenset({Fault.STOP, Fault.ROLL, Fault.MEMBER_DIES, Fault.MEMBER_STALLS})
"""Where nothing else happens, whoever stops has given all its masters away."""


class Operations(Strikes):
    name = "operations"

    def __init__(self, world: Hurt) -> None:
        super().__init__(world)
        self._calm = world.options.faults <= CALM and world.options.replicas > 1
        self._asked: dict[NodeId, tuple[int, bool]] = {}
        """Who was told to stop: when, and whether all others were ready to take its masters."""
        self._rolling: list[NodeId] = []
        """Who is still to be restarted, the next one last."""

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.STOP: partial(self._one, self._stop),
            Fault.ROLL: self._roll,
            Fault.OTHER_VERSION: partial(self._one, self._change_version),
            Fault.MEMBER_DIES: self._member_dies,
            Fault.MEMBER_STALLS: self._member_stalls,
        }

    # -- stopping -----------------------------------------------------------------------------

    def _stop(self, host: Host) -> None:
        if host.stopping:
            return
        self._note("stop", host.me)
        others = [one for one in self._world.nodes.values() if one is not host]
        ready = all(one.node is not None and not one.node.shell.not_ready() for one in others)
        alone = ready and not self._asked and bool(others)
        self._asked[host.me] = self._world.loop.now_ns, alone
        host.stop()
        if not host.up:  # it had not begun to listen to signals
            del self._asked[host.me]
            self._soon(3_000, partial(self._boot, host))

    def stopped(self, host: Host, masters_left: int) -> None:
        """It was told to, and has."""
        world = self._world
        world.statistics["nodes stopped"] += 1
        self._lasts(world.loop.now_ns, Fault.STOP)
        since_ns, alone = self._asked.pop(host.me, (world.loop.now_ns, False))
        took_ns = world.loop.now_ns - since_ns
        if took_ns > STOP_NS_MAX:
            raise Violation(f"stop: node {host.me} took {took_ns / 1e9:.1f} s to stop")
        if self._calm and alone and masters_left:
            raise Violation(f"drain: node {host.me} stops, and has {masters_left} masters")
        self._soon(3_000, partial(self._boot, host))

    def _roll(self) -> None:
        if not self._rolling:
            self._rolling = sorted(one.me for one in self._world.nodes.values() if not one.retired)
            self._chance.shuffle(self._rolling)
            self._world.loop.after(0, self._next)

    def _next(self) -> None:
        """The next one is stopped when all are ready, as who restarts a cluster should do it."""
        hosts = [one for one in self._world.nodes.values() if not one.retired]
        if self._world.healed or not self._rolling:
            self._rolling = []
            return
        if all(one.node is not None and not one.node.shell.not_ready() for one in hosts):
            host = self._world.nodes[self._rolling.pop()]
            if not host.retired:
                self._stop(host)
        self._world.loop.after(LOOK_NS, self._next)

    # -- versions -----------------------------------------------------------------------------

    def _change_version(self, host: Host) -> None:
        """One is upgraded before the others, or set back; later the mistake is mended."""
        if any(one.version for one in self._world.nodes.values()) or host.stopping:
            return
        self._note("another version", host.me)
        self._world.statistics["other versions"] += 1
        host.kill()
        host.version = self._chance.choice((-1, 1))
        self._soon(1_000, partial(self._boot, host))
        self._soon(9_000, partial(self._mend_version, host))

    def _mend_version(self, host: Host) -> None:
        if host.version:
            self._note("the version of all", host.me)
            host.kill()
            host.version = 0
            self._soon(1_000, partial(self._boot, host))

    def heal(self) -> None:
        for one in self._world.clients:
            if isinstance(one, Member):
                one.doomed_ns = 0
        for host in self._world.nodes.values():
            self._mend_version(host)

    # -- members of consumer groups -----------------------------------------------------------

    def _member(self) -> Member | None:
        members = [one for one in self._world.clients if isinstance(one, Member)]
        return self._chance.choice(members) if members else None

    def _member_dies(self) -> None:
        member = self._member()
        if member is not None:
            self._note("a member is to die", member.address)
            member.doomed_ns = between(self._chance, 100, AWAY_MS_MAX) * MS
            self._lasts(self._world.loop.now_ns + member.doomed_ns)

    def _member_stalls(self) -> None:
        member = self._member()
        if member is not None:
            ns = between(self._chance, 200, 6_000) * MS
            self._note("a member stalls", member.address, ns)
            self._lasts(self._world.loop.now_ns + ns)
            member.stall(ns)


class Moves(Strikes):
    """Strikes at the moment a group moves: its new master is cut off, from all or from the old one,
    in one direction or both, or loses its connections, while the old one forwards to it what its
    clients had sent before they knew. What is forwarded then is chosen late, or its outcome is
    heard of late or never: whoever is told that it was not done must be right.
    """

    name = "moves"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {Fault.CUT_TAKER: self._move}

    def _move(self) -> None:
        """An operator has a group's master somewhere else."""
        world, chance = self._world, self._chance
        asked = chance.choice([*world.nodes.values()])
        group = GroupId(1 + chance.randrange(world.options.groups))
        taker = world.nodes[NodeId(chance.choice(world.addresses))]
        if asked.node is not None and not self._leads(taker, group):
            self._note("move", group, taker.me)
            client = asked.node.client
            asked.do(partial(client.propose, MergePlacement(None, group, taker.me), nothing))
            giver = next((one for one in world.nodes.values() if self._leads(one, group)), asked)
            self._wait(taker, giver, group, world.loop.now_ns + MOVE_NS)

    def _wait(self, taker: Host, giver: Host, group: GroupId, until_ns: int) -> None:
        loop = self._world.loop
        if self._leads(taker, group):
            loop.after(between(self._chance, 0, AFTER_MS) * MS, self._hit, taker, giver)
        elif loop.now_ns < until_ns and not self._world.healed:
            loop.after(MOVE_LOOK_NS, self._wait, taker, giver, group, until_ns)

    @staticmethod
    def _leads(host: Host, group: GroupId) -> bool:
        replica = None if host.node is None else host.node.multi.replicas.get(group)
        return replica is not None and replica.lease.holder == host.me

    def _hit(self, taker: Host, giver: Host) -> None:
        world, chance = self._world, self._chance
        if world.healed or taker.machine is None:
            return
        world.statistics["new masters hit"] += 1
        if chance.random() < 0.25:
            self._note("reset at its taking", taker.me)
            self._lasts(world.loop.now_ns, Fault.CUT_TAKER)
            for stream in [*taker.machine.streams]:
                stream.incoming.break_off()
                stream.outgoing.break_off()
            return
        others = [one for one in world.addresses if one != taker.address]
        if chance.random() < 0.5:
            others = [giver.address]
        links = [(taker.address, one) for one in others]
        if chance.random() < 0.5:
            links += [(one, taker.address) for one in others]
        self._note("cut at its taking", taker.me, links)
        world.links.cut.update(links)
        after_ms = between(chance, *CUT_MS)
        self._lasts(world.loop.now_ns + after_ms * MS, Fault.CUT_TAKER)
        world.loop.after(after_ms * MS, partial(world.links.cut.difference_update, links))
