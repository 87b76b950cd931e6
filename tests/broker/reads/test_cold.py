"""A partition whose older batches have left the log reads as if they were still there."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.reads.reader import LOG_BYTES_MAX, Got, Key, Reader, UnreadableError
from broker.reads.time_search import MAX_TIMESTAMP, search
from broker.state_machine.batch_index import BatchIndex
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.tail import Tail
from storage.errors import StorageError
from tests.broker.batches import START_MS, batch, contents, timed, whole_batches
from tests.broker.data_world import DataWorld, partition_of, want
from tests.broker.fakes import FakeCold
from tests.broker.handlers.test_logs import EARLIEST, delete
from tests.broker.real_cold import RealCold
from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.records.batch import DECOMPRESSED_BYTES_MAX, Compression
from wire.records.times import Timed


class Log:
    """A log, and one partition of it twice: once with everything in the log, once tiered."""

    def __init__(self, seed: int, *, real: bool = False, late: bool = False) -> None:
        self.dice = Random(seed)
        self.late = late
        self.data = bytearray()
        size = self.dice.randrange(1, 5)
        self.cold = RealCold(100 * size) if real else FakeCold(segment_batches=size)
        self.all_in_log = PartitionState(7)
        self.settled = PartitionState(7, cold=self.cold)
        self.both = (self.all_in_log, self.settled)
        self.epoch = 1
        self.records: list[Timed] = []

    def read_span(self, position: int, size: int) -> memoryview:
        assert position + size <= len(self.data)
        return memoryview(bytes(self.data[position : position + size]))

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        return None if self._is_late() else self.read_span(position, size)

    def read_soon(self, position: int, size: int) -> None:
        pass

    def _is_late(self) -> bool:
        return self.late and self.dice.random() < 0.4

    def append(self) -> None:
        self.epoch += self.dice.random() < 0.2
        times = [self.dice.randrange(40) for _ in range(self.dice.randrange(1, 4))]
        codec, log_time = self.dice.choice([*Compression]), self.dice.random() < 0.2
        claim = max(times) + (self.dice.randrange(20) if self.dice.random() < 0.3 else 0)
        data = timed(times, compression=codec, claim_ms=claim, log_time=log_time)
        for time_ms in times:
            told_ms = START_MS + (claim if log_time else time_ms)
            self.records.append(Timed(len(self.records), told_ms))
        self.data += bytes(self.dice.randrange(9))
        position = len(self.data)
        self.data += data
        for state in self.both:
            state.append(memoryview(data), position, self.epoch)

    def delete(self) -> None:
        state = self.all_in_log
        offset = self.dice.randrange(state.log_start, state.next_offset + 1)
        for one in self.both:
            one.start_at(offset)
        self.cold.drop_before(7, offset)

    def settle(self) -> None:
        plan = self.settled.copy_plan(self.dice.randrange(len(self.data) + 2), 4)
        if plan is not None:
            self.cold.settle(plan, self.read_span)
            if self.dice.random() < 0.7:  # else it is in both, until the next time
                self.settled.mark_tiered(plan.end)

    def reader(self, given: dict[Key, Got | StorageError] | None = None) -> Reader:
        if isinstance(self.cold, FakeCold):
            self.cold.late = self._is_late()
        return Reader(Tail(0), self, BrokerStatistics(), given or {})

    def read(self, state: PartitionState, at: int, bytes_max: int) -> tuple[Sequence[Buffer], int]:
        """Read as a fetch does: missing data is read in the background, and then everything is
        tried again."""
        reader = self.reader()
        chunks, size = reader.read(state, at, bytes_max, at_least_one=True)
        while reader.missing and not size:
            given = {**reader.got, **{one.key: one.read() for one in reader.missing}}
            if self.late and self.dice.random() < 0.2:
                self.settle()  # meanwhile it moves
            reader = self.reader(given)
            chunks, size = reader.read(state, at, bytes_max, at_least_one=True)
        return chunks, size

    rest, stopped = staticmethod(lambda: None), False

    def search(self, state: PartitionState, time_ms: int) -> Timed | None:
        """What a search finds if nothing ever delays it."""
        searching, reader = search(state, time_ms), self.reader()
        while (job := searching.next_job()) is not None:
            searching.heard(job.prepared(reader)[0](self, DECOMPRESSED_BYTES_MAX))
        return searching.found

    def everything(self, state: PartitionState, bytes_max: int) -> list[tuple[int, int, str]]:
        """Epoch, offset and value of each record, in fetches of that many bytes."""
        at, found = state.log_start, list[tuple[int, int, str]]()
        while at < state.next_offset:
            chunks, size = self.read(state, at, bytes_max)
            data = memoryview(b"".join(chunks))
            assert len(data) == size > 0
            for one in whole_batches(data):
                for offset, value in contents(one.data):
                    found.append((one.header.leader_epoch, offset, value))
                at = one.header.last_offset + 1
        return found


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    script=st.lists(st.sampled_from(["append"] * 5 + ["settle"] * 2 + ["delete"]), max_size=60),
    bytes_max=st.sampled_from([1, 200, 10_000]),
    real=st.booleans(),
    late=st.booleans(),
)
@example(
    seed=244,
    script=[*["append", "append", "settle"] * 3, "append", "settle", "delete"],
    bytes_max=1,
    real=False,
    late=False,
)
def test_it_reads_as_if_nothing_had_been_settled(
    seed: int, script: list[str], bytes_max: int, real: bool, late: bool
) -> None:
    """Fetches of any size, offsets for times, and sizes: from the cold store (the fake of our other
    stories, and the real one) together with the log, in memory or not. The answer for a time is
    what reading all records would give, whatever their batches claim."""
    log = Log(seed, real=real, late=late)
    for step in script:
        getattr(log, step)()
    reference, settled = log.both
    assert log.everything(settled, bytes_max) == log.everything(reference, bytes_max)
    assert settled.missing() is None
    for offset in range(settled.log_start, settled.next_offset + 1):
        told, exact = settled.bytes_from(offset), reference.bytes_from(offset)
        assert told >= exact if real else told == exact  # its blocks have headers
    there = [one for one in log.records if one.offset >= settled.log_start]
    for time_ms in range(START_MS - 1 + seed % 7, START_MS + 61, 7):
        first = next((one for one in there if one.timestamp_ms >= time_ms), None)
        assert [log.search(state, time_ms) for state in log.both] == [first, first]
    latest = max(there, key=lambda one: (one.timestamp_ms, -one.offset), default=None)
    assert [log.search(state, MAX_TIMESTAMP) for state in log.both] == [latest, latest]


def test_what_is_still_read_from_the_log_is_known_however_it_came() -> None:
    """A follower may get entries out of order, and an entry may be written again further on."""
    index = BatchIndex()
    for number, position in enumerate([100, 300, 200, 400, 500]):
        index.append(number, position, 10, 0)
    assert index.lowest_position() == 100
    assert [index.below(place) for place in (100, 101, 201, 301, 501)] == [0, 1, 3, 3, 5]
    index.drop_before(1)
    assert index.lowest_position() == 200
    index.drop_before(3)
    assert index.lowest_position() == 400
    index.relocate(400, 900)
    assert index.lowest_position() == 500
    assert [index.below(place) for place in (500, 501, 901)] == [3, 5, 5]
    index.append(5, 950, 10, 0)
    index.drop_before(5)
    assert index.lowest_position() == 950


def test_a_consumer_reads_on_from_the_cold_store_into_the_log() -> None:
    world = DataWorld()
    for number in range(6):
        world.produce(1, 0, batch(f"{number}"))
    world.settle_log(1)
    for number in range(6, 9):
        world.produce(1, 0, batch(f"{number}"))
    at, values = 0, list[str]()
    while at < 9:
        found = contents(world.fetch(1, want(0, at)).records)
        values += [value for _, value in found]
        at = found[-1][0] + 1
    assert values == [f"{number}" for number in range(9)]
    assert world[1].statistics.cold_reads > 0
    assert world.list_offsets(1, 0, START_MS).offset == 0


@pytest.mark.parametrize("others", [False, True])
def test_what_the_next_request_reads_of_the_cold_store_is_begun_before(
    others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the request continues in the same partition, or with one that has been waiting."""
    world = DataWorld()
    partitions = (0, 2) if others else (0,)
    for number in range(24):
        for partition in partitions:
            world.produce(1, partition, batch(f"{number}", pad=LOG_BYTES_MAX // 8))
    world.settle_log(1)
    cold = world[1].cold
    read, reads = cold.read, list[tuple[int, int, int]]()

    def noted(uid: int, offset: int, bytes_max: int) -> list[memoryview]:
        reads.append((uid, offset, bytes_max))
        return read(uid, offset, bytes_max)

    monkeypatch.setattr(cold, "read", noted)
    offsets = dict.fromkeys(partitions, 0)
    guesses = 0
    while min(offsets.values()) < 24:
        reads.clear()
        guess = cold.soon.copy()
        cold.soon.clear()
        asked = world.begin_fetch(1, *(want(*one) for one in offsets.items()), max_wait_ms=0)
        assert guess in ([], reads[:1])
        guesses += len(guess)
        for number, partition in enumerate(list(offsets)):
            got = contents(partition_of(asked, number).records)
            if got:  # clients put it at the end
                del offsets[partition]
                offsets[partition] = got[-1][0] + 1
    assert guesses >= 2 * len(partitions)


def test_a_consumer_below_the_log_start_is_told_where_it_is() -> None:
    """OFFSET_OUT_OF_RANGE makes every client look for the start, or the end, by itself."""
    world = DataWorld()
    for number in range(8):
        world.produce(1, 0, batch(f"{number}"))
    world.settle_log(1)
    assert delete(world, 0, 5) == (ErrorCode.NONE, 5)
    state = world[1].machines[world.group(0)].partitions[world.uid(0)]
    world[1].cold.drop_before(state.uid, state.log_start)
    assert world[1].cold.start(state.uid) == 3, "segments go as a whole"
    below = world.fetch(1, want(0, 4))
    assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    again = world.fetch(1, want(0, world.list_offsets(1, 0, EARLIEST).offset))
    assert again.log_start_offset == 5
    assert [value for _, value in contents(again.records)] == ["5", "6", "7"]


def test_cold_data_that_is_damaged_or_gone_is_an_error_and_is_reported() -> None:
    world = DataWorld()
    for number in range(3):
        world.produce(1, 0, batch(f"{number}"))
    world.settle_log(1)
    uid = world.uid(0)
    world[1].cold.damaged.add(1)
    assert [value for _, value in contents(world.fetch(1, want(0, 0)).records)] == ["0"]
    assert world.fetch(1, want(0, 1)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(world[1].statistics.damaged_cold) == [(uid, 1)]
    del world[1].cold.batches[uid][0]
    state = world[1].machines[world.group(0)].partitions[uid]
    with pytest.raises(UnreadableError, match="nothing at offset 0"):
        Reader(Tail(0), world[1].log, world[1].statistics).read(state, 0, 100, at_least_one=True)
    world[1].bugs.clear()


def test_what_a_peer_has_told_us_of_is_not_served_before_we_have_applied_it() -> None:
    log = Log(3)
    for _ in range(6):
        log.append()
    plan = log.all_in_log.copy_plan(1 << 40)
    assert plan is not None
    log.cold.settle(plan, log.read_span)
    behind = PartitionState(7, cold=log.cold)
    behind.load(0, log.all_in_log.index.base(3), -1, 0, [(0, 1)])
    chunks, _ = log.reader().read(behind, 0, 1 << 20, at_least_one=True)
    assert whole_batches(memoryview(b"".join(chunks)))[-1].header.last_offset + 1 == (
        behind.next_offset
    )


def test_a_restored_partition_knows_what_it_lacks() -> None:
    log = Log(5)
    for _ in range(9):
        log.append()
    state = log.settled
    assert state.missing() is None
    plan = state.copy_plan(len(log.data) // 2)
    assert plan is not None
    log.cold.settle(plan, log.read_span)
    fresh = PartitionState(7, cold=log.cold)
    fresh.load(0, state.next_offset, -1, state.index.bytes_end, state.epochs())
    assert fresh.missing() == (plan.end, state.next_offset)
    fresh.start_at(state.next_offset)
    assert fresh.missing() is None
