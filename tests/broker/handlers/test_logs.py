"""DeleteRecords removes records up to an offset on every replica; DescribeLogDirs reports sizes."""

import pytest

from balancer.registry.commands import ConfigureTopic
from broker.proposals.intake import FailureReason
from paxos.ids import MS
from tests.broker.batches import START_MS, batch, contents, whole_batches
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, want
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
)
from wire.records.batch import LOG_APPEND_TIME_BIT, iterate_records

EARLIEST, LATEST = -2, -1


def begin_delete(
    world: DataWorld, partition: int, offset: int, *, node: int = 1, timeout_ms: int = 1_000
) -> Asked:
    topic = DeleteRecordsTopic(TOPIC, [DeleteRecordsPartition(partition, offset)])
    return world.send(node, DeleteRecordsRequest([topic], timeout_ms), 2)


def delete(world: DataWorld, partition: int, offset: int) -> tuple[int, int]:
    asked = begin_delete(world, partition, offset)
    world.settle()
    result = asked.response.topics[0].partitions[0]
    return result.error_code, result.low_watermark


def test_records_below_an_offset_go_on_every_replica() -> None:
    world = DataWorld()
    for values in ("ab", "cd", "ef"):
        world.produce(1, 0, batch(*values))
    assert delete(world, 0, 3) == (ErrorCode.NONE, 3)
    assert world.list_offsets(1, 0, EARLIEST).offset == 3
    for node in world.nodes.values():
        assert node.machines[world.group(0)].partitions[world.uid(0)].log_start == 3
    assert world.fetch(1, want(0, 2)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.fetch(1, want(0, 3)).log_start_offset == 3
    # The batch that holds offset 3 stays whole; clients drop the records before it.
    assert contents(world.fetch(1, want(0, 3)).records) == [(2, "c"), (3, "d"), (4, "e"), (5, "f")]


def test_everything_can_go_and_offsets_go_on() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", "b"))
    assert delete(world, 0, -1) == (ErrorCode.NONE, 2)
    assert world.list_offsets(1, 0, EARLIEST).offset == 2
    assert world.list_offsets(1, 0, START_MS).offset == -1
    assert world.fetch(1, want(0, 2)).error_code == ErrorCode.NONE
    assert world.produce(1, 0, batch("c")).base_offset == 2
    assert contents(world.fetch(1, want(0, 2)).records) == [(2, "c")]
    assert world.list_offsets(1, 0, START_MS).offset == 2


def test_everything_is_what_there_is_when_it_is_decided() -> None:
    """F1: the command may reach the log late; records acknowledged since then are not deleted."""
    world = DataWorld()
    world.produce(1, 0, batch("a", "b"))
    asked = begin_delete(world, 0, -1)
    stuck = world.cluster.queues.pop(world.group(0))
    world.cluster.install(world.group(0), 2)
    assert world.produce(2, 0, batch("c")).base_offset == 2
    world.cluster.queues[world.group(0)] = stuck
    world.settle()
    assert asked.settled
    assert world.list_offsets(2, 0, EARLIEST).offset == 2
    assert contents(world.fetch(2, want(0, 2)).records) == [(2, "c")]


def test_a_master_that_is_behind_does_not_say_what_everything_is() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    world[1].groups.behind.add(world.group(0))
    assert delete(world, 0, -1) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert delete(world, 0, 1) == (ErrorCode.NONE, 1)


def test_the_start_never_goes_back_and_never_beyond_the_end() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", "b", "c"))
    assert delete(world, 0, 2) == (ErrorCode.NONE, 2)
    assert delete(world, 0, 1) == (ErrorCode.NONE, 2)
    assert delete(world, 0, 4) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(world, 0, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(world, 9, 0) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(world, 1, 0) == (ErrorCode.NONE, 0)  # a partition that has no records


def test_a_duplicate_of_a_deleted_batch_is_still_known() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a", pid=7))
    assert delete(world, 0, -1) == (ErrorCode.NONE, 1)
    again = world.produce(1, 0, batch("a", pid=7))
    assert (again.error_code, again.base_offset) == (ErrorCode.NONE, 0)
    assert world.list_offsets(1, 0, LATEST).offset == 1


def test_of_a_partition_named_twice_the_last_offset_is_meant() -> None:
    """As in Kafka, and in the answer once. Each would be a command, and would move data of the
    index on every replica."""
    world = DataWorld()
    for value in "abc":
        world.produce(1, 0, batch(value))
    asked = [DeleteRecordsPartition(0, 1), DeleteRecordsPartition(0, 2)]
    topics = [DeleteRecordsTopic(TOPIC, asked), DeleteRecordsTopic(TOPIC, asked[:1] * 2)]
    for named, start in ((topics[:1], 2), (topics, 2)):
        sent = world.send(1, DeleteRecordsRequest(named, 1_000), 2)
        world.settle()
        [topic] = sent.response.topics
        answers = [(one.error_code, one.low_watermark) for one in topic.partitions]
        assert answers == [(ErrorCode.NONE, start)]
    assert world.list_offsets(1, 0, EARLIEST).offset == 2


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        ("compact", ErrorCode.POLICY_VIOLATION),
        ("", ErrorCode.POLICY_VIOLATION),
        ("compact,delete", ErrorCode.NONE),
        ("delete", ErrorCode.NONE),
    ],
)
def test_only_what_may_be_deleted_at_all_is_deleted_from(policy: str, error: ErrorCode) -> None:
    """What a compacted topic holds is the last value of each key, not a past."""
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"cleanup.policy": policy}))
    assert delete(world, 0, 1)[0] == error
    assert delete(world, 77, 1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_only_the_master_deletes() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    asked = begin_delete(world, 0, -1, node=2)
    world.settle()
    assert asked.response.topics[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_an_unknown_outcome_and_a_timeout_are_no_definite_failure() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    world[1].groups.answers_to_lose = 1
    assert delete(world, 0, -1) == (ErrorCode.REQUEST_TIMED_OUT, -1)
    assert world.list_offsets(1, 0, EARLIEST).offset == 1
    slow = begin_delete(world, 0, -1, timeout_ms=100)
    world.cluster.clock.boot_ns += 1_000 * MS
    world.cluster.timers.fire()
    world.cluster.clock.boot_ns += 1_000 * MS
    world.cluster.timers.fire()
    assert slow.response.topics[0].partitions[0].error_code == ErrorCode.REQUEST_TIMED_OUT


@pytest.mark.parametrize("why", list(FailureReason))
def test_what_was_not_carried_out_is_answered_with_something_to_retry(why: FailureReason) -> None:
    world = DataWorld()
    world[1].groups.refuse = why
    error, _ = delete(world, 0, -1)
    assert ErrorCode(error).retriable


def test_who_waits_below_the_new_start_is_told_so() -> None:
    world = DataWorld()
    world.produce(1, 0, batch("a"))
    waiting = world.begin_fetch(1, want(0, 0, bytes_max=1 << 20), min_bytes=1 << 20)
    assert not waiting.settled
    delete(world, 0, -1)
    world.advance(600)
    answer = waiting.response.responses[0].partitions[0]
    assert answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", range(1, 5))
def test_sizes_are_told_by_every_replica(version: int) -> None:
    world = DataWorld()
    data = batch("a", "b")
    world.produce(1, 0, data)
    world.produce(1, 0, data)
    for node in world.nodes:
        response = world.ask(node, DescribeLogDirsRequest(None), version)
        (told,) = response.results
        assert (told.error_code, told.log_dir) == (ErrorCode.NONE, "/data")
        if version >= 4:
            assert (told.total_bytes, told.usable_bytes) == (1_000_000, 400_000)
        sizes = {one.partition_index: one.partition_size for one in told.topics[0].partitions}
        assert sizes == {0: 2 * len(data), 1: 0, 2: 0, 3: 0}
    delete(world, 0, 2)
    named = DescribeLogDirsRequest(
        [DescribableLogDirTopic(TOPIC, [0, 77]), DescribableLogDirTopic("none", [0])]
    )
    (topic,) = world.ask(2, named, version).results[0].topics
    kept = [(one.partition_index, one.partition_size) for one in topic.partitions]
    assert kept == [(0, len(data))]
    twice = DescribeLogDirsRequest([DescribableLogDirTopic(TOPIC, [0, 0])] * 2)
    (topic,) = world.ask(2, twice, version).results[0].topics
    assert [one.partition_index for one in topic.partitions] == [0]


def test_a_volume_that_is_gone_is_an_error() -> None:
    world = DataWorld()
    world[1].log_dir.broken = True
    result = world.ask(1, DescribeLogDirsRequest(None), 4).results[0]
    assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR


# -- LogAppendTime ---------------------------------------------------------------------------------


def append_time_world() -> DataWorld:
    world = DataWorld()
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"message.timestamp.type": "LogAppendTime"}))
    return world


