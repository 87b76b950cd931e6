"""What hurts whole nodes: each strike now and then, and something heals it later."""

import errno
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from balancer.registry.commands import MergePlacement
from paxos.ids import MS, GroupId, NodeId
from simulator.environment.dice import between, dice, exponential
from simulator.environment.loop import Loop
from simulator.environment.trace import Trace
from simulator.whole.host import Host
from simulator.whole.links import WorldLinks
from simulator.whole.options import Fault, WholeOptions

START_NS_MAX: Final = 300 * MS
FIRST_NS: Final = 3_000 * MS
"""The cluster is founded by then, as a rule; some are not."""


class Struck(NamedTuple):
    """What was hurt how, from when to when: a restart or an end that is scheduled counts, too."""

    fault: Fault
    since_ns: int
    until_ns: int


class Client(Protocol):
    address: int


class Hurt(Protocol):
    """The world, as far as it is hurt."""

    options: WholeOptions
    loop: Loop
    trace: Trace
    statistics: Counter[str]
    links: WorldLinks
    nodes: dict[NodeId, Host]
    addresses: list[int]
    struck: list[Struck]
    healed: bool

    @property
    def clients(self) -> Sequence[Client]: ...

    def add_host(self, node: NodeId) -> Host:
        """A machine that the cluster knows as a node from now on."""
        ...


class Strikes(ABC):
    """Strikes about one subject. Each subject has dice of its own, so that a fault which is drawn
    for one of them does not change what the others do."""

    name: str

    def __init__(self, world: Hurt) -> None:
        self._world = world
        self._chance = dice(world.options.seed, self.name)
        self._strikes = self._all()
        self._fault: Fault | None = None
        """The last one."""
        mine = world.options.faults & self._strikes.keys()
        self._mine = sorted(mine, key=lambda one: one.value)

    @abstractmethod
    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        """What it can do, by fault."""

    def start(self) -> None:
        if self._mine:
            self._world.loop.at(FIRST_NS, self._strike)

    def _strike(self) -> None:
        world = self._world
        if world.healed or world.loop.now_ns >= world.options.heal_at_ns:
            return
        gap_ns = 10 * MS + exponential(self._chance, world.options.fault_gap_ns)
        world.loop.after(gap_ns, self._strike)
        fault = self._chance.choice(self._mine)
        world.statistics[f"fault: {fault.value}"] += 1
        self._fault = fault
        self._lasts(world.loop.now_ns)
        self._strikes[fault]()

    def _lasts(self, until_ns: int, fault: Fault | None = None) -> None:
        """Note how long the last strike, or this fault, goes on."""
        fault = fault or self._fault
        if fault is not None:
            self._world.struck.append(Struck(fault, self._world.loop.now_ns, until_ns))

    def heal(self) -> None:  # noqa: B027  (most of it ends by itself)
        """What it has done that does not end by itself."""

    def _note(self, what: str, *values: object) -> None:
        self._world.trace.note(self._world.loop.now_ns, "nemesis", what, *values)

    def _one(self, strike: Callable[[Host], None]) -> None:
        host = self._chance.choice([*self._world.nodes.values()])
        if host.up:
            strike(host)

    def _soon(self, most_ms: int, act: Callable[[], None]) -> None:
        after_ns = between(self._chance, 20, most_ms) * MS
        self._lasts(self._world.loop.now_ns + after_ns)
        self._world.loop.after(after_ns, act)

    def _boot(self, host: Host) -> None:
        if not host.up and not host.retired:
            host.boot()


