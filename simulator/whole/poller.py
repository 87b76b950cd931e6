"""What of a simulated process's streams and signals is ready (runtime.network.dataplane.Poller)."""

from collections.abc import Callable
from typing import Protocol

from simulator.whole.process import Process

PATIENCE_NS = 1_000_000_000


class Pollable(Protocol):
    def ready(self) -> int:
        """For what."""
        ...


class SimPoller:
    """Level-triggered, as epoll. `thread` is woken when something is ready; it polls then."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._things: dict[int, Pollable] = {}
        self._wanted: dict[int, int] = {}
        self._hot: dict[int, None] = {}
        """What may be ready: nothing else is."""
        self._last_fd = 2
        self.woken: Callable[[], None] = lambda: None

    # -- descriptors --------------------------------------------------------------------------

    def open(self, thing: Pollable | None = None) -> int:
        self._last_fd += 1
        if thing is not None:
            self._things[self._last_fd] = thing
        return self._last_fd

    def is_(self, fd: int, thing: Pollable) -> None:
        self._things[fd] = thing

    def forget(self, fd: int) -> None:
        self._things.pop(fd, None)
        self.unregister(fd)

    def touched(self, fd: int) -> None:
        """Its state has changed. Nobody is woken by what it is not ready for."""
        wanted, thing = self._wanted.get(fd), self._things.get(fd)
        if wanted is not None and thing is not None and thing.ready() & (wanted | GONE):
            self._hot[fd] = None
            self.woken()

    # -- Poller -------------------------------------------------------------------------------

    def register(self, fd: int, events: int) -> None:
        assert fd not in self._wanted, "epoll refuses to register a descriptor twice"
        self._wanted[fd] = events
        self._hot[fd] = None

    def modify(self, fd: int, events: int) -> None:
        assert fd in self._wanted, "epoll knows no such descriptor"
        self._wanted[fd] = events
        self._hot[fd] = None

    def unregister(self, fd: int) -> None:
        self._wanted.pop(fd, None)
        self._hot.pop(fd, None)

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        self._process.charge(POLL_NS)
        found = []
        for fd in list(self._hot):
            events = self._things[fd].ready() & (self._wanted[fd] | GONE)
            del self._hot[fd]
            if events:
                self._hot[fd] = None  # behind the others the next time
                found.append((fd, events))
                if len(found) == maxevents:
                    break
        if not found and timeout > 0:
            self._process.charge(int(timeout * PATIENCE_NS))
        return found

    def any_ready(self) -> bool:
        """Whether a poll now would find something."""
        return any(self._things[fd].ready() & (self._wanted[fd] | GONE) for fd in self._hot)

    def fileno(self) -> int:
        raise AssertionError("nobody waits for a simulated poller but its process")

    def close(self) -> None:
        self._wanted.clear()


class SimSignal:
    """runtime.network.dataplane.Signal."""

    def __init__(self, poller: SimPoller) -> None:
        self._poller = poller
        self.fd = poller.open(self)
        self._set = False

    def set(self) -> None:
        self._set = True
        self._poller.touched(self.fd)

    def clear(self) -> None:
        self._set = False

    def ready(self) -> int:
        return READ if self._set else 0

    def close(self) -> None:
        self._poller.forget(self.fd)


READ, GONE = 0x1, 0x10 | 0x8
POLL_NS = 8_000
