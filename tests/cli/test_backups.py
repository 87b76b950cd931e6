"""`evenkeel topic export` and `evenkeel topic import` against real nodes."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import trio

from cli import main as cli
from cli.backup import batch_files, manifest
from cli.backup.batch_files import Tally
from cli.backup.manifest import Manifest, Part
from cli.backup.partitions import Writer
from evenkeel import (
    Admin,
    ClientConfig,
    Consumer,
    ConsumerConfig,
    ConsumerRecord,
    DisconnectedError,
    Producer,
    ProducerConfig,
    TopicPartition,
)
from evenkeel.admin.descriptions import Setting
from tests.cli.backup.test_backup_files import CASES, wanted
from tests.evenkeel.shared_cluster import SharedCluster
from wire.records.batch import HEADER_BYTES, Batch, BatchHeader, Compression, parse_header
from wire.records.spans import rebuilt

pytestmark = pytest.mark.cluster

OLD_MS = 1_600_000_000_000
_names = itertools.count(1)


class Terminal:
    """Runs commands against the cluster, and keeps what they print."""

    def __init__(self, cluster: SharedCluster, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = cluster.bootstrap
        self._capsys = capsys

    def run(self, line: str, code: int = 0) -> str:
        """What it prints; if it fails, its error message."""
        got = cli.run([*line.split(), "--bootstrap", self.bootstrap, "--timeout", "30"])
        printed = self._capsys.readouterr()
        assert got == code, printed.err
        return printed.out if code == 0 else printed.err

    def json(self, line: str) -> Any:
        return json.loads(self.run(f"{line} --json"))


@pytest.fixture
def terminal(cluster: SharedCluster, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(cluster, capsys)


def new_name() -> str:
    return f"backup-{next(_names)}"


def in_a_loop(work: Any, *arguments: Any) -> Any:
    return trio.run(work, *arguments)


async def _fill(bootstrap: str, topic: str, count: int, codec: Compression) -> None:
    async with Producer(bootstrap, ProducerConfig(compression=codec, linger_ms=2)) as producer:
        for number in range(count):
            await producer.send(
                topic,
                None if number % 7 == 3 else b"value %d" % number * (1 + number % 50),
                key=b"k%d" % number if number % 5 else None,
                partition=number % 2,
                headers=[("trace", b"%d" % number), ("empty", None)],
                timestamp_ms=OLD_MS + number,
            )


async def _read(bootstrap: str, topic: str) -> dict[int, list[ConsumerRecord]]:
    found: dict[int, list[ConsumerRecord]] = {}
    async with Admin(bootstrap) as admin:
        described = await admin.describe_topic(topic)
        places = [TopicPartition(topic, one.partition) for one in described.partitions]
    async with Consumer(bootstrap, ConsumerConfig()) as consumer:
        await consumer.assign(places)
        ends = await consumer.end_offsets(places)
        for place in places:
            found[place.partition] = []
        with trio.fail_after(60):
            while any((consumer.known_position(one) or 0) < ends[one] for one in places):
                for record in await consumer.poll(1.0) or ():
                    found[record.partition].append(record)
    return found


async def _settings(bootstrap: str, topic: str) -> dict[str, Setting]:
    async with Admin(bootstrap) as admin:
        return await admin.topic_settings(topic)


async def _commit(bootstrap: str, group: str, offsets: dict[TopicPartition, int]) -> None:
    async with Admin(bootstrap) as admin:
        await admin.alter_offsets(group, offsets)


async def _committed(bootstrap: str, group: str) -> dict[TopicPartition, int]:
    async with Admin(bootstrap) as admin:
        found = await admin.committed_offsets(group)
    return {place: one.offset for place, one in found.items()}


def contents(records: dict[int, list[ConsumerRecord]]) -> dict[int, list[Any]]:
    return {
        partition: [(one.key, one.value, one.timestamp_ms, one.headers) for one in some]
        for partition, some in records.items()
    }


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_topic_comes_back(terminal: Terminal, tmp_path: Path, codec: Compression) -> None:
    """With keys, values, headers, times, order, settings and what consumer groups had read; also
    if its front was trimmed, and if a partition is empty."""
    topic, copy, group = new_name(), new_name(), new_name()
    keep = "--set retention.ms=3600000000000 --set max.message.bytes=300000"
    terminal.run(f"topic create {topic} --partitions 3 {keep}")
    in_a_loop(_fill, terminal.bootstrap, topic, 500, codec)
    terminal.run(f"topic trim {topic} --before 40 --partition 1")
    places = [TopicPartition(topic, number) for number in range(3)]
    in_a_loop(_commit, terminal.bootstrap, group, {places[0]: 100, places[1]: 60})

    backup = tmp_path / "backup"
    done = terminal.json(f"topic export {topic} --to {backup} --groups")
    assert done["records"] == 460
    assert group in done["groups"]
    told = terminal.json(f"topic import --from {backup} --as {copy} --groups")
    assert (told["records"], told["written"]) == (460, 460)

    there, copied = (in_a_loop(_read, terminal.bootstrap, one) for one in (topic, copy))
    assert contents(copied) == contents(there)
    assert [len(copied[number]) for number in range(3)] == [250, 210, 0]
    assert [one.offset for one in copied[1]] == list(range(210))
    settings = in_a_loop(_settings, terminal.bootstrap, copy)
    changed = {name: one.value for name, one in settings.items() if not one.is_default}
    assert changed == {"retention.ms": "3600000000000", "max.message.bytes": "300000"}
    committed = in_a_loop(_committed, terminal.bootstrap, group)
    assert committed[TopicPartition(copy, 0)] == 100
    assert committed[TopicPartition(copy, 1)] == 20  # 60, of which 40 were trimmed


def test_records_with_gaps_and_other_times(terminal: Terminal, tmp_path: Path) -> None:
    """What compaction, the log's append time and transactions leave in a log; no producer may send
    such batches."""
    files = [CASES["gaps"], CASES["log time"], CASES["transactions"], CASES["codecs"]]
    write_export(tmp_path, files)
    name = new_name()
    terminal.run(f"topic import --from {tmp_path} --as {name} --keep-all")
    copied = in_a_loop(_read, terminal.bootstrap, name)
    for number, batches in enumerate(files):
        expected = [(one.offset, one.key, one.value, one.timestamp_ms) for one in wanted(batches)]
        got = [(one.offset, one.key, one.value, one.timestamp_ms) for one in copied[number]]
        assert got == expected, number


def write_export(directory: Path, files: list[list[Batch]], **settings: str) -> None:
    parts = []
    for number, batches in enumerate(files):
        first = 0
        name = manifest.file_name(number)
        part = Part(partition=number, first=first, end=batches[-1].header.last_offset + 1)
        tally = Tally(first)
        with (directory / name).open("wb") as file:
            for one in batches:
                file.write(one.data)
                tally.add(one)
        tally.store(part)
        parts.append(part)
    plan = Manifest(
        topic="made",
        topic_id="0" * 32,
        cluster_id="elsewhere",
        replication=3,
        settings=settings,
        began="",
        parts=parts,
        complete=True,
    )
    manifest.write(directory, plan)


def test_an_interrupted_import_goes_on_without_duplicates(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, copy = new_name(), new_name()
    terminal.run(f"topic create {topic} --partitions 2 --set cleanup.policy=compact")
    for number in range(6):
        in_a_loop(_fill_keyed, terminal.bootstrap, topic, 100 * number)
    backup = tmp_path / "backup"
    terminal.run(f"topic export {topic} --to {backup}")

    usual = Writer.append
    sent = itertools.count()

    async def append(self: Writer, *arguments: Any) -> list[int]:
        """The second part is written, and its answer is lost."""
        offsets = await usual(self, *arguments)
        if next(sent) == 1:
            raise DisconnectedError("the machine lost its power")
        return offsets

    with monkeypatch.context() as patch:
        patch.setattr(Writer, "append", append)
        patch.setattr("cli.backup.import_topic.JOINED_BYTES", 1_000)
        said = terminal.run(f"topic import --from {backup} --as {copy}", code=1)
    assert "incomplete" in said
    assert "--resume" in said
    before = sum(len(one) for one in in_a_loop(_read, terminal.bootstrap, copy).values())
    assert 0 < before < 600

    said = terminal.run(f"topic import --from {backup} --as {copy}", code=1)
    assert "exists" in said
    assert "--resume" in said
    told = terminal.json(f"topic import --from {backup} --as {copy} --resume")
    assert told["written"] == 600 - before
    there, copied = (in_a_loop(_read, terminal.bootstrap, one) for one in (topic, copy))
    assert contents(copied) == contents(there)
    settings = in_a_loop(_settings, terminal.bootstrap, copy)
    assert settings["cleanup.policy"].value == "compact"
    assert settings["retention.ms"].is_default
    assert terminal.json(f"topic import --from {backup} --as {copy} --resume")["written"] == 0


def test_lost_answers_and_refusals_double_nothing(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of batches sent together any may go unanswered: they are sent again, and recognised."""
    batches = [CASES["as it was"][0]._replace(header=one) for one in headers_in_a_row(60)]
    write_export(tmp_path, [[with_header(one) for one in batches]])
    usual = Writer._together
    turns = itertools.count()
    lost = []

    async def together(self: Writer, *arguments: Any) -> list[int]:
        offsets = await usual(self, *arguments)
        kept = next(turns) % (len(offsets) + 1)
        lost.append(len(offsets) - kept)
        return offsets[:kept]

    monkeypatch.setattr(Writer, "_together", together)
    monkeypatch.setattr("cli.backup.import_topic.JOINED_BYTES", 1)
    name = new_name()
    told = terminal.json(f"topic import --from {tmp_path} --as {name} --keep-all")
    assert told["records"] == 180
    assert sum(lost) > 10
    copied = in_a_loop(_read, terminal.bootstrap, name)[0]
    assert [one.offset for one in copied] == list(range(180))
    expected = [record.value for record in wanted(CASES["as it was"])] * 60
    assert [one.value for one in copied] == expected


