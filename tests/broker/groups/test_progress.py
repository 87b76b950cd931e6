"""A master asks consumers for their progress (E12, E13): whom it asks, and whom it waits for."""

from typing import Any

from broker.groups.progress_requests import CONSUMERS_MAX, NOBODY_TO_ASK, SILENT_NS, Collected
from paxos.ids import MS, GroupId
from tests.broker.batches import batch, contents
from tests.broker.data_world import DataWorld, partition_of, want
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.fetch import ProgressReport

WAIT_MS = 50
ONE, TWO = 11, 12
"""Two consumers."""


class Room(DataWorld):
    """Partition 0 has one record, and its master can be told to collect progress."""

    def __init__(self) -> None:
        super().__init__()
        self.produce(1, 0, batch("a"))
        self.collected: list[Collected] = []

    def park(self, consumer: int | None, *partitions: int, reported: int = 0) -> Asked:
        """A delayed fetch at the end of these partitions, or of the first."""
        report = None if consumer is None else ProgressReport(consumer, reported)
        ends = [want(one, 1 if one == 0 else 0) for one in partitions or (0,)]
        return self.begin_fetch(1, *ends, progress=report)

    def collect(self, wait_ms: int = WAIT_MS) -> None:
        self[1].broker.progress_requests.collect(self.group(0), wait_ms, self.collected.append)


def request_of(asked: Asked, number: int = 0) -> Any:
    return partition_of(asked, number).report_progress


def test_E12_a_parked_consumer_is_asked_at_once_and_stops_nothing() -> None:
    """More than the row asks for: the group can still be consumed, and the answer is an ordinary
    one."""
    room = Room()
    parked = room.park(ONE)
    assert not parked.settled
    room.collect()
    request = request_of(parked)
    assert request.wait_ms == WAIT_MS
    assert partition_of(parked).error_code == ErrorCode.NONE
    room.produce(1, 0, batch("b"))
    again = room.begin_fetch(1, want(0, 1), progress=ProgressReport(ONE, 0))
    assert contents(partition_of(again).records) == [(1, "b")], "it goes on consuming"
    assert request_of(again) is None, "asked once"
    assert room.collected == []
    room.advance(10)
    room.park(ONE, reported=request.request)
    (done,) = room.collected
    assert (done.asked, done.reported, done.notify_ns) == (1, 1, 0)
    assert done.collect_ns == 10 * MS


def test_E13_it_waits_for_all_of_them_but_not_for_long() -> None:
    room = Room()
    first, second = room.park(ONE), room.park(TWO)
    room.collect()
    room.park(ONE, reported=request_of(first).request)
    assert room.collected == []
    room.advance(WAIT_MS + 10)
    assert [(done.asked, done.reported) for done in room.collected] == [(2, 1)]
    room.park(TWO, reported=request_of(second).request)
    assert len(room.collected) == 1, "too late is as good as never"


def test_a_client_that_says_nothing_is_left_alone() -> None:
    """Every Kafka client but ours: its fetch stays delayed, and nobody waits for it."""
    room = Room()
    other = room.park(None)
    room.collect()
    assert not other.settled
    assert room.collected == [NOBODY_TO_ASK]
    old = room.begin_fetch(1, want(0, 1), version=11)
    room.collect()
    assert not old.settled


def test_a_consumer_that_is_busy_is_asked_with_its_next_answer() -> None:
    """It has no delayed fetch: it works on what it got, and fetches again a little later."""
    room = Room()
    room.begin_fetch(1, want(0, 0), progress=ProgressReport(ONE, 0))
    room.collect()
    room.advance(10)
    asked = room.park(ONE)
    assert asked.settled, "nothing new to read, and told at once all the same"
    room.park(ONE, reported=request_of(asked).request)
    (done,) = room.collected
    assert (done.notify_ns, done.collect_ns) == (10 * MS, 0)


def test_only_the_group_that_moves_is_asked_about() -> None:
    room = Room()
    both = room.park(ONE, 0, 1)
    elsewhere = room.park(TWO, 2)
    room.collect()
    assert request_of(both, 0) is not None
    assert request_of(both, 1) is None
    assert not elsewhere.settled


def test_a_consumer_that_has_gone_is_not_waited_for() -> None:
    room = Room()
    room.begin_fetch(1, want(0, 0), max_wait_ms=0, progress=ProgressReport(ONE, 0))
    room.advance(SILENT_NS // MS + 10)
    room.collect()
    assert room.collected == [NOBODY_TO_ASK]


def test_without_a_wait_nobody_is_asked() -> None:
    room = Room()
    parked = room.park(ONE)
    room.collect(wait_ms=0)
    assert not parked.settled
    assert room.collected == [NOBODY_TO_ASK]


def test_numbers_grow_from_one_request_to_the_next() -> None:
    room = Room()
    numbers = []
    asked = room.park(ONE)
    for _ in range(3):
        room.collect()
        numbers.append(request_of(asked).request)
        asked = room.park(ONE, reported=numbers[-1])
    assert numbers == sorted(set(numbers))
    assert len(room.collected) == 3


def test_a_crowd_of_consumers_is_bounded() -> None:
    room = Room()
    progress = room[1].broker.progress_requests
    for consumer in range(CONSUMERS_MAX + 10):
        progress.heard([room.group(0)], ProgressReport(consumer, 0), 500)
    progress.collect(GroupId(room.group(0)), WAIT_MS, room.collected.append)
    room.advance(WAIT_MS + 10)
    assert room.collected[0].asked == CONSUMERS_MAX
    room.advance(SILENT_NS // MS + 500, step_ms=100)
    progress.heard([room.group(1)], ProgressReport(ONE, 0), 500)  # the earlier ones are gone
    progress.collect(GroupId(room.group(1)), WAIT_MS, room.collected.append)
    room.advance(WAIT_MS + 10)
    assert room.collected[1].asked == 1


def test_an_error_asks_for_nothing() -> None:
    """A fetch of another master's partition: its progress would be of no use to us."""
    room = Room()
    room.cluster.install(room.group(1), 2)
    parked = room.begin_fetch(
        1, want(1, 0), want(0, 1), progress=ProgressReport(ONE, 0), max_wait_ms=500
    )
    assert partition_of(parked, 0).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    room.collect()
    again = room.park(ONE)
    assert request_of(again) is not None
