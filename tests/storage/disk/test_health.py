"""When a disk counts as hung, as slow, and as healthy again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.disk.health import (
    BATCHES_KEPT,
    BATCHES_NEEDED,
    CLASS_MAX,
    HUNG_NS,
    NS_PER_BYTE,
    SLOW_AFTER_NS,
    SLOW_FOR_NS,
    SLOW_NS,
    DiskHealth,
    class_of,
)

MS = 1_000_000
TICK_NS = 20 * MS
GOOD, BAD = class_of(2 * MS), class_of(60 * MS)


class Disk:
    """A disk, and the ticks of its node."""

    def __init__(self) -> None:
        self.health = DiskHealth()
        self.now_ns = 0
        self.others: list[int] = []

    def wait(self, ns: int) -> None:
        end_ns = self.now_ns + ns
        while self.now_ns < end_ns:
            self.now_ns = min(end_ns, self.now_ns + TICK_NS)
            self.health.look(self.now_ns, self.others)

    def begin(self, size: int = 0) -> None:
        self.health.begun(self.now_ns, size)

    def end(self) -> None:
        self.health.ended(self.now_ns)
        self.health.look(self.now_ns, self.others)

    def batches(self, count: int, ns: int, size: int = 0) -> None:
        for _ in range(count):
            self.begin(size)
            self.wait(ns)
            self.end()


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_a_batch_that_waits_too_long_hangs_until_it_is_durable(disk: Disk) -> None:
    disk.wait(10 * HUNG_NS)
    assert not disk.health.hung, "nobody waits"
    disk.begin()
    disk.wait(HUNG_NS - TICK_NS)
    assert not disk.health.hung
    disk.wait(TICK_NS)
    assert disk.health.hung
    assert disk.health.degraded
    assert disk.health.own_class == CLASS_MAX
    disk.end()
    assert not disk.health.hung
    assert disk.health.waited_ns == 0


@pytest.mark.parametrize("stood_ns", [HUNG_NS, 100 * HUNG_NS])
def test_a_process_that_stood_still_blames_no_disk(disk: Disk, stood_ns: int) -> None:
    disk.begin()
    disk.now_ns += stood_ns
    disk.health.look(disk.now_ns)
    assert not disk.health.hung
    disk.end()
    assert disk.health.waited_ns == 0


def test_a_disk_is_slow_by_the_middle_one_of_its_batches(disk: Disk) -> None:
    disk.others = [GOOD, GOOD]
    disk.batches(BATCHES_NEEDED - 1, 2 * SLOW_NS)
    assert not disk.health.slow, "too few"
    disk.batches(1, 2 * SLOW_NS)
    assert disk.health.usual_ns >= SLOW_NS
    assert not disk.health.slow, "not for long"
    disk.wait(SLOW_AFTER_NS)
    assert disk.health.slow
    assert not disk.health.hung


def test_a_moment_in_which_others_are_better_says_nothing(disk: Disk) -> None:
    for _ in range(10):
        disk.others = [GOOD, GOOD]
        disk.batches(BATCHES_KEPT, 60 * MS)
        disk.others = [BAD, BAD]
        disk.batches(1, 60 * MS)
    assert not disk.health.slow


def test_who_gets_no_processor_blames_no_disk(disk: Disk) -> None:
    """Its batches are durable long before the node finds out."""
    disk.others = [GOOD, GOOD]
    for _ in range(4 * BATCHES_KEPT):
        disk.begin()
        disk.now_ns += 2 * SLOW_NS
        disk.end()
    assert not disk.health.slow


def test_single_waits_are_usual(disk: Disk) -> None:
    disk.others = [GOOD, GOOD]
    for _ in range(20):
        disk.batches(3, 2 * MS)
        disk.batches(2, 5 * SLOW_NS)
    assert not disk.health.slow


def test_who_does_not_know_its_disk_yet_is_no_better_place(disk: Disk) -> None:
    disk.others = [DiskHealth().own_class, DiskHealth().own_class]
    disk.batches(2 * BATCHES_KEPT, 2 * SLOW_NS)
    assert not disk.health.slow
    assert disk.health.own_class == class_of(2 * SLOW_NS)


@pytest.mark.parametrize(
    ("others", "slow"),
    [
        ([], False),
        ([BAD, BAD], False),
        ([BAD - 1, BAD], False),
        ([CLASS_MAX, CLASS_MAX], False),
        ([GOOD, BAD], True),
        ([GOOD, BAD, BAD], False),
        ([GOOD], True),
    ],
)
def test_where_all_disks_are_alike_none_is_slow(disk: Disk, others: list[int], slow: bool) -> None:
    """Three nodes of a test on one busy machine, or a data centre with old disks."""
    disk.others = others
    disk.batches(2 * BATCHES_KEPT, 60 * MS)
    assert disk.health.slow is slow


def test_who_was_slow_stays_so_for_a_while(disk: Disk) -> None:
    disk.others = [GOOD, GOOD]
    disk.batches(2 * BATCHES_KEPT, 60 * MS)
    disk.batches(BATCHES_KEPT, 2 * MS)
    assert disk.health.slow, "masters would go to and fro"
    disk.wait(SLOW_FOR_NS)
    assert not disk.health.slow


@given(st.integers(0, 10**12), st.integers(0, 10**12))
def test_classes_are_in_the_order_of_times(one_ns: int, other_ns: int) -> None:
    assert 0 <= class_of(one_ns) <= CLASS_MAX
    if one_ns <= other_ns:
        assert class_of(one_ns) <= class_of(other_ns)
    if 500_000 <= 4 * one_ns <= other_ns < 2**13 * MS:
        assert class_of(other_ns) >= class_of(one_ns) + 1


def test_a_large_batch_may_take_its_time(disk: Disk) -> None:
    """Four producers with messages of 10 MB: 43 ms a batch were called slow, and masters moved."""
    large = 10_000_000
    disk.others = [GOOD, GOOD]
    disk.batches(2 * BATCHES_KEPT, SLOW_NS + large * NS_PER_BYTE - TICK_NS, large)
    disk.wait(SLOW_AFTER_NS)
    assert not disk.health.slow
    disk.begin(large)
    disk.wait(HUNG_NS + large * NS_PER_BYTE - TICK_NS)
    assert not disk.health.hung
    disk.wait(TICK_NS)
    assert disk.health.hung, "but not for ever"
    disk.end()
    disk.batches(BATCHES_KEPT, 2 * SLOW_NS + large * NS_PER_BYTE, large)
    disk.wait(SLOW_AFTER_NS)
    assert disk.health.slow, "slower than its size explains"
