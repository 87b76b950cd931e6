"""The data plane: one trio task, one epoll descriptor and plain callbacks.

A task or a wait per connection would cost more than the work itself. With persistent registrations
in a nested epoll there is one trio wait per round, for any number of sockets. Callbacks must not
block. After each round `end_of_round` runs once: the output of the round leaves in one write per
socket.
"""

import os
import select
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Protocol

import attrs
import trio

EVENTS_PER_ROUND_MAX: Final = 256
ROUNDS_PER_TURN_MAX: Final = 64
TURN_NS: Final = 4_000_000
"""While there is work, other tasks get a turn after ROUNDS_PER_TURN_MAX rounds or TURN_NS."""
ROUND_NS: Final = 8_000_000
"""How long sockets are served in one round. The remaining ones come first in the next round; peers,
and threads that have finished something, do not wait for that."""
HEAVY_NS: Final = 1_000_000
"""A socket whose callback takes longer is served after the others the next time ..."""
HEAVY_ROUND_NS: Final = 2_000_000
"""... and all such sockets together for this long in a round."""
CANCELLED_SLACK: Final = 1_000
"""So many cancelled timers are not worth a cleanup."""
LINGER_S: Final = 0.001
"""How long a busy data plane itself waits for the next event (epoll's shortest timeout)."""
BUSY_NS: Final = 1_000_000
"""The data plane is busy if the next event comes within this time after a round."""
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
TICK_S: Final = 0.02

Callback = Callable[[int], None]


class Plane(Protocol):
    """The data plane as its sockets see it; tests replace it."""

    def register(
        self, fd: int, events: int, callback: Callback, *, urgent: bool = False
    ) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def boot_ns(self) -> int:
        """The current time."""
        ...


class Poller(Protocol):
    """Finds ready descriptors, like epoll; the simulator has its own."""

    def register(self, fd: int, events: int) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        """The ready descriptors with their events; waits up to `timeout` seconds for the first."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable while others are ready."""
        ...

    def close(self) -> None: ...


class Signal(Protocol):
    """Wakes the data plane: its descriptor is readable from `set` to `clear`."""

    fd: int

    def set(self) -> None:
        """May be called from any thread."""
        ...

    def clear(self) -> None: ...

    def close(self) -> None: ...


@attrs.define(eq=False)
class TimerHandle:
    callback: Callable[[], None] | None


