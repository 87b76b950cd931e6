"""The node's HTTP server: metrics, liveness, readiness, status, administration.

Small on purpose: one request per connection, h11 as the parser, limits of size and time for
everything. The composition root passes in the routes, which are async functions. runtime.http.guard
refuses what other sites' pages send, runtime.http.access decides who may ask for what: both see the
head of a request, and its body is read afterwards. An answer may also be a stream, which goes on as
long as its reader keeps up, and may have it.
"""

import json
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final, Protocol, TypeAlias
from urllib.parse import parse_qsl

import attrs
import h11
import trio

from runtime.config.fields import Address
from runtime.http.attempts import key_of
from runtime.http.guard import ALL_HEADERS, Forbidden, Guard
from runtime.http.secured import secured
from runtime.http.sessions import Session
from runtime.system.connection_limits import ConnectionRate
from runtime.system.memory import Memory
from wire.addresses import canonical_host

REQUEST_BYTES_MAX: Final = 256 * 1024
REQUEST_TIMEOUT_S: Final = 15.0
CONNECTIONS_MAX: Final = 64
"""One more closes the oldest connection that is not a stream, so that clients which send or read
nothing cannot keep out a supervisor's probe."""
CONNECTIONS_A_SECOND: Final = 100
"""New ones from an address of another machine, and twice as many at once; more are closed at once.
Otherwise it could take the places of those that are about to log in, and with TLS all of the loop's
time: a handshake takes up to a millisecond."""
STREAMS_MAX: Final = 32
SEND_TIMEOUT_S: Final = 5.0
"""A stream ends if its reader takes longer than this for one piece."""
QUERY_FIELDS_MAX: Final = 16
HEAD_BYTES_MAX: Final = 16 * 1024
PIECE_BYTES: Final = 16 * 1024
SMALL_PIECE_BYTES: Final = 4 * 1024
"""What is received at once, of a body and of what has to be small."""
LOOK_EVERY_S: Final = 0.5
"""How often it is asked whether a stream's reader may still have it."""
LINGER_S: Final = 1.0
LINGER_BYTES_MAX: Final = 1024 * 1024
"""How long, and for how much, what was not read of a request is taken after the answer: a
connection that is closed with unread bytes may take the answer with it."""

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


def json_answer(value: object, status: int = 200, headers: Headers = ()) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n", "application/json", headers)


class Refused(Exception):
    """Who asks may not; `answer` says so."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


@attrs.frozen
class Asking:
    """The head of a request. `https`: what the client's side of it is, also through a proxy."""

    method: str
    path: str
    headers: Mapping[str, str] = attrs.field(repr=False)
    """Names in lower case. They hold passwords."""
    host: str
    """The address that it comes from."""
    here: bool
    """Whether that is this machine."""
    https: bool


def _always() -> bool:
    return True


@attrs.frozen
class Caller:
    """Who asks, once that is known."""

    session: Session | None = None
    proved: bool = True
    """Whether it may have as much memory as a request needs."""
    body_bytes_max: int = REQUEST_BYTES_MAX
    may_go_on: Callable[[], bool] = _always
    """Whether it still may, once the body is there, and while a stream goes on."""


class Access(Protocol):
    """Who may ask for what."""

    async def admit(self, asking: Asking) -> Caller:
        """
        Raises:
            Refused: not this one.
        """
        ...

    def own_route(self, asking: Asking, caller: Caller) -> Route | None:
        """A route about the caller itself, such as a login."""
        ...

    def told(self, asking: Asking, caller: Caller, answer: Answer | Stream) -> Answer | Stream:
        """What the caller gets of an answer."""
        ...


class Everybody:
    """Whoever reaches the port may do everything: the port is on loopback."""

    async def admit(self, asking: Asking) -> Caller:
        return Caller()

    def own_route(self, asking: Asking, caller: Caller) -> Route | None:
        return _nobody_asked if (asking.method, asking.path) == ("GET", "/session") else None

    def told(self, asking: Asking, caller: Caller, answer: Answer | Stream) -> Answer | Stream:
        return answer


async def _nobody_asked(_query: Any) -> Answer:  # noqa: ANN401 # JSON
    return json_answer({"login": False, "user": "", "role": "administer", "csrf": ""})


