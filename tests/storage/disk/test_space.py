"""The low-water mark and the reserve: noticed in time, given up when needed, and built up again."""

import errno

import pytest

from storage.disk.memory import MemoryDisk
from storage.disk.space import RESERVE_NAME, Space, SpaceConfig
from storage.errors import StorageFailed

CONFIG = SpaceConfig(low_water_bytes=1000, reserve_bytes=500)


def full_up_to(disk: MemoryDisk, free: int) -> None:
    """Another program leaves that much."""
    if "others" in disk.names():
        disk.remove("others")
    others = disk.create("others")
    others.reserve(disk.free_bytes() - free)


def test_the_reserve_is_held_while_there_is_plenty() -> None:
    disk = MemoryDisk(capacity_bytes=10_000)
    space = Space(disk, CONFIG)
    full_up_to(disk, 1400)
    room = space.look()
    assert (room.low, room.reserve) == (False, False), "with it, there would be too little"
    full_up_to(disk, 1500)
    space.look()
    room = space.look()
    assert (room.free_bytes, room.low, room.reserve) == (1000, False, True)
    assert len(disk.content(RESERVE_NAME)) == 500


def test_below_the_mark_it_is_low_until_there_is_a_quarter_more() -> None:
    disk = MemoryDisk(capacity_bytes=10_000)
    space = Space(disk, SpaceConfig(low_water_bytes=1000, reserve_bytes=0))
    for free, low in [(1000, False), (999, True), (1249, True), (1250, False), (1000, False)]:
        full_up_to(disk, free)
        assert space.look().low is low, free


def test_the_reserve_is_given_up_once_and_held_again_after() -> None:
    disk = MemoryDisk(capacity_bytes=10_000)
    space = Space(disk, CONFIG)
    space.look()
    full_up_to(disk, 100)
    assert space.segment_refused(), "worth another try"
    assert disk.free_bytes() == 600
    assert not space.segment_refused()
    full_up_to(disk, 5000)
    assert space.look().low, "a segment was refused, and none has been made since"
    space.segment_made()
    assert not space.look().low
    assert RESERVE_NAME in disk.names()


def test_a_restart_finds_the_reserve() -> None:
    disk = MemoryDisk(capacity_bytes=10_000)
    Space(disk, CONFIG).look()
    again = Space(disk, CONFIG)
    full_up_to(disk, 0)
    assert again.look().reserve
    assert again.segment_refused()


def test_a_disk_that_fails_in_another_way_is_no_full_one() -> None:
    disk = MemoryDisk(capacity_bytes=10_000)
    disk.fail("reserve", errno.EIO)
    with pytest.raises(StorageFailed):
        Space(disk, CONFIG).look()
