"""Kafka clients' connections: answers in order, and limits that only affect the client that hits
them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ports import Reply
from paxos.ids import MS
from runtime.clients.clients import Clients
from runtime.clients.limits import UNANSWERED_BYTES_MAX, UNANSWERED_MAX, ClientLimits
from tests.runtime.doubles import FakePlane, FakeSystemClock, Recorder, Tcp, frame, receive
from wire.framing import FrameLimits

MIB = 1024 * 1024
IDLE_S = 600
SECOND_NS = 1_000 * MS


ENDINGS = ("client gone", "client closed")


class Harness:
    """A node's client side, with a broker that answers when the test says so."""

    def __init__(self, **limits: int) -> None:
        settings = {
            "connections_max": 10,
            "connections_per_ip_max": 5,
            "pending_bytes_per_node": 1000 * MIB,
            "idle_ns": IDLE_S * SECOND_NS,
            **limits,
        }
        self.plane, self.tcp = FakePlane(), Tcp()
        self.system, self.recorder = FakeSystemClock(), Recorder()
        self.asked: list[tuple[bytes, Reply]] = []
        self.on_asked: Callable[[Reply], None] = lambda _: None
        self.clients = Clients(
            self.plane,
            self.serve,
            ClientLimits(frames=FrameLimits(default=32 * MIB), **settings),
            self.recorder.journal,
            self.system.boot_ns,
        )

    def serve(self, data: memoryview, owned: bool, client_host: str, reply: Reply) -> None:
        self.asked.append((bytes(data[:20]), reply))
        self.on_asked(reply)

    def connect(self, host: str = "10.0.0.1") -> socket.socket:
        accepted, client = self.tcp.pair()
        self.clients.accept(accepted, host)
        return client

    def customer(self, host: str = "10.0.0.1") -> socket.socket:
        """A client that has had one request answered, so it does not count as silent."""
        client, asked = self.connect(host), len(self.asked)
        client.sendall(frame(b"hello"))
        self.until_asked(asked + 1)
        self.asked.pop()[1].complete([frame(b"welcome")])
        self.settle()
        assert receive(client, 11) == frame(b"welcome")
        return client

    def until_asked(self, count: int) -> None:
        self.plane.run_until(lambda: len(self.asked) >= count, self.clients.flush)

    def settle(self) -> None:
        self.plane.settle(self.clients.flush)

    def answer(self, index: int, body: bytes = b"") -> None:
        asked, reply = self.asked[index]
        reply.complete([frame(body or asked)])

    def pass_seconds(self, seconds: float, every_s: float = 1) -> None:
        """Housekeeping runs once a second."""
        for _ in range(int(seconds / every_s)):
            self.system.advance(int(every_s * SECOND_NS))
            self.clients.tick()
            self.clients.flush()

    def reasons(self) -> list[str]:
        """Why connections ended, in order: by the client, and by whose fault."""
        said = [one for one in self.recorder.lines if one["event"] in ENDINGS]
        return [str(line["reason"]) for line in said]


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


@contextmanager
def opened(**limits: int) -> Iterator[Harness]:
    harness = Harness(**limits)
    try:
        yield harness
        harness.clients.close_all("the test is over")
        assert harness.clients.unanswered_bytes == 0, "the account of the node is settled"
        assert not harness.clients.connections
        assert harness.plane.callbacks == {}
    finally:
        harness.tcp.close()


def closed_by_us(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


# -- order ----------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 40), seed=st.integers(0, 1 << 32), answerless=st.sets(st.integers(0, 39))
)
def test_answers_leave_in_the_order_of_the_requests(
    count: int, seed: int, answerless: set[int]
) -> None:
    """In whatever order they become ready, also around requests that get no answer."""
    with opened() as harness:
        client = harness.connect()
        client.sendall(b"".join(frame(b"%d" % number) for number in range(count)))
        harness.until_asked(count)
        turns, dice = list(range(count)), Random(seed)
        dice.shuffle(turns)
        for turn in turns:
            if turn in answerless:
                harness.asked[turn][1].nothing()
            else:
                harness.answer(turn)
            if dice.random() < 0.5:
                harness.clients.flush()
        harness.clients.flush()
        expected = b"".join(frame(b"%d" % n) for n in range(count) if n not in answerless)
        assert receive(client, len(expected)) == expected


