"""How fast topics grow on this node, measured from sizes that are sampled now and then.

A rate is the mean of all samples since the start, with older ones counting less and less: after an
hour a third. So it is usable from the second pass on, and stable later. It is not stored: after a
restart it is unknown until there have been two passes again.

Bytes that arrived as another node's state (a checkpoint, a peer's) were not appended now: a
partition whose index is a different object than last time only gets a new starting point.
"""

from collections.abc import Mapping
from math import exp
from typing import Final

import attrs

from broker.state_machine.batch_index import BatchIndex

SMOOTH_S: Final = 3600.0
NS: Final = 1_000_000_000


@attrs.define(eq=False)
class Smoothed:
    """An exponentially weighted mean over time; None until something is added."""

    _sum: float = 0.0
    _weight: float = 0.0

    def add(self, value: float, elapsed_s: float) -> None:
        keep = exp(-elapsed_s / SMOOTH_S)
        self._sum = self._sum * keep + value * (1 - keep)
        self._weight = self._weight * keep + 1 - keep

    @property
    def mean(self) -> float | None:
        return self._sum / self._weight if self._weight else None


@attrs.define(eq=False)
class Counter:
    """The rate of a number that only increases."""

    _last: tuple[float, int] | None = None
    _rate: Smoothed = attrs.Factory(Smoothed)

    def see(self, count: float, now_ns: int) -> None:
        last, self._last = self._last, (count, now_ns)
        if last is not None and now_ns > last[1]:
            elapsed_s = (now_ns - last[1]) / NS
            self._rate.add((count - last[0]) / elapsed_s, elapsed_s)

    @property
    def per_s(self) -> float | None:
        return self._rate.mean


@attrs.define
class _GrowthSamples:
    """Growth of a topic's partitions that were known before. Each has its own time since its last
    sample: a pass takes many ticks, and rates would be wrong if that were ignored."""

    count: int = 0
    appended: int = 0
    elapsed_ns: int = 0


@attrs.define(eq=False)
class GrowthRates:
    """`see` each partition in a pass, then `end_pass`."""

    passes: int = 0
    _seen: dict[int, tuple[BatchIndex, int, int]] = attrs.Factory(dict)
    _seeing: dict[int, tuple[BatchIndex, int, int]] = attrs.Factory(dict)
    _now: dict[str, _GrowthSamples] = attrs.Factory(dict)
    _appended: dict[str, Smoothed] = attrs.Factory(dict)
    _held: dict[str, int] = attrs.Factory(dict)
    _growth: dict[str, Smoothed] = attrs.Factory(dict)
    _began_ns: int = 0
    _ended_ns: int = 0

    def see(self, topic: str, uid: int, index: BatchIndex, now_ns: int) -> None:
        end = index.bytes_end
        self._seeing[uid] = (index, end, now_ns)
        before = self._seen.get(uid)
        if before is not None and before[0] is index and now_ns > before[2]:
            looks = self._now.setdefault(topic, _GrowthSamples())
            looks.count += 1
            looks.appended += end - before[1]
            looks.elapsed_ns += now_ns - before[2]

    def end_pass(self, held: Mapping[str, int], now_ns: int) -> None:
        """`held`: bytes of each existing topic."""
        self._seen, self._seeing = self._seeing, {}
        for topic, looks in self._now.items():
            if topic in held:
                elapsed_s = looks.elapsed_ns / looks.count / NS
                change = held[topic] - self._held.get(topic, held[topic])
                smoothed = self._appended.setdefault(topic, Smoothed())
                smoothed.add(looks.appended / elapsed_s, elapsed_s)
                smoothed = self._growth.setdefault(topic, Smoothed())
                smoothed.add(change / elapsed_s, elapsed_s)
        for gone in self._appended.keys() - held.keys():
            del self._appended[gone], self._growth[gone]
        if not self.passes:
            self._began_ns = now_ns
        self._held, self._now, self._ended_ns = dict(held), {}, now_ns
        self.passes += 1

    @property
    def measured_s(self) -> float:
        """Length of the measurement in seconds; only about the last hour counts much."""
        return (self._ended_ns - self._began_ns) / NS

    def appended(self, topic: str) -> float | None:
        """Bytes appended per second; None: not known yet."""
        found = self._appended.get(topic)
        return None if found is None else found.mean

    def growth(self, topic: str) -> float | None:
        """How fast the size held changes, in bytes per second, up or down."""
        found = self._growth.get(topic)
        return None if found is None else found.mean
