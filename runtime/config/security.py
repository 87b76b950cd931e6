"""The section `[security]`: what a node demands of clients before it does what they ask."""

from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

from broker.security.exchanges import EXTERNAL, OAUTHBEARER, PLAIN
from broker.security.users import MECHANISM_NAMES
from runtime.config.fields import (
    bool_field,
    choice_field,
    int_field,
    parse_optional_path,
    parse_text,
    refuse,
)

ACL: Final = "acl"
MECHANISMS: Final = (PLAIN, *MECHANISM_NAMES, OAUTHBEARER, EXTERNAL)
NOT_OFFERED: Final = {
    "GSSAPI": "Kerberos is not supported; use OAUTHBEARER, SCRAM or certificates",
}
_ONLY_ACL: Final = 'nothing is decided without rules; set security.authorizer = "acl"'


def parse_principals(raw: object) -> str:
    """Read principals from a TOML array or from text, where `;` separates them as in Kafka (the
    names of certificates have commas); returns text."""
    if isinstance(raw, list):
        if any(not isinstance(one, str) or ";" in one for one in raw):
            raise ValueError('expected principals: ["User:admin"]')
        raw = ";".join(raw)
    if isinstance(raw, str):
        return ";".join(one.strip() for one in raw.split(";") if one.strip())
    raise ValueError('expected principals: ["User:admin"], or "User:admin;User:other"')


def parse_mechanisms(raw: object) -> tuple[str, ...]:
    """Read names from a TOML array or from text with commas, as in Kafka."""
    if isinstance(raw, str):
        raw = [one.strip() for one in raw.split(",") if one.strip()]
    if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
        return tuple(raw)
    raise ValueError('expected names: ["SCRAM-SHA-512"]')


@attrs.frozen(kw_only=True)
class SecuritySection:
    SECTION: ClassVar = "security"
    insecure_listeners: bool = bool_field(
        False, "allow listeners that other machines reach and that prove nobody"
    )
    sasl_mechanisms: tuple[str, ...] = attrs.field(
        default=(),
        converter=tuple,
        metadata={
            "doc": "how clients of listeners with SASL prove who they are",
            "parse": parse_mechanisms,
        },
    )
    bootstrap_users_file: Path | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.instance_of(Path)),
        metadata={
            "doc": "first users, lines of `evenkeel user hash NAME`, until the registry has them",
            "parse": parse_optional_path,
        },
    )
    plain_without_tls: bool = bool_field(False, "allow PLAIN, which sends passwords, without TLS")
    reauth_s: int = int_field(
        0, 0, 365 * 86_400, "clients of SASL authenticate again after this time; 0: never"
    )
    authorizer: str = choice_field(
        "none", ("none", ACL), "acl: rules say what each client may do; none: everything"
    )
    super_users: str = attrs.field(
        default="",
        validator=attrs.validators.instance_of(str),
        metadata={
            "doc": "principals that may do everything: User:admin;User:other",
            "parse": parse_principals,
        },
    )
    audit_log: str = attrs.field(
        default="",
        validator=attrs.validators.instance_of(str),
        metadata={
            "doc": "file for what was denied, one JSON line each; empty: the node's log",
            "parse": parse_text,
        },
    )
    audit_grants: bool = bool_field(False, "the audit log also has what was allowed")

    @property
    def super_user_names(self) -> frozenset[str]:
        return frozenset(one for one in self.super_users.split(";") if one)

    @property
    def audit_path(self) -> Path | None:
        """None: the node's log."""
        return Path(self.audit_log) if self.audit_log else None

    def __attrs_post_init__(self) -> None:
        self._check_sasl()
        for one in sorted(self.super_user_names):
            kind, _, name = one.partition(":")
            if kind != "User" or not name:
                why = f"{one!r} is not a principal: expected 'User:' and a name"
                refuse(self, "super_users", self.super_users, why)
            if name == "*":
                why = 'everybody would be one; authorizer = "none" says so in plain words'
                refuse(self, "super_users", self.super_users, why)
        if self.authorizer == ACL:
            if not self.super_users:
                why = "nobody could ever add a rule; name who may in security.super_users"
                refuse(self, "authorizer", self.authorizer, why)
            if self.audit_log and not Path(self.audit_log).is_absolute():
                refuse(self, "audit_log", self.audit_log, "expected an absolute path")
            return
        if self.super_users:
            why = 'everybody may do everything; set security.authorizer = "acl", or leave this out'
            refuse(self, "super_users", self.super_users, why)
        if self.audit_log:
            refuse(self, "audit_log", self.audit_log, _ONLY_ACL)
        if self.audit_grants:
            refuse(self, "audit_grants", self.audit_grants, _ONLY_ACL)

    def _check_sasl(self) -> None:
        wanted: Any = list(self.sasl_mechanisms)
        for one in self.sasl_mechanisms:
            if one not in MECHANISMS:
                why = NOT_OFFERED.get(one, "there is no such mechanism")
                known = ", ".join(MECHANISMS)
                refuse(self, "sasl_mechanisms", wanted, f"{one}: {why}; known are {known}")
        if len(set(self.sasl_mechanisms)) < len(self.sasl_mechanisms):
            refuse(self, "sasl_mechanisms", wanted, "one is there twice")
