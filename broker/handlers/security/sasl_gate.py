"""The gate in front of all handlers, for connections of SASL listeners (KIP-43, KIP-152, KIP-368).

Until a client has proved who it is, it gets ApiVersions, SaslHandshake and SaslAuthenticate, each
at its time; anything else closes the connection, as in Kafka. A failure is answered a little later
(a timer, no task), and then the connection is closed. After its session has expired, a connection
may only authenticate again: with the same mechanism, as the same principal.
"""

from collections.abc import Callable
from functools import partial
from typing import Final

from broker.ports import Reply
from broker.requests.context import Broker
from broker.security.authentication import (
    CHECKS_WAITING_MAX,
    FAILED_DELAY_NS,
    REFUSED_MECHANISMS,
    Authentication,
    CutOff,
)
from broker.security.exchanges import EXTERNAL, Challenge, Denied, Proved, Step, Work
from broker.security.session import Session, Stage
from paxos.entry import Buffer
from paxos.ids import MS
from wire.apis import (
    APIS,
    ApiKey,
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    encode_response,
    parse_request_header,
)
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

CLOSE_AFTER_NS: Final = 20 * MS
"""Between a failure's answer and the end of its connection: the answer leaves with its round."""
REAUTH_EVERY_NS: Final = 1_000 * MS
"""As in Kafka: a session that is younger than this is not authenticated again."""
VERSIONS_ASKED_MAX: Final = 8
"""ApiVersions before the handshake: clients ask once, or once more for an older version."""
NO_MECHANISM: Final = "none"

_SASL_KEYS: Final = (int(ApiKey.SASL_HANDSHAKE), int(ApiKey.SASL_AUTHENTICATE))


