"""How far a long command is, on standard error; standard output stays for the result."""

import sys
import time
from typing import Final

import attrs

from wire.framing import MIB

EVERY_S: Final = 1.0
LINES_EVERY_S: Final = 15.0
"""Where standard error is a file: it is read later, by people."""


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


@attrs.define
class Progress:
    """`total` counts steps, such as offsets."""

    what: str
    total: int
    quiet: bool = False
    records: int = 0
    bytes: int = 0
    steps: int = 0
    _began: float = attrs.field(factory=time.monotonic)
    _said: float = attrs.field(factory=time.monotonic)
    _line: bool = False

    def add(self, records: int, size: int, steps: int) -> None:
        self.records += records
        self.bytes += size
        self.steps += steps
        if not self.quiet:
            self._say_now_and_then()

    def _say_now_and_then(self) -> None:
        now = time.monotonic()
        terminal = sys.stderr.isatty()
        if now - self._said < (EVERY_S if terminal else LINES_EVERY_S):
            return
        self._said = now
        share = 100 * self.steps // max(1, self.total)
        rate = self.bytes / MIB / max(1e-3, now - self._began)
        text = f"{self.what}: {share} %, {counted(self.records, 'record')}, {rate:.1f} MiB/s"
        self._line = terminal
        print(
            f"\r{text}\033[K" if terminal else text, end="" if terminal else "\n", file=sys.stderr
        )
        sys.stderr.flush()

    def done(self) -> None:
        """End the line that was written over and over."""
        if self._line:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
