"""Reading ahead returns what an ordinary read would, or the ordinary read is done."""

import errno
import random
import threading
from pathlib import Path

import pytest

from storage.disk import kernel_queue
from storage.disk.direct import LONG_READ_BYTES, LONG_READ_BYTES_MAX
from storage.disk.files import RealDisk, RealFile, write_all
from storage.disk.kernel_queue import KernelQueue
from storage.disk.read_ahead import AHEAD_MAX, PATIENCE, ReadAhead
from tests.storage.kernel_io import skip_without_kernel_writes

SIZE = 8 << 20
LONG = LONG_READ_BYTES
NAME = "segment-0000000001.wal"


def made(disk: RealDisk, name: str = NAME, seed: int = 1) -> tuple[RealFile, bytes]:
    data = random.Random(seed).randbytes(SIZE)
    file = disk.create(name)
    write_all(file, [data], 0)
    file.fdatasync()
    return opened(disk, name), data


def opened(disk: RealDisk, name: str = NAME) -> RealFile:
    file = disk.open(name)
    assert isinstance(file, RealFile)
    file._opened_for_reading()  # as a thread's first long read does
    return file


def ahead_of(file: RealFile) -> ReadAhead:
    return file._ahead


@pytest.fixture
def disk(tmp_path: Path) -> RealDisk:
    skip_without_kernel_writes(tmp_path)
    return RealDisk(tmp_path)


@pytest.mark.parametrize("size", [LONG, LONG + 1, 1 << 20, LONG_READ_BYTES_MAX])
@pytest.mark.parametrize("offset", [0, 1, 4095, 4096, 1_000_003])
def test_it_is_there_when_it_is_asked_for_and_once(disk: RealDisk, size: int, offset: int) -> None:
    file, data = made(disk)
    file.read_soon(size, offset)
    for _ in range(2):
        found = file.read_long(size, offset)
        assert found == data[offset : offset + size]
        assert found.readonly
        assert ahead_of(file).used == 1


def test_who_asks_for_something_else_reads_as_ever(disk: RealDisk) -> None:
    file, data = made(disk)
    other, other_data = made(disk, "segment-0000000002.wal", seed=2)
    file.read_soon(LONG, 5)
    assert file.read_long(LONG, 6) == data[6 : 6 + LONG]
    assert file.read_long(LONG + 1, 5) == data[5 : 6 + LONG]
    assert other.read_long(LONG, 5) == other_data[5 : 5 + LONG]
    assert opened(disk).read_long(LONG, 5) == data[5 : 5 + LONG]
    assert ahead_of(file).used == 0
    assert file.read_long(LONG, 5) == data[5 : 5 + LONG]
    assert ahead_of(file).used == 1


def test_what_is_short_or_too_long_is_not_begun(disk: RealDisk) -> None:
    file, _ = made(disk)
    for size in (LONG - 1, LONG_READ_BYTES_MAX + 1):
        file.read_soon(size, 0)
        file.read_long(size, 0)
    assert ahead_of(file)._ahead == {}
    assert ahead_of(file).used == 0


def test_a_recycled_segment_does_not_show_what_was_in_it(disk: RealDisk) -> None:
    """The old file was read ahead and retired; under its new number it has other contents."""
    file, _ = made(disk)
    file.read_soon(LONG, 4096)
    ahead = ahead_of(file)
    del file
    disk.rename(NAME, "segment-0000000009.wal")
    file = opened(disk, "segment-0000000009.wal")
    new = random.Random(7).randbytes(SIZE)
    write_all(file, [new], 0)
    file.fdatasync()
    assert file.read_long(LONG, 4096) == new[4096 : 4096 + LONG]
    assert ahead.used == 0


def test_so_many_at_a_time_and_the_oldest_gives_way_in_the_end(disk: RealDisk) -> None:
    file, data = made(disk)
    for number in range(AHEAD_MAX):
        file.read_soon(LONG, number)
    for number in range(AHEAD_MAX, PATIENCE):
        file.read_soon(LONG, number)
    assert len(ahead_of(file)._ahead) == AHEAD_MAX
    for number in range(1, AHEAD_MAX):
        assert file.read_long(LONG, number) == data[number : number + LONG]
    assert ahead_of(file).used == AHEAD_MAX - 1, "those that came first were kept"
    for number in range(100, 100 + AHEAD_MAX):
        file.read_soon(LONG, number)
    assert file.read_long(LONG, 99 + AHEAD_MAX) == data[99 + AHEAD_MAX :][:LONG]
    assert ahead_of(file).used == AHEAD_MAX, "nobody came for number 0"
    assert file.read_long(LONG, 0) == data[:LONG]
    assert ahead_of(file).used == AHEAD_MAX


def test_the_end_of_the_file_is_read_as_ever(disk: RealDisk) -> None:
    file, data = made(disk)
    file.read_soon(LONG, SIZE - 1000)
    assert file.read_long(LONG, SIZE - 1000) == data[-1000:]
    assert ahead_of(file).used == 0


class Failing(KernelQueue):
    """The device fails while nobody waits for it."""

    def completed(self, wait_s: float = 0.0) -> tuple[int, int] | None:
        completed = super().completed(wait_s)
        return None if completed is None else (completed[0], -errno.EIO)


class Refusing(KernelQueue):
    """The device fails at once."""

    def submit(self, *_args: object, **_settings: object) -> bool:
        raise OSError(errno.EIO, "Input/output error")


def test_whoever_reads_in_the_usual_way_sees_what_the_device_says(disk: RealDisk) -> None:
    file, data = made(disk)
    for queue in (Failing(AHEAD_MAX), Refusing(AHEAD_MAX)):
        ahead_of(file)._queue = queue
        file.read_soon(LONG, 3)
        assert file.read_long(LONG, 3) == data[3 : 3 + LONG]
        assert ahead_of(file).used == 0
        assert ahead_of(file)._ahead == {}


def test_a_kernel_without_it_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_queue, "_SETUP", 10_000)  # no system call
    file, data = made(RealDisk(tmp_path))
    for offset in (1, 2):
        file.read_soon(LONG, offset)
        assert file.read_long(LONG, offset) == data[offset : offset + LONG]
    assert not ahead_of(file)._queue.supported
    assert ahead_of(file).used == 0


@pytest.mark.parametrize("seed", range(4))
def test_several_threads_read_what_is_there(disk: RealDisk, seed: int) -> None:
    """Any thread may use a read that another one has begun; what they hold stays unchanged."""
    file, data = made(disk)
    wrong: list[tuple[int, int]] = []

    def reader(number: int) -> None:
        dice = random.Random(f"{seed} {number}")
        held: list[tuple[memoryview, int]] = []
        for _ in range(80):
            size, offset = dice.choice((LONG, LONG + 500)), dice.randrange(12) * 1000
            if dice.random() < 0.6:
                file.read_soon(size, offset)
            else:
                held.append((file.read_long(size, offset), offset))
            if len(held) > 4:
                view, start = held.pop(dice.randrange(len(held)))
                if view != data[start : start + len(view)]:
                    wrong.append((start, len(view)))

    threads = [threading.Thread(target=reader, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert ahead_of(file).used > 0
