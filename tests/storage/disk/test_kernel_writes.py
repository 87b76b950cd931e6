"""Writes that the kernel finishes in the background have the same bytes, and are durable when it
says so."""

import errno
import os
import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from storage.disk import kernel_queue
from storage.disk.direct import BLOCK_BYTES, STAGING_BYTES
from storage.disk.files import File, RealDisk, RealFile, write_all
from storage.disk.kernel_writes import KernelWrites
from storage.errors import StorageFailed
from tests.storage.kernel_io import skip_without_kernel_writes

SIZE = 64 * BLOCK_BYTES
NAME = "segment-0000000001.wal"
GIVE_UP_S = 10.0
HEAD = b"head"
"""Written before, in the ordinary way."""


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
    """(The disk that is created here stays alive through its file's staging memory.)"""
    return opened(prepared(directory))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Skips the test if the kernel or this file system does not support such writes; the thread has
    its own tests."""
    skip_without_kernel_writes(tmp_path)
    return tmp_path


def opened(disk: RealDisk, name: str = NAME) -> RealFile:
    """As the log opens it: the first bytes are written in the ordinary way."""
    file = disk.open(name)
    assert isinstance(file, RealFile)
    write_all(file, [HEAD], 0)
    return file


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
    begin(file, [b"abc", b"d" * 5000], len(HEAD), wakeup)
    assert durable(file, wakeup)
    assert file.pread(5007, 0) == HEAD + b"abc" + b"d" * 5000


def test_what_follows_is_there_when_it_is_told(directory: Path, wakeup: int) -> None:
    disk = prepared(directory)
    file, other = opened(disk), disk.create("mark")
    assert file.begin_write([b"abc"], len(HEAD), wakeup, (other, b"so far", 5))
    assert durable(file, wakeup)
    assert other.pread(100, 0) == bytes(5) + b"so far"
    assert not select.select([wakeup], [], [], 0)[0], "told once"


def test_the_caller_never_does_the_work_itself(directory: Path, wakeup: int) -> None:
    """With IOSQE_ASYNC the kernel begins nothing in the caller's system call, which a frozen file
    system would block."""
    disk = prepared(directory)
    file, other = opened(disk), disk.create("mark")
    assert file.begin_write([b"abc"], len(HEAD), wakeup, (other, b"so far", 5))
    assert file._staging is not None
    entries = file._staging.kernel._entries
    flags = [entries[at + 1] for at in range(0, len(entries), kernel_queue._ENTRY.size)]
    assert len(flags) == 2
    assert all(one & kernel_queue._ASYNC for one in flags)
    assert [bool(one & kernel_queue._LINK) for one in flags] == [True, False]
    assert durable(file, wakeup)


def test_what_follows_waits_for_a_write_that_does_all_it_should(
    directory: Path, wakeup: int
) -> None:
    """The mark must never be above the truth."""
    disk = prepared(directory)
    file, other = opened(disk), disk.create("mark")
    direct = file._direct
    assert direct is not None
    closed = os.open("/dev/full", os.O_WRONLY)
    direct._direct, kept = closed, direct._direct
    assert file.begin_write([b"abc"], len(HEAD), wakeup, (other, b"so far", 0))
    with pytest.raises(StorageFailed):
        durable(file, wakeup)
    assert other.size() == 0
    direct._direct = kept
    os.close(closed)


def test_a_failure_of_what_follows_is_one_of_the_write(directory: Path, wakeup: int) -> None:
    disk = prepared(directory)
    file, other = opened(disk), disk.create("mark")
    assert isinstance(other, RealFile)
    full = os.open("/dev/full", os.O_WRONLY)
    other._descriptor, kept = full, other._descriptor
    assert file.begin_write([b"abc"], len(HEAD), wakeup, (other, b"so far", 0))
    with pytest.raises(StorageFailed):
        durable(file, wakeup)
    other._descriptor = kept
    os.close(full)


def test_who_asks_before_the_end_hears_nothing_and_may_wait(file: File, wakeup: int) -> None:
    begin(file, [b"x" * 100_000], len(HEAD), wakeup)
    while (ended := file.finish_write()) is None:
        ended = file.finish_write(GIVE_UP_S)
        if ended is not None:
            break
    assert ended is True


@pytest.mark.parametrize("seed", range(6))
def test_any_mixture_with_usual_writes_leaves_the_same_bytes(
    file: File, wakeup: int, seed: int
) -> None:
    """Mostly appends, as in the log; a block that is not full is written again with the next."""
    dice = random.Random(seed)
    model = bytearray(SIZE)
    model[: len(HEAD)] = HEAD
    at = len(HEAD)
    for _ in range(60):
        pieces = [dice.randbytes(dice.choice((1, 64, 500, 4096, 9000))) for _ in range(3)]
        if at + 30_000 > SIZE:
            at = 0
            write_all(file, [HEAD], at)
            model[: len(HEAD)] = HEAD
            at = len(HEAD)
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
    """The staging memory is the kernel's until it is done; an ordinary write waits for it."""
    disk = prepared(directory)
    file = opened(disk)
    disk.create("segment-0000000002.wal").reserve(SIZE)
    other = opened(disk, "segment-0000000002.wal")
    begin(file, [b"x" * 10_000], len(HEAD), wakeup)
    assert not other.begin_write([b"y"], len(HEAD), wakeup)
    assert durable(file, wakeup)
    begin(other, [b"y"], len(HEAD), wakeup)
    assert durable(other, wakeup)


