"""Nobody who has not proved who he is makes us hold more than 64 KiB for his connection."""

import ctypes
import gc
import tracemalloc
from collections.abc import Callable
from contextlib import suppress

import pytest

from broker.ports import Connection
from broker.security.authentication import FRAME_BYTES_MAX
from broker.security.tokens import TOKEN_BYTES_MAX
from runtime.clients.limits import UNPROVED_FRAMES
from runtime.network.tls_stream import HANDSHAKE_BYTES_MAX, TlsError, TlsStream
from tests.broker.fakes import FakeReply
from tests.broker.security.test_oauth import SECURE
from tests.broker.security.tokens_of import forged, token
from tests.fuzz.strangers.stranger_targets import bearer, contexts, encoded, hello
from tests.runtime.network.test_tls_stream import Memory, Way
from wire.errors import ProtocolError
from wire.framing import KIB, FrameAssembler
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

HELD_BYTES_MAX = 64 * KIB
OPENSSL_BYTES_MAX = 192 * KIB


class Stranger:
    """A connection with its buffers, at a node that knows it not."""

    def __init__(self) -> None:
        self.connection = Connection(SECURE)
        self.assembler = FrameAssembler(UNPROVED_FRAMES)
        self.replies: list[FakeReply] = []

    def send(self, data: bytes) -> None:
        view = memoryview(data)
        while len(view):
            room = self.assembler.buffer_to_fill()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.assembler.received(count)
            view = view[count:]
            for frame in self.assembler.frames():
                reply = FakeReply(connection=self.connection)
                self.replies.append(reply)
                node = bearer().world[1]
                node.api.handle_frame(frame.data, frame.owned, "198.51.100.7", reply)
                bearer().world.cluster.settle()
                if reply.closed is not None:
                    self.assembler.drop()
                    return


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def says(mechanism: str, message: bytes, version: int = 2) -> bytes:
    shakes = encoded(SaslHandshakeRequest(mechanism), 1)
    return framed(shakes) + framed(encoded(SaslAuthenticateRequest(message), version))


LARGEST = FRAME_BYTES_MAX - 200
SENT: dict[str, Callable[[], bytes]] = {
    "half of the largest frame": lambda: (FRAME_BYTES_MAX).to_bytes(4, "big") + bytes(LARGEST),
    "a length that lies": lambda: (0x7FFFFFFF).to_bytes(4, "big") + b"\0\x24",
    "many small frames, and a large one": lambda: (
        framed(encoded(ApiVersionsRequest("x", "1"), 3)) * 500 + framed(bytes(LARGEST))
    ),
    "a long name of software": lambda: framed(encoded(ApiVersionsRequest("x" * 16_000, "1"), 3)),
    "PLAIN": lambda: says("PLAIN", b"\0ada\0" + b"x" * LARGEST),
    "SCRAM": lambda: says("SCRAM-SHA-512", b"n,,n=ada,r=" + b"x" * LARGEST),
    "SCRAM, commas": lambda: says("SCRAM-SHA-512", b"n,,n=ada,r=x" + b",a=" * 5_000),
    "EXTERNAL": lambda: says("EXTERNAL", b"x" * LARGEST),
    "a token of garbage": lambda: says("OAUTHBEARER", _bearer(b"x" * TOKEN_BYTES_MAX)),
    "a header of brackets": lambda: says("OAUTHBEARER", _bearer(forged(b"[" * 700))),
    "a header of numbers": lambda: says(
        "OAUTHBEARER", _bearer(forged(b'{"a":[' + b"1," * 340 + b"1]}"))
    ),
    "a token with a wrong signature": lambda: says(
        "OAUTHBEARER", _bearer(token(x="y" * 8_000, kid="rsa")[:-4] + b"AAAA")
    ),
    "many values": lambda: says("OAUTHBEARER", b"n,,\x01" + b"a=\x01" * 4_000 + b"\x01"),
    "a bare frame of GSSAPI": lambda: (
        framed(encoded(SaslHandshakeRequest("PLAIN"), 0)) + framed(b"\x60" * LARGEST)
    ),
}


def _bearer(data: bytes) -> bytes:
    return b"n,,\x01auth=Bearer " + data + b"\x01\x01"


@pytest.mark.parametrize("what", SENT)
def test_nothing_before_authentication_holds_more(what: str) -> None:
    data = SENT[what]()
    with suppress(ProtocolError):
        Stranger().send(data)  # what is made once for all
    bearer().world.advance(200, step_ms=100)
    gc.collect()
    tracemalloc.start()
    try:
        stranger = Stranger()
        with suppress(ProtocolError):
            stranger.send(data)
        held = tracemalloc.get_traced_memory()[1]
        assert held <= HELD_BYTES_MAX, f"{held} bytes"
    finally:
        tracemalloc.stop()
    assert stranger.connection.session is not None
    assert not stranger.connection.session.proved
    bearer().world.advance(200, step_ms=100)


class _Heap(ctypes.Structure):
    """glibc's struct mallinfo2."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks"),
            *("uordblks", "fordblks", "keepcost"),
        )
    )


def heap_bytes() -> int:
    """What the C library has given to this process: OpenSSL's memory, which Python does not see."""
    try:
        tell = ctypes.CDLL(None).mallinfo2
    except AttributeError:
        pytest.skip("the C library does not tell its memory")
    tell.restype = _Heap
    found = tell()
    return int(found.uordblks + found.hblkhd)


@pytest.mark.parametrize("what", ["nothing", "half a hello", "a hello", "a hello and a flood"])
def test_a_handshake_that_does_not_end_holds_no_more(what: str) -> None:
    """What OpenSSL holds for it is more than 64 KiB, and not ours to choose (docs/fuzzing.md); but
    a client's bytes do not make it grow."""
    whole = hello(name=b"x" * 200)
    lies = b"\x16\x03\x01\x40\x00\x01\x00\x7f\x00" + bytes(16_380)
    data = {
        "nothing": b"",
        "half a hello": whole[:100],
        "a hello": whole,
        "a hello and a flood": lies[: 5 + 16_384],
    }[what]
    kept: list[TlsStream] = []

    def shake(count: int) -> None:
        for _ in range(count):
            up, down = Way(), Way()
            if data:
                Memory(down, up).send(data)
            stream = TlsStream(Memory(up, down), contexts().of("optional"))
            with suppress(BlockingIOError, TlsError):
                stream.handshake()
            down.pieces.clear()  # the network has it
            kept.append(stream)

    shake(5)
    gc.collect()
    before = heap_bytes()
    shake(100)
    each = (heap_bytes() - before) / 100
    assert each <= OPENSSL_BYTES_MAX, f"{each:.0f} bytes"
    assert HANDSHAKE_BYTES_MAX <= HELD_BYTES_MAX
