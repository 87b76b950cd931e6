"""ListOffsets in real frames: begin, end, and times."""

from typing import Any

import pytest

from balancer.registry.commands import ConfigureTopic, DeleteTopic
from broker.handlers.records.list_offsets import (
    AT_ONCE_BYTES_MAX,
    AT_ONCE_RECORDS,
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    SEARCH_MS_MAX,
    TO_BE_TIERED,
)
from tests.broker.batches import START_MS, batch, timed
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.records.batch import HEADER_BYTES, Compression, parse_header
from wire.records.spans import rebuilt


@pytest.fixture
def world() -> DataWorld:
    """Records at ms 0, 1, 2 / 100, 101 / 50, 51: the producer's clock was set back."""
    world = DataWorld()
    for values, at_ms in [("abc", 0), ("de", 100), ("fg", 50)]:
        world.produce(1, 0, batch(*values, at_ms=at_ms))
    return world


@pytest.mark.parametrize("version", range(1, 11))
def test_begin_and_end(world: DataWorld, version: int) -> None:
    for timestamp, offset in [(LATEST, 7), (EARLIEST, 0)]:
        answer = world.list_offsets(1, 0, timestamp, version=version)
        assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, offset, -1)
    world[1].machines[world.group(0)].partition(world.uid(0)).start_at(4)
    assert world.list_offsets(1, 0, EARLIEST, version=version).offset == 4


@pytest.mark.parametrize("tail", [True, False])
@pytest.mark.parametrize(
    ("ms", "offset", "at_ms"),
    [(-5, 0, 0), (0, 0, 0), (1, 1, 1), (3, 3, 100), (100, 3, 100), (101, 4, 101)],
)
def test_the_first_record_that_is_not_earlier(
    world: DataWorld, tail: bool, ms: int, offset: int, at_ms: int
) -> None:
    if not tail:
        world[1].tail.drop(world.uid(0))
    answer = world.list_offsets(1, 0, START_MS + ms)
    assert (answer.offset, answer.timestamp) == (offset, START_MS + at_ms)
    assert answer.leader_epoch == world.cluster.epochs[world.group(0)]


def test_nothing_as_late_as_that(world: DataWorld) -> None:
    answer = world.list_offsets(1, 0, START_MS + 102)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, -1, -1)


