"""What the kernel writes meanwhile is what would have been written, and durable when it says so."""

import errno
import os
import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.direct import BLOCK_BYTES, STAGING_BYTES
from storage.disk import File, RealDisk, RealFile, write_all
from storage.errors import StorageFailed
from storage.kernel_writes import KernelWrites
from tests.storage.kernel_io import skip_without_kernel_writes

SIZE = 64 * BLOCK_BYTES
NAME = "segment-0000000001.wal"
GIVE_UP_S = 10.0


def prepared(directory: Path, size: int = SIZE) -> RealDisk:
    disk = RealDisk(directory)
    file = disk.create(NAME)
    file.reserve(size)
    file.fdatasync()
    return disk


@pytest.fixture
def wakeup() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def file(directory: Path) -> File:
    """(The disk that goes here is kept alive by its file's staging memory.)"""
    return prepared(directory).open(NAME)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Skips where the kernel or this file system knows no such writes: the thread is tested."""
    skip_without_kernel_writes(tmp_path)
    return tmp_path


def begin(file: File, buffers: list[bytes], offset: int, wakeup: int) -> None:
    assert file.begin_write(buffers, offset, wakeup)


def durable(file: File, wakeup: int) -> bool:
    """Wait for the eventfd as the data plane does."""
    assert select.select([wakeup], [], [], GIVE_UP_S)[0]
    os.eventfd_read(wakeup)
    result = file.finish_write()
    assert result is not None
    return result


def test_a_write_is_told_by_the_eventfd_and_is_there(file: File, wakeup: int) -> None:
    begin(file, [b"abc", b"d" * 5000], 10, wakeup)
    assert durable(file, wakeup)
    assert file.pread(5003, 10) == b"abc" + b"d" * 5000


def test_who_asks_before_the_end_hears_nothing_and_may_wait(file: File, wakeup: int) -> None:
    begin(file, [b"x" * 100_000], 0, wakeup)
    while (ended := file.finish_write()) is None:
        ended = file.finish_write(GIVE_UP_S)
        if ended is not None:
            break
    assert ended is True


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_with_usual_writes_leaves_the_same_bytes(
    file: File, wakeup: int, seed: int
) -> None:
    """Appends mostly, as the log does; a block that is not full is written again by the next."""
    dice = random.Random(seed)
    model = bytearray(SIZE)
    at = 0
    for _ in range(60):
        pieces = [dice.randbytes(dice.choice((1, 64, 500, 4096, 9000))) for _ in range(3)]
        if at + 30_000 > SIZE:
            at = 0
        if dice.random() < 0.7:
            begin(file, pieces, at, wakeup)
            assert durable(file, wakeup)
        else:
            write_all(file, pieces, at)
            file.fdatasync()
        data = b"".join(pieces)
        model[at : at + len(data)] = data
        at += len(data)
        assert file.pread(len(data), at - len(data)) == data
    written = file.pread(SIZE, 0)
    assert all(written[i] == model[i] or written[i] == 0 for i in range(SIZE))


def test_one_write_of_a_disk_at_a_time(directory: Path, wakeup: int) -> None:
    """The staging memory is the kernel's until it is done; a usual write waits for it."""
    disk = prepared(directory)
    file = disk.open(NAME)
    other = disk.create("segment-0000000002.wal")
    other.reserve(SIZE)
    other = disk.open("segment-0000000002.wal")
    begin(file, [b"x" * 10_000], 0, wakeup)
    assert not other.begin_write([b"y"], 0, wakeup)
    assert durable(file, wakeup)
    begin(other, [b"y"], 0, wakeup)
    assert durable(other, wakeup)


def test_what_does_not_fit_is_refused_before_anything_happens(tmp_path: Path, wakeup: int) -> None:
    disk = prepared(tmp_path, STAGING_BYTES + SIZE)
    file = disk.open(NAME)
    assert not file.begin_write([b"x" * STAGING_BYTES], 1, wakeup), "longer than the memory"
    assert not file.begin_write([b"x"], STAGING_BYTES + SIZE, wakeup), "beyond the file"
    assert not disk.create("grows").begin_write([b"x"], 0, wakeup), "no file of the log"
    write_all(file, [b"usual"], 0)
    assert file.pread(5, 0) == b"usual"


class Refusing(KernelWrites):
    """Ends every write with an error of the kernel."""

    error = errno.EIO

    def result(self, wait_s: float = 0.0) -> int | None:
        return None if super().result(GIVE_UP_S) is None else -self.error


@pytest.mark.parametrize("error", [errno.EIO, errno.EAGAIN])
def test_an_error_is_final_and_what_passes_is_written_again(
    directory: Path, wakeup: int, error: int
) -> None:
    file = prepared(directory).open(NAME)
    assert isinstance(file, RealFile)
    assert file._staging is not None
    file._staging.kernel = Refusing()
    file._staging.kernel.error = error
    begin(file, [b"lost?"], 0, wakeup)
    if error == errno.EIO:
        with pytest.raises(StorageFailed, match=f"write of {NAME}"):
            file.finish_write()
    else:
        assert file.finish_write() is False
    write_all(file, [b"again"], 0)
    assert file.pread(5, 0) == b"again"


def test_a_kernel_without_it_is_asked_once(tmp_path: Path, wakeup: int) -> None:
    """A sandbox may answer with EPERM, another machine has other numbers of system calls."""
    file = prepared(tmp_path).open(NAME)
    assert isinstance(file, RealFile)
    assert file._staging is not None
    kernel = file._staging.kernel
    kernel._setup.value = 10_000  # no system call
    assert not file.begin_write([b"x"], 0, wakeup)
    assert not kernel.supported
    write_all(file, [b"usual"], 0)
    assert file.pread(5, 0) == b"usual"
