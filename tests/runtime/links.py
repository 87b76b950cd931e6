"""Three nodes' links in one plane over real sockets, and what they would pass to each engine."""

import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from broker.proposals.intake import Outcome
from paxos.ids import MS, GroupId, Incarnation, NodeId
from paxos.messages import Message
from runtime.config.fields import Address
from runtime.membership.handshake import Hello
from runtime.membership.lease_terms import LeaseTerms
from runtime.network.dataplane import Plane
from runtime.peers import peers as module
from runtime.peers.peers import Peers
from runtime.peers.security import PLAIN_LINKS, LinkSecurity
from tests.runtime.doubles import FakePlane, FakeSystemClock, Lives, Recorder, Tcp

QUEUE_BYTES = 8 << 20
SECOND_NS = 1_000 * MS
NOWHERE = Address("127.0.0.1", 1)


class Handler(Lives):
    """Records what the engine would get."""

    def __init__(self, clock: FakeSystemClock) -> None:
        self.clock = clock
        self.ups: list[tuple[NodeId, Incarnation]] = []
        self.downs: list[NodeId] = []
        self.messages: list[tuple[NodeId, Message]] = []
        self.forwards: list[tuple[Any, ...]] = []
        self.outcomes: list[tuple[NodeId, int, Outcome]] = []
        self.times: list[tuple[NodeId, int]] = []
        self.terms: list[tuple[NodeId, LeaseTerms]] = []
        self.clocks: list[tuple[NodeId, int, int]] = []
        self.draining: list[tuple[NodeId, bool]] = []
        self.low: list[tuple[NodeId, bool]] = []
        self.disks: dict[NodeId, int] = {}

    def peer_up(self, node: NodeId, incarnation: Incarnation) -> None:
        self.ups.append((node, incarnation))

    def peer_down(self, node: NodeId) -> None:
        self.downs.append(node)

    def on_messages(self, sender: NodeId, messages: Iterable[Message]) -> None:
        for message in messages:
            self.on_message(sender, message)

    def on_message(self, sender: NodeId, message: Message) -> None:
        self.messages.append((sender, message))

    def on_forward(
        self, sender: NodeId, number: int, group: GroupId, handing: bool, command: memoryview
    ) -> None:
        self.forwards.append((sender, number, group, handing, command))

    def on_forwarded(self, sender: NodeId, number: int, outcome: Outcome) -> None:
        self.outcomes.append((sender, number, outcome))

    def on_clock(self, node: NodeId, offset_ns: int, error_ns: int) -> None:
        self.clocks.append((node, offset_ns, error_ns))

    def on_time(self, node: NodeId, wall_ns: int) -> None:
        self.times.append((node, wall_ns))

    def on_terms(self, node: NodeId, terms: LeaseTerms) -> None:
        self.terms.append((node, terms))

    def on_draining(self, node: NodeId, draining: bool) -> None:
        self.draining.append((node, draining))

    def on_disk(self, node: NodeId, disk_class: int) -> None:
        self.disks[node] = disk_class

    def on_low(self, node: NodeId, low: bool) -> None:
        self.low.append((node, low))

    def wall_ns(self) -> int:
        return self.clock.wall_ns()

    def boot_ns(self) -> int:
        return self.clock.boot_ns()


def hello_of(node: int, *, cluster: str = "c", incarnation: int = 1) -> Hello:
    return Hello(cluster_id=cluster, node=NodeId(node), incarnation=Incarnation(incarnation))


class Node:
    def __init__(
        self,
        plane: Any,
        node: int,
        *,
        incarnation: int = 1,
        security: LinkSecurity = PLAIN_LINKS,
    ) -> None:
        self.node, self.clock = NodeId(node), FakeSystemClock()
        self.handler, self.recorder = Handler(self.clock), Recorder()
        self.peers = Peers(
            plane,
            self.handler,
            hello_of(node, incarnation=incarnation),
            {NodeId(other): NOWHERE for other in (1, 2, 3)},
            QUEUE_BYTES,
            self.recorder.journal,
            security=security,
        )

    def link(self, node: int) -> module.Outgoing:
        return self.peers.outgoing[NodeId(node)]

    def reasons(self, event: str) -> list[str]:
        return [str(line["reason"]) for line in self.recorder.said(event)]


def _plain(_plane: Plane) -> LinkSecurity:
    return PLAIN_LINKS


PLAIN: Mapping[int, Callable[[Plane], LinkSecurity]] = MappingProxyType({})


class World:
    """Three nodes in one plane; the test connects them by real sockets."""

    def __init__(
        self, security: Mapping[int, Callable[[Plane], LinkSecurity]] = MappingProxyType({})
    ) -> None:
        """`security` makes that of a node; it has none otherwise."""
        self.plane, self.tcp = FakePlane(), Tcp()
        self.nodes = {
            node: Node(self.plane, node, security=security.get(node, _plain)(self.plane))
            for node in (1, 2, 3)
        }

    def __getitem__(self, node: int) -> Node:
        return self.nodes[node]

    def call(self, source: int, target: int) -> None:
        """One direction: `source` opens a connection and greets."""
        accepted, connected = self.tcp.pair()
        connected.setblocking(False)
        self[target].peers.accept(accepted, "127.0.0.1")
        self[source].peers.greet(self[source].link(target), connected)

    def connect(self, source: int, target: int) -> None:
        """The same, until the greeting is accepted."""
        self.call(source, target)
        ups = len(self[target].handler.ups)
        self.plane.run_until(lambda: len(self[target].handler.ups) > ups, self.flush)

    def join(self, a: int, b: int) -> None:
        self.connect(a, b)
        self.connect(b, a)

    def flush(self) -> None:
        for node in self.nodes.values():
            node.peers.go_on()
            node.peers.flush()

    def settle(self) -> None:
        """Until nothing comes any more, also from connections that had used up their time in a
        round."""
        self.plane.settle(self.flush)
        while any(node.peers.waits for node in self.nodes.values()):
            self.flush()
            self.plane.settle(self.flush)

    def stranger(self, target: int = 1) -> socket.socket:
        """A stranger connects to a node's peer port."""
        accepted, stranger = self.tcp.pair()
        self[target].peers.accept(accepted, "10.9.9.9")
        return stranger

    def pass_seconds(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            for node in self.nodes.values():
                node.clock.advance(SECOND_NS)
                node.peers.tick()
            self.settle()


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    try:
        yield world
        for node in world.nodes.values():
            node.peers.close()
        assert world.plane.callbacks == {}
    finally:
        world.tcp.close()
