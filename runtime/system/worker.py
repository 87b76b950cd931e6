"""A thread for work that would block the event loop: checkpoints, cold data, searches in batches.

It runs jobs one after the other, in the order of submission. The loop's thread takes their results
and calls `done` with each, or `failed` with a storage error. A storage error without `failed` ends
the node, as any other failed write does.
"""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from storage.disk.threads import SYSTEM_THREADS, Queue, Threads
from storage.errors import StorageError

T = TypeVar("T")
STOP_S: Final = 5.0
TAKE_NS: Final = 2_000_000
"""The loop's time for taking results at once, after many short jobs."""
REST_S: Final = 0.001
"""About as long as the work between two rests, which leaves half of the interpreter to others."""


class Worker:
    """`wake` is called in the worker's thread whenever there is a result to take."""

    def __init__(
        self, name: str, wake: Callable[[], None], threads: Threads = SYSTEM_THREADS
    ) -> None:
        self._wake, self._threads = wake, threads
        self._todo: Queue[Callable[[], Callable[[], None]] | None] = threads.queue()
        self._done: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._thread = threads.thread(name, self._run)
        self.jobs = 0
        """Jobs that were submitted and whose results were not taken yet."""

    def start(self) -> None:
        self._thread.start()

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Queue a job. The caller must limit how many are queued."""

        def job() -> Callable[[], None]:
            try:
                return partial(done, work())
            except StorageError as error:
                return partial(_raise if failed is None else failed, error)
            except Exception as error:  # noqa: BLE001  raised again by take
                return partial(_raise, error)

        self.jobs += 1
        self._todo.put(job)

    @property
    def has_done(self) -> bool:
        """Whether there are results to take."""
        return bool(self._done)

    def take(self) -> None:
        """On the loop's thread: deliver results for up to TAKE_NS; if some are left, the loop is
        woken again.

        Raises:
            StorageError: a job raised it and was submitted without `failed`.
        """
        until = self._threads.cpu_ns() + TAKE_NS
        while self._done:
            self.jobs -= 1
            self._done.popleft()()
            if self._done and self._threads.cpu_ns() >= until:
                self._wake()
                return

    def stop(self) -> bool:
        """Finish the current job and drop the others; False if that takes longer than STOP_S."""
        self._stopping = True
        self._todo.put(None)
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        return not self._thread.is_alive()

    def rest(self) -> None:
        """Called by a job, in its thread: leave the interpreter to the loop for a moment. Without
        it, a job that never waits lets the loop run only every 5 ms."""
        self._threads.sleep(REST_S)

    def _run(self) -> None:
        while (job := self._todo.get()) is not None and not self._stopping:
            self._done.append(job())
            self._wake()


def _raise(error: Exception) -> None:
    raise error
