"""SCRAM (RFC 5802, RFC 7677) as Kafka speaks it, without I/O: keys, messages, both sides' proofs.

A server keeps a `Credential`: keys that were made from the password, with which nobody can log in.
The client pays for the iterations, the server for two HMACs. Channel binding is not offered. Names
and passwords are used as they are in UTF-8: Kafka's brokers do not normalise them (SASLprep)
either.

What comes from the other side is of bounded length, and gives a value or `ScramError`.
"""

import base64
import binascii
import hashlib
import hmac
from enum import IntEnum
from typing import Final

import attrs

ITERATIONS_MIN: Final = 4_096
"""RFC 7677, and Kafka's own minimum."""
ITERATIONS_MAX: Final = 1_000_000
"""About half a second of hashing for a client."""
ITERATIONS_DIGITS_MAX: Final = 10
"""More are not looked at."""
MESSAGE_BYTES_MAX: Final = 4_096
NAME_BYTES_MAX: Final = 255
NONCE_BYTES_MAX: Final = 256
SALT_BYTES_MAX: Final = 128


class ScramError(ValueError):
    """A message that is none of SCRAM, or a proof that is wrong. The text has no secrets."""


class ScramMechanism(IntEnum):
    """With Kafka's numbers (KIP-554)."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def hash_name(self) -> str:
        return "sha256" if self is ScramMechanism.SHA_256 else "sha512"

    @property
    def sasl_name(self) -> str:
        return "SCRAM-SHA-256" if self is ScramMechanism.SHA_256 else "SCRAM-SHA-512"

    @property
    def key_bytes(self) -> int:
        return 32 if self is ScramMechanism.SHA_256 else 64


@attrs.frozen
class Credential:
    """What a server keeps of a password (RFC 5802, section 3)."""

    salt: bytes = attrs.field(repr=False)
    stored_key: bytes = attrs.field(repr=False)
    server_key: bytes = attrs.field(repr=False)
    iterations: int

    def problem(self, mechanism: ScramMechanism) -> str:
        """What is wrong with it; "" if nothing."""
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            return f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        if not 0 < len(self.salt) <= SALT_BYTES_MAX:
            return f"a salt has 1 to {SALT_BYTES_MAX} bytes"
        if not len(self.stored_key) == len(self.server_key) == mechanism.key_bytes:
            return f"keys of {mechanism.sasl_name} have {mechanism.key_bytes} bytes"
        return ""


def keyed(mechanism: ScramMechanism, key: bytes, message: bytes) -> bytes:
    """RFC 5802's HMAC()."""
    return hmac.digest(key, message, mechanism.hash_name)


def hashed(mechanism: ScramMechanism, data: bytes) -> bytes:
    """RFC 5802's H()."""
    return hashlib.new(mechanism.hash_name, data).digest()


