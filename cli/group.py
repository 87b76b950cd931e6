"""`evenkeel group`: list, show, set back and delete consumer groups. Any Kafka cluster."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from cli.clusters.kafka_commands import (
    UNKNOWN,
    Action,
    ClientError,
    add_action,
    existing_topic,
    open_admin,
    print_json,
    table,
)
from cli.where import time_ms
from evenkeel import (
    Admin,
    BrokerError,
    GroupDescription,
    GroupListing,
    GroupMember,
    IncompleteListError,
    PartitionProgress,
    TopicPartition,
)
from evenkeel.lookups import BEGINNING, END
from wire.error_codes import ErrorCode

Progress = Mapping[TopicPartition, PartitionProgress]

CLIENT_CHARS_MAX: Final = 24
MEMBER_CHARS_MAX: Final = 31
WHERE: Final = "beginning, end, an offset, +N or -N (--to=-N), a time (2026-01-31T12:00), or @MS"


def add_commands(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")

    def action(
        name: str, work: Action, text: str, *, one: bool = True, changes: bool = False
    ) -> argparse.ArgumentParser:
        sub = add_action(actions, name, work, text, changes=changes)
        if one:
            sub.add_argument("group", metavar="GROUP")
        return sub

    action("list", _list, "list the consumer groups", one=False)
    action("describe", _describe, "show a consumer group's members, its offsets and its lag")
    seek = action(
        "seek", _seek, "set the offsets of a consumer group without members", changes=True
    )
    seek.add_argument("--to", required=True, metavar="WHERE", help=WHERE)
    text = "only these (default: all that the consumer group has committed)"
    seek.add_argument("--topic", action="append", default=[], metavar="T[:P]", help=text)
    seek.add_argument("--dry-run", action="store_true", help="only show what would change")
    text = "delete a consumer group without members, and its offsets"
    delete = action("delete", _delete, text, changes=True)
    delete.add_argument("--dry-run", action="store_true", help="only show what would be deleted")


# --- looking -------------------------------------------------------------------------------------


async def _list(options: Any) -> int:  # noqa: ANN401 (argparse's)
    incomplete: IncompleteListError | None = None
    async with open_admin(options) as admin:
        try:
            groups: Sequence[GroupListing] = await admin.list_groups()
        except IncompleteListError as error:
            incomplete, groups = error, error.found
    if options.json:
        print_json(
            [{"group": one.name, "state": one.state, "type": one.group_type} for one in groups]
        )
    elif groups:
        rows = [(one.name, one.state, one.group_type) for one in groups]
        print(table(("group", "state", "type"), rows))
    else:
        print("no consumer groups" if incomplete is None else "consumer groups: unknown")
    if incomplete is None:
        return 0
    print(f"evenkeel: {incomplete}; there may be more", file=sys.stderr)
    return UNKNOWN


async def _describe(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        progress = await admin.group_progress(options.group)
        group = await admin.describe_group(options.group)
    if options.json:
        print_json({**_group_json(group), "partitions": _progress_json(progress, group)})
        return 0
    lag = sum(one.lag or 0 for one in progress.values())
    print(f"{group.name}: {group.state}, coordinator node {group.coordinator}, lag {lag}")
    readers = {place: _shown(one) for one in group.members for place in one.assignment}
    reading = [
        (
            str(place),
            None if one.committed is None else one.committed.offset,
            one.end,
            one.lag,
            readers.get(place),
        )
        for place, one in progress.items()
    ]
    print(table(("partition", "committed", "end", "lag", "read by"), reading))
    if group.members:
        members = [
            (_shown(one), _client(one), one.host, len(one.assignment)) for one in group.members
        ]
        print()
        print(table(("member", "client", "host", "partitions"), members))
    return 0


def _shown(member: GroupMember) -> str:
    """The member's id, shortened in the middle: its beginning names the client, its end the
    member."""
    name = member.instance or member.id
    return name if len(name) <= MEMBER_CHARS_MAX else f"{name[:20]}...{name[-8:]}"


def _client(member: GroupMember) -> str | None:
    """The client's name if the member's id does not contain it; shortened, as it is for people."""
    name = member.client_id
    if member.id.startswith(name) and member.instance is None:
        return None
    return name if len(name) <= CLIENT_CHARS_MAX else name[: CLIENT_CHARS_MAX - 3] + "..."


async def _without_members(admin: Admin, name: str) -> GroupDescription:
    """A consumer group that may be changed from outside.

    Raises:
        ClientError: if it has members: they would continue from their positions, and commit those.
    """
    group = await admin.describe_group(name)
    if group.members:
        count = f"{len(group.members)} member{'s' if len(group.members) > 1 else ''}"
        raise ClientError(f"consumer group '{name}' has {count}; stop them first")
    return group


def _group_json(group: GroupDescription) -> dict[str, object]:
    return {
        "group": group.name,
        "state": group.state,
        "assignor": group.assignor,
        "coordinator": group.coordinator,
        "members": [
            {
                "id": one.id,
                "instance": one.instance,
                "client_id": one.client_id,
                "host": one.host,
                "partitions": [str(place) for place in one.assignment],
            }
            for one in group.members
        ],
    }


def _progress_json(progress: Progress, group: GroupDescription) -> list[dict[str, object]]:
    readers = {place: one.id for one in group.members for place in one.assignment}
    return [
        {
            "topic": place.topic,
            "partition": place.partition,
            "committed": None if one.committed is None else one.committed.offset,
            "end": one.end,
            "lag": one.lag,
            "member": readers.get(place),
        }
        for place, one in progress.items()
    ]


# --- changing ------------------------------------------------------------------------------------


async def _seek(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        try:
            await _without_members(admin, options.group)
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise  # an unknown consumer group may be told where to begin
        committed = {
            place: one.offset
            for place, one in (await admin.committed_offsets(options.group)).items()
        }
        places = await _chosen(admin, options.topic, committed)
        wanted = await _targets(admin, options.to, places, committed)
        if not options.dry_run:
            await admin.alter_offsets(options.group, wanted)
    if options.json:
        print_json(
            [
                {
                    "topic": place.topic,
                    "partition": place.partition,
                    "from": committed.get(place),
                    "to": offset,
                    "changed": not options.dry_run,
                }
                for place, offset in sorted(wanted.items())
            ]
        )
        return 0
    rows = [(str(place), committed.get(place), offset) for place, offset in sorted(wanted.items())]
    print(table(("partition", "committed", "would be" if options.dry_run else "now"), rows))
    return 0


async def _chosen(
    admin: Admin, words: list[str], committed: Iterable[TopicPartition]
) -> list[TopicPartition]:
    """The partitions that were named, or all with an offset."""
    places: set[TopicPartition] = set()
    for word in words:
        topic, _, number = word.partition(":")
        known = [one.partition for one in (await existing_topic(admin, topic)).partitions]
        if number and (not number.isdecimal() or int(number) not in known):
            raise ClientError(f"topic {topic} has no partition {number}")
        places |= {TopicPartition(topic, one) for one in ([int(number)] if number else known)}
    places = places or set(committed)
    if not places:
        raise ClientError("the consumer group has committed nothing; name the topics with --topic")
    return sorted(places)


async def _targets(
    admin: Admin, where: str, places: list[TopicPartition], committed: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """The offset for each partition; always within its existing records."""
    begins = await admin.list_offsets(dict.fromkeys(places, BEGINNING))
    ends = await admin.list_offsets(dict.fromkeys(places, END))
    targets: dict[TopicPartition, int] = {}
    if where == "beginning":
        targets = {place: begins[place].offset for place in places}
    elif where == "end":
        targets = {place: ends[place].offset for place in places}
    elif where[:1] in "+-" and where[1:].isdecimal():
        for place in places:
            if place not in committed:
                raise ClientError(f"{place} has no committed offset that {where} could refer to")
            targets[place] = committed[place] + int(where)
    elif where.isdecimal():
        targets = dict.fromkeys(places, int(where))
    else:
        found = await admin.list_offsets(dict.fromkeys(places, time_ms(where, WHERE)))
        targets = {
            place: one.offset if one.offset >= 0 else ends[place].offset
            for place, one in found.items()
        }
    return {
        place: min(max(offset, begins[place].offset), ends[place].offset)
        for place, offset in targets.items()
    }


async def _delete(options: Any) -> int:  # noqa: ANN401 (argparse's)
    async with open_admin(options) as admin:
        group = await _without_members(admin, options.group)
        offsets = await admin.committed_offsets(options.group)
        if not options.dry_run:
            await admin.delete_group(options.group)
    said = "would be deleted" if options.dry_run else "was deleted"
    if options.json:
        deleted = {"deleted": not options.dry_run, "offsets": len(offsets)}
        print_json({**_group_json(group), **deleted})
    else:
        print(f"consumer group {group.name} with {len(offsets)} committed offsets {said}")
    return 0
