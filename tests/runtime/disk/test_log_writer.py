"""The threads at the disk: one batch at a time, and a failure that nobody can miss."""

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


class Desk:
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
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.gate.set()
    desk.writer.stop()
    assert not threads()
    desk.wakeup.close()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("evenkeel-")]


def test_a_batch_is_written_and_told(desk: Desk) -> None:
    desk.stage()
    desk.stage()
    staged = desk.submit()
    assert desk.writer.busy
    assert desk.woken()
    assert desk.writer.take_done() is staged
    assert not desk.writer.busy
    assert desk.is_quiet()
    desk.wal.written(staged)
    assert desk.wal.synced == desk.wal.end


def test_one_batch_is_under_way_and_the_rest_shares_the_next(desk: Desk) -> None:
    """Group commit: the loop's thread stages on while the disk works."""
    desk.gate.clear()
    desk.stage()
    first = desk.submit()
    for _ in range(50):
        desk.stage()
    with pytest.raises(AssertionError):
        desk.writer.submit(first)
    assert desk.writer.take_done() is None
    assert desk.writer.busy
    desk.gate.set()
    assert desk.woken()
    desk.wal.written(desk.writer.take_done())
    second = desk.submit()
    assert desk.woken()
    desk.wal.written(desk.writer.take_done())
    assert (desk.writes, first.pieces, second.pieces) == (2, 1, 50)


def test_nothing_done_is_no_news(desk: Desk) -> None:
    """The eventfd may be set for another reason."""
    assert desk.writer.take_done() is None


@pytest.mark.parametrize("operation", ["write", "fdatasync"])
def test_a_failure_is_final(desk: Desk, operation: str) -> None:
    """After a failed fsync the kernel may have dropped the pages: a second one would lie."""
    desk.stage()
    desk.disk.fail(operation, errno.EIO)
    desk.submit()
    assert desk.woken()
    for _ in range(3):
        with pytest.raises(StorageFailed, match="injected"):
            desk.writer.take_done()
    assert desk.writer.busy, "nothing more is taken"


def test_a_bug_in_a_thread_is_a_failure_too(desk: Desk) -> None:
    """A thread that died unseen would leave a node that lives and acknowledges nothing."""

    def broken(_staged: WriteBatch) -> None:
        raise ValueError("a bug")

    desk.wal.write = broken
    desk.stage()
    desk.submit()
    assert desk.woken()
    with pytest.raises(ValueError, match="a bug"):
        desk.writer.take_done()


def test_the_next_segment_is_prepared_in_the_background(desk: Desk) -> None:
    """The first one is filled with zeros; where segments fill within seconds, only reserved."""
    assert desk.wal.wants_segment
    desk.writer.prepare_soon()
    assert desk.prepared.acquire(timeout=GIVE_UP_S)
    assert not desk.wal.wants_segment
    while not desk.wal.wants_segment:
        desk.stage()
        desk.submit()
        assert desk.woken()
        desk.wal.written(desk.writer.take_done())
    desk.writer.prepare_soon()
    assert desk.prepared.acquire(timeout=GIVE_UP_S)
    assert not desk.wal.wants_segment
    assert desk.zeros == [True, False]


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + GIVE_UP_S
    while not condition():
        assert time.monotonic() < end, "it never comes true"
        time.sleep(0.005)


def low(desk: Desk) -> bool:
    return desk.writer.room is not None and desk.writer.room.low


def fill(desk: Desk, *, before_next: Callable[[], bool]) -> None:
    """Write until there is no room for a batch."""
    while not desk.writer.starved:
        for _ in range(50):
            desk.stage()
        desk.submit()
        until(lambda: desk.writer.starved or not desk.is_quiet())
        if not desk.writer.starved:
            desk.wakeup.clear()
            desk.wal.written(desk.writer.take_done())
            if desk.wal.wants_segment:
                desk.writer.prepare_soon()
                until(lambda: not desk.wal.wants_segment or before_next())


def test_a_full_disk_costs_the_reserve_then_the_pace_and_never_the_node(desk: Desk) -> None:
    """What was ready is used to the end; then a batch waits until there is room again."""
    desk.disk.capacity_bytes = 14 * SEGMENT_BYTES
    until(lambda: RESERVE_NAME in desk.disk.names())
    assert not low(desk)
    desk.writer.prepare_soon()
    until(lambda: not desk.wal.wants_segment)
    others = desk.disk.create("others")
    others.reserve(desk.disk.free_bytes() - 100)  # somebody else fills the disk
    until(lambda: low(desk))
    assert RESERVE_NAME in desk.disk.names(), "the next segment is there"
    fill(desk, before_next=lambda: RESERVE_NAME not in desk.disk.names())
    assert desk.wal.statistics().segments == 4, "the first, the one ready, the reserve's, a wish"
    assert RESERVE_NAME not in desk.disk.names()
    assert desk.is_quiet(), "nothing is durable, and nothing has failed"
    assert low(desk)
    desk.disk.remove("others")
    assert desk.woken()
    desk.wal.written(desk.writer.take_done())
    until(lambda: not desk.writer.starved and not low(desk))
    until(lambda: RESERVE_NAME in desk.disk.names())


