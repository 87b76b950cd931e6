"""Opening a connection: TCP, TLS, the broker's API versions (KIP-35), and authentication (SASL).

Configuration errors are reported with a message and not retried. If a broker only hangs up, as it
does when it gets TLS and expects none or vice versa, a second attempt finds out which: one more
connection tries the other way, sends no secrets, and is closed.
"""

import secrets
import socket
import ssl
import struct
import time
from typing import Final

from pyspark_evenkeel.client.connection import WHO_WE_ARE, Connection, words_of
from pyspark_evenkeel.client.security import token_of
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    BadAnswerError,
    ConfigurationError,
    EvenkeelSparkError,
    LateError,
    RefusedError,
    SecurityError,
    UnavailableError,
    UnsupportedError,
)
from wire.apis import ApiKey, encode_request
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from wire.sasl_client import NONCE_BYTES, ROUNDS_MAX, SaslError, exchange_of
from wire.scram import ScramError
from wire.software import VERSION

SOFTWARE: Final = ("pyspark-evenkeel", VERSION)
FIRST_ASKED: Final = 3
"""Version of the first ApiVersions: brokers since 2.4 know it, older ones report what they know."""
SESSION_SHARE: Final = 0.85
"""A session that ends (KIP-368) is replaced by a new connection after this share of it."""
_LENGTH: Final = struct.Struct(">i")


def open_connection(
    host: str,
    port: int,
    settings: ClusterSettings,
    tls: ssl.SSLContext | None,
    patience_s: float | None = None,
) -> Connection:
    """A connection that is ready for use; `tls` comes from `settings.security`.

    `patience_s` is how long TCP may take: at most `connect_ms`, which is the default.

    Raises:
        UnavailableError: if nothing answers there, or not as a Kafka broker does.
        SecurityError: if TLS or authentication fails in a way that retrying will not fix.
    """
    where = f"{host}:{port}"
    connect_s = settings.connect_ms / 1000
    sock = _connected(host, port, where, min(connect_s, patience_s or connect_s))
    sock.settimeout(connect_s)
    try:
        if tls is not None:
            sock = _secured(sock, host, port, tls, settings)
        connection = Connection(sock, where, settings.client_id, settings.request_ms)
        _negotiate(connection, host, port, settings)
        if settings.security.protocol.has_sasl:
            _authenticate(connection, settings)
        connection.greetings = connection.answers
    except BaseException:
        sock.close()
        raise
    return connection


def _connected(host: str, port: int, where: str, patience_s: float) -> socket.socket:
    try:
        sock = socket.create_connection((host, port), patience_s)
    except OSError as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else words_of(error)
        raise UnavailableError(f"cannot connect to {where}", why=why) from error
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return sock


# -- TLS ------------------------------------------------------------------------------------------


def _secured(
    sock: socket.socket, host: str, port: int, tls: ssl.SSLContext, settings: ClusterSettings
) -> ssl.SSLSocket:
    where = f"{host}:{port}"
    try:
        return tls.wrap_socket(sock, server_hostname=host)
    except ssl.SSLCertVerificationError as error:
        raise SecurityError(
            f"{where} is not trusted",
            why=error.verify_message or str(error),
            advice="ssl.ca.location must have the authority that signed its certificate, and the "
            "certificate must be for the host name we use",
        ) from error
    except OSError as error:
        if isinstance(error, ssl.SSLError) and "ALERT" in (error.reason or ""):
            raise SecurityError(
                f"{where} refuses our TLS",
                why=(error.reason or "").lower().replace("_", " "),
                advice=WHO_WE_ARE,
            ) from error
        if not isinstance(error, TimeoutError) and _speaks_kafka_in_plain(host, port, settings):
            raise SecurityError(
                f"{where} does not speak TLS",
                why="it answers without",
                advice="security.protocol=PLAINTEXT or SASL_PLAINTEXT, or another port",
            ) from error
        why = "no answer in time" if isinstance(error, TimeoutError) else words_of(error)
        raise UnavailableError(f"no TLS connection to {where}", why=why) from error


def _speaks_kafka_in_plain(host: str, port: int, settings: ClusterSettings) -> bool:
    ask = b"".join(encode_request(ApiVersionsRequest(), 0, 1, settings.client_id))
    try:
        with socket.create_connection((host, port), settings.connect_ms / 1000) as sock:
            sock.sendall(ask)
            head = sock.recv(2 * _LENGTH.size, socket.MSG_WAITALL)
    except OSError:
        return False
    return len(head) == 2 * _LENGTH.size and _LENGTH.unpack_from(head, _LENGTH.size)[0] == 1


