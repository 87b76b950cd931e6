"""The section `[security]`: what a node demands of clients before it does what they ask."""

from pathlib import Path
from typing import ClassVar, Final

import attrs

from runtime.config.fields import bool_field, choice_field, parse_text, refuse

ACL: Final = "acl"
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


@attrs.frozen(kw_only=True)
class SecuritySection:
    SECTION: ClassVar = "security"
    insecure_listeners: bool = bool_field(
        False, "allow listeners that other machines reach and that prove nobody"
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
