"""Streaming reads without a session: the calls of Spark's engine, and restarts."""

import json
import logging
import time
from collections.abc import Iterator

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pyspark_evenkeel.client import fetching, patience
from pyspark_evenkeel.errors import ConfigurationError, DataLossError, GoneError, RefusedError
from pyspark_evenkeel.offsets import PLAN
from pyspark_evenkeel.read import streaming
from pyspark_evenkeel.read.streaming import TOPICS_AGAIN_S
from tests.pyspark_evenkeel.read.reading_scenery import (
    Clock,
    Offset,
    Stream,
    checkpointed,
    close_all,
    offsets_by_place,
    ranges,
    stream,
    with_clock,
)
from tests.spark.bus import WAIT_S, Bus, OurBus, Row

pytestmark = pytest.mark.cluster

EARLIEST = {"startingOffsets": "earliest"}
LENIENT = {"failOnDataLoss": "false"}


def some(count: int) -> list[Row]:
    return [(None, b"x")] * count


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
    """Four partitions with 40, 0, 25 and 1 records."""
    name = kafka.create("stream", 4) if isinstance(kafka, OurBus) else "stream"
    kafka.produce(name, {0: some(40), 2: some(25), 3: some(1)})
    return name


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors come soon: a new leader is given little time."""
    monkeypatch.setattr(streaming, "AGAIN_MAX", 1)
    monkeypatch.setattr(streaming, "AGAIN_AFTER_S", 0.05)
    monkeypatch.setattr(patience, "UNKNOWN_MS_MAX", 50)
    monkeypatch.setattr(fetching, "DOUBTFUL_MS", 600)


def places(topic: str, **counts: int) -> dict[tuple[str, int], list[int]]:
    """All offsets of that many records: places(t, p0=3)."""
    return {(topic, int(name[1:])): list(range(count)) for name, count in counts.items()}


# -- from one end to the next ---------------------------------------------------------------------


def test_everything_once_and_then_nothing(kafka: Bus, topic: str) -> None:
    query = stream(kafka, topic, **EARLIEST)
    assert isinstance(query.limit, ReadAllAvailable)
    end, batches = query.until_level(checkpointed(query.reader.initialOffset()))
    assert len(batches) == 1
    assert offsets_by_place(batches[0]) == places(topic, p0=40, p2=25, p3=1)
    assert query.reader.latestOffset(end, query.limit) == end, "so Spark runs no micro-batch"


def test_a_limited_query_gets_there_in_small_steps(kafka: Bus, topic: str) -> None:
    query = stream(kafka, topic, maxOffsetsPerTrigger="10", **EARLIEST)
    assert query.limit == ReadMaxRows(10)
    _, batches = query.until_level(checkpointed(query.reader.initialOffset()))
    assert [len(rows) for rows in batches] == [10, 10, 10, 10, 10, 10, 6]
    assert len(offsets_by_place(batches[0])) == 3, "no queue waits for a longer one"
    together = offsets_by_place(row for rows in batches for row in rows)
    assert together == places(topic, p0=40, p2=25, p3=1)


def test_lag_is_told(kafka: Bus, topic: str) -> None:
    query = stream(kafka, topic, maxOffsetsPerTrigger="1", **EARLIEST)
    assert query.reader.reportLatestOffset() is None
    query.after(query.reader.initialOffset())
    told = query.reader.reportLatestOffset() or {}
    assert {key: told[topic][key] for key in "0123"} == {"0": 40, "1": 0, "2": 25, "3": 1}


def test_from_where_one_says(kafka: Bus, topic: str) -> None:
    start = f'{{"{topic}":{{"0":38,"2":-1,"3":-2}}}}'
    assigned = f'{{"{topic}":[0,2,3]}}'
    query = stream(kafka, topic, assign=assigned, startingOffsets=start)
    _, batches = query.until_level(query.reader.initialOffset())
    assert offsets_by_place(batches[0]) == {(topic, 0): [38, 39], (topic, 3): [0]}


def test_pitfall_1_the_initial_offset_is_the_same_when_spark_asks_again(bus: OurBus) -> None:
    """With `latest` the second answer was 27,000 higher: the start was above its end."""
    name = bus.create("live", 1)
    query = stream(bus, name)
    first = checkpointed(query.reader.initialOffset())
    bus.produce(name, {0: some(5)})
    assert query.reader.initialOffset() == first
    end = query.after(first)
    assert ranges(query.reader.partitions(query.reader.initialOffset(), end)) == [(0, 0, 5)]


def test_pitfall_1_latest_is_where_it_was_after_a_death_in_batch_0(bus: OurBus) -> None:
    """The checkpoint has batch 0's end but not its start, which a new process looks up again."""
    name = bus.create("pinned", 2)
    bus.produce(name, {0: some(7)})
    first = stream(bus, name)
    start = first.reader.initialOffset()
    bus.produce(name, {0: some(3), 1: some(2)})
    written = first.after(start)
    bus.produce(name, {0: some(100)})

    again = stream(bus, name)
    found_later = again.reader.initialOffset()
    assert found_later != start
    replayed = offsets_by_place(again.rows(found_later, written))
    assert replayed == {(name, 0): [7, 8, 9], (name, 1): [0, 1]}
    _, batches = again.until_level(written)
    assert [len(rows) for rows in batches] == [100]


