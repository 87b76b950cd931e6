"""The log of one process of the bare append: a recycled file, written and synced by one thread.

The file has its full size, filled with zeros, before anything is measured, and is written from its
beginning again when its end is reached. Overwriting spares the file system the work of making a
file longer, which is otherwise most of the cost of an fdatasync. Writes go past the page cache and
return when they are durable (O_DIRECT and O_DSYNC; if the file system has no O_DIRECT, an ordinary
write and fdatasync). One batch is in progress at a time, and what is staged meanwhile shares the
next one (group commit).

A batch begins at a new block. In it entries follow each other, each with a head: its number of
bytes, its sequence, the partition, and the offset of its first record. There is no checksum, and no
recovery: this log shows what a disk can do, and that everything acknowledged is in it.
"""

import mmap
import os
import queue
import struct
import threading
import traceback
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.limits.streams import Buffer

BLOCK_BYTES: Final = 4096
RING_BYTES: Final = 256 * 1024 * 1024
BATCH_BYTES_MAX: Final = 8 * 1024 * 1024
ZEROS: Final = bytes(1024 * 1024)
ENTRY: Final = struct.Struct(">IqIq")


class Entry(NamedTuple):
    """An entry that `entries` finds in a log."""

    sequence: int
    partition: int
    base_offset: int
    records: bytes


class Ring:
    """The file. Only the thread that syncs writes to it."""

    def __init__(self, path: Path, size: int) -> None:
        assert size % BLOCK_BYTES == 0, "the file is written in whole blocks"
        assert size >= BATCH_BYTES_MAX, "a batch has room"
        _fill_with_zeros(path, size)
        self._size = size
        self._at = 0
        self._staging = mmap.mmap(-1, BATCH_BYTES_MAX)
        self._memory = memoryview(self._staging)
        self._direct = True
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_DIRECT | os.O_DSYNC | os.O_CLOEXEC)
        except OSError:  # a file system in memory, say
            self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
            self._direct = False

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Make a batch durable."""
        memory, end = self._memory, 0
        for buffer in buffers:
            stop = end + len(buffer)
            memory[end:stop] = buffer
            end = stop
        size = -(-end // BLOCK_BYTES) * BLOCK_BYTES
        memory[end:size] = bytes(size - end)
        if self._at + size > self._size:
            self._at = 0
        written = os.pwrite(self._fd, memory[:size], self._at)
        assert written == size, f"{written} of {size} bytes written"
        if not self._direct:
            os.fdatasync(self._fd)
        self._at += size

    def close(self) -> None:
        os.close(self._fd)


class Log:
    """The loop's side of a ring: what is waiting, being written, and durable."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._waiting: deque[tuple[list[Buffer], int, int]] = deque()
        self._todo: queue.SimpleQueue[tuple[list[Buffer], int]] = queue.SimpleQueue()
        self._busy = False
        self._written = 0
        self.wakeup = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        """Readable when a batch has become durable: then call `on_written`."""
        self.waiting_bytes = 0
        self.durable = 0
        """Everything up to this sequence is on the disk."""
        threading.Thread(target=self._write, name="sync", daemon=True).start()

    def stage(self, buffers: list[Buffer], size: int, sequence: int) -> None:
        """Stage entries, the last of which has this sequence; `size` is at most BATCH_BYTES_MAX."""
        assert size <= BATCH_BYTES_MAX, f"a batch of {size} bytes"
        self._waiting.append((buffers, size, sequence))
        self.waiting_bytes += size

    def kick(self) -> None:
        """Hand everything that waits to the thread, as far as it fits one batch."""
        waiting = self._waiting
        if self._busy or not waiting:
            return
        batch: list[Buffer] = []
        total = sequence = 0
        while waiting and total + waiting[0][1] <= BATCH_BYTES_MAX:
            buffers, size, sequence = waiting.popleft()
            batch += buffers
            total += size
        self.waiting_bytes -= total
        self._busy = True
        self._todo.put((batch, sequence))

    def on_written(self) -> None:
        os.eventfd_read(self.wakeup)
        self.durable = self._written
        self._busy = False

    def _write(self) -> None:
        while True:
            buffers, sequence = self._todo.get()
            try:
                self._ring.write(buffers)
            except Exception:  # noqa: BLE001  reported, then exit: nothing more is durable
                traceback.print_exc()
                os._exit(1)
            self._written = sequence
            os.eventfd_write(self.wakeup, 1)


def _fill_with_zeros(path: Path, size: int) -> None:
    with path.open("wb") as file:
        for at in range(0, size, len(ZEROS)):
            file.write(ZEROS[: size - at])
        file.flush()
        os.fsync(file.fileno())


def entries(path: Path) -> Iterator[Entry]:
    """The entries of the newest round through the file, from its beginning."""
    data = memoryview(path.read_bytes())
    at = last = 0
    while at + ENTRY.size <= len(data):
        size, sequence, partition, base_offset = ENTRY.unpack_from(data, at)
        if not size:  # the rest of a batch's last block, or the end
            if at % BLOCK_BYTES == 0:
                return
            at += -at % BLOCK_BYTES
            continue
        if last and sequence != last + 1:
            return  # from an earlier round
        stop = at + ENTRY.size + size
        yield Entry(sequence, partition, base_offset, bytes(data[at + ENTRY.size : stop]))
        at, last = stop, sequence
