"""The memory tail counts what it really keeps alive."""

import gc
import weakref

from broker.tail import (
    BATCH_OVERHEAD_BYTES,
    BUFFER_OVERHEAD_BYTES,
    ROW_OVERHEAD_BYTES,
    SHARED_OVERHEAD_BYTES,
    Tail,
)

ALONE = ROW_OVERHEAD_BYTES + BATCH_OVERHEAD_BYTES
OVERHEAD = ALONE + BUFFER_OVERHEAD_BYTES


class Frame(bytearray):
    """A buffer whose end can be observed."""


def test_a_buffer_counts_once_and_until_its_last_batch_has_gone() -> None:
    tail = Tail(bytes_max=1 << 20)
    frame = Frame(1_000)
    gone = weakref.ref(frame)
    tail.append(1, 0, memoryview(frame)[10:20])
    tail.append(2, 0, memoryview(frame)[20:30])
    assert tail.bytes_held == 1_000 + SHARED_OVERHEAD_BYTES + 2 * ALONE
    tail.drop(1)
    assert tail.bytes_held == 1_000 + SHARED_OVERHEAD_BYTES + ALONE
    del frame
    gc.collect()
    assert gone() is not None
    tail.drop(2)
    gc.collect()
    assert tail.bytes_held == 0
    assert gone() is None


def test_a_buffer_that_is_mostly_one_batch_counts_with_it_and_again_with_the_others() -> None:
    """It never counts less than what it keeps alive, in whatever order batches go."""
    for first, then in ((1, 2), (2, 1)):
        tail = Tail(bytes_max=1 << 20)
        frame = Frame(1_000)
        tail.append(1, 0, memoryview(frame)[:900])
        assert tail.bytes_held == 1_000 + OVERHEAD
        tail.append_row(2, 0, [memoryview(frame)[900:950], memoryview(frame)[950:]])
        of_two = 1_000 + SHARED_OVERHEAD_BYTES + ALONE + BATCH_OVERHEAD_BYTES
        assert tail.bytes_held == 1_000 + OVERHEAD + of_two
        tail.drop(first)
        assert tail.bytes_held == (of_two if first == 1 else 1_000 + OVERHEAD)
        tail.drop(then)
        assert tail.bytes_held == 0


def test_what_came_together_goes_together() -> None:
    row = 400 + BUFFER_OVERHEAD_BYTES + 4 * BATCH_OVERHEAD_BYTES + ROW_OVERHEAD_BYTES
    tail = Tail(bytes_max=3 * row)
    for number in range(0, 400, 4):
        for uid in (1, 2):
            view = memoryview(bytes(n // 100 for n in range(400)))
            tail.append_row(uid, number, [view[at : at + 100] for at in range(0, 400, 100)])
        for uid, rows in ((1, 1), (2, 2)):
            kept = tail.kept(uid)
            assert kept is not None
            assert (kept.first, kept.stop) == (max(0, number + 4 - 4 * rows), number + 4)
            if number:
                batches = kept.between(kept.first, kept.stop)
                assert [one[0] for one in batches] == [0, 1, 2, 3] * rows
        assert tail.bytes_held == min(3, number // 2 + 2) * row


def test_over_the_limit_the_oldest_batches_of_the_node_go() -> None:
    size = 1_000
    tail = Tail(bytes_max=3 * (size + OVERHEAD))
    for uid, number in [(1, 0), (2, 0), (1, 1), (2, 1)]:
        tail.append(uid, number, memoryview(bytes(size)))
    one, two = tail.kept(1), tail.kept(2)
    assert one is not None
    assert two is not None
    assert (one.first, one.stop) == (1, 2)
    assert (two.first, two.stop) == (0, 2)
    assert tail.bytes_held == 3 * (size + OVERHEAD)


def test_numbers_stay_right_through_thousands_of_evictions() -> None:
    tail = Tail(bytes_max=10 * (100 + OVERHEAD))
    for number in range(5_000):
        tail.append(1, number, memoryview(number.to_bytes(100, "big")))
        kept = tail.kept(1)
        assert kept is not None
        assert kept.stop == number + 1
        assert kept.first == max(0, number - 9)
        for back, data in enumerate(reversed(kept.between(kept.first, kept.stop))):
            assert int.from_bytes(data, "big") == number - back


def test_a_gap_forgets_what_was_before_it() -> None:
    """Batches that are applied without being kept (in a replay) leave a gap."""
    tail = Tail(bytes_max=1 << 20)
    tail.append(1, 0, memoryview(b"old"))
    tail.append(1, 5, memoryview(b"new"))
    kept = tail.kept(1)
    assert kept is not None
    assert (kept.first, kept.stop) == (5, 6)
    assert tail.bytes_held == 3 + OVERHEAD


def test_a_dropped_partition_is_skipped_when_its_turn_comes() -> None:
    tail = Tail(bytes_max=2 * (100 + OVERHEAD))
    tail.append(1, 0, memoryview(bytes(100)))
    tail.drop(1)
    assert tail.kept(1) is None
    for number in range(3):
        tail.append(2, number, memoryview(bytes(100)))
    kept = tail.kept(2)
    assert kept is not None
    assert (kept.first, kept.stop) == (1, 3)


def test_no_memory_means_nothing_is_kept() -> None:
    tail = Tail(bytes_max=0)
    for number in range(3):
        tail.append(1, number, memoryview(b"x"))
    kept = tail.kept(1)
    assert kept is not None
    assert kept.first == kept.stop == 3
    assert tail.bytes_held == 0
