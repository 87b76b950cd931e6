"""Nodes whose links are under mutual TLS, in one plane over real sockets."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from paxos import codec
from paxos import entry as entries
from paxos.entry import Buffer
from paxos.ids import Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Learn, Message
from runtime.config.config import Config, ListenSection
from runtime.config.fields import Address
from runtime.config.peer_tls import PeerTlsSection
from runtime.config.sections import NodeSection
from runtime.membership.node_names import NodeName
from runtime.network.dataplane import Plane
from runtime.peers.peers import Kind
from runtime.peers.security import LinkSecurity, links_of
from tests.certs import Certs
from tests.runtime.doubles import Recorder, frame
from tests.runtime.links import World, hello_of

GROUP = GroupId(1)
CLUSTER = "c"


def name(node: int, cluster: str = CLUSTER) -> str:
    return str(NodeName(NodeId(node), cluster))


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    """An authority, and the certificates of nodes 1, 2 and 3."""
    made = Certs.new(tmp_path_factory.mktemp("peers"))
    for node in (1, 2, 3):
        made.peer(f"node-{node}", name(node), "bus.example.com")
    return made


def config(node: int, certs: Certs, stem: str, *, plain_too: bool = False) -> Config:
    return Config(
        node=NodeSection(id=NodeId(node), cluster_id=CLUSTER, data_dir=Path("d")),
        listen=ListenSection(),
        peers={NodeId(one): Address("127.0.0.1", 7000 + one) for one in (1, 2, 3)},
        peer_tls=PeerTlsSection(
            certificate=certs.folder / f"{stem}.crt",
            key=certs.folder / f"{stem}.key",
            authorities=certs.trusted,
            insecure_plain_too=plain_too,
        ),
    )


def made(node: int, certs: Certs, plane: Plane, *, plain_too: bool = False) -> LinkSecurity:
    chosen = config(node, certs, f"node-{node}", plain_too=plain_too)
    return links_of(chosen, plane, Recorder().journal)


Worlds = Callable[..., World]


@pytest.fixture
def worlds(certs: Certs) -> Iterator[Worlds]:
    """Makes worlds in which these nodes have TLS, and those of `plain_too` allow both."""
    begun: list[World] = []

    def begin(*nodes: int, plain_too: tuple[int, ...] = (), files: Certs = certs) -> World:
        kinds = {one: partial(made, one, files, plain_too=one in plain_too) for one in nodes}
        begun.append(World(kinds))
        return begun[-1]

    try:
        yield begin
        for world in begun:
            for node in world.nodes.values():
                node.peers.close()
            assert world.plane.callbacks == {}
    finally:
        for world in begun:
            world.tcp.close()


@pytest.fixture
def world(worlds: Worlds) -> World:
    return worlds(1, 2, 3)


def accept(slot: int, size: int = 10) -> Accept:
    entry = entries.batch((bytes([slot % 251]) * size,))
    return Accept(GROUP, Ballot(1, NodeId(1)), Slot(slot), entry, Slot(1), Slot(0))


def encoded(message: Message) -> bytes:
    out: list[Buffer] = []
    codec.encode(message, out)
    return b"".join(out)


def greeting(node: int, cluster: str = CLUSTER) -> bytes:
    return frame(bytes([Kind.HELLO]) + hello_of(node, cluster=cluster).encode())


def message_frame() -> bytes:
    return frame(bytes([Kind.PAXOS]) + encoded(Learn(GROUP, Slot(1))))
