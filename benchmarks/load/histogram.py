"""Latencies in log-linear buckets, after Gil Tene's HdrHistogram.

Values below 1024 have a bucket each; above, every power of two is cut into 512. So a reported value
is at most 0.2 % above the recorded one, whatever its size. Histograms of several runs can be added,
which percentiles cannot.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

SUB_BITS: Final = 9
EXACT_BELOW: Final = 2 << SUB_BITS


def bucket_of(value: int) -> int:
    shift = max(0, value.bit_length() - SUB_BITS - 1)
    return (shift << SUB_BITS) + (value >> shift)


def highest_in(bucket: int) -> int:
    """The largest value that falls into the bucket."""
    if bucket < EXACT_BELOW:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    return ((bucket - (shift << SUB_BITS) + 1) << shift) - 1


class Histogram:
    def __init__(self, values: Iterable[int] = ()) -> None:
        self._counts: Counter[int] = Counter()
        self.max = 0
        self.record_all(values)

    @property
    def count(self) -> int:
        return self._counts.total()

    def record_all(self, values: Iterable[int]) -> None:
        """Add values that are not negative; all at once, so that a hot loop only collects them."""
        values = list(values)
        if not values:
            return
        assert min(values) >= 0, "a latency is a distance of two readings of a monotonic clock"
        self.max = max(self.max, *values)
        self._counts.update(map(bucket_of, values))

    def add(self, other: "Histogram") -> None:
        self._counts.update(other._counts)
        self.max = max(self.max, other.max)

    def percentile(self, percent: float) -> int:
        """The value that at least this share of all values does not exceed; 0 if there are none."""
        assert 0 <= percent <= 100
        needed = self.count * percent / 100
        seen = 0
        for bucket in sorted(self._counts):
            seen += self._counts[bucket]
            if seen >= needed:
                return min(highest_in(bucket), self.max)
        return self.max

    def corrected(self, interval: int) -> "Histogram":
        """With what a closed loop would have sent, every `interval`, while it waited.

        A client that waits for 10 intervals has left out 9 requests, which would have waited for 9,
        8, ... of them (Gil Tene's correction). It is an estimate; an open loop needs none.
        """
        assert interval > 0
        corrected = Histogram()
        corrected.add(self)
        for bucket, count in self._counts.items():
            for missed in range(
                min(highest_in(bucket), self.max) - interval, interval - 1, -interval
            ):
                corrected._counts[bucket_of(missed)] += count
        return corrected

    def to_json(self) -> list[list[int]]:
        """(largest value of the bucket, count), ascending: readable without this module."""
        pairs = [[highest_in(bucket), count] for bucket, count in sorted(self._counts.items())]
        if pairs:
            pairs[-1][0] = self.max
        return pairs

    @classmethod
    def from_json(cls, pairs: Sequence[Sequence[int]]) -> "Histogram":
        histogram = cls()
        for value, count in pairs:
            histogram._counts[bucket_of(value)] += count
            histogram.max = max(histogram.max, value)
        return histogram
