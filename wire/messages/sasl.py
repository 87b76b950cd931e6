"""SaslHandshake (key 17) and SaslAuthenticate (key 36): a client authenticates (KIP-43, KIP-152).

The mechanism defines the meaning of the bytes and the number of rounds.
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import int16, int64, octets, string, string_array


@attrs.define
class SaslHandshakeRequest:
    """From version 1 on the mechanism's bytes are sent in SaslAuthenticate, not as bare frames."""

    mechanism: str = string()


@attrs.define
class SaslHandshakeResponse:
    """`mechanisms` are the broker's, also with the error UNSUPPORTED_SASL_MECHANISM."""

    error_code: int = int16()
    mechanisms: list[str] = string_array()


@attrs.define
class SaslAuthenticateRequest:
    auth_bytes: bytes = octets()


@attrs.define
class SaslAuthenticateResponse:
    """After `session_lifetime_ms` the broker closes the connection (KIP-368); 0 means never."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    auth_bytes: bytes = octets()
    session_lifetime_ms: int = int64("1+")
