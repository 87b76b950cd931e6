"""Closing files away from the event loop.

The last reference to a file may go anywhere, and closing may wait for the disk: where the file was
removed meanwhile, its blocks are given back then; on other file systems it may be written first.
"""

import os
import queue
import threading
from collections.abc import Iterable


class _Closer:
    def __init__(self) -> None:
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def close(self, descriptor: int) -> None:
        if self._thread is None or not self._thread.is_alive():  # the first one, or after a fork
            self._thread = threading.Thread(target=self._run, name="close-files", daemon=True)
            self._thread.start()
        self._todo.put(descriptor)

    def _run(self) -> None:
        while True:
            os.close(self._todo.get())


_CLOSER = _Closer()


def close_soon(descriptors: Iterable[int]) -> None:
    """Close those that are open (not negative): here, or by a thread where this is the loop's.

    Errors say nothing: all that counts was made durable before.
    """
    is_main = threading.current_thread() is threading.main_thread()
    for descriptor in descriptors:
        if descriptor >= 0:
            if is_main:
                _CLOSER.close(descriptor)
            else:
                os.close(descriptor)
