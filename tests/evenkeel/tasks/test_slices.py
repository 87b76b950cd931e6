"""Reading one topic by slices (B16), with a fake topic and a fake ledger."""

import math
from collections.abc import Sequence
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from evenkeel import ConsumerRecord, SliceReader, TaskLease, TopicPartition, slices
from evenkeel.admin.descriptions import PartitionDescription, TopicDescription
from evenkeel.consumer.fetched import Records
from evenkeel.errors import ConfigurationError, LeaseLostError, TimedOutError
from evenkeel.tasks import slices as module
from evenkeel.tasks.sharding import slice_of
from evenkeel.tasks.slices import PARTITIONS_MAX, Positions, belongs

Jumps = trio.testing.MockClock
FIRST, SECOND = b"\x01" * 16, b"\x02" * 16


def record(offset: int, *, key: bytes | None = None, partition: int = 0) -> ConsumerRecord:
    key = b"k%d" % offset if key is None and partition == 0 else key
    return ConsumerRecord("t", partition, offset, 0, key, b"%d" % offset, ())


@attrs.define
class Topic:
    """What there is to read, one batch after the other, from the position of the last seek."""

    id: bytes = FIRST
    logs: list[list[ConsumerRecord]] = attrs.Factory(lambda: [[]])
    away: bool = False

    async def describe_topic(self, name: str) -> TopicDescription:
        await trio.lowlevel.checkpoint()
        if self.away:
            raise TimedOutError("nobody answers")
        rows = [PartitionDescription(number, 1, 0, [1], [1]) for number in range(len(self.logs))]
        return TopicDescription(name, self.id.hex(), False, rows)


class Reader:
    """A consumer of the topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.at: dict[TopicPartition, int] = {}

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.at)

    async def assign(self, places: Sequence[TopicPartition]) -> None:
        self.at = {place: self.at.get(place, 0) for place in places}
        await trio.lowlevel.checkpoint()

    def seek(self, place: TopicPartition, offset: int) -> None:
        self.at[place] = offset

    async def __anext__(self) -> Records:
        while True:
            await trio.sleep(0.01)
            for place, at in self.at.items():
                left = [one for one in self._topic.logs[place.partition] if one.offset >= at]
                if left:
                    self.at[place] = left[2:][0].offset if left[2:] else left[-1].offset + 1
                    return Records(place, left[:2])


@attrs.define
class Ledger:
    """Keeps one task's checkpoint, and knows its holder."""

    value: bytes = b""
    holds: bool = True
    fails: int = 0
    """How many checkpoints are not confirmed as written."""
    takes_s: float = 0
    ends_at: float = math.inf

    def lease_left_ns(self, lease: TaskLease) -> int:
        return int(max(0, min(60, self.ends_at - trio.current_time())) * 1e9) if self.holds else 0

    def lease_ended(self, lease: TaskLease, *, finished: bool) -> None:
        raise AssertionError("a slice is never finished")

    async def write_checkpoint(self, lease: TaskLease, value: bytes) -> None:
        await trio.sleep(self.takes_s)
        if not self.holds:
            raise LeaseLostError("another has it")
        if self.fails:
            self.fails -= 1
            raise TimedOutError("not read back")
        self.value = value


class Room:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.topic, self.ledger = Topic(), Ledger()
        self.got: list[int] = []
        monkeypatch.setattr(module, "Admin", lambda *_, **__: Opened(self.topic))
        monkeypatch.setattr(module, "Consumer", lambda *_, **__: Opened(Reader(self.topic)))

    async def handle(self, lease: TaskLease, records: Sequence[ConsumerRecord]) -> None:
        await trio.lowlevel.checkpoint()
        self.got += [one.offset for one in records]

    async def read(self, seconds: float, task: str = "t/0", count: int = 1) -> list[int]:
        """As a holder of the slice that is told to stop after a while; returns what it was
        given."""
        self.got = []
        lease = TaskLease(task, 1, self.ledger.value, self.ledger)
        with trio.move_on_after(seconds):
            await SliceReader("nowhere", count, self.handle)(lease)
        return self.got


class Opened:
    def __init__(self, what: object) -> None:
        self._what = what

    async def __aenter__(self) -> Any:
        return self._what

    async def __aexit__(self, *_: object) -> None:
        pass


@pytest.fixture
def room(monkeypatch: pytest.MonkeyPatch) -> Room:
    return Room(monkeypatch)


async def test_B16_each_slice_goes_on_from_its_own_checkpoint(
    room: Room, autojump_clock: Jumps
) -> None:
    room.topic.logs = [[record(at) for at in range(20)]]
    everything: list[int] = []
    kept: dict[str, bytes] = {}
    for task in slices("t", 3):
        room.ledger.value = b""
        mine = await room.read(1, task, 3)
        assert mine == [at for at in range(20) if slice_of("t", b"k%d" % at, 3) == task]
        everything += mine
        kept[task] = room.ledger.value
    assert sorted(everything) == list(range(20))
    room.topic.logs[0] += [record(at) for at in range(20, 40)]
    room.ledger.value = kept["t/1"]
    more = await room.read(1, "t/1", 3)
    assert more == [at for at in range(20, 40) if slice_of("t", b"k%d" % at, 3) == "t/1"]


