"""The node's log: JSON lines on standard error, one per event, with a level and plain fields."""

import json
import sys
import time
import traceback
from collections.abc import Callable
from typing import Final, Protocol

LEVELS: Final = ("debug", "info", "warning", "error")


LOGGED_EVERY_NS: Final = 1_000_000_000


class LogLimit:
    """For what others can make happen thousands of times a second: one line a second tells it."""

    def __init__(self) -> None:
        self._logged_boot_ns: int | None = None
        self._since = 0

    def due(self, boot_ns: int) -> int:
        """It has happened: how often since the last line, if a line is due; else 0."""
        self._since += 1
        last = self._logged_boot_ns
        if last is not None and boot_ns - last < LOGGED_EVERY_NS:
            return 0
        self._logged_boot_ns = boot_ns
        count, self._since = self._since, 0
        return count


class Stream(Protocol):
    """Where the journal is written; it must not block the event loop
    (runtime.system.background_stream)."""

    def write(self, text: str, /) -> int: ...

    def flush(self) -> None: ...


class Journal:
    """The log of events. Writing never raises: a full or closed log must not stop the node."""

    def __init__(
        self,
        level: str,
        stream: Stream | None = None,
        wall_s: Callable[[], float] = time.time,
        **context: object,
    ) -> None:
        self._threshold = LEVELS.index(level)
        self._stream = stream or sys.stderr
        self._wall_s = wall_s
        self._context = context
        self.lost = 0

    def set_level(self, level: str) -> None:
        """Log nothing below this level from now on."""
        self._threshold = LEVELS.index(level)

    def debug(self, event: str, **fields: object) -> None:
        self._write(0, event, fields)

    def info(self, event: str, **fields: object) -> None:
        self._write(1, event, fields)

    def warning(self, event: str, **fields: object) -> None:
        self._write(2, event, fields)

    def error(self, event: str, **fields: object) -> None:
        self._write(3, event, fields)

    def bug(self, what: str, error: Exception) -> None:
        """Report an exception from a bug of ours, which has cost one connection or timer."""
        trace = "".join(traceback.format_exception(error))
        self.error("request handler failed", request=what, trace=trace)

    def _write(self, level: int, event: str, fields: dict[str, object]) -> None:
        if level < self._threshold:
            return
        wall = self._wall_s()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall))
        line = {
            "time": f"{stamp}.{int(wall * 1000) % 1000:03d}Z",
            "level": LEVELS[level],
            "event": event,
            **self._context,
            **fields,
        }
        try:
            self._stream.write(json.dumps(line, default=str) + "\n")
            self._stream.flush()
        except (OSError, ValueError):
            self.lost += 1
