"""What goes wrong between nodes, and between them and their clients."""

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING

import attrs

from paxos.ids import MS, GroupId, Incarnation, Slot
from simulator.environment.dice import between
from simulator.environment.network import Quality
from simulator.environment.options import Fault
from simulator.nemesis.surroundings import Conductor, Surroundings

if TYPE_CHECKING:
    from simulator.node.node import SimNode


STALL_MS_MIN, STALL_MS_MAX = 300, 5_000


class NetworkFaults:
    def __init__(self, world: Surroundings, nemesis: Conductor) -> None:
        self._world = world
        self._nemesis, self._note = nemesis, nemesis.note

    def strikes(self) -> Mapping[Fault, Callable[[Random], None]]:
        return {
            Fault.CUT_ONE: lambda chance: self._cut(chance, inbound=True, outbound=True),
            Fault.CUT_ONE_WAY: self._cut_one_way,
            Fault.CUT_HALVES: self._cut_halves,
            Fault.CUT_RING: self._cut_ring,
            Fault.CUT_MASTER: self._cut_master,
            Fault.CUT_CLIENTS: self._cut_clients,
            Fault.SWIZZLE: self._swizzle,
            Fault.LOSSY: self._lossy,
            Fault.BAD_LINK: self._bad_link,
            Fault.ECHO: self._echo,
            Fault.STALL: self._stall,
        }

    def _cut_one_way(self, chance: Random) -> None:
        inbound = chance.random() < 0.5
        self._cut(chance, inbound=inbound, outbound=not inbound)

    def _cut(self, chance: Random, *, inbound: bool, outbound: bool) -> None:
        node = self._world.somebody(chance).me
        others = [o for o in self._world.addresses if chance.random() < 0.9]
        self._note("cut", node, "in" * inbound, "out" * outbound, others)
        self._world.network.isolate(node, others, inbound=inbound, outbound=outbound)

    def _cut_halves(self, chance: Random) -> None:
        left = [node for node in self._world.addresses if chance.random() < 0.5]
        self._note("halves", left)
        for one in left:
            rest = [node for node in self._world.addresses if node not in left]
            self._world.network.isolate(one, rest)

    def _cut_ring(self, chance: Random) -> None:
        """Each node hears a majority, and no two the same one (exam.md, majorities-ring)."""
        ring = list(self._world.addresses)
        chance.shuffle(ring)
        count = len(ring)
        near = (count // 2 + 1) // 2  # so many on either side are a majority with oneself
        self._note("ring", ring)
        for at, one in enumerate(ring):
            for away in range(near + 1, count - near):
                self._world.network.isolate(one, [ring[(at + away) % count]])

    def _cut_master(self, chance: Random) -> None:
        masters = self._world.all_masters()
        if masters:
            node = chance.choice(masters)[0]
            inbound, outbound = chance.choice(((True, True), (True, False), (False, True)))
            self._note("cut master", node.me, inbound, outbound)
            network = self._world.network
            network.isolate(node.me, self._world.addresses, inbound=inbound, outbound=outbound)

    def _cut_clients(self, chance: Random) -> None:
        """Clients reach only one node, or all nodes but that one (exam.md R8)."""
        node = self._world.somebody(chance).me
        clients = [client.address for client in self._world.clients]
        only = chance.random() < 0.5
        self._note("cut clients", node, only)
        for address in self._world.addresses:
            if (address == node) != only:
                self._world.network.isolate(address, clients)

    def _swizzle(self, chance: Random) -> None:
        """Clog some nodes one after another, then unclog them in another order (FoundationDB)."""
        world = self._world
        some = [node for node in world.addresses if chance.random() < 0.6]
        step = between(chance, 10, 300) * MS
        self._note("swizzle", some, step)
        for index, node in enumerate(some):
            world.loop.after(index * step, self._clog, node)
        start = (len(some) + between(chance, 0, 3)) * step
        chance.shuffle(some)
        for index, node in enumerate(some):
            world.loop.after(start + index * step, world.network.unclog, node)

    def _clog(self, node: int) -> None:
        if not self._nemesis.stopped:
            self._world.network.clog(node)

    def _lossy(self, chance: Random) -> None:
        self._world.network.quality = _draw_quality(chance)
        self._note("lossy", self._world.network.quality)

    def _bad_link(self, chance: Random) -> None:
        """One direction between two nodes, or everything that one of them sends."""
        network, addresses = self._world.network, self._world.addresses
        source = chance.choice(addresses)
        targets = addresses if chance.random() < 0.5 else [chance.choice(addresses)]
        quality = _draw_quality(chance)
        self._note("bad link", source, targets, quality)
        for target in targets:
            network.links[source, target] = quality

    def _echo(self, chance: Random) -> None:
        self._note("echo")
        for _ in range(chance.randint(1, 20)):
            self._world.network.echo(chance, self._world.addresses)

    def _stall(self, chance: Random) -> None:
        """The link to a master, or from a master to a node that takes a group from it now, mostly
        for longer than a lease: forwarded commands come late. The others' answers are slow, so that
        there is something to drain."""
        world, masters = self._world, self._world.all_masters()
        if not masters:
            return
        master, group = chance.choice(masters)
        replica = master.groups[group].replica
        others = [node for node in replica.members if node != master.me]
        if not others:
            return
        target = chance.choice(others)
        length_ns = between(chance, STALL_MS_MIN, STALL_MS_MAX) * MS
        self._note("stall", master.me, target, group, length_ns)
        if chance.random() < 0.4:
            self._stall_link((target, master.me), length_ns)
            return
        self._stall_link((master.me, target), length_ns)
        drain_ns = int(chance.random() * replica.timing.drain_ns)
        for node in others:
            if node != target:
                self._stall_link((node, master.me), drain_ns)
        taker = world.nodes[target]
        if not world.runs(taker):
            return
        if taker.balancing is not None:
            taker.balancing.place(group, target)
        else:
            delay_ns = int(chance.random() * drain_ns)
            incarnation, ver = taker.core.incarnation, replica.lease.ver
            world.loop.after(delay_ns, self._take, taker, group, incarnation, ver)

    def _take(self, node: "SimNode", group: GroupId, incarnation: Incarnation, ver: Slot) -> None:
        if self._world.runs(node) and not self._nemesis.stopped:
            node.ask_for(group, incarnation, ver, 0)

    def _stall_link(self, link: tuple[int, int], length_ns: int) -> None:
        network = self._world.network
        network.stall(link)
        self._world.loop.after(length_ns, network.flow, link)

    def slow_a_while(self, length_ns: int) -> None:
        network = self._world.network
        before = network.quality
        network.quality = attrs.evolve(before, slow=0.7)
        self._world.loop.after(length_ns, self._not_slow)

    def _not_slow(self) -> None:
        network = self._world.network
        network.quality = attrs.evolve(network.quality, slow=0.0)


def _draw_quality(chance: Random) -> Quality:
    return Quality(
        loss=chance.choice((0.0, 0.01, 0.05, 0.3)),
        duplication=chance.choice((0.0, 0.1, 0.5)),
        slow=chance.choice((0.0, 0.0, 0.05, 0.3)),
        slow_mean_ns=between(chance, 20, 800) * MS,
        late=chance.choice((0.0, 0.002, 0.02)),
    )
