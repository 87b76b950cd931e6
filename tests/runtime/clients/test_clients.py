"""Kafka clients' connections: answers in order, and limits that cost the one who hits them."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ports import Reply
from paxos.ids import MS
from runtime.clients.clients import (
    ANSWER_NOT_READ_S,
    FAULTS_LOGGED_PER_S,
    REQUEST_NOT_FINISHED_S,
    UNANSWERED_BYTES_MAX,
    UNANSWERED_MAX,
    ClientLimits,
    Clients,
)
from tests.runtime.doubles import FakePlane, FakeSystemClock, Recorder, Tcp, frame, receive
from wire.framing import FrameLimits

MIB = 1024 * 1024
IDLE_S = 600
SECOND_NS = 1_000 * MS


ENDINGS = ("client gone", "client closed")


class Desk:
    """A node's client side with a broker that answers when the test says so."""

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
        """A client that has asked something, and was answered: it is not taken for a silent one."""
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
        """Housekeeping looks once a second."""
        for _ in range(int(seconds / every_s)):
            self.system.advance(int(every_s * SECOND_NS))
            self.clients.tick()
            self.clients.flush()

    def reasons(self) -> list[str]:
        """Why connections ended, in order: what clients do, and what was their fault."""
        said = [one for one in self.recorder.lines if one["event"] in ENDINGS]
        return [str(line["reason"]) for line in said]


@pytest.fixture
def desk() -> Iterator[Desk]:
    with opened() as desk:
        yield desk


@contextmanager
def opened(**limits: int) -> Iterator[Desk]:
    desk = Desk(**limits)
    try:
        yield desk
        desk.clients.close_all("the test is over")
        assert desk.clients.unanswered_bytes == 0, "the account of the node is settled"
        assert not desk.clients.connections
        assert desk.plane.callbacks == {}
    finally:
        desk.tcp.close()


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
    """Whatever the order in which they are ready, and with requests between that get no answer."""
    with opened() as desk:
        client = desk.connect()
        client.sendall(b"".join(frame(b"%d" % number) for number in range(count)))
        desk.until_asked(count)
        turns, dice = list(range(count)), Random(seed)
        dice.shuffle(turns)
        for turn in turns:
            if turn in answerless:
                desk.asked[turn][1].nothing()
            else:
                desk.answer(turn)
            if dice.random() < 0.5:
                desk.clients.flush()
        desk.clients.flush()
        expected = b"".join(frame(b"%d" % n) for n in range(count) if n not in answerless)
        assert receive(client, len(expected)) == expected


def test_an_answer_waits_for_those_before_it(desk: Desk) -> None:
    client = desk.connect()
    client.sendall(frame(b"slow") + frame(b"quick"))
    desk.until_asked(2)
    desk.answer(1)
    desk.clients.flush()
    client.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.recv(1)
    client.setblocking(True)
    desk.answer(0)
    desk.clients.flush()
    assert receive(client, 17) == frame(b"slow") + frame(b"quick")


def test_acks_0_gets_nothing_and_holds_up_nobody(desk: Desk) -> None:
    client = desk.connect()
    client.sendall(frame(b"acks=0") + frame(b"next"))
    desk.until_asked(2)
    desk.answer(1)
    desk.asked[0][1].nothing()
    desk.clients.flush()
    assert receive(client, 8) == frame(b"next")
    assert desk.clients.unanswered_bytes == 0


def test_clients_do_not_wait_for_each_other(desk: Desk) -> None:
    slow, quick = desk.connect(), desk.connect()
    slow.sendall(frame(b"slow"))
    desk.until_asked(1)
    quick.sendall(frame(b"quick"))
    desk.until_asked(2)
    desk.answer(1)
    desk.clients.flush()
    assert receive(quick, 9) == frame(b"quick")


def test_a_request_is_answered_once(desk: Desk) -> None:
    client = desk.connect()
    client.sendall(frame(b"x"))
    desk.until_asked(1)
    desk.answer(0)
    with pytest.raises(AssertionError, match="answered once"):
        desk.answer(0)
    with pytest.raises(AssertionError, match="answered once"):
        desk.asked[0][1].nothing()


# -- the end of a connection ----------------------------------------------------------------------


def test_answers_to_nobody_are_harmless(desk: Desk) -> None:
    """The client has gone; what it asked for comes true later, and counts for nothing."""
    client = desk.connect()
    client.sendall(frame(b"a") + frame(b"b") + frame(b"c"))
    desk.until_asked(3)
    desk.answer(0)
    (connection,) = desk.clients.connections
    client.close()
    desk.plane.settle()
    assert not desk.clients.connections
    assert not connection.queue, "whoever holds on to a request does not hold its answers"
    desk.answer(1)
    desk.asked[2][1].nothing()
    desk.asked[0][1].close("also too late")
    desk.clients.flush()
    assert desk.clients.unanswered_bytes == 0
    assert len(desk.reasons()) == 1


