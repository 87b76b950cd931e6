"""The disk Protocol: one conformance test against the real disk and the memory disk.

The second part tests what only the memory disk can do: lose and tear unsynced writes.
"""

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from storage.disk.files import IOV_MAX, JOIN_BELOW_BYTES, Disk, RealDisk, join_small, write_all
from storage.disk.memory import SECTOR_BYTES, MemoryDisk, PowerCut
from storage.errors import DirectoryLocked, DiskFull, StorageFailed

MakeDisk = Callable[[], Disk]


@pytest.fixture(params=["real", "memory", "memory with short writes"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    if request.param == "real":
        return RealDisk(tmp_path / "made" / "on demand")
    return MemoryDisk(write_bytes_max=None if request.param == "memory" else 7)


def test_conformance_of_files(disk: Disk) -> None:
    """Bytes come back, holes are zeros, reads stop at the end of the file, names are a flat
    list."""
    assert disk.names() == []
    file = disk.create("b")
    assert (file.name, file.size()) == ("b", 0)
    write_all(file, [b"hello", memoryview(b" "), bytearray(b"world")], 3)
    file.fdatasync()
    assert file.size() == 14
    assert file.pread(100, 0) == b"\0\0\0hello world"
    assert file.pread(5, 3) == b"hello"
    assert file.pread(5, 14) == file.pread(5, 99) == b""
    write_all(file, [b"J"], 3)
    assert disk.open("b").pread(5, 3) == b"Jello"
    disk.create("a")
    assert disk.names() == ["a", "b"]
    assert disk.sizes() == {"a": 0, "b": 14}
    file.truncate(9)
    file.fdatasync()
    assert file.pread(100, 3) == b"Jello "
    assert disk.sizes() == {"a": 0, "b": 9}
    disk.rename("b", "a")
    disk.sync_directory()
    assert disk.names() == ["a"]
    assert disk.open("a").pread(5, 3) == b"Jello"
    assert file.pread(5, 3) == b"Jello", "an open file survives its renaming"
    disk.remove("a")
    disk.sync_directory()
    assert disk.names() == []


def test_conformance_of_refusals(disk: Disk) -> None:
    """A refusal by the system becomes a StorageFailed that says what failed, on which file, and
    why."""
    disk.create("there")
    for operation, attempt, number in (
        ("open", lambda: disk.create("there"), errno.EEXIST),
        ("open", lambda: disk.open("absent"), errno.ENOENT),
        ("rename", lambda: disk.rename("absent", "x"), errno.ENOENT),
        ("remove", lambda: disk.remove("absent"), errno.ENOENT),
    ):
        with pytest.raises(StorageFailed) as caught:
            attempt()
        assert (caught.value.operation, caught.value.errno) == (operation, number)
        assert caught.value.file in ("there", "absent")


def test_conformance_of_more_buffers_than_one_call_takes(disk: Disk) -> None:
    dice = Random(1)
    buffers = [dice.randbytes(dice.randrange(4)) for _ in range(3 * IOV_MAX + 5)]
    file = disk.create("many")
    write_all(file, buffers, 10)
    assert file.pread(1 << 20, 10) == b"".join(buffers)


def test_conformance_of_the_lock(disk: Disk, tmp_path: Path) -> None:
    """Only one holder has it until it is closed, whoever else asks."""
    other = RealDisk(disk.directory) if isinstance(disk, RealDisk) else disk
    disk.lock()
    with pytest.raises(DirectoryLocked, match="in use"):
        other.lock()
    disk.close()
    other.lock()
    assert other.names() == []
    other.close()


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    """Another process holds it and says which; after its death nothing is left of it."""
    code = (
        "import sys, pathlib; from storage.disk.files import RealDisk\n"
        f"disk = RealDisk(pathlib.Path({str(tmp_path)!r})); disk.lock()\n"
        "print('locked', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        disk = RealDisk(tmp_path)
        with pytest.raises(DirectoryLocked, match=f"in use by process {holder.pid}"):
            disk.lock()
        holder.kill()
        holder.wait()
        disk.lock()
        disk.close()


def test_a_disk_without_room_for_the_holders_name_can_be_locked(tmp_path: Path) -> None:
    """A node whose disk is full has a reserve to start with: it must get that far."""
    code = (
        "import pathlib, resource; from storage.disk.files import RealDisk\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"disk = RealDisk(pathlib.Path({str(tmp_path)!r})); disk.lock()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert (tmp_path / "lock").read_bytes() == b""


def test_a_file_closes_with_its_last_reference(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    files = [disk.create(str(number)) for number in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before + 20
    del files
    assert len(os.listdir("/proc/self/fd")) == before
    disk.close()


def test_a_directory_may_be_given_a_part_of_the_disk(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path, bytes_max=10_000)
    disk.lock()
    assert disk.free_bytes() == 10_000
    disk.create("a").reserve(4000)
    assert disk.free_bytes() == 6000
    disk.create("b").reserve(7000)
    assert disk.free_bytes() == 0
    assert RealDisk(tmp_path).free_bytes() > 10_000
    disk.close()


def test_a_full_disk_is_told_apart() -> None:
    file = MemoryDisk(capacity_bytes=100).create("big")
    write_all(file, [bytes(100)], 0)
    write_all(file, [b"again"], 20)
    with pytest.raises(DiskFull):
        write_all(file, [b"x"], 100)


def test_joining_copies_only_small_buffers() -> None:
    large = bytes(JOIN_BELOW_BYTES)
    buffers = [b"a", memoryview(b"b"), large, b"c", large, large, b"d", b"e"]
    joined = join_small(buffers)
    assert [bytes(buffer) for buffer in joined] == [b"ab", large, b"c", large, large, b"de"]
    assert joined[1] is large
    assert join_small([]) == []


# ---- the disk in memory -------------------------------------------------------------------------


def test_a_power_cut_keeps_what_was_synced_and_any_sectors_of_the_rest() -> None:
    outcomes = set()
    for seed in range(40):
        dice = Random(seed)
        disk = MemoryDisk()
        file = disk.create("f")
        disk.sync_directory()
        write_all(file, [b"a" * 3 * SECTOR_BYTES], 0)
        file.fdatasync()
        write_all(file, [b"b" * 3 * SECTOR_BYTES], 0)
        disk.crash(lambda dice=dice: dice.random() < 0.5)
        data = disk.open("f").pread(10_000, 0)
        sectors = [data[at : at + SECTOR_BYTES] for at in range(0, len(data), SECTOR_BYTES)]
        assert len(sectors) == 3
        assert all(len(set(sector)) == 1 for sector in sectors), "a sector is never torn"
        outcomes.add(bytes(sector[0] for sector in sectors))
    assert len(outcomes) == 8, "every subset occurs"


def test_a_file_cut_short_is_whole_again_unless_that_was_synced() -> None:
    for synced in (False, True):
        disk = MemoryDisk()
        file = disk.create("f")
        disk.sync_directory()
        write_all(file, [b"data"], 0)
        file.fdatasync()
        file.truncate(2)
        assert file.pread(4, 0) == b"da"
        if synced:
            file.fdatasync()
        disk.crash(lambda: False)
        assert disk.open("f").pread(4, 0) == (b"da" if synced else b"data")


def test_a_new_file_is_lost_without_a_synced_directory() -> None:
    disk = MemoryDisk()
    file = disk.create("lost")
    write_all(file, [b"data"], 0)
    file.fdatasync()
    disk.crash(lambda: False)
    assert disk.names() == []


def test_bytes_of_a_failed_fdatasync_are_lost_though_they_can_be_read() -> None:
    """As on Linux: the second fdatasync reports success and writes nothing."""
    disk = MemoryDisk()
    file = disk.create("f")
    disk.sync_directory()
    write_all(file, [b"data"], 0)
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(StorageFailed) as caught:
        file.fdatasync()
    assert caught.value.errno == errno.EIO
    assert file.pread(4, 0) == b"data"
    file.fdatasync()
    disk.kill()
    assert disk.open("f").pread(4, 0) == b"data"
    disk.crash(lambda: True)
    assert disk.open("f").pread(4, 0) == b""


def test_a_stopped_disk_leaves_its_writes_pending() -> None:
    disk = MemoryDisk()
    file = disk.create("f")
    disk.sync_directory()
    disk.stop("fdatasync", after=1)
    write_all(file, [b"one"], 0)
    file.fdatasync()
    write_all(file, [b"two"], 0)
    with pytest.raises(PowerCut):
        file.fdatasync()
    disk.crash(lambda: False)
    assert disk.open("f").pread(3, 0) == b"one"
    with pytest.raises(AssertionError, match="before the crash"):
        file.size()
