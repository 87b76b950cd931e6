"""One TCP connection to a broker: requests go out in order, answers come back in that order.

`submit` takes a place in the queue without waiting (so two submits are sent in order) and returns a
`Pending`; `request` waits for the answer as well. Any number of tasks may use a connection at once.
Cancelling a waiting task does not disturb the others: the answer is discarded when it comes. A
frame is never sent by half, because one task of the connection itself does the sending.

When anything goes wrong (the peer closes, sends bytes that are not an answer, or lets the oldest
request wait beyond its deadline), the whole connection ends and all requests in flight fail with
the same error. Nothing is retried here.
"""

import math
from collections import deque
from collections.abc import Sequence
from typing import Final, TypeVar

import attrs
import trio

from evenkeel.config import LIBRARY_NAME, ClientConfig
from evenkeel.errors import (
    ClosedError,
    DisconnectedError,
    EvenkeelError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from wire.apis import (
    Request,
    Response,
    api_of,
    decode_response,
    encode_request,
    response_correlation_id,
)
from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.framing import MIB, FrameAssembler, FrameLimits
from wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from wire.software import VERSION

R = TypeVar("R")

IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that wait for answers; further ones wait for a slot."""
RESPONSE_BYTES_MAX: Final = 128 * MIB
"""A broker may return one batch larger than was asked for (KIP-74), but not without limit."""
FIRST_ASKED: Final = 3
"""Version of the first ApiVersions: brokers since 2.4 know it, older ones report what they know."""
CORRELATION_IDS: Final = 1 << 31

_LIMITS: Final = FrameLimits(default=RESPONSE_BYTES_MAX)


@attrs.define(eq=False)
class Pending:
    """A request in flight."""

    what: str
    key: int
    version: int
    correlation_id: int
    deadline: float
    _done: trio.Event = attrs.Factory(trio.Event)
    _response: Response | None = None
    _error: EvenkeelError | None = None

    async def wait(self) -> Response | None:
        """The answer; None if none was expected and the request has been sent.

        Raises:
            DisconnectedError, TimedOutError: if none came; the request may have been carried out.
        """
        await self._done.wait()
        if self._error is not None:
            raise self._error.again() from self._error.__cause__
        return self._response

    def settle(self, response: Response | None, error: EvenkeelError | None) -> None:
        self._response, self._error = response, error
        self._done.set()


class Connection:
    """Opened by `connect`; ends with its nursery, or when `closed` is set."""

    def __init__(self, stream: trio.abc.Stream, where: str, config: ClientConfig) -> None:
        self.where = where
        self.closed = trio.Event()
        self.versions: dict[int, ApiVersion] = {}
        self._stream = stream
        self._config = config
        self._slots = trio.Semaphore(IN_FLIGHT_MAX)
        self._waiting: deque[Pending] = deque()
        self._out: list[Sequence[Buffer]] = []
        self._unanswered: list[Pending] = []
        """Requests among `_out` that get no answer."""
        self._something_to_send = trio.Event()
        self._next_id = 0
        self._patience = trio.CancelScope()
        self._reason: EvenkeelError | None = None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def usable(self) -> bool:
        return not self.closed.is_set()

    def version_for(self, request: type[Request], *, at_most: int | None = None) -> int:
        """The newest version that both sides speak.

        Raises:
            UnsupportedError: if there is none.
        """
        api = api_of(request)
        theirs = self.versions.get(int(api.key))
        last = api.accepted.last if at_most is None else min(at_most, api.accepted.last)
        version = api.common_version(theirs, last)
        if version is not None:
            return version
        they = "not at all" if theirs is None else f"{theirs.min_version}-{theirs.max_version}"
        raise UnsupportedError(
            f"{self.where} cannot do {api.name}",
            why=f"it speaks {they}, we {api.accepted.first}-{last}",
        )

    async def request(
        self,
        message: Request,
        kind: type[R],
        *,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> R:
        """Send a request and wait for its answer, which is of class `kind`.

        Raises:
            DisconnectedError, TimedOutError: if no answer came.
            UnsupportedError: if the broker does not support the request.
        """
        if version is None:
            version = self.version_for(type(message))
        async with self._slots:
            answer = await self.submit(message, version, timeout_s=timeout_s).wait()
        assert isinstance(answer, kind)
        return answer

    def submit(
        self,
        message: Request,
        version: int,
        *,
        timeout_s: float | None = None,
        expect_answer: bool = True,
    ) -> Pending:
        """Take a place in the queue; the caller limits how many it takes.

        Without `expect_answer` (acks=0) the request is done when it has been sent.
        """
        seconds = self._config.request_timeout_ms / 1000 if timeout_s is None else timeout_s
        api = api_of(type(message))
        pending = Pending(
            f"{api.name} to {self.where}",
            int(api.key),
            version,
            self._next_id,
            trio.current_time() + seconds,
        )
        if self._reason is not None:
            pending.settle(None, self._reason)
            return pending
        self._next_id = (self._next_id + 1) % CORRELATION_IDS
        frame = encode_request(message, version, pending.correlation_id, self._config.client_id)
        self._out.append(frame)
        self._something_to_send.set()
        if expect_answer:
            self._waiting.append(pending)
            if len(self._waiting) == 1:
                self._patience.deadline = pending.deadline
        else:
            self._unanswered.append(pending)
        return pending

    def close(self, reason: EvenkeelError) -> None:
        """End now: all requests in flight fail with `reason`."""
        if self._reason is not None:
            return
        self._reason = reason
        self.closed.set()
        self._out.clear()
        for pending in (*self._unanswered, *self._waiting):
            pending.settle(None, reason)
        self._unanswered.clear()
        self._waiting.clear()
        self._patience.cancel()
        self._something_to_send.set()

    async def run(self) -> None:
        """The connection's own task: receive and send until either end closes."""
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._send)
                await self._receive()
                nursery.cancel_scope.cancel()
        finally:
            self.close(ClosedError(f"the connection to {self.where} was closed"))

    async def _send(self) -> None:
        while self._reason is None:
            await self._something_to_send.wait()
            self._something_to_send = trio.Event()
            frames, self._out = self._out, []
            silent, self._unanswered = self._unanswered, []
            data = b"".join(chunk for frame in frames for chunk in frame)
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._unanswered += silent
                self._lost(error)
                return
            for pending in silent:
                pending.settle(None, None)

    async def _receive(self) -> None:
        assembler = FrameAssembler(_LIMITS)
        while self._reason is None:
            with self._patience:
                await self._take_in(assembler)
            if self._reason is None:
                self._patience_ended()

    async def _take_in(self, assembler: FrameAssembler) -> None:
        while self._reason is None:
            view = assembler.buffer_to_fill()
            try:
                data = await self._stream.receive_some(len(view))
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                self._lost(error)
                return
            if not data:
                self._lost(None)
                return
            view[: len(data)] = data
            assembler.received(len(data))
            try:
                while (frame := assembler.take()) is not None:
                    self._answered(frame.data if frame.owned else memoryview(bytes(frame.data)))
            except ProtocolError as error:
                self._lost(error)
                return

    def _patience_ended(self) -> None:
        """The oldest request may be late. Or it was late when our process woke from a pause, and
        its answer arrived at that very moment; the next request has a deadline of its own."""
        deadline = self._waiting[0].deadline if self._waiting else math.inf
        if deadline > trio.current_time():
            self._patience = trio.CancelScope(deadline=deadline)
            return
        late = self._waiting[0].what
        why = "the broker hangs, is cut off, or needs more time"
        self.close(TimedOutError(f"{late} was not answered in time", why=why))

    def _lost(self, error: Exception | None) -> None:
        why = "closed by the broker" if error is None else str(error) or type(error).__name__
        reason = DisconnectedError(f"the connection to {self.where} was lost", why=why)
        reason.__cause__ = error
        self.close(reason)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = response_correlation_id(frame)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}", "ResponseHeader", 0)
        pending = self._waiting[0]
        response = decode_response(pending.key, pending.version, frame)
        self._waiting.popleft()
        self._patience.deadline = self._waiting[0].deadline if self._waiting else math.inf
        pending.settle(response, None)


