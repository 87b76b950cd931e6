"""The threads of a machine, and how time passes for them, as a Protocol, and those of the system.

Whatever runs beside a node's event loop, or is shared with it, takes its threads, locks, queues and
sleeps from the disk it works on (`Disk.threads`). So the simulator can run the same code on a
simulated machine, where a thread goes on when a simulated disk has answered.
"""

import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Empty = queue.Empty
Full = queue.Full


class Event(Protocol):
    def set(self) -> None: ...

    def clear(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, `timeout` seconds at most; returns whether it is."""
        ...


class Queue(Protocol[T]):
    """First in, first out."""

    def put(self, item: T) -> None: ...

    def put_nowait(self, item: T) -> None:
        """Raises Full."""

    def get(self, block: bool = True, timeout: float | None = None) -> T:
        """Wait for the oldest item. Raises Empty after `timeout` seconds."""
        ...


class Thread(Protocol):
    def start(self) -> None: ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class Threads(Protocol):
    """A machine's threads, what they wait on, and its clocks."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        """A thread that does not keep the process alive; not started yet."""
        ...

    def lock(self) -> AbstractContextManager[Any]: ...

    def event(self) -> Event: ...

    def queue(self, items_max: int = 0) -> Queue[Any]:
        """`items_max` of 0: without a bound; then the caller has to keep one."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def monotonic(self) -> float:
        """Seconds since some moment."""
        ...

    def monotonic_ns(self) -> int: ...

    def cpu_ns(self) -> int:
        """CPU time of the calling thread so far."""
        ...


class SystemThreads:
    """The threads and clocks of the operating system."""

    def thread(self, name: str, run: Callable[[], None]) -> Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def lock(self) -> AbstractContextManager[Any]:
        return threading.Lock()

    def event(self) -> Event:
        return threading.Event()

    def queue(self, items_max: int = 0) -> Queue[Any]:
        return queue.Queue(items_max) if items_max else queue.SimpleQueue()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def monotonic(self) -> float:
        return time.monotonic()

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def cpu_ns(self) -> int:
        return time.thread_time_ns()


SYSTEM_THREADS = SystemThreads()