def test_the_record_with_the_greatest_timestamp(world: DataWorld) -> None:
    answer = world.list_offsets(1, 0, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (4, START_MS + 101)
    assert world.list_offsets(1, 1, MAX_TIMESTAMP).offset == -1


LARGE = {"pad": AT_ONCE_BYTES_MAX // 3}
MANY = AT_ONCE_RECORDS + 1


@pytest.mark.parametrize("shape", [{}, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("codec", Compression)
def test_whatever_the_codec_and_the_size(
    world: DataWorld, codec: Compression, shape: dict[str, int]
) -> None:
    """A bug returned the beginning of batches of snappy, LZ4 and Zstandard, and of batches of a
    megabyte."""
    world.produce(1, 0, timed([500, 502, 501, 503], compression=codec, **shape))
    found = [world.list_offsets(1, 0, START_MS + ms) for ms in (500, 501, 502, 503, 504)]
    assert [one.offset for one in found] == [7, 8, 8, 10, -1]
    assert [one.timestamp - START_MS for one in found[:4]] == [500, 502, 502, 503]
    answer = world.list_offsets(1, 0, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (10, START_MS + 503)


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_batch_of_more_records_than_are_looked_at_at_once(
    world: DataWorld, codec: Compression
) -> None:
    world.produce(1, 0, timed(range(1_000, 1_000 + MANY), compression=codec))
    world[1].background.done = world[1].background.rests = 0
    answer = world.list_offsets(1, 0, START_MS + 1_000 + MANY - 2)
    assert answer.offset == 7 + MANY - 2
    assert world[1].background.done == 1
    assert world[1].background.rests >= MANY // 1_000, "it lets others go on"


def asked(world: DataWorld, times: dict[int, int], version: int = 7, **fields: Any) -> Asked:
    """One request for a time in each of these partitions."""
    rows = [ListOffsetsPartition(number, -1, time_ms) for number, time_ms in times.items()]
    request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, rows)], **fields)
    return world.send(1, request, version)


def rows_of(asked: Asked) -> list[tuple[ErrorCode, int]]:
    rows = asked.response.topics[0].partitions
    return [(ErrorCode(one.error_code), one.offset) for one in rows]


def test_an_answer_does_not_depend_on_what_else_is_asked(world: DataWorld) -> None:
    """A bug: of twelve partitions with a batch of 6,000 records each, the last ten began too
    early."""
    for partition in (1, 2, 3):
        world.produce(1, partition, timed(range(MANY)))
    world.produce(1, 0, timed(range(1_000, 1_000 + MANY), compression=Compression.ZSTD))
    together = asked(world, {0: START_MS + 1_007, **dict.fromkeys((1, 2, 3), START_MS + 77)})
    none = ErrorCode.NONE
    assert rows_of(together) == [(none, 14), (none, 77), (none, 77), (none, 77)]


def test_nothing_below_a_log_start_within_a_batch(world: DataWorld) -> None:
    """From the log and from cold data, at once and in the background; the whole batch is still
    there."""
    for partition, many, cold in [(1, 6, False), (2, MANY, False), (3, 6, True)]:
        world.produce(1, partition, timed([9, *range(1, many)]))
        world.produce(1, partition, timed([3, 2]))
        state = world[1].machines[world.group(partition)].partition(world.uid(partition))
        if cold:
            plan = state.copy_plan(1 << 60, 100)
            assert plan is not None
            world[1].cold.settle(plan, world[1].log.read_span)
            state.mark_tiered(plan.end)
        assert world.list_offsets(1, partition, START_MS + 2).offset == 0
        state.start_at(3)
        assert world.list_offsets(1, partition, EARLIEST).offset == 3
        assert world.list_offsets(1, partition, START_MS).offset == 3
        assert world.list_offsets(1, partition, START_MS + 2).offset == 3
        assert world.list_offsets(1, partition, START_MS + 5).offset == 5
        answer = world.list_offsets(1, partition, MAX_TIMESTAMP)
        assert (answer.offset, answer.timestamp) == (many - 1, START_MS + many - 1)
        state.start_at(many)
        assert world.list_offsets(1, partition, START_MS + 3).offset == many
        assert world.list_offsets(1, partition, START_MS + 4).offset == -1
        assert world.list_offsets(1, partition, MAX_TIMESTAMP).offset == many
        state.start_at(many + 2)
        assert world.list_offsets(1, partition, START_MS).offset == -1
        assert world.list_offsets(1, partition, MAX_TIMESTAMP).offset == -1


def test_of_the_records_with_the_greatest_timestamp_the_first(world: DataWorld) -> None:
    """Also where an earlier batch claims a greater timestamp than it has, or a later one has the
    same."""
    for data in [timed([5, 1], claim_ms=50), timed([2, 7, 7, 3]), timed([7]), timed([6])]:
        world.produce(1, 1, data)
    answer = world.list_offsets(1, 1, MAX_TIMESTAMP)
    assert (answer.offset, answer.timestamp) == (3, START_MS + 7)


def test_what_a_batch_claims_is_not_believed(world: DataWorld) -> None:
    """A producer states a batch's greatest timestamp, and compaction may have removed that
    record."""
    for data in [timed([5, 1], claim_ms=50), timed([2, 8], claim_ms=20), timed([30])]:
        world.produce(1, 1, data)
    found = [world.list_offsets(1, 1, START_MS + ms).offset for ms in (5, 6, 9, 31)]
    assert found == [0, 3, 4, -1]


def test_the_logs_own_time_is_that_of_every_record(world: DataWorld) -> None:
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"message.timestamp.type": "LogAppendTime"}))
    first = world.produce(1, 0, timed([1, 2, 3], compression=Compression.SNAPPY))
    time_ms = first.log_append_time_ms
    for asked_ms, offset in [(time_ms, 7), (time_ms - 1, 7), (time_ms + 1, -1)]:
        assert world.list_offsets(1, 0, asked_ms).offset == offset
    assert world.list_offsets(1, 0, MAX_TIMESTAMP).offset == 7


# -- while a search runs ----------------------------------------------------------------------


@pytest.fixture
def held(world: DataWorld) -> DataWorld:
    """Background work waits until the story says so; each partition but 0 has to be searched."""
    for partition in (1, 2, 3):
        world.produce(1, partition, timed(range(MANY)))
    world[1].background.held = True
    return world