def test_an_answer_waits_for_those_before_it(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(b"slow") + frame(b"quick"))
    harness.until_asked(2)
    harness.answer(1)
    harness.clients.flush()
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    client.setblocking(True)
    harness.answer(0)
    harness.clients.flush()
    assert receive(client, 17) == frame(b"slow") + frame(b"quick")


def test_acks_0_gets_nothing_and_holds_up_nobody(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(b"acks=0") + frame(b"next"))
    harness.until_asked(2)
    harness.answer(1)
    harness.asked[0][1].nothing()
    harness.clients.flush()
    assert receive(client, 8) == frame(b"next")
    assert harness.clients.unanswered_bytes == 0


def test_clients_do_not_wait_for_each_other(harness: Harness) -> None:
    slow, quick = harness.connect(), harness.connect()
    slow.sendall(frame(b"slow"))
    harness.until_asked(1)
    quick.sendall(frame(b"quick"))
    harness.until_asked(2)
    harness.answer(1)
    harness.clients.flush()
    assert receive(quick, 9) == frame(b"quick")


def test_a_request_is_answered_once(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(b"x"))
    harness.until_asked(1)
    harness.answer(0)
    with pytest.raises(AssertionError, match="answered once"):
        harness.answer(0)
    with pytest.raises(AssertionError, match="answered once"):
        harness.asked[0][1].nothing()


# -- the end of a connection ----------------------------------------------------------------------


def test_answers_to_nobody_are_harmless(harness: Harness) -> None:
    """The client has gone; its request is carried out later, and the answer is dropped."""
    client = harness.connect()
    client.sendall(frame(b"a") + frame(b"b") + frame(b"c"))
    harness.until_asked(3)
    harness.answer(0)
    (connection,) = harness.clients.connections
    client.close()
    harness.plane.settle()
    assert not harness.clients.connections
    assert not connection.queue, "whoever holds on to a request does not hold its answers"
    harness.answer(1)
    harness.asked[2][1].nothing()
    harness.asked[0][1].close("also too late")
    harness.clients.flush()
    assert harness.clients.unanswered_bytes == 0
    assert len(harness.reasons()) == 1


def test_a_request_that_cannot_be_answered_closes_its_connection(harness: Harness) -> None:
    """Only that connection is closed; the operator can see the reason."""
    bad, good = harness.connect(), harness.connect()
    bad.sendall(frame(b"bad"))
    harness.until_asked(1)
    good.sendall(frame(b"good"))
    harness.until_asked(2)
    harness.asked[0][1].close("api key 99 is not served")
    harness.answer(1)
    harness.settle()
    assert closed_by_us(bad)
    assert harness.reasons() == ["api key 99 is not served"]
    assert receive(good, 8) == frame(b"good")


def test_a_frame_over_the_limit_closes_its_connection(harness: Harness) -> None:
    bad, good = harness.connect(), harness.connect()
    bad.sendall(b"\x7f\xff\xff\xff")
    good.sendall(frame(b"good"))
    harness.until_asked(1)
    harness.settle()
    assert closed_by_us(bad)
    assert len(harness.clients.connections) == 1


def test_a_bug_of_ours_costs_one_connection(harness: Harness) -> None:
    """An exception that leaves a handler, and answers that cannot be sent: both are reported
    loudly, and the other clients do not notice."""

    def fails(*_args: object) -> None:
        raise KeyError("a bug")

    harness.clients.serve = fails
    first = harness.connect()
    first.sendall(frame(b"x"))
    harness.settle()
    assert closed_by_us(first)
    harness.clients.serve = harness.serve
    second, third = harness.connect(), harness.connect()
    second.sendall(frame(b"x"))
    harness.until_asked(1)
    third.sendall(frame(b"y"))
    harness.until_asked(2)
    harness.asked[0][1].complete(["no bytes"])
    harness.answer(1)
    harness.settle()
    assert closed_by_us(second)
    assert receive(third, 5) == frame(b"y")
    told = harness.recorder.said("request handler failed")
    assert [line["level"] for line in told] == ["error", "error"]
    assert "KeyError: 'a bug'" in told[0]["trace"]


