"""What clients cause in each group, and how long they wait: the raw numbers of load reports and of
the histograms in /metrics.

Counted on the hot path, hence integers in a dict and nothing else; the reporter takes them away.
Bounded by the number of Paxos groups and by WAITS_MAX.
"""

from bisect import bisect_left
from typing import Final

import attrs

from paxos.ids import MS, GroupId

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


WAITS_MAX: Final = 4_096
"""Produce requests whose wait is remembered between two reports; further ones are only counted in
the histogram."""
EVERY: Final = 8
"""One request in this many is timed ..."""
ALL_BELOW: Final = 64
"""... but every one of the first few."""


@attrs.define(eq=False)
class GroupTraffic:
    bytes_in: int = 0
    bytes_out: int = 0
    requests: int = 0


class Traffic:
    def __init__(self) -> None:
        self._groups: dict[GroupId, GroupTraffic] = {}
        self._waits_ns: list[int] = []
        self._asked = 0
        self._fetches = 0
        self.produce = Latency()
        self.fetch = Latency()

    def produced(self, group: GroupId, size: int) -> None:
        one = self._groups.get(group)
        if one is None:
            one = self._groups[group] = GroupTraffic()
        one.bytes_in += size
        one.requests += 1

    def fetched(self, group: GroupId, size: int) -> None:
        one = self._groups.get(group)
        if one is None:
            one = self._groups[group] = GroupTraffic()
        one.bytes_out += size
        one.requests += 1

    def samples(self) -> bool:
        """Whether this produce request should be timed."""
        self._asked += 1
        return len(self._waits_ns) < ALL_BELOW or self._asked % EVERY == 0

    def samples_fetch(self) -> bool:
        """Whether the answer to this fetch should be timed."""
        self._fetches += 1
        return self._fetches % EVERY == 0

    def waited(self, ns: int) -> None:
        self.produce.took(ns)
        if len(self._waits_ns) < WAITS_MAX:
            self._waits_ns.append(ns)

    def take(self) -> tuple[dict[GroupId, GroupTraffic], int]:
        """The traffic since the last call, and the 99th percentile of the waits, in ns."""
        groups, self._groups = self._groups, {}
        waits, self._waits_ns, self._asked = sorted(self._waits_ns), [], 0
        return groups, waits[(len(waits) * 99) // 100] if waits else 0
