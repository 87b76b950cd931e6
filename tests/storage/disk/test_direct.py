"""Direct writes leave exactly the same bytes as ordinary ones."""

import errno
import fcntl
import os
import random
from pathlib import Path

import pytest

from storage.disk.direct import (
    BLOCK_BYTES,
    KEPT_MAX,
    LONG_BYTES,
    LONG_READ_BYTES,
    STAGING_BYTES,
    DirectFile,
    Staging,
)
from storage.disk.files import RealDisk, write_all
from storage.errors import StorageFailed

SIZE = 64 * BLOCK_BYTES
NAME = "segment-0000000001.wal"


def prepared(directory: Path, size: int = SIZE) -> RealDisk:
    disk = RealDisk(directory)
    file = disk.create(NAME)
    file.reserve(size)
    file.fdatasync()
    return disk


@pytest.mark.parametrize("seed", range(12))
def test_any_writes_leave_the_same_bytes(tmp_path: Path, seed: int) -> None:
    """Mostly appends, as in the log; now and then anywhere, as in recovery."""
    dice = random.Random(seed)
    file = prepared(tmp_path).open(NAME)
    model = bytearray(SIZE)
    at = 0
    for _ in range(200):
        pieces = [dice.randbytes(dice.choice((1, 64, 500, 4095, 4096, 9000))) for _ in range(3)]
        if dice.random() < 0.1 or at + 30_000 > SIZE:
            at = dice.randrange(SIZE - 30_000)
        data = b"".join(pieces)
        write_all(file, pieces, at)
        file.fdatasync()
        model[at : at + len(data)] = data
        at += len(data)
        assert file.pread(len(data), at - len(data)) == data
        if dice.random() < 0.05:  # bytes after an append were never written: they may be zeroed
            block_end = -(-at // BLOCK_BYTES) * BLOCK_BYTES
            model[at:block_end] = file.pread(block_end - at, at)
            file = RealDisk(tmp_path).open(NAME)
    written = file.pread(SIZE, 0)
    wrong = [i for i in range(SIZE) if written[i] != model[i] and written[i] != 0]
    assert not wrong, f"byte {wrong[0]}"


def test_an_append_never_harms_what_stands_before_it(tmp_path: Path) -> None:
    file = prepared(tmp_path).open(NAME)
    model = b""
    dice = random.Random(1)
    while len(model) < SIZE - 20_000:
        data = dice.randbytes(dice.randrange(1, 20_000))
        write_all(file, [data], len(model))
        model += data
        assert file.pread(len(model), 0) == model


def test_a_bad_sector_behind_the_end_does_not_stop_the_first_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a restart nobody knows what is there; before the end it would be a loss."""
    file = prepared(tmp_path).open(NAME)
    write_all(file, [b"x" * BLOCK_BYTES], 0)
    pread = os.pread

    def lost(descriptor: int, size: int, offset: int) -> bytes:
        if offset + size > BLOCK_BYTES:
            raise OSError(errno.EIO, "injected")
        return pread(descriptor, size, offset)

    file = RealDisk(tmp_path).open(NAME)
    monkeypatch.setattr(os, "pread", lost)
    write_all(file, [b"y" * 200], BLOCK_BYTES - 100)
    with pytest.raises(StorageFailed):
        RealDisk(tmp_path).open(NAME).pwritev([b"z"], BLOCK_BYTES + 200)
    monkeypatch.undo()
    assert file.pread(300, BLOCK_BYTES - 200) == b"x" * 100 + b"y" * 200


def test_more_than_the_staging_buffer_goes_in_several_writes(tmp_path: Path) -> None:
    size = 2 * STAGING_BYTES + 2 * BLOCK_BYTES
    file = prepared(tmp_path, size).open(NAME)
    data = random.Random(2).randbytes(2 * STAGING_BYTES + 77)
    write_all(file, [data[:100], data[100:]], 10)
    assert file.pread(len(data), 10) == data


def test_a_file_whose_last_block_is_not_whole_is_written_ordinarily(tmp_path: Path) -> None:
    """Padding would make it longer."""
    size = 3 * BLOCK_BYTES + 100
    file = prepared(tmp_path, size).open(NAME)
    write_all(file, [b"x" * size], 0)
    assert file.pread(size + 10, 0) == b"x" * size
    assert file.size() == size


def test_a_file_system_that_refuses_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    descriptor = os.open(path, os.O_RDWR)
    real_open = os.open

    def refuse(name: str, flags: int, *mode: int) -> int:
        if flags & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real_open(name, flags, *mode)

    monkeypatch.setattr(os, "open", refuse)
    assert not DirectFile(descriptor, Staging()).supported
    os.close(descriptor)


@pytest.mark.parametrize("seed", range(8))
def test_a_growing_file_has_the_bytes_that_were_written(tmp_path: Path, seed: int) -> None:
    """Short and long pieces, at any offset, written over, cut off, opened again."""
    dice = random.Random(seed)
    RealDisk(tmp_path).create("grows")
    disk = RealDisk(tmp_path)
    file, model = disk.open("grows"), b""
    sizes = (1, 700, 4096, 16_000, LONG_BYTES, LONG_BYTES + 5000, STAGING_BYTES + 4097)
    for _ in range(30):
        pieces = [dice.randbytes(dice.choice(sizes)) for _ in range(dice.randrange(1, 4))]
        at = len(model) if dice.random() < 0.8 else dice.randrange(len(model) + 1)
        write_all(file, pieces, at)
        data = b"".join(pieces)
        model = model[:at] + data + model[at + len(data) :]
        assert file.size() == len(model), "nothing is written beyond the end"
        if dice.random() < 0.2:
            model = model[: dice.randrange(len(model) + 1)]
            file.truncate(len(model))
        if dice.random() < 0.3:
            file.fdatasync()
            file = disk.open("grows")
        start = dice.randrange(len(model) + 1)
        size = dice.choice((10, LONG_READ_BYTES, 1 << 20))
        assert file.read_long(size, start) == model[start : start + size]
    assert file.pread(len(model) + 1, 0) == model


def test_a_growing_file_is_written_ordinarily_where_the_file_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = RealDisk(tmp_path).create("grows")
    real_write = os.pwritev

    def refuse(descriptor: int, buffers: list[memoryview], offset: int) -> int:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real_write(descriptor, buffers, offset)

    monkeypatch.setattr(os, "pwritev", refuse)
    data = random.Random(3).randbytes(3 * LONG_BYTES)
    write_all(file, [data[:100]], 0)
    write_all(file, [data[100:]], 100)
    assert file.pread(len(data), 0) == data


def test_memory_that_was_read_into_is_not_used_again_while_somebody_sees_it(
    tmp_path: Path,
) -> None:
    """However many long reads are held, each shows what was there; afterwards there is room
    again."""
    size = LONG_READ_BYTES
    data = random.Random(4).randbytes((KEPT_MAX + 4) * size)
    file = RealDisk(tmp_path).create("read")
    write_all(file, [data], 0)
    held = [file.read_long(size, number * size)[10:] for number in range(KEPT_MAX + 4)]
    assert all(one == data[i * size + 10 : (i + 1) * size] for i, one in enumerate(held))
    assert all(one.readonly for one in held)
    kept = file._kept  # type: ignore[attr-defined]  # of a real file
    assert kept.take(size) is None
    inside = held[3][5:]
    del held[3]
    assert kept.take(size) is None, "a part of it is still seen"
    del inside
    assert kept.take(size) is not None
    held.clear()
    assert file.read_long(size, 7) == data[7 : 7 + size]
    assert len(kept._kept) == KEPT_MAX
