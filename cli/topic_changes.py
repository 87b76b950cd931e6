"""`evenkeel topic settings`, `partitions`, `trim`, `elect`, `reassign`. Any Kafka cluster."""

import argparse
from collections.abc import Callable, Mapping
from typing import Any, Final

from cli.clusters.kafka_commands import (
    FAILED,
    ClientError,
    existing_topic,
    open_admin,
    pairs,
    print_json,
    table,
)
from cli.clusters.target import whole
from cli.where import time_ms
from evenkeel import Admin, TopicDescription, TopicPartition
from evenkeel.lookups import BEGINNING, END
from wire.error_codes import ErrorCode

Action = Callable[..., argparse.ArgumentParser]
BEFORE: Final = "end (all records), an offset, -N (--before=-N keeps N), a time, or @MS"


def add_commands(action: Action) -> None:
    """`action` is that of cli.topic: it adds one command with the usual options."""
    text = "show a topic's settings, or change them"
    settings = action("settings", _settings, text)
    settings.add_argument("changes_", nargs="*", metavar="NAME=VALUE", help="new values")
    text = "back to the cluster's default"
    settings.add_argument("--reset", action="append", default=[], metavar="NAME", help=text)
    _dry_run(settings)
    partitions = action("partitions", _partitions, "give a topic more partitions", changes=True)
    partitions.add_argument("total", type=whole, metavar="N", help="how many it is to have")
    _dry_run(partitions)
    trim = action("trim", _trim, "delete a topic's oldest records", changes=True)
    trim.add_argument("--before", required=True, metavar="WHERE", help=BEFORE)
    _partition(trim)
    _dry_run(trim)
    text = "give partitions their preferred leaders"
    _partition(action("elect", _elect, text, changes=True))
    reassign = action("reassign", _reassign, "move partitions to other nodes, or show such moves")
    goal = reassign.add_mutually_exclusive_group()
    goal.add_argument(
        "--to", type=_nodes, metavar="N,N,N", help="the nodes, preferred leader first"
    )
    goal.add_argument("--cancel", action="store_true", help="stay where they are")
    _partition(reassign)
    _dry_run(reassign)


def _dry_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would change")


def _partition(parser: argparse.ArgumentParser) -> None:
    text = "only these (default: all)"
    parser.add_argument(
        "--partition", type=whole, action="append", default=[], metavar="P", help=text
    )


def _nodes(text: str) -> list[int]:
    nodes = [whole(word) for word in text.split(",")]
    if len(set(nodes)) != len(nodes):
        raise argparse.ArgumentTypeError(f"'{text}' names a node twice")
    return nodes


def _places(topic: TopicDescription, wanted: list[int]) -> list[TopicPartition]:
    known = [one.partition for one in topic.partitions]
    for one in wanted:
        if one not in known:
            raise ClientError(f"topic {topic.name} has no partition {one}")
    return [TopicPartition(topic.name, one) for one in known if not wanted or one in wanted]


def _tell(options: Any, text: str, value: Mapping[str, object]) -> int:  # noqa: ANN401 (argparse's)
    if options.json:
        print_json(value)
    else:
        print(text)
    return 0


async def _settings(options: Any) -> int:  # noqa: ANN401 (argparse's)
    change = pairs(options.changes_, "setting")
    options.changes = bool(change or options.reset)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        before = await admin.topic_settings(topic.name)
        if not options.changes:
            return _show_settings(options, before)
        await admin.alter_topic_settings(
            topic.name, change, reset=options.reset, dry_run=options.dry_run
        )
        after = await admin.topic_settings(topic.name)
    names = [*change, *options.reset]
    value = {
        name: {
            "before": _value(before, name),
            "now": change.get(name) if options.dry_run else _value(after, name),
        }
        for name in dict.fromkeys(names)
    }
    rows = [(name, one["before"], one["now"]) for name, one in value.items()]
    heads = ("setting", "before", "would be" if options.dry_run else "now")
    return _tell(options, table(heads, rows), {"changed": not options.dry_run, "settings": value})


def _value(settings: Mapping[str, Any], name: str) -> str | None:
    """As in Kafka, brokers reset what they do not know without a word."""
    return settings[name].value if name in settings else None


def _show_settings(options: Any, settings: Mapping[str, Any]) -> int:  # noqa: ANN401 (argparse's)
    value = {
        name: {"value": one.value, "default": one.is_default}
        for name, one in sorted(settings.items())
    }
    rows = [
        (name, one.value, "default" if one.is_default else "set here")
        for name, one in sorted(settings.items())
    ]
    return _tell(options, table(("setting", "value", "origin"), rows), value)


