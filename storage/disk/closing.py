"""Closing files away from the event loop.

The last reference to a file may go in any thread, and closing may wait for the disk: if the file
was removed meanwhile, its blocks are freed then, and some file systems first write it back. A
process with an event loop calls `close_in_background`. All others close in place, also at their
very end, when no thread may be started any more.
"""

import os
import queue
import threading
from collections.abc import Iterable

_IN_BACKGROUND: list["queue.SimpleQueue[int]"] = []


def close_in_background() -> None:
    """From now on another thread closes what the main thread lets go."""
    if _IN_BACKGROUND:
        return
    todo: queue.SimpleQueue[int] = queue.SimpleQueue()
    threading.Thread(target=_close, args=(todo,), name="close-files", daemon=True).start()
    _IN_BACKGROUND.append(todo)


def close_soon(descriptors: Iterable[int]) -> None:
    """Close those that are open (not negative): here, or in the background if this is the loop's
    thread.

    Errors do not matter: all that counts was made durable before.
    """
    aside = _IN_BACKGROUND and threading.current_thread() is threading.main_thread()
    for descriptor in descriptors:
        if descriptor >= 0:
            if aside:
                _IN_BACKGROUND[0].put(descriptor)
            else:
                os.close(descriptor)


def _close(todo: "queue.SimpleQueue[int]") -> None:
    while True:
        os.close(todo.get())
