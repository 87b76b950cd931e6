"""`evenkeel quota`: how much clients may do a second (KIP-546; docs/security.md, "Quotas")."""

import argparse
import re
from collections.abc import Mapping
from typing import Any, Final

from cli.clusters.kafka_commands import (
    Action,
    ClientError,
    add_action,
    open_admin,
    print_json,
    table,
)
from evenkeel.admin.quotas import ClientQuota

Entity = Mapping[str, str | None]

KINDS: Final[Mapping[str, str]] = {
    "produce": "producer_byte_rate",
    "consume": "consumer_byte_rate",
    "request": "request_percentage",
    "partitions": "controller_mutation_rate",
    "connections": "connection_creation_rate",
}
"""Our word for each of Kafka's quotas, which are understood as well."""
NAMES: Final = {kafka: word for word, kafka in KINDS.items()}
BYTES: Final = frozenset({"producer_byte_rate", "consumer_byte_rate"})
UNITS: Final = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
}
RATE_MAX: Final = 10**15
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*(%|/s)?")
EXAMPLES: Final = "produce=10MB/s, consume=5MiB/s, request=50%, partitions=10/s, connections=20/s"
_SHOWN: Final = (
    ("GB", 10**9, 10**8),
    ("GiB", 2**30, 2**30),
    ("MB", 10**6, 10**5),
    ("MiB", 2**20, 2**20),
    ("kB", 10**3, 10**2),
    ("KiB", 2**10, 2**10),
)
"""Units, and in which steps a rate is shown in them; the first that is exact is taken."""
_ENTITIES: Final = (("user", "user"), ("client", "client-id"), ("ip", "ip"))


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(
        name: str, work: Action, text: str, *, changes: bool = False
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, work, text, changes=changes)
        _entity_options(sub)
        return sub

    action("list", _list, "list the quotas")
    sub = action("set", _set, "limit what clients may do", changes=True)
    sub.add_argument(
        "limits", metavar="KIND=RATE", nargs="+", type=_limit, help=EXAMPLES.replace("%", "%%")
    )
    sub = action("delete", _delete, "take quotas back: these kinds, or all", changes=True)
    kinds = ", ".join(KINDS)
    sub.add_argument("kinds", metavar="KIND", nargs="*", type=_kind, help=kinds)


def _entity_options(parser: argparse.ArgumentParser) -> None:
    user = parser.add_mutually_exclusive_group()
    user.add_argument("--user", metavar="NAME", help="of this user")
    user.add_argument("--any-user", action="store_true", help="of each user without its own")
    client = parser.add_mutually_exclusive_group()
    client.add_argument("--client", metavar="ID", help="of clients with this client.id")
    client.add_argument("--any-client", action="store_true", help="of each client.id")
    ip = parser.add_mutually_exclusive_group()
    ip.add_argument("--ip", metavar="IP", help="of this address")
    ip.add_argument("--any-ip", action="store_true", help="of each address")


def _kind(word: str) -> str:
    """Kafka's name."""
    name = KINDS.get(word, word)
    if name not in NAMES:
        known = ", ".join((*KINDS, *NAMES))
        raise argparse.ArgumentTypeError(f"no quota '{word}'; known are {known}")
    return name


def _limit(text: str) -> tuple[str, float]:
    """`produce=10MB/s`: MB is a million bytes, MiB is 2^20; without a unit they are bytes."""
    word, equals, rate = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"'{text}': write KIND=RATE, as {EXAMPLES}")
    name = _kind(word)
    match = _RATE.fullmatch(rate.strip())
    units = UNITS if name in BYTES else {"": 1}
    percent = name == "request_percentage"
    if match is None or match[2].lower() not in units or (match[3] == "%") > percent:
        raise argparse.ArgumentTypeError(f"'{text}': write a rate, as {EXAMPLES}")
    value = float(match[1]) * units[match[2].lower()]
    if not 0 < value <= RATE_MAX:
        raise argparse.ArgumentTypeError(f"'{text}': more than 0, and up to {RATE_MAX:g}")
    if name in BYTES and value < 1:
        raise argparse.ArgumentTypeError(f"'{text}': at least a byte a second")
    return name, value


