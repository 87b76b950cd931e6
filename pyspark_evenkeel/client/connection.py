"""One blocking connection to a broker: requests go out, answers come back in the same order.

`send` returns a ticket and does not wait, so that one answer can travel while another one is
decoded; `wait` receives until the ticket's answer is there. Answers to other tickets that arrive
earlier are kept until they are asked for; those to abandoned tickets are discarded. Not
thread-safe.

Every wait has a deadline. It starts when the caller waits (an answer may have been in the kernel
for long), and a large answer may take as long as a slow line needs, but not for ever. If anything
goes wrong, the connection is closed, and waiting callers get the reason; nothing is retried here.

A large request is not sent while answers are in flight: the broker may be blocked sending to us,
and would not read.
"""

import copy
import socket
import ssl
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, TypeVar

import attrs

from pyspark_evenkeel.errors import (
    BadAnswerError,
    EvenkeelSparkError,
    LateError,
    SecurityError,
    UnavailableError,
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
from wire.errors import ProtocolError
from wire.framing import KIB, MIB, FrameAssembler, FrameLimits
from wire.messages.api_versions import ApiVersion

R = TypeVar("R")

RESPONSE_BYTES_MAX: Final = 128 * MIB
"""A broker may return one batch larger than was asked for (KIP-74), but not larger than this."""
BYTES_PER_S_MIN: Final = 64 * KIB
"""A peer that sends more slowly than this for long counts as dead."""
SMALL_REQUEST_BYTES: Final = 32 * KIB
"""Such a request fits any socket buffer: it can be sent while answers are in flight."""
IN_FLIGHT_MAX: Final = 64
CORRELATION_IDS: Final = 1 << 31
TLS_ALERT: Final = b"\x15\x03"
WHO_WE_ARE: Final = "if it wants to know by TLS who we are: ssl.certificate.location"

_LIMITS: Final = FrameLimits(default=RESPONSE_BYTES_MAX)


@attrs.define(eq=False)
class Ticket:
    """A request that was sent; `answer` is set once it has arrived."""

    what: str
    key: int
    version: int
    correlation_id: int
    patience_s: float
    answer: Response | None = None
    abandoned: bool = False


class Connection:
    """Created by `opening.open_connection`, which also negotiates the API versions."""

    def __init__(self, sock: socket.socket, where: str, client_id: str, request_ms: int) -> None:
        self.where = where
        self.versions: Mapping[int, ApiVersion] = {}
        self.features: Mapping[str, int] = {}
        """Supported features (KIP-584) and their highest versions."""
        self.expires_at = float("inf")
        """When the broker ends the session (KIP-368), by the monotonic clock."""
        self.answers = 0
        self.greetings = 0
        """Answers that came before the connection was ready for use."""
        self._sock = sock
        self._client_id = client_id
        self._request_s = request_ms / 1000
        self._assembler = FrameAssembler(_LIMITS)
        self._waiting: deque[Ticket] = deque()
        self._next_id = 0
        self._closed_because: EvenkeelSparkError | None = None
        self._first_bytes = b""

    @property
    def usable(self) -> bool:
        return self._closed_because is None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

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
            why=f"it speaks it {they}, we {api.accepted.first}-{last}",
        )

    def send(
        self,
        message: Request,
        version: int | None = None,
        *,
        hold_ms: int = 0,
        expect_answer: bool = True,
    ) -> Ticket:
        """Send a request, which the broker may hold for `hold_ms` before it answers.

        Raises:
            UnavailableError: if it cannot be sent.
            UnsupportedError: if the broker does not speak it.
        """
        self._check_usable()
        if version is None:
            version = self.version_for(type(message))
        api = api_of(type(message))
        patience_s = self._request_s + hold_ms / 1000
        ticket = Ticket(
            f"{api.name} to {self.where}", int(api.key), version, self._next_id, patience_s
        )
        self._next_id = (self._next_id + 1) % CORRELATION_IDS
        data = b"".join(encode_request(message, version, ticket.correlation_id, self._client_id))
        while self._waiting and (
            len(data) > SMALL_REQUEST_BYTES or len(self._waiting) >= IN_FLIGHT_MAX
        ):
            self._receive_one()
        try:
            self._sock.settimeout(self._request_s + len(data) / BYTES_PER_S_MIN)
            self._sock.sendall(data)
        except OSError as error:
            raise self._lost(ticket.what, error) from error
        if expect_answer:
            self._waiting.append(ticket)
        return ticket

    def wait(self, ticket: Ticket, kind: type[R]) -> R:
        """The answer, which is of class `kind`; it is returned only once.

        Raises:
            UnavailableError: if none came; the request may have been carried out.
        """
        while ticket.answer is None:
            self._check_usable()
            assert ticket in self._waiting, "an answer is waited for once"
            self._receive_one()
        answer, ticket.answer = ticket.answer, None
        assert isinstance(answer, kind)
        return answer

    def ask(
        self, message: Request, kind: type[R], *, version: int | None = None, hold_ms: int = 0
    ) -> R:
        """Send a request and wait for its answer."""
        return self.wait(self.send(message, version, hold_ms=hold_ms), kind)

    def abandon(self, ticket: Ticket) -> None:
        """The answer is no longer wanted."""
        ticket.abandoned, ticket.answer = True, None

    def close(self, reason: EvenkeelSparkError | None = None) -> None:
        """Close the connection; from now on waits and sends fail with the reason."""
        if self._closed_because is None:
            self._closed_because = reason or UnavailableError(
                f"the connection to {self.where} was closed"
            )
            self._waiting.clear()
            self._sock.close()

    def detach(self) -> socket.socket:
        """The socket, for somebody who speaks on it from now on; this connection is no more."""
        assert not self._waiting
        self._closed_because = UnavailableError(f"the connection to {self.where} was given away")
        return self._sock

    def _check_usable(self) -> None:
        if self._closed_because is not None:
            raise copy.copy(self._closed_because)

    # -- receiving --------------------------------------------------------------------------------

    def _receive_one(self) -> None:
        """Receive the next answer, whichever ticket it is for."""
        ticket = self._waiting[0]
        frame = self._next_frame(ticket)
        try:
            correlation_id = response_correlation_id(frame)
            if correlation_id != ticket.correlation_id:
                raise ProtocolError(
                    f"an answer to request {correlation_id} instead of {ticket.correlation_id}",
                    "ResponseHeader",
                    0,
                )
            answer = None
            if not ticket.abandoned:
                answer = decode_response(ticket.key, ticket.version, frame)
        except ProtocolError as error:
            raise self._malformed_answer(ticket, error) from error
        self._waiting.popleft()
        self.answers += 1
        ticket.answer = answer

    def _next_frame(self, ticket: Ticket) -> memoryview:
        """It has memory of its own, so records in it can be kept."""
        deadline = time.monotonic() + ticket.patience_s
        assembler = self._assembler
        while True:
            try:
                frame = assembler.take()
            except ProtocolError as error:
                raise self._malformed_answer(ticket, error) from error
            if frame is not None:
                return frame.data if frame.owned else memoryview(bytes(frame.data))
            view = assembler.buffer_to_fill()
            try:
                self._sock.settimeout(max(0.001, deadline - time.monotonic()))
                count = self._sock.recv_into(view)
            except OSError as error:
                raise self._lost(ticket.what, error) from error
            if not count:
                raise self._lost(ticket.what, None)
            if len(self._first_bytes) < len(TLS_ALERT):
                self._first_bytes += bytes(view[: min(count, len(TLS_ALERT))])
            assembler.received(count)
            deadline += count / BYTES_PER_S_MIN
            if time.monotonic() > deadline:
                raise self._lost(ticket.what, TimeoutError())

    def _lost(self, what: str, error: OSError | None) -> EvenkeelSparkError:
        reason: EvenkeelSparkError
        advice = ""
        if 0 < self.answers == self.greetings:
            advice = (
                "if it does so each time it may want authentication: security.protocol=SASL_..."
            )
        if error is None:
            why = "the broker closed the connection"
            reason = UnavailableError(f"no answer: {what}", why=why, advice=advice)
        elif isinstance(error, TimeoutError):
            why = "not in time: the broker hangs, is cut off, or needs more time"
            reason = LateError(f"no answer: {what}", why=why)
        elif isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            reason = SecurityError(
                f"{self.where} ended the TLS connection",
                why=(error.reason or "").lower().replace("_", " "),
                advice=WHO_WE_ARE,
            )
        else:
            reason = UnavailableError(f"no answer: {what}", why=words_of(error), advice=advice)
        self.close(reason)
        return reason

    def _malformed_answer(self, ticket: Ticket, error: ProtocolError) -> EvenkeelSparkError:
        reason: EvenkeelSparkError
        if self._first_bytes.startswith(TLS_ALERT) and not self.answers:
            reason = SecurityError(
                f"{self.where} speaks TLS, and we do not",
                advice="security.protocol=SSL or SASL_SSL, or another port",
            )
        else:
            reason = BadAnswerError(
                f"{ticket.what}: what came back is no answer to it",
                why=str(error),
                advice="is this a Kafka broker? If so, please report this",
            )
        self.close(reason)
        return reason


def words_of(error: OSError) -> str:
    """The system's description of it."""
    return error.strerror or str(error) or type(error).__name__