def test_a_request_that_cannot_be_answered_closes_its_connection(desk: Desk) -> None:
    """And only that one; the reason is for the operator."""
    bad, good = desk.connect(), desk.connect()
    bad.sendall(frame(b"bad"))
    desk.until_asked(1)
    good.sendall(frame(b"good"))
    desk.until_asked(2)
    desk.asked[0][1].close("api key 99 is not served")
    desk.answer(1)
    desk.settle()
    assert closed_by_us(bad)
    assert desk.reasons() == ["api key 99 is not served"]
    assert receive(good, 8) == frame(b"good")


def test_a_frame_over_the_limit_closes_its_connection(desk: Desk) -> None:
    bad, good = desk.connect(), desk.connect()
    bad.sendall(b"\x7f\xff\xff\xff")
    good.sendall(frame(b"good"))
    desk.until_asked(1)
    desk.settle()
    assert closed_by_us(bad)
    assert len(desk.clients.connections) == 1


def test_a_bug_of_ours_costs_one_connection(desk: Desk) -> None:
    """An exception that a handler lets out, and answers that cannot be sent: both are told loudly,
    and the others do not notice."""

    def fails(*_args: object) -> None:
        raise KeyError("a bug")

    desk.clients.serve = fails
    first = desk.connect()
    first.sendall(frame(b"x"))
    desk.settle()
    assert closed_by_us(first)
    desk.clients.serve = desk.serve
    second, third = desk.connect(), desk.connect()
    second.sendall(frame(b"x"))
    desk.until_asked(1)
    third.sendall(frame(b"y"))
    desk.until_asked(2)
    desk.asked[0][1].complete(["no bytes"])
    desk.answer(1)
    desk.settle()
    assert closed_by_us(second)
    assert receive(third, 5) == frame(b"y")
    told = desk.recorder.said("request handler failed")
    assert [line["level"] for line in told] == ["error", "error"]
    assert "KeyError: 'a bug'" in told[0]["trace"]


# -- push-back ------------------------------------------------------------------------------------


