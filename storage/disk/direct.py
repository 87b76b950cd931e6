"""Writing past the page cache (O_DIRECT): the log's bytes are written once and rarely read back.

Measured on this project's three-node benchmark, 1 KB messages: with ordinary writes two thirds of a
node's CPU went into fresh page-cache pages; direct writes made it 2-3 times as fast. Reads stay
ordinary: Linux drops the cached pages of what is written directly.

Direct writes come in whole blocks, from memory aligned like them. Bytes go through one aligned
staging buffer per directory; the last, unfinished block is kept and written again with what follows
it. Writing a block again with the same beginning is what the page cache does as well, so a torn
write harms nothing that was durable: sectors of 512 bytes are whole or untouched (files.py), and
those of the beginning do not change.

Other files grow, cold segments above all. Long writes to them are direct too, as far as they fill
whole blocks (`GrowingFile`), and long reads go into memory that is used again (`BufferPool`). The
reason is the same: *new* pages are expensive. Measured on a virtual machine, CPU for 1 MiB:
a write through the page cache 1,880 us and directly 70-96; a read of what is not in the cache
315-2,570 us, directly into new memory 450-520, into memory that was used before 86-103.
"""

import ctypes
import errno
import mmap
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from paxos.entry import Buffer
from storage.disk.kernel_queue import LATER, REFUSALS
from storage.disk.kernel_writes import Following, KernelWrites
from storage.errors import UNREADABLE

BLOCK_BYTES: Final = 4096
STAGING_BYTES: Final = 8 << 20
"""The most that is written at a time; longer writes are split. Unused memory costs nothing."""
LONG_BYTES: Final = 64 * 1024
"""Writes to a growing file are direct from this size on: below it, a round trip to the disk costs
more than the page cache does."""
LONG_READ_BYTES: Final = 256 * 1024
"""The same for reads; it is larger because the page cache reads ahead (64 KiB directly: 2.7 ms for
1 MiB)."""
LONG_READ_BYTES_MAX: Final = (1 << 20) + 64 * 1024
"""Longer reads go through the page cache. A span of adjacent blocks fits, and so does a usual
batch."""
KEPT_MAX: Final = 20
"""Buffers for direct reads: a tiering job holds four, as many may be read ahead, and a slow
consumer holds what it was sent. When all are in use, reads go through the page cache."""


