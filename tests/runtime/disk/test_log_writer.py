"""The threads at the disk: one batch at a time, and no failure goes unnoticed."""

import errno
import select
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paxos.entry import batch
from paxos.ids import BALLOT_ZERO, GroupId, NodeId, Slot
from paxos.step import AcceptRecord
from runtime.disk import log_writer
from runtime.disk.log_writer import SLOW_SYNCS_KEPT, LogWriter
from runtime.network.dataplane import Wakeup
from storage.disk.files import RealDisk, RealFile
from storage.disk.memory import MemoryDisk, MemoryFile
from storage.disk.space import RESERVE_NAME, Space, SpaceConfig
from storage.errors import StorageFailed, storage_failed
from storage.identity import boot
from storage.log import segments
from storage.log.model import WalConfig, WriteBatch
from storage.log.opening import open_wal
from storage.log.wal import Wal
from tests.runtime.doubles import GIVE_UP_MS
from tests.storage.kernel_io import refusal_of_kernel_writes, skip_without_kernel_writes

GIVE_UP_S = GIVE_UP_MS / 1000
SEGMENT_BYTES = 1 << 16


class Harness:
    """A log on a memory disk, its writer, and a gate in front of the disk."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.wal, _ = open_wal(
            self.disk, boot(self.disk, "test", NodeId(1)), WalConfig(segment_bytes=SEGMENT_BYTES)
        )
        self.gate = threading.Event()
        self.gate.set()
        self.writes = 0
        self.zeros: list[bool] = []
        self.prepared = threading.Semaphore(0)
        self._write, self._prepare = self.wal.write, self.wal.prepare_next
        self.wal.write = self._gated_write
        self.wal.prepare_next = self._noted_prepare
        self.wakeup = Wakeup()
        space = SpaceConfig(low_water_bytes=4 * SEGMENT_BYTES, reserve_bytes=SEGMENT_BYTES)
        self.writer = LogWriter(self.wal, self.wakeup, Space(self.disk, space))
        self.slot = 0

    def _gated_write(self, staged: WriteBatch) -> None:
        assert self.gate.wait(GIVE_UP_S)
        self.writes += 1
        self._write(staged)

    def _noted_prepare(self, *, zeros: bool = True) -> bool:
        self.zeros.append(zeros)
        try:
            return self._prepare(zeros=zeros)
        finally:
            self.prepared.release()

    def stage(self) -> None:
        self.slot += 1
        entry = batch((b"x" * 100,))
        self.wal.stage(
            AcceptRecord(GroupId(1), Slot(self.slot), BALLOT_ZERO, entry, Slot(self.slot - 1))
        )

    def submit(self) -> WriteBatch:
        staged = self.wal.take()
        assert staged is not None
        self.writer.submit(staged)
        return staged

    def woken(self) -> bool:
        """Wait for the eventfd, as the data plane does."""
        return bool(select.select([self.wakeup.fd], [], [], GIVE_UP_S)[0])

    def is_quiet(self) -> bool:
        return not select.select([self.wakeup.fd], [], [], 0)[0]


@pytest.fixture
def harness() -> Iterator[Harness]:
    harness = Harness()
    yield harness
    harness.gate.set()
    harness.writer.stop()
    assert not threads()
    harness.wakeup.close()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("evenkeel-")]


def test_a_batch_is_written_and_told(harness: Harness) -> None:
    harness.stage()
    harness.stage()
    staged = harness.submit()
    assert harness.writer.busy
    assert harness.woken()
    assert harness.writer.take_done() is staged
    assert not harness.writer.busy
    assert harness.is_quiet()
    harness.wal.written(staged)
    assert harness.wal.synced == harness.wal.end


def test_one_batch_is_under_way_and_the_rest_shares_the_next(harness: Harness) -> None:
    """Group commit: the loop's thread stages more while the disk works."""
    harness.gate.clear()
    harness.stage()
    first = harness.submit()
    for _ in range(50):
        harness.stage()
    with pytest.raises(AssertionError):
        harness.writer.submit(first)
    assert harness.writer.take_done() is None
    assert harness.writer.busy
    harness.gate.set()
    assert harness.woken()
    harness.wal.written(harness.writer.take_done())
    second = harness.submit()
    assert harness.woken()
    harness.wal.written(harness.writer.take_done())
    assert (harness.writes, first.pieces, second.pieces) == (2, 1, 50)