def test_pitfall_1_latest_is_where_it_was_though_nothing_was_there_yet(bus: OurBus) -> None:
    """Batch 0 is empty then, and Spark keeps its end."""
    name = bus.create("pinned", 1)
    bus.produce(name, {0: some(7)})
    first = stream(bus, name)
    start = checkpointed(first.reader.initialOffset())
    assert first.after(start) == start
    bus.produce(name, {0: some(3)})

    again = stream(bus, name)
    assert again.rows(again.reader.initialOffset(), start) == []
    _, batches = again.until_level(start)
    assert [offsets_by_place(rows) for rows in batches] == [{(name, 0): [7, 8, 9]}]


def test_pitfall_5_commit_changes_nothing(kafka: Bus, topic: str) -> None:
    """It comes at the next trigger, never for the last micro-batch, and after a restart perhaps for
    one that is run again: a source that acts on it loses rows."""
    query = stream(kafka, topic, maxOffsetsPerTrigger="5", **EARLIEST)
    start = query.reader.initialOffset()
    end = query.after(start)
    further = query.after(end)
    before = ranges(query.reader.partitions(start, end))
    for told in (further, start, end):
        query.reader.commit(told)
    assert ranges(query.reader.partitions(start, end)) == before
    assert query.after(end) == further


def test_a_replayed_micro_batch_is_cut_as_it_was(kafka: Bus, topic: str) -> None:
    """Options changed since the restart apply to later micro-batches only."""
    cut = stream(kafka, topic, maxRecordsPerPartition="10", **EARLIEST)
    start = cut.reader.initialOffset()
    end = cut.after(start)
    packed = stream(kafka, topic, maxPartitions="1", **EARLIEST)
    again = packed.reader.partitions(packed.reader.initialOffset(), end)
    assert ranges(again) == ranges(cut.reader.partitions(start, end))
    assert len(again) == 4 + 3 + 1
    anew = packed.after(packed.reader.initialOffset())
    assert len(packed.reader.partitions(start, anew)) == 1


# -- triggers -------------------------------------------------------------------------------------


def test_available_now_ends_where_the_log_was(bus: OurBus) -> None:
    name = bus.create("now", 1)
    bus.produce(name, {0: some(8)})
    query = stream(bus, name, maxOffsetsPerTrigger="3", minOffsetsPerTrigger="3", **EARLIEST)
    query.reader.prepareForTriggerAvailableNow()
    start = query.reader.initialOffset()
    bus.produce(name, {0: some(50)})
    end, batches = query.until_level(start)
    assert [len(rows) for rows in batches] == [3, 3, 2], "two are too few, and all there will be"
    later = stream(bus, name, **EARLIEST)
    later.reader.prepareForTriggerAvailableNow()
    _, batches = later.until_level(end)
    assert [len(rows) for rows in batches] == [50]