def headers_in_a_row(count: int) -> list[BatchHeader]:
    """The same batch many times, too large to be joined with others."""
    [one] = CASES["as it was"]
    return [one.header._replace(base_offset=3 * number) for number in range(count)]


def with_header(batch: Batch) -> Batch:
    data = memoryview(rebuilt(batch.header, batch.data[HEADER_BYTES:]))
    return Batch(parse_header(data), data)


async def _fill_keyed(bootstrap: str, topic: str, first: int) -> None:
    async with Producer(bootstrap) as producer:
        for number in range(first, first + 100):
            await producer.send(topic, b"%d" % number, key=b"%d" % number, partition=number % 2)


def test_a_topic_of_somebody_else_is_not_continued(terminal: Terminal, tmp_path: Path) -> None:
    topic, other = new_name(), new_name()
    for name in (topic, other):
        terminal.run(f"topic create {name} --partitions 2")
    in_a_loop(_fill_keyed, terminal.bootstrap, topic, 0)
    in_a_loop(_fill_keyed, terminal.bootstrap, other, 5)
    terminal.run(f"topic export {topic} --to {tmp_path / 'b'}")
    said = terminal.run(f"topic import --from {tmp_path / 'b'} --as {other} --resume", code=1)
    assert "not of this export" in said
    counts = {one: len(some) for one, some in in_a_loop(_read, terminal.bootstrap, other).items()}
    assert sum(counts.values()) == 100