def test_nothing_done_is_no_news(harness: Harness) -> None:
    """The eventfd may be set for another reason."""
    assert harness.writer.take_done() is None


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_a_failure_is_final(harness: Harness, operation: str) -> None:
    """After a failed fsync the kernel may have dropped the pages: a second one would lie."""
    harness.stage()
    harness.disk.fail(operation, errno.EIO)
    harness.submit()
    assert harness.woken()
    for _ in range(3):
        with pytest.raises(StorageFailed, match="injected"):
            harness.writer.take_done()
    assert harness.writer.busy, "nothing more is taken"


def test_a_bug_in_a_thread_is_a_failure_too(harness: Harness) -> None:
    """If a thread died unnoticed, the node would live on and acknowledge nothing."""

    def broken(_staged: WriteBatch) -> None:
        raise ValueError("a bug")

    harness.wal.write = broken
    harness.stage()
    harness.submit()
    assert harness.woken()
    with pytest.raises(ValueError, match="a bug"):
        harness.writer.take_done()


def test_the_next_segment_is_prepared_in_the_background(harness: Harness) -> None:
    """The first one is filled with zeros; where segments fill within seconds, space is only
    reserved."""
    assert harness.wal.wants_segment
    harness.writer.prepare_soon()
    assert harness.prepared.acquire(timeout=GIVE_UP_S)
    assert not harness.wal.wants_segment
    while not harness.wal.wants_segment:
        harness.stage()
        harness.submit()
        assert harness.woken()
        harness.wal.written(harness.writer.take_done())
    harness.writer.prepare_soon()
    assert harness.prepared.acquire(timeout=GIVE_UP_S)
    assert not harness.wal.wants_segment
    assert harness.zeros == [True, False]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < end, "it never comes true"
        time.sleep(0.005)


def low(harness: Harness) -> bool:
    return harness.writer.room is not None and harness.writer.room.low


def fill(harness: Harness, *, before_next: Callable[[], bool]) -> None:
    """Write until there is no room for a batch."""
    while not harness.writer.starved:
        for _ in range(50):
            harness.stage()
        harness.submit()
        until(lambda: harness.writer.starved or not harness.is_quiet())
        if not harness.writer.starved:
            harness.wakeup.clear()
            harness.wal.written(harness.writer.take_done())
            if harness.wal.wants_segment:
                harness.writer.prepare_soon()
                until(lambda: not harness.wal.wants_segment or before_next())


def test_a_full_disk_costs_the_reserve_then_the_pace_and_never_the_node(harness: Harness) -> None:
    """Prepared space is used to the end; then a batch waits until there is room again."""
    harness.disk.capacity_bytes = 14 * SEGMENT_BYTES
    until(lambda: RESERVE_NAME in harness.disk.names())
    assert not low(harness)
    harness.writer.prepare_soon()
    until(lambda: not harness.wal.wants_segment)
    others = harness.disk.create("others")
    others.reserve(harness.disk.free_bytes() - 100)  # another program fills the disk
    until(lambda: low(harness))
    assert RESERVE_NAME in harness.disk.names(), "the next segment is there"
    fill(harness, before_next=lambda: RESERVE_NAME not in harness.disk.names())
    assert harness.wal.statistics().segments == 4, "the first, the one ready, the reserve's, a wish"
    assert RESERVE_NAME not in harness.disk.names()
    assert harness.is_quiet(), "nothing is durable, and nothing has failed"
    assert low(harness)
    harness.disk.remove("others")
    assert harness.woken()
    harness.wal.written(harness.writer.take_done())
    until(lambda: not harness.writer.starved and not low(harness))
    until(lambda: RESERVE_NAME in harness.disk.names())


def test_a_starved_writer_can_be_stopped() -> None:
    harness = Harness()
    harness.disk.capacity_bytes = SEGMENT_BYTES
    fill(harness, before_next=lambda: True)
    harness.writer.stop()
    assert not threads()
    harness.wakeup.close()


def test_a_disk_that_fails_to_make_a_segment_ends_it(harness: Harness) -> None:
    """Only a full disk is a temporary failure."""
    harness.disk.fail("reserve", errno.EIO)
    harness.disk.fail("fdatasync", errno.EIO)
    harness.writer.prepare_soon()
    assert harness.woken()
    with pytest.raises(StorageFailed, match="fdatasync of segment"):
        harness.writer.take_done()


