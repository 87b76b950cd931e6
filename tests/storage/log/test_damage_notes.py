"""A running node finds damage of an unknown group: its next incarnation knows what was not hit."""

from collections.abc import Sequence

import pytest

from paxos.ids import GroupId, Slot
from paxos.step import PromiseRecord, Record, VotingRecord
from storage.disk.memory import MemoryDisk
from storage.format import Place
from storage.log import damage_notes
from storage.log.damage_notes import RANGES_MAX
from storage.log.index import GroupState
from storage.log.synced_mark import MARK_NAME
from storage.log.wal import Wal
from tests.storage.log.test_recovery import damaged
from tests.storage.log_maker import accept, entries_of, learned, promise, start, sync

GROUP = GroupId(1)
OLD = accept(1, b"one"), accept(2, b"two"), accept(3, b"old")
HIT = accept(3, b"new", round_=2)


def running(records: Sequence[Record]) -> tuple[MemoryDisk, Wal, list[Place]]:
    disk = MemoryDisk()
    wal, _ = start(disk)
    places = [wal.stage(record) for record in records]
    sync(wal)
    return disk, wal, places


def find_damage(wal: Wal, places: Sequence[Place], number: int, applied: int) -> None:
    """As runtime.disk.repair does, for a record whose group cannot be determined."""
    start_, end = places[number], places[number + 1]
    for group, slot, _, _ in [*wal.losses(start_, end)]:
        wal.drop(group, slot)
    wal.stage(PromiseRecord(GROUP, wal.acceptor(GROUP)[0]))
    wal.stage(VotingRecord(GROUP, True, wal.acceptor(GROUP)[0], Slot(applied)))
    wal.note_damage(start_, end, unattributed=True)
    sync(wal)


def next_life(disk: MemoryDisk, *places: Place) -> tuple[int, int, dict[int, bytes]]:
    """What it has applied, what it knows to be chosen, and which entries it can read."""
    for place in places:
        disk = damaged(disk, place, header=True)
    disk.kill()
    wal, recovered = start(disk)
    group = recovered.groups[GROUP]
    return group.applied, group.proven, entries_of(wal, GROUP)


def test_what_was_not_hit_is_believed_and_what_was_hit_is_not() -> None:
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=3)
    assert next_life(disk, places[3]) == (2, 3, {1: b"\x01one", 2: b"\x01two"})


def test_a_restart_that_finds_the_damage_believes_nothing() -> None:
    """It cannot know which slots had a record there, and neither can later restarts."""
    disk, wal, places = running([*OLD, HIT, promise(3)])
    wal.stage(VotingRecord(GROUP, True, promise(3).ballot, Slot(3)))
    sync(wal)
    hurt = damaged(disk, places[3], header=True)
    assert next_life(hurt) == (0, 3, {})
    hurt = damaged(disk, places[3], header=True)
    hurt.kill()
    start(hurt)
    assert next_life(hurt) == (0, 3, {})


def test_more_damage_around_it_is_other_damage() -> None:
    """A note about a smaller hole says nothing about the larger one."""
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=3)
    assert next_life(disk, places[3], places[2]) == (0, 3, {})


def test_a_later_record_of_the_slot_that_is_lost_as_well_counts() -> None:
    later = accept(2, b"later", round_=3)
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=1)
    place = wal.stage(later)
    wal.stage(accept(4, b"four", round_=3, applied=3))
    sync(wal)
    assert next_life(disk, places[3], place) == (1, 3, {1: b"\x01one", 4: b"\x01four"})


def test_what_was_learned_again_is_believed() -> None:
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=3)
    wal.stage(learned(3, b"new", applied=3))
    sync(wal)
    assert next_life(disk, places[3]) == (
        3, 3, {1: b"\x01one", 2: b"\x01two", 3: b"\x01new"}
    )  # fmt: skip


def test_a_note_that_may_have_lost_what_stood_before_it_is_not_believed() -> None:
    """Only the mark tells whether everything before the last batch was durable, and it is gone. (A
    later vote for a slot, which the note still knew, may have been lost.)"""
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=3)
    torn = disk.clone()
    torn.truncate(MARK_NAME, 0)
    assert next_life(torn, places[3]) == (0, 3, {})
    wal.stage(promise(4))
    sync(wal)
    torn = disk.clone()
    torn.truncate(MARK_NAME, 0)
    assert next_life(torn, places[3])[0] == 2, "a later record says that it was"


def test_of_groups_with_many_holes_the_highest_slots_are_noted() -> None:
    state = GroupState(GROUP)
    for slot in range(1, 101):
        state.put(slot, slot * 100, 10, 0)
    for slot in (*range(2, 40, 2), 90):
        state.drop(slot)
    found = damage_notes.decode(damage_notes.encode([state], 9_600))
    assert found[GROUP][:3] == [range(91, 96), range(39, 90), range(37, 38)]
    assert len(found[GROUP]) == RANGES_MAX
    assert damage_notes.encode([GroupState(GROUP)], 100) == b""


@pytest.mark.parametrize("size", [0, 1, 19])
def test_no_note_says_nothing(size: int) -> None:
    assert damage_notes.decode(bytes(size)) == {}


def test_heads_of_segments_leave_the_note_where_it_is() -> None:
    """The note is found there: a segment is kept as long as damage before it."""
    disk, wal, places = running([*OLD, HIT, promise(3)])
    find_damage(wal, places, 3, applied=3)
    slot = 3
    while wal.statistics().segments < 4:
        slot += 1
        wal.stage(accept(slot, bytes(300), round_=3, applied=slot - 1))
        sync(wal)
    applied, proven, entries = next_life(disk, places[3])
    assert (applied, proven) == (2, slot - 1)
    assert sorted(entries) == [1, 2, *range(4, slot + 1)]
