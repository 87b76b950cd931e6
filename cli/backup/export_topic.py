"""`evenkeel topic export`: the committed records of a topic, up to where each partition ended when
the export began. Any Kafka cluster.

An export that was interrupted is continued by the same command: it keeps the ends it had, and what
is intact in its files. Its manifest is complete only when everything is on the disk.
"""

import argparse
import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import attrs
import trio

from cli.backup import batch_files, manifest
from cli.backup.batch_files import Tally
from cli.backup.manifest import ExportError, Manifest, Part
from cli.backup.partitions import Reader
from cli.backup.pieces import within
from cli.backup.progress import Progress, counted
from cli.clusters.kafka_commands import ClientError, existing_topic, open_admin, print_json
from evenkeel import Admin, BrokerError, Isolation, TopicDescription, TopicPartition
from evenkeel.lookups import BEGINNING, END, list_offsets
from wire.error_codes import ErrorCode
from wire.records.batch import Batch
from wire.records.transactions import Transactions
from wire.software import VERSION

AT_ONCE: Final = 4
"""Partitions read at once: each holds one answer in memory."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="DIR", help="a new directory")
    text = "also the offsets that consumer groups have committed"
    parser.add_argument("--groups", action="store_true", help=text)
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")


async def run(options: Any) -> int:  # noqa: ANN401 (argparse's)
    directory: Path = options.to
    async with open_admin(options) as admin:
        topic = await existing_topic(admin, options.topic)
        plan = await _plan(admin, topic, options)
        reader = Reader(admin.client, topic.name, topic.topic_id, options.timeout)
        total = sum(max(0, one.end - one.first) for one in plan.parts)
        progress = Progress(f"exporting {topic.name}", total, quiet=options.quiet)
        exports = [
            _PartitionExport(reader, directory, part, progress, options.timeout)
            for part in plan.parts
        ]
        await at_once(AT_ONCE, [one.run for one in exports])
        await _check_still_there(admin, plan)
    plan.ended = _now()
    plan.complete = True
    manifest.write(directory, plan)
    progress.done()
    _tell(options, directory, plan)
    return 0


async def at_once(limit: int, works: Sequence[Any]) -> None:
    """Run all of them, a few at a time; the first error ends the others and is raised as it is."""
    room = trio.CapacityLimiter(limit)
    errors: list[Exception] = []

    async def one(work: Any, scope: trio.CancelScope) -> None:  # noqa: ANN401
        async with room:
            try:
                await work()
            except Exception as error:  # noqa: BLE001 (raised below)
                errors.append(error)
                scope.cancel()

    async with trio.open_nursery() as nursery:
        for work in works:
            nursery.start_soon(one, work, nursery.cancel_scope)
    if errors:
        raise errors[0]


# --- what is to be exported ----------------------------------------------------------------------


async def _plan(admin: Admin, topic: TopicDescription, options: Any) -> Manifest:  # noqa: ANN401
    """A new export, or the one in the directory that was interrupted."""
    directory: Path = options.to
    found = _prepare(directory)
    cluster_id = (await admin.describe_cluster()).cluster_id or ""
    if found is None:
        plan = await _new(admin, topic, cluster_id, groups=options.groups)
        manifest.write(directory, plan)
        return plan
    if found.complete:
        raise ExportError(
            f"{directory} has a complete export of topic {found.topic} ({found.ended}): "
            "choose another directory"
        )
    ours = (topic.name, topic.topic_id, cluster_id)
    if (found.topic, found.topic_id, found.cluster_id) != ours:
        raise ExportError(
            f"{directory} has an interrupted export of topic {found.topic}, which is another topic "
            "or was created again since: choose another directory"
        )
    return found


def _prepare(directory: Path) -> Manifest | None:
    """The manifest of a directory that may be written to."""
    directory.mkdir(parents=True, exist_ok=True)
    found = manifest.read(directory)
    if found is None and any(directory.iterdir()):
        raise ExportError(f"{directory} has other files: choose an empty or a new directory")
    return found


async def _new(admin: Admin, topic: TopicDescription, cluster_id: str, *, groups: bool) -> Manifest:
    committed = await _committed(admin, topic.name) if groups else {}
    settings = await admin.topic_settings(topic.name)
    places = [TopicPartition(topic.name, one.partition) for one in topic.partitions]
    # The beginnings come first: what is deleted in between is then seen as deleted.
    firsts = await admin.list_offsets(dict.fromkeys(places, BEGINNING))
    committed_records = Isolation.READ_COMMITTED
    ends = await list_offsets(admin.client, dict.fromkeys(places, END), committed_records)
    return Manifest(
        topic=topic.name,
        topic_id=topic.topic_id,
        cluster_id=cluster_id,
        replication=max((len(one.replicas) for one in topic.partitions), default=1),
        settings={
            name: one.value
            for name, one in sorted(settings.items())
            if not one.is_default and not one.read_only and one.value is not None
        },
        began=_now(),
        software=VERSION,
        groups=committed,
        parts=[
            Part(
                partition=place.partition,
                first=firsts[place].offset,
                end=max(ends[place].offset, firsts[place].offset),
                file=manifest.file_name(place.partition),
            )
            for place in places
        ],
    )


async def _committed(admin: Admin, topic: str) -> dict[str, dict[str, list[Any]]]:
    """What every consumer group has committed in this topic."""
    found: dict[str, dict[str, list[Any]]] = {}
    for group in sorted(one.name for one in await admin.list_groups()):
        offsets = {
            str(place.partition): [one.offset, one.metadata]
            for place, one in sorted((await admin.committed_offsets(group)).items())
            if place.topic == topic and one.offset >= 0
        }
        if offsets:
            found[group] = offsets
    return found


async def _check_still_there(admin: Admin, plan: Manifest) -> None:
    try:
        now = await admin.describe_topic(plan.topic)
    except BrokerError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
    else:
        if now.topic_id == plan.topic_id:
            return
    raise ExportError(f"topic {plan.topic} was deleted while it was exported")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


# --- one partition -------------------------------------------------------------------------------


@attrs.define(eq=False)
class _PartitionExport:
    reader: Reader
    directory: Path
    part: Part
    progress: Progress
    timeout_s: float
    _transactions: Transactions = attrs.Factory(Transactions)

    async def run(self) -> None:
        path = self.directory / manifest.file_name(self.part.partition)
        tally = await trio.to_thread.run_sync(batch_files.resume, path, self.part.first)
        self.progress.add(tally.records, tally.bytes, tally.next_offset - self.part.first)
        with path.open("ab") as file:
            await self._copy(tally, file)
            file.flush()
            await trio.to_thread.run_sync(os.fsync, file.fileno())
        tally.store(self.part)

    async def _copy(self, tally: Tally, file: BinaryIO) -> None:
        at = tally.next_offset
        since = time.monotonic()
        while at < self.part.end:
            fetched = await self.reader.fetch(self.part.partition, at)
            start = fetched.data.log_start_offset
            if fetched.gone:
                at = await self._skip_deleted(at, start)
                continue
            self._transactions.set_aborted(fetched.data.aborted_transactions)
            before = at
            for batch in fetched.batches:
                if batch.header.base_offset >= self.part.end:
                    at = self.part.end
                    break
                self._take(batch, at, tally, file)
                at = max(at, batch.header.last_offset + 1)
            self.progress.add(0, 0, at - before)
            if at > before:
                since = time.monotonic()
            elif time.monotonic() - since > self.timeout_s:
                raise ClientError(
                    f"{self.reader.topic}/{self.part.partition} delivers nothing from offset {at}, "
                    f"though it ended at {self.part.end}; the same command continues"
                )

    def _take(self, batch: Batch, at: int, tally: Tally, file: BinaryIO) -> None:
        """Keep the committed records from `at` on: a fetch begins with the whole batch that has the
        offset."""
        if self._transactions.skips(batch) or not batch.header.record_count:
            return
        kept = within(batch, at, self.part.end)
        if kept is not None:
            file.write(kept.data)
            tally.add(kept)
            self.progress.add(kept.header.record_count, len(kept.data), 0)

    async def _skip_deleted(self, at: int, start: int) -> int:
        """Retention has deleted what we were about to read."""
        if start < 0:  # older brokers do not say where their log begins now
            place = TopicPartition(self.reader.topic, self.part.partition)
            start = (await list_offsets(self.reader.client, {place: BEGINNING}))[place].offset
        if start <= at:
            raise ClientError(
                f"{self.reader.topic}/{self.part.partition} has no offset {at} any more, though it "
                f"begins at {start}: it has lost records"
            )
        start = min(start, self.part.end)
        self.part.deleted.append([at, start])
        self.progress.add(0, 0, start - at)
        return start


# --- what is said --------------------------------------------------------------------------------


def _tell(options: Any, directory: Path, plan: Manifest) -> None:  # noqa: ANN401
    deleted = [one for one in plan.parts if one.deleted]
    if options.json:
        print_json(
            {
                "directory": str(directory),
                "topic": plan.topic,
                "partitions": len(plan.parts),
                "records": plan.records,
                "bytes": plan.bytes,
                "groups": sorted(plan.groups),
                "deleted_meanwhile": {str(one.partition): one.deleted for one in deleted},
            }
        )
        return
    print(
        f"topic {plan.topic}: {counted(plan.records, 'record')} of "
        f"{counted(len(plan.parts), 'partition')}, {plan.bytes:,} bytes, are in {directory}"
    )
    if options.groups:
        print(f"with the offsets of {counted(len(plan.groups), 'consumer group')}")
    for one in deleted:
        ranges = ", ".join(f"{first} to {end - 1}" for first, end in one.deleted)
        print(f"note: retention deleted offsets {ranges} of partition {one.partition} meanwhile")
