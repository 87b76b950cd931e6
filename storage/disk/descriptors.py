"""Opening files while file descriptors are scarce: that means waiting, not that the disk failed.

A process has one limit for all its descriptors, and connections may have taken the last. So a few
are kept in reserve. If there is no other, one of the reserve is given up for the file, and `scarce`
tells the loop, which closes connections and fills the reserve again. A thread that finds the
reserve empty too waits for that; the loop itself cannot. Files that are open only to be read again
(segments of the log, cold files) take a small share of the limit.
"""

import errno
import os
import threading
import weakref
from collections.abc import Callable
from typing import Final, Protocol, TypeVar

T = TypeVar("T")

OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)
RESERVE: Final = 16
KEPT_OPEN_MAX: Final = 256
KEPT_OPEN_MIN: Final = 4
SHARE: Final = 16
"""The log and the cold files may each keep a file open per so many descriptors; a file has two."""
STEP_S: Final = 0.02
TRIES: Final = 1_500
"""How often a thread waits for one, half a minute in all, before the operation fails."""


class OpenFiles(Protocol):
    """Files that are open only to be read again; those beyond `kept_open_max` can be closed."""

    def keep_few_open(self) -> None: ...


class Descriptors:
    """The descriptors of this process. `fill` and `scarce` are for the loop, `have` for anybody."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._reserve: list[int] = []
        self._loop: int | None = None
        self.scarce = False
        """Set when one was missing; the loop resets it."""
        self.kept_open_max = KEPT_OPEN_MAX
        """How many files of the log, and how many cold ones, stay open to be read again."""
        self._open_files: weakref.WeakSet[OpenFiles] = weakref.WeakSet()

    def bound(self, files: OpenFiles) -> None:
        """From now on `files` is told when `kept_open_max` falls."""
        self._open_files.add(files)

    def fit(self, limit: int) -> None:
        """The process may have `limit` descriptors."""
        before = self.kept_open_max
        self.kept_open_max = max(KEPT_OPEN_MIN, min(KEPT_OPEN_MAX, limit // SHARE))
        if self.kept_open_max < before:
            for files in tuple(self._open_files):
                files.keep_few_open()

    def fill(self) -> bool:
        """Fill the reserve; False if that is not possible. Called now and then by the loop."""
        self._loop = threading.get_ident()
        with self._lock:
            while len(self._reserve) < RESERVE:
                try:
                    self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    return False
        return True

    def drop(self) -> None:
        with self._lock:
            while self._reserve:
                os.close(self._reserve.pop())

    def have(self, act: Callable[[], T]) -> T:
        """Do what takes a descriptor, with one of the reserve if there is no other.

        Raises:
            OSError: as `act`; for lack of descriptors only after a long wait, or on the loop.
        """
        pause, tries = threading.Event(), 0
        while True:
            try:
                return act()
            except OSError as error:
                if error.errno not in OUT_OF_DESCRIPTORS:
                    raise
                self.scarce = True
                if self._give_up_one():
                    continue  # if another thread is quicker, with the next one
                if threading.get_ident() == self._loop or tries >= TRIES:
                    raise
                tries += 1
                pause.wait(STEP_S)

    def _give_up_one(self) -> bool:
        with self._lock:
            if not self._reserve:
                return False
            os.close(self._reserve.pop())
            return True


DESCRIPTORS: Final = Descriptors()
