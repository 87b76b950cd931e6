"""Opening a connection: TCP, TLS, the broker's API versions (KIP-35), and authentication (SASL)."""

from typing import Final

import trio

from evenkeel.authentication import authenticate, stay_authenticated
from evenkeel.config import LIBRARY_NAME, ClientConfig
from evenkeel.connection import Connection
from evenkeel.errors import ClosedError, DisconnectedError, TimedOutError, UnreachableError
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.software import VERSION

FIRST_ASKED: Final = 3
"""Version of the first ApiVersions: brokers since 2.4 know it, older ones report what they know."""


async def connect(nursery: trio.Nursery, host: str, port: int, config: ClientConfig) -> Connection:
    """Open a connection that lives in `nursery`, ask the broker for its API versions, and say who
    we are.

    Raises:
        UnreachableError: if there is no answer, or not one of a Kafka broker.
        AuthenticationError: if the broker does not believe who we are, or is not to be believed.
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
            if config.sasl is not None:
                lifetime_s = await authenticate(connection, config.sasl)
                nursery.start_soon(stay_authenticated, connection, config.sasl, lifetime_s)
            connection.greeted()
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
