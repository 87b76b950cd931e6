"""Batch reads without a session, from our nodes and from a broker that is not ours."""

import logging
import pickle
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.sql.datasource import (
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from pyspark_evenkeel.client import fetching, patience
from pyspark_evenkeel.client.cluster import Cluster, Place
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    ConfigurationError,
    DamagedError,
    DataLossError,
    RefusedError,
    UnavailableError,
)
from pyspark_evenkeel.offsets import Range
from pyspark_evenkeel.read import planning
from pyspark_evenkeel.read.pushdown import Wanted
from tests.pyspark_evenkeel.read.reading_scenery import (
    batch,
    close_all,
    offsets_by_place,
    ranges,
    rows,
)
from tests.spark.bus import Bus, OurBus
from wire.error_codes import ErrorCode
from wire.records.batch import HEADER_BYTES, LOG_OVERHEAD_BYTES, Record, parse_header
from wire.records.batch_writer import build_batch
from wire.records.spans import rebuilt

pytestmark = pytest.mark.cluster

PARTITIONS = 3
PER_PARTITION = 400
CONTENTS = {
    partition: [
        (b"k%d" % n if n % 3 else None, b"v%d.%d" % (partition, n)) for n in range(PER_PARTITION)
    ]
    for partition in range(PARTITIONS)
}


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_all()


@pytest.fixture(scope="module", params=["bus", "foreign"])
def kafka(request: pytest.FixtureRequest) -> Bus:
    found: Bus = request.getfixturevalue(request.param)
    return found


@pytest.fixture(scope="module")
def topic(kafka: Bus) -> str:
    """Written by librdkafka, and read by us."""
    name = kafka.create("read", PARTITIONS) if isinstance(kafka, OurBus) else "read"
    kafka.produce(name, CONTENTS)
    return name


def told(found: list[dict[str, Any]]) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    pairs: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    for row in found:
        pairs.setdefault(row["partition"], []).append((row["key"], row["value"]))
    return pairs


def test_what_was_produced_is_read(kafka: Bus, topic: str) -> None:
    reader = batch(kafka, topic)
    tasks = reader.partitions()
    found = rows(pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(tasks)))
    assert told(found) == CONTENTS
    assert offsets_by_place(found) == {
        (topic, partition): list(range(PER_PARTITION)) for partition in range(PARTITIONS)
    }
    assert {row["timestampType"] for row in found} == {0}
    assert all(abs(time.time() - row["timestamp"].timestamp()) < 600 for row in found)


def test_committed_records_only(kafka: Bus, topic: str) -> None:
    """Without transactions that is everything, up to the last stable offset."""
    reader = batch(kafka, topic, **{"kafka.isolation.level": "read_committed"})
    assert told(rows(reader, reader.partitions())) == CONTENTS


def test_ranges_are_split_and_packed_as_told(kafka: Bus, topic: str) -> None:
    whole = [(one, 0, PER_PARTITION) for one in range(PARTITIONS)]
    existing = [one for one in ranges(batch(kafka, topic).partitions()) if one[0] < PARTITIONS]
    assert existing == whole
    small = batch(kafka, topic, maxRecordsPerPartition="150")
    assert len(small.partitions()) == 3 * PARTITIONS
    few = batch(kafka, topic, maxPartitions="2", maxRecordsPerPartition="150")
    assert len(few.partitions()) == 2
    for reader in (small, few):
        assert {
            key: len(set(offsets))
            for key, offsets in offsets_by_place(rows(reader, reader.partitions())).items()
        } == {(topic, one): PER_PARTITION for one in range(PARTITIONS)}


def test_from_and_to_where_one_says(kafka: Bus, topic: str) -> None:
    start = f'{{"{topic}":{{"0":10,"1":-2}}}}'
    end = f'{{"{topic}":{{"0":17,"1":-1}}}}'
    assigned = f'{{"{topic}":[0,1]}}'
    reader = batch(kafka, topic, assign=assigned, startingOffsets=start, endingOffsets=end)
    assert ranges(reader.partitions()) == [(0, 10, 17), (1, 0, PER_PARTITION)]
    assert offsets_by_place(rows(reader, reader.partitions()[:1])) == {
        (topic, 0): list(range(10, 17))
    }


