"""Direct writes leave exactly the bytes that ordinary ones would."""

import os
import random
from pathlib import Path

import pytest

from storage.direct import BLOCK_BYTES, STAGING_BYTES, DirectFile, Staging
from storage.disk import RealDisk, write_all

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
    """Appends mostly, as the log does; now and then anywhere, as recovery does."""
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
        if dice.random() < 0.05:  # what lies behind an append was never written: it may be zeroed
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
