"""A partition: dense offsets, lookups, and exactly once for producers that retry."""

from random import Random
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.state_machine.batch_index import BLOCK_BATCHES, BatchIndex
from broker.state_machine.partition import Append, DamagedEntryError, PartitionState
from tests.broker.batches import START_MS, batch
from wire.error_codes import ErrorCode
from wire.records.batch import HEADER_BYTES


def view(*values: str, **fields: int) -> memoryview:
    return memoryview(batch(*values, **fields))


def test_offsets_are_dense_and_every_batch_is_found_by_any_of_its_offsets() -> None:
    state = PartitionState(7)
    first = state.append(view("a", "b", "c"), 100, 5)
    second = state.append(view("d"), 400, 5)
    assert first == Append(ErrorCode.NONE, 0, 0)
    assert second == Append(ErrorCode.NONE, 3, 1)
    assert (state.log_start, state.next_offset) == (0, 4)
    assert [state.index.find(offset) for offset in range(4)] == [0, 0, 0, 1]
    assert state.index.position(1) == 400
    assert state.index.size(1) == len(view("d"))
    assert state.bytes_from(1) == len(view("a", "b", "c")) + len(view("d"))
    assert state.bytes_from(4) == 0


def test_a_limit_in_bytes_cuts_between_batches() -> None:
    state = PartitionState(7)
    for number in range(5):
        state.append(view("x"), number * 1000, 1)
    size = state.index.size(0)
    assert state.index.within(1, 0) == 1
    assert state.index.within(1, size - 1) == 1
    assert state.index.within(1, size) == 2
    assert state.index.within(1, 3 * size + 1) == 4
    assert state.index.within(1, 100 * size) == 5


def test_epochs_are_kept_as_runs() -> None:
    state = PartitionState(7)
    for epoch in (3, 3, 8, 8, 9):
        state.append(view("x", "y"), 0, epoch)
    assert [state.epoch_of(offset)[0] for offset in (0, 3, 4, 7, 8)] == [3, 3, 8, 8, 9]
    assert state.epoch_of(0)[1] == 4


def test_times_need_not_be_monotone() -> None:
    state = PartitionState(7)
    times = [(number * 37) % 1_000 for number in range(3 * BLOCK_BATCHES)]
    for time_ms in times:
        state.append(view("x", at_ms=time_ms), 0, 1)
    for wanted in (0, 1, 500, 998, 999):
        expected = next(number for number, time_ms in enumerate(times) if time_ms >= wanted)
        assert state.index.reaching(START_MS + wanted) == expected
    assert state.index.reaching(START_MS + 1_000) is None
    assert state.index.next_latest() == times.index(999)


def test_what_lies_before_the_log_start_is_forgotten() -> None:
    state = PartitionState(7)
    for number in range(2 * BLOCK_BATCHES):
        state.append(view("x", "y", at_ms=-number), number * 1_000, 1)
    state.start_at(1_001)  # within batch 500, which stays whole
    assert state.log_start == 1_001
    assert state.index.first == 500
    assert (state.index.find(1_001), state.index.position(500)) == (500, 500_000)
    assert state.index.next_latest() == 500
    assert state.append(view("z"), 5, 1).number == 2 * BLOCK_BATCHES
    assert state.index.find(4 * BLOCK_BATCHES) == 2 * BLOCK_BATCHES
    state.start_at(state.next_offset)
    assert len(state.index) == 0
    assert state.index.next_latest() is None
    assert state.append(view("z"), 5, 1).base_offset == 4 * BLOCK_BATCHES + 1


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(st.integers(1, 700), st.floats(0, 1)), max_size=12), st.integers(0, 99))
def test_times_are_found_wherever_the_index_was_cut(script: list[int | float], seed: int) -> None:
    """An integer appends that many batches; a fraction drops that share of what is held."""
    index, held, dice = BatchIndex(), [], Random(seed)
    for step in script:
        if isinstance(step, int):
            for _ in range(step):
                time_ms = dice.randrange(1_000)
                held.append((index.append(index.stop, 0, 1, time_ms), time_ms))
        else:
            index.drop_before(index.first + round(step * len(held)))
            held = [one for one in held if one[0] >= index.first]
    for wanted in (0, 1, 500, 990, 999, 1_000):
        expected = next((number for number, time_ms in held if time_ms >= wanted), None)
        assert index.reaching(wanted) == expected
    latest = max((time_ms for _, time_ms in held), default=None)
    expected = next((number for number, time_ms in held if time_ms == latest), None)
    assert index.next_latest() == expected


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        batch("a")[: HEADER_BYTES - 1],
        batch("a")[:-1],
        batch("a") + b"x",
        batch("a")[:16] + b"\x01" + batch("a")[17:],
    ],
)
def test_bytes_that_no_node_proposes_stop_the_replica(damaged: bytes) -> None:
    state = PartitionState(7)
    with pytest.raises(DamagedEntryError):
        state.append(memoryview(damaged), 0, 1)
    assert state.next_offset == 0


