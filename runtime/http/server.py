"""The node's HTTP server: metrics, liveness, readiness, status, administration. Loopback only.

Small on purpose: one request per connection, h11 as the parser, limits of size and time for
everything. The composition root passes in the routes, which are async functions. runtime.http.guard
decides who may use them. An answer may also be a stream, which goes on as long as its reader keeps
up.
"""

import json
import select
import socket
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

import attrs
import h11
import trio

from runtime.http.guard import ALL_HEADERS, Forbidden, Guard
from runtime.system.memory import Memory

REQUEST_BYTES_MAX: Final = 256 * 1024
REQUEST_TIMEOUT_S: Final = 15.0
CONNECTIONS_MAX: Final = 64
"""One more closes the oldest connection that is not a stream, so that clients which send or read
nothing cannot keep out a supervisor's probe."""
STREAMS_MAX: Final = 32
SEND_TIMEOUT_S: Final = 5.0
"""A stream ends if its reader takes longer than this for one piece."""
QUERY_FIELDS_MAX: Final = 16

Headers: TypeAlias = tuple[tuple[str, str], ...]


@attrs.frozen
class Answer:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()


Send: TypeAlias = Callable[[bytes], Awaitable[None]]


@attrs.frozen
class Stream:
    """An answer of unknown length: `run` sends its pieces; the stream ends when it returns."""

    content_type: str
    run: Callable[[Send], Awaitable[None]]
    headers: Headers = ()


class BadRequest(ValueError):
    """The request is invalid; the text says why and what to do."""


Route = Callable[[Any], Awaitable[Answer | Stream]]
"""Gets the decoded JSON body of a POST, or the query fields of a GET (None if there are none)."""


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n", "application/json")


class HttpServer:
    """`on_bug` logs unexpected exceptions of routes."""

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Route],
        on_bug: Callable[[str, Exception], None],
        guard: Guard | None = None,
        memory: Memory | None = None,
    ) -> None:
        self._routes, self._guard = routes, guard or Guard()
        self._on_bug = on_bug
        self._memory = memory or Memory(1 << 40, 1 << 40)
        self._open: dict[trio.CancelScope, None] = {}
        """Connections that are not streams, oldest first."""
        self._streams = 0
        self.displaced_total = 0
        self.nursery: trio.Nursery | None = None
        """Where connections are served; None: no connection is accepted yet."""

    def accept(self, stream: object, _host: str) -> None:
        """Take a connection from a runtime.network.listener."""
        assert isinstance(stream, socket.socket), "HTTP is served from sockets only"
        if self.nursery is None:
            stream.close()
            return
        sock = trio.socket.from_stdlib_socket(socket.socket(fileno=stream.detach()))
        self.nursery.start_soon(self.handle, trio.SocketStream(sock), self._let_in())

    def _let_in(self) -> trio.CancelScope:
        """Register one more connection, in order of arrival; tasks would start in any order."""
        if len(self._open) + self._streams >= CONNECTIONS_MAX:
            oldest = next(iter(self._open))  # STREAMS_MAX is smaller: there is one
            del self._open[oldest]
            oldest.cancel()
            self.displaced_total += 1
        scope = trio.CancelScope()
        self._open[scope] = None
        return scope

    async def handle(
        self, stream: trio.SocketStream, scope: trio.CancelScope | None = None
    ) -> None:
        """Serve one connection: one request, one answer. Never raises: that would end the node."""
        scope = scope or self._let_in()
        try:
            with scope:
                scope.deadline = trio.current_time() + REQUEST_TIMEOUT_S
                await self._exchange(stream, scope)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._on_bug("HTTP", error)
        finally:
            self._open.pop(scope, None)
            await trio.aclose_forcefully(stream)

    async def _exchange(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            request, body = await _read(stream, connection, self._memory)
            if request.method != b"GET" and _has_hung_up(stream):
                return
            answer = await self._answer(request, body)
        except (h11.RemoteProtocolError, BadRequest, Forbidden) as error:
            answer = json_answer(
                {"error": str(error)}, 403 if isinstance(error, Forbidden) else 400
            )
            if connection.our_state is h11.ERROR:
                return
        if isinstance(answer, Stream) and self._streams < STREAMS_MAX:
            await self._stream(stream, connection, answer, scope)
            return
        if isinstance(answer, Stream):
            answer = json_answer({"error": f"{STREAMS_MAX} streams are open already"}, 503)
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
            *ALL_HEADERS,
            *answer.headers,
        ]
        head = connection.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        await stream.send_all(head + answer.body)

    async def _stream(
        self,
        stream: trio.SocketStream,
        connection: h11.Connection,
        answer: Stream,
        scope: trio.CancelScope,
    ) -> None:
        self._open.pop(scope, None)
        self._streams += 1
        scope.deadline = inf
        try:
            await _stream(stream, connection, answer)
        finally:
            self._streams -= 1

    async def _answer(self, request: h11.Request, body: bytes) -> Answer | Stream:
        method = request.method.decode("ascii")
        self._guard.check(
            method, {name.decode(): value.decode("latin-1") for name, value in request.headers}
        )
        path, _, query = request.target.decode("ascii", "replace").partition("?")
        route = self._routes.get((method, path))
        if route is None:
            known = ", ".join(f"{verb} {where}" for verb, where in sorted(self._routes))
            return json_answer({"error": f"no {method} {path}; there is {known}"}, 404)
        if method == "GET":
            return await route(_fields(query) if query else None)
        try:
            value = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadRequest("the body must be a JSON object")
        return await route(value)


def _fields(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, max_num_fields=QUERY_FIELDS_MAX))
    except ValueError as error:
        raise BadRequest(f"the query: {error}") from error


async def _stream(stream: trio.SocketStream, connection: h11.Connection, answer: Stream) -> None:
    """Send a stream piece by piece; a reader that is too slow is disconnected."""

    async def send_all(data: bytes) -> None:
        with trio.move_on_after(SEND_TIMEOUT_S) as patience:
            await stream.send_all(data)
        if patience.cancelled_caught:
            raise trio.BrokenResourceError("the reader is too slow")

    async def send(piece: bytes) -> None:
        await send_all(connection.send(h11.Data(data=piece)) or b"")

    headers = [
        ("Content-Type", answer.content_type),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
        *ALL_HEADERS,
        *answer.headers,
    ]
    await send_all(connection.send(h11.Response(status_code=200, headers=headers)) or b"")
    await answer.run(send)
    await send_all(connection.send(h11.EndOfMessage()) or b"")


def _has_hung_up(stream: trio.abc.Stream) -> bool:
    """Whether the client is gone. A process that was suspended reads requests late: by then the
    clients have given up, and perhaps have asked another node for something else."""
    if not isinstance(stream, trio.SocketStream):
        return False
    poller = select.poll()
    poller.register(stream.socket.fileno(), select.POLLRDHUP)
    return bool(poller.poll(0))


async def _read(
    stream: trio.SocketStream, connection: h11.Connection, memory: Memory
) -> tuple[h11.Request, bytes]:
    body = bytearray()
    try:
        return await _read_into(body, stream, connection, memory)
    finally:
        memory.http -= len(body)


async def _read_into(
    body: bytearray, stream: trio.SocketStream, connection: h11.Connection, memory: Memory
) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(16 * 1024))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            memory.http += len(event.data)
            if len(body) > REQUEST_BYTES_MAX:
                raise BadRequest(f"a body over {REQUEST_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            raise trio.BrokenResourceError("the connection ended before the request did")
