"""One connection: bytes arrive intact and in order, and each limit has its defined effect."""

import errno
import select
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from random import Random
from types import SimpleNamespace
from typing import NoReturn, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.network.channel import SEND_BUFFERS_MAX, SEND_BYTES_PER_ROUND_MAX, Channel, join_small
from runtime.network.dataplane import READ, WRITE, DataPlane, Poller
from runtime.system.memory import ClientRoom, Memory
from tests.runtime.doubles import FakePlane, Tcp, frame, unix_pair
from wire.framing import FrameLimits

LIMITS = FrameLimits(default=64 * 1024, by_key={0: 1024 * 1024})
UNSENT_MAX = 100_000
SMALLEST_SNDBUF = 4608


class End:
    """Our end of a connection, and what happened to it."""

    def __init__(self, plane: FakePlane, sock: socket.socket, unsent_max: int = UNSENT_MAX) -> None:
        self.plane, self.sock = plane, sock
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.pause_at: set[int] = set()
        """Pause when that many frames have come."""
        self.channel = Channel(
            plane,
            sock,
            LIMITS,
            on_frame=self._on_frame,
            on_closed=self.closed.append,
            unsent_bytes_max=unsent_max,
        )

    def _on_frame(self, data: memoryview, owned: bool) -> None:
        self.frames.append(bytes(data))
        if len(self.frames) in self.pause_at:
            self.channel.pause_reading()

    @property
    def wants(self) -> int:
        return self.plane.events[self.sock.fileno()]


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def tcp() -> Iterator[Tcp]:
    tcp = Tcp()
    yield tcp
    tcp.close()


@pytest.mark.parametrize("unread", [b"", frame(b"a request that nobody has read")])
def test_who_has_hung_up_is_known_though_not_all_is_read(
    plane: FakePlane, tcp: Tcp, unread: bytes
) -> None:
    ours, theirs = tcp.pair()
    end = End(plane, ours)
    assert not end.channel.has_hung_up()
    end.channel.pause_reading()
    theirs.sendall(unread)
    assert not end.channel.has_hung_up()
    theirs.close()  # on loopback this is there at once
    assert end.channel.has_hung_up()
    assert not end.closed
    end.channel.close("done")
    assert end.channel.has_hung_up()


def test_a_connection_that_cannot_be_polled_leaves_nothing_behind(tcp: Tcp) -> None:
    """The kernel may refuse one more descriptor to poll: ENOSPC, ENOMEM."""

    def refuse(*_args: object, **_kwargs: object) -> NoReturn:
        raise OSError(errno.ENOSPC, "no more watches")

    poller = cast("Poller", SimpleNamespace(register=refuse))
    plane = DataPlane(lambda: 0, lambda _what, _error: None, poller)
    memory = Memory(1_000_000, 1_000_000)
    ours, _ = tcp.pair()
    with pytest.raises(OSError, match="no more watches"):
        Channel(
            plane,
            ours,
            LIMITS,
            on_frame=lambda _data, _owned: None,
            on_closed=lambda _why: None,
            unsent_bytes_max=0,
            room=ClientRoom(memory),
            urgent=True,
        )
    assert memory.buffers == 0
    assert not plane._callbacks
    assert not plane._urgent


# -- sending --------------------------------------------------------------------------------------

