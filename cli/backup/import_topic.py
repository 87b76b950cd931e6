"""`evenkeel topic import`: an exported topic into any Kafka cluster, as a new topic.

Everything that can be known is checked before anything is written: the files against the manifest,
the settings against the brokers, the topic's name, the consumer groups. While records are written,
nothing may delete them or change their times, so the settings that do are applied at the end.

Record number n of a partition's file gets offset n. So how far an import came can be seen in the
topic: `--resume` goes on behind its last record, if that is the one that the export has there.
"""

import argparse
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from cli.backup import batch_files, manifest
from cli.backup.export_topic import AT_ONCE, at_once
from cli.backup.manifest import ExportError, Manifest, Part
from cli.backup.partitions import WINDOW, Reader, Writer
from cli.backup.pieces import JOINED_BYTES, Piece, pieces, record_number, records_of
from cli.backup.progress import Progress, counted
from cli.clusters.kafka_commands import ClientError, open_admin, pairs, print_json
from evenkeel import Admin, BrokerError, Committed, EvenkeelError, TopicDescription, TopicPartition
from evenkeel.lookups import BEGINNING, END
from wire.error_codes import ErrorCode
from wire.records.batch import CONTROL_BIT, Record

HELD: Final = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": str(2**63 - 1),
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
"""What the topic has while it is written: no record is deleted, refused or given another time."""
KEEPS: Final = ("cleanup.policy", "retention.ms", "retention.bytes")
ANOTHER: Final = "delete it, or choose another name with --as"
WINDOW_BYTES: Final = 1 << 20
"""Of one partition under way, beside one more batch."""
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""Kafka's default, if the topic had none of its own."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--from", dest="source", type=Path, required=True, metavar="DIR")
    text = "the new topic's name (the name it had)"
    parser.add_argument("--as", dest="name", metavar="TOPIC", help=text)
    text = "continue an import that was interrupted"
    parser.add_argument("--resume", action="store_true", help=text)
    parser.add_argument("--replication", type=int, default=-1, metavar="R")
    text = "a setting of the new topic, instead of the exported one"
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help=text)
    text = "delete and compact nothing, until you change the topic's settings"
    parser.add_argument("--keep-all", action="store_true", help=text)
    text = "also set the offsets that consumer groups had committed"
    parser.add_argument("--groups", action="store_true", help=text)
    text = "check the export and what the brokers would say, and write nothing"
    parser.add_argument("--dry-run", action="store_true", help=text)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


async def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    plan = _read(options.source)
    name: str = options.name or plan.topic
    options.changes = not options.dry_run
    wanted = {**plan.settings, **pairs(options.set, "setting")}
    if options.groups and not plan.groups:
        raise ExportError(f"{options.source} has no consumer groups: export with --groups")
    async with open_admin(options) as admin:
        if not options.resume:
            await _refuse_existing(admin, name)  # which is known sooner than what is in the files
        await _check_files(options, plan)
        groups = await _translated(options, plan, name) if options.groups else {}
        if groups:
            await _check_groups(admin, plan)
        topic, done, held = await _target(admin, plan, name, wanted, options)
        if options.dry_run:
            return _tell(options, plan, name, groups, written=0)
        assert topic is not None
        written = await _write(admin, options, plan, topic, done)
        await _check_ends(admin, plan, name)
        if held:
            await _apply(admin, name, wanted, keep_all=options.keep_all)
        for group, offsets in groups.items():
            await admin.alter_offsets(group, offsets)
    return _tell(options, plan, name, groups, written)


# --- the export ----------------------------------------------------------------------------------


def _read(directory: Path) -> Manifest:
    plan = manifest.read(directory)
    if plan is None:
        raise ExportError(f"{directory} has no export: {manifest.NAME} is missing")
    if not plan.complete:
        raise ExportError(
            f"the export in {directory} was interrupted; complete it with: evenkeel topic export "
            f"{plan.topic} --to {directory}"
        )
    return plan


def _path(options: Any, part: Part) -> Path:  # noqa: ANN401
    path: Path = options.source / manifest.file_name(part.partition)
    return path


async def _check_files(options: Any, plan: Manifest) -> None:  # noqa: ANN401
    progress = Progress("checking the export", plan.bytes, quiet=options.quiet)
    for part in plan.parts:
        name = manifest.file_name(part.partition)
        await trio.to_thread.run_sync(batch_files.check, options.source, part, name)
        progress.add(part.records, part.bytes, part.bytes)
    progress.done()


async def _check_groups(admin: Admin, plan: Manifest) -> None:
    """
    Raises:
        ClientError: if one of them has members, which would go on from their own positions.
    """
    for group in plan.groups:
        try:
            members = (await admin.describe_group(group)).members
        except BrokerError as error:
            if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        else:
            if members:
                raise ClientError(f"consumer group '{group}' has members; stop them first")


