"""What the registry keeps for security: one frozen value, replaced as a whole by every change. In
images from version 9 on, and only if there is any. Of passwords it has salted keys only."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Final, NamedTuple

import attrs

from balancer.registry.packing import (
    I32,
    STRING,
    U8,
    U16,
    U32,
    Field,
    PackingError,
    Reader,
    fixed,
    mapping,
    record,
    sequence,
)
from balancer.registry.quotas import QUOTAS, Quotas
from balancer.registry.records import NODES_MAX, Address
from balancer.registry.rules import RULES, Rule, rule_problem
from paxos.ids import NodeId
from wire.scram import SALT_BYTES_MAX, Credential, ScramMechanism

LISTENERS_MAX: Final = 16
"""Of one node."""
LISTENER_NAME_CHARS_MAX: Final = 64
USERS_MAX: Final = 10_000
USER_CHARS_MAX: Final = 255
SECRET_BYTES: Final = 32
NO_SECRET: Final = bytes(SECRET_BYTES)


class ListenerAddress(NamedTuple):
    """Where clients that came by a listener of this name reach a node."""

    name: str
    protocol: int
    """Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""
    host: str
    port: int

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


Credentials = Mapping[str, Mapping[int, Credential]]
"""User -> number of the mechanism (`ScramMechanism`) -> what is kept of the password."""


@attrs.frozen
class Security:
    """Immutable: a change makes a new one. Mappings are ascending."""

    listeners: Mapping[NodeId, tuple[ListenerAddress, ...]] = attrs.field(factory=dict)
    """All listeners of a node, ascending by name. A node that is not here has one, PLAINTEXT, at
    its address for Kafka clients."""
    credentials: Credentials = attrs.field(factory=dict, repr=False)
    secret: bytes = attrs.field(default=NO_SECRET, repr=False)
    """Random, once there has been a user: from it and a name that nobody has comes the salt that is
    shown for it, the same on every node and for ever (broker.security.users)."""
    rules: tuple[Rule, ...] = ()
    """Sorted, each once."""
    quotas: Quotas = attrs.field(factory=dict)
    """Of clients (KIP-546); an empty mapping: nobody is throttled."""

    @property
    def is_empty(self) -> bool:
        """Whether it is that of a registry without any of this."""
        return self == NO_SECURITY


def user_problem(user: str) -> str:
    """Why nobody may have this name; "" if somebody may."""
    if not 0 < len(user.encode("utf-8", "replace")) <= USER_CHARS_MAX or not user.isprintable():
        return f"a user's name has 1 to {USER_CHARS_MAX} bytes of printable characters"
    return ""


def _bytes_up_to(most: int) -> Field[bytes]:
    def write(out: bytearray, value: bytes) -> None:
        if len(value) > most:
            raise PackingError(f"{len(value)} bytes: at most {most}")
        U8.write(out, len(value))
        out += value

    def read(reader: Reader) -> bytes:
        size: int = U8.read(reader)
        if size > most:
            raise PackingError(f"{size} bytes: at most {most}")
        return bytes(reader.take(size))

    return Field(write, read)


NO_SECURITY: Final = Security()
LISTENERS: Final[Field[tuple[ListenerAddress, ...]]] = sequence(
    record(ListenerAddress, STRING, U8, STRING, U16), LISTENERS_MAX
)
KEY: Final = _bytes_up_to(SALT_BYTES_MAX)
CREDENTIAL: Final = record(Credential, KEY, KEY, KEY, U32)
SECRET: Final = fixed(SECRET_BYTES)
CREDENTIALS: Final[Field[Credentials]] = mapping(
    STRING, mapping(U8, CREDENTIAL, len(ScramMechanism)), USERS_MAX
)
SECURITY: Final[Field[Security]] = record(
    Security, mapping(I32, LISTENERS, NODES_MAX), CREDENTIALS, SECRET, RULES, QUOTAS
)
"""In images of the registry."""


def check_security(security: Security) -> None:
    """
    Raises:
        PackingError: no registry holds this.
    """
    for problem in (_credentials_problem(security.credentials), _rules_problem(security.rules)):
        if problem:
            raise PackingError(problem)


def _credentials_problem(credentials: Credentials) -> str:
    for user, kept in credentials.items():
        wrong = user_problem(user) or ("" if kept else "a user without credentials")
        for number, credential in kept.items():
            known = number in tuple(ScramMechanism)
            wrong = wrong or ("" if known else f"SCRAM mechanism {number}")
            wrong = wrong or credential.problem(ScramMechanism(number))
        if wrong:
            return wrong
    return ""


def _rules_problem(rules: tuple[Rule, ...]) -> str:
    if any(before >= after for before, after in pairwise(rules)):
        return "rules are there twice or out of order"
    return next(filter(None, map(rule_problem, rules)), "")
