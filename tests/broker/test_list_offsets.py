"""ListOffsets in real frames: begin, end, and times."""

import pytest
from crc32c import crc32c

from broker.handlers.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, WALK_BYTES_MAX
from tests.broker.batches import START_MS, batch
from tests.broker.data_world import DataWorld
from wire.batch import COMPRESSION_MASK, Compression
from wire.error_codes import ErrorCode


@pytest.fixture
def world() -> DataWorld:
    """Records at ms 0, 1, 2 / 100, 101 / 50, 51: the clock of a producer was set back."""
    world = DataWorld()
    for values, at_ms in [("abc", 0), ("de", 100), ("fg", 50)]:
        world.produce(1, 0, batch(*values, at_ms=at_ms))
    return world


@pytest.mark.parametrize("version", range(1, 8))
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


def test_gzip_is_walked(world: DataWorld) -> None:
    world.produce(1, 0, batch("h", "i", "j", at_ms=500, compression=Compression.GZIP))
    answer = world.list_offsets(1, 0, START_MS + 501)
    assert (answer.offset, answer.timestamp) == (8, START_MS + 501)


def snappy() -> bytes:
    data = bytearray(batch("h", "i", "j", at_ms=500))
    data[22] |= COMPRESSION_MASK & Compression.SNAPPY
    data[17:21] = crc32c(data[21:]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    "data", [snappy(), batch("h", "i", "j", at_ms=500, pad=WALK_BYTES_MAX // 3)]
)
def test_what_cannot_be_walked_cheaply_is_answered_with_its_batch(
    world: DataWorld, data: bytes
) -> None:
    """Never later than what was asked for, and at most one batch too early."""
    world.produce(1, 0, data)
    answer = world.list_offsets(1, 0, START_MS + 501)
    assert (answer.offset, answer.timestamp) == (7, START_MS + 502)


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
    assert world.list_offsets(1, 0, -4).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert world[1].statistics.errors[ErrorCode.UNSUPPORTED_VERSION] == 1


def test_damage_is_a_storage_error(world: DataWorld) -> None:
    index = world[1].machines[world.group(0)].partition(world.uid(0)).index
    world[1].tail.drop(world.uid(0))
    world[1].log.data[index.position(0) + index.size(0) - 1] ^= 1
    answer = world.list_offsets(1, 0, START_MS)
    assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert len(world[1].bugs) == 1