class HttpServer:
    """`on_bug` logs unexpected exceptions of routes. `tls`: the context for the next connection;
    None: without TLS."""

    def __init__(
        self,
        routes: Mapping[tuple[str, str], Route],
        on_bug: Callable[[str, Exception], None],
        guard: Guard | None = None,
        memory: Memory | None = None,
        access: Access | None = None,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self.routes, self.guard = routes, guard or Guard()
        self.access, self.tls = access or Everybody(), tls
        self._on_bug = on_bug
        self.memory = memory or Memory(1 << 40, 1 << 40)
        self._unproved: dict[trio.CancelScope, None] = {}
        self._open: dict[trio.CancelScope, None] = {}
        """Connections that are not streams, oldest first: before it is known who asks, and
        afterwards."""
        self.streams = 0
        self.displaced_total = 0
        self.rate = ConnectionRate(
            CONNECTIONS_A_SECOND, lambda: int(trio.current_time() * 1_000_000_000)
        )
        self.nursery: trio.Nursery | None = None
        """Where connections are served; None: no connection is accepted yet."""

    def accept(self, stream: object, host: str) -> None:
        """Take a connection from a runtime.network.listener."""
        assert isinstance(stream, socket.socket), "HTTP is served from sockets only"
        if self.nursery is None:
            stream.close()
            return
        here = Address(host, 0).is_loopback or host == canonical_host(str(stream.getsockname()[0]))
        if not here and not self.rate.takes(key_of(host)):
            stream.close()
            return
        sock = trio.socket.from_stdlib_socket(socket.socket(fileno=stream.detach()))
        self.nursery.start_soon(self.handle, trio.SocketStream(sock), self._let_in(), host, here)

    def _let_in(self) -> trio.CancelScope:
        """Register one more connection, in order of arrival; tasks would start in any order. A
        crowd of those that have proved nothing displaces itself first."""
        if len(self._open) + len(self._unproved) + self.streams >= CONNECTIONS_MAX:
            displaced = self._unproved or self._open  # STREAMS_MAX is smaller: there is one
            oldest = next(iter(displaced))
            del displaced[oldest]
            oldest.cancel()
            self.displaced_total += 1
        scope = trio.CancelScope()
        self._unproved[scope] = None
        return scope

    def proved(self, scope: trio.CancelScope) -> None:
        """It is known who asks on a connection."""
        if scope in self._unproved:  # else it was displaced meanwhile, and ends
            del self._unproved[scope]
            self._open[scope] = None

    def begin_stream(self, scope: trio.CancelScope) -> bool:
        """Count a connection as a stream from now on; False: there are too many already."""
        if self.streams >= STREAMS_MAX:
            return False
        self._open.pop(scope, None)
        self._unproved.pop(scope, None)
        self.streams += 1
        scope.deadline = inf
        return True

    async def handle(
        self,
        stream: trio.SocketStream,
        scope: trio.CancelScope | None = None,
        host: str = "127.0.0.1",
        here: bool = True,
    ) -> None:
        """Serve one connection: one request, one answer. Never raises: that would end the node."""
        scope = scope or self._let_in()
        try:
            with scope:
                scope.deadline = trio.current_time() + REQUEST_TIMEOUT_S
                top: trio.abc.Stream = stream
                if self.tls is not None:
                    top = await secured(stream, self.tls())
                await _Exchange(self, stream, top, scope, host, here).run()
                if top is not stream:
                    await top.aclose()  # says that nothing more comes, and waits for no word
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the client is gone
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self._on_bug("HTTP", error)
        finally:
            self._unproved.pop(scope, None)
            self._open.pop(scope, None)
            await trio.aclose_forcefully(stream)


class _Exchange:
    """One request, and its answer."""

    def __init__(
        self,
        server: HttpServer,
        socket_stream: trio.SocketStream,
        stream: trio.abc.Stream,
        scope: trio.CancelScope,
        host: str,
        here: bool,
    ) -> None:
        self._server, self._socket_stream, self._stream = server, socket_stream, stream
        self._scope, self._host, self._here = scope, host, here
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._caller: Caller = Caller(proved=False)

    async def run(self) -> None:
        connection = self._connection
        try:
            answer = await self._answer()
        except Refused as refusal:
            answer = refusal.answer
        except (h11.RemoteProtocolError, BadRequest, Forbidden) as error:
            answer = json_answer(
                {"error": str(error)}, 403 if isinstance(error, Forbidden) else 400
            )
            if connection.our_state is h11.ERROR:
                return
        if isinstance(answer, Stream):
            if self._server.begin_stream(self._scope):
                await self._send_stream(answer)
                return
            answer = json_answer({"error": f"{STREAMS_MAX} streams are open already"}, 503)
        if answer is not None:
            await self._send(answer)

    async def _answer(self) -> Answer | Stream | None:
        """None: nobody is there any more."""
        server, stream = self._server, self._stream
        request = await _read_head(stream, self._connection)
        asking = self._asking(request)
        server.guard.check(asking.method, asking.headers)
        self._caller = caller = await server.access.admit(asking)
        if caller.proved:
            server.proved(self._scope)
        limit = caller.body_bytes_max
        body = await _read_body(stream, self._connection, server.memory, limit)
        if request.method != b"GET" and _has_hung_up(self._socket_stream):
            return None
        if not caller.may_go_on():  # the body took its time
            raise Refused(json_answer({"error": "the login has ended meanwhile"}, 401))
        query = request.target.decode("ascii", "replace").partition("?")[2]
        return server.access.told(asking, caller, await self._routed(asking, query, body))

    def _asking(self, request: h11.Request) -> Asking:
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        path = request.target.decode("ascii", "replace").partition("?")[0]
        https = self._server.tls is not None or self._server.guard.is_https_proxy(headers)
        method = request.method.decode("ascii")
        return Asking(method, path, headers, self._host, self._here, https)

    async def _routed(self, asking: Asking, query: str, body: bytes) -> Answer | Stream:
        method, path = asking.method, asking.path
        routes = self._server.routes
        route = self._server.access.own_route(asking, self._caller) or routes.get((method, path))
        if route is None:
            known = ", ".join(f"{verb} {where}" for verb, where in sorted(routes))
            return json_answer({"error": f"no {method} {path}; there is {known}"}, 404)
        if method == "GET":
            return await route(_fields(query) if query else None)
        try:
            value = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequest("the body is not JSON: " + _without_text(error)) from error
        if not isinstance(value, dict):
            raise BadRequest("the body must be a JSON object")
        return await route(value)

    async def _send(self, answer: Answer) -> None:
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
            *ALL_HEADERS,
            *answer.headers,
        ]
        connection = self._connection
        head = connection.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        await self._stream.send_all(head + answer.body)
        if connection.their_state in (h11.SEND_BODY, h11.ERROR):
            await _linger(self._socket_stream)

    async def _send_stream(self, answer: Stream) -> None:
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._watch, nursery.cancel_scope)
                await _stream(self._stream, self._connection, answer)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the reader is gone, or too slow
        finally:
            self._server.streams -= 1

    async def _watch(self, scope: trio.CancelScope) -> None:
        """End the stream when its reader may no longer have it."""
        while self._caller.may_go_on():  # noqa: ASYNC110 (nobody tells of a password that changed)
            await trio.sleep(LOOK_EVERY_S)
        scope.cancel()


