"""Room on the disk: the low-water mark, and a reserve that is given up when there is none left.

A log that cannot grow must not take the node down: elections, lease renewals, reads and retiring
go on in the segments that are ready, clients are refused with a retriable error, and when somebody
has made room, everything goes on by itself. That takes two things: to notice in time (the mark),
and room to live on meanwhile (the reserve: a file whose only content is its size).

Not thread-safe: one thread looks, others read the frozen `Room` it returns.
"""

from collections.abc import Callable
from typing import Final

import attrs

from storage.disk.files import Disk
from storage.errors import DiskFull

RESERVE_NAME: Final = "reserve"


@attrs.frozen(kw_only=True)
class SpaceConfig:
    low_water_bytes: int = 64 << 20
    """With less than this free, the node takes no new data."""
    reserve_bytes: int = 32 << 20
    """Held back, and given up when there is no other room for a segment; 0: no reserve."""


@attrs.frozen
class Room:
    """The last measurement. `low`: take no new data."""

    free_bytes: int
    low: bool
    reserve: bool
    """Whether the reserve is held."""


class Space:
    def __init__(self, disk: Disk, config: SpaceConfig) -> None:
        self._disk, self._config = disk, config
        self._held = RESERVE_NAME in disk.names()
        self._refused = False
        """A segment could not be made, and has not been since."""
        self._low = False

    def look(self) -> Room:
        """Measure the free space, and hold the reserve again if there is plenty.

        Raises:
            StorageFailed: the disk fails other than by being full.
        """
        config = self._config
        free = self._disk.free_bytes()
        # Up again only with a little more than the mark, or the intake would flap at the mark.
        mark = config.low_water_bytes + (config.low_water_bytes // 4 if self._low else 0)
        self._low = self._refused or free < mark
        plenty = not self._low and free >= mark + config.reserve_bytes
        if config.reserve_bytes and not self._held and plenty:
            self._hold()
        return Room(free, self._low, self._held)

    def segment_refused(self) -> bool:
        """The next segment's file could not be made. True: the reserve was given up, try again."""
        self._refused = True
        if not self._held:
            return False
        self._disk.remove(RESERVE_NAME)
        self._disk.sync_directory()
        self._held = False
        return True

    def segment_made(self) -> None:
        self._refused = False

    def _hold(self) -> None:
        try:
            self._disk.create(RESERVE_NAME).reserve(self._config.reserve_bytes)
        except DiskFull:  # somebody was faster
            if RESERVE_NAME in self._disk.names():
                self._disk.remove(RESERVE_NAME)
            return
        self._disk.sync_directory()
        self._held = True


def write_with_reserve(disk: Disk, write: Callable[[], None]) -> None:
    """Write something small without which the node could not go on, or not start again: if there
    is no room for it, give up the reserve. Only where no other thread looks at the room.

    Raises:
        DiskFull: even so.
    """
    try:
        write()
    except DiskFull:
        if RESERVE_NAME not in disk.names():
            raise
        disk.remove(RESERVE_NAME)
        disk.sync_directory()
        write()