def test_a_micro_batch_waits_until_it_is_worth_it(bus: OurBus) -> None:
    name = bus.create("few", 1)
    clock = Clock()
    options = {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "30s", **EARLIEST}
    query = with_clock(stream(bus, name, **options), clock)
    start = checkpointed(query.reader.initialOffset())
    assert query.after(start) == start
    bus.produce(name, {0: some(4)})
    clock.now += 100
    assert query.after(start) == start, "the delay counts from the first record on"
    clock.now += 29
    assert query.after(start) == start
    clock.now += 1
    end = query.after(start)
    assert end[name] == {"0": 4}
    bus.produce(name, {0: some(4)})
    assert query.after(end) == end, "the delay begins anew"
    clock.now += 30
    end = query.after(end)
    assert end[name] == {"0": 8}
    bus.produce(name, {0: some(10)})
    assert query.after(end)[name] == {"0": 18}


# -- topics that change ---------------------------------------------------------------------------


def places_in_time(
    query: Stream, clock: Clock, start: Offset, count: int
) -> dict[tuple[str, int], list[int]]:
    """What is read from `start` once that many partitions have records. A node may hear of new ones
    a moment later than the node that created them."""
    deadline = time.monotonic() + WAIT_S
    while True:
        clock.now += TOPICS_AGAIN_S
        _, batches = query.until_level(start)
        found = offsets_by_place(row for rows in batches for row in rows)
        if len(found) == count:
            return found
        assert time.monotonic() < deadline, found


def test_partitions_that_are_new_are_read_from_their_beginning(bus: OurBus) -> None:
    name = bus.create("growing", 1)
    clock = Clock()
    query = with_clock(stream(bus, name), clock)
    start, _ = query.until_level(checkpointed(query.reader.initialOffset()))
    bus.grow(name, 3)
    bus.produce(name, {0: some(1), 2: some(4)})
    _, soon = query.until_level(start)
    assert [offsets_by_place(rows) for rows in soon] == [{(name, 0): [0]}]
    found = places_in_time(query, clock, start, 2)
    assert found == {(name, 0): [0], (name, 2): [0, 1, 2, 3]}


def test_topics_that_are_new_are_read_from_their_beginning(bus: OurBus) -> None:
    clock = Clock()
    options = {"subscribePattern": "newcomer-.*"}
    query = with_clock(stream(bus, "", **options), clock)
    start = checkpointed(query.reader.initialOffset())
    assert query.after(start) == start, "nothing matches yet"
    name = bus.create("newcomer", 1)
    bus.produce(name, {0: some(3)})
    assert places_in_time(query, clock, start, 1) == places(name, p0=3)


def test_a_query_must_not_begin_with_a_partition_that_is_not_there(bus: OurBus) -> None:
    name = bus.create("few", 1)
    with pytest.raises(ConfigurationError, match=f"no partition {name}/1"):
        stream(bus, name, assign=f'{{"{name}":[0,1]}}').reader.initialOffset()


# -- lost data ------------------------------------------------------------------------------------


def begun(bus: OurBus, name: str, count: int, **options: str) -> tuple[Stream, dict[str, object]]:
    """A query that has read that many records of the only partition of a new topic."""
    bus.produce(name, {0: some(count)})
    query = stream(bus, name, **EARLIEST, **options)
    end, _ = query.until_level(checkpointed(query.reader.initialOffset()))
    return query, end


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_was_made_anew_is_a_loss(
    bus: OurBus, caplog: pytest.LogCaptureFixture
) -> None:
    """Its log ends before the position: a checkpoint without topic ids shows no more than that.
    Without failOnDataLoss the new topic is read from its start, also by a process that runs that
    micro-batch again."""
    name = bus.create("anew", 1)
    _, end = begun(bus, name, 9)
    replace(bus, name, 4)
    end = of_old(end)
    with pytest.raises(GoneError, match=r"was made anew, or cut: its log ends at 4, .* read to 9"):
        stream(bus, name).after(end)
    lenient = stream(bus, name, **LENIENT)
    with caplog.at_level(logging.WARNING):
        following = lenient.after(end)
    assert "going on, as failOnDataLoss is false" in caplog.text
    assert offsets_by_place(lenient.rows(end, following)) == places(name, p0=4)
    assert offsets_by_place(stream(bus, name).rows(end, following)) == places(name, p0=4)
    bus.produce(name, {0: some(2)})
    _, batches = stream(bus, name).until_level(following)
    assert [offsets_by_place(rows) for rows in batches] == [{(name, 0): [4, 5]}]


