"""The order of a connection: clients of a backlogged group are not read; when refusals are
known."""

import socket
from collections.abc import Callable, Iterator

import pytest

from broker.ordering_barriers import CLIENT_REACTION_NS
from broker.ports import Reply
from paxos.ids import MS, GroupId
from runtime.clients.limits import SENT_AHEAD_BYTES
from runtime.network.channel import Channel
from tests.runtime.clients.test_clients import Harness, opened
from tests.runtime.doubles import frame, receive

GROUP = GroupId(3)


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


def test_who_crowds_a_group_is_not_read_until_it_has_room() -> None:
    """Even what was received already is not handed on; others are served, and answers leave."""
    room = 0
    with opened() as harness:
        harness.clients.room = lambda group: room if group == GROUP else 1 << 40
        client, other = harness.connect(), harness.connect()
        harness.on_asked = lambda reply: reply.hold_back(GROUP)
        client.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        harness.settle()
        assert len(harness.asked) == 1
        harness.on_asked = lambda reply: None
        other.sendall(frame(b"x") + frame(b"y"))
        harness.until_asked(3)
        harness.answer(0)
        harness.settle()
        assert receive(client, 5) == frame(b"1")
        assert len(harness.asked) == 3, "answered, but there is no room yet"
        room = 1
        harness.settle()
        assert [data for data, _ in harness.asked[3:]] == [b"2", b"3"]


def test_who_waited_longest_for_a_group_goes_on_first_and_nobody_beyond_the_room() -> None:
    room = 0
    with opened() as harness:
        harness.clients.room = lambda group: room
        clients = [harness.connect() for _ in range(5)]
        harness.on_asked = lambda reply: reply.hold_back(GROUP)
        for number, client in enumerate(clients):
            client.sendall(2 * frame(b"%d" % number * 100))
            harness.until_asked(number + 1)
        harness.settle()
        assert len(harness.asked) == 5
        room = 150
        harness.settle()  # they fill it again, and wait behind the others
        served = [data[:1] for data, _ in harness.asked[5:]]
        assert served[:2] == [b"0", b"1"]
        harness.clients.look()
        harness.settle()
        assert [data[:1] for data, _ in harness.asked[5:]] == [b"0", b"1", b"2", b"3", b"4"]


# -- refusals -------------------------------------------------------------------------------------


def looks_until(harness: Harness, condition: Callable[[], bool]) -> None:
    """Tick until the condition holds: the kernel acknowledges in its own time."""
    for _ in range(10_000):
        if condition():
            return
        harness.system.advance(20 * MS)
        harness.clients.look()
        harness.settle()
    raise AssertionError("it never came to that")


def looks_in_vain(harness: Harness, reply: Reply) -> None:
    for _ in range(50):
        harness.system.advance(20 * MS)
        harness.clients.look()
        harness.settle()
    assert reply.connection.barriers is not None


def test_a_refusal_is_known_when_its_answer_has_arrived_and_had_its_time(harness: Harness) -> None:
    """Answers leave in order: an earlier one delays it, and the partition stays blocked."""
    client = harness.connect()
    client.sendall(frame(b"1") + frame(b"2"))
    harness.until_asked(2)
    reply = harness.asked[1][1]
    reply.refused("t", 0)
    harness.answer(1)
    harness.settle()
    looks_in_vain(harness, reply)
    harness.answer(0)
    harness.settle()
    (wary,) = harness.clients.unaware_of_refusal
    channel = wary.channel
    assert channel is not None
    harness.plane.run_until(
        lambda: channel.acknowledged_bytes == channel.sent_bytes, harness.settle
    )
    harness.clients.look()
    assert reply.connection.is_blocked("t", 0), "it may not have looked at it yet"
    harness.system.advance(CLIENT_REACTION_NS)
    harness.clients.look()
    assert reply.connection.barriers is None
    assert not harness.clients.unaware_of_refusal


def test_what_was_sent_before_a_refusal_was_known_and_was_not_read_yet_keeps_the_lane_shut(
    harness: Harness,
) -> None:
    room = 0
    harness.clients.room = lambda group: room
    client = harness.connect()
    harness.on_asked = lambda reply: reply.hold_back(GROUP)
    client.sendall(frame(b"1"))
    harness.until_asked(1)
    reply = harness.asked[0][1]
    reply.refused("t", 0)
    client.sendall(frame(b"2"))
    harness.answer(0)
    harness.settle()
    looks_in_vain(harness, reply)
    harness.on_asked = lambda reply: None
    room = 1
    harness.settle()
    assert len(harness.asked) == 2
    looks_until(harness, lambda: reply.connection.barriers is None)


@pytest.mark.parametrize("here", [0, 3 << 20])
def test_a_client_that_never_stops_sending_knows_after_as_much_as_both_sockets_hold(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, here: int
) -> None:
    """If it sends on another partition, say, its stream never runs dry. What is in our own socket
    buffer was also sent before it could know; the kernel allows 32 MB there."""
    if here:
        monkeypatch.setattr(Channel, "untaken_bytes", property(lambda _channel: here))
    client = harness.connect()
    client.setblocking(False)
    client.sendall(frame(b"1"))
    harness.until_asked(1)
    reply = harness.asked[0][1]
    reply.refused("t", 0)
    harness.answer(0)
    harness.settle()
    big, part = frame(bytes(64 * 1024)), bytes(100)
    client.sendall(big[:1000])  # from here on half a request is always pending
    rest, sent = big[1000:], 0
    while reply.connection.barriers is not None:
        client.sendall(rest + big[:1000])
        sent += len(big)
        harness.until_asked(1 + sent // len(big))
        harness.answer(len(harness.asked) - 1, part)
        harness.system.advance(20 * MS)
        harness.clients.look()
        harness.settle()
        drain(client)
    assert SENT_AHEAD_BYTES <= sent - here < 2 * SENT_AHEAD_BYTES


def drain(client: socket.socket) -> None:
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return


def test_who_was_refused_something_and_is_gone_is_forgotten(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(b"1") + frame(b"2"))
    harness.until_asked(2)
    harness.asked[0][1].refused("t", 0)
    (wary,) = harness.clients.unaware_of_refusal
    wary.close("gone")
    harness.asked[1][1].refused("t", 0)
    assert not harness.clients.unaware_of_refusal
    harness.clients.look()
