"""The first byte decides, however the bytes are cut: TLS or plain text, and both come whole."""

from contextlib import suppress
from pathlib import Path

import pytest

from runtime.network.tls_or_plain import TlsOrPlain
from runtime.network.tls_stream import TlsError, TlsStream
from tests.certs import Certs
from tests.runtime.network.test_tls_stream import Memory, Way, server_context
from tests.runtime.network.test_tls_stream import certs as certs  # a fixture


def pair(certs: Certs, piece: int) -> tuple[TlsOrPlain, Memory, Way]:
    there, back = Way(piece=piece), Way(piece=piece)
    return TlsOrPlain(Memory(there, back), server_context(certs)), Memory(back, there), there


def taken(stream: TlsOrPlain) -> bytes:
    room, got = memoryview(bytearray(7)), b""
    for _ in range(10_000):
        try:
            count = stream.recv_into(room)
        except BlockingIOError:
            return got
        if not count:
            return got
        got += bytes(room[:count])
    raise AssertionError("it does not end")


@pytest.mark.parametrize("piece", [1, 2, 5, 1 << 16])
def test_plain_text_comes_whole_and_goes_out_as_it_is(certs: Certs, piece: int) -> None:
    stream, other, _ = pair(certs, piece)
    with pytest.raises(BlockingIOError):
        stream.handshake()
    sent = bytes(4) + bytes(range(256)) * 20
    view = memoryview(sent)
    while len(view):
        with suppress(BlockingIOError):
            view = view[other.send(view) :]
    assert stream.handshake()
    assert (stream.plain, stream.version) == (True, "")
    assert taken(stream) == sent
    assert not stream.holds_input
    assert (stream.partial_bytes, stream.encrypted_bytes, stream.untaken_bytes()) == (0, 0, 0)
    assert stream.sendmsg((b"ab", b"c")) > 0
    room = memoryview(bytearray(10))
    assert bytes(room[: other.recv_into(room)]) == b"abc"[:piece]
    stream.close()


@pytest.mark.parametrize("piece", [1, 3, 1 << 16])
def test_tls_is_tls(certs: Certs, piece: int) -> None:
    stream, other, _ = pair(certs, piece)
    client = TlsStream(other, certs.context_of(), host="localhost")
    for _ in range(20_000):
        with suppress(BlockingIOError):
            client.handshake()
        with suppress(BlockingIOError):
            if stream.handshake() and client.established:
                break
    assert not stream.plain
    assert client.send(b"hello") == 5
    assert taken(stream) == b"hello"


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x46"])
def test_what_is_neither_is_refused(certs: Certs, data: bytes) -> None:
    stream, other, _ = pair(certs, 1 << 16)
    other.send(data)
    with pytest.raises(TlsError):
        stream.handshake()
    assert not stream.plain


def test_an_end_without_a_word(certs: Certs, tmp_path: Path) -> None:
    stream, _, way = pair(certs, 1)
    way.ended = True
    with pytest.raises(TlsError, match="closed by the other side"):
        stream.handshake()
