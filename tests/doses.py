"""How much of a long table a test goes through: a part each time, all with EXAM=full.

`make test` has a quarter of an hour. A row for each version of each API is most of its computing,
and neighbouring rows find the same; `EXAM=full make unit` has all of them. Worlds, too: a taste
here, and `make sim` runs them by the hundred.
"""

import os
from collections.abc import Iterable
from typing import Final, TypeVar

T = TypeVar("T")
ONLY_IN_FULL: Final = "only with EXAM=full (make faults has it)"
FULL: Final = os.environ.get("EXAM") == "full"
USUAL_SHARE: Final = 6


def some(rows: Iterable[T]) -> list[T]:
    """Every sixth one, the last included: newer rows come last."""
    every = list(rows)
    return every if FULL else every[::-1][::USUAL_SHARE][::-1]
