"""archive and replay with a real bus: killed at every critical point, nothing is there twice and
nothing is missing; a replay gives back what was there."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pipeline.archive.check import check, compare
from pipeline.archive.compact import compact, keep_latest
from pipeline.archive.logic import ArchiveError, Kind, gaps, standing
from pipeline.archive.main import Taking, parser, run, source_options
from pipeline.archive.replay import replay
from pipeline.archive.replay_order import Order
from pipeline.archive.store import Archive
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL
from tests.spark.bus import OurBus, Row

pytestmark = [pytest.mark.spark, pytest.mark.cluster]
PARTITIONS = 3


class Killed(Exception):
    """As far as the archive can tell, the driver died at this point."""


@contextmanager
def killed_at(patch: pytest.MonkeyPatch, name: str, *, after: bool) -> Iterator[None]:
    """The first call of that method is the last thing done, or is already not done any more."""
    method: Callable[..., Any] = getattr(Archive, name)

    def fatal(self: Archive, *args: Any) -> None:
        if after:
            method(self, *args)
        raise Killed

    with patch.context() as inner:
        inner.setattr(Archive, name, fatal)
        yield


def archive_once(archive: Archive, bus: OurBus, topics: str, *words: str) -> None:
    """As the command line does it, in the tests' session."""
    given = ["--bootstrap", bus.bootstrap, "--topics", topics, "--to", archive.directory, *words]
    taking = Taking.into(archive, quiet)
    source = source_options(parser().parse_args(given))
    rows = archive.spark.readStream.format("evenkeel").options(**source).load()
    run(taking, rows, every_s=None)


def rows_of(number: int, count: int) -> list[Row]:
    return [(f"k{at % 7}".encode(), f"{number}-{at}".encode()) for at in range(count)]


def archived(archive: Archive) -> dict[int, list[Row]]:
    """Of the only topic; in order, and without a gap."""
    whole = standing(archive.pieces())
    compare(whole, archive, fully=True)
    assert gaps(whole) == []
    found: dict[int, list[Row]] = {}
    for row in archive.rows(whole).orderBy("partition", "offset").collect():
        there = found.setdefault(row["partition"], [])
        assert row["offset"] == len(there)
        there.append((bytes(row["key"]), bytes(row["value"])))
    return found


@pytest.fixture
def archive(spark: Any, tmp_path: Path) -> Archive:
    return Archive(spark, f"{tmp_path}/archive")


def quiet(_line: str) -> None:
    """Its output is tested elsewhere."""


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_job_that_dies_anywhere_archives_each_record_once(
    archive: Archive, bus: OurBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It dies when the data is there without a manifest, or when Spark does not know that all is
    done; also while more data comes in, and while pieces are merged. The replay then gives back
    what was there, although that job dies as well, with a round written but not noted."""
    topic = bus.create("kept", PARTITIONS)
    expected: dict[int, list[Row]] = {at: [] for at in range(PARTITIONS)}

    def more(number: int) -> None:
        rows = {at: rows_of(number, 20) for at in range(PARTITIONS)}
        bus.produce(topic, rows)
        for at, pairs in rows.items():
            expected[at] += pairs

    for number, point in enumerate(("write", "commit")):
        more(number)
        with killed_at(monkeypatch, point, after=True), pytest.raises(StreamingQueryException):
            archive_once(archive, bus, topic)
    archive_once(archive, bus, topic)
    assert len(archive.pieces()) == 2, "as many as micro-batches"
    with killed_at(monkeypatch, "commit", after=True), pytest.raises(Killed):
        compact(archive, quiet)
    kinds = [piece.kind for piece in archive.pieces()]
    assert kinds == [Kind.RAW, Kind.RAW, Kind.SORTED], "what was merged is there twice"
    replay_twice(archive, bus, topic, monkeypatch)
    assert [piece.kind for piece in archive.pieces()] == [Kind.SORTED]
    assert archived(archive) == expected


def replay_twice(archive: Archive, bus: OurBus, topic: str, patch: pytest.MonkeyPatch) -> None:
    """The first time it dies; pieces are merged before the second time."""
    again = bus.create("again", PARTITIONS)
    order = Order({topic: again}, rows_max=90)
    told: list[str] = []
    to = {"kafka.bootstrap.servers": bus.bootstrap}
    with killed_at(patch, "round_is_done", after=False), pytest.raises(Killed):
        replay(archive, order, to, told.append)
    compact(archive, quiet)
    replay(archive, order, to, told.append)
    assert bus.contents(again) == bus.contents(topic)
    assert any(" 0 of 2 rounds are done" in line for line in told), told
    replay(archive, order, to, told.append)
    assert " 2 of 2 rounds are done" in told[-1]
    with pytest.raises(ArchiveError, match=f"topics that are not empty: {again}"):
        replay(archive, order, to, told.append, name="another")


def test_a_replay_goes_on_only_into_the_topic_it_began_with(
    archive: Archive, bus: OurBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The finished rounds are not in a topic that was deleted and made again under its name."""
    topic, again = bus.create("first", 1), bus.create("second", 1)
    bus.produce(topic, {0: rows_of(0, 40)})
    archive_once(archive, bus, topic)
    order = Order({topic: again}, rows_max=20)
    to = {"kafka.bootstrap.servers": bus.bootstrap}
    with killed_at(monkeypatch, "round_is_done", after=True), pytest.raises(Killed):
        replay(archive, order, to, quiet, name="it")
    bus.delete(again)
    with pytest.raises(ArchiveError, match=f"topic {again} does not exist any more since replay"):
        replay(archive, order, to, quiet, name="it")
    bus.cluster.create_topic(again, 1)
    with pytest.raises(ArchiveError, match=f"topic {again} was deleted and made anew since"):
        replay(archive, order, to, quiet, name="it")
    replay(archive, order, to, quiet, name="anew")
    assert bus.contents(again) == bus.contents(topic)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_last_rows_of_keys_go_to_another_number_of_partitions(
    archive: Archive, bus: OurBus
) -> None:
    """A snapshot is made of the one before and the data since. Keys whose last value is null are
    gone; the key decides a row's partition. An archive that has lost rows is detected."""
    topic = bus.create("keyed", 1)
    bus.produce(topic, {0: [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2")]})
    archive_once(archive, bus, topic)
    keep_latest(archive, quiet)
    bus.produce(topic, {0: [(b"b", None), (b"c", b"2")]})
    archive_once(archive, bus, topic)
    keep_latest(archive, quiet)
    target = bus.create("compacted", 2)
    order = Order({topic: target}, by_key=True, latest_keys=True)
    replay(archive, order, {"kafka.bootstrap.servers": bus.bootstrap}, quiet)
    contents = bus.contents(target)
    assert sorted(row for rows in contents.values() for row in rows) == [(b"a", b"2"), (b"c", b"2")]
    by_client = bus.create("by-client", 2)
    unassigned = -1
    rows = {unassigned: [(b"a", b"2"), (b"c", b"2")]}
    bus.produce(by_client, rows, partitioner="murmur2_random")
    assert contents == bus.contents(by_client), "where Kafka's own clients put them"

    (piece,) = standing(archive.pieces())[:1]
    rows = archive.rows([piece])
    archive.write(archive.spark.createDataFrame(rows.take(3), rows.schema), piece)
    with pytest.raises(ArchiveError, match=f"{piece.name}, {topic}/0: 3 rows instead of 4"):
        check(archive, quiet, allow_gaps=False)