def _entity(options: Any) -> Entity:  # noqa: ANN401 (argparse's)
    """By Kafka's types; None: each that has no quota of its own."""
    found: dict[str, str | None] = {}
    for word, kind in _ENTITIES:
        name = getattr(options, word)
        if getattr(options, f"any_{word}"):
            found[kind] = None
        elif name is not None:
            found[kind] = name
    if "ip" in found and len(found) > 1:
        raise ClientError("an address has quotas of its own, whoever the user or client is")
    return found


def _needed(options: Any) -> Entity:  # noqa: ANN401 (argparse's)
    entity = _entity(options)
    if not entity:
        raise ClientError("say whose: --user, --client, --ip, --any-user, --any-client or --any-ip")
    return entity


async def _set(options: Any) -> int:  # noqa: ANN401 (argparse's)
    entity = _needed(options)
    limits = dict(options.limits)
    if len(limits) < len(options.limits):
        raise ClientError("the same quota twice")
    _fits(entity, limits)
    async with open_admin(options) as admin:
        await admin.alter_quotas(entity, limits)
        quotas = [one for one in await admin.quotas() if one.entity == entity]
    _print(options, quotas or [ClientQuota(entity, limits)])
    return 0


def _fits(entity: Entity, limits: Mapping[str, float]) -> None:
    """A node refuses these too; here it is said in our words."""
    for name in limits:
        if (name == "connection_creation_rate") != ("ip" in entity):
            raise ClientError(
                "connections are limited for --ip and --any-ip, everything else for users and "
                f"clients: not {NAMES[name]} here"
            )


async def _delete(options: Any) -> int:  # noqa: ANN401 (argparse's)
    entity = _needed(options)
    async with open_admin(options) as admin:
        there = {
            name: value
            for one in await admin.quotas()
            if one.entity == entity
            for name, value in one.values.items()
            if not options.kinds or name in options.kinds
        }
        missing = [NAMES[one] for one in options.kinds if one not in there]
        if missing or not there:
            what = ", ".join(missing) or "none at all"
            raise ClientError(f"{_who(entity)} has no such quota: {what}")
        await admin.alter_quotas(entity, dict.fromkeys(there))
    if options.json:
        print_json([_json(ClientQuota(entity, there))])
    else:
        print(f"{_who(entity)}: no quota of {', '.join(map(_word, there))} any more")
    return 0


async def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    wanted = _entity(options)
    async with open_admin(options) as admin:
        quotas = await admin.quotas()
    _print(options, [one for one in quotas if wanted.items() <= one.entity.items()])
    return 0


def _print(options: Any, quotas: list[ClientQuota]) -> None:  # noqa: ANN401 (argparse's)
    if options.json:
        print_json([_json(one) for one in quotas])
        return
    rows = sorted(
        (_who(one.entity), _word(name), said(name, value))
        for one in quotas
        for name, value in one.values.items()
    )
    print(table(("of", "quota", "limit"), rows) if rows else "no quotas")


def _who(entity: Entity) -> str:
    parts = []
    for word, kind in _ENTITIES:
        if kind in entity:
            name = entity[kind]
            parts.append(f"any {word}" if name is None else f"{word} {name}")
    return ", ".join(parts)


def _word(name: str) -> str:
    return NAMES.get(name, name)


def said(name: str, value: float) -> str:
    """As it can be typed again: the largest unit that is exact."""
    if name == "request_percentage":
        return f"{value:g} %"
    if name not in BYTES:
        return f"{value:g}/s"
    for unit, size, step in _SHOWN:
        if value >= size and value % step == 0:
            return f"{value / size:g} {unit}/s"
    return f"{value:.15g} B/s"


def _json(quota: ClientQuota) -> dict[str, object]:
    """With Kafka's names, and a null for what holds for each."""
    return {"entity": dict(quota.entity), "limits": dict(quota.values)}