def salted_password(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> bytes:
    """RFC 5802's Hi(): slow on purpose."""
    data = password.encode("utf-8", "surrogateescape")
    return hashlib.pbkdf2_hmac(mechanism.hash_name, data, salt, iterations)


def credential_of(
    mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int
) -> Credential:
    """What to keep, given the salted password (as in AlterUserScramCredentials)."""
    stored = hashed(mechanism, keyed(mechanism, salted, b"Client Key"))
    return Credential(salt, stored, keyed(mechanism, salted, b"Server Key"), iterations)


def make_credential(
    mechanism: ScramMechanism, password: str, salt: bytes, iterations: int
) -> Credential:
    salted = salted_password(mechanism, password, salt, iterations)
    return credential_of(mechanism, salted, salt, iterations)


# ---- the server's side ---------------------------------------------------------------------------


@attrs.frozen
class ClientFirst:
    """client-first-message. `bare` is the part that both sides sign."""

    header: bytes
    """The GS2 header, which the client repeats in its second message."""
    username: str = attrs.field(repr=False)
    nonce: bytes
    bare: bytes = attrs.field(repr=False)
    extensions: tuple[bytes, ...] = ()


def parse_client_first(message: bytes) -> ClientFirst:
    """Raises:
    ScramError: it is not a client-first-message that we accept.
    """
    _check_size(message)
    flag, comma, rest = message.partition(b",")
    authzid, second, bare = rest.partition(b",")
    if not comma or not second:
        raise ScramError("the first message has no GS2 header")
    if flag not in (b"n", b"y"):
        raise ScramError("channel binding is not offered")
    parts = bare.split(b",")
    if len(parts) < 2 or not parts[0].startswith(b"n=") or not parts[1].startswith(b"r="):
        raise ScramError("the first message names no user and nonce")
    username, nonce = _name(parts[0][2:]), parts[1][2:]
    if authzid and (not authzid.startswith(b"a=") or _name(authzid[2:]) != username):
        raise ScramError("an authorization id that differs from the user's name")
    _check_nonce(nonce)
    header = flag + b"," + authzid + b","
    return ClientFirst(header, username, nonce, bare, tuple(parts[2:]))


def server_first(nonce: bytes, credential: Credential) -> bytes:
    """`nonce`: the client's, followed by ours."""
    salt = base64.b64encode(credential.salt)
    return b"r=" + nonce + b",s=" + salt + b",i=%d" % credential.iterations


@attrs.frozen
class ServerExchange:
    """Of one client that has sent its first message, and been sent `challenge`."""

    mechanism: ScramMechanism
    first: ClientFirst
    credential: Credential
    nonce: bytes
    challenge: bytes

    @classmethod
    def begin(
        cls, mechanism: ScramMechanism, first: ClientFirst, credential: Credential, nonce: bytes
    ) -> "ServerExchange":
        """`nonce` is what we add: printable, without a comma, never used before."""
        both = first.nonce + nonce
        return cls(mechanism, first, credential, both, server_first(both, credential))

    def finish(self, message: bytes) -> tuple[bool, bytes]:
        """Whether the proof is right, and the server's signature for the client to check.

        The work is the same whatever the proof: two HMACs, one hash, a comparison in constant time.

        Raises:
            ScramError: it is not a client-final-message of this exchange.
        """
        _check_size(message)
        without, found, proof_text = message.rpartition(b",p=")
        parts = without.split(b",")
        if not found or len(parts) < 2:
            raise ScramError("the last message has no proof")
        if parts[0] != b"c=" + base64.b64encode(self.first.header):
            raise ScramError("the last message repeats another GS2 header")
        if not hmac.compare_digest(parts[1], b"r=" + self.nonce):
            raise ScramError("the last message has another nonce")
        proof = _decoded(proof_text)
        if len(proof) != self.mechanism.key_bytes:
            raise ScramError("a proof of another length")
        signed = b",".join((self.first.bare, self.challenge, without))
        signature = keyed(self.mechanism, self.credential.stored_key, signed)
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        right = hmac.compare_digest(hashed(self.mechanism, key), self.credential.stored_key)
        server = keyed(self.mechanism, self.credential.server_key, signed)
        return right, b"v=" + base64.b64encode(server)


# ---- the client's side ---------------------------------------------------------------------------


class ClientExchange:
    """`nonce` is drawn by the caller: printable, without a comma, never used before."""

    def __init__(
        self, mechanism: ScramMechanism, username: str, password: str, nonce: bytes
    ) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce
        name = username.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + nonce
        self._expected: bytes | None = None
        """The server's signature, once it is known what it signs."""

    def start(self) -> bytes:
        return b"n,," + self._bare

    def answer(self, challenge: bytes) -> bytes | None:
        """The reply; None when the exchange is complete, and the server has proved that it knows
        our keys, too.

        Raises:
            ScramError: the server's message is not what it should be.
        """
        _check_size(challenge)
        if challenge.startswith(b"e="):
            raise ScramError(f"the broker refuses us: {challenge[2:80].decode('ascii', 'replace')}")
        if self._expected is not None:
            if not hmac.compare_digest(challenge.partition(b",")[0], self._expected):
                raise ScramError("the broker's signature is wrong: it does not know our password")
            return None
        return self._prove(challenge)

    def _prove(self, challenge: bytes) -> bytes:
        parts = challenge.split(b",")
        names = tuple(part[:2] for part in parts[:3])
        if names != (b"r=", b"s=", b"i="):
            raise ScramError("the broker's message has no nonce, salt and iterations")
        nonce, salt, rounds = parts[0][2:], _decoded(parts[1][2:]), parts[2][2:]
        if not nonce.startswith(self._nonce) or len(nonce) == len(self._nonce) or not salt:
            raise ScramError("the broker's nonce does not continue ours")
        whole = rounds.isdigit() and len(rounds) <= ITERATIONS_DIGITS_MAX
        if not whole or not ITERATIONS_MIN <= int(rounds) <= ITERATIONS_MAX:
            raise ScramError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt, int(rounds))
        client_key = keyed(mechanism, salted, b"Client Key")
        final = b"c=" + base64.b64encode(b"n,,") + b",r=" + nonce
        signed = b",".join((self._bare, challenge, final))
        signature = keyed(mechanism, hashed(mechanism, client_key), signed)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server = keyed(mechanism, keyed(mechanism, salted, b"Server Key"), signed)
        self._expected = b"v=" + base64.b64encode(server)
        return final + b",p=" + base64.b64encode(proof)