def test_what_does_not_fit_is_refused_before_anything_happens(tmp_path: Path, wakeup: int) -> None:
    disk = prepared(tmp_path, STAGING_BYTES + SIZE)
    file = opened(disk)
    assert not file.begin_write([b"x" * STAGING_BYTES], len(HEAD), wakeup), "more than the memory"
    assert not disk.create("grows").begin_write([b"x"], 0, wakeup), "no file of the log"
    write_all(file, [b"x"], SIZE + STAGING_BYTES - 1)
    assert not file.begin_write([b"x"], STAGING_BYTES + SIZE, wakeup), "beyond the file"
    write_all(file, [b"usual"], 0)
    assert file.pread(5, 0) == b"usual"


def test_what_would_need_a_look_at_the_file_first_is_refused(tmp_path: Path, wakeup: int) -> None:
    """The caller must not wait, and opening and reading may take as long as the disk likes."""
    file = prepared(tmp_path).open(NAME)
    assert not file.begin_write([b"x"], 0, wakeup), "not opened for it"
    write_all(file, [HEAD], 0)
    assert not file.begin_write([b"x"], 100, wakeup), "what stands before it is not known"


class Refusing(KernelWrites):
    """Ends every write with an error of the kernel."""

    error = errno.EIO

    def result(self, wait_s: float = 0.0) -> int | None:
        return None if super().result(GIVE_UP_S) is None else -self.error


@pytest.mark.parametrize("error", [errno.EIO, errno.EAGAIN])
def test_an_error_is_final_and_what_passes_is_written_again(
    directory: Path, wakeup: int, error: int
) -> None:
    file = opened(prepared(directory))
    assert file._staging is not None
    file._staging.kernel = Refusing()
    file._staging.kernel.error = error
    begin(file, [b"lost?"], len(HEAD), wakeup)
    if error == errno.EIO:
        with pytest.raises(StorageFailed, match=f"write of {NAME}"):
            file.finish_write()
    else:
        assert file.finish_write() is False
    write_all(file, [b"again"], 0)
    assert file.pread(5, 0) == b"again"


def test_a_kernel_without_it_is_asked_once(
    tmp_path: Path, wakeup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox answers with EPERM, an old kernel with ENOSYS."""
    monkeypatch.setattr(kernel_queue, "_SETUP", 10_000)  # no system call
    file = opened(prepared(tmp_path))
    assert file._staging is not None
    assert not file.begin_write([b"x"], len(HEAD), wakeup)
    assert not file._staging.kernel.supported
    write_all(file, [b"usual"], 0)
    assert file.pread(5, 0) == b"usual"


def test_a_kernel_that_tells_of_every_write_is_heard_to_the_end(
    directory: Path, wakeup: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before Linux 5.17."""
    monkeypatch.setattr(kernel_queue, "_KNOWS_QUIET", 0)
    disk = prepared(directory)
    file, other = opened(disk), disk.create("mark")
    at = len(HEAD)
    for _ in range(20):
        assert file.begin_write([b"abc"], at, wakeup, (other, b"so far", 5))
        while (ended := file.finish_write()) is None:
            ended = file.finish_write(GIVE_UP_S)
            if ended is not None:
                break
        assert ended is True
        assert other.pread(100, 0) == bytes(5) + b"so far"
        at += 3
