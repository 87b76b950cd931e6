"""A task that writes to real nodes and to a broker that is not ours, without Spark.

Micro-batches that are run again are written once; one that has changed is noticed.
"""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs
import pyarrow as pa
import pytest

from pyspark_evenkeel.client.cluster import LATEST, Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import ConfigurationError, RefusedError, ReplayError, RowError
from pyspark_evenkeel.options import Delivery, SinkOptions, Writer
from pyspark_evenkeel.write.sink import StreamWriter
from pyspark_evenkeel.write.task import Task, Written, write_task
from tests.spark.bus import Bus, OurBus
from wire.murmur import partition_of_key
from wire.records.batch import Compression, Record, iterate_records
from wire.records.compression import decompress

pytestmark = pytest.mark.cluster

SMALL = 2_000
"""Bytes per chunk: a dozen rows."""


class Failure(Exception):
    """Ends a task in the middle."""


def options(bus: Bus, topic: str | None, **changes: Any) -> SinkOptions:
    settings = ClusterSettings(bootstrap=bus.bootstrap, retry_ms=20_000, backoff_max_ms=50)
    return SinkOptions(cluster=settings, topic=topic, **changes)


def task(query: str, batch: int = 0, number: int = 0) -> Task:
    return Task(query, batch, number)


def table(rows: Sequence[tuple[bytes | None, bytes | None]], **columns: Any) -> Any:
    keys, values = zip(*rows, strict=True)
    made = {"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary()), **columns}
    return pa.RecordBatch.from_pydict(made)


def numbered(count: int, first: int = 0) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, b"row %05d " % n + b"." * 100) for n in range(first, first + count)]


def write(batches: Sequence[Any], how: SinkOptions, who: Task, fail_after: bool = False) -> Written:
    def given() -> Iterator[Any]:
        yield from batches
        if fail_after:
            raise Failure

    with Cluster(how.cluster) as cluster:
        return write_task(given(), how, who, lambda: cluster)


def records(bus: Bus, topic: str) -> dict[int, list[Record]]:
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap)) as cluster:
        places = [Place(topic, number) for number in range(cluster.topics([topic])[topic])]
        ends = cluster.offsets(dict.fromkeys(places, LATEST))
        return {
            place.partition: [
                record
                for batches in cluster.read(place, 0, ends[place].offset)
                for batch in batches
                for record in iterate_records(batch, decompress(batch, 1 << 26))
            ]
            for place in places
        }


def values(bus: Bus, topic: str) -> list[bytes | None]:
    return [one.value for each in records(bus, topic).values() for one in each]


# -- written rows ---------------------------------------------------------------------------------


def test_rows_as_they_are(bus: OurBus) -> None:
    """Null keys and values, empty ones, headers, times, partitions by key, by order and neither."""
    topic = bus.create("shapes", 4)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    keys = [None, b"", b"k1", b"k2", b"k1", None]
    made = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["ä", None, "", "one", "two", "three"]),
            "key": pa.array(keys, pa.binary()),
            "partition": pa.array([3, None, None, 0, None, None], pa.int32()),
            "headers": pa.array(
                [[("a", b"1"), ("a", None)], None, [], [("ü", b"")], None, None], headers
            ),
            "timestamp": pa.array([1_999, 2_000, 3_500_000, 0, 1, 2], pa.timestamp("us", "UTC")),
            "anything": pa.array([1] * 6),
        }
    )
    written = write([made.slice(0, 0), made], options(bus, topic), task("shapes", 6, 1))
    assert (written.rows, written.exactly_once, written.there_already) == (6, True, 0)
    keyless, k1, empty = 7 % 4, partition_of_key(b"k1", 4), partition_of_key(b"", 4)
    expected: dict[int, list[Record]] = {number: [] for number in range(4)}
    expected[3].append(Record("ä".encode(), None, 1, (("a", b"1"), ("a", None))))
    expected[empty].append(Record(None, b"", 2))
    expected[k1].append(Record(b"", b"k1", 3_500))
    expected[0].append(Record(b"one", b"k2", 0, (("ü", b""),)))
    expected[k1].append(Record(b"two", b"k1", 0))
    expected[keyless].append(Record(b"three", None, 0))
    found = records(bus, topic)
    assert {
        number: [one._replace(offset=-1) for one in each] for number, each in found.items()
    } == expected