def _without_text(error: Exception) -> str:
    """Why it is no JSON, without what it says instead: that may be a password."""
    return str(getattr(error, "msg", "")) or type(error).__name__


def _fields(query: str) -> dict[str, str]:
    try:
        return dict(parse_qsl(query, max_num_fields=QUERY_FIELDS_MAX))
    except ValueError as error:
        raise BadRequest(f"the query: {error}") from error


async def _stream(stream: trio.abc.Stream, connection: h11.Connection, answer: Stream) -> None:
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


async def _linger(stream: trio.abc.Stream) -> None:
    """Take what is left of a request that was answered early, so that the answer arrives."""
    if not isinstance(stream, trio.SocketStream):
        return
    with trio.move_on_after(LINGER_S), suppress(trio.BrokenResourceError):
        await stream.send_eof()
        taken = 0
        while taken < LINGER_BYTES_MAX and (piece := await stream.receive_some(PIECE_BYTES)):
            taken += len(piece)


async def _read_head(stream: trio.abc.Stream, connection: h11.Connection) -> h11.Request:
    while (event := connection.next_event()) is h11.NEED_DATA:
        connection.receive_data(bytes(await stream.receive_some(SMALL_PIECE_BYTES)))
    if not isinstance(event, h11.Request):
        raise trio.BrokenResourceError("the connection ended before the request did")
    return event


async def _read_body(
    stream: trio.abc.Stream, connection: h11.Connection, memory: Memory, limit: int
) -> bytes:
    body, came = bytearray(), 0
    at_once = PIECE_BYTES if limit > PIECE_BYTES else SMALL_PIECE_BYTES
    try:
        while True:
            event = connection.next_event()
            if event is h11.NEED_DATA:
                piece = bytes(await stream.receive_some(at_once))
                connection.receive_data(piece)
                came += len(piece)
                if came > 2 * limit + PIECE_BYTES:
                    raise BadRequest("a body in chunks that have more around them than in them")
                continue
            if isinstance(event, h11.EndOfMessage):
                return bytes(body)
            if not isinstance(event, h11.Data):
                raise trio.BrokenResourceError("the connection ended before the request did")
            if len(body) + len(event.data) > limit:
                raise BadRequest(f"a body over {limit} bytes")
            body += event.data
            memory.http += len(event.data)
    finally:
        memory.http -= len(body)
