"""A cluster on its way from plain text to TLS: nodes of all kinds beside each other."""

import socket
from collections.abc import Callable

from paxos.ids import MS, NodeId
from runtime.config.fields import Address
from runtime.network.stream import Stream
from runtime.peers.peers import Kind
from tests.runtime.doubles import frame
from tests.runtime.links import NOWHERE, World, hello_of
from tests.runtime.tls_links import (
    Worlds,
    greeting,
    message_frame,
)
from tests.runtime.tls_links import certs as certs  # fixtures
from tests.runtime.tls_links import world as world
from tests.runtime.tls_links import worlds as worlds


class Dialer:
    """Connects at once to whoever has the address."""

    def __init__(self, world: World) -> None:
        self.world = world

    def dial(self, address: Address, done: Callable[[Stream | None], None]) -> None:
        accepted, connected = self.world.tcp.pair()
        connected.setblocking(False)
        if address == NOWHERE:
            done(None)
            return
        self.world[address.port - 7000].peers.accept(accepted, "127.0.0.1")
        done(connected)


def dialing(world: World) -> World:
    for node in world.nodes.values():
        node.peers.follow(
            {NodeId(one): Address("127.0.0.1", 7000 + one) for one in (1, 2, 3)}, frozenset()
        )
        node.peers.dialer = Dialer(world)
    for _ in range(12):
        for node in world.nodes.values():
            node.clock.advance(500 * MS)
            node.peers.dial()
        world.settle()
    return world


def links(world: World) -> dict[tuple[int, int], str]:
    found = {}
    for one in (1, 2, 3):
        for other in {1, 2, 3} - {one}:
            peers, node = world[one].peers, NodeId(other)
            up = peers.connected(node)
            found[one, other] = "tls" if up and peers.encrypted(node) else "plain" if up else "-"
    return found


def test_nodes_that_allow_both_find_each_other_whatever_the_others_do(worlds: Worlds) -> None:
    """1 is not converted yet, 2 and 3 are in between."""
    world = dialing(worlds(2, 3, plain_too=(2, 3)))
    found = links(world)
    assert {found[2, 3], found[3, 2]} == {"tls"}
    assert {found[1, 2], found[2, 1], found[1, 3], found[3, 1]} == {"plain"}


def test_at_the_end_all_are_encrypted_and_one_left_behind_is_out(worlds: Worlds) -> None:
    """1 is through, 2 is in between, 3 was forgotten."""
    world = dialing(worlds(1, 2, plain_too=(2,)))
    found = links(world)
    assert {found[1, 2], found[2, 1]} == {"tls"}
    assert {found[1, 3], found[3, 1]} == {"-"}
    assert {found[2, 3], found[3, 2]} == {"plain"}
    assert any("this is no TLS" in one for one in world[1].reasons("peer connection refused"))


def test_no_plain_text_to_a_node_whose_certificate_is_wrong(worlds: Worlds) -> None:
    """Else everybody could have it by showing a wrong one."""
    world = worlds(1, 2, 3, plain_too=(1, 2, 3))
    world.nodes[2], world.nodes[3] = world.nodes[3], world.nodes[2]  # each at the other's address
    world.call(1, 2)
    world.settle()
    assert len(world[1].reasons("no link to a peer")) == 1
    assert not world[1].link(2).plain


def test_plain_text_does_not_displace_an_encrypted_link(worlds: Worlds) -> None:
    world = worlds(1, 2, plain_too=(1, 2))
    world.join(1, 2)
    stranger = world.stranger(1)
    stranger.sendall(frame(bytes([Kind.HELLO]) + hello_of(2, incarnation=9).encode()))
    world.settle()
    (told,) = world[1].reasons("peer connection refused")
    assert told == "it says in plain text that it is node 2, which uses TLS"
    assert world[1].peers.encrypted(NodeId(2))


def test_a_plain_greeting_that_comes_byte_by_byte_is_whole(worlds: Worlds) -> None:
    world = worlds(1, plain_too=(1,))
    stranger: socket.socket = world.stranger(1)
    for byte in greeting(2) + message_frame():
        stranger.sendall(bytes([byte]))
        world.settle()
    assert world[1].handler.ups == [(2, 1)]
    assert len(world[1].handler.messages) == 1
