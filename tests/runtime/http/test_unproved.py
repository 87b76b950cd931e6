"""What somebody without a login costs: little memory, whatever is sent, and nobody's place."""

import ssl
import tracemalloc
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from broker.security.principal import Principal
from broker.security.users import Proof
from runtime.http.secured import HANDSHAKE_BYTES_MAX, secured
from runtime.http.server import CONNECTIONS_MAX, HttpServer
from tests.certs import Certs
from tests.runtime.http.test_access import READER, Port, basic, message
from tests.runtime.http.test_http import Reply, echo

BYTES_MAX = 64 * 1024
SENT_BYTES = 4 * 1024 * 1024


class Endless:
    """A client that sends a beginning, and then one thing again and again."""

    def __init__(self, begin: bytes, then: bytes) -> None:
        self._begin, self._then = begin, then
        self.taken = 0
        self.sent = b""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        piece, self._begin = self._begin, b""
        piece = (piece or self._then)[: max_bytes or 4096]
        self.taken += len(piece)
        return b"" if self.taken > SENT_BYTES else piece

    async def send_all(self, data: bytes) -> None:
        self.sent += data

    async def aclose(self) -> None:
        pass


HEAD = b"POST /login HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"


@pytest.mark.parametrize(
    ("begin", "then"),
    [
        (b"GET / HTTP/1.1\r\n", b"X: " + b"y" * 1000 + b"\r\n"),
        (b"GET /" + b"x" * 1000, b"x" * 16_384),
        (b"", b"\0" * 16_384),
        (b"", b"\r\n" * 4_096),
        (HEAD + b"Content-Length: 4000000\r\n\r\n", b"x" * 16_384),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"4000\r\n" + b"x" * 16_384 + b"\r\n"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1;" + b"x" * 900 + b"\r\nx\r\n"),
        (HEAD.replace(b"/login", b"/admin/move") + b"Content-Length: 9999999\r\n\r\n", b"[" * 9999),
        (b"GET /status HTTP/1.1\r\nHost: h\r\nAuthorization: Basic ", b"A" * 16_384),
        (b"GET / HTTP/1.1\r\nHost: h\r\nCookie: ", b"a=b; " * 3_000),
    ],
)
async def test_nobody_unknown_gets_more_than_64_kib(begin: bytes, then: bytes) -> None:
    port = Port()
    await port.server.handle(cast(Any, Endless(begin, then)))  # what is made once is made
    stream = Endless(begin, then)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        await port.server.handle(cast(Any, stream))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak - before < BYTES_MAX
    assert stream.taken < BYTES_MAX
    assert not port.bugs
    assert port.asked == []


async def test_a_handshake_has_a_limit(tmp_path: Path) -> None:
    """Records that look like a hello that never ends."""
    certificate, key = Certs.new(tmp_path).node()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    hello = b"\x16\x03\x01\x40\x00" + b"\x01\x00\xff\xff" + b"\x00" * 16_380
    stream = Endless(hello, b"\x16\x03\x01\x40\x00" + b"\x00" * 16_384)
    with pytest.raises(trio.BrokenResourceError):
        await secured(cast(Any, stream), context)
    assert stream.taken <= HANDSHAKE_BYTES_MAX + 16_384


async def test_a_crowd_of_strangers_displaces_itself_first(autojump_clock: MockClock) -> None:
    """Who has shown a name keeps the place, however slowly the rest of the request comes."""
    port = Port()
    port.access.sessions.remember(basic(READER), *_proof(port))
    client, node = memory_stream_pair()
    data = message("GET", "/status", None, {"Authorization": basic(READER), "Content-Length": "1"})
    async with trio.open_nursery() as nursery:
        nursery.start_soon(port.server.handle, node)
        await client.send_all(data)
        await wait_all_tasks_blocked()
        for _ in range(2 * CONNECTIONS_MAX):
            _, stranger = memory_stream_pair()
            nursery.start_soon(port.server.handle, stranger)
            await wait_all_tasks_blocked()
        await client.send_all(b"x")
        reply = Reply(bytes(await client.receive_some()))
        assert reply.status == 200
        nursery.cancel_scope.cancel()
    assert port.server.displaced_total > CONNECTIONS_MAX


def _proof(port: Port) -> tuple[Any, Any]:
    ((kind, credential),) = port.security.credentials[READER].items()
    return Principal("User", READER), Proof(READER, cast(Any, kind), credential)


async def test_tls_is_spoken_and_a_plain_request_is_dropped(tmp_path: Path) -> None:
    certs = Certs.new(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certs.node())
    bugs: list[Exception] = []
    server = HttpServer(
        {("GET", "/x"): echo}, lambda _, error: bugs.append(error), tls=lambda: context
    )
    for tls in (True, False):
        ours, theirs = map(trio.SocketStream, trio.socket.socketpair())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.handle, ours)
            client: trio.abc.Stream = theirs
            if tls:
                asked = certs.context_of()
                client = trio.SSLStream(theirs, asked, server_hostname="127.0.0.1",
                                        https_compatible=True)  # fmt: skip
            await client.send_all(b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
            told = b""
            try:
                while piece := bytes(await client.receive_some()):
                    told += piece
            except trio.BrokenResourceError:
                assert not tls
            assert (b"200" in told) == tls
            await trio.aclose_forcefully(theirs)
    assert not bugs
