"""Writing the log to the disk, by the kernel or by a thread; another thread prepares segments.

One batch is written at a time; everything staged meanwhile goes into the next one (group commit).
Usually the kernel writes it and makes it durable while the loop continues
(storage.disk.kernel_writes). A thread writes and syncs a batch that is too long for that, crosses
into a new segment, or is refused by the kernel. Completion wakes the data plane through an eventfd.
A failure is final: the node exits with 74 and never retries, because the kernel may have dropped
the pages.

A full disk is not a failure as long as prepared segments last: the preparing thread measures the
free space (storage.disk.space), gives up the reserve if a segment cannot be made otherwise, and
keeps trying. If there is no room even for the next record, the writer waits for it (`starved`).
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
"""How often the free space is measured, and a failed preparation of a segment is retried."""
STARVED_RETRY_S: Final = 0.1
REMOVAL_PAUSE_S: Final = 0.02
"""The pause between two removals of files, so that the log is synced in between."""
HURRIED_S: Final = 5.0
"""If segments fill faster than this, the next one is only allocated, not filled with zeros."""


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
        """Ends the sleep of a starved writer; only set to stop."""
        self.room: Room | None = None
        """The last measurement of free space; None before the first."""
        self.starved = False
        """A batch waits for a segment, and the disk has no room for one."""
        self._prepared_at = -HURRIED_S
        self._done: WriteBatch | None = None
        self._begun: WriteBatch | None = None
        """The batch that the kernel is writing."""
        self._began_s = 0.0
        self._failure: Exception | None = None
        self.busy = False
        self.durations_s: list[float] = []
        """How long it took to make each batch durable; the metrics read and clear them. A batch
        that the kernel writes counts until the loop learns of its completion."""
        self._running = [
            threads.thread("evenkeel-wal", self._write),
            threads.thread("evenkeel-prepare", self._prepare_segments),
        ]
        for thread in self._running:
            thread.start()

    # -- on the loop's thread -----------------------------------------------------------------

    def submit(self, batch: WriteBatch) -> None:
        """Begin to make a batch durable; `take_done` returns it when it is.

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
            Exception: a bug of ours ended one of the threads, which has the same consequence.
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
        """Check whether the kernel has finished; waits up to `wait_s` for it."""
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
        """Prepare another segment in the background, because a new one was begun."""
        self._prepare.set()

    def stop(self) -> bool:
        """Stop both threads; submitted batches are written first.

        Returns False if one of them, or the kernel, hangs at the disk. Then the directory must stay
        locked until the process ends, or this process could still write to files of the next one.
        """
        self._stopping = True
        self._wal.stop_preparing()
        if self._begun is not None:
            with suppress(StorageFailed):  # take_done raises it again
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
        """Write a batch; waits as long as there is no room for it. False: stopped meanwhile."""
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
            self._prepare.clear()  # before looking at _stopping, or the wakeup of stop() is lost
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
        """Make the file of the next segment; if there is no room, give up the reserve and retry."""
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
        """Let `take_done` raise it: if a thread died unnoticed, the node would never acknowledge
        anything again."""
        self._failure = failure
        self._wakeup.set()