def replace(bus: OurBus, name: str, count: int, partitions: int = 1) -> None:
    """Another topic of the same name, with that many records."""
    bus.delete(name)
    bus.cluster.create_topic(name, partitions)
    bus.produce(name, dict.fromkeys(range(partitions), some(count)))


def of_old(offset: Offset) -> Offset:
    """As releases wrote it that did not know topic ids."""
    plan = {key: value for key, value in offset.get(PLAN, {}).items() if key != "topicIds"}
    positions = {key: value for key, value in offset.items() if key != PLAN}
    return positions | {PLAN: plan} if plan else positions


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("count", [0, 9, 30])
def test_another_topic_of_the_same_name_is_a_loss_however_long_it_is(
    bus: OurBus, caplog: pytest.LogCaptureFixture, count: int
) -> None:
    """Its offsets mean other records, even if it has as many of them or more."""
    name = bus.create("other", 1)
    _, end = begun(bus, name, 9)
    replace(bus, name, count)
    told = f"{name}/0 was deleted and made anew: it was read to 9 while another topic"
    with pytest.raises(GoneError, match=told) as caught:
        stream(bus, name).after(end)
    assert "set failOnDataLoss=false to go on" in str(caught.value)
    lenient = stream(bus, name, **LENIENT)
    with caplog.at_level(logging.WARNING):
        following, batches = lenient.until_level(end)
    assert [offsets_by_place(rows) for rows in batches] == [places(name, p0=count) if count else {}]
    assert caplog.text.count(told) == 1, "from then on the checkpoint has the new topic"
    bus.produce(name, {0: some(2)})
    _, batches = stream(bus, name).until_level(following)
    assert [offsets_by_place(rows) for rows in batches] == [{(name, 0): [count, count + 1]}]


@pytest.mark.usefixtures("impatient")
def test_another_topic_with_fewer_or_more_partitions_is_read_from_its_beginning(
    bus: OurBus,
) -> None:
    name = bus.create("width", 2)
    bus.produce(name, {0: some(3), 1: some(3)})
    end, _ = stream(bus, name, **EARLIEST).until_level(
        checkpointed(stream(bus, name, **EARLIEST).reader.initialOffset())
    )
    for partitions in (1, 3):
        replace(bus, name, 5, partitions)
        with pytest.raises(GoneError, match=f"{name}/0.* was deleted and made anew"):
            stream(bus, name).after(end)
        end, batches = stream(bus, name, **LENIENT).until_level(end)
        expected = {(name, number): list(range(5)) for number in range(partitions)}
        assert [offsets_by_place(rows) for rows in batches] == [expected]


@pytest.mark.usefixtures("impatient")
def test_a_micro_batch_that_is_run_again_reads_nothing_of_another_topic(
    bus: OurBus, caplog: pytest.LogCaptureFixture
) -> None:
    """Its ends are those of the former topic. The next micro-batch reads what the new one has."""
    name = bus.create("planned", 1)
    query, start = begun(bus, name, 3)
    bus.produce(name, {0: some(4)})
    end = query.after(start)
    replace(bus, name, 20)
    with pytest.raises(DataLossError, match="the topic was deleted and recreated") as caught:
        stream(bus, name).rows(start, end)
    assert caught.value.replaced
    lenient = stream(bus, name, **LENIENT)
    lenient.reader.prepareForTriggerAvailableNow()
    with caplog.at_level(logging.WARNING):
        assert lenient.rows(start, end) == []
    assert "going on, as failOnDataLoss is false" in caplog.text
    _, batches = lenient.until_level(end)
    assert [offsets_by_place(rows) for rows in batches] == [places(name, p0=20)]


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_replaced_before_the_first_micro_batch_is_a_loss(bus: OurBus) -> None:
    """`latest` was an offset of the former topic."""
    name = bus.create("early", 1)
    bus.produce(name, {0: some(3)})
    start = checkpointed(stream(bus, name).reader.initialOffset())
    replace(bus, name, 8)
    with pytest.raises(GoneError, match="was deleted and made anew"):
        stream(bus, name).after(start)
    _, batches = stream(bus, name, **LENIENT).until_level(start)
    assert [offsets_by_place(rows) for rows in batches] == [places(name, p0=8)]


