"""One trio task, one epoll descriptor, plain callbacks: the data plane (kafka.md sections 3 and 6).

A task or a wait per connection costs more than the work itself; persistent registrations in a
nested epoll cost one trio wait per round, whatever the number of sockets. Callbacks must not block.
After each round `end_of_round` runs once: what the round produced leaves in one write per socket.
"""

import os
import select
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final, Protocol

import attrs
import trio

EVENTS_PER_ROUND_MAX: Final = 256
ROUNDS_PER_TURN_MAX: Final = 64
TURN_NS: Final = 4_000_000
"""While there is more to do, so many rounds, or rounds for so long, pass before other tasks get a
turn."""
LINGER_S: Final = 0.001
"""How long a busy data plane waits by itself for what comes next (epoll knows nothing shorter)."""
BUSY_NS: Final = 1_000_000
"""It is busy where the next event comes sooner than this behind the round before."""
READ: Final = select.EPOLLIN
WRITE: Final = select.EPOLLOUT
TICK_S: Final = 0.02

Callback = Callable[[int], None]


class Plane(Protocol):
    """What sockets need; tests replace it."""

    def register(self, fd: int, events: int, callback: Callback) -> None: ...

    def modify(self, fd: int, events: int) -> None: ...

    def unregister(self, fd: int) -> None: ...


@attrs.define(eq=False)
class TimerHandle:
    callback: Callable[[], None] | None


class DataPlane:
    """Owns the epoll descriptor and the timers; `run` is the node's busiest task."""

    def __init__(
        self, boot_ns: Callable[[], int], on_bug: Callable[[str, Exception], None]
    ) -> None:
        """`on_bug` is told of an exception that a timer's callback let out."""
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callback] = {}
        self._boot_ns, self._on_bug = boot_ns, on_bug
        self._timers: list[tuple[int, int, TimerHandle]] = []
        self._timer_count = 0
        self.rounds = 0

    # -- sockets ------------------------------------------------------------------------------

    def register(self, fd: int, events: int, callback: Callback) -> None:
        self._callbacks[fd] = callback
        self._epoll.register(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._epoll.modify(fd, events)

    def unregister(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    # -- timers -------------------------------------------------------------------------------

    def call_at(self, boot_ns: int, callback: Callable[[], None]) -> TimerHandle:
        """Call back in the first round after `boot_ns` (rounds are at most a tick apart)."""
        handle = TimerHandle(callback)
        self._timer_count += 1
        heappush(self._timers, (boot_ns, self._timer_count, handle))
        return handle

    def cancel(self, handle: object) -> None:
        assert isinstance(handle, TimerHandle)
        handle.callback = None

    def run_timers(self) -> None:
        """Call back what is due. A timer serves requests of clients, so what goes wrong in one must
        cost neither the node nor those that are due with it (our own bug: said loudly)."""
        timers = self._timers
        if not timers:
            return
        now = self._boot_ns()
        while timers and timers[0][0] <= now:
            callback = heappop(timers)[2].callback
            if callback is not None:
                try:
                    callback()
                except Exception as error:  # noqa: BLE001  told with its traceback
                    self._on_bug("timer", error)

    # -- the loop -----------------------------------------------------------------------------

    async def run(
        self,
        end_of_round: Callable[[], bool],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled.

        A wait by way of trio costs more than a small request: it is scheduled out and in, and its
        descriptor registered anew. So while events follow each other closely the plane waits for
        the next one itself, a millisecond at most, and other tasks get their turn in between.
        While `end_of_round` says that something waits, rounds follow though nothing comes.
        """
        fd = self._epoll.fileno()
        task_status.started()
        stopped_ns = 0
        waits = False
        while True:
            if waits:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(fd)
            busy = self._boot_ns() - stopped_ns < BUSY_NS
            waits = self._serve(end_of_round, waits=waits, linger_s=LINGER_S if busy else 0)
            stopped_ns = self._boot_ns()

    def _serve(self, end_of_round: Callable[[], bool], *, waits: bool, linger_s: float) -> bool:
        """One turn: round after round, until nothing comes or the time is up; what the last said.

        A round for what waits takes place after a millisecond at most."""
        poll, callbacks = self._epoll.poll, self._callbacks
        until_ns = self._boot_ns() + TURN_NS
        for _ in range(ROUNDS_PER_TURN_MAX):
            polled = poll(LINGER_S if waits else linger_s, EVENTS_PER_ROUND_MAX)
            if not polled and not waits:
                return False
            for ready, events in polled:
                callback = callbacks.get(ready)
                if callback is not None:
                    callback(events)
            self.run_timers()
            waits = end_of_round()
            self.rounds += 1
            if self._boot_ns() >= until_ns:
                break
        return waits

    async def run_ticks(self, tick: Callable[[], None]) -> None:
        """Call `tick` every TICK_S, for what happens because time passes."""
        while True:
            await trio.sleep(TICK_S)
            self.run_timers()  # a node without traffic has no rounds
            tick()

    def close(self) -> None:
        self._epoll.close()


class Wakeup:
    """An eventfd: another thread wakes the data plane."""

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def set(self) -> None:
        os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            return  # somebody has read it already

    def close(self) -> None:
        os.close(self.fd)
