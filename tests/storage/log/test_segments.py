"""The segment files: unneeded ones are removed, and a caller that needs a new one does not wait for
that."""

from storage.disk.memory import MemoryDisk
from storage.format import segment_name
from storage.log.segments import SPARES_MAX, SegmentFiles

SEGMENT = 4096
MANY = 50


def retired_all(disk: MemoryDisk) -> SegmentFiles:
    files = SegmentFiles(disk, SEGMENT, 0)
    files.prepare(MANY)
    files.retire(range(1, MANY + 1))
    return files


def test_one_file_goes_at_a_time() -> None:
    """Each removal is a commit of the file system's journal, and the log's syncs wait for it."""
    disk = MemoryDisk()
    files = retired_all(disk)
    left = MANY
    while files.surplus:
        files.prepare_next(MANY, zeros=True)
        left -= 1
        assert len(disk.names()) == left
    assert left == SPARES_MAX


def test_who_needs_a_segment_takes_a_spare_and_removes_nothing() -> None:
    disk = MemoryDisk()
    files = retired_all(disk)
    files.ensure(MANY + 1)
    assert len(disk.names()) == MANY
    assert segment_name(1) not in disk.names(), "the oldest has a new name"
    assert segment_name(MANY + 1) in disk.names()
