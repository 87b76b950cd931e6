"""Who may log in with a password: the registry's users, and those of a file for the first hour.

The file (`security.bootstrap_users_file`) is how the first administrator gets in. A user that is in
the registry is looked up there alone: whoever changes the password of such a user need not find all
copies of a file. (Whoever deletes it has to: broker.handlers.security.credentials refuses that.)

A name that nobody has gets a stand-in: a credential that is the same on every node and for ever,
made from the cluster's secret and the name, that no password fits. So an unknown user costs the
same steps as a wrong password, and sees the same messages. Its iterations and the length of its
salt are those of some user: which, the name decides, and a name keeps them for as long as the
users' own are distributed as they are.
"""

import hmac
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from balancer.registry.security import NO_SECRET, Credentials, Security, user_problem
from wire.scram import (
    ITERATIONS_MIN,
    Credential,
    ScramError,
    ScramMechanism,
    credential_text,
    hashed,
    parse_credential,
)

USUAL_SHAPE: Final = (ITERATIONS_MIN, 16)
"""Iterations and bytes of salt of a stand-in while there are no users: Kafka's and our default."""
FILE_BYTES_MAX: Final = 1024 * 1024
MECHANISM_NAMES: Final[Mapping[str, ScramMechanism]] = {
    one.sasl_name: one for one in ScramMechanism
}


@attrs.frozen
class Proof:
    """By which credential a user has logged in; it holds only as long as the user has it."""

    user: str
    mechanism: ScramMechanism
    credential: Credential


class Users:
    def __init__(self, security: Callable[[], Security], of_file: Credentials) -> None:
        self._security, self.of_file = security, of_file
        ordered = [
            credential_text(credential)
            for _, kept in sorted(of_file.items())
            for _, credential in sorted(kept.items())
        ]
        self._secret_of_file = hashed(ScramMechanism.SHA_256, "\n".join(ordered).encode())
        """For as long as the registry has none: nodes should have the same file."""
        self._shapes: dict[ScramMechanism, list[tuple[int, int]]] = {}
        self._shapes_of: Credentials | None = None

    @property
    def empty(self) -> bool:
        return not self.of_file and not self._security().credentials

    def find(self, user: str, mechanism: ScramMechanism) -> Credential | None:
        registered = self._security().credentials.get(user)
        kept = self.of_file.get(user) if registered is None else registered
        return None if kept is None else kept.get(mechanism)

    def holds(self, proof: Proof) -> bool:
        """Whether the user still has that very credential."""
        return self.find(proof.user, proof.mechanism) == proof.credential

    def find_or_stand_in(
        self, user: str, mechanism: ScramMechanism
    ) -> tuple[Credential | None, Credential]:
        """The user's credential, and what to go on with: the same, or a stand-in. The stand-in is
        made in both cases, so that they take the same time."""
        found, stand_in = self.find(user, mechanism), self._stand_in(user, mechanism)
        return found, stand_in if found is None else found

    def _stand_in(self, user: str, mechanism: ScramMechanism) -> Credential:
        security = self._security()
        secret = self._secret_of_file if security.secret == NO_SECRET else security.secret
        name = b"%d " % mechanism + user.encode("utf-8", "surrogatepass")
        salt = hmac.digest(secret, b"salt " + name, "sha512")
        salt += hmac.digest(secret, b"more " + name, "sha512")
        key = hmac.digest(secret, b"key " + name, mechanism.hash_name)
        shapes = self._shapes_now(security.credentials)[mechanism]
        # Between 0 and 1, by the name: another user moves few names to another shape.
        place = int.from_bytes(hmac.digest(secret, b"shape " + name, "sha256")[:8], "big")
        iterations, salt_bytes = shapes[place * len(shapes) >> 64]
        return Credential(salt[:salt_bytes], key, key, iterations)

    def _shapes_now(self, registered: Credentials) -> dict[ScramMechanism, list[tuple[int, int]]]:
        """Of each mechanism the iterations and the length of the salt of every user, ascending."""
        if self._shapes_of is not registered:
            self._shapes_of = registered
            users = {**self.of_file, **registered}
            for mechanism in ScramMechanism:
                found = [
                    (kept[mechanism].iterations, len(kept[mechanism].salt))
                    for kept in users.values()
                    if mechanism in kept
                ]
                self._shapes[mechanism] = sorted(found) or [USUAL_SHAPE]
        return self._shapes


def parse_users(text: str) -> Credentials:
    """A file of users: lines `NAME MECHANISM salt=...,stored_key=...,server_key=...,iterations=...`
    as `evenkeel user hash` writes them; empty lines and lines that begin with # are skipped.

    Raises:
        ValueError: with the number of a line that is none of these.
    """
    users: dict[str, dict[int, Credential]] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = line.split()
        mechanism = MECHANISM_NAMES.get(parts[1]) if len(parts) == 3 else None
        if mechanism is None:
            known = " or ".join(MECHANISM_NAMES)
            raise ValueError(f"line {number}: expected NAME, {known}, and a salted credential")
        if user_problem(parts[0]):
            raise ValueError(f"line {number}: {user_problem(parts[0])}")
        kept = users.setdefault(parts[0], {})
        if mechanism in kept:
            raise ValueError(f"line {number}: the second credential of one user and mechanism")
        try:
            kept[mechanism] = parse_credential(mechanism, parts[2])
        except ScramError as error:
            raise ValueError(f"line {number}: {error}") from None
    return dict(sorted(users.items()))


def user_line(user: str, mechanism: ScramMechanism, credential: Credential) -> str:
    """A line that `parse_users` reads."""
    return f"{user} {mechanism.sasl_name} {credential_text(credential)}"