def test_a_checkpoint_without_topic_ids_gets_them_once(bus: OurBus) -> None:
    """With a micro-batch without rows if there is nothing new: otherwise a later replacement of the
    topic would go unnoticed. The release before can read what this one writes."""
    name = bus.create("upgraded", 1)
    _, end = begun(bus, name, 5)
    query = stream(bus, name)
    following = query.after(of_old(end))
    assert of_old(following) == {name: {"0": 5}}
    assert query.rows(of_old(end), following) == []
    assert following[PLAN]["topicIds"].keys() == {name}
    assert query.after(following) == following


@pytest.mark.usefixtures("impatient")
def test_a_topic_that_is_gone_is_a_loss(bus: OurBus, caplog: pytest.LogCaptureFixture) -> None:
    """It is reported once: the next end does not contain it any more."""
    kept, name = bus.create("kept", 1), bus.create("gone", 1)
    both = {"subscribe": f"{kept},{name}"}
    query, end = begun(bus, name, 9, **both)
    bus.delete(name)
    bus.produce(kept, {0: some(1)})
    with pytest.raises(GoneError, match=f"{name}/0 does not exist any more"):
        query.after(end)
    lenient = stream(bus, name, **both, **LENIENT)
    with caplog.at_level(logging.WARNING):
        following = lenient.after(end)
        assert name not in following
        assert following[PLAN]["topicIds"].keys() == {kept}
        assert offsets_by_place(lenient.rows(end, following)) == places(kept, p0=1)
        assert lenient.after(following) == following
    assert caplog.text.count("does not exist any more") == 1


@pytest.mark.usefixtures("impatient")
def test_a_micro_batch_that_is_run_again_does_without_a_topic_that_is_gone(
    bus: OurBus, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end has the topic, and cannot be changed."""
    kept, name = bus.create("kept", 1), bus.create("gone", 1)
    both = {"subscribe": f"{kept},{name}"}
    bus.produce(kept, {0: some(2)})
    query, _ = begun(bus, name, 3, **both)
    start = checkpointed(query.reader.initialOffset())
    end = query.after(start)
    bus.delete(name)
    with pytest.raises(RefusedError, match=f"topic '{name}' cannot be used: UNKNOWN"):
        query.rows(start, end)
    lenient = stream(bus, name, **both, **LENIENT)
    lenient.reader.prepareForTriggerAvailableNow()
    assert offsets_by_place(lenient.rows(start, end)) == places(kept, p0=2)
    assert f"topic '{name}' cannot be used; going on" in caplog.text
    assert lenient.after(end)[kept] == {"0": 2}
    assert name not in lenient.after(end)


def test_a_new_topic_that_has_lost_its_beginning_is_a_loss(bus: OurBus) -> None:
    old = bus.create("older", 1)
    name = bus.create("matches", 1)
    bus.produce(name, {0: some(6)})
    bus.forget(name, 0, 4)
    end = {old: {"0": 0}}
    pattern = {"subscribePattern": f"{old}|{name}"}
    with pytest.raises(GoneError, match=f"{name}/0 is new: and its log begins at 4 instead of 0"):
        stream(bus, "", **pattern).after(end)
    lenient = stream(bus, "", **pattern, **LENIENT)
    following = lenient.after(end)
    assert offsets_by_place(lenient.rows(end, following)) == {(name, 0): [4, 5]}


def test_pitfall_9_retention_that_was_faster_is_a_loss(bus: OurBus) -> None:
    name = bus.create("slow", 1)
    query, end = begun(bus, name, 3)
    bus.produce(name, {0: some(5)})
    following = query.after(end)
    bus.forget(name, 0, 6)
    with pytest.raises(DataLossError, match=f"offsets 3 to 8 of {name}/0 .* begins at 6"):
        query.rows(end, following)
    lenient = stream(bus, name, **LENIENT)
    assert offsets_by_place(lenient.rows(end, following)) == {(name, 0): [6, 7]}


def test_another_source_s_checkpoint_is_refused(bus: OurBus) -> None:
    with pytest.raises(ConfigurationError, match="the checkpoint's offset cannot be read"):
        stream(bus, "any").after(json.loads('{"logOffset": 3}'))
