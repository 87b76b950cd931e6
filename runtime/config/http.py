"""The section `[http]`: who may use the port for metrics, administration and the console.

Closed by default: other machines reach the port only if it asks who they are, and only with TLS
unless `security.insecure_listeners` allows passwords in the clear. Half of a configuration is
refused at the start.
"""

from collections.abc import Iterator
from typing import ClassVar, Final

import attrs

from runtime.config.fields import bool_field, choice_field, int_field, refuse, show
from runtime.config.listeners import TlsSection
from runtime.config.sections import ListenSection
from runtime.config.security import ACL, SecuritySection, parse_principals

USERS: Final = "users"
ROLE_SETTINGS: Final = ("readers", "operators", "administrators")
_NEEDS_USERS: Final = 'nobody is asked for a name; set http.authentication = "users", or '


def _principals(doc: str) -> str:
    field: str = attrs.field(
        default="",
        validator=attrs.validators.instance_of(str),
        metadata={"doc": doc, "parse": parse_principals},
    )
    return field


@attrs.frozen(kw_only=True)
class HttpSection:
    SECTION: ClassVar = "http"
    authentication: str = choice_field(
        "none", ("none", USERS), "users: names and passwords, as for SASL; none: nobody is asked"
    )
    tls: bool = bool_field(False, "HTTPS, with tls.certificate and tls.key")
    open_metrics: bool = bool_field(False, "GET /metrics without a login")
    session_s: int = int_field(
        8 * 3600, 60, 30 * 86_400, "how long a login to the console, or a token, lasts"
    )
    readers: str = _principals("who may look, without an authorizer: User:ann;User:bob")
    operators: str = _principals("who may also move masters and drain nodes, without an authorizer")
    administrators: str = _principals("who may do everything here, without an authorizer")

    @property
    def asks(self) -> bool:
        """Whether requests have to say who sends them."""
        return self.authentication == USERS

    def names(self, setting: str) -> frozenset[str]:
        """The principals of one of ROLE_SETTINGS."""
        return frozenset(one for one in getattr(self, setting).split(";") if one)

    def __attrs_post_init__(self) -> None:
        for setting in ROLE_SETTINGS:
            value = getattr(self, setting)
            for one in sorted(self.names(setting)):
                kind, _, name = one.partition(":")
                if kind != "User" or not name or name == "*":
                    why = f"{one!r} is not a user: expected 'User:' and a name"
                    refuse(self, setting, value, why)
            if value and not self.asks:
                refuse(self, setting, value, f"{_NEEDS_USERS}leave this out")
        if self.open_metrics and not self.asks:
            refuse(self, "open_metrics", True, f"{_NEEDS_USERS}leave this out: all is open")


def problems_of_http(
    listen: ListenSection, http: HttpSection, tls: TlsSection, security: SecuritySection
) -> Iterator[str]:
    """What contradicts itself, and what would be open to everybody: a sentence each."""
    where = f"listen.http = {show(listen.http)}"
    if not listen.http.is_loopback and not http.asks:
        yield (
            f"{where}: everyone who reaches this address could move masters and remove nodes; set "
            'http.authentication = "users" and http.tls = true, or use a loopback address'
        )
    elif open_http(listen, http) and not security.insecure_listeners:
        yield (
            f"{where}: passwords would cross the network in the clear; set http.tls = true, or use "
            "a loopback address, or set security.insecure_listeners = true if something else "
            "encrypts"
        )
    for key in ("certificate", "key"):
        if http.tls and getattr(tls, key) is None:
            yield f"http.tls = true: it needs tls.{key}: the path of a PEM file"
    if http.asks:
        yield from _of_roles(http, security)


def _of_roles(http: HttpSection, security: SecuritySection) -> Iterator[str]:
    if security.authorizer == ACL:
        for setting in ROLE_SETTINGS:
            value = getattr(http, setting)
            if value:
                yield (
                    f'http.{setting} = {show(value)}: security.authorizer = "acl" decides about '
                    "HTTP as well, by rules on the resource Cluster (docs/security.md); leave this "
                    "out"
                )
    elif not http.administrators:
        yield (
            'http.authentication = "users": nobody could administer; name who may in '
            'http.administrators, or set security.authorizer = "acl"'
        )


def open_http(listen: ListenSection, http: HttpSection) -> tuple[str, ...]:
    """The port of operators, if other machines reach it without TLS."""
    return () if listen.http.is_loopback or http.tls else ("listen.http",)
