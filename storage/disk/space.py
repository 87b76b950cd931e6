"""Room on the disk: the low-water mark, and a reserve that is given up when there is none left.

A log that cannot grow must not take the node down: elections, lease renewals, reads and retiring
go on in the segments that are ready, clients are refused with a retriable error, and when somebody
has made room, everything goes on by itself. For that two things are needed: to notice in time (the
mark), and something to live on meanwhile (the reserve: a file whose only content is its size).

Not thread-safe: one thread looks, others read the frozen `Room` it returns.
"""

from typing import Final

import attrs

from storage.disk.files import Disk
from storage.errors import DiskFull

RESERVE_NAME: Final = "reserve"


@attrs.frozen(kw_only=True)
class SpaceConfig:
    low_water_bytes: int = 64 << 20
    """With less than this free, nothing new is taken in."""
    reserve_bytes: int = 32 << 20
    """Held back, and given up when a segment cannot be made otherwise; 0: nothing."""


@attrs.frozen
class Room:
    """What was seen last. `low`: take nothing new in."""

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
        """Measure; hold the reserve again where there is plenty.

        Raises:
            StorageFailed: the disk fails in another way than by being full.
        """
        config = self._config
        free = self._disk.free_bytes()
        # Up again only with some more than the mark, or an intake at the mark would flutter.
        mark = config.low_water_bytes + (config.low_water_bytes // 4 if self._low else 0)
        self._low = self._refused or free < mark
        plenty = not self._low and free >= mark + config.reserve_bytes
        if config.reserve_bytes and not self._held and plenty:
            self._hold()
        return Room(free, self._low, self._held)

    def segment_refused(self) -> bool:
        """The file of the next segment could not be made: is it worth another try at once?"""
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