def test_stopping_writes_what_was_submitted() -> None:
    harness = Harness()
    harness.gate.clear()
    harness.stage()
    staged = harness.submit()
    stopping = threading.Thread(target=harness.writer.stop)
    stopping.start()
    harness.gate.set()
    stopping.join(GIVE_UP_S)
    assert harness.writer.take_done() is staged
    assert threads() == []
    harness.wakeup.close()


def test_stopping_after_a_failure_waits_for_nobody(harness: Harness) -> None:
    harness.stage()
    harness.disk.fail("fdatasync", errno.EIO)
    harness.submit()
    assert harness.woken()
    harness.writer.stop()
    assert threads() == []


def test_stopping_while_a_segment_is_being_prepared(harness: Harness) -> None:
    """That segment is finished first; no second one is prepared."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(*, zeros: bool) -> bool:
        entered.set()
        assert go_on.wait(GIVE_UP_S)
        return True

    harness.wal.prepare_next = slow
    harness.writer.prepare_soon()
    assert entered.wait(GIVE_UP_S)
    stopping = threading.Thread(target=harness.writer.stop)
    stopping.start()
    go_on.set()
    stopping.join(GIVE_UP_S)
    assert threads() == []


def test_stopping_does_not_wait_for_a_whole_segment_of_zeros(harness: Harness) -> None:
    """But it does wait for the thread: the caller closes the directory next, and must be alone in
    it."""
    entered, go_on = threading.Event(), threading.Event()
    fdatasync = MemoryFile.fdatasync
    pieces: list[str] = []

    def slow(file: MemoryFile) -> None:
        if threading.current_thread().name == "evenkeel-prepare":
            pieces.append(file.name)
            entered.set()
            assert go_on.wait(GIVE_UP_S)
        fdatasync(file)

    harness.wal.prepare_next = lambda **_: harness.wal._files.prepare(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ZEROS_BYTES", SEGMENT_BYTES // 8)
        patch.setattr(MemoryFile, "fdatasync", slow)
        harness.writer.prepare_soon()
        assert entered.wait(GIVE_UP_S)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(harness.writer.stop()))
        stopping.start()
        until(lambda: harness.wal._files._hurry)
        assert stopping.is_alive(), "it waits for the thread"
        go_on.set()
        stopping.join(GIVE_UP_S)
    assert stopped == [True]
    assert pieces == ["segment.tmp"], "one of eight pieces"
    assert threads() == []


def test_who_hangs_at_the_disk_is_told_of(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_writer, "STOP_S", 0.05)
    harness.gate.clear()
    harness.stage()
    harness.submit()
    assert not harness.writer.stop(), "the directory is not to be given away"
    harness.gate.set()


def test_durations_are_kept_in_bounds(harness: Harness) -> None:
    """Nobody scrapes: then only the first few hundred of a second are kept."""
    harness.writer.durations_s = [0.001] * (SLOW_SYNCS_KEPT - 1)
    for _ in range(3):
        harness.stage()
        harness.submit()
        assert harness.woken()
        harness.wal.written(harness.writer.take_done())
    assert len(harness.writer.durations_s) == SLOW_SYNCS_KEPT
    assert 0 < harness.writer.durations_s[-1] < GIVE_UP_S


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Wal, LogWriter, Wakeup]]:
    """A log on a real disk, where the kernel writes batches if it can."""
    disk = RealDisk(tmp_path)
    wal, _ = open_wal(disk, boot(disk, "test", NodeId(1)), WalConfig(segment_bytes=SEGMENT_BYTES))
    wakeup = Wakeup()
    space = SpaceConfig(low_water_bytes=4 * SEGMENT_BYTES, reserve_bytes=SEGMENT_BYTES)
    writer = LogWriter(wal, wakeup, Space(disk, space))
    yield wal, writer, wakeup
    assert writer.stop()
    wakeup.close()
    disk.close()


@pytest.fixture
def by_kernel(tmp_path: Path, real: tuple[Wal, LogWriter, Wakeup]) -> tuple[Wal, LogWriter, Wakeup]:
    """The same; skipped where the kernel or the file system does not support such writes."""
    skip_without_kernel_writes(tmp_path)
    return real


def staged_of(wal: Wal, first: int, count: int, size: int) -> WriteBatch:
    for slot in range(first, first + count):
        entry = batch((b"x" * size,))
        wal.stage(AcceptRecord(GroupId(1), Slot(slot), BALLOT_ZERO, entry, Slot(slot - 1)))
    staged = wal.take()
    assert staged is not None
    return staged


def taken_when_told(wal: Wal, writer: LogWriter, wakeup: Wakeup, staged: WriteBatch) -> None:
    """Wait for the eventfd; the kernel may report more than once about a batch."""
    done = None
    while done is None:
        assert select.select([wakeup.fd], [], [], GIVE_UP_S)[0]
        done = writer.take_done()
    assert done is staged
    wal.written(done)


def begun_in_the_usual_way(wal: Wal, writer: LogWriter, wakeup: Wakeup) -> None:
    """The thread writes the first batch after a start, because it opens the file."""
    staged = staged_of(wal, 1, 1, 10)
    writer.submit(staged)
    assert writer._begun is None
    taken_when_told(wal, writer, wakeup, staged)


def test_a_real_log_is_the_same_whoever_writes_a_batch(
    real: tuple[Wal, LogWriter, Wakeup], tmp_path: Path
) -> None:
    """The kernel writes batches within a segment, and the thread those that begin a new one; a
    restart finds them all."""
    wal, writer, wakeup = real
    count_by_kernel = 0
    for first in range(1, 400, 10):
        staged = staged_of(wal, first, 10, 700)
        writer.submit(staged)
        count_by_kernel += writer._begun is not None
        taken_when_told(wal, writer, wakeup, staged)
        if wal.wants_segment:
            writer.prepare_soon()
    assert wal.statistics().segments > 3
    assert wal.statistics().batches == 40
    assert len(writer.durations_s) == 40
    assert count_by_kernel > 20 or refusal_of_kernel_writes(tmp_path) is not None
    disk = RealDisk(shutil.copytree(tmp_path, tmp_path.with_name("copy")))
    _, recovered = open_wal(
        disk, boot(disk, "test", NodeId(1)), WalConfig(segment_bytes=SEGMENT_BYTES)
    )
    assert recovered.groups[GroupId(1)].applied == 399
    assert recovered.cut is None


def test_stopping_waits_for_the_kernel(real: tuple[Wal, LogWriter, Wakeup]) -> None:
    wal, writer, _ = real
    staged = staged_of(wal, 1, 10, 700)
    writer.submit(staged)
    assert writer.stop()
    assert writer.take_done() is staged


def test_what_the_kernel_cannot_finish_the_thread_writes(
    by_kernel: tuple[Wal, LogWriter, Wakeup], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write was cut short: nobody knows how much of it is there."""
    wal, writer, wakeup = by_kernel
    begun_in_the_usual_way(wal, writer, wakeup)
    finish = RealFile.finish_write
    monkeypatch.setattr(RealFile, "finish_write", lambda file, wait: finish(file, wait) and False)
    staged = staged_of(wal, 2, 10, 700)
    writer.submit(staged)
    assert writer._begun is not None
    until(lambda: writer._begun is None or writer.take_done())
    until(lambda: not writer.busy or writer.take_done() is staged)
    wal.written(staged)
    assert wal.synced == wal.end


def test_a_failure_of_what_the_kernel_writes_is_final(
    by_kernel: tuple[Wal, LogWriter, Wakeup], monkeypatch: pytest.MonkeyPatch
) -> None:
    wal, writer, wakeup = by_kernel
    begun_in_the_usual_way(wal, writer, wakeup)

    def failing(file: RealFile, _wait_s: float = 0.0) -> bool:
        while RealFile.finish_write_for_real(file, GIVE_UP_S) is None:
            pass
        raise storage_failed("write", file.name, OSError(errno.EIO, "injected"))

    monkeypatch.setattr(RealFile, "finish_write_for_real", RealFile.finish_write, raising=False)
    monkeypatch.setattr(RealFile, "finish_write", failing)
    writer.submit(staged_of(wal, 2, 10, 700))
    assert writer._begun is not None
    with pytest.raises(StorageFailed, match="injected"):
        writer.take_done()
    for _ in range(2):
        with pytest.raises(StorageFailed, match="injected"):
            writer.take_done()
    assert writer.busy, "nothing more is taken"
