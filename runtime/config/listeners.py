"""`[[listeners]]`, `[tls]` and `[security]`: where Kafka clients connect, and what protects that.

Closed by default: a listener that others than this machine reach, and that proves nobody, is
refused at the start unless `security.insecure_listeners` allows it. Whether files can be read, and
fit each other, is found out by `runtime.network.tls_context` when a node starts.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import attrs

from balancer.registry.security import LISTENERS_MAX
from broker.security.listeners import DEFAULT, ClientListener, SecurityProtocol
from broker.security.principal_mapping import PrincipalMapping
from runtime.config.fields import (
    Address,
    ConfigError,
    name_check,
    one_of,
    parse_address,
    parse_optional_address,
    parse_text,
    path_field,
    show,
)
from runtime.config.sections import ListenSection
from runtime.config.security import SecuritySection

PROTOCOLS: Final = {
    "plaintext": SecurityProtocol.PLAINTEXT,
    "ssl": SecurityProtocol.SSL,
    "sasl_plaintext": SecurityProtocol.SASL_PLAINTEXT,
    "sasl_ssl": SecurityProtocol.SASL_SSL,
}
CLIENT_CERTIFICATES: Final = ("none", "optional", "required")


def parse_rules(raw: object) -> tuple[str, ...]:
    """Kafka's notation, a rule after the other with commas between, or a TOML array of rules."""
    if isinstance(raw, list) and all(isinstance(one, str) for one in raw):
        return tuple(raw)
    if isinstance(raw, str):
        rules = raw.replace(",RULE:", "\nRULE:").replace(",DEFAULT", "\nDEFAULT").splitlines()
        return tuple(one.strip() for one in rules if one.strip())
    raise ValueError('expected rules: ["RULE:^CN=(.*?),.*$/$1/L", "DEFAULT"]')


def _check_rules(section: Any, _field: object, rules: tuple[str, ...]) -> None:  # noqa: ANN401
    try:
        PrincipalMapping(rules)
    except ValueError as error:
        raise ConfigError([f"{section.SECTION}.principal_mapping: {error}"]) from error


@attrs.frozen(kw_only=True)
class TlsSection:
    SECTION: ClassVar = "tls"
    certificate: Path | None = path_field("PEM file: this node's certificate, then its chain")  # noqa: RUF009 (frozen)
    key: Path | None = path_field("PEM file with its key, readable by the owner only")  # noqa: RUF009 (frozen)
    client_authorities: Path | None = path_field(  # noqa: RUF009 (frozen)
        "PEM file: the authorities whose certificates of clients are believed"
    )
    revoked: Path | None = path_field(  # noqa: RUF009 (frozen)
        "PEM file: lists of revoked certificates (CRL), one of each of those authorities"
    )
    principal_mapping: tuple[str, ...] = attrs.field(
        default=("DEFAULT",),
        converter=tuple,
        validator=_check_rules,
        metadata={
            "doc": "from a client's certificate to its name: Kafka's ssl.principal.mapping.rules",
            "parse": parse_rules,
        },
    )


@attrs.frozen(kw_only=True)
class ListenerSettings:
    """One `[[listeners]]`. (Not a section: there may be several.)"""

    SECTION: ClassVar = "listeners"
    name: str = attrs.field(
        validator=name_check(1),
        metadata={"doc": "clients are told the addresses of its name", "parse": parse_text},
    )
    bind: Address = attrs.field(
        validator=attrs.validators.instance_of(Address),
        metadata={"doc": "where it listens", "parse": parse_address},
    )
    protocol: str = attrs.field(
        validator=one_of(tuple(PROTOCOLS)),
        metadata={"doc": "what a connection has to be", "parse": parse_text},
    )
    advertised: Address | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.instance_of(Address)),
        metadata={
            "doc": "the address that clients get, if it is not bind",
            "parse": parse_optional_address,
        },
    )
    client_certificates: str = attrs.field(
        default="none",
        validator=one_of(CLIENT_CERTIFICATES),
        metadata={"doc": "whether clients show certificates", "parse": parse_text},
    )

    def __attrs_post_init__(self) -> None:
        where = f"[[listeners]] {self.name}"
        if self.bind.is_wildcard and self.advertised is None:
            raise ConfigError(
                [
                    f"{where}: clients cannot connect to {self.bind}; set advertised to an address "
                    "that clients can reach"
                ]
            )
        if self.advertised is not None and self.advertised.is_wildcard:
            raise ConfigError(
                [
                    f"{where}: clients cannot connect to advertised = {show(self.advertised)}; "
                    "set an address that they can reach"
                ]
            )
        if self.client_certificates != "none" and not self.security.tls:
            raise ConfigError(
                [
                    f'{where}: client_certificates = "{self.client_certificates}" needs '
                    f'protocol = "ssl" or "sasl_ssl", and not "{self.protocol}"'
                ]
            )

    @property
    def security(self) -> SecurityProtocol:
        return PROTOCOLS[self.protocol]

    @property
    def told_to_clients(self) -> Address:
        return self.bind if self.advertised is None else self.advertised

    @property
    def of_connections(self) -> ClientListener:
        return ClientListener(self.name, self.security)

    @property
    def proves_clients(self) -> bool:
        """Whether nobody can use it without having proved who he is."""
        return self.security.sasl or self.client_certificates == "required"

    @property
    def insecure(self) -> bool:
        """Whether other machines reach it, and it proves nobody."""
        return not self.bind.is_loopback and not self.proves_clients


