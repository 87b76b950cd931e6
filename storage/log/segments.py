"""The segment files: made ahead, found by number, recycled when they are no longer needed.

New files are filled with zeros and not merely reserved. Measured on ext4 with one fdatasync per
write (p50, 264 B / 16 KB / 1 MB): growing file 114-125 / 150-164 / 600-700 us; fallocated 81-85 /
160 / 510-2800 us; zero-filled or recycled 92 / 103 / 310-400 us. A reserved extent is "unwritten",
so each fdatasync has to convert it and commit a journal transaction; overwriting written blocks
commits none. The 30-170 ms that the zeros cost are paid by a background thread. Only while segments
fill within seconds, new ones are reserved and not zeroed: zeros would then double what the disk has
to write, and cost more than they save (three nodes on one busy disk, 1 KB messages: 14 ms per
synced batch with zeros, 6 ms without).

A recycled file keeps its old content under its new name, which saves the zeros. The number in its
header and in every record is the old one, so none of it looks valid (format.py). Names change and
disappear from the oldest on, each made durable before the next, so that a crash never leaves a hole
in the numbers.
"""

import errno
from collections import deque
from typing import Final

from storage.disk.descriptors import DESCRIPTORS
from storage.disk.direct import whole_blocks
from storage.disk.files import Disk, File, write_all
from storage.errors import DiskFull, storage_failed
from storage.format import segment_name

ZEROS_BYTES: Final = 1 << 20
"""A new file is filled and synced in pieces of this size, so that the hot path's own fdatasync
never queues behind a whole segment of zeros."""

SPARES_MAX: Final = 2
"""Retired files kept to be used again; more are removed, for retiring is meant to free space."""

_TEMPORARY_NAME: Final = "segment.tmp"


class SegmentFiles:
    """Thread-safe: the loop's thread reads, the writer's thread writes, a third one prepares."""

    def __init__(self, disk: Disk, segment_bytes: int, highest: int) -> None:
        self._disk = disk
        self.threads = disk.threads
        self._segment_bytes = segment_bytes
        self._highest = highest
        """The highest number that has a file."""
        self._spares: deque[int] = deque()
        """Retired numbers, oldest first, still under their old names."""
        self._open: dict[int, File] = {}
        self._open_lock = disk.threads.lock()
        self._make_lock = disk.threads.lock()
        self._hurry = False
        DESCRIPTORS.bound(self)

    @property
    def highest(self) -> int:
        return self._highest

    def file(self, number: int) -> File:
        """The file of a segment, opened if need be."""
        file = self.opened(number)
        if file is None:
            file = self._disk.open(segment_name(number))  # without the lock: this may take long
            with self._open_lock:
                file = self._open.setdefault(number, file)
            self.keep_few_open()
        return file

    def keep_few_open(self) -> None:
        """The others are opened again when they are read; closing does not wait for the disk."""
        with self._open_lock:
            while len(self._open) > DESCRIPTORS.kept_open_max:
                del self._open[next(iter(self._open))]

    def opened(self, number: int) -> File | None:
        """The file of a segment, if it is open; never waits for the disk."""
        with self._open_lock:
            file = self._open.pop(number, None)
            if file is not None:
                self._open[number] = file  # most recently used last
            return file

    def ensure(self, number: int, end: int = 0) -> File:
        """The file of a segment about to be written up to `end`, created now if need be."""
        if number > self._highest:
            self.prepare(number, zeros=False)  # the log waits for it
        file = self.file(number)
        if end > self._segment_bytes and file.size() < end:  # enlarged for one large entry
            file.reserve(whole_blocks(end))
        return file

    def stop_preparing(self) -> None:
        """Stop filling files with zeros; the one being filled is left as it is."""
        self._hurry = True

    def prepare(self, number: int, *, zeros: bool = True) -> bool:
        """Create the files up to `number`, one by one; False if they were there already."""
        made = False
        with self._make_lock:
            while self._highest < number:
                name = segment_name(self._highest + 1)
                if not self._recycle(name) and not self._make(name, zeros):
                    return made
                self.file(self._highest + 1)  # opened here, so that the writer need not wait for it
                self._highest += 1
                made = True
        return made

    def prepare_next(self, number: int, *, zeros: bool) -> bool:
        """`prepare`, and remove one file that is not needed, if there are too many.

        Only one: the writer may wait for the lock because it needs a segment, and every removal is
        a commit of the file system's journal, which the log's own fdatasync waits for. A thousand
        at once (the log retired 4 GB) took four seconds.
        """
        made = self.prepare(number, zeros=zeros)
        with self._make_lock:
            if self.surplus:
                self._disk.remove(segment_name(self._spares[0]))
                self._disk.sync_directory()
                self._spares.popleft()
        return made

    def retire(self, numbers: range) -> None:
        """Give the files of `numbers` to `prepare_next`, to be used again or removed."""
        with self._open_lock:
            for number in numbers:
                self._open.pop(number, None)
                self._spares.append(number)

    @property
    def surplus(self) -> bool:
        return len(self._spares) > SPARES_MAX

    def _recycle(self, name: str) -> bool:
        """Rename a retired file of the right size to `name`; remove those of another size, and
        those that are linked elsewhere: they are evidence (storage.evidence), and stay as they are.
        """
        while self._spares:
            old = segment_name(self._spares[0])
            linked = self._disk.is_linked(old)
            fits = self._disk.open(old).size() == self._segment_bytes and not linked
            if fits:
                self._disk.rename(old, name)
            else:
                self._disk.remove(old)
            self._disk.sync_directory()
            self._spares.popleft()
            if fits:
                return True
        return False

    def _make(self, name: str, zeros: bool) -> bool:
        """False if told to stop before it was done. What is left is made anew at the next start."""
        if _TEMPORARY_NAME in self._disk.names():
            self._disk.remove(_TEMPORARY_NAME)  # a crash, or a full disk, has left it
        missing = self._segment_bytes - self._disk.free_bytes()
        if missing > 0:  # half a file would take the last room from what needs less
            full = OSError(errno.ENOSPC, f"{missing} bytes are missing")
            raise storage_failed("create", name, full)
        file = self._disk.create(_TEMPORARY_NAME)
        try:
            if zeros:
                for start in range(0, self._segment_bytes, ZEROS_BYTES):
                    if self._hurry:
                        return False
                    fill_with_zeros(file, start, min(start + ZEROS_BYTES, self._segment_bytes))
            else:
                file.reserve(self._segment_bytes)
                file.fdatasync()
        except DiskFull:
            self._disk.remove(_TEMPORARY_NAME)
            raise
        self._disk.rename(_TEMPORARY_NAME, name)
        self._disk.sync_directory()
        return True


def fill_with_zeros(file: File, start: int, end: int) -> None:
    """Overwrite [start, end) with zeros, durably."""
    zeros = memoryview(bytes(min(ZEROS_BYTES, max(0, end - start))))
    while start < end:
        piece = min(len(zeros), end - start)
        write_all(file, [zeros[:piece]], start)
        file.fdatasync()
        start += piece
