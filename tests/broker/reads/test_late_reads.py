"""A thread reads what a fetch needs from the disk: nobody else waits, and R14 still holds."""

from functools import partial

import pytest

from broker.handlers.records.fetch import READ_MS_MAX
from broker.reads.disk_reads import WITH_THE_THREAD_MAX, DiskReads, Given
from broker.reads.reader import Missing
from storage.errors import NotInLog
from tests.broker.batches import batch, contents
from tests.broker.data_world import TOPIC, DataWorld, partition_of, want
from tests.broker.fakes import FakeBackground
from wire.error_codes import ErrorCode


def late(values: str = "abcdef", *, settled: int = 0) -> DataWorld:
    """One batch for each letter in partition 0 of node 1, none of it in memory; the first ones are
    in the cold store. The thread does what the story tells it."""
    world = DataWorld()
    for number, value in enumerate(values):
        world.produce(1, 0, batch(value))
        if number + 1 == settled:
            world.settle_log(1)
    one = world[1]
    one.tail.drop(world.uid(0))
    one.log.late = one.cold.late = one.fetcher.held = True
    return world


def do_all(world: DataWorld) -> None:
    while world[1].fetcher.jobs:
        world[1].fetcher.do_one()
        world.settle()


@pytest.mark.parametrize("max_wait_ms", [0, 1, 500])
@pytest.mark.parametrize("settled", [0, 3, 6])
def test_it_waits_for_the_disk_and_nobody_else_does(settled: int, max_wait_ms: int) -> None:
    """This holds however short its max_wait is: answered with nothing, it would ask for the same
    again."""
    world = late(settled=settled)
    world.produce(1, 1, batch("x"))
    asked = world.begin_fetch(1, want(0, 0), max_wait_ms=max_wait_ms)
    world.advance(max_wait_ms + 100)
    assert not asked.settled
    assert contents(world.fetch(1, want(1, 0)).records) == [(0, "x")]
    do_all(world)
    found = contents(partition_of(asked).records)
    assert found == list(enumerate("abcdef"))[: settled or 6]
    assert contents(world.fetch(1, want(1, 0)).records) == [(0, "x")]


def test_what_is_in_memory_waits_with_the_rest_of_its_request() -> None:
    """A partition that always has new data must not make another one wait for ever."""
    world = late()
    world.produce(1, 1, batch("x"))
    asked = world.begin_fetch(1, want(0, 0), want(1, 0))
    assert not asked.settled
    do_all(world)
    assert [contents(partition_of(asked, number).records) for number in (0, 1)] == [
        list(enumerate("abcdef")),
        [(0, "x")],
    ]


def test_of_a_disk_that_hangs_it_is_told_what_is_known() -> None:
    world = late()
    asked = world.begin_fetch(1, want(0, 0))
    world.advance(READ_MS_MAX - 100)
    assert not asked.settled
    world.advance(200)
    answer = partition_of(asked)
    assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, 6)
    assert contents(answer.records) == []
    assert world[1].statistics.reads_given_up == 1
    do_all(world)
    assert len(world[1].broker.disk_reads) == 0


def test_another_master_is_told_at_once() -> None:
    world = late()
    asked = world.begin_fetch(1, want(0, 0))
    world.cluster.install(world.group(0), 2)
    assert partition_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    do_all(world)


def test_the_lease_is_looked_at_when_all_is_read() -> None:
    world = late()
    asked = world.begin_fetch(1, want(0, 0))
    world[1].groups.asleep.add(world.group(0))
    do_all(world)
    assert not asked.settled, "a new master is about to be known"
    world.cluster.install(world.group(0), 3)
    assert partition_of(asked).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("settled", [0, 6])
def test_what_the_disk_has_lost_is_told_as_ever(settled: int) -> None:
    world = late(settled=settled)
    if settled:
        world[1].cold.damaged.add(0)
    else:
        world[1].log.read_span = _gone  # type: ignore[method-assign]
    asked = world.begin_fetch(1, want(0, 0))
    world[1].fetcher.do_one()
    assert partition_of(asked).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    statistics = world[1].statistics
    assert len(statistics.damaged_cold if settled else statistics.damaged_at) == 1
    assert world[1].bugs, "the operator is told"
    world[1].bugs.clear()


def _gone(position: int, _size: int) -> memoryview:
    raise NotInLog(f"position {position}")


def test_it_is_found_where_it_has_moved_meanwhile() -> None:
    """It was read from the log, and is in the cold store when it is served."""
    world = late()
    asked = world.begin_fetch(1, want(0, 0))
    world.settle_log(1)
    do_all(world)
    assert contents(partition_of(asked).records) == list(enumerate("abcdef"))


def test_more_that_comes_meanwhile_does_not_matter() -> None:
    world = late()
    asked = world.begin_fetch(1, want(0, 0))
    world.produce(1, 0, batch("g"))
    do_all(world)
    assert contents(partition_of(asked).records)[:6] == list(enumerate("abcdef"))


def test_only_one_request_worth_is_read_of_many_partitions() -> None:
    """Missing data counts as read: otherwise each partition would be read for nothing."""
    world = DataWorld()
    for partition in range(4):
        world.produce(1, partition, batch("x", pad=700_000))
    for partition in range(len(world[1].registry.topics[TOPIC].partitions)):
        world[1].tail.drop(world.uid(partition))
    world[1].log.late = world[1].fetcher.held = True
    asked = world.begin_fetch(1, *(want(partition, 0) for partition in range(4)))
    do_all(world)
    assert [bool(partition_of(asked, number).records) for number in range(4)] == [
        True,
        False,
        False,
        False,
    ]
    assert world[1].statistics.log_reads == 1


def test_a_search_for_a_time_waits_beside_the_loop() -> None:
    world = late()
    world[1].background.held = True
    world.fetch(1, want(1, 0))
    jobs = len(world[1].background.jobs)
    with pytest.raises(AssertionError, match="no answer yet"):
        world.list_offsets(1, 0, 0)
    assert len(world[1].background.jobs) == jobs + 1


def test_few_are_with_the_thread_and_who_gave_up_is_not_read_for() -> None:
    thread, read, told = FakeBackground(), list[int](), list[Given]()
    thread.held = True
    reads = DiskReads(thread)

    def one(number: int) -> memoryview:
        read.append(number)
        return memoryview(b"x")

    give_up = [
        reads.read([Missing((-1, number), partial(one, number))], told.append)
        for number in range(10)
    ]
    assert len(thread.jobs) == WITH_THE_THREAD_MAX
    for number in (1, 4, 5):
        give_up[number]()
    while thread.jobs:
        thread.do_one()
    assert read == [0, 2, 3, 6, 7, 8, 9], "a job that is with the thread already reads nothing"
    assert [next(iter(given)) for given in told] == [(-1, number) for number in read]
    assert len(reads) == 0