def of_listen(listen: ListenSection) -> ListenerSettings:
    """The one listener that the short form, `listen.kafka`, stands for."""
    return ListenerSettings(
        name=DEFAULT.name,
        bind=listen.kafka,
        protocol="plaintext",
        advertised=listen.advertised_kafka,
    )


def problems(
    listen: ListenSection,
    listeners: Sequence[ListenerSettings],
    tls: TlsSection,
    security: SecuritySection,
) -> Iterator[str]:
    """What contradicts itself, and what would be open to everybody: a sentence each."""
    if listeners:
        yield from _of_table(listen, listeners)
    for one in listeners or (of_listen(listen),):
        where = f"[[listeners]] {one.name}" if listeners else f"listen.kafka = {show(one.bind)}"
        yield from _of_one(where, one, tls, security)
    if tls.revoked is not None and tls.client_authorities is None:
        yield (
            f"tls.revoked = {show(str(tls.revoked))}: nobody's certificates are believed without "
            "tls.client_authorities, so none can be revoked; set both, or none"
        )


def _of_table(listen: ListenSection, listeners: Sequence[ListenerSettings]) -> Iterator[str]:
    if len(listeners) > LISTENERS_MAX:
        yield f"[[listeners]]: {len(listeners)}, at most {LISTENERS_MAX}"
    short = attrs.fields(ListenSection).kafka.default
    if listen.kafka != short or listen.advertised_kafka is not None:
        yield (
            f"listen.kafka = {show(listen.kafka)}: it is the short form of one listener, "
            "and there are [[listeners]]; write it as one of them, with the name PLAINTEXT"
        )
    names = [one.name for one in listeners]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"[[listeners]] {name}: two have this name; give each its own"
    seen: dict[Address, str] = {listen.peer: "listen.peer", listen.http: "listen.http"}
    for one in listeners:
        other = seen.setdefault(one.bind, f"[[listeners]] {one.name}")
        if other != f"[[listeners]] {one.name}":
            yield f"[[listeners]] {one.name}: {other} uses the same address {one.bind}"


def _of_one(
    where: str, one: ListenerSettings, tls: TlsSection, security: SecuritySection
) -> Iterator[str]:
    if one.security.tls:
        for key in ("certificate", "key"):
            if getattr(tls, key) is None:
                wants = f'protocol = "{one.protocol}" needs tls.{key}'
                yield f"{where}: {wants}: the path of a PEM file"
        if one.client_certificates != "none" and tls.client_authorities is None:
            yield (
                f'{where}: client_certificates = "{one.client_certificates}" needs '
                "tls.client_authorities: whose certificates of clients are believed"
            )
    if one.insecure and not security.insecure_listeners:
        yield (
            f"{where}: everyone who reaches {one.bind} may do everything, for this listener proves "
            'nobody; use protocol = "ssl" with client_certificates = "required" in [[listeners]], '
            "or a loopback address, or set security.insecure_listeners = true if only those can "
            "reach it who may do everything"
        )


ALLOWED: Final = (
    "[security]",
    "# Whoever reaches the Kafka port may do everything: let only those reach it who may, or give",
    "# clients certificates (docs/security.md) and take this line out.",
    "insecure_listeners = true",
)
"""Lines of configurations that are written for clusters without security on several machines."""


def allowed_for(kafka: Address) -> tuple[str, ...]:
    """Those lines, where a plain listener at this address needs them."""
    return () if kafka.is_loopback else ALLOWED


def kafka_address(listeners: Sequence[ListenerSettings]) -> Address:
    """The address that the registry has as that of the node itself: that of its PLAINTEXT listener,
    or of its first one where it has none (only views tell it then)."""
    plain = next((one for one in listeners if one.name == DEFAULT.name), listeners[0])
    return plain.told_to_clients


def as_toml(listeners: Sequence[ListenerSettings]) -> list[str]:
    """Lines that read back to equal listeners."""
    lines: list[str] = []
    for one in listeners:
        lines.append("[[listeners]]")
        for field in attrs.fields(ListenerSettings):
            value = getattr(one, field.name)
            lines.append(f"{field.name} = {show(value)}")
        lines.append("")
    return lines


def take(raw: Mapping[str, object], source: str) -> ListenerSettings:
    """One table of the file.

    Raises:
        ConfigError: with what is wrong.
    """
    fields = {field.name: field for field in attrs.fields(ListenerSettings)}
    name = raw.get("name", "")
    problems: list[str] = []
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key not in fields:
            problems.append(f"unknown key {key}; known are {', '.join(sorted(fields))}")
            continue
        try:
            values[key] = fields[key].metadata["parse"](value)
        except ValueError as error:
            problems.append(f"{key} = {show(value)}: {error}")
    problems += [
        f"{field.name} is missing: set it ({field.metadata['doc']})"
        for field in fields.values()
        if field.default is attrs.NOTHING and field.name not in raw
    ]
    if problems:
        raise ConfigError([f"{source}: [[listeners]] {name}: {problem}" for problem in problems])
    try:
        return ListenerSettings(**values)
    except ConfigError as error:
        raise ConfigError([f"{source}: {problem}" for problem in error.problems]) from error