class AuthenticationGate:
    """`served` is called with the API key of each request that is answered here."""

    def __init__(self, broker: Broker, served: Callable[[int], None]) -> None:
        self._broker, self._served = broker, served

    def takes(self, session: Session, frame: memoryview, reply: Reply) -> bool:
        """Whether the gate has dealt with this request; if not, it goes on to its handler."""
        authentication = self._broker.authentication
        if authentication is None:
            reply.close("this node has no way to authenticate anybody")
            return True
        key = int.from_bytes(frame[:2], "big", signed=True) if len(frame) >= 2 else -1
        if session.proved:
            if key == ApiKey.SASL_HANDSHAKE and self._may_renew(session):
                session.stage = Stage.HANDSHAKE
            elif session.expires_boot_ns and self._now() >= session.expires_boot_ns:
                authentication.cut_off[CutOff.EXPIRED] += 1
                reply.close("its session has expired, and it has not authenticated again")
                return True
            else:
                return False
        elif key == ApiKey.API_VERSIONS and session.stage is Stage.HANDSHAKE and not session.raw:
            session.asked_versions += 1
            if session.asked_versions <= VERSIONS_ASKED_MAX:
                return False
        self._guarded(reply, self._take, authentication, session, key, frame, reply)
        return True

    # -- requests ---------------------------------------------------------------------------------

    def _take(
        self,
        authentication: Authentication,
        session: Session,
        key: int,
        frame: memoryview,
        reply: Reply,
    ) -> None:
        if session.stage is Stage.EXCHANGE and session.raw:
            self._step(authentication, session, bytes(frame), None, reply)
            return
        wanted = Stage.HANDSHAKE if key == ApiKey.SASL_HANDSHAKE else Stage.EXCHANGE
        if key not in _SASL_KEYS or session.stage is not wanted:
            self._unexpected(session, key, reply)
            return
        try:
            header = parse_request_header(frame)
            if isinstance(header, UnsupportedVersion):
                reply.close(f"{APIS[key].name} is not served in version {header.api_version}")
                return
            message = decode_request(header, frame)
        except ProtocolError as error:
            reply.close(str(error))
            return
        self._served(key)
        if isinstance(message, SaslHandshakeRequest):
            self._handshake(authentication, session, message, header, reply)
        else:
            assert isinstance(message, SaslAuthenticateRequest)
            self._step(authentication, session, bytes(message.auth_bytes), header, reply)

    def _unexpected(self, session: Session, key: int, reply: Reply) -> None:
        name = APIS[key].name if key in APIS else f"api key {key}"
        reply.close(f"unexpected {name} during authentication ({session.stage.value})")

    def _handshake(
        self,
        authentication: Authentication,
        session: Session,
        message: SaslHandshakeRequest,
        header: RequestHeader,
        reply: Reply,
    ) -> None:
        connection = reply.connection
        offered = authentication.offered(connection.listener, connection.certified)
        wanted = message.mechanism
        if wanted not in offered:
            error = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            chunks = encode_response(header, SaslHandshakeResponse(error, offered))
            why = REFUSED_MECHANISMS.get(wanted, f"mechanism {wanted[:20]!r} is not offered")
            if wanted == EXTERNAL:
                why = "mechanism EXTERNAL needs a certificate that this listener has verified"
            self._fail(authentication, session, reply, chunks, why)
            return
        renews_other = session.principal is not None and wanted != session.mechanism
        session.exchange = (
            None if renews_other else authentication.begin(wanted, connection.certified)
        )
        if session.principal is None:
            session.mechanism = wanted
        session.stage, session.raw = Stage.EXCHANGE, header.api_version == 0
        reply.complete(encode_response(header, SaslHandshakeResponse(ErrorCode.NONE, offered)))

    def _step(
        self,
        authentication: Authentication,
        session: Session,
        message: bytes,
        header: RequestHeader | None,
        reply: Reply,
    ) -> None:
        """One message of the mechanism; without a header it came as a bare frame."""
        if session.exchange is None:
            step: Step = Denied("the mechanism may not change when authenticating again")
        else:
            step = session.exchange.step(message)
        if not isinstance(step, Work):
            self._stepped(authentication, session, header, reply, step)
        elif authentication.checks_waiting >= CHECKS_WAITING_MAX:
            # Clients connect again.
            reply.close("too many passwords and tokens wait to be checked")
        else:
            authentication.checks_waiting += 1
            reply.stop_reading()
            done = partial(self._worked, authentication, session, header, reply)
            self._broker.background.submit(partial(_without_raising, step), done)

    def _worked(
        self,
        authentication: Authentication,
        session: Session,
        header: RequestHeader | None,
        reply: Reply,
        step: "Step | Exception",
    ) -> None:
        authentication.checks_waiting -= 1
        reply.read_on()
        if isinstance(step, Exception):
            self._bug(reply, step)
        elif not reply.has_hung_up():
            self._guarded(reply, self._stepped, authentication, session, header, reply, step)

    def _stepped(
        self,
        authentication: Authentication,
        session: Session,
        header: RequestHeader | None,
        reply: Reply,
        step: Step,
    ) -> None:
        if isinstance(step, Proved):
            step = self._judged(authentication, session, step)
        match step:
            case Challenge(data=data, failure=failure):
                if failure:
                    self._count_failure(authentication, session, reply)
                reply.complete(_answer(header, SaslAuthenticateResponse(auth_bytes=data)))
            case Proved():
                lifetime_ms = self._prove(authentication, session, step, reply)
                answer = SaslAuthenticateResponse(
                    auth_bytes=step.data, session_lifetime_ms=lifetime_ms
                )
                reply.complete(_answer(header, answer))
            case Denied(text=text):
                error = ErrorCode.SASL_AUTHENTICATION_FAILED
                chunks = _answer(header, SaslAuthenticateResponse(error, text)) if header else None
                self._fail(authentication, session, reply, chunks, text)
            case Work():
                raise AssertionError("work leads to no more work")

    def _judged(
        self, authentication: Authentication, session: Session, step: Proved
    ) -> Proved | Denied:
        """What may have changed since the exchange began, or must not have changed."""
        if step.proof is not None and not authentication.users.holds(step.proof):
            return Denied("Authentication failed: the credentials have just been changed")
        before = session.principal
        if before is not None and step.principal != before:
            return Denied("Cannot change principals during re-authentication")
        return step

    def _prove(
        self, authentication: Authentication, session: Session, step: Proved, reply: Reply
    ) -> int:
        """The principal is proved; returns the milliseconds that the session lasts, 0: no end."""
        now = self._broker.groups.now()
        lifetimes_ns = []
        if authentication.config.reauth_ns:
            lifetimes_ns.append(authentication.config.reauth_ns)
        if step.expires_wall_ns is not None:
            lifetimes_ns.append(max(MS, step.expires_wall_ns - now.wall_ns))
        lifetime_ns = min(lifetimes_ns, default=0)
        renews = session.principal is not None
        session.stage, session.exchange = Stage.PROVED, None
        session.principal, session.proof = step.principal, step.proof
        session.raw = False
        session.proved_boot_ns = now.boot_ns
        session.expires_boot_ns = now.boot_ns + lifetime_ns if lifetime_ns else 0
        reply.connection.principal = step.principal
        counts = authentication.renewed if renews else authentication.succeeded
        counts[reply.connection.listener.name, session.mechanism] += 1
        reply.proved()
        return lifetime_ns // MS

    # -- failures ---------------------------------------------------------------------------------

    def _fail(
        self,
        authentication: Authentication,
        session: Session,
        reply: Reply,
        chunks: list[Buffer] | None,
        why: str,
    ) -> None:
        """Answer with `chunks` after the delay, if there is an answer, and close."""
        self._count_failure(authentication, session, reply)
        session.stage, session.exchange = Stage.ENDED, None
        reply.stop_reading()
        reason = f"authentication failed: {why}"

        def close() -> None:
            reply.close(reason)

        def tell() -> None:
            if chunks is None:
                close()
                return
            reply.complete(chunks)
            self._broker.timers.call_at(self._now() + CLOSE_AFTER_NS, close)

        self._broker.timers.call_at(self._now() + FAILED_DELAY_NS, tell)

    def _count_failure(
        self, authentication: Authentication, session: Session, reply: Reply
    ) -> None:
        """Once for a connection, which ends with it."""
        if not session.failure_counted:
            session.failure_counted = True
            mechanism = session.mechanism or NO_MECHANISM
            authentication.failed[reply.connection.listener.name, mechanism] += 1

    def _may_renew(self, session: Session) -> bool:
        """Kafka authenticates again only where sessions end, and once a second at most."""
        young = self._now() - session.proved_boot_ns < REAUTH_EVERY_NS
        return session.expires_boot_ns > 0 and not young

    def _now(self) -> int:
        return self._broker.groups.now().boot_ns

    def _guarded(self, reply: Reply, act: Callable[..., None], *args: object) -> None:
        """A bug of ours here costs one connection, and lets nobody in."""
        try:
            act(*args)
        except Exception as error:  # noqa: BLE001  logged with its traceback
            self._bug(reply, error)

    def _bug(self, reply: Reply, error: Exception) -> None:
        self._broker.on_bug("authentication", error)
        reply.close(f"internal error: {type(error).__name__}")


def _without_raising(work: Work) -> "Step | Exception":
    """In the thread, where a bug would cost more than a connection."""
    try:
        return work.run()
    except Exception as error:  # noqa: BLE001  the loop logs it
        return error


def _answer(header: RequestHeader | None, response: SaslAuthenticateResponse) -> list[Buffer]:
    if header is not None:
        return encode_response(header, response)
    return [len(response.auth_bytes).to_bytes(4, "big"), response.auth_bytes]