async def _translated(
    options: Any,  # noqa: ANN401
    plan: Manifest,
    name: str,
) -> dict[str, dict[TopicPartition, Committed]]:
    """Where each consumer group continues in the new topic: behind the same records."""
    groups: dict[str, dict[TopicPartition, Committed]] = {group: {} for group in plan.groups}
    for part in plan.parts:
        rows = {
            group: plan.groups[group][str(part.partition)]
            for group in groups
            if str(part.partition) in plan.groups[group]
        }
        if not rows:
            continue
        offsets = [int(row[0]) for row in rows.values()]
        found = await trio.to_thread.run_sync(
            record_number, batch_files.batches(_path(options, part), part.first), offsets
        )
        for group, (offset, metadata) in rows.items():
            place = TopicPartition(name, part.partition)
            groups[group][place] = Committed(found[int(offset)], str(metadata))
    return groups


# --- the topic -----------------------------------------------------------------------------------


async def _target(
    admin: Admin,
    plan: Manifest,
    name: str,
    wanted: Mapping[str, str],
    options: Any,  # noqa: ANN401
) -> tuple[TopicDescription | None, dict[int, int], bool]:
    """The topic to write to, how many records each of its partitions has of this export, and
    whether settings are held back."""
    try:
        topic = await admin.describe_topic(name)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    else:
        return topic, *await _how_far(admin, plan, topic, options)
    held = {**wanted, **HELD}
    create = partial(
        admin.create_topic, name, partitions=len(plan.parts), replication=options.replication
    )
    await create(settings=wanted, dry_run=True)  # a setting that is refused at the end is too late
    if options.dry_run:
        return None, {}, True
    await create(settings=held)
    return await admin.describe_topic(name), {}, True


async def _refuse_existing(admin: Admin, name: str) -> None:
    try:
        await admin.describe_topic(name)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    else:
        raise ClientError(
            f"topic {name} exists: {ANOTHER}; if it is an import that was interrupted, continue "
            "with --resume"
        )


async def _how_far(
    admin: Admin,
    plan: Manifest,
    topic: TopicDescription,
    options: Any,  # noqa: ANN401
) -> tuple[dict[int, int], bool]:
    """
    Raises:
        ClientError: if the topic is not the beginning of this export, or `--resume` is missing.
    """
    name = topic.name
    if len(topic.partitions) != len(plan.parts):
        raise ClientError(
            f"topic {name} exists with {len(topic.partitions)} partitions, the export has "
            f"{len(plan.parts)}: {ANOTHER}"
        )
    if not options.resume:  # it has been created since
        raise ClientError(f"topic {name} exists: {ANOTHER}")
    settings = await admin.topic_settings(name)
    places = [TopicPartition(name, one.partition) for one in plan.parts]
    firsts = await admin.list_offsets(dict.fromkeys(places, BEGINNING))
    ends = await admin.list_offsets(dict.fromkeys(places, END))
    held = all(key in settings and settings[key].value == value for key, value in HELD.items())
    done = {place.partition: ends[place].offset for place in places}
    if not held and any(done[part.partition] < part.records for part in plan.parts):
        raise ClientError(
            f"topic {name} does not have the settings of an import that was interrupted: {ANOTHER}"
        )
    reader = Reader(admin.client, name, topic.topic_id, options.timeout)
    for part, place in zip(plan.parts, places, strict=True):
        there = done[part.partition]
        strange = f"{place} has records that are not of this export: {ANOTHER}"
        if there > part.records or (firsts[place].offset and held):
            raise ClientError(strange)
        if there and not await _same_last_record(reader, options, part, there):
            raise ClientError(strange)
    return done, held


async def _same_last_record(
    reader: Reader,
    options: Any,  # noqa: ANN401
    part: Part,
    there: int,
) -> bool:
    expected = await trio.to_thread.run_sync(_record, options, part, there - 1)
    fetched = await reader.fetch(part.partition, there - 1, fetch_bytes=1)
    for batch in fetched.batches:
        for record in records_of(batch):
            if record.offset == there - 1:
                return record._replace(offset=0) == expected._replace(offset=0)
    return fetched.gone  # retention has deleted it: only in a topic that was complete


def _record(options: Any, part: Part, number: int) -> Record:  # noqa: ANN401
    before = 0
    for batch in batch_files.batches(_path(options, part), part.first):
        if batch.header.attributes & CONTROL_BIT:
            continue
        before += batch.header.record_count
        if before > number:
            return records_of(batch)[number - before]
    raise AssertionError("the file was checked")


async def _apply(admin: Admin, name: str, wanted: Mapping[str, str], *, keep_all: bool) -> None:
    """The settings that were held back."""
    kept = set(KEEPS) if keep_all else set()
    change = {one: wanted[one] for one in HELD if one in wanted and one not in kept}
    reset = [one for one in HELD if one not in wanted and one not in kept]
    await admin.alter_topic_settings(name, change, reset=reset)