def test_a_client_with_too_many_requests_under_way_is_not_read(desk: Desk) -> None:
    """The limit holds to the request; half of them answered, it is read again."""
    client, total = desk.connect(), 2 * UNANSWERED_MAX
    client.sendall(b"".join(frame(b"%d" % number) for number in range(total)))
    desk.settle()
    assert len(desk.asked) == UNANSWERED_MAX
    for index in range(UNANSWERED_MAX // 2):
        desk.answer(index)
    desk.settle()
    assert len(desk.asked) == UNANSWERED_MAX, "not yet: it would be paused again at once"
    desk.answer(UNANSWERED_MAX // 2)
    desk.settle()
    assert len(desk.asked) > UNANSWERED_MAX
    answered = UNANSWERED_MAX // 2 + 1
    while answered < len(desk.asked):
        for index in range(answered, len(desk.asked)):
            desk.answer(index)
            answered += 1
        desk.settle()
    expected = b"".join(frame(b"%d" % number) for number in range(total))
    assert receive(client, len(expected)) == expected


def test_a_client_with_too_many_bytes_under_way_is_not_read(desk: Desk) -> None:
    client, big = desk.connect(), frame(bytes(16 * MIB))
    client.setblocking(False)
    sent = pump_in(desk, client, big * 6)
    assert len(desk.asked) == UNANSWERED_BYTES_MAX // (16 * MIB)
    assert sent < 6 * len(big)
    assert desk.clients.unanswered_bytes == UNANSWERED_BYTES_MAX
    for index in range(3):
        desk.answer(index, b"done")
    desk.clients.flush()
    assert pump_in(desk, client, (big * 6)[sent:]) == 6 * len(big) - sent
    assert len(desk.asked) == 6


def pump_in(desk: Desk, client: socket.socket, data: bytes) -> int:
    """Send until the kernel and the node take no more; returns how much they took."""
    at, stuck = 0, 0
    view = memoryview(data)
    while at < len(data) and stuck < 3:
        try:
            at += client.send(view[at : at + 4 * MIB])
            stuck = 0
        except BlockingIOError:
            stuck += 0 if desk.plane.round(1) else 1
            desk.clients.flush()
    desk.settle()
    return at


def test_push_back_of_the_whole_node() -> None:
    """All clients together hold too much: who sends more is not read until it is less, whoever it
    was that held it, and also where that one simply goes away."""
    with opened(pending_bytes_per_node=1000) as desk:
        greedy, modest = desk.connect(), desk.connect()
        greedy.sendall(frame(bytes(2000)))
        desk.until_asked(1)
        modest.sendall(frame(b"1"))
        desk.until_asked(2)
        modest.sendall(frame(b"2"))
        desk.settle()
        assert len(desk.asked) == 2, "it is not read any more"
        desk.answer(1)
        desk.settle()
        assert receive(modest, 5) == frame(b"1"), "but it gets its answers"
        assert len(desk.asked) == 2, "the node is still full"
        desk.answer(0)
        desk.settle()
        desk.clients.look()
        desk.settle()
        assert len(desk.asked) == 3

        greedy.sendall(frame(bytes(2000)))
        desk.until_asked(4)
        desk.answer(2)
        modest.sendall(frame(b"3"))
        desk.until_asked(5)
        desk.answer(4)
        modest.sendall(frame(b"4"))
        desk.settle()
        assert len(desk.asked) == 5
        greedy.close()
        desk.settle()
        desk.clients.look()
        desk.clients.flush()
        desk.settle()
        assert len(desk.asked) == 6


def test_a_client_that_is_pushed_back_and_leaves_is_forgotten() -> None:
    with opened(pending_bytes_per_node=1000) as desk:
        greedy, modest = desk.connect(), desk.connect()
        greedy.sendall(frame(bytes(2000)))
        desk.until_asked(1)
        modest.sendall(frame(b"x"))
        desk.until_asked(2)
        desk.answer(1)
        desk.settle()
        _, waiting = desk.clients.backpressure[None].clients
        assert waiting.paused
        waiting.close("gone")
        assert waiting not in desk.clients.backpressure[None].clients


def test_nothing_overtakes_what_is_still_being_looked_at() -> None:
    """Not read until everything has been looked at, whatever else would let it go on."""
    with opened() as desk:
        client, other = desk.connect(), desk.connect()

        def look(reply: Reply) -> None:
            reply.stop_reading()
            reply.stop_reading()

        desk.on_asked = look
        client.sendall(frame(b"1") + frame(b"2") + frame(b"3"))
        desk.until_asked(1)
        desk.settle()
        assert len(desk.asked) == 1, "not even what was received already is handed on"
        desk.on_asked = lambda reply: None
        other.sendall(frame(b"x"))
        desk.until_asked(2)
        _, first = desk.asked[0]
        first.read_on()
        desk.answer(0)
        desk.settle()
        assert receive(client, 5) == frame(b"1")
        assert len(desk.asked) == 2, "answered, but one batch is still being looked at"
        first.read_on()
        desk.settle()
        assert [data for data, _ in desk.asked[2:]] == [b"2", b"3"]


def test_who_goes_away_meanwhile_is_forgotten() -> None:
    with opened() as desk:
        client = desk.connect()
        desk.on_asked = lambda reply: reply.stop_reading()
        client.sendall(frame(b"1"))
        desk.until_asked(1)
        _, first = desk.asked[0]
        first.close("gone")
        desk.settle()
        first.read_on()
        desk.settle()
        assert closed_by_us(client)
        assert not desk.clients.connections


# -- how many -------------------------------------------------------------------------------------


def test_connections_of_one_address_are_limited(desk: Desk) -> None:
    """One client that leaks connections does not lock the others out."""
    friends = [desk.customer("10.0.0.1") for _ in range(5)]
    refused = desk.connect("10.0.0.1")
    assert closed_by_us(refused)
    other = desk.connect("10.0.0.2")
    other.sendall(frame(b"x"))
    desk.until_asked(1)
    friends[0].close()
    desk.settle()
    desk.connect("10.0.0.1")
    clients = desk.clients
    assert (clients.accepted_total, clients.refused_total) == (7, 1)
    assert len(clients.connections) == 6


def test_connections_are_limited(desk: Desk) -> None:
    for number in range(10):
        desk.customer(f"10.0.0.{number}")
    assert closed_by_us(desk.connect("10.0.0.99"))


def test_refusals_are_logged_once_a_second(desk: Desk) -> None:
    """A flood of connections must not become a flood of lines."""
    for _ in range(5):
        desk.customer()
    for _ in range(3):
        desk.connect()
    desk.system.advance(2 * SECOND_NS)
    desk.connect()
    told = desk.recorder.said("client refused")
    assert [line["refused"] for line in told] == [1, 4]
    assert told[0]["limit"] == "limits.connections_per_ip_max"


# -- how long -------------------------------------------------------------------------------------


def test_a_silent_connection_is_closed(desk: Desk) -> None:
    silent, talking = desk.customer(), desk.customer()
    desk.pass_seconds(IDLE_S)
    talking.sendall(frame(b"x"))
    desk.until_asked(1)
    desk.answer(0)
    desk.settle()
    desk.pass_seconds(2)
    assert closed_by_us(silent)
    assert desk.reasons() == ["idle"]
    assert len(desk.clients.connections) == 1


def test_who_waits_for_an_answer_is_not_idle(desk: Desk) -> None:
    """A long poll may be longer than the idle time."""
    client = desk.connect()
    client.sendall(frame(b"fetch"))
    desk.until_asked(1)
    desk.pass_seconds(IDLE_S + 10, every_s=10)
    desk.answer(0)
    desk.settle()
    assert receive(client, 9) == frame(b"fetch")


def test_half_a_request_is_not_waited_for_for_ever(desk: Desk) -> None:
    """Slow loris: a request, then a byte of the next now and then, whatever else it waits for."""
    client = desk.connect()
    client.sendall(frame(b"fetch") + b"\0\0\0\x64")
    desk.until_asked(1)
    for _ in range(int(REQUEST_NOT_FINISHED_S) + 1):
        assert desk.clients.connections
        desk.pass_seconds(1)
        client.sendall(b"x")
        desk.settle()
    desk.pass_seconds(1)
    assert desk.reasons() == ["a request was not finished in time"]


def test_a_request_after_a_long_silence_has_all_its_time(desk: Desk) -> None:
    """The clock of a request starts with it, not with the one before."""
    client = desk.customer()
    desk.pass_seconds(IDLE_S - 60)
    whole = frame(bytes(1000))
    client.sendall(whole[:500])
    desk.settle()
    desk.pass_seconds(REQUEST_NOT_FINISHED_S - 5)
    assert desk.clients.connections
    client.sendall(whole[500:])
    desk.until_asked(1)


def test_every_request_has_its_own_time(desk: Desk) -> None:
    """A busy client that always has half a request in the socket when housekeeping looks."""
    client, whole = desk.connect(), frame(bytes(100))
    client.sendall(whole[:50])
    for number in range(int(REQUEST_NOT_FINISHED_S) * 2):
        desk.settle()
        desk.pass_seconds(1)
        client.sendall(whole[50:] + whole[:50])
        desk.until_asked(number + 1)
        desk.answer(number, b"ok")
    assert desk.clients.connections


def test_a_client_that_is_pushed_back_need_not_finish(desk: Desk) -> None:
    """It is we who do not read."""
    client = desk.connect()
    client.sendall(frame(b"x") * (UNANSWERED_MAX + 5) + b"\0\0")
    desk.settle()
    assert len(desk.asked) == UNANSWERED_MAX
    desk.pass_seconds(REQUEST_NOT_FINISHED_S * 3)
    assert desk.clients.connections


def test_a_client_that_never_reads_loses_its_answers(desk: Desk) -> None:
    """They are in our memory; one that reads slowly keeps its connection."""
    deaf, slow = desk.connect(), desk.connect()
    for index, client in enumerate((deaf, slow)):
        client.sendall(frame(b"a lot"))
        desk.until_asked(index + 1)
        desk.answer(index, bytes(8 * MIB))
    desk.clients.flush()
    for _ in range(int(ANSWER_NOT_READ_S) + 2):
        desk.pass_seconds(1)
        slow.recv(64 * 1024)
        desk.settle()
    assert desk.reasons() == ["it does not read its answers"]
    assert len(desk.clients.connections) == 1


def test_a_fault_is_logged_for_everyone_and_a_flood_of_them_is_not() -> None:
    with opened() as desk:
        for _ in range(30):
            desk.connect(f"10.0.0.{_}").sendall(b"\xff\xff\xff\xff")
            desk.settle()
        told = desk.recorder.said("client closed")
        assert len(told) == FAULTS_LOGGED_PER_S
        assert told[0]["level"] == "warning"
        assert "frame" in str(told[0]["reason"])


# -- producers ------------------------------------------------------------------------------------


def test_a_producer_is_at_home_while_its_connection_lasts(desk: Desk) -> None:
    client = desk.connect()
    client.sendall(frame(b"produce"))
    desk.until_asked(1)
    desk.asked[0][1].produces(7)
    desk.asked[0][1].produces(7)
    assert len(desk.clients.producer_connections) == 1
    desk.asked[0][1].produces(8)
    assert len(desk.clients.producer_connections) == 1, "a connection is of the last one"
    client.close()
    desk.plane.run_until(lambda: not desk.clients.connections, desk.clients.flush)
    assert len(desk.clients.producer_connections) == 0
    desk.asked[0][1].produces(9)
    assert len(desk.clients.producer_connections) == 0, "an answer to nobody brings nobody home"