def test_rows_say_themselves_where_they_go(bus: OurBus) -> None:
    one, two = bus.create("either", 1), bus.create("or", 2)
    made = table(numbered(4), topic=pa.array([one, two, two, one]))
    write([made], options(bus, None), task("topics"))
    assert len(values(bus, one)) == len(values(bus, two)) == 2


@pytest.mark.parametrize("codec", list(Compression))
def test_chunks_are_compressed(bus: OurBus, codec: Compression) -> None:
    topic = bus.create(f"codec-{codec.name.lower()}", 1)
    rows = numbered(200)
    written = write([table(rows)], options(bus, topic, compression=codec), task("codec"))
    assert values(bus, topic) == [value for _, value in rows]
    assert written.bytes < 200 * 100 / 4 or codec is Compression.NONE


def test_pitfall_6_abort_takes_nothing_back(bus: OurBus) -> None:
    """Spark calls it also on a plain stop, with None for tasks that had written. When the
    micro-batch is run again, its token identifies what is there."""
    topic = bus.create("aborted", 1)
    how = options(bus, topic, chunk_bytes=SMALL)
    first, second = table(numbered(30)), table(numbered(40, first=100))
    write([first], how, task("aborted", 3, 0))
    with pytest.raises(Failure):
        write([second], how, task("aborted", 3, 1), fail_after=True)
    before = values(bus, topic)
    assert len(before) >= 30
    StreamWriter(how).abort([None, None], 3)
    assert values(bus, topic) == before
    write([first], how, task("aborted", 3, 0))
    write([second], how, task("aborted", 3, 1))
    both = [value for _, value in (*numbered(30), *numbered(40, first=100))]
    assert Counter(values(bus, topic)) == Counter(both)


def test_without_rows_nobody_is_asked() -> None:
    how = options(Bus("127.0.0.1:1"), "anything")
    assert write([], how, task("empty")) == Written()
    assert write([table(numbered(1)).slice(0, 0)], how, task("empty")) == Written()


# -- refusals -------------------------------------------------------------------------------------


def test_what_cannot_be_written_is_named(bus: OurBus) -> None:
    topic = bus.create("narrow", 2, {"max.message.bytes": "3000"})
    write_it = partial(write, who=task("refused"))
    with pytest.raises(RowError, match=rf"partition 2 of topic '{topic}'.*it has 2 partitions"):
        write_it([table(numbered(1), partition=pa.array([2], pa.int32()))], options(bus, topic))
    with pytest.raises(RowError, match=rf"row of 4,\d+ bytes .*'{topic}'.*max.*bytes is 3000"):
        write_it([table([(None, b"x" * 4_000)])], options(bus, topic))
    with pytest.raises(RowError, match=r"chunk of 50 rows.*3000.*chunkBytes 1,000,000.*set chunk"):
        write_it([table(numbered(50))], options(bus, topic))
    assert values(bus, topic) == []
    write_it([table(numbered(50))], options(bus, topic, chunk_bytes=3_000))
    assert len(values(bus, topic)) == 50


def test_a_topic_that_does_not_exist(bus: OurBus) -> None:
    how = options(bus, "nobody-has-made-this")
    how = attrs.evolve(how, cluster=attrs.evolve(how.cluster, retry_ms=300))
    with pytest.raises(RefusedError, match=r"'nobody-has-made-this'.*UNKNOWN_TOPIC.*create"):
        write([table(numbered(1))], how, task("unknown"))