LATE = START_MS + MANY - 1


def test_others_are_served_while_it_searches(held: DataWorld) -> None:
    long, short = asked(held, dict.fromkeys((1, 2, 3), LATE)), asked(held, {2: LATE})
    assert held.list_offsets(1, 1, LATEST).offset == MANY
    aside = held[1].background
    assert len(aside.jobs) == 1, "one batch at a time is held"
    aside.do_one()
    aside.do_one()
    assert rows_of(short) == [(ErrorCode.NONE, MANY - 1)], "in turns: one of the other was before"
    assert not long.settled
    aside.do_one()
    aside.do_one()
    assert rows_of(long) == [(ErrorCode.NONE, MANY - 1)] * 3
    assert not aside.jobs
    assert len(held[1].broker.search_queue) == 0
    held.advance(2 * SEARCH_MS_MAX, step_ms=SEARCH_MS_MAX)


@pytest.mark.parametrize(("fields", "wait_ms"), [({}, SEARCH_MS_MAX), ({"timeout_ms": 300}, 300)])
def test_what_is_not_found_in_time_is_said_to_be_unknown(
    held: DataWorld, fields: dict[str, int], wait_ms: int
) -> None:
    """It never guesses: clients ask again for the missing ones."""
    waiting = asked(held, dict.fromkeys((1, 2, 3), LATE), 10, **fields)
    held[1].background.do_one()
    held.advance(wait_ms - 10)
    assert not waiting.settled
    held.advance(20)
    timed_out = (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert rows_of(waiting) == [(ErrorCode.NONE, MANY - 1), timed_out, timed_out]
    held[1].background.do_one()
    assert not held[1].background.jobs, "nobody waits for the rest"
    assert len(held[1].broker.search_queue) == 0


def test_more_searches_than_may_wait_are_refused_for_now(
    held: DataWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker.reads.search_queue.WAITING_MAX", 3)
    waiting = [asked(held, {1: LATE}) for _ in range(3)]
    assert rows_of(asked(held, {1: LATE, 0: START_MS})) == [
        (ErrorCode.REQUEST_TIMED_OUT, -1),
        (ErrorCode.NONE, 0),
    ]
    while held[1].background.jobs:
        held[1].background.do_one()
    assert all(rows_of(one) == [(ErrorCode.NONE, MANY - 1)] for one in waiting)


def test_the_log_start_moves_while_it_searches(held: DataWorld) -> None:
    state = held[1].machines[held.group(1)].partition(held.uid(1))
    waiting = asked(held, {1: START_MS + 10, 2: LATE})
    held[1].background.do_one()
    state.start_at(20)
    while held[1].background.jobs:
        held[1].background.do_one()
    assert rows_of(waiting) == [(ErrorCode.NONE, 20), (ErrorCode.NONE, MANY - 1)]


def test_another_master_answers(held: DataWorld) -> None:
    waiting = asked(held, {1: LATE, 2: LATE})
    held[1].background.do_one()
    held.cluster.install(held.group(1), 2)
    held.cluster.install(held.group(1), 1)
    while held[1].background.jobs:
        held[1].background.do_one()
    assert rows_of(waiting) == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1), (ErrorCode.NONE, MANY - 1)]


def test_the_topic_goes_while_it_searches(held: DataWorld) -> None:
    waiting = asked(held, {1: LATE, 2: LATE})
    held.run(DeleteTopic(TOPIC))
    while held[1].background.jobs:
        held[1].background.do_one()
    assert rows_of(waiting) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)] * 2


def test_only_the_master_answers_and_only_under_its_lease(world: DataWorld) -> None:
    code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert world.list_offsets(2, 0, LATEST).error_code == code
    world[1].groups.asleep.add(world.group(0))
    assert world.list_offsets(1, 0, LATEST).error_code == code
    world[1].groups.asleep.clear()
    world[1].groups.behind.add(world.group(0))
    assert world.list_offsets(1, 0, LATEST).error_code == code


def test_epochs_are_fenced_both_ways(world: DataWorld) -> None:
    epoch = world.cluster.epochs[world.group(0)]
    codes = [
        world.list_offsets(1, 0, LATEST, epoch=one).error_code
        for one in (epoch - 1, epoch, epoch + 1)
    ]
    assert codes == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]