def test_a_refused_batch_changes_nothing() -> None:
    state = PartitionState(7)
    state.append(view("a", pid=1, seq=0), 0, 1)
    refused = state.append(view("b", pid=1, seq=2), 500, 1)
    assert refused == Append(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1, None)
    again = state.append(view("a", pid=1, seq=0), 900, 1)
    assert again == Append(ErrorCode.NONE, 0, None)
    assert (state.next_offset, len(state.index)) == (1, 1)


# ---- exactly once ----------------------------------------------------------------------------


class Sent(NamedTuple):
    name: str
    first: int
    count: int


class Producer:
    """A client's half: up to five batches in flight, retried in order until they are acknowledged.

    Its first batch goes alone, as the sequence of an unknown producer cannot be checked.
    """

    def __init__(self, pid: int, sizes: list[int]) -> None:
        self.pid = pid
        self.unacked: list[Sent] = []
        self.acked: dict[str, int | None] = {}
        first = 0
        for number, count in enumerate(sizes):
            self.unacked.append(Sent(f"{pid}/{number}", first, count))
            first += count

    def in_flight(self) -> list[Sent]:
        return self.unacked[: 5 if self.acked else 1]

    def answered(self, sent: Sent, answer: Append) -> None:
        if answer.error is ErrorCode.NONE:
            self.acked[sent.name] = answer.base_offset
        elif answer.error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self.acked[sent.name] = None
        else:
            assert answer.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            return
        self.unacked = [one for one in self.unacked if one.name != sent.name]


LOST, NO_ANSWER, FINE = "refused on its way", "appended, answer lost", "fine"


@settings(max_examples=120, deadline=None, database=None)
@given(
    sizes=st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=12), min_size=1, max_size=3),
    data=st.data(),
)
def test_what_is_acknowledged_is_there_exactly_once(
    sizes: list[list[int]], data: st.DataObject
) -> None:
    """Whatever is lost, retried or sent twice: offsets are dense, with no loss, no duplicate, in
    order."""
    producers = [Producer(pid, counts) for pid, counts in enumerate(sizes)]
    replicas = [PartitionState(1), PartitionState(1)]
    log: list[tuple[str, int, int]] = []

    def deliver(pid: int, sent: Sent) -> Append:
        body = view(*(["r"] * sent.count), pid=pid, seq=sent.first)
        before = replicas[0].next_offset
        answers = [replica.append(body, 10 * before, 4) for replica in replicas]
        assert answers[0] == answers[1]
        if answers[0].number is not None:
            assert answers[0].base_offset == before
            log.append((sent.name, before, sent.count))
        return answers[0]

    rounds = 0
    while any(producer.unacked for producer in producers):
        rounds += 1
        producer = data.draw(st.sampled_from([one for one in producers if one.unacked]))
        for sent in producer.in_flight():
            fates = [FINE] if rounds > 60 else [FINE, FINE, LOST, NO_ANSWER]
            fate = data.draw(st.sampled_from(fates))
            if fate is not LOST:
                answer = deliver(producer.pid, sent)
                if fate is FINE:
                    producer.answered(sent, answer)

    names = [name for name, _, _ in log]
    assert len(set(names)) == len(names), "appended twice"
    offset = 0
    for _, base, count in log:
        assert base == offset
        offset += count
    assert replicas[0].next_offset == offset
    where = {name: base for name, base, _ in log}
    for producer in producers:
        mine = [name for name in names if name.startswith(f"{producer.pid}/")]
        assert mine == sorted(mine, key=lambda name: int(name.split("/")[1])), "out of order"
        assert set(producer.acked) == set(mine)
        for name, base in producer.acked.items():
            assert base in (None, where[name])
