"""A disk that takes its time: every operation makes the thread that asks for it wait.

The bytes are `storage.disk.memory`'s. What is slow, hangs, is full or fails is for the nemesis to
say. The log's write is made by the kernel where the log asks for it (`begin_write`), as on a real
machine, beside all threads of the process.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from greenlet import GreenletExit

from paxos.entry import Buffer
from paxos.ids import MS
from simulator.environment.dice import between
from simulator.environment.loop import Loop
from simulator.whole.process import Process, SimThread, Threads
from storage.disk.files import File, Then
from storage.disk.memory import MemoryDisk, MemoryFile
from storage.disk.threads import SYSTEM_THREADS
from storage.errors import StorageFailed

SYNCS: Final = frozenset({"fdatasync", "fsync"})
CHEAP_NS: Final = 4_000
READ_NS: Final = 90_000
HUNG_LOOK_NS: Final = 5 * MS


class SimFile(MemoryFile):
    """One that the kernel writes to, from its second write on."""

    disk: "SimDisk"
    written = False

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        self.written = True
        return super().pwritev(buffers, offset)

    def begin_write(
        self, buffers: Sequence[Buffer], offset: int, wakeup: int, then: Then | None = None
    ) -> bool:
        return self.written and self.disk.begin_write(self, b"".join(buffers), offset, wakeup, then)

    def finish_write(self, wait_s: float = 0.0) -> bool | None:
        return self.disk.finish_write(wait_s)


class SimDisk(MemoryDisk):
    """`sync_ns`: how long the sync takes that begins now."""

    def __init__(self, loop: Loop, chance: random.Random, sync_ns: Callable[[], int]) -> None:
        super().__init__()
        self._loop, self._chance, self._sync_ns = loop, chance, sync_ns
        self.hung = False
        self.process: Process | None = None
        self.signals: Callable[[int], None] = lambda _fd: None
        """Sets what wakes the process by this descriptor."""
        self.on_loop: Callable[[str, str], None] = lambda _operation, _name: None
        """The thread of the event loop has asked for this, and would wait for the disk."""
        self._kernel: tuple[SimFile, bytes, int, int, Then | None] | None = None
        self._result: bool | StorageFailed | None = None
        self._at_once = 0
        self.slow_ns = 0
        """The longest sync of a disk that is slow; 0: it is not."""
        self.may_fail = False
        """Whether an operation was to fail: then a process may end by it."""

    # -- what the nemesis does ----------------------------------------------------------------

    def fill(self) -> None:
        self.capacity_bytes = sum(len(self.content(name)) for name in self._names)

    def empty(self) -> None:
        self.capacity_bytes = None

    def fail_soon(self, operation: str, number: int) -> None:
        self.may_fail = True
        self.fail(operation, number)

    def mend(self) -> None:
        self.hung, self.slow_ns = False, 0
        self._faults.clear()
        self.empty()

    def begin_life(self, process: Process, threads: Threads) -> None:
        self.process, self.threads = process, threads
        self._kernel = self._result = None

    def touch(self, operation: str, name: str) -> None:
        process = self.process
        thread = None if process is None else process.current()
        if thread is not None and not self._at_once:
            assert process is not None
            if thread.name == "main":
                self.on_loop(operation, name)
            self._pass(process, thread, operation)
        super().touch(operation, name)

    def _pass(self, process: Process, thread: SimThread, operation: str) -> None:
        """What the operation takes."""
        if not process.alive:
            raise GreenletExit
        took_ns = self._sync_ns() if operation in SYNCS else CHEAP_NS
        if operation == "read":
            took_ns = READ_NS if self.reads_late() else CHEAP_NS
        thread.wait(process.now_ns() + took_ns)
        while self.hung:
            thread.wait(process.now_ns() + HUNG_LOOK_NS)

    # -- what needs no wait -------------------------------------------------------------------

    def at_once(self) -> "SimDisk":
        return self

    def __enter__(self) -> None:
        self._at_once += 1

    def __exit__(self, *_: object) -> None:
        self._at_once -= 1

    # -- files --------------------------------------------------------------------------------

    def create(self, name: str) -> File:
        file = super().create(name)
        return self._mine(file)

    def open(self, name: str) -> File:
        return self._mine(super().open(name))

    def _mine(self, file: File) -> File:
        assert isinstance(file, MemoryFile)
        file.__class__ = SimFile
        assert isinstance(file, SimFile)
        file.disk = self
        return file

    # -- the kernel's writes ------------------------------------------------------------------

    def begin_write(
        self, file: SimFile, data: bytes, offset: int, wakeup: int, then: Then | None
    ) -> bool:
        assert self._kernel is None, "one write at a time"
        self._kernel, self._result = (file, data, offset, wakeup, then), None
        self._loop.at(self._now_ns() + self._sync_ns(), self._written, self.life)
        return True

    def _now_ns(self) -> int:
        return self._loop.now_ns if self.process is None else self.process.now_ns()

    def _written(self, life: int) -> None:
        if life != self.life or self._kernel is None:
            return
        if self.hung:
            self._loop.after(HUNG_LOOK_NS, self._written, life)
            return
        _, _, _, wakeup, then = self._kernel
        try:
            self._write_down()
            if then is not None:
                file, data, place = then
                file.pwritev([data], place)
        except StorageFailed as failed:
            self._result = failed
        else:
            self._result = True
        self._kernel = None
        self.signals(wakeup)

    def _write_down(self) -> None:
        assert self._kernel is not None
        file, data, offset, _, _ = self._kernel
        file.pwritev([data], offset)
        file.fdatasync()

    def finish_write(self, wait_s: float) -> bool | None:
        """Waits for so long, where it is under way."""
        process = self.process
        thread = None if process is None else process.current()
        if wait_s and process is not None and thread is not None:
            until_ns = process.now_ns() + int(wait_s * 1_000_000_000)
            while self._kernel is not None and process.now_ns() < until_ns:
                thread.wait(process.now_ns() + HUNG_LOOK_NS)
        result, self._result = self._result, None
        if isinstance(result, StorageFailed):
            raise result
        return result

    # -- the end of a life --------------------------------------------------------------------

    def cut_power(self, chance: random.Random) -> None:
        """Of what was not durable any part survives."""
        if self._kernel is not None and chance.random() < 0.7:
            file, data, offset, _, _ = self._kernel
            with suppress(StorageFailed):
                file.pwritev([data], offset)
        self._kernel = None
        survival = chance.choice((0.0, 0.3, 0.9, 1.0))
        self.crash(lambda: chance.random() < survival)

    def kill(self) -> None:
        self._kernel = self._result = None
        self.process = None
        self.threads = SYSTEM_THREADS
        super().kill()

    def sync_time(self, low_ns: int, high_ns: int) -> int:
        return between(self._chance, low_ns, high_ns)