def test_a_starved_writer_can_be_stopped() -> None:
    desk = Desk()
    desk.disk.capacity_bytes = SEGMENT_BYTES
    fill(desk, before_next=lambda: True)
    desk.writer.stop()
    assert not threads()
    desk.wakeup.close()


def test_a_disk_that_fails_to_make_a_segment_ends_it(desk: Desk) -> None:
    """Only being full is something that passes."""
    desk.disk.fail("reserve", errno.EIO)
    desk.disk.fail("fdatasync", errno.EIO)
    desk.writer.prepare_soon()
    assert desk.woken()
    with pytest.raises(StorageFailed, match="fdatasync of segment"):
        desk.writer.take_done()


def test_stopping_writes_what_was_submitted() -> None:
    desk = Desk()
    desk.gate.clear()
    desk.stage()
    staged = desk.submit()
    stopping = threading.Thread(target=desk.writer.stop)
    stopping.start()
    desk.gate.set()
    stopping.join(GIVE_UP_S)
    assert desk.writer.take_done() is staged
    assert threads() == []
    desk.wakeup.close()


def test_stopping_after_a_failure_waits_for_nobody(desk: Desk) -> None:
    desk.stage()
    desk.disk.fail("fdatasync", errno.EIO)
    desk.submit()
    assert desk.woken()
    desk.writer.stop()
    assert threads() == []


def test_stopping_while_a_segment_is_being_prepared(desk: Desk) -> None:
    """It is finished first; there is no second one."""
    entered, go_on = threading.Event(), threading.Event()

    def slow(*, zeros: bool) -> bool:
        entered.set()
        assert go_on.wait(GIVE_UP_S)
        return True

    desk.wal.prepare_next = slow
    desk.writer.prepare_soon()
    assert entered.wait(GIVE_UP_S)
    stopping = threading.Thread(target=desk.writer.stop)
    stopping.start()
    go_on.set()
    stopping.join(GIVE_UP_S)
    assert threads() == []


def test_stopping_does_not_wait_for_a_whole_segment_of_zeros(desk: Desk) -> None:
    """And not a moment less than for the thread: who closes the directory then is alone in it."""
    entered, go_on = threading.Event(), threading.Event()
    fdatasync = MemoryFile.fdatasync
    pieces: list[str] = []

    def slow(file: MemoryFile) -> None:
        if threading.current_thread().name == "evenkeel-prepare":
            pieces.append(file.name)
            entered.set()
            assert go_on.wait(GIVE_UP_S)
        fdatasync(file)

    desk.wal.prepare_next = lambda **_: desk.wal._files.prepare(3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "ZEROS_BYTES", SEGMENT_BYTES // 8)
        patch.setattr(MemoryFile, "fdatasync", slow)
        desk.writer.prepare_soon()
        assert entered.wait(GIVE_UP_S)
        stopped: list[bool] = []
        stopping = threading.Thread(target=lambda: stopped.append(desk.writer.stop()))
        stopping.start()
        until(lambda: desk.wal._files._hurry)
        assert stopping.is_alive(), "it waits for the thread"
        go_on.set()
        stopping.join(GIVE_UP_S)
    assert stopped == [True]
    assert pieces == ["segment.tmp"], "one of eight pieces"
    assert threads() == []


def test_who_hangs_at_the_disk_is_told_of(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_writer, "STOP_S", 0.05)
    desk.gate.clear()
    desk.stage()
    desk.submit()
    assert not desk.writer.stop(), "the directory is not to be given away"
    desk.gate.set()


def test_durations_are_kept_in_bounds(desk: Desk) -> None:
    """Nobody scrapes: then the first few hundred of a second are all there is to know."""
    desk.writer.durations_s = [0.001] * (SLOW_SYNCS_KEPT - 1)
    for _ in range(3):
        desk.stage()
        desk.submit()
        assert desk.woken()
        desk.wal.written(desk.writer.take_done())
    assert len(desk.writer.durations_s) == SLOW_SYNCS_KEPT
    assert 0 < desk.writer.durations_s[-1] < GIVE_UP_S


@pytest.fixture
def real(tmp_path: Path) -> Iterator[tuple[Wal, LogWriter, Wakeup]]:
    """A log on a real disk, whose batches the kernel writes where it can."""
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
    """The same; skips where the kernel or the file system knows no such writes."""
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
    """Wait for the eventfd; a kernel may have more than one thing to say of a batch."""
    done = None
    while done is None:
        assert select.select([wakeup.fd], [], [], GIVE_UP_S)[0]
        done = writer.take_done()
    assert done is staged
    wal.written(done)


def begun_in_the_usual_way(wal: Wal, writer: LogWriter, wakeup: Wakeup) -> None:
    """The first batch after a start: by the thread, which opens the file."""
    staged = staged_of(wal, 1, 1, 10)
    writer.submit(staged)
    assert writer._begun is None
    taken_when_told(wal, writer, wakeup, staged)


def test_a_real_log_is_the_same_whoever_writes_a_batch(
    real: tuple[Wal, LogWriter, Wakeup], tmp_path: Path
) -> None:
    """Batches within a segment go by the kernel, those that begin a new one by the thread; a
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
    """A write that was cut short: nobody knows how much of it is there."""
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