def test_the_epoch_of_an_offset_is_that_of_its_batch(world: DataWorld) -> None:
    old = world.cluster.epochs[world.group(0)]
    world.cluster.install(world.group(0), 2)
    assert world.list_offsets(2, 0, EARLIEST).leader_epoch == old
    assert world.list_offsets(2, 0, START_MS).leader_epoch == old
    assert world.list_offsets(2, 0, LATEST).leader_epoch > old


def test_unknown_partitions_and_timestamps_are_refused(world: DataWorld) -> None:
    assert world.list_offsets(1, 99, LATEST).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    for timestamp, version in [
        (MAX_TIMESTAMP, 6),
        (EARLIEST_LOCAL, 7),
        (LATEST_TIERED, 8),
        (TO_BE_TIERED, 10),
    ]:
        code = world.list_offsets(1, 0, timestamp, version=version).error_code
        assert code == ErrorCode.UNSUPPORTED_VERSION
    assert world[1].statistics.errors[ErrorCode.UNSUPPORTED_VERSION] == 4


def test_nothing_is_kept_elsewhere(world: DataWorld) -> None:
    """It answers like a broker without tiered storage."""
    world[1].machines[world.group(0)].partition(world.uid(0)).start_at(4)
    assert world.list_offsets(1, 0, EARLIEST_LOCAL, version=8).offset == 4
    for what, version in ((LATEST_TIERED, 9), (TO_BE_TIERED, 11)):
        answer = world.list_offsets(1, 0, what, version=version)
        assert (answer.error_code, answer.offset, answer.leader_epoch) == (0, -1, -1)
    answer = world.list_offsets(1, 0, LATEST_TIERED, version=9)
    assert (answer.error_code, answer.offset, answer.timestamp) == (ErrorCode.NONE, -1, -1)
    assert answer.leader_epoch == -1


def test_a_partition_that_is_named_twice_is_not_answered(world: DataWorld) -> None:
    rows = [ListOffsetsPartition(number, -1, LATEST) for number in (0, 1, 0)]
    topics = [ListOffsetsTopic(TOPIC, rows[:2]), ListOffsetsTopic(TOPIC, rows[2:])]
    response = world.send(1, ListOffsetsRequest(-1, 0, topics), 7).response
    [topic] = response.topics
    codes = {one.partition_index: one.error_code for one in topic.partitions}
    assert len(topic.partitions) == 2
    assert codes == {0: ErrorCode.INVALID_REQUEST, 1: ErrorCode.NONE}


def test_damage_is_a_storage_error(world: DataWorld) -> None:
    index = world[1].machines[world.group(0)].partition(world.uid(0)).index
    world[1].tail.drop(world.uid(0))
    world[1].log.data[index.position(0) + index.size(0) - 1] ^= 1
    answer = world.list_offsets(1, 0, START_MS)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(world[1].bugs) == 1


def test_damage_in_cold_data_is_a_storage_error(world: DataWorld) -> None:
    """It is also reported for repair."""
    state = world[1].machines[world.group(0)].partition(world.uid(0))
    plan = state.copy_plan(1 << 60, 100)
    assert plan is not None
    world[1].cold.settle(plan, world[1].log.read_span)
    state.mark_tiered(plan.end)
    assert world.list_offsets(1, 0, START_MS + 50).offset == 3
    world[1].cold.damaged.add(3)
    assert world.list_offsets(1, 0, START_MS + 1).offset == 1
    for time_ms in (START_MS + 50, MAX_TIMESTAMP):
        assert world.list_offsets(1, 0, time_ms).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(world[1].statistics.damaged_cold) == 2


def test_what_is_no_batch_inside_is_said_to_be_corrupt(world: DataWorld) -> None:
    """It was stored before batches were checked: no answer would be right."""
    whole = timed([1, 2, 3], compression=Compression.ZSTD)
    data = rebuilt(parse_header(memoryview(whole)), whole[HEADER_BYTES:-4])
    state = world[1].machines[world.group(1)].partition(world.uid(1))
    position = len(world[1].log.data)
    world[1].log.data += data
    state.append(memoryview(data), position, 1)
    assert world.list_offsets(1, 1, START_MS).error_code == ErrorCode.CORRUPT_MESSAGE
    assert world.list_offsets(1, 1, START_MS + 4).error_code == ErrorCode.NONE
