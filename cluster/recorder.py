"""Histories as files.

A `Recorder` writes as things happen: a line when a send begins and one when its outcome is known,
each handed to the kernel immediately: if the workload is killed, what it did is still on file.
"""

import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import attrs

from history.jsonl import LINE_BYTES_MAX, line_of, records_of
from history.record import NO_KEY, Op, Outcome, Record

OBSERVER: Final = "observer"


class Recorder:
    """A history being written; thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("w", encoding="utf-8")
        self._one_at_a_time = threading.Lock()

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()

    def began(self, record: Record) -> None:
        """Of what may be left without an outcome if we die now."""
        self.ended([attrs.evolve(record, outcome=Outcome.INVOKE)])

    def ended(self, records: Iterable[Record]) -> None:
        lines = "".join(map(line_of, records))
        with self._one_at_a_time:
            self._file.write(lines)
            self._file.flush()

    def fault(self, what: str) -> None:
        """From now on faults are injected into the cluster, until `heal`."""
        now = time.monotonic_ns()
        self.ended([Record(Op.FAULT, OBSERVER, NO_KEY, what, began_ns=now, ended_ns=now)])

    def heal(self) -> None:
        now = time.monotonic_ns()
        self.ended([Record(Op.HEAL, OBSERVER, NO_KEY, began_ns=now, ended_ns=now)])


def write_history(history: Iterable[Record], path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(map(line_of, history))


def read_history(path: Path) -> Iterator[Record]:
    """Read what was written, one line at a time.

    Raises:
        HistoryError: if a line is not a record; it has the line.
        OSError: if the file cannot be read.
    """
    with path.open("rb") as file:
        yield from records_of(iter(lambda: file.readline(LINE_BYTES_MAX + 1), b""), path.name)
