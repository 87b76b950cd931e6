"""What members recorded of their runs, and whether two of them ever ran one task.

Each line has a time of CLOCK_MONOTONIC, which all processes of a machine share. Work is stamped
*before* the member checks that it still holds the lease. So a process that is stopped between the
two says nothing wrong, and one that works on without its lease gives itself away.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class What(StrEnum):
    STARTED = "started"
    WORKED = "worked"
    """It held the lease at this moment, and did some work."""
    STOPPED = "stopped"
    """It stopped properly, while it still held the lease."""
    LOST = "lost"
    """It stopped because it had no lease any more; when it noticed does not matter."""
    REFUSED = "refused"
    """What it wrote carried an outdated token."""


class Line(NamedTuple):
    at_ns: int
    what: What
    task: str
    token: int
    by: str

    def text(self) -> str:
        return json.dumps([self.at_ns, self.what.value, *self[2:]]) + "\n"


class Reader:
    """Reads histories that are still being written, each line once: reading everything again and
    again would leave no time for anything else."""

    def __init__(self) -> None:
        self._places: dict[Path, int] = {}

    def more(self, files: Iterable[Path]) -> list[Line]:
        """The new lines. Half a line is left for later, or for ever if its writer was killed."""
        found = []
        for file in files:
            with file.open("rb") as opened:
                opened.seek(self._places.get(file, 0))
                whole = opened.read().rpartition(b"\n")[0]
            if whole:
                self._places[file] = self._places.get(file, 0) + len(whole) + 1
                found += [line_of(text) for text in whole.split(b"\n")]
        return found


def line_of(text: bytes) -> Line:
    at_ns, what, task, token, by = json.loads(text)
    return Line(at_ns, What(what), task, token, by)


def overlaps(lines: Iterable[Line]) -> list[str]:
    """The violations. Per task, the holder of a token begins only after everybody with a smaller
    token has done the last thing it did."""
    runs: dict[str, dict[int, list[Line]]] = defaultdict(lambda: defaultdict(list))
    for line in lines:
        if line.what not in (What.LOST, What.REFUSED):
            runs[line.task][line.token].append(line)
    found = []
    for task, by_token in sorted(runs.items()):
        latest: Line | None = None
        for token, ours in sorted(by_token.items()):
            owners = {line.by for line in ours}
            if len(owners) > 1:
                found.append(f"{task}: token {token} is that of {' and '.join(sorted(owners))}")
            first, last = min(ours), max(ours)
            if latest is not None and first.at_ns <= latest.at_ns:
                found.append(
                    f"{task}: {first.by} began by token {token} at {first.at_ns}, and {latest.by} "
                    f"was at it by token {latest.token} until {latest.at_ns}"
                )
            latest = last if latest is None else max(latest, last)
    return found
