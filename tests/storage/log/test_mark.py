"""The synced mark: every way of writing stores it, and it is never lost as a whole."""

from collections.abc import Callable, Sequence

import pytest

from paxos.ids import GroupId
from storage.disk.files import Buffer, Then, write_all
from storage.disk.memory import MemoryDisk, MemoryFile
from storage.log.synced_mark import MARK_NAME, SyncedMark, open_mark
from storage.log.wal import Wal
from tests.storage.log_maker import accept, start

GROUP = GroupId(1)
SEED = 77
SECTOR = 512


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk whose kernel finishes writes in the background, as direct writes: durable when
    finished."""

    following: list[Then] = []

    def begin(
        file: MemoryFile, buffers: Sequence[Buffer], offset: int, wakeup: int, then: Then
    ) -> bool:
        write_all(file, buffers, offset)
        following.append(then)
        return True

    def finish(file: MemoryFile, wait_s: float = 0.0) -> bool:
        file.fdatasync()
        other, data, place = following.pop()
        write_all(other, [data], place)
        return True

    monkeypatch.setattr(MemoryFile, "begin_write", begin)
    monkeypatch.setattr(MemoryFile, "finish_write", finish)


def by_the_kernel(wal: Wal) -> None:
    batch = wal.take()
    assert batch is not None
    assert wal.begin(batch, wakeup=-1)
    assert wal.finish()
    wal.written(batch)


def by_a_thread(wal: Wal) -> None:
    batch = wal.take()
    assert batch is not None
    wal.write(batch)
    wal.written(batch)


@pytest.mark.parametrize("way", [by_the_kernel, by_a_thread])
def test_each_way_of_writing_stores_how_far_the_log_is_durable(
    kernel: None, way: Callable[[Wal], None]
) -> None:
    """The loop writes it in the ordinary way. Nothing below the mark is a torn tail."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"makes the segment"))
    by_a_thread(wal)
    for slot in range(2, 6):
        wal.stage(accept(slot, b"x" * slot))
        before = marked(disk)
        way(wal)
        assert before < marked(disk) == wal.synced


def test_what_is_still_under_way_or_has_to_be_written_again_is_not_marked(
    kernel: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Above the truth, the mark would turn a torn tail into damage."""
    disk = MemoryDisk()
    wal, _ = start(disk)
    wal.stage(accept(1, b"makes the segment"))
    by_a_thread(wal)
    before = marked(disk)
    wal.stage(accept(2, b"x"))
    batch = wal.take()
    assert batch is not None
    assert wal.begin(batch, wakeup=-1)
    for answer in (None, False):
        monkeypatch.setattr(MemoryFile, "finish_write", lambda *_, answer=answer: answer)
        assert wal.finish() is answer
        assert marked(disk) == before
    wal.write(batch)
    assert marked(disk) > before


def marked(disk: MemoryDisk) -> int:
    """The highest copy, of any log: recovery checks the seed, this test need not."""
    data = disk.open(MARK_NAME).pread(2 * SECTOR, 0)
    return max(int.from_bytes(data[at : at + 8], "big") for at in (0, SECTOR))


@pytest.mark.parametrize("torn", [0, 1])
def test_of_two_copies_a_torn_sector_leaves_the_other(torn: int) -> None:
    disk = MemoryDisk()
    mark = open_mark(disk, SEED)
    places = (100, 200)
    for place in places:
        mark.store(place)
        assert mark.load() == place, "the highest is what is known"
    file = disk.open(MARK_NAME)
    write_all(file, [bytes(SECTOR)], torn * SECTOR)
    left = SyncedMark(file, SEED).load()
    write_all(file, [bytes(SECTOR)], (1 - torn) * SECTOR)
    assert left in places
    assert SyncedMark(file, SEED).load() == 0