# ---- credentials as text, in files ---------------------------------------------------------------


def credential_text(credential: Credential) -> str:
    """As Kafka's tools write it: `salt=...,stored_key=...,server_key=...,iterations=...`."""
    fields = {
        "salt": credential.salt,
        "stored_key": credential.stored_key,
        "server_key": credential.server_key,
    }
    parts = [f"{name}={base64.b64encode(value).decode()}" for name, value in fields.items()]
    return ",".join([*parts, f"iterations={credential.iterations}"])


def parse_credential(mechanism: ScramMechanism, text: str) -> Credential:
    """What `credential_text` was given.

    Raises:
        ScramError: it is no credential of this mechanism.
    """
    fields = dict(part.partition("=")[::2] for part in text.strip().split(","))
    if set(fields) != {"salt", "stored_key", "server_key", "iterations"}:
        raise ScramError("a credential has salt, stored_key, server_key and iterations")
    rounds = fields.pop("iterations")
    if not (rounds.isascii() and rounds.isdigit() and len(rounds) <= ITERATIONS_DIGITS_MAX):
        raise ScramError("iterations are a number")
    keys = {name: _decoded(value.encode()) for name, value in fields.items()}
    credential = Credential(**keys, iterations=int(rounds))
    if credential.problem(mechanism):
        raise ScramError(credential.problem(mechanism))
    return credential


# ---- pieces --------------------------------------------------------------------------------------


def _check_size(message: bytes) -> None:
    if len(message) > MESSAGE_BYTES_MAX:
        raise ScramError(f"a message of more than {MESSAGE_BYTES_MAX} bytes")


def _check_nonce(nonce: bytes) -> None:
    printable = all(0x21 <= byte <= 0x7E for byte in nonce)
    if not 0 < len(nonce) <= NONCE_BYTES_MAX or not printable:
        raise ScramError(f"a nonce has 1 to {NONCE_BYTES_MAX} printable characters")


def _name(data: bytes) -> str:
    """saslname: `=2C` is a comma, `=3D` an equals sign, and no other `=` is allowed."""
    if not 0 < len(data) <= NAME_BYTES_MAX:
        raise ScramError(f"a user's name has 1 to {NAME_BYTES_MAX} bytes")
    if data.count(b"=") != data.count(b"=2C") + data.count(b"=3D"):
        raise ScramError("a user's name with an equals sign that is not =3D")
    try:
        return data.decode().replace("=2C", ",").replace("=3D", "=")
    except UnicodeDecodeError:
        raise ScramError("a user's name that is not UTF-8") from None


def _decoded(text: bytes) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ScramError("text that is not base64") from None
