"""A text stream that is written by a thread: what is said must not wait for where it goes.

Standard error may be a file on the disk that hangs, or a pipe that nobody reads. So the loop only
puts its line into a queue. What does not fit there is refused, and counted by whoever writes
(`Journal.lost`).
"""

import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TextIO

from storage.disk.closing import close_in_background

TEXTS_MAX: Final = 10_000
DRAIN_S: Final = 2.0


@contextmanager
def in_background(stream: TextIO) -> Iterator["BackgroundStream"]:
    """For the life of a process that has a loop: at its end what was said is written, if that can
    be. Files are closed aside as well."""
    close_in_background()
    one = BackgroundStream(stream)
    try:
        yield one
    finally:
        one.drain()
        one.end()


class BackgroundStream:
    """Takes text from any thread, in order."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._texts: queue.SimpleQueue[str | threading.Event | None] = queue.SimpleQueue()
        self.lost = 0
        """Texts that the stream has refused."""
        thread = threading.Thread(target=self._write, name="evenkeel-journal", daemon=True)
        thread.start()

    def write(self, text: str) -> int:
        """Have it written.

        Raises:
            OSError: too much waits already.
        """
        if self._texts.qsize() >= TEXTS_MAX:
            raise OSError("the log is not written as fast as it comes")
        self._texts.put(text)
        return len(text)

    def flush(self) -> None:
        """Every text is flushed when it is written."""

    def drain(self, patience_s: float = DRAIN_S) -> bool:
        """Wait until what was given so far is written; False: it takes too long."""
        written = threading.Event()
        self._texts.put(written)
        return written.wait(patience_s)

    def end(self) -> None:
        """Nothing is written but what was given so far."""
        self._texts.put(None)

    def _write(self) -> None:
        while (text := self._texts.get()) is not None:
            if isinstance(text, threading.Event):
                text.set()
                continue
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self.lost += 1