def test_one_writer_for_each_destination(bus: OurBus) -> None:
    """The guarantee of writer=destination is checked: here task 0 of 2 may write to every other
    one."""
    topic = bus.create("owned", 4)
    how = options(bus, topic, writer=Writer.DESTINATION, writers=2)
    rows = table(numbered(4), partition=pa.array([0, 2, 0, 2], pa.int32()))
    who = {write_by(bus, how, rows, number) for number in range(2)}
    assert who == {"written", "refused"}
    assert len(values(bus, topic)) == 4
    both = table(numbered(2), partition=pa.array([0, 1], pa.int32()))
    assert {write_by(bus, how, both, number) for number in range(2)} == {"refused"}


def write_by(bus: OurBus, how: SinkOptions, rows: Any, number: int) -> str:
    try:
        write([rows], how, task("owned", number=number))
    except ConfigurationError as error:
        return "refused" if "only one task" in error.why else str(error)
    return "written"


# -- exactly once ---------------------------------------------------------------------------------


@pytest.mark.parametrize("chunk_bytes", [1_000_000, SMALL], ids=["one chunk", "many chunks"])
def test_what_is_run_again_is_written_once(bus: OurBus, chunk_bytes: int) -> None:
    """Whole, in part, before and after it was complete, and in other Arrow batches."""
    topic = bus.create("again", 2)
    how = options(bus, topic, chunk_bytes=chunk_bytes)
    expected: list[bytes | None] = []
    for number in range(3):
        rows = numbered(100, 1000 * number)
        who = task("again", number)
        with pytest.raises(Failure):
            write([table(rows[:40]), table(rows[40:70])], how, who, fail_after=True)
        first = write([table(rows[:55]), table(rows[55:])], how, who)
        again = write([table(rows)], how, who)
        assert again.there_already == again.chunks == first.chunks
        assert bool(first.there_already) == (chunk_bytes == SMALL)
        expected += [value for _, value in rows]
    assert Counter(values(bus, topic)) == Counter(expected)


def test_a_run_of_long_ago_writes_nothing_any_more(bus: OurBus) -> None:
    """A task of an executor that was given up still runs."""
    topic = bus.create("late", 1)
    how = options(bus, topic)
    for number in (0, 1):
        write([table(numbered(5, number))], how, task("late", number))
    late = write([table(numbered(500, 7))], attrs.evolve(how, chunk_bytes=SMALL), task("late", 0))
    assert late.there_already == late.chunks > 1
    assert len(values(bus, topic)) == 10


def test_other_tasks_other_queries_and_more_partitions_are_others(bus: OurBus) -> None:
    """Their rows are not taken for rows already written."""
    topic = bus.create("others", 1)
    rows = [table(numbered(1))]
    for who in (task("q", 0, 0), task("q", 0, 1), task("p", 0, 0), task("q", 1, 0)):
        assert write(rows, options(bus, topic), who).there_already == 0
    assert len(values(bus, topic)) == 4


def test_in_a_topic_that_has_grown_meanwhile_rows_are_written_again(bus: OurBus) -> None:
    """With more partitions they go elsewhere: for the rows of one run, twice is better than
    never."""
    topic = bus.create("grown", 2)
    rows = [(b"key %d" % n, b"row %d" % n) for n in range(100)]
    with pytest.raises(Failure):
        write([table(rows)], options(bus, topic, chunk_bytes=SMALL), task("grown"), fail_after=True)
    some = len(values(bus, topic))
    bus.grow(topic, 3)
    written = write([table(rows)], options(bus, topic, chunk_bytes=SMALL), task("grown"))
    assert written.there_already == 0
    found = Counter(values(bus, topic))
    assert Counter(found.values()) == {1: 100 - some, 2: some}
    assert records(bus, topic)[2], "the new partition is used"