sizes = st.lists(
    st.one_of(st.integers(0, 20), st.integers(4000, 4200), st.integers(0, 40_000)), max_size=30
)


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(st.tuples(sizes, st.integers(0, 60_000)), max_size=6),
    seed=st.integers(0, 1 << 32),
)
def test_bytes_arrive_intact_and_in_order(rounds: list[tuple[list[int], int]], seed: int) -> None:
    """Whatever the buffers' sizes, and however little the kernel accepts at a time."""
    plane, sent, got = FakePlane(), bytearray(), bytearray()
    dice = Random(seed)
    with unix_pair(SMALLEST_SNDBUF) as (ours, theirs):
        end = End(plane, ours, unsent_max=10_000_000)
        for buffers, to_read in rounds:
            made = [dice.randbytes(size) for size in buffers]
            # a memoryview, as the batches of a fetch are
            views = [memoryview(data) if index % 2 else data for index, data in enumerate(made)]
            assert end.channel.send(views, sum(buffers))
            sent += b"".join(made)
            end.channel.flush()
            got += read_up_to(theirs, to_read)
            plane.round()
            assert end.channel.unsent_bytes == len(sent) - end.channel.sent_bytes
        while len(got) < len(sent):
            plane.round()
            more = read_up_to(theirs, 1 << 20)
            assert more, "the channel has stopped sending"
            got += more
        plane.settle()
        assert got == sent
        assert end.channel.unsent_bytes == 0
        assert end.wants == READ, "an idle channel that waits for EPOLLOUT spins"
        assert end.closed == []


def read_up_to(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        try:
            data += sock.recv(size - len(data))
        except BlockingIOError:
            break
    return data


def test_more_buffers_than_one_system_call_takes(plane: FakePlane) -> None:
    """IOV_MAX is the kernel's limit, not ours."""
    large = [bytes([index % 251]) * 5000 for index in range(3 * SEND_BUFFERS_MAX)]
    with unix_pair() as (ours, theirs):
        end = End(plane, ours, unsent_max=1 << 30)
        end.channel.send(large, sum(map(len, large)))
        end.channel.flush()
        got = b""
        while len(got) < 5000 * len(large):
            plane.round()
            got += read_up_to(theirs, 1 << 20)
        assert got == b"".join(large)


def test_small_neighbours_are_joined_and_large_ones_left_alone() -> None:
    large = bytes(5000)
    joined = join_small([b"a", b"b", large, b"c", large, large, b"d", b"e"])
    assert joined == [b"ab", large, b"c", large, large, b"de"]
    assert joined[1] is large, "a large buffer is never copied"


def test_one_reader_does_not_hold_up_the_others(plane: FakePlane) -> None:
    """A client that takes all we have for it still gets it in several rounds."""

    class Greedy(socket.socket):
        def sendmsg(self, buffers: Sequence[bytes], *_args: object) -> int:
            return sum(map(len, buffers))

        def send(self, data: bytes, *_args: object) -> int:
            return len(data)

    with unix_pair() as (ours, _theirs):
        greedy = Greedy(fileno=ours.detach())
        end = End(plane, greedy, unsent_max=1 << 30)
        chunks = [bytes(1024 * 1024)] * (2 * SEND_BUFFERS_MAX)
        end.channel.send(chunks, sum(map(len, chunks)))
        end.channel.flush()
        assert end.channel.sent_bytes > SEND_BYTES_PER_ROUND_MAX
        assert end.channel.unsent_bytes > 0
        assert end.wants == READ | WRITE
        plane.round()
        assert end.channel.unsent_bytes == 0
        assert end.wants == READ
        greedy.close()


def test_over_the_bound_nothing_more_is_queued(plane: FakePlane) -> None:
    """The sender is informed and decides; what was queued before still leaves."""
    with unix_pair(SMALLEST_SNDBUF) as (ours, theirs):
        end = End(plane, ours)
        assert end.channel.send([b"x" * UNSENT_MAX], UNSENT_MAX)
        assert not end.channel.send([b"y"], 1)
        end.channel.flush()
        assert 0 < end.channel.unsent_bytes < UNSENT_MAX
        assert end.channel.send([b"z"], 1), "there is room again"
        got = b""
        while end.channel.unsent_bytes:
            got += read_up_to(theirs, 1 << 20)
            plane.round()
        assert got + read_up_to(theirs, 1 << 20) == b"x" * UNSENT_MAX + b"z"


def test_one_answer_over_the_bound_may_go_alone(plane: FakePlane) -> None:
    """Otherwise a request with a large answer could never be answered at all."""
    with unix_pair() as (ours, _theirs):
        end = End(plane, ours)
        assert end.channel.send([bytes(2 * UNSENT_MAX)], 2 * UNSENT_MAX)
        assert not end.channel.send([b"y"], 1)


def test_who_does_not_read_costs_us_no_rounds(plane: FakePlane) -> None:
    """EPOLLOUT reports a full socket only when there is room."""
    with unix_pair(SMALLEST_SNDBUF) as (ours, theirs):
        end = End(plane, ours)
        end.channel.send([bytes(50_000)], 50_000)
        end.channel.flush()
        assert end.wants == READ | WRITE
        assert plane.round() == 0
        read_up_to(theirs, 1 << 20)
        assert plane.round() == 1


def test_after_the_end_nothing_is_queued(plane: FakePlane) -> None:
    with unix_pair() as (ours, _theirs):
        end = End(plane, ours)
        end.channel.send([b"never sent"], 10)
        end.channel.close("enough")
        end.channel.close("said twice")
        assert end.closed == ["enough"]
        assert not end.channel.send([b"x"], 1)
        end.channel.flush()
        assert end.channel.unsent_bytes == 0
        assert plane.callbacks == {}


# -- receiving ------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    bodies=st.lists(st.one_of(st.integers(0, 50), st.integers(0, 60_000)), max_size=25),
    cuts=st.lists(st.integers(1, 30_000), min_size=1, max_size=10),
    pauses=st.sets(st.integers(1, 25), max_size=6),
    seed=st.integers(0, 1 << 32),
)
def test_frames_arrive_whole_and_in_order(
    bodies: list[int], cuts: list[int], pauses: set[int], seed: int
) -> None:
    """Wherever TCP cuts the stream, and however often backpressure stops it on the way."""
    dice = Random(seed)
    made = [dice.randbytes(size) for size in bodies]
    stream = b"".join(map(frame, made))
    plane = FakePlane()
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        end.pause_at = pauses
        at = turn = 0
        while len(end.frames) < len(made):
            piece = stream[at : at + cuts[turn % len(cuts)]]
            turn += 1
            if piece:
                with suppress(BlockingIOError):
                    at += theirs.send(piece)
            plane.round()
            if not end.wants & READ:
                handed_on = len(end.frames)
                assert handed_on in pauses
                plane.round()
                assert len(end.frames) == handed_on, "paused, it hands on nothing"
                end.channel.resume_reading()
        plane.settle()
        assert end.frames == made
        assert end.channel.partial_bytes == 0
        assert end.wants in (READ, 0)
        assert end.closed == []


