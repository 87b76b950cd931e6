"""What an operator sees of a stopped node's directory is what a restart would find."""

from collections.abc import Callable
from random import Random

import pytest

from paxos.ids import GroupId, Slot
from storage.disk.direct import BLOCK_BYTES
from storage.disk.memory import MemoryDisk
from storage.errors import DirectoryRefused
from storage.format import OFFSET_MASK, RECORD_HEADER_BYTES, SEGMENT_HEADER_BYTES, segment_name
from storage.identity import IDENTITY_COPY_NAME, IDENTITY_NAME
from storage.inspection import inspect
from storage.log.wal import Wal
from tests.storage.log_maker import Author, accept, start, sync

GROUP = GroupId(1)


def made() -> tuple[MemoryDisk, Wal]:
    disk = MemoryDisk()
    wal, _ = start(disk)
    for slot in range(1, 31):
        wal.stage(accept(slot, bytes([slot]) * 300, applied=slot - 1))
        sync(wal)
    disk.close()
    return disk, wal


def everything(disk: MemoryDisk) -> dict[str, bytes]:
    return {name: disk.content(name) for name in disk.names()}


def test_a_sound_directory_is_told_as_it_is_and_stays_as_it_is() -> None:
    disk, wal = made()
    before = everything(disk)
    found = inspect(disk, entries=True)
    assert everything(disk) == before
    assert found.problems == found.known_damage == ()
    assert found.entries == 30
    assert found.end == wal.end
    assert found.identity is not None
    assert found.identity.node == 7
    (group,) = found.groups
    assert (group.first, group.highest, group.applied, group.missing) == (1, 30, 29, 0)
    assert group.voting
    begun = [one for one in found.segments if one.incarnation is not None]
    assert [one.name for one in begun] == [segment_name(n) for n in wal.kept()]
    assert sum(one.used for one in begun) > 30 * 300


def test_an_empty_directory_is_no_problem() -> None:
    found = inspect(MemoryDisk(), entries=True)
    assert found.identity is None
    assert found.problems == ()


def damage_entry(disk: MemoryDisk, wal: Wal) -> None:
    place = wal.find(GROUP, Slot(3))[0]
    disk.corrupt(segment_name(1), (place & OFFSET_MASK) + RECORD_HEADER_BYTES + 9, 1)


def damage_header(disk: MemoryDisk, _wal: Wal) -> None:
    disk.corrupt(segment_name(2), 40, 1)


def damage_both_headers(disk: MemoryDisk, wal: Wal) -> None:
    damage_header(disk, wal)
    disk.corrupt(segment_name(2), 40 + SEGMENT_HEADER_BYTES // 2, 1)


def damage_identity(disk: MemoryDisk, _wal: Wal) -> None:
    disk.corrupt(IDENTITY_NAME, 20, 1)


def lose_segment(disk: MemoryDisk, _wal: Wal) -> None:
    disk.remove(segment_name(2))


def lose_block(disk: MemoryDisk, wal: Wal) -> None:
    disk.lose_block(segment_name(1), BLOCK_BYTES - 1)


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (damage_entry, "(group 1, slot 3): the checksum of the record here is wrong"),
        (damage_header, "segment-0000000002.wal: one copy of its header is damaged"),
        (damage_both_headers, "the segment's header is unreadable; a start is refused"),
        (damage_identity, "identity: damaged; its copy is intact"),
        (lose_segment, "segment-0000000002.wal, byte 0: the file is missing; a start is refused"),
        (lose_block, "segment-0000000001.wal, byte 0: the segment's header is unreadable"),
    ],
)
def test_every_damage_is_named(harm: Callable[[MemoryDisk, Wal], None], told: str) -> None:
    disk, wal = made()
    harm(disk, wal)
    before = everything(disk)
    found = inspect(disk, entries=True)
    assert any(told in problem for problem in found.problems), found.problems
    assert everything(disk) == before


def test_what_the_node_has_dealt_with_is_no_problem_any_more() -> None:
    disk, wal = made()
    damage_entry(disk, wal)
    (problem,) = inspect(disk, entries=True).problems
    wal, _ = start(disk)
    disk.close()
    found = inspect(disk, entries=True)
    assert found.problems == ()
    assert found.known_damage == (problem,)
    (group,) = found.groups
    assert group.voting, "slot 3 is chosen: no vote was lost"
    assert (group.applied, group.proven, group.missing) == (2, 29, 1)


def test_two_identities_that_are_both_damaged_are_refused() -> None:
    disk, wal = made()
    damage_identity(disk, wal)
    disk.corrupt(IDENTITY_COPY_NAME, 20, 1)
    with pytest.raises(DirectoryRefused, match="is damaged"):
        inspect(disk, entries=False)


def test_it_tells_what_a_restart_finds_whatever_was_flipped() -> None:
    """In a hundred damaged directories: it reports a problem wherever the restart finds damage."""
    dice = Random(4)
    disk = MemoryDisk()
    wal, _ = start(disk)
    author = Author(Random(8), size_max=200)
    while wal.statistics().segments < 3:
        for record in author.records(4):
            wal.stage(record)
        sync(wal)
    flipped = 0
    for _ in range(100):
        one = disk.clone()
        name = segment_name(dice.randrange(1, 4))
        one.corrupt(name, dice.randrange(SEGMENT_HEADER_BYTES, 4096), 1 << dice.randrange(8))
        told = inspect(one, entries=True)
        _, recovered = start(one)
        assert len(told.problems) == len(recovered.damage)
        flipped += bool(told.problems)
    assert flipped > 50
