"""Making the log durable without a thread of ours: the kernel does it while the loop goes on.

A thread that writes and syncs takes the interpreter lock back after each of the two system calls,
and every time the loop has to wait and is woken again: several futex calls a batch, a quarter of
a busy node's CPU. Here the loop hands the write over (storage.disk.kernel_queue, which never waits)
and hears by an eventfd when it is done. The write carries RWF_DSYNC, the per-write form of O_DSYNC:
it is reported when the data, and what is needed to find it, are durable, as after an fdatasync
(pwritev2(2), open(2)). The synced mark, which is to be written after that, is linked to it.

What the kernel or the file system refuses is written by the thread: see runtime.disk.log_writer.
"""

import ctypes
import errno
from typing import Final

import attrs

from storage.disk.kernel_queue import WRITE, KernelQueue, Operation

_RWF_DSYNC: Final = 2
_FOLLOWING_BYTES_MAX: Final = 512


@attrs.frozen
class Following:
    """A few bytes for another file, written when the write before them is durable."""

    descriptor: int
    data: bytes
    offset: int


class KernelWrites(KernelQueue):
    """One write at a time, and what follows it."""

    def __init__(self) -> None:
        super().__init__(depth=2)
        self._size = 0
        self._following = ctypes.create_string_buffer(_FOLLOWING_BYTES_MAX)
        self._awaited = 0
        self._failed: int | None = None

    @property
    def under_way(self) -> bool:
        return self._awaited > 0

    def begin(
        self,
        descriptor: int,
        memory: tuple[int, int],
        offset: int,
        eventfd: int,
        following: Following | None = None,
    ) -> bool:
        """Write what is in `memory` (address and bytes, aligned for a direct write), and make it
        durable, then write `following`.

        The memory must stay as it is until `result` has said how it ended; `eventfd` is set when
        there is something to say. False: nothing has begun.

        Raises:
            OSError: the device failed.
        """
        assert not self.under_way, "one write at a time"
        address, self._size = memory
        operations = [Operation(WRITE, descriptor, *memory, offset, _RWF_DSYNC)]
        if following is not None:
            data = following.data
            ctypes.memmove(self._following, data, len(data))
            address = ctypes.addressof(self._following)
            where = (address, len(data), following.offset)
            operations.append(Operation(WRITE, following.descriptor, *where, number=len(data)))
        if not self.submit(operations, eventfd=eventfd):
            return False
        self._awaited = 1 if self.quiet_links else len(operations)
        self._failed = None
        return True

    def result(self, wait_s: float = 0.0) -> int | None:
        """How many bytes are durable, or a negative errno, also of what follows; None if it is not
        over after `wait_s` seconds."""
        assert self.under_way, "nothing was begun"
        while self._awaited:
            completed = self.completed(wait_s)
            if completed is None:
                return None
            self._awaited -= 1
            wanted, result = completed
            if self._failed is None and result != (wanted or self._size):
                self._failed = -errno.EIO if wanted and result >= 0 else result
        return self._size if self._failed is None else self._failed
