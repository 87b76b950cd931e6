"""Batches are copied out of the log: read in large pieces, checked, and given headers of their
own."""

from random import Random

import pytest

from broker.reads.batch_copy import PIECE_BYTES, PIECES_MAX, Copied, NearbyReader, copy, whole
from broker.state_machine.partition import PartitionState
from storage.cold.format import Written
from storage.errors import NotInLog, StorageError
from tests.broker.batches import batch

ALL = 1 << 40


class Log:
    """A log of that many bytes, as where a segment ends; `bad` ones cannot be read."""

    def __init__(self, data: bytearray) -> None:
        self.data = data
        self.bad: set[int] = set()
        self.reads = 0

    def read_span(self, position: int, size: int) -> memoryview:
        self.reads += 1
        if position + size > len(self.data):
            raise NotInLog("the segment ends here")
        if any(position <= one < position + size for one in self.bad):
            raise NotInLog("a bad block")
        return memoryview(self.data)[position : position + size]


def partitions(count: int, batches: int, pad: int) -> tuple[Log, list[PartitionState]]:
    """Partitions that take turns in one log."""
    data = bytearray(17)
    states = [PartitionState(uid) for uid in range(count)]
    for number in range(batches):
        state = states[number % count]
        one = batch(f"{number}", at_ms=number, pad=pad)
        state.append(memoryview(one), len(data), 1 + number // 50)
        data += one
    return Log(data), states


def contents_of(copied: Copied) -> list[tuple[int, int, int, bytes]]:
    return [(base, end, time_ms, b"".join(chunks)) for base, end, time_ms, chunks in copied.batches]


def test_pieces_hold_what_the_log_holds() -> None:
    dice = Random(1)
    log = Log(dice.randbytes(3 * PIECE_BYTES + 1000))
    nearby = NearbyReader(log)
    for _ in range(500):
        at = dice.randrange(len(log.data))
        size = min(dice.choice((1, 61, 5000, PIECE_BYTES)), len(log.data) - at)
        assert nearby.read_span(at, size) == log.data[at : at + size]
    with pytest.raises(StorageError):
        nearby.read_span(len(log.data) - 1, 2)


def test_each_piece_is_read_once_until_it_is_forgotten() -> None:
    log = Log(bytes(PIECES_MAX * PIECE_BYTES))
    nearby = NearbyReader(log)
    for _ in range(3):
        for at in range(0, len(log.data), 100_000):
            nearby.read_span(at, min(1000, len(log.data) - at))
    assert log.reads == PIECES_MAX
    nearby.forget()
    nearby.read_span(0, 1)
    assert log.reads == PIECES_MAX + 1


def test_it_keeps_no_more_pieces_than_it_may() -> None:
    log = Log(bytes((PIECES_MAX + 5) * PIECE_BYTES))
    nearby = NearbyReader(log)
    for number in range(PIECES_MAX + 5):
        nearby.read_span(number * PIECE_BYTES, 1)
        assert len(nearby._pieces) <= PIECES_MAX


@pytest.mark.parametrize("pad", [0, 3_000, 60_000])
def test_partitions_that_share_a_region_have_it_read_once(pad: int) -> None:
    log, states = partitions(5, 200, pad)
    log.data += bytes(-len(log.data) % PIECE_BYTES)  # a piece must be there as a whole
    nearby = NearbyReader(log)
    for state in states:
        plan = state.copy_plan(ALL)
        assert plan is not None
        assert contents_of(copy(nearby, plan, ALL)) == contents_of(copy(Log(log.data), plan, ALL))
    assert log.reads == len(log.data) // PIECE_BYTES


def test_what_cannot_be_read_is_told_and_what_lies_before_it_is_not_lost() -> None:
    """Also if a whole piece cannot be read because of it."""
    log, (state, _) = partitions(2, 40, 60_000)
    plan = state.copy_plan(ALL)
    assert plan is not None
    log.bad.add(plan.positions[7] + 100)
    for reader in (log, NearbyReader(log)):
        copied = copy(reader, plan, ALL)
        assert (len(copied.batches), copied.damaged) == (7, plan.positions[7])
        assert (copied.damaged_from, copied.damaged_to) == (plan.bases[7], plan.bases[8])


@pytest.mark.parametrize("pad", [0, 5_000])
def test_a_flipped_byte_is_noticed(pad: int) -> None:
    log, (state,) = partitions(1, 3, pad)
    plan = state.copy_plan(ALL)
    assert plan is not None
    good = contents_of(copy(log, plan, ALL))
    dice = Random(2)
    start, size = plan.positions[1], plan.sizes[1]
    assert isinstance(log.data, bytearray)
    for at in {*range(8, min(70, size)), *(dice.randrange(size) for _ in range(50))}:
        log.data[start + at] ^= 1 << dice.randrange(8)
        copied = copy(log, plan, ALL)
        if 12 <= at < 16 or at < 8:  # its old place, with other contents now
            assert contents_of(copied) == good
        else:
            assert (len(copied.batches), copied.damaged) == (1, start)
        log.data[start:] = b"".join(one[3] for one in good[1:])


def test_no_more_is_copied_than_was_asked_for_but_one() -> None:
    log, (state,) = partitions(1, 30, 1000)
    plan = state.copy_plan(ALL)
    assert plan is not None
    assert len(copy(log, plan, 1).batches) == 1
    copied = copy(log, plan, 5 * plan.sizes[0])
    assert len(copied.batches) == 5
    assert copied.size == sum(plan.sizes[:5])


def test_a_whole_batch_has_its_place_in_its_head() -> None:
    written: Written = (5, 8, 99, (b"head", memoryview(b"rest")))
    one = whole(written)
    assert (one.base, one.end, one.max_timestamp_ms, one.data) == (5, 8, 99, b"headrest")
