"""A node that is cut off accepts no clients, and accepts them again afterwards."""

import io
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from node import Node
from paxos.ids import MS, REGISTRY_GROUP, NodeId, Slot
from runtime.clients.endings import CUT_OFF
from runtime.clients.gate import LEARNING_NS_MAX, WHY_CUT_OFF
from runtime.config.fields import Address
from runtime.network.listener import listen
from tests.runtime.doubles import FakePlane, Recorder
from tests.runtime.one_node import one_node

PEERS = (1, 2, 3)


class World:
    """One node of three, whose peers answer or do not, and its Kafka port."""

    def __init__(self, node: Node) -> None:
        self.node, self.gate = node, node.shell.gate
        self.plane, self.recorder = FakePlane(), Recorder()
        self.now = node.clock.now().boot_ns
        with socket.socket() as first:  # a fixed port, as nodes have
            first.bind(("127.0.0.1", 0))
            address = Address("127.0.0.1", first.getsockname()[1])
        self.listener = listen(self.plane, address, node.clients.accept, 5, self.recorder.journal)
        self.gate.learning = False
        self.gate.guard(self.listener)

    def live(self, ms: int, *, answers: bool) -> None:
        for _ in range(0, ms, 100):
            self.now += 100 * MS
            if answers:
                self.node.engine.answered[NodeId(2)] = self.now
            self.gate.tick(self.now)

    def connect(self) -> socket.socket:
        clients = self.node.clients
        before = len(clients.connections)
        client = socket.create_connection(("127.0.0.1", self.listener.port))
        self.plane.run_until(lambda: len(clients.connections) > before)
        return client


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with one_node(tmp_path, peers=PEERS) as node:
        world = World(node)
        world.live(2_000, answers=True)
        yield world
        world.listener.close()


def test_who_is_there_is_disconnected_and_who_comes_is_refused(world: World) -> None:
    client = world.connect()
    world.live(2_300, answers=False)
    assert world.gate.contact.cut_off
    assert world.node.broker.redirects_clients()
    assert len(world.node.clients.connections) == 1, "its leases may still run"
    world.live(2_000, answers=False)
    assert client.recv(1) == b""
    assert not world.node.clients.connections
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", world.listener.port))
    client.close()


def test_the_port_stays_its_own_and_opens_again(world: World) -> None:
    port = world.listener.port
    for _ in range(3):
        world.live(6_000, answers=False)
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        world.live(2_000, answers=True)
        assert not world.node.broker.redirects_clients()
        world.connect().close()
        assert world.listener.port == port


def test_a_shut_door_costs_no_rounds(world: World) -> None:
    """For epoll, a socket that does not listen is always ready."""
    world.live(6_000, answers=False)
    assert world.plane.ready() == []


def test_nobody_is_let_in_before_it_is_known_what_there_is(world: World) -> None:
    """Only once: a node that has known it may fall behind, and says so where it matters."""
    node, gate = world.node, world.gate
    gate.learning = True
    world.live(1_000, answers=True)
    assert gate.state == "not let in yet"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", world.listener.port))
    replica = node.engine.multi.replicas[REGISTRY_GROUP]
    replica.learner.note_claim(Slot(replica.learner.applied + 1))
    for peer in (2, 3):
        replica.peer(NodeId(peer)).progress_boot_ns = node.engine.now().boot_ns
    world.live(1_000, answers=True)
    assert gate.learning, "it has heard of more than it has"
    replica.learner.claims_are(replica.learner.applied)
    world.live(100, answers=True)
    assert gate.state == "served"
    world.connect().close()


def test_where_nobody_can_tell_it_they_are_let_in_after_a_while(world: World) -> None:
    """The registry has no majority, but some group has: that is better than nothing."""
    world.gate.learning = True
    world.live(LEARNING_NS_MAX // MS, answers=True)
    assert world.gate.learning
    world.live(1_000, answers=True)
    world.connect().close()


def test_who_is_cut_off_has_not_waited_yet(world: World) -> None:
    world.gate.learning = True
    world.live(2 * LEARNING_NS_MAX // MS, answers=False)
    world.live(3_000, answers=True)
    assert not world.gate.contact.cut_off
    assert world.gate.learning


def test_it_says_why_it_is_not_ready_and_closes_quietly(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand redirected clients are not a thousand errors of clients."""
    there = [world.connect() for _ in range(3)]
    node = world.node
    assert node.engine.admission is not None
    node.engine.admission.settled = node.clock.trusted = True
    monkeypatch.setattr(type(node.shell.joining), "registered", True)
    world.live(6_000, answers=False)
    assert node.shell.not_ready() == WHY_CUT_OFF
    assert CUT_OFF.startswith("this node is cut off")
    stream = node.journal._stream
    assert isinstance(stream, io.StringIO)
    told = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
    assert told.count("cut off: clients are disconnected") == 1
    assert "client closed" not in told
    for client in there:
        client.close()
