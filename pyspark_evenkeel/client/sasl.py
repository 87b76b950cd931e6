"""SASL exchanges, without I/O: PLAIN (RFC 4616) and SCRAM (RFC 5802, RFC 7677).

`start` is the first message; every challenge is passed to `answer` until that returns None: with
SCRAM the broker has then proved that it knows our password, too. Names and passwords are used as
they are in UTF-8: Kafka's brokers do not normalise them (SASLprep) either.
"""

import base64
import binascii
import hashlib
import hmac
from typing import Final, Protocol

from pyspark_evenkeel.client.security import Mechanism, SecuritySettings
from pyspark_evenkeel.errors import SecurityError

NONCE_BYTES: Final = 24
ITERATIONS_MIN: Final = 4096
"""RFC 7677; a server that asks for fewer may be after our password."""
ITERATIONS_MAX: Final = 1 << 20
"""About half a second of hashing; a server that asks for more may want to waste our time."""
NO_CHANNEL_BINDING: Final = b"n,,"


class Exchange(Protocol):
    """One authentication."""

    def start(self) -> bytes: ...

    def answer(self, challenge: bytes) -> bytes | None:
        """The reply; None when the exchange is complete.

        Raises:
            SecurityError: if the broker's message is not what it should be.
        """


class Plain:
    def __init__(self, username: str, password: str) -> None:
        self._message = b"\0" + username.encode() + b"\0" + password.encode()

    def start(self) -> bytes:
        return self._message

    def answer(self, challenge: bytes) -> bytes | None:
        return None


class Scram:
    """`nonce` is drawn by the caller: printable, without commas, never used before."""

    def __init__(self, hash_name: str, username: str, password: str, nonce: str) -> None:
        self._hash_name = hash_name
        self._password = password.encode()
        self._nonce = nonce.encode()
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._bare = b"n=" + name.encode() + b",r=" + self._nonce
        self._expected: bytes | None = None
        """The server's expected signature, once it is known what it signs."""

    def start(self) -> bytes:
        return NO_CHANNEL_BINDING + self._bare

    def answer(self, challenge: bytes) -> bytes | None:
        fields = _fields(challenge)
        if "e" in fields:
            raise SecurityError("the broker refuses us", why=fields["e"].decode("ascii", "replace"))
        if self._expected is None:
            return self._proof(challenge, fields)
        if not hmac.compare_digest(_decoded(fields, "v"), self._expected):
            raise SecurityError(
                "the broker does not know our password",
                why="its signature is wrong: it may be an impostor",
                advice="check the bootstrap addresses, and use TLS",
            )
        return None

    def _proof(self, challenge: bytes, fields: dict[str, bytes]) -> bytes:
        if "m" in fields:
            raise _malformed_answer("it demands an extension")
        nonce, salt = fields.get("r", b""), _decoded(fields, "s")
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise _malformed_answer("its nonce does not continue ours")
        rounds = fields.get("i", b"")
        if not rounds.isdigit() or not ITERATIONS_MIN <= int(rounds[:10]) <= ITERATIONS_MAX:
            raise _malformed_answer(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        salted = hashlib.pbkdf2_hmac(self._hash_name, self._password, salt, int(rounds))
        client_key = self._hmac(salted, b"Client Key")
        final = b"c=" + base64.b64encode(NO_CHANNEL_BINDING) + b",r=" + nonce
        signed = b",".join((self._bare, challenge, final))
        signature = self._hmac(hashlib.new(self._hash_name, client_key).digest(), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._expected = self._hmac(self._hmac(salted, b"Server Key"), signed)
        return final + b",p=" + base64.b64encode(proof)

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.digest(key, message, self._hash_name)


def exchange(settings: SecuritySettings, nonce: str) -> Exchange:
    """The exchange for these settings, which have SASL."""
    mechanism, username, password = settings.mechanism, settings.username, settings.password
    assert mechanism is not None
    assert username is not None
    assert password is not None
    if mechanism is Mechanism.PLAIN:
        return Plain(username, password)
    return Scram(mechanism.hash_name, username, password, nonce)


def _fields(message: bytes) -> dict[str, bytes]:
    """`a=...,b=...`; the first field of each name counts."""
    found: dict[str, bytes] = {}
    for part in message.split(b","):
        name, equals, text = part.partition(b"=")
        if not equals or len(name) != 1:
            raise _malformed_answer("its message is no list of fields")
        found.setdefault(name.decode("latin-1"), text)
    return found


def _decoded(fields: dict[str, bytes], name: str) -> bytes:
    try:
        return base64.b64decode(fields[name], validate=True)
    except (KeyError, binascii.Error):
        raise _malformed_answer(f"there is no valid '{name}' in its message") from None


def _malformed_answer(why: str) -> SecurityError:
    return SecurityError("the broker does not speak SCRAM as it should", why=why)
