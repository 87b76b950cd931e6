"""A text stream that a thread writes, so that logging never blocks the event loop.

Standard error may be a file on a disk that hangs, or a pipe that nobody reads. So the loop only
puts its lines into a queue. A full queue refuses more, and the caller counts what is lost
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
    """For the lifetime of a process with an event loop; at its end the queue is written, if that is
    possible in DRAIN_S. Files are closed in the background as well."""
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
        """How many texts the stream has refused."""
        thread = threading.Thread(target=self._write, name="evenkeel-journal", daemon=True)
        thread.start()

    def write(self, text: str) -> int:
        """Queue a text to be written.

        Raises:
            OSError: the queue is full.
        """
        if self._texts.qsize() >= TEXTS_MAX:
            raise OSError("the log is written more slowly than it grows")
        self._texts.put(text)
        return len(text)

    def flush(self) -> None:
        """Does nothing: every text is flushed when it is written."""

    def drain(self, patience_s: float = DRAIN_S) -> bool:
        """Wait until everything queued so far is written; False if that takes longer."""
        written = threading.Event()
        self._texts.put(written)
        return written.wait(patience_s)

    def end(self) -> None:
        """Write what is queued so far, and nothing after it."""
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
