"""What a node offers for authentication, and how often it succeeded and failed."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import attrs

from broker.security.exchanges import OAUTHBEARER, PLAIN, Exchange, PlainExchange, ScramExchange
from broker.security.listeners import ClientListener
from broker.security.users import MECHANISM_NAMES, Users
from paxos.ids import MS

MECHANISMS: Final = (PLAIN, *MECHANISM_NAMES, OAUTHBEARER)
"""All that there are here."""
REFUSED_MECHANISMS: Final = {"GSSAPI": "Kerberos (GSSAPI) is not supported"}
PLAIN_WAITING_MAX: Final = 128
"""Passwords that wait for their iterations: half a second's worth with the usual 4,096."""
FAILED_DELAY_NS: Final = 100 * MS
"""Kafka's connection.failed.authentication.delay.ms: a guess costs its connection this long."""
FRAME_BYTES_MAX: Final = 64 * 1024
"""Of a request before the client has proved who it is."""


@attrs.frozen(kw_only=True)
class AuthenticationConfig:
    mechanisms: tuple[str, ...]
    plain_without_tls: bool = False
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
    succeeded: Counter[str] = attrs.field(factory=Counter)
    failed: Counter[str] = attrs.field(factory=Counter)
    """By mechanism, "none" before there is one."""
    plain_waiting: int = 0

    def offered(self, listener: ClientListener) -> list[str]:
        """The mechanisms of a listener: PLAIN sends the password, so it needs TLS."""
        plain = listener.protocol.tls or self.config.plain_without_tls
        tokens = self.new_token_exchange is not None
        return [
            one
            for one in self.config.mechanisms
            if (one != PLAIN or plain) and (one != OAUTHBEARER or tokens)
        ]

    def begin(self, mechanism: str) -> Exchange:
        """An exchange of a mechanism that is offered."""
        if mechanism == PLAIN:
            return PlainExchange(self.users)
        if mechanism == OAUTHBEARER:
            assert self.new_token_exchange is not None
            return self.new_token_exchange()
        return ScramExchange(self.users, MECHANISM_NAMES[mechanism], self.new_nonce())
