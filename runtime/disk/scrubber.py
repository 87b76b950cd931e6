"""Scrubbing: reading old data again, so that damage is found while peers still have the data.

A thread reads all segments, from the oldest on, at a limited rate, and starts again after a pause.
It reads as a restart would (storage.log.walk), so it finds the same damage at the same positions.
If other code has found damage (a consumer's fetch, a peer that catches up), that segment is read at
once and at full speed. The engine takes the results and repairs the damage (runtime.disk.repair).

Then it reads the checkpoints and the cold data, at the same rate. A new checkpoint replaces a
damaged one, and a peer's data replaces damaged cold data (runtime.upkeep.upkeep).
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from paxos.ids import GroupId
from runtime.system.journal import Journal
from storage.checkpoints import CheckpointFiles, checkpoint_name
from storage.cold.store import ColdStore
from storage.disk.threads import SYSTEM_THREADS, Empty, Full, Queue, Threads
from storage.errors import ColdDamaged, NotInLog, StorageError
from storage.format import OFFSET_BITS, SEGMENT_HEADER_BYTES, Place, place_of
from storage.log.wal import Wal
from storage.log.walk import Cursor, Hole, survey

WINDOW_BYTES: Final = 256 * 1024
"""Bytes read at a time; with small records, other threads do not run meanwhile."""
STOP_S: Final = 2.0
URGENT_MAX: Final = 1024


class Scrubber:
    """With `bytes_per_s` 0 it only reads what is suspected. `wake` is called for each result."""

    def __init__(
        self,
        wal: Wal,
        wake: Callable[[], None],
        journal: Journal,
        *,
        bytes_per_s: int,
        every_s: float,
        threads: Threads = SYSTEM_THREADS,
    ) -> None:
        self._wal, self._wake, self._journal = wal, wake, journal
        self._bytes_per_s, self._every_s = bytes_per_s, every_s
        self._threads = threads
        self._urgent: Queue[int | None] = threads.queue(URGENT_MAX)
        self.cold: ColdStore | None = None
        self.checkpoints: CheckpointFiles | None = None
        self._found: deque[Hole] = deque()
        self._found_cold: deque[ColdDamaged] = deque()
        self._found_checkpoints: deque[GroupId] = deque()
        self._paid_until = 0.0
        self._stopping = threads.event()
        self._thread = threads.thread("evenkeel-scrub", self._run)
        self.bytes_read = 0
        self.passes = 0
        self.errors = 0

    def start(self) -> None:
        self._thread.start()

    # -- on the loop's thread -----------------------------------------------------------------

    def suspect(self, position: Place) -> None:
        """Check the segment of this position at once, because a reader found damage there."""
        try:
            self._urgent.put_nowait(position >> OFFSET_BITS)
        except Full:
            self.errors += 1  # the next pass will read it

    def take(self) -> list[Hole]:
        """Damage in the log that was found since the last call."""
        found = []
        while self._found:
            found.append(self._found.popleft())
        return found

    @property
    def found_beside_the_log(self) -> bool:
        """Whether `take_cold` or `take_checkpoints` has results."""
        return bool(self._found_cold or self._found_checkpoints)

    def take_cold(self) -> list[ColdDamaged]:
        """Damaged cold data that was found since the last call."""
        return [self._found_cold.popleft() for _ in range(len(self._found_cold))]

    def take_checkpoints(self) -> list[GroupId]:
        """Groups whose checkpoints were found damaged since the last call."""
        return [self._found_checkpoints.popleft() for _ in range(len(self._found_checkpoints))]

    def stop(self) -> None:
        self._stopping.set()
        self.suspect(0)
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    # -- on its own thread --------------------------------------------------------------------

    def look_at_urgent(self) -> None:
        """Check suspected segments only: for tests that drive a node without its threads."""
        self._wait(0)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._wait(self._every_s if self._bytes_per_s else None)
            if self._stopping.is_set():
                return
            for number in self._wal.kept():
                self._look(number, paced=True)
                if self._stopping.is_set():
                    return
            self._look_beside_the_log()
            self.passes += 1

    def _wait(self, seconds: float | None) -> None:
        """Wait (None: for ever), and check suspected segments meanwhile."""
        end = None if seconds is None else self._threads.monotonic() + seconds
        while not self._stopping.is_set():
            left = None if end is None else max(0.0, end - self._threads.monotonic())
            try:
                number = self._urgent.get(timeout=left)
            except Empty:
                return
            if number:
                self._look(number, paced=False)

    def _look(self, number: int, *, paced: bool) -> None:
        self._guarded(partial(self._survey, number, paced=paced))

    def _guarded(self, look: Callable[[], None]) -> None:
        if self._stopping.is_set():
            return
        try:
            look()
        except NotInLog:
            return  # retired meanwhile
        except StorageError as error:
            # This says nothing about any record. A disk that sometimes fails to read must not stop
            # a node; other reads and writes will notice a disk that always fails.
            self._journal.error("scrub failed", reason=str(error))
            self.errors += 1
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one check
            # Our own bug; but if the thread died of it, later damage would never be found.
            self._journal.bug("scrub", error)
            self.errors += 1  # after the log line: whoever sees the count can find the reason

    def _look_beside_the_log(self) -> None:
        """Check checkpoints and cold data, file by file."""
        self._paid_until = self._threads.monotonic()
        if self.checkpoints is not None:
            for name in self.checkpoints.files():
                self._guarded(partial(self._look_at_checkpoint, self.checkpoints, name))
        if self.cold is not None:
            for uid, base in self.cold.files():
                self._guarded(partial(self._look_at_cold, self.cold, uid, base))

    def _look_at_checkpoint(self, files: CheckpointFiles, name: str) -> None:
        found, wrong = checkpoint_name(name), files.check(name)
        if wrong is not None and found is not None:
            self._journal.error("checkpoint damaged", file=name, reason=wrong)
            self._found_checkpoints.append(found.group)
            self._wake()

    def _look_at_cold(self, cold: ColdStore, uid: int, base: int) -> None:
        found = cold.check(uid, base, self._pay)
        for one in found:
            self._journal.error("cold data damaged", reason=str(one))
        if found:
            self._found_cold.extend(found)
            self._wake()

    def _pay(self, size: int) -> None:
        """Account for bytes read, and wait as the rate requires."""
        self.bytes_read += size
        self._paid_until += size / max(1, self._bytes_per_s)
        left = self._paid_until - self._threads.monotonic()
        if left > 0:
            self._wait(left)

    def _survey(self, number: int, *, paced: bool) -> None:
        file, header, limit = self._wal.scrub_target(number)
        cursor = Cursor(SEGMENT_HEADER_BYTES, header.seed, window_bytes=WINDOW_BYTES)
        began, accounted = self._threads.monotonic(), cursor.offset
        known = self._wal.known_damage
        for item in survey(file, header, cursor, limit):
            if isinstance(item, Hole) and (item.start, item.end) not in known:
                if number not in self._wal.kept():
                    return  # its file was reused while we read
                self._found.append(item)
                self._wake()
            if cursor.offset - accounted >= WINDOW_BYTES:
                self.bytes_read += cursor.offset - accounted
                accounted = cursor.offset
                due = began + (accounted - SEGMENT_HEADER_BYTES) / max(1, self._bytes_per_s)
                if paced and due > self._threads.monotonic():
                    self._wait(due - self._threads.monotonic())
                if self._stopping.is_set():
                    return
        self.bytes_read += cursor.offset - accounted
        assert place_of(number, cursor.offset) <= self._wal.end
