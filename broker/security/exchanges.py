"""The exchanges of the mechanisms: a message of the client in, the next step out.

EXTERNAL (RFC 4422, appendix A) asks for nothing: TLS has proved the client's certificate already.
PLAIN (RFC 4616) hands us the password, and we pay for the iterations: the step is `Work`, for a
thread. SCRAM (RFC 5802) is two cheap steps. What is wrong with a name and what with a password
looks the same from outside: the same steps, the same number of HMACs, the same words.
"""

import hmac
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import attrs

from broker.security.principal import Principal
from broker.security.users import Proof, Users
from wire.scram import (
    Credential,
    ScramError,
    ScramMechanism,
    ServerExchange,
    credential_of,
    parse_client_first,
    salted_password,
)

PLAIN: Final = "PLAIN"
OAUTHBEARER: Final = "OAUTHBEARER"
EXTERNAL: Final = "EXTERNAL"
PLAIN_BYTES_MAX: Final = 2_048
"""A name and a password."""


@attrs.frozen
class Challenge:
    """The exchange goes on after this answer."""

    data: bytes
    failure: str = ""
    """Why the client will be denied, whatever it says next; "" if it may still succeed."""


@attrs.frozen
class Proved:
    principal: Principal
    data: bytes = b""
    proof: Proof | None = None
    """None: nothing in the registry that could change (a token)."""
    expires_wall_ns: int | None = None


@attrs.frozen
class Denied:
    """`text` is for the client: no secrets, and nothing that tells who exists."""

    text: str


@attrs.frozen
class Work:
    """Too long for the loop: `run` it in a thread; what it returns is the step."""

    run: Callable[[], "Proved | Denied | Challenge"]


Step: TypeAlias = Challenge | Proved | Denied | Work


class Exchange(Protocol):
    def step(self, message: bytes) -> Step:
        """Never raises, whatever the bytes."""
        ...


class PlainExchange:
    def __init__(self, users: Users) -> None:
        self._users = users

    def step(self, message: bytes) -> Step:
        parts = message.split(b"\0") if len(message) <= PLAIN_BYTES_MAX else []
        if len(parts) != 3:
            return Denied("Invalid SASL/PLAIN response: expected 3 tokens")
        try:
            authzid, user, password = (part.decode() for part in parts)
        except UnicodeDecodeError:
            return Denied("Invalid SASL/PLAIN response: not UTF-8")
        if not user or not password:
            return Denied("Authentication failed: username or password not specified")
        if authzid and authzid != user:
            return Denied(
                "Authentication failed: Client requested an authorization id that is different "
                "from username"
            )
        # Found on the loop: the thread must not read what the loop changes.
        found = [(one, *self._users.find_or_stand_in(user, one)) for one in ScramMechanism]
        return Work(lambda: _check_plain(user, password, found))


def _check_plain(
    user: str,
    password: str,
    found: list[tuple[ScramMechanism, Credential | None, Credential]],
) -> Proved | Denied:
    """Every mechanism is computed for everybody, so that it cannot be measured who has which."""
    proof = None
    for mechanism, known, credential in found:
        salted = salted_password(mechanism, password, credential.salt, credential.iterations)
        made = credential_of(mechanism, salted, credential.salt, credential.iterations)
        same = hmac.compare_digest(made.stored_key, credential.stored_key)
        if same and known is not None:
            proof = Proof(user, mechanism, known)
    if proof is None:
        return Denied("Authentication failed: Invalid username or password")
    return Proved(Principal("User", user), proof=proof)


class ExternalExchange:
    """The principal is that of the certificate, by the rules of `tls.principal_mapping`."""

    def __init__(self, certified: Principal) -> None:
        self._certified = certified

    def step(self, message: bytes) -> Step:
        if message and message != self._certified.name.encode():
            return Denied(
                "Authentication failed: Client requested an authorization id that is different "
                "from the name of its certificate"
            )
        return Proved(self._certified)


class ScramExchange:
    def __init__(self, users: Users, mechanism: ScramMechanism, nonce: bytes) -> None:
        self._users, self._mechanism, self._nonce = users, mechanism, nonce
        self._known: Credential | None = None
        self._exchange: ServerExchange | None = None
        self._over = False

    def step(self, message: bytes) -> Step:
        if self._over:
            return Denied("the exchange is over")
        try:
            if self._exchange is None:
                return self._begin(message)
            self._over = True
            return self._finish(self._exchange, message)
        except ScramError as error:
            self._over = True
            return Denied(f"Invalid {self._mechanism.sasl_name} message: {error}")

    def _begin(self, message: bytes) -> Step:
        first = parse_client_first(message)
        if b"tokenauth=true" in first.extensions:
            self._over = True
            return Denied("delegation tokens are not supported")
        found, credential = self._users.find_or_stand_in(first.username, self._mechanism)
        self._known = found
        begun = ServerExchange.begin(self._mechanism, first, credential, self._nonce)
        self._exchange = begun
        return Challenge(begun.challenge)

    def _finish(self, exchange: ServerExchange, message: bytes) -> Step:
        right, signature = exchange.finish(message)
        if not right or self._known is None:
            return Denied(
                "Authentication failed during authentication due to invalid credentials with SASL "
                f"mechanism {self._mechanism.sasl_name}"
            )
        user = exchange.first.username
        proof = Proof(user, self._mechanism, self._known)
        return Proved(Principal("User", user), signature, proof)