def test_push_back_holds_at_the_very_frame(plane: FakePlane) -> None:
    """A hundred small requests come in one read; a limit of 3 is exactly 3."""
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        end.pause_at = {3}
        theirs.send(b"".join(frame(bytes([number])) for number in range(100)))
        plane.settle()
        assert len(end.frames) == 3
        end.channel.resume_reading()
        assert len(end.frames) == 3, "resuming is safe in the middle of anything"
        plane.settle()
        assert [body[0] for body in end.frames] == list(range(100))
        theirs.send(frame(b"more"))
        plane.settle()
        assert end.frames[-1] == b"more"
        assert end.wants == READ


def test_paused_the_data_stays_in_the_socket(plane: FakePlane) -> None:
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        end.channel.pause_reading()
        theirs.send(frame(b"wait"))
        assert plane.round() == 0
        end.channel.resume_reading()
        plane.settle()
        assert end.frames == [b"wait"]


def test_paused_and_left_alone_by_the_client(plane: FakePlane, tcp: Tcp) -> None:
    """A reset is reported for ever, asked for or not: an unread connection must not spin on it."""
    ours, theirs = tcp.pair()
    end = End(plane, ours)
    end.channel.pause_reading()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    theirs.close()
    plane.run_until(lambda: end.closed)
    assert end.closed == ["lost while it was not being read"]
    assert plane.callbacks == {}


