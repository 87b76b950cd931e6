"""How the log gets to the disk: by the kernel, or by a thread; and a thread that makes segments.

One batch is under way at a time; everything staged meanwhile shares the next one (group commit). As
a rule the kernel writes it and makes it durable while the loop goes on
(storage.disk.kernel_writes); what is too long for that, crosses into a new segment, or is refused
there is written and synced by a thread. Completion wakes the data plane through an eventfd. A
failure is final: the shell exits 74 and never retries, because the kernel may have dropped the
pages.

A full disk is not a failure as long as the segments that are ready last: the preparing thread looks
at the free space (storage.disk.space), gives up the reserve when a segment cannot be made
otherwise, and goes on trying. When not even the next record has a place, the writer waits for it
(`starved`).
"""

from contextlib import suppress
from typing import Final

from runtime.network.dataplane import Signal
from storage.disk.space import Room, Space
from storage.disk.threads import SYSTEM_THREADS, Queue, Threads
from storage.errors import DiskFull, NoSegment, StorageFailed
from storage.log.model import WriteBatch
from storage.log.wal import Wal

SLOW_SYNCS_KEPT: Final = 512
STOP_S: Final = 10.0
LOOK_EVERY_S: Final = 0.5
"""How often the free space is measured, and a segment that could not be made is tried again."""
STARVED_RETRY_S: Final = 0.1
REMOVAL_PAUSE_S: Final = 0.02
"""Between two files that are removed: the log is synced in between."""
HURRIED_S: Final = 5.0
"""Segments that fill faster than this are followed by one that is reserved, not zeroed."""


class LogWriter:
    def __init__(
        self, wal: Wal, wakeup: Signal, space: Space, threads: Threads = SYSTEM_THREADS
    ) -> None:
        self._wal, self._wakeup, self._space = wal, wakeup, space
        self._threads = threads
        self._todo: Queue[WriteBatch | None] = threads.queue()
        self._prepare = threads.event()
        self._stopping = False
        self._retry = threads.event()
        """Set when the starved writer need not sleep: only to stop."""
        self.room: Room | None = None
        """What was last seen of the disk's free space."""
        self.starved = False
        """A batch waits for a segment that the disk has no room for."""
        self._prepared_at = -HURRIED_S
        self._done: WriteBatch | None = None
        self._begun: WriteBatch | None = None
        """What the kernel writes."""
        self._began_s = 0.0
        self._failure: Exception | None = None
        self.busy = False
        self.durations_s: list[float] = []
        """Of making a batch durable, since somebody last looked (the metrics take and clear them);
        what the kernel wrote is over when the loop hears of it."""
        self._running = [
            threads.thread("evenkeel-wal", self._write),
            threads.thread("evenkeel-prepare", self._prepare_segments),
        ]
        for thread in self._running:
            thread.start()

    # -- on the loop's thread -----------------------------------------------------------------

    def submit(self, batch: WriteBatch) -> None:
        """Make it durable; `take_done` says when it is.

        Raises:
            StorageFailed: the disk failed; nothing more may be acknowledged.
        """
        assert not self.busy
        self.busy = True
        self._began_s = self._threads.monotonic()
        if self._wal.begin(batch, self._wakeup.fd):
            self._begun = batch
        else:
            self._todo.put(batch)

    def take_done(self) -> WriteBatch | None:
        """The batch that is now durable, if any.

        Raises:
            StorageFailed: writing or preparing failed; nothing more may be acknowledged.
            Exception: a bug of ours ended one of the threads, which comes to the same.
        """
        self._wakeup.clear()
        if self._failure is not None:
            raise self._failure
        if self._begun is not None:
            self._look()
        done, self._done = self._done, None
        if done is not None:
            self.busy = False
        return done

    def _look(self, wait_s: float = 0.0) -> None:
        """Whether the kernel is done."""
        batch = self._begun
        assert batch is not None
        try:
            durable = self._wal.finish(wait_s)
        except Exception as failure:
            self._failure, self._begun = failure, None
            raise
        if durable is None:
            return
        self._begun = None
        if durable:
            self._took(self._began_s)
            self._done = batch
        else:
            self._todo.put(batch)

    def _took(self, began_s: float) -> None:
        if len(self.durations_s) < SLOW_SYNCS_KEPT:
            self.durations_s.append(self._threads.monotonic() - began_s)

    def prepare_soon(self) -> None:
        """A new segment was begun: make the next one's file in the background."""
        self._prepare.set()

    def stop(self) -> bool:
        """Let both threads end; what was submitted is written first.

        False: one of them, or the kernel, hangs at the disk. Then the directory must stay locked
        until the process has gone, or the next one would meet the hand of this one in its files.
        """
        self._stopping = True
        self._wal.stop_preparing()
        if self._begun is not None:
            with suppress(StorageFailed):  # told by take_done
                self._look(STOP_S)
        self._retry.set()
        self._todo.put(None)
        self._prepare.set()
        deadline = self._threads.monotonic() + STOP_S
        for thread in self._running:
            thread.join(timeout=max(0.0, deadline - self._threads.monotonic()))
        return self._begun is None and not any(thread.is_alive() for thread in self._running)

    # -- on their own threads -----------------------------------------------------------------

    def _write(self) -> None:
        while (batch := self._todo.get()) is not None:
            began_s = self._threads.monotonic()
            try:
                if not self._written(batch):
                    return
            except Exception as failure:  # noqa: BLE001  raised again by take_done
                self._failed(failure)
                return
            self._took(began_s)
            self._done = batch
            self._wakeup.set()

    def _written(self, batch: WriteBatch) -> bool:
        """Write it, however long that takes while there is no room; False: told to stop."""
        while True:
            try:
                self._wal.write(batch)
            except NoSegment:
                self.starved = True
                if self._retry.wait(STARVED_RETRY_S):
                    return False
            else:
                self.starved = False
                return True

    def _prepare_segments(self) -> None:
        while True:
            asked = self._prepare.wait(LOOK_EVERY_S)
            self._prepare.clear()  # first: stop() must not be taken for what was just done
            if self._stopping:
                return
            try:
                if asked or self._wal.wants_segment:
                    self._prepare_segment()
                self.room = self._space.look()
                if self._wal.wants_segment:
                    self._retry.wait(REMOVAL_PAUSE_S)
            except Exception as failure:  # noqa: BLE001  raised again by take_done
                self._failed(failure)
                return

    def _prepare_segment(self) -> None:
        """Make the file of the next segment, or note that there is no room for it."""
        began = self._threads.monotonic()
        hurried = began - self._prepared_at < HURRIED_S
        try:
            if self._wal.prepare_next(zeros=not hurried):
                self._prepared_at = began
        except DiskFull:
            if not self._space.segment_refused():
                return
            try:
                self._wal.prepare_next(zeros=False)
            except DiskFull:
                return
        self._space.segment_made()

    def _failed(self, failure: Exception) -> None:
        """A thread that died unseen would leave a node that lives and acknowledges nothing."""
        self._failure = failure
        self._wakeup.set()
