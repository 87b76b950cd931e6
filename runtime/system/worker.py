"""A thread for work that would hold up the loop: checkpoints, cold data, searches in batches.

Jobs are done one after the other, in the order they were given. What comes of them is taken on the
loop's thread: `done` gets the result there, `failed` the refusal, where there is a use for it. A
failure of the disk that nobody has a use for ends the node, as any other failed write does.
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
"""Of the loop's time, for what many short jobs have come to."""
REST_S: Final = 0.001
"""About as long as the work between two rests takes: half of the interpreter is left to others."""


class Worker:
    """`wake` is called in the thread when there is something to take."""

    def __init__(
        self, name: str, wake: Callable[[], None], threads: Threads = SYSTEM_THREADS
    ) -> None:
        self._wake, self._threads = wake, threads
        self._todo: Queue[Callable[[], Callable[[], None]] | None] = threads.queue()
        self._done: deque[Callable[[], None]] = deque()
        self._stopping = False
        self._thread = threads.thread(name, self._run)
        self.jobs = 0
        """Given and not taken back yet."""

    def start(self) -> None:
        self._thread.start()

    def submit(
        self,
        work: Callable[[], T],
        done: Callable[[T], None],
        failed: Callable[[StorageError], None] | None = None,
    ) -> None:
        """Do this after what was given before. How much waits here is the caller's to bound."""

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
        """Whether there is something to take."""
        return bool(self._done)

    def take(self) -> None:
        """On the loop's thread: hand over what has come of the jobs, for a while: what is left then
        wakes the loop once more.

        Raises:
            StorageError: what a job raised and nobody has a use for.
        """
        until = self._threads.cpu_ns() + TAKE_NS
        while self._done:
            self.jobs -= 1
            self._done.popleft()()
            if self._done and self._threads.cpu_ns() >= until:
                self._wake()
                return

    def stop(self) -> bool:
        """Finish the job that is under way and drop the others; False if it takes too long."""
        self._stopping = True
        self._todo.put(None)
        if self._thread.is_alive():
            self._thread.join(STOP_S)
        return not self._thread.is_alive()

    def rest(self) -> None:
        """For a job, in its thread: leave the interpreter to the loop for a moment. Without it a
        job that waits for nothing lets the loop in every 5 ms only."""
        self._threads.sleep(REST_S)

    def _run(self) -> None:
        while (job := self._todo.get()) is not None and not self._stopping:
            self._done.append(job())
            self._wake()


def _raise(error: Exception) -> None:
    raise error