# -- backpressure ---------------------------------------------------------------------------------


def test_a_client_with_too_many_requests_under_way_is_not_read(harness: Harness) -> None:
    """The limit is exact; when half of the requests are answered, it is read again."""
    client, total = harness.connect(), 2 * UNANSWERED_MAX
    client.sendall(b"".join(frame(b"%d" % number) for number in range(total)))
    harness.settle()
    assert len(harness.asked) == UNANSWERED_MAX
    for index in range(UNANSWERED_MAX // 2):
        harness.answer(index)
    harness.settle()
    assert len(harness.asked) == UNANSWERED_MAX, "not yet: it would be paused again at once"
    harness.answer(UNANSWERED_MAX // 2)
    harness.settle()
    assert len(harness.asked) > UNANSWERED_MAX
    answered = UNANSWERED_MAX // 2 + 1
    while answered < len(harness.asked):
        for index in range(answered, len(harness.asked)):
            harness.answer(index)
            answered += 1
        harness.settle()
    expected = b"".join(frame(b"%d" % number) for number in range(total))
    assert receive(client, len(expected)) == expected


def test_a_client_with_too_many_bytes_under_way_is_not_read(harness: Harness) -> None:
    client, big = harness.connect(), frame(bytes(16 * MIB))
    client.setblocking(False)
    sent = pump_in(harness, client, big * 6)
    assert len(harness.asked) == UNANSWERED_BYTES_MAX // (16 * MIB)
    assert sent < 6 * len(big)
    assert harness.clients.unanswered_bytes == UNANSWERED_BYTES_MAX
    for index in range(3):
        harness.answer(index, b"done")
    harness.clients.flush()
    assert pump_in(harness, client, (big * 6)[sent:]) == 6 * len(big) - sent
    assert len(harness.asked) == 6


def pump_in(harness: Harness, client: socket.socket, data: bytes) -> int:
    """Send until the kernel and the node accept no more; returns how much they accepted."""
    at, stuck = 0, 0
    view = memoryview(data)
    while at < len(data) and stuck < 3:
        try:
            at += client.send(view[at : at + 4 * MIB])
            stuck = 0
        except BlockingIOError:
            stuck += 0 if harness.plane.round(1) else 1
            harness.clients.flush()
    harness.settle()
    return at


def test_push_back_of_the_whole_node() -> None:
    """All clients together hold too much: a client that sends more is not read until the total is
    lower, whoever held the memory, and also if that client simply disconnects."""
    with opened(pending_bytes_per_node=1000) as harness:
        greedy, modest = harness.connect(), harness.connect()
        greedy.sendall(frame(bytes(2000)))
        harness.until_asked(1)
        modest.sendall(frame(b"1"))
        harness.until_asked(2)
        modest.sendall(frame(b"2"))
        harness.settle()
        assert len(harness.asked) == 2, "it is not read any more"
        harness.answer(1)
        harness.settle()
        assert receive(modest, 5) == frame(b"1"), "but it gets its answers"
        assert len(harness.asked) == 2, "the node is still full"
        harness.answer(0)
        harness.settle()
        harness.clients.look()
        harness.settle()
        assert len(harness.asked) == 3

        greedy.sendall(frame(bytes(2000)))
        harness.until_asked(4)
        harness.answer(2)
        modest.sendall(frame(b"3"))
        harness.until_asked(5)
        harness.answer(4)
        modest.sendall(frame(b"4"))
        harness.settle()
        assert len(harness.asked) == 5
        greedy.close()
        harness.settle()
        harness.clients.look()
        harness.clients.flush()
        harness.settle()
        assert len(harness.asked) == 6


def test_a_client_that_is_pushed_back_and_leaves_is_forgotten() -> None:
    with opened(pending_bytes_per_node=1000) as harness:
        greedy, modest = harness.connect(), harness.connect()
        greedy.sendall(frame(bytes(2000)))
        harness.until_asked(1)
        modest.sendall(frame(b"x"))
        harness.until_asked(2)
        harness.answer(1)
        harness.settle()
        _, waiting = harness.clients.backpressure[None].clients
        assert waiting.paused
        waiting.close("gone")
        assert waiting not in harness.clients.backpressure[None].clients


def test_nothing_overtakes_what_is_still_being_looked_at() -> None:
    """The connection is not read until everything has been validated, even if other limits allow
    it."""
    with opened() as harness:
        client, other = harness.connect(), harness.connect()

        def look(reply: Reply) -> None:
            reply.stop_reading()
            reply.stop_reading()

        harness.on_asked = look
        client.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        harness.until_asked(1)
        harness.settle()
        assert len(harness.asked) == 1, "not even what was received already is handed on"
        harness.on_asked = lambda reply: None
        other.sendall(frame(b"x"))
        harness.until_asked(2)
        _, first = harness.asked[0]
        first.read_on()
        harness.answer(0)
        harness.settle()
        assert receive(client, 5) == frame(b"1")
        assert len(harness.asked) == 2, "answered, but one batch is still being looked at"
        first.read_on()
        harness.settle()
        assert [data for data, _ in harness.asked[2:]] == [b"2", b"3"]


def test_who_goes_away_meanwhile_is_forgotten() -> None:
    with opened() as harness:
        client = harness.connect()
        harness.on_asked = lambda reply: reply.stop_reading()
        client.sendall(frame(b"1"))
        harness.until_asked(1)
        _, first = harness.asked[0]
        first.close("gone")
        harness.settle()
        first.read_on()
        harness.settle()
        assert closed_by_us(client)
        assert not harness.clients.connections


# -- how many -------------------------------------------------------------------------------------


def test_connections_of_one_address_are_limited(harness: Harness) -> None:
    """A client that leaks connections does not lock the others out."""
    friends = [harness.customer("10.0.0.1") for _ in range(5)]
    refused = harness.connect("10.0.0.1")
    assert closed_by_us(refused)
    other = harness.connect("10.0.0.2")
    other.sendall(frame(b"x"))
    harness.until_asked(1)
    friends[0].close()
    harness.settle()
    harness.connect("10.0.0.1")
    clients = harness.clients
    assert (clients.accepted_total, clients.refused_total) == (7, 1)
    assert len(clients.connections) == 6


def test_connections_are_limited(harness: Harness) -> None:
    for number in range(10):
        harness.customer(f"10.0.0.{number}")
    assert closed_by_us(harness.connect("10.0.0.99"))


def test_refusals_are_logged_once_a_second(harness: Harness) -> None:
    """A flood of connections must not become a flood of lines."""
    for _ in range(5):
        harness.customer()
    for _ in range(3):
        harness.connect()
    harness.system.advance(2 * SECOND_NS)
    harness.connect()
    told = harness.recorder.said("client refused")
    assert [line["refused"] for line in told] == [1, 4]
    assert told[0]["limit"] == "limits.connections_per_ip_max"


# -- producers ------------------------------------------------------------------------------------


def test_a_producer_is_at_home_while_its_connection_lasts(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(b"produce"))
    harness.until_asked(1)
    harness.asked[0][1].produces(7)
    harness.asked[0][1].produces(7)
    assert len(harness.clients.producer_connections) == 1
    harness.asked[0][1].produces(8)
    assert len(harness.clients.producer_connections) == 1, "a connection is of the last one"
    client.close()
    harness.plane.run_until(lambda: not harness.clients.connections, harness.clients.flush)
    assert len(harness.clients.producer_connections) == 0
    harness.asked[0][1].produces(9)
    assert len(harness.clients.producer_connections) == 0, "an answer to nobody brings nobody home"