async def connect(nursery: trio.Nursery, host: str, port: int, config: ClientConfig) -> Connection:
    """Open a connection that lives in `nursery`, and ask the broker for its API versions.

    Raises:
        UnreachableError: if there is no answer, or not one of a Kafka broker.
    """
    where = f"{host}:{port}"
    with trio.move_on_after(config.connect_timeout_ms / 1000):
        stream = await _open(host, port, where, config)
        connection = Connection(stream, where, config)
        try:
            nursery.start_soon(connection.run)
        except RuntimeError:  # its owner has failed, and is ending
            await trio.aclose_forcefully(stream)
            raise ClosedError(f"no connection to {where}: the client is closing") from None
        try:
            await _negotiate(connection)
        except (DisconnectedError, TimedOutError) as error:
            why = f"it does not answer like a broker: {error.why}"
            raise UnreachableError(f"cannot talk to {where}", why=why) from error
        except BaseException:
            connection.close(ClosedError(f"connecting to {where} was given up"))
            raise
        return connection
    raise UnreachableError(
        f"cannot connect to {where}", why=f"no answer within {config.connect_timeout_ms} ms"
    )


async def _open(host: str, port: int, where: str, config: ClientConfig) -> trio.abc.Stream:
    try:
        stream = await trio.open_tcp_stream(host, port)
        if config.tls is None:
            return stream
        secure = trio.SSLStream(stream, config.tls, server_hostname=host, https_compatible=True)
        try:
            await secure.do_handshake()
        except BaseException:
            await trio.aclose_forcefully(secure)
            raise
        return secure
    except (OSError, trio.BrokenResourceError) as error:
        why = str(error) or str(error.__cause__ or "") or type(error).__name__
        raise UnreachableError(f"cannot connect to {where}", why=why) from error


async def _negotiate(connection: Connection) -> None:
    """Send ApiVersions (KIP-35), again in the broker's own version if ours is too new (KIP-511)."""
    ask = ApiVersionsRequest(LIBRARY_NAME, VERSION)
    answer = await connection.request(ask, ApiVersionsResponse, version=FIRST_ASKED)
    if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
        theirs = [one.max_version for one in answer.api_keys if one.api_key == 18]
        version = min([FIRST_ASKED, *theirs]) if theirs else 0
        answer = await connection.request(ask, ApiVersionsResponse, version=version)
    if answer.error_code != ErrorCode.NONE:
        raise DisconnectedError(
            f"{connection.where} refuses ApiVersions", why=f"error {answer.error_code}"
        )
    connection.versions = {one.api_key: one for one in answer.api_keys}
