"""The node's HTTP side: metrics, liveness, readiness, status, administration. Loopback only.

Small on purpose: one request per connection, h11 parses, everything is bounded in size and time.
The routes are plain functions given by the composition root; those that wait are awaited.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs
import h11
import trio

REQUEST_BYTES_MAX: Final = 256 * 1024
REQUEST_TIMEOUT_S: Final = 15.0
CONNECTIONS_MAX: Final = 64


@attrs.frozen
class Answer:
    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


class BadRequest(ValueError):
    """The request makes no sense; the text says why and what to do."""


Route = Callable[[Any], Awaitable[Answer]]
"""Gets the decoded JSON body of a POST, or None for a GET."""


def json_answer(value: object, status: int = 200) -> Answer:
    return Answer(status, json.dumps(value).encode() + b"\n", "application/json")


class HttpServer:
    """`on_bug` is told of an exception that no route should have let out, to log it."""

    def __init__(
        self, routes: Mapping[tuple[str, str], Route], on_bug: Callable[[str, Exception], None]
    ) -> None:
        self._routes = routes
        self._on_bug = on_bug
        self._limit = trio.CapacityLimiter(CONNECTIONS_MAX)

    async def handle(self, stream: trio.SocketStream) -> None:
        """Serve one connection: one request, one answer. What it raised would end the node."""
        if not self._limit.available_tokens:
            await trio.aclose_forcefully(stream)  # nobody waits: who waits holds a descriptor
            return
        async with self._limit:
            with trio.move_on_after(REQUEST_TIMEOUT_S):
                try:
                    await self._exchange(stream)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass  # whoever asked has gone
                except Exception as error:  # noqa: BLE001  told with its traceback, costs one connection
                    self._on_bug("HTTP", error)
        await trio.aclose_forcefully(stream)

    async def _exchange(self, stream: trio.SocketStream) -> None:
        connection = h11.Connection(h11.SERVER)
        try:
            request, body = await _read(stream, connection)
            answer = await self._answer(request, body)
        except (h11.RemoteProtocolError, BadRequest) as error:
            answer = json_answer({"error": str(error)}, 400)
            if connection.our_state is h11.ERROR:
                return
        headers = [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            ("Connection", "close"),
        ]
        head = connection.send(h11.Response(status_code=answer.status, headers=headers)) or b""
        await stream.send_all(head + answer.body)

    async def _answer(self, request: h11.Request, body: bytes) -> Answer:
        method = request.method.decode("ascii")
        path = request.target.decode("ascii", "replace").partition("?")[0]
        route = self._routes.get((method, path))
        if route is None:
            known = ", ".join(f"{verb} {where}" for verb, where in sorted(self._routes))
            return json_answer({"error": f"no {method} {path}; there is {known}"}, 404)
        if method == "GET":
            return await route(None)
        try:
            value = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadRequest("the body must be a JSON object")
        return await route(value)


async def _read(stream: trio.SocketStream, connection: h11.Connection) -> tuple[h11.Request, bytes]:
    request: h11.Request | None = None
    body = bytearray()
    while True:
        event = connection.next_event()
        if event is h11.NEED_DATA:
            connection.receive_data(await stream.receive_some(16 * 1024))
        elif isinstance(event, h11.Request):
            request = event
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > REQUEST_BYTES_MAX:
                raise BadRequest(f"a body over {REQUEST_BYTES_MAX} bytes")
        elif isinstance(event, h11.EndOfMessage) and request is not None:
            return request, bytes(body)
        else:
            raise trio.BrokenResourceError("the connection ended before the request did")
