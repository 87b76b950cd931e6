"""What the registry keeps for security: users' credentials, salted keys only.

It is part of an image from version 9 on, and written only if it is not empty, so that nodes of
before can read the images of a cluster without users.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from balancer.registry.packing import (
    STRING,
    U8,
    U32,
    Field,
    PackingError,
    Reader,
    fixed,
    mapping,
    record,
)
from wire.scram import SALT_BYTES_MAX, Credential, ScramMechanism

USERS_MAX: Final = 10_000
USER_CHARS_MAX: Final = 255
SECRET_BYTES: Final = 32
NO_SECRET: Final = bytes(SECRET_BYTES)

Credentials = Mapping[str, Mapping[int, Credential]]
"""User -> number of the mechanism (`ScramMechanism`) -> what is kept of the password."""


@attrs.frozen
class Security:
    credentials: Credentials = attrs.field(factory=dict, repr=False)
    secret: bytes = attrs.field(default=NO_SECRET, repr=False)
    """Random, once there has been a user: from it and a name that nobody has comes the salt that is
    shown for it, the same on every node and for ever (broker.security.users)."""

    @property
    def empty(self) -> bool:
        return not self.credentials and self.secret == NO_SECRET

    def problem(self) -> str:
        """Why no registry has this; "" if one may."""
        for user, kept in self.credentials.items():
            wrong = user_problem(user) or ("" if kept else "a user without credentials")
            for number, credential in kept.items():
                known = number in tuple(ScramMechanism)
                wrong = wrong or ("" if known else f"SCRAM mechanism {number}")
                wrong = wrong or credential.problem(ScramMechanism(number))
            if wrong:
                return wrong
        return ""


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


KEY: Final = _bytes_up_to(SALT_BYTES_MAX)
CREDENTIAL: Final = record(Credential, KEY, KEY, KEY, U32)
SECRET: Final = fixed(SECRET_BYTES)
CREDENTIALS: Final[Field[Credentials]] = mapping(
    STRING, mapping(U8, CREDENTIAL, len(ScramMechanism)), USERS_MAX
)
SECURITY: Final = record(Security, CREDENTIALS, SECRET)
"""In images of the registry."""
