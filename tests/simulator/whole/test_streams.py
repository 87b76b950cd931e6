"""Simulated TCP: order, windows, ends, resets, and links that carry nothing for a while."""

import pytest

from paxos.ids import MS
from simulator.environment.loop import Loop
from simulator.whole.streams import GONE, USER_TIMEOUT_NS, WINDOW_BYTES, Pipe, SimStream

DELAY_NS = 1 * MS


class Link:
    def __init__(self) -> None:
        self.cut: set[tuple[int, int]] = set()
        self.delays = iter(())

    def delay_ns(self, source: int, target: int) -> int | None:
        return None if (source, target) in self.cut else next(self.delays, DELAY_NS)


class Side:
    """One end, and what it was told."""

    def __init__(self) -> None:
        self.touches = 0

    def touched(self, _fd: int) -> None:
        self.touches += 1

    def gone(self, _fd: int) -> None: ...


class Pair:
    def __init__(self) -> None:
        self.loop, self.link = Loop(), Link()
        to = Pipe(self.loop, self.link, 1, 2)
        fro = Pipe(self.loop, self.link, 2, 1)
        self.a, self.b = Side(), Side()
        self.one = SimStream(3, self.a, fro, to, lambda: self.loop.now_ns, lambda _: None)
        self.two = SimStream(4, self.b, to, fro, lambda: self.loop.now_ns, lambda _: None)

    def pass_ms(self, ms: float) -> None:
        self.loop.run_until(self.loop.now_ns + int(ms * MS))


@pytest.fixture
def pair() -> Pair:
    return Pair()


def received(stream: SimStream, size: int = 1 << 20) -> bytes:
    room = memoryview(bytearray(size))
    return bytes(room[: stream.recv_into(room)])


def test_bytes_arrive_after_the_delay_and_in_order(pair: Pair) -> None:
    pair.link.delays = iter((9 * MS, 1 * MS, 5 * MS))
    for part in (b"one ", b"two ", b"three"):
        pair.one.send(part)
        pair.pass_ms(0.5)
    with pytest.raises(BlockingIOError):
        received(pair.two)
    pair.pass_ms(30)
    assert received(pair.two) == b"one two three"
    assert pair.b.touches


def test_the_window_holds_the_sender_until_the_reader_reads(pair: Pair) -> None:
    assert pair.one.send(bytes(WINDOW_BYTES + 10)) == WINDOW_BYTES
    with pytest.raises(BlockingIOError):
        pair.one.send(b"more")
    assert not pair.one.ready() & 0x4
    pair.pass_ms(2)
    with pytest.raises(BlockingIOError):
        pair.one.send(b"more")
    assert pair.two.untaken_bytes() == WINDOW_BYTES
    assert pair.one.unacknowledged_bytes() == 0
    assert len(received(pair.two)) == WINDOW_BYTES
    assert pair.one.ready() & 0x4
    assert pair.one.send(b"more") == 4


def test_what_a_cut_link_holds_goes_on_when_it_is_whole(pair: Pair) -> None:
    pair.link.cut.add((1, 2))
    pair.one.send(b"late")
    pair.two.send(b"the other way")
    pair.pass_ms(3_000)
    assert received(pair.one) == b"the other way"
    with pytest.raises(BlockingIOError):
        received(pair.two)
    pair.link.cut.clear()
    pair.pass_ms(500)
    assert received(pair.two) == b"late"


def test_a_link_cut_for_long_ends_the_connection_of_who_sends_and_of_nobody_else(
    pair: Pair,
) -> None:
    """The other side keeps a connection that no longer exists, until it sends something itself."""
    pair.link.cut.update({(1, 2), (2, 1)})
    pair.one.send(b"lost")
    pair.pass_ms(USER_TIMEOUT_NS / MS + 1_000)
    assert pair.one.ready() & GONE
    with pytest.raises(OSError, match="broken"):
        pair.one.send(b"x")
    with pytest.raises(OSError, match="reset"):
        received(pair.one)
    assert not pair.two.ready() & GONE
    with pytest.raises(BlockingIOError):
        received(pair.two)
    pair.link.cut.clear()
    pair.one.close()
    assert pair.two.send(b"x") == 1
    pair.pass_ms(10)
    assert pair.two.ready() & GONE


def test_what_was_sent_before_an_end_arrives_before_it(pair: Pair) -> None:
    pair.one.send(b"last words")
    pair.one.close()
    pair.pass_ms(5)
    assert pair.two.has_hung_up()
    assert received(pair.two) == b"last words"
    assert received(pair.two) == b""


def test_an_end_with_unread_data_is_a_reset(pair: Pair) -> None:
    pair.two.send(b"unread")
    pair.pass_ms(5)
    pair.one.close()
    with pytest.raises(OSError, match="reset"):
        received(pair.two)


def test_who_sends_to_a_closed_side_is_told_so(pair: Pair) -> None:
    pair.one.close()
    pair.pass_ms(5)
    assert received(pair.two) == b""
    assert pair.two.send(b"anybody?") == 8
    pair.pass_ms(5)
    with pytest.raises(OSError, match="broken"):
        pair.two.send(b"anybody?")


def test_a_machine_without_power_says_nothing(pair: Pair) -> None:
    pair.one.send(b"never sent")
    pair.one.lose_power()
    pair.pass_ms(5)
    assert not pair.two.has_hung_up()
    with pytest.raises(BlockingIOError):
        received(pair.two)
