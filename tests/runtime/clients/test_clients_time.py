"""How long a connection may be silent, a request unfinished, and an answer unread."""

import pytest

from runtime.clients.clients import (
    ANSWER_NOT_READ_S,
    HELD_PROGRESS_BYTES,
    REQUEST_NOT_FINISHED_S,
    UNANSWERED_MAX,
)
from runtime.clients.endings import FAULTS_LOGGED_PER_S
from tests.runtime.clients.test_clients import IDLE_S, MIB, Harness, closed_by_us, opened
from tests.runtime.clients.test_clients import harness as harness  # a fixture
from tests.runtime.doubles import frame, receive


def test_a_silent_connection_is_closed(harness: Harness) -> None:
    silent, talking = harness.customer(), harness.customer()
    harness.pass_seconds(IDLE_S)
    talking.sendall(frame(b"x"))
    harness.until_asked(1)
    harness.answer(0)
    harness.settle()
    harness.pass_seconds(2)
    assert closed_by_us(silent)
    assert harness.reasons() == ["idle"]
    assert len(harness.clients.connections) == 1


def test_who_waits_for_an_answer_is_not_idle(harness: Harness) -> None:
    """A long poll may take longer than the idle time."""
    client = harness.connect()
    client.sendall(frame(b"fetch"))
    harness.until_asked(1)
    harness.pass_seconds(IDLE_S + 10, every_s=10)
    harness.answer(0)
    harness.settle()
    assert receive(client, 9) == frame(b"fetch")


def test_half_a_request_is_not_waited_for_for_ever(harness: Harness) -> None:
    """Slow loris: one request, then a byte of the next now and then, while other answers are
    pending."""
    client = harness.connect()
    client.sendall(frame(b"fetch") + b"\0\0\0\x64")
    harness.until_asked(1)
    for _ in range(int(REQUEST_NOT_FINISHED_S) + 1):
        assert harness.clients.connections
        harness.pass_seconds(1)
        client.sendall(b"x")
        harness.settle()
    harness.pass_seconds(1)
    assert harness.reasons() == ["a request was not finished in time"]


@pytest.mark.parametrize("before", [b"", frame(b"fetch")])
def test_a_large_request_over_a_slow_link_comes_to_its_end(harness: Harness, before: bytes) -> None:
    """Its bytes keep coming; a client whose connection is closed would begin it again."""
    client = harness.connect()
    client.sendall(before)
    piece, pieces = bytes(HELD_PROGRESS_BYTES), 4
    client.sendall(frame(piece * pieces)[:4])
    for _ in range(pieces):
        assert harness.clients.connections
        harness.pass_seconds(REQUEST_NOT_FINISHED_S - 2)
        client.sendall(piece)
        harness.settle()
    harness.until_asked(2 if before else 1)
    assert harness.clients.connections


def test_a_large_request_that_stops_coming_is_not_waited_for(harness: Harness) -> None:
    client = harness.connect()
    client.sendall(frame(bytes(4 * HELD_PROGRESS_BYTES))[: 2 * HELD_PROGRESS_BYTES])
    harness.settle()
    harness.pass_seconds(2 * REQUEST_NOT_FINISHED_S + 5)
    assert harness.reasons() == ["a request was not finished in time"]


def test_a_request_after_a_long_silence_has_all_its_time(harness: Harness) -> None:
    """A request's clock starts with its first byte, not with the request before it."""
    client = harness.customer()
    harness.pass_seconds(IDLE_S - 60)
    whole = frame(bytes(1000))
    client.sendall(whole[:500])
    harness.settle()
    harness.pass_seconds(REQUEST_NOT_FINISHED_S - 5)
    assert harness.clients.connections
    client.sendall(whole[500:])
    harness.until_asked(1)


def test_every_request_has_its_own_time(harness: Harness) -> None:
    """A busy client always has half a request in the socket when housekeeping looks."""
    client, whole = harness.connect(), frame(bytes(100))
    client.sendall(whole[:50])
    for number in range(int(REQUEST_NOT_FINISHED_S) * 2):
        harness.settle()
        harness.pass_seconds(1)
        client.sendall(whole[50:] + whole[:50])
        harness.until_asked(number + 1)
        harness.answer(number, b"ok")
    assert harness.clients.connections


def test_a_client_that_is_pushed_back_need_not_finish(harness: Harness) -> None:
    """It is the node that does not read."""
    client = harness.connect()
    client.sendall(frame(b"x") * (UNANSWERED_MAX + 5) + b"\0\0")
    harness.settle()
    assert len(harness.asked) == UNANSWERED_MAX
    harness.pass_seconds(REQUEST_NOT_FINISHED_S * 3)
    assert harness.clients.connections


def test_a_client_that_never_reads_loses_its_answers(harness: Harness) -> None:
    """They take the node's memory; a client that reads slowly keeps its connection."""
    deaf, slow = harness.connect(), harness.connect()
    for index, client in enumerate((deaf, slow)):
        client.sendall(frame(b"a lot"))
        harness.until_asked(index + 1)
        harness.answer(index, bytes(8 * MIB))
    harness.clients.flush()
    for _ in range(int(ANSWER_NOT_READ_S) + 2):
        harness.pass_seconds(1)
        slow.recv(64 * 1024)
        harness.settle()
    assert harness.reasons() == ["it does not read its answers"]
    assert len(harness.clients.connections) == 1


def test_a_fault_is_logged_for_everyone_and_a_flood_of_them_is_not() -> None:
    with opened() as harness:
        for _ in range(30):
            harness.connect(f"10.0.0.{_}").sendall(b"\xff\xff\xff\xff")
            harness.settle()
        told = harness.recorder.said("client closed")
        assert len(told) == FAULTS_LOGGED_PER_S
        assert told[0]["level"] == "warning"
        assert "frame" in str(told[0]["reason"])
