"""Which starts count as a directory's past, and above which life the next one begins."""

from collections.abc import Callable

import pytest

from paxos.ids import Incarnation, NodeId
from storage.disk.memory import MemoryDisk, PowerCut
from storage.identity import Identity, boot
from storage.lives import (
    BELIEVED_MAX,
    LIVES_NAME,
    NEVER_ADMITTED,
    Lives,
    read_lives,
    write_lives,
)

NODE = NodeId(3)


def start(disk: MemoryDisk, first: int = 1) -> Identity:
    disk.close()
    return boot(disk, "c", NODE, first=first)


def admit(disk: MemoryDisk, identity: Identity) -> None:
    life = identity.incarnation
    write_lives(disk, read_lives(disk).started(life, life))


def test_a_start_that_reached_nobody_is_not_the_directorys_past() -> None:
    disk = MemoryDisk()
    admit(disk, start(disk, first=50))
    assert start(disk, first=60).previous == 50
    for first in (70, 80, 90):
        assert start(disk, first=first).previous == 50
    admit(disk, start(disk, first=100))
    assert start(disk).previous == 100


def test_an_old_copy_stays_an_old_copy_however_often_it_starts() -> None:
    """Its own starts have later numbers than the life that the peers know."""
    disk = MemoryDisk()
    admit(disk, start(disk, first=50))
    copy = disk.clone()
    admit(disk, start(disk, first=60))
    for first in (70, 80):
        assert start(copy, first=first).previous == 50


def test_an_emptied_directory_never_passes_for_the_one_that_was_registered() -> None:
    """Its node was told that it has forgotten what it promised, and lost power when it had noted
    that for some of its groups: so it has a log now, and in the other groups it would vote."""
    disk = MemoryDisk()
    start(disk, first=60)  # empty; the peers know life 50
    for first in (70, 80):
        again = start(disk, first=first)
        assert 0 < again.previous < 50, "a node that is not registered may still have voted"
    admit(disk, again)
    assert start(disk, first=90).previous == 80


def test_an_older_program_that_started_in_between_is_not_overlooked() -> None:
    """It counts its starts in `identity` and knows nothing of this file."""
    disk = MemoryDisk()
    admit(disk, start(disk, first=50))
    lives = disk.content(LIVES_NAME)
    admit(disk, start(disk, first=60))
    disk.remove(LIVES_NAME)
    file = disk.create(LIVES_NAME)
    file.pwritev([lives], 0)
    assert start(disk, first=70).previous == 60


def test_a_directory_without_this_file_goes_by_its_last_start() -> None:
    disk = MemoryDisk()
    start(disk, first=50)
    disk.remove(LIVES_NAME)
    assert start(disk).previous == 50


def test_the_next_start_is_above_what_the_peers_know() -> None:
    disk = MemoryDisk()
    admit(disk, start(disk, first=50))
    write_lives(disk, Lives(read_lives(disk).starts, Incarnation(54_000)))
    identity = start(disk, first=60)
    assert (identity.incarnation, identity.previous) == (54_001, 50), "the past stays what it was"
    assert start(disk, first=70).incarnation == 54_002


@pytest.mark.parametrize("operation", ["rename", "fdatasync"])
@pytest.mark.parametrize("keeps", [lambda: True, lambda: False])
def test_a_power_cut_anywhere_in_a_start_changes_nothing(
    operation: str, keeps: Callable[[], bool]
) -> None:
    for after in range(3):
        disk = MemoryDisk()
        admit(disk, start(disk, first=50))
        start(disk, first=60)
        write_lives(disk, Lives(read_lives(disk).starts, Incarnation(500)))
        disk.close()
        disk.stop(operation, after=after)
        with pytest.raises(PowerCut):
            boot(disk, "c", NODE, first=70)
        disk.crash(keeps)
        identity = start(disk, first=80)
        assert identity.previous == 50, (operation, after)
        assert identity.incarnation in (501, 502)


@pytest.mark.parametrize("renames", [1, 2])
def test_starts_that_fail_one_after_the_other_are_not_the_directorys_past(renames: int) -> None:
    """`identity` goes on naming the start before them, which nobody admitted either."""
    disk = MemoryDisk()
    admit(disk, start(disk, first=50))
    start(disk, first=60)
    for first in (70, 80, 90):
        disk.close()
        disk.stop("rename", after=renames)
        with pytest.raises(PowerCut):
            boot(disk, "c", NODE, first=first)
        disk.crash(lambda: False)
    assert start(disk, first=100).previous == 50


def test_damage_is_as_good_as_no_file() -> None:
    disk = MemoryDisk()
    start(disk, first=50)
    start(disk, first=60)
    known = read_lives(disk)
    assert known.starts == ((50, 0), (60, NEVER_ADMITTED))
    for offset in range(disk.open(LIVES_NAME).size()):
        hurt = disk.clone()
        hurt.corrupt(LIVES_NAME, offset, 1)
        assert read_lives(hurt) == Lives(), offset
        cut = disk.clone()
        cut.truncate(LIVES_NAME, offset)
        assert read_lives(cut) == Lives(), offset


def test_a_number_that_leaves_no_room_is_not_believed() -> None:
    disk = MemoryDisk()
    write_lives(disk, Lives((), Incarnation(BELIEVED_MAX)))
    assert read_lives(disk).above == BELIEVED_MAX
    write_lives(disk, Lives((), Incarnation(BELIEVED_MAX + 1)))
    assert read_lives(disk) == Lives()
