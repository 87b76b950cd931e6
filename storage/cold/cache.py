"""The open cold segments: the least recently used ones make room for others."""

from typing import Final

from storage.cold.file import ColdFile
from storage.disk.descriptors import DESCRIPTORS
from storage.disk.threads import SYSTEM_THREADS, Threads

INDEX_BLOCKS_MAX: Final = 1 << 19
"""Blocks in all indexes in memory: 24 bytes each, for 64 KiB of data or more."""


class ColdCache:
    """Thread-safe. A file is only replaced as a whole: a reader may go on with the one it has."""

    def __init__(self, threads: Threads = SYSTEM_THREADS) -> None:
        self._lock = threads.lock()
        self._files: dict[tuple[int, int], ColdFile] = {}
        """Most recently used last."""
        DESCRIPTORS.bound(self)

    def get(self, key: tuple[int, int]) -> ColdFile | None:
        with self._lock:
            file = self._files.pop(key, None)
            if file is not None:
                self._files[key] = file
            return file

    def put(self, key: tuple[int, int], file: ColdFile) -> None:
        with self._lock:
            self._files.pop(key, None)
            self._files[key] = file
        self.keep_few_open()

    def keep_few_open(self) -> None:
        with self._lock:
            blocks = sum(len(one.index.bases) for one in self._files.values())
            while len(self._files) > 1 and (
                len(self._files) > DESCRIPTORS.kept_open_max or blocks > INDEX_BLOCKS_MAX
            ):
                blocks -= len(self._files.pop(next(iter(self._files))).index.bases)

    def drop(self, key: tuple[int, int]) -> None:
        with self._lock:
            self._files.pop(key, None)

    def statistics(self) -> tuple[int, int]:
        """Open files, and blocks in their indexes."""
        with self._lock:
            return len(self._files), sum(len(one.index.bases) for one in self._files.values())
