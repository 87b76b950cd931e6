"""What a node offers for authentication, and how often it succeeded and failed."""

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Final

import attrs

from broker.security.exchanges import (
    EXTERNAL,
    OAUTHBEARER,
    PLAIN,
    Exchange,
    ExternalExchange,
    PlainExchange,
    ScramExchange,
)
from broker.security.listeners import ClientListener
from broker.security.principal import Principal
from broker.security.token_keys import KeysInUse
from broker.security.users import MECHANISM_NAMES, Users
from paxos.ids import MS

MECHANISMS: Final = (PLAIN, *MECHANISM_NAMES, OAUTHBEARER, EXTERNAL)
"""All that there are here."""
REFUSED_MECHANISMS: Final = {"GSSAPI": "Kerberos (GSSAPI) is not supported"}
CHECKS_WAITING_MAX: Final = 128
"""Passwords and tokens that wait for a thread: half a second's worth of passwords with the usual
4,096 iterations."""
FAILED_DELAY_NS: Final = 100 * MS
"""Kafka's connection.failed.authentication.delay.ms: a guess costs its connection this long."""
FRAME_BYTES_MAX: Final = 16 * 1024
"""Of a request before the client has proved who it is. It fits into the buffer that a connection
has anyway, so that nobody unknown holds more than 64 KiB, whatever he sends."""


class CutOff(Enum):
    """Why an open connection of somebody who was let in is closed; labels of a metric."""

    CREDENTIALS = "credentials"
    """The user was deleted, or has another password."""
    CERTIFICATE = "certificate"
    """It has expired, was revoked, or its authority is no longer believed."""
    EXPIRED = "session"
    """The session has ended without a re-authentication (KIP-368)."""


@attrs.frozen(kw_only=True)
class AuthenticationConfig:
    mechanisms: tuple[str, ...]
    plain_without_tls: bool = False
    tokens_without_tls: bool = False
    reauth_ns: int = 0
    """Sessions end after this time, unless the client authenticates again; 0: never."""


@attrs.define(eq=False)
class Authentication:
    config: AuthenticationConfig
    users: Users
    new_nonce: Callable[[], bytes] = attrs.field(repr=False)
    """Printable, without a comma, never the same twice, and not to be guessed."""
    new_token_exchange: Callable[[], Exchange] | None = None
    """For OAUTHBEARER; None: it is not offered."""
    keys: KeysInUse | None = None
    """Those that tokens are signed with."""
    succeeded: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    failed: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    renewed: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    """By listener and mechanism, "none" before there is one."""
    cut_off: Counter[CutOff] = attrs.field(factory=Counter)
    checks_waiting: int = 0

    def offered(self, listener: ClientListener, certified: Principal | None) -> list[str]:
        """The mechanisms of a connection: what would send a secret needs TLS, and EXTERNAL a
        certificate that was verified."""
        tls, config = listener.protocol.tls, self.config
        usable = {
            PLAIN: tls or config.plain_without_tls,
            OAUTHBEARER: self.new_token_exchange is not None and (tls or config.tokens_without_tls),
            EXTERNAL: tls and certified is not None,
        }
        return [one for one in config.mechanisms if usable.get(one, True)]

    def begin(self, mechanism: str, certified: Principal | None) -> Exchange:
        """An exchange of a mechanism that is offered."""
        if mechanism == PLAIN:
            return PlainExchange(self.users)
        if mechanism == OAUTHBEARER:
            assert self.new_token_exchange is not None
            return self.new_token_exchange()
        if mechanism == EXTERNAL:
            assert certified is not None
            return ExternalExchange(certified)
        return ScramExchange(self.users, MECHANISM_NAMES[mechanism], self.new_nonce())