class DataPlane:
    """Owns the epoll descriptor and the timers; `run` is the node's busiest task."""

    def __init__(
        self,
        boot_ns: Callable[[], int],
        on_bug: Callable[[str, Exception], None],
        poller: Poller | None = None,
    ) -> None:
        """`on_bug` gets an exception that a timer's callback raises."""
        self._poller = select.epoll() if poller is None else poller
        self._callbacks: dict[int, Callback] = {}
        self.boot_ns, self._on_bug = boot_ns, on_bug
        self._timers: list[tuple[int, int, TimerHandle]] = []
        self._timer_count = 0
        self._cancelled = 0
        """An upper bound of the cancelled timers in the heap: not lowered when they are due."""
        self._urgent: set[int] = set()
        self._waiting: dict[int, tuple[Callback, int]] = {}
        """Sockets that the last round had no time for, and their events."""
        self._heavy: set[int] = set()
        """Sockets that took long when they were last served; they wait in a queue of their own."""
        self._heavy_waiting: dict[int, tuple[Callback, int]] = {}
        self.rounds = 0

    # -- sockets ------------------------------------------------------------------------------

    def register(self, fd: int, events: int, callback: Callback, *, urgent: bool = False) -> None:
        """`urgent`: it is served in the round in which it is ready, under any load."""
        self._poller.register(fd, events)
        self._callbacks[fd] = callback
        if urgent:
            self._urgent.add(fd)
        else:
            self._heavy.add(fd)  # until it proves to be fast: many may come at once

    def modify(self, fd: int, events: int) -> None:
        self._poller.modify(fd, events)

    def unregister(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._urgent.discard(fd)
            self._waiting.pop(fd, None)
            self._heavy.discard(fd)
            self._heavy_waiting.pop(fd, None)
            self._poller.unregister(fd)

    # -- timers -------------------------------------------------------------------------------

    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """Call `callback` in the first round after `boot_ns` (rounds are at most a tick apart)."""
        handle = TimerHandle(callback)
        self._timer_count += 1
        heappush(self._timers, (boot_ns, self._timer_count, handle))
        return handle

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, TimerHandle)
        if handle.callback is not None:
            handle.callback = None
            self._cancelled += 1
            if self._cancelled > CANCELLED_SLACK + len(self._timers) // 2:
                self._timers = [timer for timer in self._timers if timer[2].callback is not None]
                heapify(self._timers)
                self._cancelled = 0

    def run_timers(self) -> None:
        """Call the timers that are due. They serve requests of clients, so an exception in one (our
        own bug, which is logged) must not stop the node or the other timers."""
        if not self._timers:
            return
        now = self.boot_ns()
        while self._timers and self._timers[0][0] <= now:  # a callback may replace the heap
            handle = heappop(self._timers)[2]
            callback, handle.callback = handle.callback, None
            if callback is not None:
                try:
                    callback()
                except Exception as error:  # noqa: BLE001  logged with its traceback
                    self._on_bug("timer", error)

    def _is_due(self) -> bool:
        """Whether a timer is due already: it is called in the next round."""
        return bool(self._timers) and self._timers[0][0] <= self.boot_ns()

    # -- the loop -----------------------------------------------------------------------------

    async def run(
        self,
        end_of_round: Callable[[], bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled.

        A wait in trio costs more than a small request: the task is scheduled out and in, and its
        descriptor registered again. So while events follow each other closely, the plane itself
        waits for the next one, a millisecond at most, and other tasks get their turn in between.
        While `end_of_round` says that something waits, rounds go on without events.
        """
        fd = self._poller.fileno()
        task_status.started()
        stopped_ns = 0
        waits = False
        while True:
            if waits:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(fd)
            busy = self.boot_ns() - stopped_ns < BUSY_NS
            waits = self.turn(end_of_round, waits=waits, linger_s=LINGER_S if busy else 0)
            stopped_ns = self.boot_ns()

    def turn(self, end_of_round: Callable[[], bool], *, waits: bool, linger_s: float) -> bool:
        """One turn: round after round, until nothing comes or the time is up. Returns whether
        something waits for another round; that round comes within a millisecond."""
        poll, callbacks, urgent = self._poller.poll, self._callbacks, self._urgent
        until_ns = self.boot_ns() + TURN_NS
        waiting, heavy, heavy_waiting = self._waiting, self._heavy, self._heavy_waiting
        for _ in range(ROUNDS_PER_TURN_MAX):
            left = waiting or heavy_waiting
            patience_s = 0 if left else LINGER_S if waits else linger_s
            polled = poll(patience_s, EVENTS_PER_ROUND_MAX)
            if not polled and not waits and not left:
                return False
            for ready, events in polled:
                callback = callbacks.get(ready)
                if callback is None:
                    continue
                if ready in urgent:
                    callback(events)
                elif ready in heavy:
                    heavy_waiting[ready] = callback, events
                else:
                    waiting[ready] = callback, events  # a socket that waits keeps its place
            if waiting:
                self._serve_waiting(waiting, ROUND_NS)
            if heavy_waiting:
                self._serve_waiting(heavy_waiting, HEAVY_ROUND_NS)
            self.run_timers()
            waits = end_of_round() or bool(waiting or heavy_waiting) or self._is_due()
            self.rounds += 1
            if self.boot_ns() >= until_ns:
                break
        return waits

    def _serve_waiting(self, waiting: dict[int, tuple[Callback, int]], for_ns: int) -> None:
        """Serve ready sockets for `for_ns`, but at least one."""
        clock, heavy = self.boot_ns, self._heavy
        began_ns = clock()
        until_ns = began_ns + for_ns
        while waiting:
            ready = next(iter(waiting))
            callback, events = waiting.pop(ready)
            callback(events)
            ended_ns = clock()
            if ended_ns - began_ns <= HEAVY_NS:
                heavy.discard(ready)
            elif ready in self._callbacks:
                heavy.add(ready)
            if ended_ns >= until_ns:
                return
            began_ns = ended_ns

    async def run_ticks(self, tick: Callable[[], None]) -> None:
        """Call `tick` every TICK_S, for everything that depends on time."""
        while True:
            await trio.sleep(TICK_S)
            self.run_timers()  # without traffic there are no rounds
            tick()

    def close(self) -> None:
        self._poller.close()


class Wakeup:
    """An eventfd with which other threads wake the data plane."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return  # not set

    def close(self) -> None:
        os.close(self.fd)
