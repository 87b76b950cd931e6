"""Long reads that are begun before they are asked for, so that nobody waits for the disk.

A consumer that is behind asks for the next megabyte as soon as it has the last one. Read when it
asks, it waits for the disk, and with it the event loop: about a millisecond on a usual SSD. Here
the kernel reads it into its memory meanwhile (storage.disk.kernel_queue). It is a guess: who asks
for something else reads as if nothing had been begun, and so does who asks for what could not be
read.

What is kept is as old as its beginning, so only bytes that never change may be asked for: of the
log what is durable, of the cold store sealed files. A file that was closed takes what was read of
it with it: a segment that is recycled under another number is another file.
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
"""At a time, of a disk. Each holds a piece of the memory for direct reads (1 MiB)."""
PATIENCE: Final = 16
"""Of so many reads that others wanted begun, one is kept until it gives way to the next: more
consumers than there is room for would otherwise each throw away what the others wait for."""
_LOOK_EVERY_S: Final = 0.02
PROMPT_S: Final = 0.005
"""So long the event loop waits for a read that is under way: to hand it to a thread, and to wake
whoever asked, costs about as much. A healthy disk gives a megabyte in less."""
LATE_S: Final = 0.1
"""After a read that took longer the loop waits for none for this time: so a disk that is slow, or
hangs, costs it a twentieth of its time."""


@attrs.define(eq=False)
class _Ahead:
    file: "weakref.ref[object]"
    size: int
    offset: int
    memory: memoryview
    start: int
    """Where in `memory` the bytes begin."""
    result: int | None = None
    """How many bytes of memory are there, or a negative errno; None: it is under way."""

    def is_of(self, file: object, size: int, offset: int) -> bool:
        return self.offset == offset and self.size == size and self.file() is file


class ReadAhead:
    """Of one disk; any thread may take what another has begun."""

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
        """By how many were wanted before it: in the order of their beginning."""

    def begin(self, file: object, descriptor: int, size: int, offset: int) -> bool:
        """Have so much of `file` read by way of its direct `descriptor`; False: it is not."""
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
            except OSError:  # whoever reads it in the usual way will see, and can say what it means
                return False
            if begun:
                ahead = _Ahead(weakref.ref(file), size, offset, memory, start)
                self._ahead[self._wanted] = ahead
            return begun

    def take(self, file: object, size: int, offset: int) -> memoryview | None:
        """What was begun with the same arguments, once; None: read it in the usual way. Waits for
        the disk, and holds up nobody else meanwhile."""
        while self._ahead:
            with self._lock:
                one = self._heard(file, size, offset)
                if one is None or one.result is not None:
                    return self._given(one)
            self._queue.wait(_LOOK_EVERY_S)
        return None

    def take_now(self, file: object, descriptor: int, size: int, offset: int) -> memoryview | None:
        """The same for the event loop; None: whoever wants it has to wait, it is under way now if
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
        """What was begun, when all is heard that can be; with the lock."""
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
        """Whether there is, or could be made by giving up one that nobody came for."""
        if len(self._ahead) < AHEAD_MAX:
            return True
        oldest = next(iter(self._ahead))
        if self._wanted - oldest < PATIENCE:
            return False
        while self._ahead[oldest].result is None and self._hear():
            pass
        if self._ahead[oldest].result is None:  # its memory is still the kernel's
            return False
        del self._ahead[oldest]
        return True

    def _hear(self) -> bool:
        completed = self._queue.completed()
        if completed is not None:
            self._ahead[completed[0]].result = completed[1]
        return completed is not None