# --- writing -------------------------------------------------------------------------------------


async def _write(
    admin: Admin,
    options: Any,  # noqa: ANN401
    plan: Manifest,
    topic: TopicDescription,
    done: Mapping[int, int],
) -> int:
    writer = Writer(admin.client, topic.name, options.timeout)
    await writer.open()
    settings = await admin.topic_settings(topic.name)
    limit = settings.get("max.message.bytes")
    bytes_max = min(JOINED_BYTES, int(limit.value or 0) // 2 if limit else JOINED_BYTES)
    left = plan.records - sum(done.values())
    progress = Progress(f"importing {topic.name}", left, quiet=options.quiet)
    imports = [
        _PartitionImport(
            writer, part, _path(options, part), progress, done.get(part.partition, 0), bytes_max
        )
        for part in plan.parts
    ]
    try:
        await at_once(AT_ONCE, [one.run for one in imports])
    except trio.Cancelled:
        print("the import is incomplete: continue with --resume", file=sys.stderr)
        raise
    except EvenkeelError as error:
        raise ClientError(
            f"the import is incomplete: {error}; continue with the same command and --resume"
        ) from error
    progress.done()
    return left


@attrs.define(eq=False)
class _PartitionImport:
    writer: Writer
    part: Part
    path: Path
    progress: Progress
    done: int
    bytes_max: int

    async def run(self) -> None:
        if self.done == self.part.records:
            return
        batches = batch_files.batches(self.path, self.part.first)
        window: list[Piece] = []
        for piece in pieces(batches, self.done, self.bytes_max):
            full = len(window) == WINDOW or sum(one.size for one in window) > WINDOW_BYTES
            if full:
                await self._send(window)
                window = []
            window.append(piece)
        if window:
            await self._send(window)

    async def _send(self, window: list[Piece]) -> None:
        number = self.part.partition
        offsets = await self.writer.append(number, window)
        for piece, offset in zip(window, offsets, strict=True):
            if offset not in (piece.first, -1):
                raise ClientError(
                    f"{self.writer.topic}/{number} has records at offset {piece.first} that are "
                    "not of this import: somebody else writes there. Delete the topic, or import "
                    "under another name with --as"
                )
            self.progress.add(piece.count, piece.size, piece.count)


async def _check_ends(admin: Admin, plan: Manifest, name: str) -> None:
    places = {TopicPartition(name, one.partition): one.records for one in plan.parts}
    ends = await admin.list_offsets(dict.fromkeys(places, END))
    for place, records in places.items():
        if ends[place].offset != records:
            raise ClientError(
                f"{place} ends at {ends[place].offset} instead of {records}: somebody else writes "
                "there, or it has lost records"
            )


# --- what is said --------------------------------------------------------------------------------


def _tell(
    options: Any,  # noqa: ANN401
    plan: Manifest,
    name: str,
    groups: Mapping[str, Mapping[TopicPartition, Committed]],
    written: int,
) -> int:
    if options.json:
        print_json(
            {
                "topic": name,
                "changed": not options.dry_run,
                "partitions": len(plan.parts),
                "records": plan.records,
                "written": written,
                "groups": {
                    group: {str(place.partition): one.offset for place, one in offsets.items()}
                    for group, offsets in groups.items()
                },
            }
        )
        return 0
    what = f"{counted(plan.records, 'record')} in {counted(len(plan.parts), 'partition')}"
    if options.dry_run:
        print(f"the export is complete and intact; topic {name} would get {what}")
    else:
        print(f"topic {name} has {what}; {counted(written, 'record')} written now")
    for group, offsets in groups.items():
        print(
            f"consumer group {group} continues behind the same records as before: "
            + ", ".join(f"{place.partition}/{one.offset}" for place, one in offsets.items())
        )
    _tell_what_ends(options, plan)
    return 0


def _tell_what_ends(options: Any, plan: Manifest) -> None:  # noqa: ANN401
    """Old records may be deleted as soon as the topic has its own settings."""
    wanted = {**plan.settings, **pairs(options.set, "setting")}
    retention_ms = int(wanted.get("retention.ms", RETENTION_MS))
    oldest = min((one.oldest_ms for one in plan.parts if one.oldest_ms is not None), default=None)
    deletes = "delete" in wanted.get("cleanup.policy", "delete") and retention_ms >= 0
    if options.keep_all or not deletes or oldest is None:
        return
    if oldest < time.time() * 1000 - retention_ms:
        print(
            f"note: retention.ms={retention_ms} deletes older records soon, as it would have "
            "without the export (--keep-all, or --set retention.ms=-1, keeps them)"
        )