def test_offsets_of_other_partitions_are_refused(kafka: Bus, topic: str) -> None:
    assigned = f'{{"{topic}":[0,1]}}'
    for partitions, said in (("0", f"{topic}/1 is not among them"), ("012", f"{topic}/2 is not")):
        each = ",".join(f'"{one}":0' for one in partitions)
        reader = batch(kafka, topic, assign=assigned, startingOffsets=f'{{"{topic}":{{{each}}}}}')
        with pytest.raises(ConfigurationError, match=said):
            reader.partitions()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors come soon: a new leader or a new topic is given little time."""
    monkeypatch.setattr(fetching, "DOUBTFUL_MS", 600)
    monkeypatch.setattr(patience, "UNKNOWN_MS_MAX", 200)


@pytest.mark.usefixtures("impatient")
def test_what_does_not_exist_is_said(bus: OurBus) -> None:
    with pytest.raises(RefusedError, match="topic 'nowhere' cannot be used: UNKNOWN_TOPIC"):
        batch(bus, "nowhere").partitions()
    few = bus.create("few", 2)
    with pytest.raises(ConfigurationError, match=f"no partition {few}/7: its topic has 2"):
        batch(bus, few, assign=f'{{"{few}":[7]}}').partitions()


def test_topics_by_pattern(bus: OurBus) -> None:
    """The whole name must match; a pattern that matches nothing reads nothing."""
    one, _other = bus.create("pattern-a", 1), bus.create("not-pattern-a", 1)
    two = bus.create("pattern-b", 1)
    for name in (one, two):
        bus.produce(name, {0: [(None, b"x")]})
    reader = batch(bus, "", subscribePattern="pattern-.*")
    assert offsets_by_place(rows(reader, reader.partitions())) == {(one, 0): [0], (two, 0): [0]}
    assert batch(bus, "", subscribePattern="pattern").partitions() == []


def test_pitfall_7_where_there_is_nothing_to_read(kafka: Bus, topic: str) -> None:
    """Without any task, Spark makes one up and passes it to read()."""
    reader = batch(kafka, topic)
    assert rows(reader, [InputPartition(None)]) == []


# -- times ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def timed(bus: OurBus) -> str:
    """Records of the seconds 0 to 9, except that offset 5 is of second 1."""
    name = bus.create("timed", 1)
    times = [1000 * (1 if n == 5 else n) for n in range(10)]
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap)) as cluster:
        for n, timestamp_ms in enumerate(times):
            record = Record(b"%d" % n, timestamp_ms=1_700_000_000_000 + timestamp_ms)
            cluster.produce(Place(name, 0), build_batch([record]))
    return name


BEGAN = 1_700_000_000_000


def test_from_and_to_a_time(bus: OurBus, timed: str) -> None:
    since = str(BEGAN + 2500)
    reader = batch(bus, timed, startingTimestamp=since, endingTimestamp=str(BEGAN + 7000))
    assert ranges(reader.partitions()) == [(0, 3, 7)]
    each = f'{{"{timed}":{{"0":{since}}}}}'
    assert ranges(batch(bus, timed, startingOffsetsByTimestamp=each).partitions()) == [(0, 3, 10)]
    late = str(BEGAN + 60_000)
    assert ranges(batch(bus, timed, endingTimestamp=late).partitions()) == [(0, 0, 10)]
    with pytest.raises(ConfigurationError, match=f"no record of {timed}/0 is as new"):
        batch(bus, timed, startingTimestamp=late).partitions()
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch(bus, timed, startingTimestamp=late, **latest).partitions() == []


# -- filters --------------------------------------------------------------------------------------


def pushed(kafka: Bus, topic: str, *filters: Filter) -> list[tuple[int, int, int]]:
    reader = batch(kafka, topic, pushdown="true")
    assert reader.pushFilters(filters) == filters, "Spark looks at each row again"
    return ranges(reader.partitions())


def test_filters_narrow_the_ranges(bus: OurBus, timed: str) -> None:
    offset, time_ = ("offset",), ("timestamp",)
    assert pushed(bus, timed, GreaterThan(offset, 3), LessThan(offset, 6)) == [(0, 3, 7)]
    assert pushed(bus, timed, In(offset, (4, 8)), LessThanOrEqual(offset, 100)) == [(0, 4, 9)]
    assert pushed(bus, timed, EqualTo(("topic",), "another")) == []
    assert pushed(bus, timed, In(("partition",), (0, 5)), IsNotNull(offset)) == [(0, 0, 10)]
    assert pushed(bus, timed, In(("partition",), (3, 5))) == []
    since = datetime.fromtimestamp(BEGAN / 1000 + 3, UTC)
    assert pushed(bus, timed, GreaterThanOrEqual(time_, since)) == [(0, 3, 10)]
    assert pushed(bus, timed, LessThan(time_, since)) == [(0, 0, 10)], "5 is older than 4"
    late = datetime.fromtimestamp(BEGAN / 1000 + 100, UTC)
    assert pushed(bus, timed, GreaterThan(time_, late)) == []
    assert pushed(bus, timed, Not(EqualTo(offset, 3)), EqualTo(("value",), b"3")) == [(0, 0, 10)]


def test_no_row_that_can_pass_is_cut_off() -> None:
    """Null and times without a zone cannot be pushed down: everything is read."""
    a, b = Place("a", 0), Place("b", 1)
    both = [Range(a, 5, 10), Range(b, 0, 100)]
    nothing_said = [
        EqualTo(("offset",), None),
        In(("partition",), ()),
        GreaterThan(("timestamp",), datetime(2020, 1, 1)),  # noqa: DTZ001
        GreaterThan(("headers", "key"), "x"),
    ]
    wanted = Wanted.of(nothing_said)
    assert wanted.ranges(both) == both
    assert wanted.since_ms is None
    some = Wanted.of([GreaterThan(("topic",), "a"), LessThan(("partition",), 9)])
    assert some.ranges(both) == both
    assert Wanted.of([LessThan(("topic",), "b"), EqualTo(("topic",), "b")]).ranges(both) == [
        both[1]
    ]
    assert wanted.recent(both, {a: 7, b: -1}) == [Range(a, 7, 10)]


def test_a_reader_pushes_only_if_it_is_told_to(kafka: Bus, topic: str) -> None:
    """Spark checks in this way whether a reader defines pushFilters, and fails every read of one
    that does while its own setting is off (spark.md 2)."""
    plain, pushing = batch(kafka, topic), batch(kafka, topic, pushdown="true")
    for reader in (plain, pushing):
        function = getattr(reader.pushFilters, "__func__", None)
        assert function is DataSourceReader.pushFilters


# -- lost data ------------------------------------------------------------------------------------


def test_pitfall_9_what_the_log_has_not_got_any_more_is_an_error(
    bus: OurBus, caplog: pytest.LogCaptureFixture
) -> None:
    """A task that was planned before retention neither ends early nor skips silently."""
    name = bus.create("lossy", 1)
    bus.produce(name, CONTENTS | {1: [], 2: []}, **{"batch.num.messages": 10})
    strict, lenient = batch(bus, name), batch(bus, name, failOnDataLoss="false")
    tasks = strict.partitions()
    bus.forget(name, 0, 120)
    with pytest.raises(DataLossError, match="the log begins at 120") as caught:
        rows(strict, tasks)
    assert pickle.loads(pickle.dumps(caught.value)).log_start == 120
    with caplog.at_level(logging.WARNING):
        found = rows(lenient, tasks)
    assert offsets_by_place(found) == {(name, 0): list(range(120, PER_PARTITION))}
    assert "going on, as failOnDataLoss is false" in caplog.text


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("count", [3, 5, 20])
def test_what_was_planned_is_not_read_of_another_topic_of_the_name(
    bus: OurBus, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """However long it is: the rows of one query would be of two topics, or all of the wrong one."""
    name = bus.create("replaced", 1)
    bus.produce(name, {0: [(None, b"old")] * 5})
    strict, lenient = batch(bus, name), batch(bus, name, failOnDataLoss="false")
    tasks = strict.partitions()
    bus.delete(name)
    bus.cluster.create_topic(name, 1)
    bus.produce(name, {0: [(None, b"new")] * count})
    with pytest.raises(DataLossError, match="the topic was deleted and recreated") as caught:
        rows(strict, tasks)
    assert pickle.loads(pickle.dumps(caught.value)).replaced
    with caplog.at_level(logging.WARNING):
        assert rows(lenient, tasks) == []
    assert "going on, as failOnDataLoss is false" in caplog.text
    assert len(rows(strict, strict.partitions())) == count, "planned anew it is the new topic's"


@pytest.mark.parametrize("times", [1, planning.TURNS_MAX])
def test_a_query_is_planned_of_one_topic(
    bus: OurBus, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Its start is from the old topic, its end would be from the new one: it is planned again."""
    name = bus.create("between", 1)
    bus.produce(name, {0: [(None, b"old")] * 9})
    bus.forget(name, 0, 6)
    plain_ends, left = planning.ends, [times]

    def ends(*asked: Any) -> Any:
        if left[0]:
            left[0] -= 1
            bus.delete(name)
            bus.cluster.create_topic(name, 1)
            bus.produce(name, {0: [(None, b"new")] * 20})
        return plain_ends(*asked)

    monkeypatch.setattr(planning, "ends", ends)
    reader = batch(bus, name)
    if times == planning.TURNS_MAX:
        with pytest.raises(UnavailableError, match=r"cannot be planned: .* recreated during"):
            reader.partitions()
    else:
        assert ranges(reader.partitions()) == [(0, 0, 20)]