async def _partitions(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        before = len(topic.partitions)
        await admin.set_partitions(topic.name, options.total, dry_run=options.dry_run)
    said = "could have" if options.dry_run else "has"
    text = (
        f"topic {topic.name} {said} {options.total} partitions instead of {before}; "
        "new records of a key may go to another partition"
    )
    value = {"topic": topic.name, "before": before, "partitions": options.total}
    return _tell(options, text, {**value, "changed": not options.dry_run})


async def _trim(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        places = _places(topic, options.partition)
        firsts, ends, wanted = await _cuts(admin, options.before, places)
        if not options.dry_run:
            wanted = await admin.delete_records(wanted)
    rows = [
        {
            "partition": place.partition,
            "first_before": firsts[place],
            "first": wanted[place],
            "end": ends[place],
        }
        for place in places
    ]
    heads = ("partition", "first", "would be" if options.dry_run else "now", "end")
    text = table(heads, [tuple(row.values()) for row in rows])
    value = {"topic": topic.name, "changed": not options.dry_run, "partitions": rows}
    return _tell(options, text, value)


async def _cuts(
    admin: Admin, before: str, places: list[TopicPartition]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], dict[TopicPartition, int]]:
    """The first and last offsets, and the first one to be kept; always within the records."""
    firsts = _offsets(await admin.list_offsets(dict.fromkeys(places, BEGINNING)))
    ends = _offsets(await admin.list_offsets(dict.fromkeys(places, END)))
    if before == "end":
        wanted = dict(ends)
    elif before[:1] == "-" and before[1:].isdecimal():
        wanted = {place: ends[place] - int(before[1:]) for place in places}
    elif before.isdecimal():
        wanted = dict.fromkeys(places, int(before))
    else:
        times = dict.fromkeys(places, time_ms(before, BEFORE))
        found = _offsets(await admin.list_offsets(times))
        wanted = {place: one if one >= 0 else ends[place] for place, one in found.items()}
    kept = {place: min(max(one, firsts[place]), ends[place]) for place, one in wanted.items()}
    return firsts, ends, kept


def _offsets(found: Mapping[TopicPartition, Any]) -> dict[TopicPartition, int]:
    return {place: one.offset for place, one in found.items()}


async def _elect(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        outcomes = await admin.elect_leaders(_places(topic, options.partition))
        after = await existing_topic(admin, options.topic)
    leaders = {one.partition: one.leader for one in after.partitions}
    said = {
        place.partition: "elected"
        if error is None
        else "leads already"
        if error.code is ErrorCode.ELECTION_NOT_NEEDED
        else str(error)
        for place, error in sorted(outcomes.items())
    }
    failed = [one for one in said.values() if one not in ("elected", "leads already")]
    rows = [(number, leaders.get(number), text) for number, text in said.items()]
    value = [
        {"partition": number, "leader": leader, "outcome": text} for number, leader, text in rows
    ]
    _tell(
        options,
        table(("partition", "leader", "outcome"), rows),
        {"topic": topic.name, "partitions": value},
    )
    return FAILED if failed else 0


async def _reassign(options: Any) -> int:  # noqa: ANN401 (argparse's)
    options.changes = options.to is not None or options.cancel
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        places = _places(topic, options.partition)
        if options.changes and not options.dry_run:
            await admin.reassign(dict.fromkeys(places, None if options.cancel else options.to))
        moving = {one.place: one for one in await admin.reassignments() if one.place in places}
        topic = await existing_topic(admin, options.topic)
    replicas = {one.partition: list(one.replicas) for one in topic.partitions}
    value = [
        {
            "partition": place.partition,
            "replicas": replicas[place.partition],
            "adding": list(moving[place].adding) if place in moving else [],
            "removing": list(moving[place].removing) if place in moving else [],
            **({"would_be": options.to} if options.dry_run else {}),
        }
        for place in places
    ]
    last = ("would be",) if options.dry_run else ()
    heads = ("partition", "replicas", "adding", "removing", *last)
    rows = [
        tuple(
            one if isinstance(one, int) else ",".join(map(str, one or [])) or "-"
            for one in row.values()
        )
        for row in value
    ]
    changed = bool(options.changes and not options.dry_run)
    document = {"topic": topic.name, "changed": changed, "partitions": value}
    return _tell(options, table(heads, rows), document)
