"""The traffic of clients on this node in each of the last seconds, so that new charts have a past.

One sample per second, with or without watchers: that is only a few subtractions.
"""

from collections import deque

from broker.statistics import BrokerStatistics
from paxos.ids import MS, Now
from runtime.console.messages import SAMPLES_MAX, Sample

SECOND_NS = 1_000 * MS


class RecentTraffic:
    def __init__(self, statistics: BrokerStatistics) -> None:
        self._statistics = statistics
        self._samples: deque[Sample] = deque(maxlen=SAMPLES_MAX)
        self._boot_ns = 0
        self._counts = (0, 0, 0, 0)

    def tick(self, now: Now) -> None:
        """Call it about once a second: a sample is a rate over the time that has really passed."""
        one = self._statistics
        counts = (one.produce_requests, one.fetch_requests, one.produce_bytes, one.fetch_bytes)
        elapsed_ns = now.boot_ns - self._boot_ns
        if self._boot_ns and elapsed_ns > 0:
            second = now.boot_ns // SECOND_NS
            rates = [
                (count - before) * SECOND_NS // elapsed_ns
                for count, before in zip(counts, self._counts, strict=True)
            ]
            if not self._samples or second > self._samples[-1].second:
                self._samples.append(Sample(second, *rates))
        self._boot_ns, self._counts = now.boot_ns, counts

    def since(self, second: int) -> tuple[Sample, ...]:
        """The samples of later seconds, oldest first."""
        newer = []
        for sample in reversed(self._samples):
            if sample.second <= second:
                break
            newer.append(sample)
        return tuple(reversed(newer))
