"""Long reads that are begun before they are asked for, so that nobody waits for the disk.

A consumer that is behind asks for the next megabyte as soon as it has the last one. If the read
begins only then, the consumer waits for the disk, and the event loop with it: about a millisecond
on a usual SSD. Instead, the kernel reads ahead into memory (storage.disk.kernel_queue). This is a
guess: a request for something else, or for what could not be read, is read in the usual way.

What is read ahead is as old as the beginning of the read, so it may only be bytes that never
change: the durable part of the log, and sealed files of the cold store. It is dropped when its file
is closed: a segment that is recycled under another number is another file.
"""

import ctypes
import threading
import weakref
from collections.abc import Callable
from typing import Final

import attrs

from storage.disk.direct import BLOCK_BYTES, BufferPool, whole_blocks
from storage.disk.kernel_queue import READ, KernelQueue, Operation

AHEAD_MAX: Final = 4
"""At a time, per disk. Each holds one buffer for direct reads (1 MiB)."""
PATIENCE: Final = 16
"""A read gives way to another only after this many newer requests: otherwise, with more consumers
than there is room for, each would throw away what the others wait for."""
_LOOK_EVERY_S: Final = 0.02
PROMPT_S: Final = 0.005
"""How long the event loop waits for a read that is under way: handing it to a thread, and waking
the consumer afterwards, costs about as much. A healthy disk reads a megabyte in less."""
LATE_S: Final = 0.1
"""After a read that took longer, the loop waits for none for this time. So a disk that is slow or
hangs costs it at most a twentieth of its time."""


@attrs.define(eq=False)
class _Ahead:
    file: "weakref.ref[object]"
    size: int
    offset: int
    memory: memoryview
    start: int
    """Where in `memory` the bytes begin."""
    result: int | None = None
    """How many bytes of memory were filled, or a negative errno; None: it is under way."""

    def is_of(self, file: object, size: int, offset: int) -> bool:
        return self.offset == offset and self.size == size and self.file() is file


class ReadAhead:
    """The reads of one disk; any thread may take what another has begun."""

    def __init__(self, kept: BufferPool, clock: Callable[[], float] | None = None) -> None:
        """`clock`: in seconds; without it the event loop waits for no read at all."""
        self.used = 0
        """Reads that were there, or under way, when they were asked for."""
        self._kept, self._clock = kept, clock
        self._lock = threading.Lock()
        self._queue = KernelQueue(AHEAD_MAX)
        self._wanted = 0
        self._late_until_s = 0.0
        self._ahead: dict[int, _Ahead] = {}
        """By the number of the request (`_wanted`): oldest first."""

    def begin(self, file: object, descriptor: int, size: int, offset: int) -> bool:
        """Begin to read `size` bytes of `file` through its direct `descriptor`; False: not done."""
        with self._lock:
            self._wanted += 1
            if not self._queue.supported or not self._room():
                return False
            if self._number_of(file, size, offset) is not None:
                return True
            start = offset % BLOCK_BYTES
            memory = self._kept.take(whole_blocks(start + size))
            if memory is None:
                return False
            address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            where = (address, len(memory), offset - start)
            operation = Operation(READ, descriptor, *where, number=self._wanted)
            try:
                begun = self._queue.submit([operation])
            except OSError:  # a read in the usual way will report it, and knows what it means
                return False
            if begun:
                ahead = _Ahead(weakref.ref(file), size, offset, memory, start)
                self._ahead[self._wanted] = ahead
            return begun

    def take(self, file: object, size: int, offset: int) -> memoryview | None:
        """What was begun with the same arguments, once; None: read it in the usual way. Waits for
        the disk, without holding the lock."""
        while self._ahead:
            with self._lock:
                one = self._heard(file, size, offset)
                if one is None or one.result is not None:
                    return self._given(one)
            self._queue.wait(_LOOK_EVERY_S)
        return None

    def take_now(self, file: object, descriptor: int, size: int, offset: int) -> memoryview | None:
        """The same for the event loop; None: it takes a wait for the disk, and is under way if
        there is room."""
        self.begin(file, descriptor, size, offset)
        clock, until_s = self._clock, 0.0
        while True:
            with self._lock:
                one = self._heard(file, size, offset)
                if one is None or one.result is not None:
                    return self._given(one)
            if clock is None or (now_s := clock()) < self._late_until_s:
                return None
            until_s = until_s or now_s + PROMPT_S
            if now_s >= until_s:
                self._late_until_s = now_s + LATE_S
                return None
            self._queue.wait(until_s - now_s)

    def _heard(self, file: object, size: int, offset: int) -> _Ahead | None:
        """Collect all results there are, then look for this read. Call with the lock."""
        while self._hear():
            pass
        number = self._number_of(file, size, offset)
        if number is None:
            return None
        one = self._ahead[number]
        if one.result is not None:
            del self._ahead[number]
        return one

    def _given(self, one: _Ahead | None) -> memoryview | None:
        if one is None or one.result is None or one.result < one.start + one.size:
            return None
        self.used += 1
        return one.memory[one.start : one.start + one.size].toreadonly()

    def _number_of(self, file: object, size: int, offset: int) -> int | None:
        for number, one in self._ahead.items():
            if one.is_of(file, size, offset):
                return number
        return None

    def _room(self) -> bool:
        """Whether there is room, perhaps after dropping a read that nobody asked for."""
        if len(self._ahead) < AHEAD_MAX:
            return True
        oldest = next(iter(self._ahead))
        if self._wanted - oldest < PATIENCE:
            return False
        while self._ahead[oldest].result is None and self._hear():
            pass
        if self._ahead[oldest].result is None:  # the kernel still uses its memory
            return False
        del self._ahead[oldest]
        return True

    def _hear(self) -> bool:
        completed = self._queue.completed()
        if completed is not None:
            self._ahead[completed[0]].result = completed[1]
        return completed is not None