class Nemesis(Strikes):
    """Processes, machines, links, disks, masters."""

    name = "nemesis"

    def _all(self) -> Mapping[Fault, Callable[[], None]]:
        return {
            Fault.KILL: partial(self._one, self._kill),
            Fault.POWER: partial(self._one, self._power),
            Fault.POWER_ALL: self._power_all,
            Fault.CUT: partial(self._one, self._cut),
            Fault.CUT_ONE_WAY: partial(self._one, self._cut_one_way),
            Fault.BRIDGE: self._bridge,
            Fault.CUT_CLIENTS: partial(self._one, self._cut_clients),
            Fault.SLOW_LINK: partial(self._one, self._slow_link),
            Fault.RESET: partial(self._one, self._reset),
            Fault.PAUSE: partial(self._one, self._pause),
            Fault.SLOW_DISK: partial(self._one, self._slow_disk),
            Fault.HUNG_DISK: partial(self._one, self._hung_disk),
            Fault.FULL_DISK: partial(self._one, self._full_disk),
            Fault.FAILED_DISK: partial(self._one, self._failed_disk),
            Fault.CLOCK: partial(self._one, self._clock),
            Fault.PLACES: self._places,
        }

    def start_ns(self) -> int:
        """When a machine is switched on."""
        return between(self._chance, 0, START_NS_MAX)

    # -- processes and machines ---------------------------------------------------------------

    def _kill(self, host: Host) -> None:
        self._note("kill", host.me)
        host.kill()
        self._soon(4_000, partial(self._boot, host))

    def _power(self, host: Host) -> None:
        self._note("power", host.me)
        host.cut_power(self._chance)
        self._soon(6_000, partial(self._boot, host))

    def _power_all(self) -> None:
        for host in self._world.nodes.values():
            if host.up and self._chance.random() < 0.9:
                self._power(host)

    def _pause(self, host: Host) -> None:
        assert host.process is not None
        until_ns = self._world.loop.now_ns + between(self._chance, 100, 5_000) * MS
        self._note("pause", host.me, until_ns)
        self._lasts(until_ns)
        host.process.stand_still(until_ns)

    def _clock(self, host: Host) -> None:
        """Within what a margin allows: more is for the worlds of clocks alone."""
        margin_ns = self._world.options.lease_ms * MS // 16
        offset_ns = between(self._chance, -margin_ns // 3, margin_ns // 3)
        self._note("clock", host.me, offset_ns)
        host.clock.step(self._world.loop.now_ns, offset_ns)

    # -- links --------------------------------------------------------------------------------

    def _others(self, host: Host) -> list[int]:
        return [address for address in self._world.addresses if address != host.address]

    def _cut_links(self, links: list[tuple[int, int]], most_ms: int = 8_000) -> None:
        self._world.links.cut.update(links)
        self._soon(most_ms, partial(self._world.links.cut.difference_update, links))

    def _cut(self, host: Host) -> None:
        self._note("cut", host.me)
        others = self._others(host)
        self._cut_links([(host.address, one) for one in others])
        self._cut_links([(one, host.address) for one in others])

    def _cut_one_way(self, host: Host) -> None:
        out = self._chance.random() < 0.5
        self._note("cut one way", host.me, out)
        self._cut_links(
            [(host.address, one) if out else (one, host.address) for one in self._others(host)]
        )

    def _bridge(self) -> None:
        if len(self._world.addresses) > 2:
            one, two = self._chance.sample(self._world.addresses, 2)
            self._note("bridge", one, two)
            self._cut_links([(one, two), (two, one)])

    def _cut_clients(self, host: Host) -> None:
        self._note("cut clients", host.me)
        clients = [client.address for client in self._world.clients]
        self._cut_links([(host.address, one) for one in clients])
        self._cut_links([(one, host.address) for one in clients])

    def _slow_link(self, host: Host) -> None:
        other = self._chance.choice(self._others(host) or [host.address])
        link = (host.address, other)
        self._note("slow link", link)
        slow = self._world.links.slow
        slow[link] = between(self._chance, 20, 1_500) * MS
        self._soon(6_000, partial(_drop, slow, link))

    def _reset(self, host: Host) -> None:
        self._note("reset", host.me)
        assert host.machine is not None
        for stream in [*host.machine.streams]:
            if self._chance.random() < 0.7:
                stream.incoming.break_off()
                stream.outgoing.break_off()

    # -- disks --------------------------------------------------------------------------------

    def _slow_disk(self, host: Host) -> None:
        self._note("slow disk", host.me)
        host.disk.slow_ns = between(self._chance, 20, 500) * MS
        self._soon(8_000, partial(setattr, host.disk, "slow_ns", 0))

    def _hung_disk(self, host: Host) -> None:
        self._note("hung disk", host.me)
        host.disk.hung = True
        self._soon(8_000, partial(setattr, host.disk, "hung", False))

    def _full_disk(self, host: Host) -> None:
        self._note("full disk", host.me)
        host.disk.fill()
        self._soon(8_000, host.disk.empty)

    def _failed_disk(self, host: Host) -> None:
        self._note("failed disk", host.me)
        host.disk.fail_soon("fdatasync", errno.EIO)

    # -- masters ------------------------------------------------------------------------------

    def _places(self) -> None:
        """An operator has a group's master somewhere else."""
        options = self._world.options
        host = self._chance.choice([*self._world.nodes.values()])
        group = GroupId(self._chance.randrange(options.groups + 1))
        node = NodeId(self._chance.choice(self._world.addresses))
        if host.node is not None:
            self._note("place", group, node)
            client = host.node.client
            host.do(partial(client.propose, MergePlacement(None, group, node), nothing))

    # -- the end ------------------------------------------------------------------------------

    def heal(self) -> None:
        self._note("heal")
        self._world.links.heal()
        for host in self._world.nodes.values():
            host.disk.mend()
            if host.process is not None:
                host.process.stand_still(0)
            self._boot(host)


def _drop(slow: dict[tuple[int, int], int], link: tuple[int, int]) -> None:
    slow.pop(link, None)


def nothing(_result: object) -> None:
    """Nobody waits for it."""
