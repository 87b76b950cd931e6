"""One TCP connection to a broker: requests go out in order, answers come back in that order.

`submit` takes a place in the queue without waiting (so two submits are sent in order) and returns a
`Pending`; `request` waits for the answer as well. Any number of tasks may use a connection at once.
Cancelling a waiting task does not disturb the others: the answer is discarded when it comes. A
frame is never sent by half, because one task of the connection itself does the sending.

`hold` keeps back what is submitted from then on, until `release`: while a session is renewed, a
broker takes nothing else.

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

from evenkeel.config import ClientConfig
from evenkeel.errors import (
    ClosedError,
    DisconnectedError,
    EvenkeelError,
    TimedOutError,
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
from wire.errors import ProtocolError
from wire.framing import MIB, FrameAssembler, FrameLimits
from wire.messages.api_versions import ApiVersion

R = TypeVar("R")

IN_FLIGHT_MAX: Final = 64
"""Requests of one connection that wait for answers; further ones wait for a slot."""
RESPONSE_BYTES_MAX: Final = 128 * MIB
"""A broker may return one batch larger than was asked for (KIP-74), but not without limit."""
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
    """Opened by `opening.connect`; ends with its nursery, or when `closed` is set."""

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
        self._held: list[tuple[Pending, Request, bool]] | None = None
        """What waits for `release`, in order; None if nothing is held."""
        self._drained = trio.Event()
        self._answers = 0
        self.greetings = 0
        """Answers that came before the connection was ready for use."""
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
        ahead: bool = False,
    ) -> Pending:
        """Take a place in the queue; the caller limits how many it takes.

        Without `expect_answer` (acks=0) the request is done when it has been sent. `ahead`: it goes
        out even while others are held.
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
        if self._held is not None and not ahead:
            self._held.append((pending, message, expect_answer))
        else:
            self._send_out(pending, message, expect_answer)
        return pending

    def _send_out(self, pending: Pending, message: Request, expect_answer: bool) -> None:
        who = self._config.client_id
        self._out.append(encode_request(message, pending.version, pending.correlation_id, who))
        self._something_to_send.set()
        if expect_answer:
            self._waiting.append(pending)
            if len(self._waiting) == 1:
                self._patience.deadline = pending.deadline
        else:
            self._unanswered.append(pending)

    def hold(self) -> None:
        """From now on requests wait for `release`; those in flight are answered as usual."""
        assert self._held is None
        self._held = []
        self._drained = trio.Event()
        if not self._waiting:
            self._drained.set()

    async def drained(self) -> None:
        """After `hold`: wait until all requests in flight are answered, or the connection ends."""
        await self._drained.wait()

    def release(self) -> None:
        """Send what was held, in the order in which it was submitted."""
        held, self._held = self._held or [], None
        for pending, message, expect_answer in held:
            self._send_out(pending, message, expect_answer)

    def greeted(self) -> None:
        """The connection is ready for use."""
        self.greetings = self._answers

    def close(self, reason: EvenkeelError) -> None:
        """End now: all requests in flight fail with `reason`."""
        if self._reason is not None:
            return
        self._reason = reason
        self.closed.set()
        self._out.clear()
        held = [pending for pending, _, _ in self._held or ()]
        for pending in (*self._unanswered, *self._waiting, *held):
            pending.settle(None, reason)
        self._unanswered.clear()
        self._waiting.clear()
        self._held = None
        self._drained.set()
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
        advice = ""
        if 0 < self._answers == self.greetings and self._config.sasl is None:
            advice = "if it does so each time, it may want to know who we are: ClientConfig(sasl=)"
        what = f"the connection to {self.where} was lost"
        reason = DisconnectedError(what, why=why, advice=advice)
        reason.__cause__ = error
        self.close(reason)

    def _answered(self, frame: memoryview) -> None:
        correlation_id = response_correlation_id(frame)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            raise ProtocolError(f"an answer to request {correlation_id}", "ResponseHeader", 0)
        pending = self._waiting[0]
        response = decode_response(pending.key, pending.version, frame)
        self._waiting.popleft()
        self._answers += 1
        if not self._waiting:
            self._drained.set()
        self._patience.deadline = self._waiting[0].deadline if self._waiting else math.inf
        pending.settle(response, None)