def whole_blocks(size: int) -> int:
    """The size, rounded up to blocks."""
    return -(-size // BLOCK_BYTES) * BLOCK_BYTES


class Staging:
    """The aligned memory all direct files of one directory share; `lock` guards it, also while the
    kernel writes from it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.kernel = KernelWrites()
        self._memory: memoryview | None = None
        self.address = 0
        """Where the memory is; 0 before it is first used."""

    def memory(self) -> memoryview:
        """The buffer, made when it is first needed."""
        if self._memory is None:
            pages = mmap.mmap(-1, STAGING_BYTES)
            with suppress(OSError):  # only faster: each write has to look up fewer pages
                pages.madvise(mmap.MADV_HUGEPAGE)
            self._memory = memoryview(pages)
            self.address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        return self._memory


@attrs.frozen
class _Staged:
    """What was put into the staging buffer: bytes `start` to `end` are new, the rest of the blocks
    up to `stop` is what the file holds; the first block goes to `position` of the file."""

    position: int
    start: int
    end: int
    stop: int


class DirectFile:
    """The writing half of one file. `supported` turns False when the file system refuses."""

    def __init__(self, descriptor: int, staging: Staging) -> None:
        self._buffered = descriptor
        self._staging = staging
        self._size = os.fstat(descriptor).st_size
        self._frontier = -1
        """Where the last write ended: we have never written beyond it."""
        self._last_block = b""
        """What the unfinished block before the frontier holds."""
        self._direct = opened_directly(descriptor)
        self.supported = self._direct >= 0
        self._begun: _Staged | None = None

    def let_go(self) -> int:
        """Of its descriptor (-1: it has none), for whoever closes it."""
        descriptor, self._direct = self._direct, -1
        return descriptor

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write a beginning of `buffers` and return its length; 0: use an ordinary write instead.

        Raises:
            OSError: as pwritev does.
        """
        with self._staging.lock:
            staged = self._stage(buffers, offset)
            if staged is None:
                return 0
            block = self._staging.memory()[: staged.stop]
            try:
                written = os.pwritev(self._direct, [block], staged.position)
            except OSError as error:
                self._frontier = -1
                if error.errno != errno.EINVAL:
                    raise
                self.supported = False
                return 0
            if written != staged.stop:  # rare: some blocks are written, start over from their end
                self._frontier = -1
                return max(0, min(written, staged.end) - staged.start)
            self._reached(staged)
            return staged.end - staged.start

    def begin(
        self,
        buffers: Sequence[Buffer],
        offset: int,
        wakeup: int,
        following: Following | None = None,
    ) -> bool:
        """Begin to write all of `buffers` durably, and then `following`, while the caller goes on.
        Call `finish` when the eventfd `wakeup` is set. False, and nothing happens, if that is not
        possible now, or not without reading the file.

        Raises:
            OSError: the device failed.
        """
        staging = self._staging
        size = offset % BLOCK_BYTES + sum(map(len, buffers))
        if size > STAGING_BYTES or not staging.kernel.supported or offset != self._frontier:
            return False
        if not staging.lock.acquire(blocking=False):
            return False
        try:
            staged = self._stage(buffers, offset)
            if staged is not None and staging.kernel.begin(
                self._direct, (staging.address, staged.stop), staged.position, wakeup, following
            ):
                self._begun = staged
        finally:
            if self._begun is None:
                staging.lock.release()
        return self._begun is not None

    def finish(self, wait_s: float) -> bool | None:
        """True: what was begun is durable. None: not over after `wait_s` seconds. False: nobody
        knows how much of it was written, so it has to be written once more.

        Raises:
            OSError: the device failed.
        """
        staged, staging = self._begun, self._staging
        assert staged is not None, "nothing was begun"
        result = staging.kernel.result(wait_s)
        if result is None:
            return None
        self._begun = None
        staging.lock.release()
        if result == staged.stop:
            self._reached(staged)
            return True
        self._frontier = -1
        if result < 0 and -result not in (*REFUSALS, *LATER):
            raise OSError(-result, os.strerror(-result))
        return False

    def _stage(self, buffers: Sequence[Buffer], offset: int) -> _Staged | None:
        """Put a beginning of `buffers` into the staging buffer, and around it what the file already
        holds there; None if whole blocks would reach beyond the file."""
        memory = self._staging.memory()
        first = offset - offset % BLOCK_BYTES
        start = offset - first
        memory[:start] = self._beginning(first, start, offset)
        end = _gather(memory, start, buffers)
        stop = min(whole_blocks(end), STAGING_BYTES)
        if first + stop > self._size:
            self._frontier = -1
            return None
        memory[end:stop] = self._rest(first + end, stop - end, offset)
        return _Staged(first, start, end, stop)

    def _reached(self, staged: _Staged) -> None:
        end = staged.end
        self._frontier = staged.position + end
        self._last_block = bytes(self._staging.memory()[end - end % BLOCK_BYTES : end])

    def _beginning(self, first: int, size: int, offset: int) -> bytes:
        """What the file holds before `offset` in its block."""
        if not size:
            return b""
        if offset == self._frontier:
            return self._last_block
        return os.pread(self._buffered, size, first)

    def _rest(self, position: int, size: int, offset: int) -> bytes:
        """What fills up the last block: zeros if the log goes on where it ended, or if the disk has
        lost what was there, which is nothing of value beyond the log's end."""
        if size and offset != self._frontier:
            try:
                return os.pread(self._buffered, size, position)
            except OSError as error:
                if error.errno not in UNREADABLE:
                    raise
        return bytes(size)


class GrowingFile:
    """Writing to a file that is only as long as what was written to it: whole blocks directly, the
    parts of blocks at both ends through the page cache. They never share a page, so the kernel has
    nothing to keep coherent; `fdatasync` makes both durable."""

    def __init__(self, descriptor: int, staging: Staging) -> None:
        self._buffered = descriptor
        self._staging = staging
        self._direct: int | None = None
        """None: no long write has been made yet; -1: the file system refuses."""

    def let_go(self) -> int:
        """Of its descriptor (-1: it has none), for whoever closes it."""
        descriptor, self._direct = self._direct, -1
        return -1 if descriptor is None else descriptor

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write a beginning of `buffers` and return its length.

        Raises:
            OSError: as pwritev does.
        """
        edge = -offset % BLOCK_BYTES
        """Bytes to where the next block begins."""
        blocks = sum(map(len, buffers)) - edge
        blocks -= blocks % BLOCK_BYTES
        if blocks >= LONG_BYTES and self._opened() >= 0:
            written = self._write_blocks(buffers, offset, edge, blocks)
            if written:
                return written
        return os.pwritev(self._buffered, buffers, offset)

    def _opened(self) -> int:
        if self._direct is None:
            self._direct = opened_directly(self._buffered)
        return self._direct

    def _write_blocks(self, buffers: Sequence[Buffer], offset: int, edge: int, blocks: int) -> int:
        assert self._direct is not None
        with self._staging.lock:
            memory = self._staging.memory()
            begin = BLOCK_BYTES if edge else 0
            start = begin - edge
            end = min(begin + blocks, STAGING_BYTES)
            _gather(memory[:end], start, buffers)
            if edge:
                done = os.pwrite(self._buffered, memory[start:begin], offset)
                if done < edge:
                    return done
            try:
                done = os.pwritev(self._direct, [memory[begin:end]], offset + edge)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                os.close(self._direct)
                self._direct = -1
                return edge
        return edge + done


class BufferPool:
    """Memory for direct reads, used again as soon as nobody has a view of it any more.

    Nobody gives it back: a view may go on to a socket, and its end is not known here. But a view
    holds a reference to its memory, so memory that only this list refers to is free.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._kept: list[mmap.mmap] = []
        self._references: list[int] = []
        """The reference count of each while there is no view of it."""

    def take(self, size: int) -> memoryview | None:
        """A view of `size` bytes of aligned memory; None if all is in use."""
        room = LONG_READ_BYTES_MAX + 2 * BLOCK_BYTES
        if size > room:
            return None
        with self.lock:
            for number, references in enumerate(self._references):
                if sys.getrefcount(self._kept[number]) == references:
                    return memoryview(self._kept[number])[:size]
            if len(self._kept) == KEPT_MAX:
                return None
            self._kept.append(mmap.mmap(-1, room))
            self._references.append(sys.getrefcount(self._kept[-1]))
            return memoryview(self._kept[-1])[:size]


def opened_directly(descriptor: int, access: int = os.O_RDWR) -> int:
    """Another descriptor of the file, for direct reads and writes; -1 if that is refused."""
    try:
        return os.open(f"/proc/self/fd/{descriptor}", access | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return -1


def _gather(memory: memoryview, start: int, buffers: Sequence[Buffer]) -> int:
    """Copy buffers into `memory` from `start` on, as many bytes as fit; returns where they end."""
    end = start
    for buffer in buffers:
        size = min(len(buffer), len(memory) - end)
        memory[end : end + size] = memoryview(buffer)[:size]
        end += size
        if end == len(memory):
            break
    return end
