"""Changing users' credentials (KIP-554), all of a request or none."""

from collections.abc import Mapping
from typing import Final

import attrs

from balancer.registry.packing import STRING, U8, optional, record, sequence
from balancer.registry.security import (
    CREDENTIAL,
    NO_SECRET,
    SECRET,
    USERS_MAX,
    Security,
    user_problem,
)
from wire.scram import Credential, ScramMechanism

CHANGES_MAX: Final = 2_000
"""In one command."""


@attrs.frozen
class CredentialChange:
    user: str
    mechanism: int
    credential: Credential | None
    """None: the user loses it."""


@attrs.frozen
class AlterCredentials:
    """`secret` is random, and kept if the registry has none (`Security.secret`)."""

    changes: tuple[CredentialChange, ...]
    secret: bytes = attrs.field(repr=False)


@attrs.frozen
class Problem:
    missing: bool
    """Something is to be deleted that is not there."""
    text: str


def apply(security: Security, command: AlterCredentials) -> Security | Problem:
    """The registry's security after this command, or why it changes nothing."""
    users: dict[str, Mapping[int, Credential]] = dict(security.credentials)
    for change in command.changes:
        wrong = _problem(change)
        if wrong:
            return Problem(False, wrong)
        kept = dict(users.get(change.user, {}))
        if change.credential is not None:
            kept[change.mechanism] = change.credential
        elif kept.pop(change.mechanism, None) is None:
            return Problem(True, "there is no such credential to delete")
        if kept:
            users[change.user] = dict(sorted(kept.items()))
        else:
            users.pop(change.user)
    if len(users) > USERS_MAX:
        return Problem(False, f"at most {USERS_MAX} users")
    secret = command.secret if security.secret == NO_SECRET else security.secret
    if secret == NO_SECRET:
        return Problem(False, "the secret of a cluster is random")
    return attrs.evolve(security, credentials=dict(sorted(users.items())), secret=secret)


def _problem(change: CredentialChange) -> str:
    if change.mechanism not in tuple(ScramMechanism):
        return f"SCRAM mechanism {change.mechanism} is not known"
    if change.credential is None:
        return ""
    mechanism = ScramMechanism(change.mechanism)
    return user_problem(change.user) or change.credential.problem(mechanism)


CHANGE: Final = record(CredentialChange, STRING, U8, optional(CREDENTIAL))
ALTER_CREDENTIALS: Final = record(AlterCredentials, sequence(CHANGE, CHANGES_MAX), SECRET)