def test_a_damaged_or_incomplete_export_writes_nothing(terminal: Terminal, tmp_path: Path) -> None:
    topic, copy = new_name(), new_name()
    terminal.run(f"topic create {topic} --partitions 2")
    in_a_loop(_fill_keyed, terminal.bootstrap, topic, 0)
    backup = tmp_path / "b"
    terminal.run(f"topic export {topic} --to {backup}")
    said = terminal.run(f"topic export {topic} --to {backup}", code=1)
    assert "complete export" in said
    path = backup / manifest.file_name(1)
    good = path.read_bytes()
    for bad, word in (
        (good[:-5], "incomplete"),
        (good[:-5] + bytes([good[-5] ^ 1]) + good[-4:], "damaged"),
    ):
        path.write_bytes(bad)
        said = terminal.run(f"topic import --from {backup} --as {copy}", code=1)
        assert word in said
    path.write_bytes(good)
    plan = manifest.read(backup)
    assert plan is not None
    plan.complete = False
    manifest.write(backup, plan)
    said = terminal.run(f"topic import --from {backup} --as {copy}", code=1)
    assert f"evenkeel topic export {topic} --to {backup}" in said
    assert copy not in [one["topic"] for one in terminal.json("topic list")]

    path.write_bytes(good[:-5])  # as an interruption leaves it
    assert terminal.json(f"topic export {topic} --to {backup}")["records"] == 100
    assert path.read_bytes() == good
    said = terminal.run(f"topic import --from {backup} --as {copy} --dry-run")
    assert "complete and intact" in said
    assert copy not in [one["topic"] for one in terminal.json("topic list")]


