"""One life of a simulated process: its threads are greenlets, which wait in virtual time.

A thread runs until it waits for something: a queue, a lock, the disk, the next event. Only then
does anybody else run, so a world is a function of its seed. The process has one core and one
interpreter: while a thread computes (`charge`) no other thread of the process goes on, and its
clock moves on.
"""

from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from simulator.environment.loop import Loop
from storage.disk.threads import Empty, Full

NS_PER_S: Final = 1_000_000_000
LOOK_NS: Final = 1_000_000
"""How often one who waits for the end of another thread looks."""


class Process:
    """`died` is told once, with what ended it: None where it was killed or ended by itself."""

    def __init__(self, loop: Loop, name: str, died: Callable[[BaseException | None], None]) -> None:
        self.loop, self.name = loop, name
        self.alive = True
        self.threads: list[SimThread] = []
        self._died = died
        self._charged_ns = 0
        """What the thread that runs has computed since it was resumed."""
        self._free_ns = 0
        """When the core has done what was charged."""
        self._stopped_ns = 0

    # -- time ---------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """True time, as the thread that asks sees it."""
        return self.loop.now_ns + self._charged_ns

    def charge(self, ns: int) -> None:
        """The thread that runs computes for so long."""
        self._charged_ns += ns

    def later_ns(self, ns: int) -> int:
        """It computes for so long, and that is the time then."""
        self._charged_ns += ns
        return self.loop.now_ns + self._charged_ns

    def stand_still(self, until_ns: int) -> None:
        """Nothing of it runs before that, as after a SIGSTOP; of 0: it goes on."""
        self._stopped_ns = until_ns

    def runs(self) -> bool:
        """Whether it lives and nobody has stopped it."""
        return self.alive and self._stopped_ns <= self.loop.now_ns

    # -- threads ------------------------------------------------------------------------------

    def spawn(self, name: str, run: Callable[[], None]) -> "SimThread":
        thread = SimThread(self, name, run)
        self.threads.append(thread)
        return thread

    def current(self) -> "SimThread | None":
        """The thread that runs; None where the world looks at things from outside."""
        running = getcurrent()
        return running if isinstance(running, SimThread) and running.process is self else None

    def resume(self, thread: "SimThread", ticket: int) -> None:
        """An event of the world: it goes on, when the core is free, if it still waits for this."""
        if not self.alive or thread.dead or thread.ticket != ticket:
            return
        free_ns = max(self._free_ns, self._stopped_ns)
        if free_ns > self.loop.now_ns:
            self.loop.at(free_ns, self.resume, thread, ticket)
            return
        self._charged_ns = 0
        thread.parent = getcurrent()
        try:
            thread.switch()
        except GreenletExit:
            pass
        except Exception as error:  # noqa: BLE001  what ends a thread that nobody catches
            self._free_ns = self.loop.now_ns + self._charged_ns
            self._charged_ns = 0
            self.kill(error)
            return
        self._free_ns = self.loop.now_ns + self._charged_ns
        self._charged_ns = 0

    def goes_on_at(self, until_ns: int) -> bool:
        """Whether the thread that runs now is also the next one to do something in all the world:
        then it need not be switched out and in, which is what most of its waiting would cost."""
        loop = self.loop
        free_ns = loop.now_ns + self._charged_ns
        when_ns = max(until_ns, free_ns)
        if not self.alive or self._stopped_ns > when_ns or not loop.skip_to(when_ns):
            return False
        self._charged_ns = 0
        return True

    def kill(self, why: BaseException | None = None) -> None:
        """No thread of it goes on: an event of the world, or the process's own end."""
        if not self.alive:
            return
        self.alive = False
        for thread in self.threads:
            if not thread.dead:
                thread.parent = getcurrent()
                thread.throw(GreenletExit())
        self.threads.clear()
        self._died(why)