@pytest.mark.usefixtures("impatient")
def test_pitfall_9_an_end_beyond_the_log_is_an_error(bus: OurBus) -> None:
    name = bus.create("short", 1)
    bus.produce(name, {0: [(None, b"x")] * 5})
    end = {"endingOffsets": f'{{"{name}":{{"0":9}}}}'}
    strict, lenient = batch(bus, name, **end), batch(bus, name, failOnDataLoss="false", **end)
    with pytest.raises(DataLossError, match="the log ends at 5"):
        rows(strict, strict.partitions())
    assert len(rows(lenient, lenient.partitions())) == 5


def test_pitfall_9_masters_that_move_make_no_difference(bus: OurBus) -> None:
    """Every task finds that its known leader has gone: same rows, once each."""
    name = bus.create("moving", 1)
    bus.produce(name, {0: CONTENTS[0]})
    reader = batch(bus, name, minPartitions="3")
    found = []
    try:
        for node, task in enumerate(reader.partitions(), start=1):
            bus.place_all_on(node)
            found += rows(reader, [task])
    finally:
        bus.spread()
    assert told(found) == {0: CONTENTS[0]}


def test_records_that_are_none_are_told_with_their_place(
    bus: OurBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A producer wrote nonsense with a right checksum, when nodes did not yet check records."""
    name = bus.create("nonsense", 1)
    good = build_batch([Record(b"good")])
    payload = bytes([12]) + bytes(6)  # a record of six bytes, with a key of none and then some
    header = parse_header(memoryview(good))
    wrong = header._replace(batch_length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload))
    with Cluster(ClusterSettings(bootstrap=bus.bootstrap)) as cluster:
        nonsense = rebuilt(wrong, payload[:-1] + b"\x05")
        assert cluster.produce(Place(name, 0), nonsense).error == ErrorCode.INVALID_RECORD
        assert cluster.produce(Place(name, 0), good).base_offset == 0
    split = fetching.split
    monkeypatch.setattr(
        fetching, "split", lambda _data, **more: split(memoryview(nonsense), **more)
    )
    reader = batch(bus, name, includeHeaders="true")
    with pytest.raises(
        DamagedError, match=f"{name}/0 from offset 0 on cannot be decoded"
    ) as caught:
        rows(reader, reader.partitions())
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
