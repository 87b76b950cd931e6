"""A client that has used up a quota is not read for a while, and nobody else notices."""

from collections.abc import Iterator

import pytest

from tests.runtime.clients.test_clients import Harness, opened
from tests.runtime.doubles import frame, receive

SECOND_NS = 1_000_000_000


@pytest.fixture
def harness() -> Iterator[Harness]:
    with opened() as harness:
        yield harness


def tick(harness: Harness, seconds: float) -> None:
    harness.system.advance(int(seconds * SECOND_NS))
    harness.clients.look()
    harness.settle()


def test_a_muted_client_gets_its_answer_and_is_read_later(harness: Harness) -> None:
    """What it sent meanwhile is not lost: it is served, in order, when the time is over."""
    client, other = harness.customer("10.0.0.1"), harness.customer("10.0.0.2")
    client.sendall(frame(b"first") + frame(b"second"))
    harness.on_asked = lambda reply: reply.mute(harness.system.boot_ns() + 3 * SECOND_NS)
    harness.until_asked(1)
    harness.on_asked = lambda reply: None
    harness.answer(0)
    harness.settle()
    assert receive(client, 9) == frame(b"first")
    for _ in range(2):
        other.sendall(frame(b"other"))
        tick(harness, 1)
        assert harness.asked[-1][0] == b"other"
        harness.answer(-1)
    assert [what for what, _ in harness.asked] == [b"first", b"other", b"other"]
    tick(harness, 1)
    assert harness.asked[-1][0] == b"second"
    harness.answer(-1)
    assert not len(harness.clients.muted)


def test_the_longer_of_two_mutes_holds(harness: Harness) -> None:
    client = harness.customer()
    client.sendall(frame(b"first"))
    harness.until_asked(1)
    now = harness.system.boot_ns()
    for seconds in (5, 2):
        harness.asked[0][1].mute(now + seconds * SECOND_NS)
    harness.answer(0)
    client.sendall(frame(b"second"))
    tick(harness, 3)
    assert len(harness.asked) == 1
    tick(harness, 2)
    assert len(harness.asked) == 2
    harness.answer(1)


def test_a_muted_client_that_leaves_is_forgotten(harness: Harness) -> None:
    client = harness.customer()
    client.sendall(frame(b"first"))
    harness.until_asked(1)
    harness.asked[0][1].mute(harness.system.boot_ns() + SECOND_NS)
    (one,) = harness.clients.connections
    one.close("the test closes it")
    assert not len(harness.clients.muted)
    harness.asked[0][1].mute(harness.system.boot_ns() + SECOND_NS)
    assert not len(harness.clients.muted), "it is gone"


def test_a_quota_of_an_address_takes_the_place_of_the_limit(harness: Harness) -> None:
    """Two seconds' worth at once, as without one (KIP-612)."""
    harness.clients.rate.quota = lambda host: 1.0 if host == "10.0.0.9" else None
    for _ in range(4):
        harness.connect("10.0.0.9")
    assert harness.clients.accepted_total == 2
    assert harness.clients.refused_total == 2
    for _ in range(4):
        harness.connect("10.0.0.8")
    assert harness.clients.refused_total == 2
