"""What is looked at all the time, from outside: holes under faults, accounts and their bounds.

Holes: as long as a majority of a partition's group is healthy and connected, with each other and
with the clients, something must be acknowledged now and then. Counted anew where one of that
majority is hit. Bounds: what a node says that it holds for others is what it holds, and no more
than its limits. Starvation: after the heal every single client gets on, the quiet ones too.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Final, Protocol

import attrs

from paxos.ids import MS, GroupId, NodeId
from runtime.clients.limits import UNANSWERED_BYTES_MAX, UNANSWERED_MAX
from simulator.checkers.partition_logs import PartitionLogs
from simulator.clients.kafka_client import TOPIC
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation
from simulator.whole.checkers.contact import Contact
from simulator.whole.checkers.figures import Figures
from simulator.whole.host import Host
from simulator.whole.links import WorldLinks
from simulator.whole.nemesis import Struck
from simulator.whole.options import FIRST, Fault, WholeOptions

LOOK_NS: Final = 200 * MS
VAIN_NS: Final = 2_000 * MS
"""For each node that is hurt: it is asked in vain."""
HEALED_NS: Final = 6_000 * MS
"""Where nothing hurts: requests that are not answered, pauses, other nodes that are asked in vain,
and one lease."""
ECHO_NS: Final = 10_000 * MS
"""So long what a fault has done to connections may go on after its end."""
TOLD_S: Final = 3
"""Shorter holes are not counted."""
ONE_READ_BYTES: Final = 256 * 1024
"""What comes with one read from a socket is taken, whatever the bound is."""
STARVED_NS: Final = 12_000 * MS
_LOST_MASTER: Final = 2, 7_000 * MS
"""Its lease ends, somebody else is elected, and perhaps not at once."""
_MOVED_MASTER: Final = 1, 7_000 * MS
_NOTHING: Final = 1, HEALED_NS
BOUNDS: Final[Mapping[Fault, tuple[int, int]]] = {
    **dict.fromkeys(FIRST, _LOST_MASTER),
    Fault.CUT_TAKER: _LOST_MASTER,
    Fault.STOP: _MOVED_MASTER,
    Fault.PLACES: _MOVED_MASTER,
    Fault.RESET: _MOVED_MASTER,
    Fault.CLOCK: _NOTHING,
    Fault.MEMBER_DIES: _NOTHING,
    Fault.MEMBER_STALLS: _NOTHING,
}
"""By fault: so many leases, and so long beside, may a partition go without an acknowledgement that
a healthy and connected majority could give. Worlds with other faults have holes of other causes:
members that change, logs that are lost."""


class Client(Protocol):
    address: int
    name: str
    progress: int


class Watched(Protocol):
    options: WholeOptions
    loop: Loop
    statistics: Counter[str]
    links: WorldLinks
    nodes: dict[NodeId, Host]
    partition_logs: PartitionLogs
    healed_ns: int | None
    quiet: bool

    @property
    def struck(self) -> Sequence[Struck]: ...

    @property
    def clients(self) -> Sequence[Client]: ...


@attrs.define
class _Hole:
    """Of one partition: up to where it was acknowledged, since when, and who could have gone on."""

    to: int
    since_ns: int
    able: frozenset[NodeId]
    told_s: int = 0


class Watch:
    def __init__(self, world: Watched) -> None:
        self._world = world
        self._holes: dict[int, _Hole] = {}
        self._steps: dict[int, tuple[int, int]] = {}
        """Client -> its progress, and since when."""
        self._counts: Mapping[str, int] = {}
        self._last = "none"
        self.longest_ns = 0
        """Of all holes."""
        self._counts_holes = world.options.faults <= BOUNDS.keys()
        self._contact, self.figures = Contact(world), Figures(world)

    def start(self) -> None:
        self._look()

    def _look(self) -> None:
        world = self._world
        if world.quiet:
            return
        world.loop.after(LOOK_NS, self._look)
        for host in world.nodes.values():
            if host.node is not None:
                check_accounts(host)
        self._contact.look()
        self.figures.look()
        self._find_fault()
        if self._counts_holes or world.healed_ns is not None:
            self._look_for_holes()
        if world.healed_ns is not None:
            self._look_for_starved()

    def _find_fault(self) -> None:
        counts = {
            name: count for name, count in self._world.statistics.items() if "fault: " in name
        }
        news = [name for name, count in counts.items() if count != self._counts.get(name)]
        if news:
            self._counts, self._last = counts, news[-1].removeprefix("fault: ")

    # -- holes --------------------------------------------------------------------------------

    def _look_for_holes(self) -> None:
        world, now = self._world, self._world.loop.now_ns
        for number, log in world.partition_logs.logs.items():
            able, bad = self._able(number)
            hole = self._holes.get(number)
            goes_on = hole is not None and hole.to == log.acknowledged_to and able
            if hole is None or not goes_on or not hole.able <= able:
                self._holes[number] = _Hole(log.acknowledged_to, now, able)
                continue
            hole.able = able
            waited_ns = now - hole.since_ns
            self.longest_ns = max(self.longest_ns, waited_ns)
            if waited_ns // 1_000_000_000 >= max(TOLD_S, hole.told_s + 1):
                hole.told_s = waited_ns // 1_000_000_000
                world.statistics[f"holes of {hole.told_s} s after: {self._last}"] += 1
            most_ns, kinds = self._bound(hole.since_ns, bad)
            if waited_ns > most_ns:
                raise Violation(
                    f"hole: partition {number} has had nothing for {waited_ns / 1e9:.1f} s, "
                    f"though {sorted(able)} could; {kinds} may cost {most_ns / 1e9:.1f} s"
                )

    def _bound(self, since_ns: int, bad: int) -> tuple[int, str]:
        """How long a hole that began then may be, and the faults that make it so long."""
        world = self._world
        kinds: set[Fault] = set()
        if world.healed_ns is None:
            kinds = {one.fault for one in world.struck if one.until_ns + ECHO_NS >= since_ns}
        lease_ns = world.options.lease_ms * MS
        allowed = {kind: BOUNDS[kind][0] * lease_ns + BOUNDS[kind][1] for kind in kinds}
        most_ns = max([_NOTHING[0] * lease_ns + _NOTHING[1], *allowed.values()])
        names = sorted(kind.name for kind, ns in allowed.items() if ns == most_ns)
        vain_ns = bad * VAIN_NS if world.healed_ns is None else 0
        return most_ns + vain_ns, ", ".join(names) or "nothing that was done"

    def _able(self, partition: int) -> tuple[frozenset[NodeId], int]:
        """A majority of its group that could go on, empty if there is none; and how many nodes
        clients may ask in vain."""
        healthy = [host for host in self._world.nodes.values() if self._healthy(host)]
        bad = len(self._world.nodes) - len(healthy)
        members: frozenset[NodeId] = frozenset()
        for host in healthy:
            assert host.node is not None
            topic = host.node.registry.topic(TOPIC)
            if topic is not None:
                group = GroupId(topic.partitions[partition].group)
                members = frozenset(host.node.engine.members(group))
                break
        there = [host.me for host in healthy if host.me in members]
        most = len(members) // 2 + 1
        for size in range(len(there), most - 1, -1):
            for able in combinations(there, size):
                if all(self._connected(one, two) for one, two in combinations(able, 2)):
                    return frozenset(able), bad
        return frozenset(), bad

    def _healthy(self, host: Host) -> bool:
        world, disk = self._world, host.disk
        if host.node is None or host.process is None or not host.process.runs():
            return False
        if disk.hung or disk.slow_ns or disk.capacity_bytes is not None or disk.may_fail:
            return False
        ends = [client.address for client in world.clients]
        hurt = world.links.cut | world.links.slow.keys()
        return not any((host.address, end) in hurt or (end, host.address) in hurt for end in ends)

    def _connected(self, one: int, two: int) -> bool:
        hurt = self._world.links.cut | self._world.links.slow.keys()
        return (one, two) not in hurt and (two, one) not in hurt

    # -- starvation ---------------------------------------------------------------------------

    def _look_for_starved(self) -> None:
        now = self._world.loop.now_ns
        for client in self._world.clients:
            steps, since_ns = self._steps.get(client.address, (-1, now))
            if steps != client.progress:
                self._steps[client.address] = client.progress, now
            elif now - since_ns > STARVED_NS + 2 * self._world.options.lease_ms * MS:
                waited_s = (now - since_ns) / 1e9
                raise Violation(f"starved: {client.name} has got no step on for {waited_s:.1f} s")


def check_accounts(host: Host) -> None:
    """What the node counts is what there is, and within its limits."""
    node = host.node
    assert node is not None
    memory, clients = node.memory, node.clients.connections
    requests = sum(client.unanswered_bytes for client in clients)
    answers = sum(client.answer_bytes for client in clients)
    if (memory.requests, memory.answers) != (requests, answers):
        raise Violation(
            f"account: node {host.me} counts {memory.requests} and {memory.answers} bytes of "
            f"requests and answers, its clients have {requests} and {answers}"
        )
    begun = sum(0 if client.channel is None else client.channel.holds_bytes for client in clients)
    if memory.frames != begun:
        raise Violation(
            f"account: node {host.me} counts {memory.frames} bytes of requests that have begun, "
            f"its clients hold {begun}"
        )
    most = memory.incoming_max + len(clients) * ONE_READ_BYTES
    if memory.incoming > most or memory.incoming < 0:
        raise Violation(f"bound: node {host.me} has {memory.incoming} bytes that came in")
    if memory.answers > memory.outgoing_max:
        raise Violation(f"bound: node {host.me} has {memory.answers} bytes of answers")
    for client in clients:
        small = len(client.queue) <= UNANSWERED_MAX + ONE_READ_BYTES // 64
        if not small or client.unanswered_bytes > UNANSWERED_BYTES_MAX + ONE_READ_BYTES:
            raise Violation(f"bound: node {host.me} has {len(client.queue)} requests of one")
    for group, intake in node.engine.intakes.items():
        limits = intake.config
        if intake.queue_bytes > limits.refuse_bytes_max + ONE_READ_BYTES:
            raise Violation(f"bound: {intake.queue_bytes} bytes wait in group {group}")
        if intake.queue_bytes != sum(one.size for one in intake.queue):
            raise Violation(f"account: the queue of group {group} is not {intake.queue_bytes}")
