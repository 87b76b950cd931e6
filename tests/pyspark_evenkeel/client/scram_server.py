"""The broker's side of SASL, written for tests from RFC 4616, RFC 5802 and RFC 7677.

confluent-kafka authenticates against it as well, so it is not merely our own misreading of them.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping

import attrs

ITERATIONS = 4096


class RefusedLoginError(Exception):
    """The error is sent to the client."""


@attrs.define
class Login:
    """One authentication; `answer` is called with each message of the client in turn."""

    mechanism: str
    users: Mapping[str, str]
    honest: bool = True
    """Otherwise it does not know the user's password, and signs with another one."""
    done: bool = False
    _bare: bytes = b""
    _first: bytes = b""
    _nonce: bytes = b""
    _salted: bytes = b""

    def answer(self, message: bytes) -> bytes:
        if self.mechanism == "PLAIN":
            return self._plain(message)
        return self._final(message) if self._first else self._begin(message)

    def _plain(self, message: bytes) -> bytes:
        _, name, password = message.split(b"\0")
        if self.users.get(name.decode()) != password.decode():
            raise RefusedLoginError("Authentication failed: Invalid username or password")
        self.done = True
        return b""

    @property
    def _hash(self) -> str:
        return {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}[self.mechanism]

    def _begin(self, message: bytes) -> bytes:
        gs2, self._bare = message[:3], message[3:]
        assert gs2 == b"n,,"
        name, nonce = (part[2:] for part in self._bare.split(b",")[:2])
        user = name.decode().replace("=2C", ",").replace("=3D", "=")
        self._nonce = nonce + b"-and-ours"
        salt = hashlib.sha256(name).digest()[:16]
        password = self.users.get(user, "nobody") if self.honest else "something else"
        self._salted = hashlib.pbkdf2_hmac(self._hash, password.encode(), salt, ITERATIONS)
        self._first = b"r=%b,s=%b,i=%d" % (self._nonce, base64.b64encode(salt), ITERATIONS)
        return self._first

    def _final(self, message: bytes) -> bytes:
        without_proof, _, proof = message.rpartition(b",p=")
        assert without_proof == b"c=biws,r=" + self._nonce
        signed = b",".join((self._bare, self._first, without_proof))
        stored = hashlib.new(self._hash, self._key(b"Client Key")).digest()
        signature = hmac.digest(stored, signed, self._hash)
        key = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
        if self.honest and hashlib.new(self._hash, key).digest() != stored:
            raise RefusedLoginError("Authentication failed: invalid credentials")
        self.done = True
        return b"v=" + base64.b64encode(hmac.digest(self._key(b"Server Key"), signed, self._hash))

    def _key(self, what: bytes) -> bytes:
        return hmac.digest(self._salted, what, self._hash)
