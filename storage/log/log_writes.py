"""How a batch of the log becomes durable: by the kernel while the loop goes on, or by a thread."""

from typing import Final

from storage.disk.direct import BLOCK_BYTES, STAGING_BYTES
from storage.disk.files import File, join_small, write_all
from storage.errors import DiskFull, NoSegment, StorageFailed
from storage.log.model import Durability, Part, WalConfig, WriteBatch
from storage.log.segments import SegmentFiles
from storage.log.synced_mark import SyncedMark

BEGIN_BYTES_MAX: Final = STAGING_BYTES - BLOCK_BYTES
"""Longer batches take several writes, and copying each of them would take the loop too long."""


class LogWrites:
    """One batch at a time, in order; a failure is final."""

    def __init__(self, files: SegmentFiles, mark: SyncedMark, config: WalConfig) -> None:
        self._files, self._mark, self._config = files, mark, config
        self._begun: File | None = None
        self.failure: StorageFailed | None = None
        self.batches = self.syncs = 0

    def begin(self, batch: WriteBatch, wakeup: int) -> bool:
        """Let the kernel write the batch durably while the loop goes on; the eventfd `wakeup` is
        set when `finish` has a result. False: give it to `write`, because it is long, or the first
        in its segment, or this disk has no such writes. Never waits.

        Raises:
            StorageFailed: the disk failed; so does every later call.
        """
        part = batch.parts[0]
        if (
            len(batch.parts) > 1
            or batch.size > BEGIN_BYTES_MAX
            or self.failure is not None
            or self._config.durability is not Durability.FSYNC
            or part.number > self._files.highest
            or part.offset + batch.size > self._config.segment_bytes
        ):
            return False
        file = self._files.opened(part.number)
        if file is None:
            return False
        then = self._mark.next(batch.end)
        try:
            if file.begin_write(join_small(part.buffers), part.offset, wakeup, then):
                self._begun = file
        except StorageFailed as failure:
            self.failure = failure
            raise
        return self._begun is not None

    def finish(self, wait_s: float = 0.0) -> bool | None:
        """True: the batch that was begun is durable. None: it is still under way after `wait_s`
        seconds. False: give it to `write` after all.

        Raises:
            StorageFailed: the disk failed; so does every later call.
        """
        assert self._begun is not None, "nothing was begun"
        file = self._begun
        try:
            durable = file.finish_write(wait_s)
            if durable is not None:
                self._begun = None
            if durable:
                self.syncs += 1
                self.batches += 1
        except StorageFailed as failure:
            self.failure = failure
            raise
        return durable

    def write(self, batch: WriteBatch) -> None:
        """Write the batch and make it durable. One thread, one batch at a time, in order.

        Raises:
            StorageFailed: the disk failed; so does every later call.
            NoSegment: there is no room yet; call again with the same batch.
        """
        if self.failure is not None:
            raise self.failure
        files = [self._ensure(part) for part in batch.parts]
        try:
            for file, part in zip(files, batch.parts, strict=True):
                write_all(file, join_small(part.buffers), part.offset)
            if self._config.durability is Durability.FSYNC:
                for file in files:  # more than one only if the batch crosses into a new segment
                    file.fdatasync()
                    self.syncs += 1
                self._mark.store(batch.end)
        except StorageFailed as failure:
            self.failure = failure
            raise
        self.batches += 1

    def _ensure(self, part: Part) -> File:
        """The file of a segment about to be written; created now if it was not prepared."""
        try:
            return self._files.ensure(part.number, part.end)
        except DiskFull as full:
            raise NoSegment(full) from full
        except StorageFailed as failure:
            self.failure = failure
            raise
