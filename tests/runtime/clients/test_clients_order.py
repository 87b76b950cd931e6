"""What keeps the order of a connection: who crowds a group is not read; when refusals are known."""

import socket
from collections.abc import Callable, Iterator

import pytest

from broker.ordering_barriers import CLIENT_REACTION_NS
from broker.ports import Reply
from paxos.ids import MS, GroupId
from runtime.clients.clients import SENT_AHEAD_BYTES
from runtime.network.channel import Channel
from tests.runtime.clients.test_clients import Desk, opened
from tests.runtime.doubles import frame, receive

GROUP = GroupId(3)


@pytest.fixture
def desk() -> Iterator[Desk]:
    with opened() as desk:
        yield desk


def test_who_crowds_a_group_is_not_read_until_it_has_room() -> None:
    """Not even what was received already is handed on, others are served, and answers leave."""
    room = 0
    with opened() as desk:
        desk.clients.room = lambda group: room if group == GROUP else 1 << 40
        client, other = desk.connect(), desk.connect()
        desk.on_asked = lambda reply: reply.hold_back(GROUP)
        client.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        desk.settle()
        assert len(desk.asked) == 1
        desk.on_asked = lambda reply: None
        other.sendall(frame(b"x") + frame(b"y"))
        desk.until_asked(3)
        desk.answer(0)
        desk.settle()
        assert receive(client, 5) == frame(b"1")
        assert len(desk.asked) == 3, "answered, but there is no room yet"
        room = 1
        desk.settle()
        assert [data for data, _ in desk.asked[3:]] == [b"2", b"3"]


def test_who_waited_longest_for_a_group_goes_on_first_and_nobody_beyond_the_room() -> None:
    room = 0
    with opened() as desk:
        desk.clients.room = lambda group: room
        clients = [desk.connect() for _ in range(5)]
        desk.on_asked = lambda reply: reply.hold_back(GROUP)
        for number, client in enumerate(clients):
            client.sendall(2 * frame(b"%d" % number * 100))
            desk.until_asked(number + 1)
        desk.settle()
        assert len(desk.asked) == 5
        room = 150
        desk.settle()  # they crowd it again, and wait behind the others
        served = [data[:1] for data, _ in desk.asked[5:]]
        assert served[:2] == [b"0", b"1"]
        desk.clients.look()
        desk.settle()
        assert [data[:1] for data, _ in desk.asked[5:]] == [b"0", b"1", b"2", b"3", b"4"]


# -- refusals -------------------------------------------------------------------------------------


def looks_until(desk: Desk, condition: Callable[[], bool]) -> None:
    """Ticks go by until it holds: the kernel acknowledges in its own time."""
    for _ in range(10_000):
        if condition():
            return
        desk.system.advance(20 * MS)
        desk.clients.look()
        desk.settle()
    raise AssertionError("it never came to that")


def looks_in_vain(desk: Desk, reply: Reply) -> None:
    for _ in range(50):
        desk.system.advance(20 * MS)
        desk.clients.look()
        desk.settle()
    assert reply.connection.barriers is not None


def test_a_refusal_is_known_when_its_answer_has_arrived_and_had_its_time(desk: Desk) -> None:
    """Answers leave in order: one before it delays it, and the partition stays blocked."""
    client = desk.connect()
    client.sendall(frame(b"1") + frame(b"2"))
    desk.until_asked(2)
    reply = desk.asked[1][1]
    reply.refused("t", 0)
    desk.answer(1)
    desk.settle()
    looks_in_vain(desk, reply)
    desk.answer(0)
    desk.settle()
    (wary,) = desk.clients.unaware_of_refusal
    channel = wary.channel
    assert channel is not None
    desk.plane.run_until(lambda: channel.acknowledged_bytes == channel.sent_bytes, desk.settle)
    desk.clients.look()
    assert reply.connection.is_blocked("t", 0), "it may not have looked at it yet"
    desk.system.advance(CLIENT_REACTION_NS)
    desk.clients.look()
    assert reply.connection.barriers is None
    assert not desk.clients.unaware_of_refusal


def test_what_was_sent_before_a_refusal_was_known_and_was_not_read_yet_keeps_the_lane_shut(
    desk: Desk,
) -> None:
    room = 0
    desk.clients.room = lambda group: room
    client = desk.connect()
    desk.on_asked = lambda reply: reply.hold_back(GROUP)
    client.sendall(frame(b"1"))
    desk.until_asked(1)
    reply = desk.asked[0][1]
    reply.refused("t", 0)
    client.sendall(frame(b"2"))
    desk.answer(0)
    desk.settle()
    looks_in_vain(desk, reply)
    desk.on_asked = lambda reply: None
    room = 1
    desk.settle()
    assert len(desk.asked) == 2
    looks_until(desk, lambda: reply.connection.barriers is None)


@pytest.mark.parametrize("here", [0, 3 << 20])
def test_a_client_that_never_stops_sending_knows_after_as_much_as_both_sockets_hold(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, here: int
) -> None:
    """On another partition, say: its stream is never seen to be dry. What lies in our own socket
    was sent before it could know, too; the kernel lets that be 32 MB."""
    if here:
        monkeypatch.setattr(Channel, "untaken_bytes", property(lambda _channel: here))
    client = desk.connect()
    client.setblocking(False)
    client.sendall(frame(b"1"))
    desk.until_asked(1)
    reply = desk.asked[0][1]
    reply.refused("t", 0)
    desk.answer(0)
    desk.settle()
    big, part = frame(bytes(64 * 1024)), bytes(100)
    client.sendall(big[:1000])  # from here on there is always half a request
    rest, sent = big[1000:], 0
    while reply.connection.barriers is not None:
        client.sendall(rest + big[:1000])
        sent += len(big)
        desk.until_asked(1 + sent // len(big))
        desk.answer(len(desk.asked) - 1, part)
        desk.system.advance(20 * MS)
        desk.clients.look()
        desk.settle()
        drain(client)
    assert SENT_AHEAD_BYTES <= sent - here < 2 * SENT_AHEAD_BYTES


def drain(client: socket.socket) -> None:
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return


def test_who_was_refused_something_and_is_gone_is_forgotten(desk: Desk) -> None:
    client = desk.connect()
    client.sendall(frame(b"1") + frame(b"2"))
    desk.until_asked(2)
    desk.asked[0][1].refused("t", 0)
    (wary,) = desk.clients.unaware_of_refusal
    wary.close("gone")
    desk.asked[1][1].refused("t", 0)
    assert not desk.clients.unaware_of_refusal
    desk.clients.look()
