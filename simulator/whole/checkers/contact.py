"""Who acts for a group, and who serves clients: seen from outside, several times a second.

I4: two nodes act as master of one group at the same time. `captive`: a node whose links to all
others have been cut for long still has clients. `blame`: a node takes itself for cut off though a
majority ran, and the links to it were whole, for longer than a connection takes to be made anew.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import attrs

from paxos.clocks.clock import Clock
from paxos.clocks.trust import Trust
from paxos.ids import MS, GroupId, NodeId, Now
from runtime.membership.quorum_contact import ANSWER_LASTS_NS, BLINK_NS, CLOSE_NS_LEAST
from simulator.environment.loop import Loop
from simulator.environment.violation import Violation
from simulator.whole.host import Host
from simulator.whole.links import WorldLinks
from simulator.whole.options import Fault, WholeOptions

SLACK_NS: Final = 1_000 * MS
"""Looks of the node, and of this checker; and what was under way when the links were cut."""
MADE_ANEW_NS: Final = 16_000 * MS
"""So long a connection may be taken for whole that is not (USER_TIMEOUT_NS), and tried in vain."""
HEARS_NS: Final = 400 * MS
"""Its clocks may have stood still, too."""
AWAKE_NS: Final = 3_000 * MS
"""After a process was stopped: what waited in its sockets is read and answered."""
UNSEEN: Final = frozenset(
    {Fault.RESET, Fault.CUT_TAKER, Fault.OTHER_VERSION, Fault.LOST_DIRECTORY, Fault.OLD_DIRECTORY}
)
"""What ends connections and cannot be seen from their links."""


class Watched(Protocol):
    options: WholeOptions
    loop: Loop
    links: WorldLinks
    nodes: dict[NodeId, Host]


class Contact:
    def __init__(self, world: Watched) -> None:
        self._world = world
        self._alone_since: dict[NodeId, tuple[int, int, int]] = {}
        """Whose links are all cut: its life, how many links are cut, and since when. What a link
        has held for seconds is taken for an answer of now (seed 11)."""
        self._apart_until: dict[tuple[NodeId, NodeId], int] = {}
        """Of two nodes the one that blames, and the other: before that it may miss its answers."""
        self._lives: dict[NodeId, int] = {}
        self._said: dict[NodeId, int] = {}
        """How often a node has taken itself for cut off, in this life."""
        self._awake_ns: dict[NodeId, int] = {}
        """Who stood still does nothing before it has heard others."""
        self._sees_blame = not world.options.faults & UNSEEN

    def look(self) -> None:
        world, now = self._world, self._world.loop.now_ns
        hosts = world.nodes.values()
        self._look_for_masters(hosts)
        for host in hosts:
            self._look_for_captives(host, now)
        if self._sees_blame:
            for host in hosts:
                self._look_at_links(host, hosts, now)
                self._look_for_blame(host, now)
            self._lives = {host.me: host.life for host in hosts}

    # -- I4 -----------------------------------------------------------------------------------

    def _look_for_masters(self, hosts: Iterable[Host]) -> None:
        acting: dict[GroupId, NodeId] = {}
        true_ns = self._world.loop.now_ns
        for host in hosts:
            runs = host.process is not None and host.process.runs()
            if host.node is None or not runs:
                self._awake_ns[host.me] = true_ns + HEARS_NS
            if host.node is None or self._awake_ns.get(host.me, 0) > true_ns:
                continue
            now = clock_of(host, true_ns)
            for group, replica in host.node.multi.replicas.items():
                if replica.acting(now):
                    other = acting.setdefault(group, host.me)
                    if other != host.me:
                        raise Violation(f"I4: nodes {other} and {host.me} act for group {group}")

    # -- clients of nodes that are cut off ----------------------------------------------------

    def _look_for_captives(self, host: Host, now: int) -> None:
        node, world = host.node, self._world
        runs = host.process is not None and host.process.runs()
        if node is None or not runs or not self._is_alone(host) or _may_lead(host):
            self._alone_since.pop(host.me, None)
            return
        known = world.nodes.keys()
        cut = sum(host.address in link and known >= {*link} for link in world.links.cut)
        life, before, since = self._alone_since.setdefault(host.me, (host.life, cut, now))
        if life != host.life or cut < before:
            self._alone_since[host.me] = host.life, cut, now
            return
        closes_ns = max(CLOSE_NS_LEAST, world.options.lease_ms * MS - ANSWER_LASTS_NS)
        connected = len(node.clients.connections)
        under_way_ns = 2 * world.options.delay_max_ns
        bound_ns = ANSWER_LASTS_NS + BLINK_NS + closes_ns + SLACK_NS + under_way_ns
        if connected and now - since > bound_ns:
            raise Violation(
                f"captive: node {host.me} has been cut off for {(now - since) / 1e9:.1f} s and "
                f"has {connected} connections of clients"
            )

    def _is_alone(self, host: Host) -> bool:
        others = [one.address for one in self._world.nodes.values() if one is not host]
        return bool(others) and all(self._is_cut(host.address, one) for one in others)

    def _is_cut(self, one: int, two: int) -> bool:
        cut = self._world.links.cut
        return (one, two) in cut or (two, one) in cut

    # -- nodes that blame others --------------------------------------------------------------

    def _look_at_links(self, host: Host, hosts: Iterable[Host], now: int) -> None:
        for other in hosts:
            if other is host:
                continue
            apart, slow = self._is_cut(host.address, other.address), self._world.links.slow
            for one in (host, other):
                apart |= one.node is None or self._lives.get(one.me) != one.life
            apart |= (host.address, other.address) in slow or (other.address, host.address) in slow
            if apart:
                self._put_off(host, other, now + MADE_ANEW_NS)
            elif other.process is not None and not other.process.runs():
                self._put_off(host, other, now + AWAKE_NS)

    def _put_off(self, host: Host, other: Host, until_ns: int) -> None:
        pair = host.me, other.me
        self._apart_until[pair] = max(self._apart_until.get(pair, 0), until_ns)

    def _look_for_blame(self, host: Host, now: int) -> None:
        if host.node is None or self._lives.get(host.me) != host.life:
            self._said[host.me] = 0
            return
        total = host.node.shell.gate.contact.cut_off_total
        said, self._said[host.me] = self._said[host.me], total
        if total == said:
            return
        there = {host.me}
        for (me, other), until_ns in self._apart_until.items():
            if me == host.me and until_ns < now:
                there.add(other)
        for group in host.node.multi.replicas:
            members = host.node.engine.members(group)
            if 2 * len(there.intersection(members)) > len(members):
                raise Violation(f"blame: node {host.me} says that nodes {sorted(there)} are away")


def _may_lead(host: Host) -> bool:
    """Whether it is a majority of some group by itself."""
    assert host.node is not None
    engine, registry = host.node.engine, host.node.registry
    groups = {*engine.multi.replicas, *map(GroupId, registry.groups)}
    return any(len(engine.members(group)) < 2 for group in groups)


@attrs.frozen
class _Glance:
    """As much of a node's clock as `Clock.now` reads."""

    _read_boot_ns: Callable[[], int] = attrs.field(alias="_read_boot_ns")
    _offset: int = attrs.field(alias="_offset")
    trust: Trust


def clock_of(host: Host, true_ns: int) -> Now:
    """What its clock says; nobody pays for this look at it."""
    assert host.node is not None
    boot_ns, clock = host.clock.boot_ns(true_ns), host.node.clock
    glance: Any = _Glance(lambda: boot_ns, clock._offset, clock.trust)
    return Clock.now(glance)
