"""Cold data when a call fails in the middle, and when it is read ahead."""

import errno
from pathlib import Path
from typing import Any

import pytest

from storage.cold import rewrite as cold_rewrite
from storage.cold.store import ColdStore
from storage.disk.files import Disk, RealDisk
from storage.disk.memory import MemoryDisk
from storage.errors import StorageFailed
from tests.storage.cold.test_cold import LONG, OWNER, STEP, disk, everything, expected, made
from tests.storage.kernel_io import skip_without_kernel_writes

__all__ = ["disk"]


def test_what_a_failed_call_has_left_is_durable_once_it_is_secured() -> None:
    """Its blocks can be read after a restart, but a power cut would lose them."""
    disk = MemoryDisk()
    store = ColdStore(disk, OWNER)
    for uid in (1, 2):
        store.append(uid, made(0, 300))
        disk.fail("fdatasync", errno.EIO)
        with pytest.raises(StorageFailed):
            store.append(uid, made(300, 600))
    disk.kill()
    store = ColdStore(disk, OWNER)
    assert (store.end(1), store.end(2)) == (600, 600)
    store.secure([1, 3])
    disk.crash(lambda: False)
    store = ColdStore(disk, OWNER)
    assert (store.end(1), store.end(2)) == (600, 300)
    assert everything(store) == expected(0, 600)
    store.append(1, made(600, 900))
    assert everything(store) == expected(0, 900)


@pytest.mark.parametrize("drafts", [False, True])
def test_what_a_failed_call_has_collected_goes_into_no_other_file(
    disk: Disk, drafts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Blocks wait in memory until there are enough for one write. After a bug, or data that cannot
    be read, they must not go to the next file."""
    store = ColdStore(disk, OWNER)
    for uid in (1, 2):
        store.append(uid, made(0, 300))
    many = made(300, 3000, size=2000)
    tiles = cold_rewrite.tiles(many, 300)
    write = store._writer.write
    wrote: list[int] = []

    def fails_later(*args: Any) -> Any:
        if wrote:
            raise ValueError("a bug")
        wrote.append(1)
        return write(*args)

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "write", fails_later)
        with pytest.raises(ValueError, match="a bug"):
            _ = (
                store._writer.draft(1, 300, 0, tiles, seals=False)
                if drafts
                else store.append(1, many)
            )
    assert wrote
    store.append(2, made(300, 600))
    store.append(1, many)
    for one in (store, ColdStore(disk, OWNER)):
        assert everything(one, 2) == expected(0, 600)
        assert everything(one, 1) == expected(0, 300) | expected(300, 3000, size=2000)


def test_a_sealed_file_is_read_ahead_and_one_that_grows_is_not(tmp_path: Path) -> None:
    skip_without_kernel_writes(tmp_path)
    disk = RealDisk(tmp_path)
    store = ColdStore(disk, OWNER)
    size = LONG // 8
    for start in range(0, 96, 24):
        store.append(1, made(start, start + 24, size), segment_bytes=2 * LONG)
    first, *_, last = store.segments(1)
    assert first.end == last.base == 48
    store, ahead = ColdStore(disk, OWNER), disk._ahead

    def read(offset: int) -> list[bytes]:
        return [bytes(batch) for batch in store.read(1, offset, LONG)]

    store.read_soon(1, 0, LONG)
    usual = [read(0), read(first.base + STEP), read(last.base)]
    assert ahead.used == 0, "nobody has read from the file before"
    store.read_soon(1, 0, LONG)
    assert read(0) == usual[0]
    store.read_soon(1, first.base + STEP, LONG)
    assert read(first.base + STEP) == usual[1]
    assert ahead.used == 2
    store.read_soon(1, last.base, LONG)
    assert read(last.base) == usual[2]
    assert ahead.used == 2, "more may be appended to it"
    for offset in (-5, last.end, last.end + 100):
        store.read_soon(1, offset, LONG)
    store.read_soon(9, 0, LONG)
    assert ahead._ahead == {}