async def test_B16_a_checkpoint_is_written_now_and_then_and_at_the_end(
    room: Room, autojump_clock: Jumps
) -> None:
    """An unconfirmed one is written again; the last one even during cancellation."""
    room.topic.logs = [[record(at) for at in range(2)]]
    room.ledger.fails = 1
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.read, 12)
        await trio.sleep(6)
        assert room.ledger.value == b""
        await trio.sleep(5)
        assert Positions.decode(room.ledger.value).next == [2]
        room.topic.logs[0] += [record(2)]
    assert Positions.decode(room.ledger.value).next == [3]


async def test_B16_the_last_checkpoint_has_as_long_as_the_slice_is_ours(
    room: Room, autojump_clock: Jumps
) -> None:
    """On a busy cluster it takes its time; the next owner would otherwise get it all again."""
    room.topic.logs = [[record(at) for at in range(2)]]
    room.ledger.fails, room.ledger.takes_s = 3, 2
    assert await room.read(1) == [0, 1]
    assert Positions.decode(room.ledger.value).next == [2]
    assert 9 <= trio.current_time() < 9.3  # four of them, and a moment in between
    room.topic.logs[0] += [record(2)]
    room.ledger.fails, room.ledger.ends_at = 1000, trio.current_time() + 6
    assert await room.read(1) == [2]
    assert 15 <= trio.current_time() < 15.3  # and no longer
    assert Positions.decode(room.ledger.value).next == [2]


async def test_B16_who_does_not_hold_the_slice_any_more_hands_nothing_over(
    room: Room, autojump_clock: Jumps
) -> None:
    """It waits to be told, and does not end its group with an error."""
    room.topic.logs = [[record(0)]]
    room.ledger.holds = False
    assert await room.read(60) == []
    assert room.ledger.value == b""


async def test_B16_a_topic_that_grows_is_read_whole(room: Room, autojump_clock: Jumps) -> None:
    room.topic.logs = [[record(0)]]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.read, 30)
        await trio.sleep(1)
        room.topic.logs.append([record(7, key=b"x", partition=1)])
        await trio.sleep(20)
        assert room.got == [0, 7]
    assert Positions.decode(room.ledger.value) == Positions(FIRST, [1, 8])


async def test_B16_a_topic_that_was_made_anew_is_read_from_its_beginning(
    room: Room, autojump_clock: Jumps
) -> None:
    """Offsets of the old topic mean nothing in it; also if this is found out in between."""
    room.topic.logs = [[record(at) for at in range(5)]]
    assert await room.read(1) == [0, 1, 2, 3, 4]
    room.topic.id, room.topic.logs = SECOND, [[record(at) for at in range(8)]]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.read, 30)
        await trio.sleep(5)
        assert room.got == list(range(8))
        room.topic.id = FIRST
        await trio.sleep(20)
        assert room.got == [*range(8), *range(8)]
    assert Positions.decode(room.ledger.value) == Positions(FIRST, [8])


async def test_B16_while_nobody_answers_it_waits(room: Room, autojump_clock: Jumps) -> None:
    room.topic.logs, room.topic.away = [[record(0)]], True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(room.read, 10)
        await trio.sleep(3)
        assert room.got == []
        room.topic.away = False
        await trio.sleep(3)
        assert room.got == [0]


async def test_what_cannot_be_a_slice_is_refused(room: Room, autojump_clock: Jumps) -> None:
    for task, count in (("t/3", 3), ("t", 1), ("t/x", 2)):
        with pytest.raises(ConfigurationError, match="is not one of"):
            await room.read(1, task, count)
    room.ledger.value = b"page 17"
    with pytest.raises(ConfigurationError, match="cannot be read"):
        await room.read(1)
    room.ledger.value = b""
    room.topic.logs = [[]] * (PARTITIONS_MAX + 1)
    with pytest.raises(ConfigurationError, match="partitions"):
        await room.read(1)


def test_positions_are_what_they_were_and_fit_a_checkpoint() -> None:
    most = Positions(FIRST, [(1 << 63) - 1] * PARTITIONS_MAX)
    assert len(most.encode()) <= module.CHECKPOINT_BYTES_MAX
    for positions in (Positions(), Positions(FIRST, [0, 5]), most):
        assert Positions.decode(positions.encode()) == positions
    assert Positions.decode(b"") == Positions()


def test_each_record_is_of_one_slice() -> None:
    for one in (record(1), record(2), record(3, partition=5), record(4, key=b"", partition=1)):
        assert sum(belongs(one, task, 4) for task in slices("t", 4)) == 1
