"""The kinds of settings in a node's configuration: each has a parser, a range and its meaning.

A field refuses a wrong value from every source, a file or a test; the message says what is wrong
and what was expected. `runtime.config.sections` has the settings, `runtime.config.config` the
relations between sections.
"""

import ipaddress
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import attrs

NAME_LENGTH_MAX: Final = 64
"""The limit for names of clusters and zones; the registry has the same."""

Check: TypeAlias = Callable[[Any, "attrs.Attribute[Any]", Any], None]
"""An attrs validator. `Any`: it gets the unfinished section, and a value of unchecked type."""


class ConfigError(ValueError):
    """The configuration is wrong: `problems` are complete sentences for the operator."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems: tuple[str, ...] = tuple(problems)


class Address(NamedTuple):
    """A host and a TCP port, written `host:port`, or `[host]:port` for an IPv6 host."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_wildcard(self) -> bool:
        """Whether this means every interface: nobody can connect *to* such an address."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False


def parse_int(raw: object) -> int:
    if isinstance(raw, int) and not isinstance(raw, bool):
        return raw
    if isinstance(raw, str):
        try:
            return int(raw, 10)
        except ValueError:
            pass
    raise ValueError("expected a whole number")


def parse_bool(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if isinstance(raw, str) and raw.lower() in ("true", "false"):
        return raw.lower() == "true"
    raise ValueError("expected true or false")


def parse_text(raw: object) -> str:
    if isinstance(raw, str):
        return raw
    raise ValueError("expected a string")


def parse_node_list(raw: object) -> str:
    """Read node ids from comma-separated text or a TOML array; returns text."""
    if isinstance(raw, list):
        raw = ",".join(map(str, raw))
    if isinstance(raw, str):
        return raw.replace(" ", "")
    raise ValueError('expected node ids: "1,2,3"')


def parse_path(raw: object) -> Path:
    if isinstance(raw, str) and raw:
        try:
            return Path(raw).expanduser()
        except RuntimeError as error:  # "~stranger"
            raise ValueError(f"the home directory is not known: {error}") from error
    raise ValueError("expected the path of a directory")


def parse_address(raw: object) -> Address:
    """Read `host:port`; the port is never 0, because clients and peers must know it.

    Raises:
        ValueError: it is not an address.
    """
    if isinstance(raw, str):
        host, colon, port = raw.rpartition(":")
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            colon = ""
        if "[" in host or "]" in host or not _is_host(host):
            colon = ""
        if colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 65536:
            return Address(host, int(port))
    raise ValueError("expected host:port (an IPv6 host in brackets) with a port of 1 to 65535")


def _is_host(host: str) -> bool:
    """Whether the resolver accepts this name: for some (`a..b`, a label of 64 letters) it raises
    UnicodeError instead of saying that there is no such host."""
    if not host.isprintable() or " " in host:
        return False
    try:
        return bool(host.encode("idna"))
    except UnicodeError:
        return False


def parse_optional_address(raw: object) -> Address | None:
    return None if raw == "" else parse_address(raw)


def parse_optional_path(raw: object) -> Path | None:
    if raw == "":
        return None
    if isinstance(raw, str) and "\0" not in raw:
        try:
            return Path(raw).expanduser()
        except RuntimeError as error:  # "~stranger"
            raise ValueError(f"the home directory is not known: {error}") from error
    raise ValueError("expected the path of a file")


def in_range(low: int, high: int) -> Check:
    def check(section: Any, field: "attrs.Attribute[Any]", value: Any) -> None:  # noqa: ANN401
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            refuse(section, field.name, value, f"expected {low} to {high}: {doc_of(field)}")

    return check


def one_of(known: tuple[str, ...]) -> Check:
    def check(section: Any, field: "attrs.Attribute[Any]", value: str) -> None:  # noqa: ANN401
        if value not in known:
            names = " or ".join(f'"{name}"' for name in known)
            refuse(section, field.name, value, f"expected {names}: {doc_of(field)}")

    return check


def name_check(length_min: int) -> Check:
    def check(section: Any, field: "attrs.Attribute[Any]", value: str) -> None:  # noqa: ANN401
        plain = all(char.isascii() and (char.isalnum() or char in "._-") for char in value)
        if not plain or not length_min <= len(value) <= NAME_LENGTH_MAX:
            wanted = f"{length_min} to {NAME_LENGTH_MAX} letters, digits, '.', '_' or '-'"
            refuse(section, field.name, value, f"expected {wanted}: {doc_of(field)}")

    return check


def doc_of(field: "attrs.Attribute[Any]") -> str:
    return str(field.metadata["doc"])


def refuse(section: Any, key: str, value: object, why: str) -> None:  # noqa: ANN401
    raise ConfigError([f"{section.SECTION}.{key} = {show(value)}: {why}"])


def int_field(default: int, low: int, high: int, doc: str) -> int:
    """A whole number from `low` to `high`. (The return type is that of the attribute, as for
    attrs.field.)"""
    meta = {"doc": doc, "parse": parse_int}
    field: int = attrs.field(default=default, validator=in_range(low, high), metadata=meta)
    return field


def bool_field(default: bool, doc: str) -> bool:
    meta = {"doc": doc, "parse": parse_bool}
    field: bool = attrs.field(
        default=default, validator=attrs.validators.instance_of(bool), metadata=meta
    )
    return field


def choice_field(default: str, known: tuple[str, ...], doc: str) -> str:
    meta = {"doc": doc, "parse": parse_text}
    field: str = attrs.field(default=default, validator=one_of(known), metadata=meta)
    return field


def address_field(default: str, doc: str) -> Address:
    meta = {"doc": doc, "parse": parse_address}
    field: Address = attrs.field(
        default=parse_address(default),
        validator=attrs.validators.instance_of(Address),
        metadata=meta,
    )
    return field


def path_field(doc: str) -> Path | None:
    """A file that need not be there."""
    field: Path | None = attrs.field(
        default=None,
        validator=attrs.validators.optional(attrs.validators.instance_of(Path)),
        metadata={"doc": doc, "parse": parse_optional_path},
    )
    return field


def show(value: object) -> str:
    """The value in TOML syntax."""
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = "" if value is None else str(value)
    except ValueError:  # a number of more digits than Python prints, perhaps in a list
        return f"a {type(value).__name__} that is too long to show"
    if isinstance(value, int):
        return text
    if isinstance(value, tuple) and not isinstance(value, Address):
        return f"[{', '.join(map(show, value))}]"
    escaped = "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\U{ord(char):08x}"
        for char in text
    )
    return f'"{escaped}"'
