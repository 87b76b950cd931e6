"""What a producer and a member of a group noticed of a fault, in numbers."""

import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import attrs

from tests.compat.languages import Event, of, values

FILE: Final = "counts.json"


@attrs.frozen
class Counts:
    """Pauses are in milliseconds; None: the program does not tell when."""

    acknowledged: int
    lost: int
    stored_twice: int
    out_of_order: int
    errors: int
    pause_of_acks: int | None
    read_twice: int
    rebalances: int
    pause_of_reads: int | None

    @classmethod
    def of(cls, wrote: list[Event], read: list[Event], found: Sequence[str]) -> "Counts":
        """`found` is the log, in order."""
        acked, seen = values(wrote, "acked"), values(read, "read")
        first = list(dict.fromkeys(found))
        return cls(
            acknowledged=len(acked),
            lost=len(set(acked) - set(found)),
            stored_twice=len(found) - len(first),
            out_of_order=sum(after < before for before, after in itertools.pairwise(first)),
            errors=len(of(wrote, "error")) + len(of(read, "error")),
            pause_of_acks=_longest_pause(of(wrote, "acked")),
            read_twice=len(seen) - len(set(seen)),
            rebalances=max(0, len(of(read, "rebalance")) - 1),
            pause_of_reads=_longest_pause(of(read, "read")),
        )

    def keep(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(attrs.asdict(self)))


def _longest_pause(events: list[Event]) -> int | None:
    at = [int(event["at"]) for event in events if "at" in event]
    return max((after - before for before, after in itertools.pairwise(at)), default=None)


def cells(folder: Path) -> str:
    """As cells of the table of counts; empty if the row has counted nothing."""
    if not (folder / FILE).exists():
        return ""
    told: dict[str, Any] = json.loads((folder / FILE).read_text())
    return " | ".join(
        "" if value is None else f"{value} ms" if name.startswith("pause") else str(value)
        for name, value in told.items()
    )
