"""Cold data is read again: all of it, not too fast, and at once where damage is suspected."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from paxos.ids import GroupId, Slot
from runtime.disk.scrubber import WINDOW_BYTES, Scrubber
from storage.disk.memory import MemoryDisk
from storage.format import OFFSET_MASK, RECORD_HEADER_BYTES, segment_name
from storage.log.model import WalConfig
from storage.log.wal import Wal
from storage.log.walk import Hole
from tests.runtime.doubles import GIVE_UP_MS, Recorder
from tests.storage.log_maker import accept, start, sync

GROUP = GroupId(1)
SEGMENT_BYTES = 8 * WINDOW_BYTES


class Harness:
    """A log of three segments, a scrubber with its thread, and its reports."""

    def __init__(self, bytes_per_s: int, every_s: float) -> None:
        self.disk = MemoryDisk()
        self.wal, _ = start(self.disk, WalConfig(segment_bytes=SEGMENT_BYTES))
        slot = 0
        while self.wal.statistics().segments < 3:
            slot += 1
            self.wal.stage(accept(slot, bytes([slot % 251]) * 20_000, applied=slot - 1))
            sync(self.wal)
        self.recorder = Recorder()
        self.woken = threading.Event()
        self.scrubber = Scrubber(
            self.wal,
            self.woken.set,
            self.recorder.journal,
            bytes_per_s=bytes_per_s,
            every_s=every_s,
        )

    def flip(self, slot: int) -> int:
        place = self.wal.find(GROUP, Slot(slot))[0]
        at = (place & OFFSET_MASK) + RECORD_HEADER_BYTES + 100
        self.disk.corrupt(segment_name(place >> 32), at, 1)
        return place

    def found(self) -> list[Hole]:
        until(self.woken.is_set)
        return self.scrubber.take()


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + GIVE_UP_MS / 1000
    while not condition():
        assert time.monotonic() < end, "it never comes true"
        time.sleep(0.002)


@contextmanager
def harness(*, bytes_per_s: int = 1 << 40, every_s: float = 0.01) -> Iterator[Harness]:
    one = Harness(bytes_per_s, every_s)
    one.scrubber.start()
    try:
        yield one
    finally:
        one.scrubber.stop()
    assert "evenkeel-scrub" not in [thread.name for thread in threading.enumerate()]


def used(wal: Wal) -> int:
    return sum(wal.scrub_target(number)[2] for number in wal.kept())


def test_pass_after_pass_reads_everything_and_finds_nothing_where_nothing_is() -> None:
    with harness() as one:
        until(lambda: one.scrubber.passes >= 2)
        assert one.scrubber.bytes_read >= 2 * (used(one.wal) - 3 * 512)
        assert one.scrubber.take() == []
        assert one.scrubber.errors == 0


def test_what_was_flipped_is_found_by_the_next_pass() -> None:
    with harness() as one:
        until(lambda: one.scrubber.passes >= 1)
        place = one.flip(7)
        (hole,) = one.found()[:1]
        assert (hole.start, hole.group, hole.slot) == (place, GROUP, 7)


def test_it_reads_no_faster_than_it_may() -> None:
    """Eight windows a second: a second reads at most these, and the one under way."""
    with harness(bytes_per_s=8 * WINDOW_BYTES) as one:
        until(lambda: one.scrubber.bytes_read)
        began, before = time.monotonic(), one.scrubber.bytes_read
        until(lambda: one.scrubber.bytes_read - before >= 4 * WINDOW_BYTES)
        took = time.monotonic() - began
        assert one.scrubber.bytes_read - before <= (8 * took + 2) * WINDOW_BYTES
        assert took > 0.25


def test_what_is_suspected_is_looked_at_at_once() -> None:
    """Where nothing is scrubbed, and in the middle of a pass that takes an hour."""
    for bytes_per_s, every_s in ((0, 3600.0), (1000, 0.01)):
        with harness(bytes_per_s=bytes_per_s, every_s=every_s) as one:
            place = one.flip(90)
            one.scrubber.suspect(place)
            (hole,) = one.found()[:1]
            assert hole.start == place


def test_a_segment_that_was_retired_is_nothing_to_look_at() -> None:
    with harness(bytes_per_s=0) as one:
        old = one.wal.find(GROUP, Slot(1))[0]
        one.wal.retire({GROUP: Slot(100_000)})
        sync(one.wal)
        place = one.flip(one.wal.slots(GROUP)[-1])
        one.scrubber.suspect(old)
        one.scrubber.suspect(place)
        (hole,) = one.found()[:1]
        assert hole.start == place
        assert one.scrubber.errors == 0
        assert not one.recorder.said("scrub failed")


def test_a_bug_of_ours_costs_one_look_and_not_the_thread() -> None:
    with harness(bytes_per_s=0) as one:
        place = one.flip(90)
        kept, one.wal._kept = one.wal._kept, None  # type: ignore[assignment]  # the bug
        one.scrubber.suspect(place)
        until(lambda: one.scrubber.errors == 1)
        one.wal._kept = kept
        (failed,) = one.recorder.said("request handler failed")
        assert failed["request"] == "scrub"
        one.scrubber.suspect(place)
        (hole,) = one.found()[:1]
        assert hole.start == place
