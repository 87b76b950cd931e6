"""Names for clusters: `evenkeel context add prod --http ... --bootstrap ...`.

A context, or profile, is how to reach one cluster: the addresses of its nodes, or the directory of
a local one, how to log in there, and the cluster's id as it was when the context was made. Commands
compare that id before they do anything, so an address that another cluster has by now is not taken
for the old one. They are in one file of the user, `contexts.json`, without secrets: what is needed
to log in is in a file of its own (cli.clusters.logins). cli.clusters.target decides when a context
is meant.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from cluster.access import HttpsAddress
from runtime.config.fields import Address, parse_address
from wire.addresses import parse_addresses

VARIABLE: Final = "EVENKEEL_CONTEXT"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
FILE_BYTES_MAX: Final = 1024 * 1024


class ContextError(RuntimeError):
    """There is no such context, or it cannot be used for this; the message says what to do."""


@attrs.frozen(kw_only=True)
class Context:
    """`bootstrap`: `host:port,host:port`, as for Kafka clients; "" and () where not given."""

    name: str
    bootstrap: str = ""
    http: tuple[Address, ...] = ()
    data: Path | None = None
    cluster_id: str = ""
    command_config: Path | None = None
    """A properties file with the way to log in, kept for this context."""

    @property
    def told(self) -> str:
        """In words, for people: which cluster this is."""
        parts = [f"cluster {self.cluster_id}"] if self.cluster_id else []
        if self.data is not None:
            parts.append(str(self.data))
        parts += [self.bootstrap] if self.bootstrap else []
        parts += [f"http {','.join(map(str, self.http))}"] if self.http else []
        return f"context {self.name} ({'; '.join(parts)})"

    def to_json(self) -> dict[str, object]:
        return {
            "bootstrap": self.bootstrap,
            "http": [str(one) for one in self.http],
            "data": None if self.data is None else str(self.data),
            "cluster_id": self.cluster_id,
            "command_config": None if self.command_config is None else str(self.command_config),
        }


@attrs.frozen
class Contexts:
    known: Mapping[str, Context] = attrs.Factory(dict)
    current: str = ""

    def named(self, name: str) -> Context:
        """Raises:
        ContextError: if there is none of this name.
        """
        found = self.known.get(name)
        if found is None:
            names = ", ".join(sorted(self.known)) or "none"
            raise ContextError(
                f"there is no context '{name}' (there is {names}); add it with: "
                f"evenkeel context add {name if NAME.fullmatch(name) else 'NAME'} --bootstrap ..."
            )
        return found


def http_address(text: str) -> Address:
    """`host:port`, or `https://host:port`.

    Raises:
        ValueError: it is not an address.
    """
    if text.startswith("https://"):
        return HttpsAddress(*parse_address(text.removeprefix("https://").rstrip("/")))
    return parse_address(text.removeprefix("http://").rstrip("/"))


def http_addresses(text: str) -> tuple[Address, ...]:
    """`host:port,https://host:port`.

    Raises:
        ContextError: if one is not an address.
    """
    found = []
    for word in text.split(","):
        try:
            found.append(http_address(word.strip()))
        except ValueError as error:
            raise ContextError(f"--http {word.strip()}: {error}") from None
    return tuple(dict.fromkeys(found))


def checked_bootstrap(text: str) -> str:
    """Raises:
    ContextError: if it is not a list of addresses.
    """
    try:
        parse_addresses(text)
    except ValueError as error:
        raise ContextError(f"{error} (write host:port,host:port)") from None
    return text


def path(env: Mapping[str, str] = os.environ) -> Path:
    """XDG base directory specification.

    Raises:
        ContextError: if the user has no home.
    """
    if env.get("XDG_CONFIG_HOME"):
        return Path(env["XDG_CONFIG_HOME"]) / "evenkeel" / "contexts.json"
    if env.get("HOME"):
        return Path(env["HOME"]) / ".config" / "evenkeel" / "contexts.json"
    raise ContextError("contexts need a place: set HOME or XDG_CONFIG_HOME")


def read(env: Mapping[str, str] = os.environ) -> Contexts:
    """What is known; nothing where there is no file.

    Raises:
        ContextError: if the file is damaged.
    """
    if not env.get("XDG_CONFIG_HOME") and not env.get("HOME"):
        return Contexts()
    where = path(env)
    try:
        with where.open("rb") as file:
            value: Any = json.loads(file.read(FILE_BYTES_MAX))
        known = {name: _context(name, one) for name, one in value["contexts"].items()}
        return Contexts(known, str(value.get("current") or ""))
    except FileNotFoundError:
        return Contexts()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ContextError(
            f"{where} cannot be read ({error}); mend it, or delete it and add the contexts again"
        ) from error


def _context(name: str, value: Mapping[str, Any]) -> Context:
    data, config = value.get("data"), value.get("command_config")
    return Context(
        name=name,
        bootstrap=str(value.get("bootstrap") or ""),
        http=tuple(http_address(one) for one in value.get("http") or ()),
        data=None if data is None else Path(data),
        cluster_id=str(value.get("cluster_id") or ""),
        command_config=None if config is None else Path(config),
    )


def write(contexts: Contexts, env: Mapping[str, str] = os.environ) -> None:
    """Replace the file as a whole.

    Raises:
        ContextError: if it cannot be written.
    """
    where = path(env)
    value = {
        "current": contexts.current or None,
        "contexts": {name: one.to_json() for name, one in sorted(contexts.known.items())},
    }
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        draft = where.with_name(f"contexts.{os.getpid()}")
        draft.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
        draft.replace(where)
    except OSError as error:
        raise ContextError(f"{where} cannot be written: {error.strerror}") from error