def _speaks_tls(host: str, port: int, settings: ClusterSettings) -> bool:
    """Only a hello is sent, so no trust is needed."""
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), settings.connect_ms / 1000) as sock:
            anybody.wrap_socket(sock).close()
    except ssl.SSLError as error:
        return "ALERT" in (error.reason or "")
    except OSError:
        return False
    return True


# -- the broker's API versions --------------------------------------------------------------------


def _negotiate(connection: Connection, host: str, port: int, settings: ClusterSettings) -> None:
    """ApiVersions (KIP-35), again in the broker's own version if ours is too new (KIP-511)."""
    ask = ApiVersionsRequest(*SOFTWARE)
    try:
        answer = connection.ask(ask, ApiVersionsResponse, version=FIRST_ASKED)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            key = int(ApiKey.API_VERSIONS)
            theirs = [one.max_version for one in answer.api_keys if one.api_key == key]
            version = min([FIRST_ASKED, *theirs]) if theirs else 0
            answer = connection.ask(ask, ApiVersionsResponse, version=max(0, version))
    except UnavailableError as error:
        hung_up = not isinstance(error, BadAnswerError | LateError)
        has_tls = settings.security.protocol.has_tls
        if hung_up and not has_tls and _speaks_tls(host, port, settings):
            raise SecurityError(
                f"{connection.where} speaks TLS, and we do not",
                advice="security.protocol=SSL or SASL_SSL, or another port",
            ) from error
        if hung_up and has_tls and settings.security.certificate_location is None:
            error.advice = error.advice or WHO_WE_ARE
        raise
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(f"{connection.where} refuses ApiVersions", code=answer.error_code)
    connection.versions = {one.api_key: one for one in answer.api_keys}
    connection.features = {one.name: one.max_version for one in answer.supported_features}


# -- authentication -------------------------------------------------------------------------------


def _authenticate(connection: Connection, settings: ClusterSettings) -> None:
    where, security = connection.where, settings.security
    assert security.mechanism is not None
    name = security.mechanism.value
    try:
        answer = connection.ask(SaslHandshakeRequest(name), SaslHandshakeResponse)
    except UnsupportedError as error:
        raise _no_sasl(where) from error
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise _no_sasl(where)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise SecurityError(
            f"{where} does not know sasl.mechanism {name}",
            why=f"it knows {', '.join(answer.mechanisms) or 'none'}",
        )
    if answer.error_code != ErrorCode.NONE:
        raise RefusedError(f"{where} refuses to authenticate clients", code=answer.error_code)
    who = "" if security.username is None else f" as '{security.username}'"
    try:
        _run_exchange(connection, settings)
    except (SecurityError, ScramError, SaslError, ConfigurationError) as error:
        advice = getattr(error, "advice", "") or (
            "check sasl.username, sasl.password and sasl.mechanism"
            if security.mechanism.has_password
            else "check the token, and whom the broker believes"
        )
        raise SecurityError(
            f"authentication at {where}{who} with {name} failed",
            why=_without(security.password, str(error)),
            advice=advice,
        ) from None  # the broker's message may contain our password


def _without(password: str | None, text: str) -> str:
    return text.replace(password, "***") if password else text


def _run_exchange(connection: Connection, settings: ClusterSettings) -> None:
    security = settings.security
    assert security.mechanism is not None
    nonce = secrets.token_urlsafe(NONCE_BYTES).encode()
    token = token_of(security)
    talk = exchange_of(
        security.mechanism, security.username or "", security.password or "", token, nonce
    )
    message: bytes | None = talk.start()
    for _ in range(ROUNDS_MAX):
        assert message is not None
        asked_at = time.monotonic()
        request = SaslAuthenticateRequest(message)
        answer = connection.ask(request, SaslAuthenticateResponse)
        if answer.error_code != ErrorCode.NONE:
            raise _not_authenticated(answer, token)
        message = talk.answer(answer.auth_bytes)
        if message is None:
            if answer.session_lifetime_ms > 0:
                lifetime_s = answer.session_lifetime_ms / 1000
                connection.expires_at = asked_at + SESSION_SHARE * lifetime_s
            return
    raise SecurityError("the broker does not finish the authentication")


def _not_authenticated(answer: SaslAuthenticateResponse, token: str) -> EvenkeelSparkError:
    told = _without(token, answer.error_message or "")
    refused = RefusedError("", code=answer.error_code, message=told)
    if refused.retriable:
        return RefusedError("authentication", code=answer.error_code, message=told)
    return SecurityError("the broker refuses us", why=refused.why)


def _no_sasl(where: str) -> SecurityError:
    return SecurityError(
        f"{where} does not authenticate clients",
        why="this listener has no SASL",
        advice="security.protocol=PLAINTEXT or SSL, or another port",
    )
