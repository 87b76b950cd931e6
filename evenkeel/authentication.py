"""Saying who we are: SaslHandshake and SaslAuthenticate (KIP-43, KIP-152), again before a session
ends (KIP-368).

A session is renewed on the same connection. What is in flight is answered first; what is submitted
meanwhile is held, and follows: no request is lost, and none is sent to a broker that would close
the connection for it.

No password or token is in an error: what a broker says is shown without them.
"""

import random
import secrets
from typing import Final, TypeVar

import trio

from evenkeel.connection import Connection
from evenkeel.errors import (
    AuthenticationError,
    DisconnectedError,
    EvenkeelError,
    UnsupportedError,
    refusal,
)
from evenkeel.sasl import Sasl
from wire.apis import Request
from wire.client_settings import Mechanism
from wire.error_codes import ErrorCode
from wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from wire.sasl_client import NONCE_BYTES, ROUNDS_MAX, SaslError, exchange_of
from wire.scram import ScramError

R = TypeVar("R")

RENEWED_AFTER: Final = (0.85, 0.95)
"""Shares of a session after which it is renewed, as in Kafka's own client: not all at once."""
WRAPPED_FROM: Final = 1
"""Of SaslHandshake: from here on the mechanism's messages are in SaslAuthenticate."""


async def authenticate(connection: Connection, sasl: Sasl) -> float:
    """Prove who we are; returns for how many seconds that holds, 0: for as long as it is open.

    Raises:
        AuthenticationError: the broker refuses us, or cannot prove that it knows our password.
        DisconnectedError, TimedOutError: there was no answer.
    """
    where, name = connection.where, sasl.mechanism.value
    await _shake_hands(connection, name)
    try:
        token = await sasl.current_token()
    except EvenkeelError:
        raise
    except Exception as error:
        kind = type(error).__name__  # its text may have the token
        raise AuthenticationError(
            f"there is no token for {where}", why=f"what gives it has failed ({kind})"
        ) from error
    try:
        return await _run_exchange(connection, sasl, token)
    except (SaslError, ScramError) as error:
        raise _failed(where, sasl, token, str(error)) from None


async def stay_authenticated(connection: Connection, sasl: Sasl, lifetime_s: float) -> None:
    """Renew the session before it ends, until the connection is closed. A failure closes it."""
    while lifetime_s > 0:
        with trio.move_on_after(lifetime_s * random.uniform(*RENEWED_AFTER)):
            await connection.closed.wait()
            return
        connection.hold()
        await connection.drained()
        try:
            lifetime_s = await authenticate(connection, sasl)
        except EvenkeelError as error:
            connection.close(error)
            return
        connection.release()


async def _shake_hands(connection: Connection, mechanism: str) -> None:
    where = connection.where
    try:
        version = connection.version_for(SaslHandshakeRequest)
    except UnsupportedError as error:
        raise _no_sasl(where) from error
    if version < WRAPPED_FROM:
        raise AuthenticationError(f"{where} is too old to authenticate us", why="before Kafka 1.0")
    answer = await _ask(connection, SaslHandshakeRequest(mechanism), SaslHandshakeResponse)
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _no_sasl(where)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationError(
            f"{where} does not offer {mechanism}",
            why=f"it offers {', '.join(answer.mechanisms) or 'nothing'}",
            advice="sasl.mechanism",
        )
    if answer.error_code != ErrorCode.NONE:
        raise _other(where, answer.error_code, None)


async def _run_exchange(connection: Connection, sasl: Sasl, token: str) -> float:
    nonce = secrets.token_urlsafe(NONCE_BYTES).encode()
    talk = exchange_of(sasl.mechanism, sasl.username, sasl.password, token, nonce)
    message: bytes | None = talk.start()
    for _ in range(ROUNDS_MAX):
        assert message is not None
        answer = await _ask(connection, SaslAuthenticateRequest(message), SaslAuthenticateResponse)
        told = answer.error_message or ""
        if answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED:
            raise _failed(connection.where, sasl, token, told or "the broker refuses us")
        if answer.error_code != ErrorCode.NONE:
            raise _other(connection.where, answer.error_code, _hidden(sasl, token, told))
        # hashing a password takes up to half a second, which no other task should wait for
        message = await trio.to_thread.run_sync(
            talk.answer, answer.auth_bytes, abandon_on_cancel=True
        )
        if message is None:
            return max(0, answer.session_lifetime_ms) / 1000
    raise SaslError("the broker does not finish the authentication")


async def _ask(connection: Connection, message: Request, kind: type[R]) -> R:
    """Ahead of what is held; it needs no slot, for those are taken by what is held."""
    version = connection.version_for(type(message))
    answer = await connection.submit(message, version, ahead=True).wait()
    assert isinstance(answer, kind)
    return answer


def _no_sasl(where: str) -> AuthenticationError:
    return AuthenticationError(
        f"{where} does not authenticate clients",
        why="this listener has no SASL",
        advice="security.protocol=PLAINTEXT or SSL, or another port",
    )


def _failed(where: str, sasl: Sasl, token: str, why: str) -> AuthenticationError:
    who = f" as '{sasl.username}'" if sasl.username else ""
    bearer = sasl.mechanism is Mechanism.OAUTHBEARER
    return AuthenticationError(
        f"authentication at {where}{who} with {sasl.mechanism.value} failed",
        why=_hidden(sasl, token, why),
        advice="check the token" if bearer else "check the user's name, password and mechanism",
    )


def _other(where: str, code: int, message: str | None) -> EvenkeelError:
    error = refusal(f"{where} does not authenticate us", code, message)
    if error.retriable:
        return DisconnectedError(error.what, why=error.why)
    return AuthenticationError(error.what, why=error.why)


def _hidden(sasl: Sasl, token: str, text: str) -> str:
    for secret in filter(None, (sasl.password, token)):
        text = text.replace(secret, "***")
    return text
