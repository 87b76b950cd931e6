"""How long requests take, as a histogram of plain integers: cheap enough for the hot path."""

from bisect import bisect_left
from typing import Final

import attrs

from paxos.ids import MS

BOUNDS_MS: Final = (0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000)
_BOUNDS_NS: Final = tuple(int(bound * MS) for bound in BOUNDS_MS)


@attrs.define(eq=False)
class Latency:
    """`counts[i]`: requests that took at most BOUNDS_MS[i] and more than the bound before it; the
    last count is of those above all bounds."""

    counts: list[int] = attrs.Factory(lambda: [0] * (len(BOUNDS_MS) + 1))
    sum_ns: int = 0

    def took(self, ns: int) -> None:
        self.counts[bisect_left(_BOUNDS_NS, ns)] += 1
        self.sum_ns += ns