def test_records_get_the_time_of_their_arrival() -> None:
    world = append_time_world()
    now_ms = world[1].groups.now().wall_ns // MS
    answer = world.produce(1, 0, batch("a", "b", at_ms=77))
    assert (answer.error_code, answer.log_append_time_ms) == (ErrorCode.NONE, now_ms)
    (got,) = whole_batches(world.fetch(1, want(0, 0)).records)
    assert got.header.attributes & LOG_APPEND_TIME_BIT
    assert [record.timestamp_ms for record in iterate_records(got)] == [now_ms, now_ms]
    found = world.list_offsets(1, 0, now_ms)
    assert (found.offset, found.timestamp) == (0, now_ms)
    assert world.list_offsets(1, 0, now_ms + 1).offset == -1


def test_the_time_of_a_partition_does_not_go_back() -> None:
    """The next master's clock is behind ours."""
    world = append_time_world()
    first = world.produce(1, 0, batch("a")).log_append_time_ms
    world.cluster.clock.wall_offset_ns -= 5_000 * MS
    assert world.produce(1, 0, batch("b")).log_append_time_ms == first
    assert world.produce(1, 1, batch("c")).log_append_time_ms == first - 5_000


def test_a_repeated_batch_has_the_first_ones_offset_and_time_unknown() -> None:
    world = append_time_world()
    world.produce(1, 0, batch("a", pid=7))
    again = world.produce(1, 0, batch("a", pid=7))
    assert (again.error_code, again.base_offset, again.log_append_time_ms) == (0, 0, -1)