def test_while_answers_wait_requests_are_still_read(plane: FakePlane) -> None:
    with unix_pair(SMALLEST_SNDBUF) as (ours, theirs):
        end = End(plane, ours)
        end.channel.send([bytes(50_000)], 50_000)
        end.channel.flush()
        theirs.send(frame(b"next"))
        plane.round()
        assert end.frames == [b"next"]


def test_an_unfinished_frame_is_seen(plane: FakePlane) -> None:
    """The time limit for half a request relies on this."""
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        whole = frame(b"0123456789")
        theirs.send(whole[:9])
        plane.round()
        assert end.channel.partial_bytes == 9
        theirs.send(whole[9:])
        plane.round()
        assert end.channel.partial_bytes == 0
        assert end.channel.received_bytes == len(whole)


# -- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        (b"\x7f\xff\xff\xff", "a frame of 2147483647 bytes"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        ((64 * 1024 + 1).to_bytes(4, "big") + b"\0\1", "at most 65536 allowed"),
    ],
)
def test_a_frame_over_the_limit_ends_the_connection(
    plane: FakePlane, head: bytes, reason: str
) -> None:
    """By its length alone, before any memory is allocated; frames before it were served."""
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        theirs.send(frame(b"fine") + head + b"not looked at")
        plane.round()
        assert end.frames == [b"fine"]
        assert len(end.closed) == 1
        assert reason in end.closed[0]


def test_limits_change_when_the_sender_has_said_who_it_is(plane: FakePlane) -> None:
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        end.channel.limit_frames(FrameLimits(default=10))
        theirs.send(frame(bytes(10)))
        plane.round()
        end.channel.limit_frames(FrameLimits(default=20))
        theirs.send(frame(bytes(20)) + frame(bytes(21)))
        plane.round()
        assert [len(body) for body in end.frames] == [10, 20]
        assert "at most 20 allowed" in end.closed[0]


def test_closing_in_the_middle_of_a_read_ends_it(plane: FakePlane) -> None:
    """What else came in the same read is handed to nobody."""
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)

        def refuse(_data: memoryview, _owned: bool) -> None:
            end.channel.close("refused")

        end.channel._on_frame = refuse
        theirs.send(frame(b"1") + frame(b"2"))
        plane.round()
        assert end.closed == ["refused"]
        assert plane.callbacks == {}


def test_the_other_side_closes(plane: FakePlane) -> None:
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        theirs.send(frame(b"last words"))
        theirs.close()
        plane.run_until(lambda: end.closed)
        assert end.frames == [b"last words"]
        assert end.closed == ["closed by the other side"]


def test_the_other_side_resets(plane: FakePlane, tcp: Tcp) -> None:
    ours, theirs = tcp.pair()
    end = End(plane, ours)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
    theirs.close()
    plane.run_until(lambda: end.closed)
    assert end.closed == ["receive failed: Connection reset by peer"]


def test_sending_to_nobody(plane: FakePlane) -> None:
    with unix_pair() as (ours, theirs):
        end = End(plane, ours)
        theirs.close()
        end.channel.send([b"x"], 1)
        end.channel.flush()
        assert end.closed == ["send failed: Broken pipe"]


def test_a_stray_call_is_harmless(plane: FakePlane) -> None:
    """A descriptor that is closed and reused in one round gets an event of its former owner."""
    with unix_pair() as (ours, _theirs):
        end = End(plane, ours)
        end.channel._on_ready(select.EPOLLIN | select.EPOLLOUT)
        assert end.closed == []
        assert end.wants == READ


def test_one_connection_does_not_take_a_whole_round(
    plane: FakePlane, tcp: Tcp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on in the next round, even if nothing more arrives, and whatever is flushed in
    between."""
    monkeypatch.setattr("runtime.network.channel.DELIVERS_NS", 0)
    ours, theirs = tcp.pair()
    end = End(plane, ours)
    theirs.sendall(b"".join(frame(bytes([number])) for number in range(5)))
    for count in range(1, 6):
        plane.run_until(lambda count=count: len(end.frames) >= count)
        assert len(end.frames) == count
        end.channel.flush()
    end.channel.close("the test is over")
