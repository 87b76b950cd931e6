"""The file of the audit log: JSON lines, readable by its owner only, replaced when it is full.

A thread writes it (`BackgroundStream`), so a disk that hangs never blocks the event loop. There are
at most FILES_KEPT files of FILE_BYTES_MAX each: `audit.log`, and older ones with a number behind
the name, 1 for the youngest.
"""

import atexit
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from runtime.system.background_stream import BackgroundStream

FILE_BYTES_MAX: Final = 64 * 1024 * 1024
FILES_KEPT: Final = 5
"""The present one included."""
OWNER_ONLY: Final = 0o600


class RotatedFile:
    """Text that is appended to a file; not for the event loop."""

    def __init__(self, path: Path, bytes_max: int = FILE_BYTES_MAX) -> None:
        """
        Raises:
            OSError: it cannot be written.
        """
        self._path, self._bytes_max = path, bytes_max
        self._open()

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._descriptor = os.open(self._path, flags, OWNER_ONLY)
        self._size = os.fstat(self._descriptor).st_size

    def write(self, text: str, /) -> int:
        data = text.encode(errors="backslashreplace")
        if self._size and self._size + len(data) > self._bytes_max:
            self._rotate()
        while data:
            written = os.write(self._descriptor, data)
            self._size += written
            data = data[written:]
        return len(text)

    def flush(self) -> None:
        """Does nothing: nothing is kept back."""

    def _rotate(self) -> None:
        for number in range(FILES_KEPT - 1, 0, -1):
            younger = self._numbered(number - 1) if number > 1 else self._path
            if younger.exists():
                younger.replace(self._numbered(number))
        os.close(self._descriptor)
        self._open()

    def _numbered(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")


def audit_writer(path: Path, node: int) -> Callable[[Mapping[str, object]], None]:
    """A function that writes an entry and never blocks.

    Raises:
        OSError: the file cannot be written.
    """
    stream = BackgroundStream(RotatedFile(path))  # type: ignore[arg-type]  # writes and flushes
    atexit.register(stream.drain)

    def write(entry: Mapping[str, object]) -> None:
        line = json.dumps({"node": node, **entry}, default=str)
        try:
            stream.write(line + "\n")
        except OSError:
            stream.lost += 1  # the disk is slower than the limit of entries per second

    return write