class SimThread(greenlet):
    """A thread of a process (storage.disk.threads.Thread)."""

    def __init__(self, process: Process, name: str, run: Callable[[], None]) -> None:
        super().__init__(run)
        self.process, self.name = process, name
        self.ticket = 0
        """Which waiting it is in: an event that would end an earlier one comes too late."""
        self.woken = False
        self._ended: deque[tuple[SimThread, int]] = deque()

    def start(self) -> None:
        self.process.loop.at(self.process.now_ns(), self.process.resume, self, self.ticket)

    def is_alive(self) -> bool:
        return not self.dead

    def join(self, timeout: float | None = None) -> None:
        """Called by another thread of its process."""
        process, asks = self.process, self.process.current()
        assert asks is not None, "only a thread of its process waits"
        assert asks is not self
        until_ns = None if timeout is None else process.now_ns() + int(timeout * NS_PER_S)
        while not self.dead and (until_ns is None or process.now_ns() < until_ns):
            asks.wait(process.now_ns() + LOOK_NS)

    # -- waiting, called by itself ------------------------------------------------------------

    def wait(self, until_ns: int | None) -> bool:
        """Until somebody wakes it; False: it was this moment that came."""
        process = self.process
        self.ticket += 1
        self.woken = False
        if until_ns is not None:
            if process.goes_on_at(until_ns):
                self.ticket += 1
                return False
            process.loop.at(until_ns, process.resume, self, self.ticket)
        parent = self.parent
        assert parent is not None
        parent.switch()
        if not process.alive:
            raise GreenletExit
        self.ticket += 1
        return self.woken

    def wake(self) -> None:
        """Whoever calls goes on first."""
        if not self.woken:
            self.woken = True
            self.process.loop.at(self.process.now_ns(), self.process.resume, self, self.ticket)


class Threads:
    """storage.disk.threads.Threads of one process. `boot_ns`: its machine's clock."""

    def __init__(self, process: Process, boot_ns: Callable[[], int]) -> None:
        self._process, self._boot_ns = process, boot_ns

    def thread(self, name: str, run: Callable[[], None]) -> SimThread:
        return self._process.spawn(name, run)

    def lock(self) -> "SimLock":
        return SimLock(self._process)

    def event(self) -> "SimEvent":
        return SimEvent(self._process)

    def queue(self, items_max: int = 0) -> "SimQueue":
        return SimQueue(self._process, items_max)

    def sleep(self, seconds: float) -> None:
        thread = self._process.current()
        assert thread is not None
        thread.wait(self._process.now_ns() + int(seconds * NS_PER_S))

    def monotonic(self) -> float:
        return self._boot_ns() / NS_PER_S

    def monotonic_ns(self) -> int:
        return self._boot_ns()

    def cpu_ns(self) -> int:
        return self._process.now_ns()


class _Waiting:
    """Threads that wait for one thing, the first one first."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._threads: deque[SimThread] = deque()

    def wait(self, timeout_s: float | None) -> bool:
        thread = self._process.current()
        assert thread is not None, "only a thread of its process waits"
        until = None if timeout_s is None else self._process.now_ns() + int(timeout_s * NS_PER_S)
        self._threads.append(thread)
        woken = thread.wait(until)
        if thread in self._threads:
            self._threads.remove(thread)
        return woken

    def wake(self) -> None:
        if self._threads:
            self._threads.popleft().wake()

    def wake_all(self) -> None:
        while self._threads:
            self.wake()


class SimLock:
    def __init__(self, process: Process) -> None:
        self._process, self._waiting = process, _Waiting(process)
        self._held = False

    def __enter__(self) -> None:
        while self._held:
            self._waiting.wait(None)
        self._held = True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._held = False
        if self._process.alive:
            self._waiting.wake()


class SimEvent:
    def __init__(self, process: Process) -> None:
        self._waiting = _Waiting(process)
        self._process = process
        self._set = False

    def set(self) -> None:
        self._set = True
        self._waiting.wake_all()

    def clear(self) -> None:
        self._set = False

    def is_set(self) -> bool:
        return self._set

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            self._waiting.wait(timeout)
        return self._set


class SimQueue:
    def __init__(self, process: Process, items_max: int) -> None:
        self._process, self._items_max = process, items_max
        self._items: deque[Any] = deque()
        self._waiting = _Waiting(process)

    def put(self, item: Any) -> None:  # noqa: ANN401  as queue.SimpleQueue
        assert not self._items_max, "nobody waits for room"
        self._items.append(item)
        self._waiting.wake()

    def put_nowait(self, item: Any) -> None:  # noqa: ANN401  as queue.Queue
        if self._items_max and len(self._items) >= self._items_max:
            raise Full
        self._items.append(item)
        self._waiting.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # noqa: ANN401
        until = None if timeout is None else self._process.now_ns() + int(timeout * NS_PER_S)
        while not self._items:
            left = None if until is None else (until - self._process.now_ns()) / NS_PER_S
            if not block or (left is not None and left <= 0):
                raise Empty
            self._waiting.wait(left)
        return self._items.popleft()