CHANGES = {
    "other rows": lambda rows: [*rows[:3], (None, b"another"), *rows[4:]],
    "a row less": lambda rows: rows[:3] + rows[4:],
    "rows on top": lambda rows: rows + numbered(40, 5000),
    "another key": lambda rows: [(b"key", rows[0][1]), *rows[1:]],
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("complete", [False, True], ids=["incomplete", "complete"])
@pytest.mark.parametrize("chunk_bytes", [1_000_000, SMALL], ids=["one chunk", "many chunks"])
def test_a_run_with_other_rows_is_noticed(
    bus: OurBus, change: str, complete: bool, chunk_bytes: int
) -> None:
    """Otherwise rows would be lost, or doubled, silently."""
    topic = bus.create("changed", 1)
    how = options(bus, topic, chunk_bytes=chunk_bytes)
    rows = numbered(50)
    if complete:
        write([table(rows)], how, task("changed"))
    else:
        with pytest.raises(Failure):
            write([table(rows)], how, task("changed"), fail_after=True)
    before = values(bus, topic)
    changed = [table(CHANGES[change](rows))]
    if not before:
        write(changed, how, task("changed"))
        return
    if change == "rows on top" and not complete:
        write(changed, how, task("changed"))  # nobody can know that the first run had fewer
        assert len(values(bus, topic)) == 90
        return
    with pytest.raises(ReplayError, match=r"micro-batch 0 of changed.*writeId") as caught:
        write(changed, how, task("changed"))
    assert topic in str(caught.value)
    assert write(changed, how, task("changed/2")).there_already == 0


def test_the_same_rows_in_another_order_are_the_same(bus: OurBus) -> None:
    """After a shuffle, say. In an incomplete micro-batch they are not: rows would be lost."""
    topic = bus.create("shuffled", 1)
    how = options(bus, topic, chunk_bytes=SMALL)
    rows = numbered(50)
    shuffled = random.Random(1).sample(rows, len(rows))
    write([table(rows)], how, task("shuffled"))
    written = write([table(shuffled)], how, task("shuffled"))
    assert 1 < written.there_already == written.chunks <= 5
    assert len(values(bus, topic)) == 50
    with pytest.raises(Failure):
        write([table(rows)], how, task("shuffled", 1), fail_after=True)
    with pytest.raises(ReplayError, match=f"first run has written to {topic}/1|{topic}/0"):
        write([table(shuffled)], how, task("shuffled", 1))


def test_what_was_deleted_since_cannot_be_compared(bus: OurBus) -> None:
    topic = bus.create("deleted", 1)
    how = options(bus, topic)
    write([table(numbered(5))], how, task("deleted"))
    bus.forget(topic, 0, 5)
    assert write([table(numbered(6))], how, task("deleted")).there_already == 1


def test_memory_that_is_short_changes_nothing(bus: OurBus) -> None:
    """Chunks go out early, with the last row of each kept back; a second run recognises them."""
    topic = bus.create("tight", 8)
    how = options(bus, topic, buffer_bytes=100_000)
    rows = [(b"key %d" % (n % 97), b"row %05d " % n + b"." * 80) for n in range(20_000)]
    first = write([table(rows[:9000]), table(rows[9000:])], how, task("tight"))
    assert first.chunks > 10
    again = write([table(rows)], how, task("tight"))
    assert again.there_already == again.chunks == first.chunks
    assert Counter(values(bus, topic)) == Counter(value for _, value in rows)


# -- at least once --------------------------------------------------------------------------------


def test_a_foreign_broker_gets_rows_at_least_once(foreign: Bus) -> None:
    foreign.produce("foreign", {3: [(None, b"that is how a topic is made there")]})
    rows = numbered(100)
    for _ in range(2):
        written = write([table(rows)], options(foreign, "foreign", chunk_bytes=SMALL), task("f"))
        assert not written.exactly_once
        assert (written.there_already, written.chunks > 5) == (0, True)
    found = Counter(values(foreign, "foreign"))
    assert {found[value] for _, value in rows} == {2}
    how = options(foreign, "foreign", delivery=Delivery.EXACTLY_ONCE)
    with pytest.raises(ConfigurationError, match=r"exactly once.*delivery=at-least-once"):
        write([table(rows)], how, task("f"))


def test_at_least_once_when_it_is_asked_for(bus: OurBus) -> None:
    topic = bus.create("plain", 1)
    how = options(bus, topic, delivery=Delivery.AT_LEAST_ONCE, chunk_bytes=SMALL)
    for _ in range(2):
        assert not write([table(numbered(50))], how, task("plain")).exactly_once
    assert len(values(bus, topic)) == 100
