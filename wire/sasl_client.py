"""The client's side of SASL, without I/O: PLAIN (RFC 4616), SCRAM (wire/scram.py), OAUTHBEARER
(RFC 7628).

`start` is the first message; every challenge is passed to `answer` until that returns None. With
SCRAM the broker has then proved that it knows our keys, too. What comes from the other side gives a
value or `SaslError`, whose text has no secret of ours.
"""

from typing import Final, Protocol

from wire.client_settings import Mechanism
from wire.scram import ClientExchange, ScramMechanism

ROUNDS_MAX: Final = 4
"""Messages from us in one authentication; SCRAM has two."""
NONCE_BYTES: Final = 24
TOKEN_BYTES_MAX: Final = 32 * 1024
"""A request before a name is proved has at most 64 KiB."""
_END: Final = b"\x01"
_SCRAM: Final = {
    Mechanism.SCRAM_SHA_256: ScramMechanism.SHA_256,
    Mechanism.SCRAM_SHA_512: ScramMechanism.SHA_512,
}


class SaslError(ValueError):
    """A token that cannot be sent, or a broker that refuses it in words."""


class Exchange(Protocol):
    """One authentication."""

    def start(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The reply; None when the exchange is complete.

        Raises:
            SaslError, ScramError: if the broker's message is not what it should be.
        """


class Plain:
    def __init__(self, username: str, password: str) -> None:
        secret = password.encode("utf-8", "surrogateescape")  # as SCRAM does
        self._message = b"\0" + username.encode() + b"\0" + secret

    def start(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class Bearer:
    """A broker that does not believe the token says why in a challenge; it is sent one more byte,
    as the RFC wants it, and then refuses."""

    def __init__(self, token: str) -> None:
        if not token or len(token) > TOKEN_BYTES_MAX:
            raise SaslError(f"a token has 1 to {TOKEN_BYTES_MAX} characters, this has {len(token)}")
        if not all("\x21" <= one <= "\x7e" for one in token):
            raise SaslError("a token has no spaces, and only ASCII characters")
        self._token = token
        self._refused = False

    def start(self) -> bytes:
        return b"n,," + _END + b"auth=Bearer " + self._token.encode() + _END + _END

    def answer(self, challenge: bytes) -> bytes | None:
        if not challenge:
            if self._refused:
                raise SaslError("the broker does not believe the token")
            return None
        if self._refused:
            raise SaslError("the broker does not finish the authentication")
        self._refused = True
        return _END


def exchange_of(
    mechanism: Mechanism, username: str, password: str, token: str, nonce: bytes
) -> Exchange:
    """`nonce` is drawn by the caller: printable, without a comma, never used before.

    Raises:
        SaslError: if the token cannot be one.
    """
    if mechanism is Mechanism.PLAIN:
        return Plain(username, password)
    if mechanism is Mechanism.OAUTHBEARER:
        return Bearer(token)
    return ClientExchange(_SCRAM[mechanism], username, password, nonce)
