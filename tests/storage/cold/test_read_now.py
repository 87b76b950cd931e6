"""The event loop reads without waiting: it gets data from memory, or the answer that there is
none."""

import os
import time
from pathlib import Path

import pytest

from paxos.ids import GroupId, Slot
from storage import identity
from storage.checkpoints import CheckpointFiles
from storage.cold.store import ColdStore
from storage.disk.direct import LONG_READ_BYTES
from storage.disk.files import RealDisk
from storage.disk.kernel_queue import KernelQueue
from storage.disk.memory import MemoryDisk
from storage.disk.read_ahead import AHEAD_MAX, LATE_S, PROMPT_S
from tests.storage.cold.test_cold import OWNER
from tests.storage.cold.test_cold import made as batches
from tests.storage.disk.test_read_ahead import ahead_of, disk, made

__all__ = ["disk"]
LONG = LONG_READ_BYTES


@pytest.mark.parametrize("size", [1, 4096, 100_000])
def test_what_is_in_the_page_cache_and_nothing_else(disk: RealDisk, size: int) -> None:
    file, data = made(disk)
    file.fdatasync()
    until = time.monotonic() + 20
    while True:
        os.posix_fadvise(file._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        found = file.read_now(size, 4096)
        if found is None:
            break
        # Dropping pages is advice, and a quick device may already have read ahead: both outcomes
        # are right.
        assert found == data[4096 : 4096 + size]
        assert time.monotonic() < until, "it never says that it would have to wait"
    file.read_long(size, 4096)
    found = file.read_now(size, 4096)
    assert found == data[4096 : 4096 + size]
    assert found is not None
    assert found.readonly
    assert file.read_now(size, len(data) - size + 1) is None, "the file ends"


def test_a_long_read_is_begun_and_soon_there(disk: RealDisk) -> None:
    file, data = made(disk)
    until = time.monotonic() + 20
    while (found := file.read_now(LONG, 5)) is None:
        assert time.monotonic() < until
    assert found == data[5 : 5 + LONG]


def test_a_file_that_was_not_read_before_is_opened_by_a_thread(tmp_path: Path) -> None:
    directory = RealDisk(tmp_path)
    directory.create("a").pwritev([bytes(2 * LONG)], 0)
    file = directory.open("a")
    assert file.read_now(LONG, 0) is None
    assert len(file.read_long(LONG, 0)) == LONG


class Hanging(KernelQueue):
    """The device never answers."""

    waits_s = 0.0

    def completed(self, wait_s: float = 0.0) -> tuple[int, int] | None:
        return None

    def wait(self, wait_s: float) -> None:
        self.waits_s += wait_s
        time.sleep(wait_s)


def test_a_device_that_hangs_costs_the_loop_little(disk: RealDisk) -> None:
    """One short wait, and then none for a while."""
    file, _ = made(disk)
    ahead_of(file)._queue = queue = Hanging(AHEAD_MAX)
    ahead_of(file)._clock = time.monotonic
    for offset in range(50):
        assert file.read_now(LONG, offset) is None
    began = ahead_of(file)._late_until_s - LATE_S
    most = 1 + (time.monotonic() - began) / LATE_S
    assert 0 < queue.waits_s <= 1.5 * PROMPT_S * most
    ahead_of(file)._ahead.clear()
    queue._under_way = 0  # nobody waits for it at the end


def no_disk(store: ColdStore) -> None:
    def touch(operation: str, name: str) -> None:
        raise AssertionError(f"{operation} of {name}")

    store._disk.touch = touch  # type: ignore[attr-defined]


def test_what_the_loop_asks_of_cold_data_needs_no_disk_once_it_is_known() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for base in range(0, 60, 3):
        store.append(1, batches(base, base + 3), segment_bytes=300)
    assert store.knows(1), "whoever writes knows"
    disk.kill()
    found = ColdStore(disk, OWNER)
    assert not found.knows(1)
    assert found.known_end(1) == store.segments(1)[-1].base
    found.secure([1])
    assert found.knows(1)
    no_disk(found)
    assert found.segments(1) == store.segments(1)
    assert found.end(1) == found.known_end(1) == 60
    assert found.bytes_from(1, 11) > 0
    assert found.bytes_of(1) == store.bytes_of(1)
    assert found.written_since_ms(1) == store.written_since_ms(1)


def test_cold_data_is_read_now_when_its_file_is_open() -> None:
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for base in range(0, 60, 3):
        store.append(1, batches(base, base + 3), segment_bytes=300)
    disk.kill()
    found = ColdStore(disk, OWNER)
    assert found.read_now(1, 12, 1) is None
    assert found.read(1, 12, 1) == found.read_now(1, 12, 1)
    disk.reads_late = lambda: True
    assert found.read_now(1, 12, 1) is None


def test_what_an_older_checkpoint_needs_is_known_from_when_it_was_read() -> None:
    """The log is retired when the next one is written, on the event loop."""
    disk, group = MemoryDisk(), GroupId(1)
    who = identity.boot(disk, "c", 1)  # type: ignore[arg-type]
    CheckpointFiles(disk, who).save(group, Slot(5), 3, [b"x"])
    disk.kill()
    files = CheckpointFiles(disk, who)
    assert files.load(group) is not None
    files.save(group, Slot(9), 4, [b"y"])

    def opened(operation: str, name: str) -> None:
        raise AssertionError(f"{operation} of {name}")

    disk.touch = opened  # type: ignore[method-assign]
    assert files.needs(group) == 3
