"""A channel over TLS on real sockets: frames come whole, whatever is left in the stream; handshakes
are few at once."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest

from runtime.network.dataplane import READ, WRITE
from runtime.network.tls_channel import HANDSHAKES_PER_ROUND_MAX, Handshakes, TlsChannel
from runtime.network.tls_stream import ENCRYPTED_BYTES_MAX, TlsStream
from tests.certs import Certs
from tests.runtime.doubles import FakePlane, Tcp, frame
from tests.runtime.network.test_tls_stream import certs as certs  # a fixture
from tests.runtime.network.test_tls_stream import server_context
from wire.framing import FrameLimits

LIMITS = FrameLimits(default=4 * 1024 * 1024)
UNSENT_MAX = 64 * 1024 * 1024


class Frozen(FakePlane):
    """Time stands still until a test lets it pass."""

    now_ns = 1_000_000_000

    def boot_ns(self) -> int:
        return self.now_ns


class Ends:
    """Our channel, and a client that does TLS by itself over a socket that does not block."""

    def __init__(self, plane: FakePlane, tcp: Tcp, certs: Certs, handshakes: Handshakes) -> None:
        accepted, connected = tcp.pair()
        connected.setblocking(False)
        self.plane, self.accepted = plane, accepted
        self.client = TlsStream(connected, certs.context_of(), host="localhost")
        self.frames: list[bytes] = []
        self.closed: list[str] = []
        self.secured = 0
        self.channel = TlsChannel(
            plane,
            TlsStream(accepted, server_context(certs)),
            LIMITS,
            handshakes=handshakes,
            on_secured=self._secured,
            on_frame=lambda data, _owned: self.frames.append(bytes(data)),
            on_closed=self.closed.append,
            unsent_bytes_max=UNSENT_MAX,
        )

    def _secured(self, _stream: TlsStream) -> str:
        self.secured += 1
        return ""

    def shake(self) -> None:
        for _ in range(1_000):
            with suppress(BlockingIOError):
                if self.client.handshake() and self.secured:
                    return
            self.plane.round(1)
        raise AssertionError("the handshake does not end")

    @property
    def wants(self) -> int:
        return self.plane.events[self.accepted.fileno()]


@pytest.fixture
def plane() -> FakePlane:
    return FakePlane()


@pytest.fixture
def tcp() -> Iterator[Tcp]:
    made = Tcp()
    yield made
    made.close()


@pytest.fixture
def ends(plane: FakePlane, tcp: Tcp, certs: Certs) -> Ends:
    made = Ends(plane, tcp, certs, Handshakes(plane))
    made.shake()
    return made


def sent_all(ends: Ends, data: bytes) -> None:
    """The client sends, while the node takes it."""
    rest = memoryview(data)
    for _ in range(100_000):
        with suppress(BlockingIOError):
            rest = rest[ends.client.send(rest) :]
        with suppress(BlockingIOError):
            ends.client.push()
        if not len(rest) and not ends.client.encrypted_bytes:
            return
        ends.plane.round(1)
    raise AssertionError("the node takes nothing more")


def received(ends: Ends, size: int) -> bytes:
    got, room = bytearray(), memoryview(bytearray(1 << 20))
    for _ in range(100_000):
        with suppress(BlockingIOError):
            got += room[: ends.client.recv_into(room)]
        if len(got) >= size:
            return bytes(got)
        ends.plane.round(1)
    raise AssertionError(f"{len(got)} of {size} bytes came")


def test_frames_of_all_sizes_come_whole_and_in_order(ends: Ends) -> None:
    frames = [bytes([number % 251]) * size for number, size in enumerate((1, 70_000, 5, 2_000_000))]
    sent_all(ends, b"".join(frame(one) for one in frames * 2))
    ends.plane.settle()
    assert ends.frames == frames * 2
    assert ends.channel.dry
    assert ends.channel.received_bytes == sum(4 + len(one) for one in frames * 2)
    assert ends.wants == READ, "nothing spins"


def test_what_came_while_it_was_not_reading_is_handed_on_afterwards(ends: Ends) -> None:
    """The socket is empty by then: everything is in the stream, decrypted or not."""
    channel = ends.channel
    sent_all(ends, frame(b"first"))
    ends.plane.settle()
    channel.pause_reading()
    sent_all(ends, b"".join(frame(b"%d" % number) * 50 for number in range(100)))
    ends.plane.settle()
    assert ends.frames == [b"first"]
    channel.resume_reading()
    ends.plane.settle()
    assert len(ends.frames) == 1 + 5_000
    assert ends.wants == READ


def test_pausing_in_the_middle_loses_nothing(ends: Ends) -> None:
    """It pauses at every frame: what is left waits in the assembler, and in the stream."""
    channel = ends.channel
    original = channel._on_frame

    def one_at_a_time(data: memoryview, owned: bool) -> None:
        original(data, owned)
        channel.pause_reading()

    channel._on_frame = one_at_a_time
    frames = [b"%d" % number + bytes(3_000) for number in range(100)]
    sent_all(ends, b"".join(map(frame, frames)))
    for count in range(1, 101):
        channel.resume_reading()
        ends.plane.settle()
        assert len(ends.frames) == count
    assert ends.frames == frames


def test_large_answers_leave_also_while_nothing_is_read(ends: Ends) -> None:
    channel = ends.channel
    channel.pause_reading()
    data = bytes(range(256)) * 40_000
    assert channel.send([data, data], 2 * len(data))
    channel.flush()
    assert channel.unsent_bytes > 0
    assert channel._sock.encrypted_bytes <= ENCRYPTED_BYTES_MAX + 400
    assert ends.wants & WRITE
    assert not ends.wants & READ
    assert received(ends, 2 * len(data)) == data + data
    ends.plane.settle()
    assert (channel.unsent_bytes, channel.sent_bytes) == (0, 2 * len(data))
    assert ends.wants == 0, "neither reading nor writing: nothing spins"


def test_sent_and_unsent_bytes_add_up_to_what_was_given(ends: Ends) -> None:
    """Encrypted bytes that wait count as unsent: who reads nothing is noticed, and barriers are not
    lowered too early."""
    channel = ends.channel
    data = bytes(1_000_000)
    for count in range(1, 20):
        assert channel.send([data], len(data))
        channel.flush()
        assert channel.sent_bytes + channel.unsent_bytes == count * len(data)
        assert channel.acknowledged_bytes <= channel.sent_bytes
    assert channel.unsent_bytes > 0
    received(ends, 19 * len(data))
    ends.plane.settle()
    assert channel.unsent_bytes == 0


def test_the_end_of_the_connection_is_told_once_and_after_the_last_frame(ends: Ends) -> None:
    sent_all(ends, frame(b"last"))
    ends.client.close()
    ends.plane.settle()
    assert ends.frames == [b"last"]
    assert ends.closed == ["closed by the other side"]
    assert ends.channel.has_hung_up()
    assert ends.channel.untaken_bytes == 0
    assert not ends.channel.send([b"x"], 1)


def test_closing_says_so(ends: Ends) -> None:
    ends.channel.close("enough")
    room = memoryview(bytearray(10))
    for _ in range(100):
        with suppress(BlockingIOError):
            assert ends.client.recv_into(room) == 0
            break
    assert ends.closed == ["enough"]
    assert ends.channel.unsent_bytes == 0


def test_half_a_record_is_something_unfinished(ends: Ends) -> None:
    """Else a client that stops within a record would look as if it had sent nothing."""
    ends.plane.settle()
    assert ends.channel.dry
    raw = ends.client._inner
    assert isinstance(raw, socket.socket)
    raw.send(bytes.fromhex("170303 0100 00"))
    ends.plane.run_until(lambda: ends.channel.partial_bytes)
    assert ends.channel.partial_bytes == 6
    assert not ends.channel.dry


def test_few_handshakes_go_on_at_the_same_time(tcp: Tcp, certs: Certs) -> None:
    """A crowd is let in bit by bit, and everyone at last."""
    plane = Frozen()
    handshakes = Handshakes(plane)
    crowd = [Ends(plane, tcp, certs, handshakes) for _ in range(3 * HANDSHAKES_PER_ROUND_MAX)]
    for one in crowd:
        with suppress(BlockingIOError):
            one.client.handshake()
    for _ in range(5):
        plane.round(5)
    begun = sum(one.channel._sock.started for one in crowd)
    assert begun == HANDSHAKES_PER_ROUND_MAX
    for _ in range(100):
        plane.now_ns += 3_000_000
        plane.round(5)
        for one in crowd:
            if not one.client.established:
                with suppress(BlockingIOError):
                    one.client.handshake()
    assert [one.secured for one in crowd] == [1] * len(crowd)
    assert handshakes.done_total == len(crowd)


def test_a_refusal_after_the_handshake_closes(plane: FakePlane, tcp: Tcp, certs: Certs) -> None:
    ends = Ends(plane, tcp, certs, Handshakes(plane))
    ends.channel._on_secured = lambda _stream: "nobody knows it"
    for _ in range(100):
        with suppress(BlockingIOError, ssl.SSLError, OSError):
            ends.client.handshake()
        plane.round(1)
        if ends.closed:
            break
    assert ends.closed == ["nobody knows it"]


def test_who_hangs_up_during_the_handshake_is_gone(
    plane: FakePlane, tcp: Tcp, certs: Certs
) -> None:
    ends = Ends(plane, tcp, certs, Handshakes(plane))
    ends.client.close()
    plane.settle()
    (reason,) = ends.closed
    assert reason.startswith("closed by the other side")
    assert not plane.callbacks