def test_what_cannot_be_exported_or_imported(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("")
    topic = new_name()
    terminal.run(f"topic create {topic} --partitions 1")
    assert "there is no topic" in terminal.run(f"topic export none --to {tmp_path / 'x'}", code=1)
    assert "other files" in terminal.run(f"topic export {topic} --to {tmp_path}", code=1)
    assert "has no export" in terminal.run(f"topic import --from {tmp_path}", code=1)
    terminal.run(f"topic export {topic} --to {tmp_path / 'b'}")
    said = terminal.run(f"topic import --from {tmp_path / 'b'} --as t2 --groups", code=1)
    assert "export with --groups" in said
    said = terminal.run(f"topic import --from {tmp_path / 'b'} --as t2 --set flavour=x", code=1)
    assert "INVALID_CONFIG" in said
    terminal.run(f"topic delete {topic}")
    terminal.run(f"topic create {topic} --partitions 1")
    plan = manifest.read(tmp_path / "b")
    assert plan is not None
    plan.complete = False
    manifest.write(tmp_path / "b", plan)
    said = terminal.run(f"topic export {topic} --to {tmp_path / 'b'}", code=1)
    assert "created again" in said


def test_old_records_are_announced(terminal: Terminal, tmp_path: Path) -> None:
    """They would vanish soon after an import that says that everything is there."""
    write_export(tmp_path, [CASES["as it was"]], **{"retention.ms": "60000"})
    said = terminal.run(f"topic import --from {tmp_path} --as {new_name()}")
    assert "deletes older records" in said
    said = terminal.run(f"topic import --from {tmp_path} --as {new_name()} --keep-all")
    assert "deletes older records" not in said


def test_records_are_written_while_the_export_runs(terminal: Terminal, tmp_path: Path) -> None:
    """It ends where the partitions ended when it began."""
    topic = new_name()
    terminal.run(f"topic create {topic} --partitions 2")
    in_a_loop(_fill_keyed, terminal.bootstrap, topic, 0)
    usual = batch_files.resume

    def resume(path: Path, first: int) -> Tally:
        trio.from_thread.run(_fill_keyed, terminal.bootstrap, topic, 1_000)
        return usual(path, first)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_files, "resume", resume)
        done = terminal.json(f"topic export {topic} --to {tmp_path / 'b'}")
    assert done["records"] == 100
    assert in_a_loop(_count, terminal.bootstrap, topic) == 300


async def _count(bootstrap: str, topic: str) -> int:
    async with Admin(bootstrap, client=ClientConfig()):
        return sum(len(some) for some in (await _read(bootstrap, topic)).values())
