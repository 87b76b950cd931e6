"""The reports of all nodes for the console, put together by the node that shows them.

A node's report counts as long as its answers keep coming; charts keep old samples. Everything is
dropped when the last watcher is gone.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import attrs

from paxos.ids import MS, GroupId, NodeId, Now
from runtime.console.messages import SAMPLES_MAX, Acting, Consumers, Data, Sample, State
from runtime.console.recent_traffic import SECOND_NS

BELIEVED_NS: Final = 4_000 * MS
"""Answers come every second: a report is outdated after three were missed."""
DATA_BELIEVED_NS: Final = 30_000 * MS
TOPICS_SHOWN_MAX: Final = 300
"""The largest topics; others are found by name."""


class Partition(NamedTuple):
    master: NodeId
    start: int
    end: int


@attrs.define(eq=False)
class _Series:
    """Samples of one node by our own seconds: boot clocks of two machines are unrelated."""

    incarnation: int
    ahead_s: int
    """Our clock minus the node's."""
    known_to: int = 0
    """The last second that it has reported, by its own clock."""
    samples: deque[Sample] = attrs.Factory(lambda: deque(maxlen=SAMPLES_MAX))

    def add(self, state: State, now_s: int) -> None:
        ahead_s = now_s - state.second
        if state.incarnation != self.incarnation or abs(ahead_s - self.ahead_s) > 1:
            self.incarnation, self.ahead_s, self.known_to = state.incarnation, ahead_s, 0
        for sample in state.samples:
            self.known_to = max(self.known_to, sample.second)
            second = sample.second + self.ahead_s
            if not self.samples or second > self.samples[-1].second:
                self.samples.append(sample._replace(second=second))


class _Told(NamedTuple):
    state: State
    boot_ns: int


class _Have(NamedTuple):
    data: Data
    boot_ns: int


class ClusterReports:
    def __init__(self) -> None:
        self._told: dict[NodeId, _Told] = {}
        self._have: dict[NodeId, _Have] = {}
        self._series: dict[NodeId, _Series] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self.partitions: dict[str, dict[int, Partition]] = {}
        self.records_per_s: dict[str, float] = {}

    def clear(self) -> None:
        """Drop everything: the last watcher is gone."""
        self._told.clear()
        self._have.clear()
        self._series.clear()
        self._totals.clear()
        self.partitions, self.records_per_s = {}, {}

    def hear_state(self, node: NodeId, state: State, now: Now) -> None:
        self._told[node] = _Told(state, now.boot_ns)
        now_s = now.boot_ns // SECOND_NS
        series = self._series.get(node)
        if series is None:
            series = _Series(state.incarnation, now_s - state.second)
            self._series[node] = series
        series.add(state, now_s)

    def hear_data(self, node: NodeId, data: Data, now: Now) -> None:
        self._have[node] = _Have(data, now.boot_ns)

    def known_to(self, node: NodeId) -> int:
        """The second, by the node's own clock, up to which its samples are known."""
        series = self._series.get(node)
        return 0 if series is None else series.known_to

    def state(self, node: NodeId, now: Now) -> State | None:
        """The node's last report about itself, unless it is outdated."""
        told = self._told.get(node)
        return None if told is None or now.boot_ns - told.boot_ns > BELIEVED_NS else told.state

    def samples(self, node: NodeId) -> tuple[Sample, ...]:
        series = self._series.get(node)
        return () if series is None else tuple(series.samples)

    def acting(self, now: Now) -> dict[GroupId, tuple[NodeId, Acting]]:
        """The node that says it acts for each group; if two do, the one with the later epoch."""
        found: dict[GroupId, tuple[NodeId, Acting]] = {}
        for node in sorted(self._told):
            state = self.state(node, now)
            for one in () if state is None else state.acting:
                known = found.get(GroupId(one.group))
                if known is None or known[1].epoch < one.epoch:
                    found[GroupId(one.group)] = node, one
        return found

    # -- data ---------------------------------------------------------------------------------

    def _data(self, now: Now) -> Iterator[tuple[NodeId, Data]]:
        for node, have in sorted(self._have.items()):
            if now.boot_ns - have.boot_ns <= DATA_BELIEVED_NS:
                yield node, have.data

    def add_up(self, now: Now) -> None:
        """Merge the partitions of all nodes, and compute their rates since the last call."""
        partitions: dict[str, dict[int, Partition]] = {}
        for node, data in self._data(now):
            for topic, indexes, starts, ends in data.ends:
                rows = partitions.setdefault(topic, {})
                for index, start, end in zip(indexes, starts, ends, strict=True):
                    known = rows.get(index)
                    if known is None or known.end <= end:  # a former master has reported less
                        rows[index] = Partition(node, start, end)
        self.partitions = partitions
        totals = {
            topic: (sum(one.end for one in rows.values()), now.boot_ns)
            for topic, rows in partitions.items()
        }
        for topic, (total, boot_ns) in totals.items():
            before, then_ns = self._totals.get(topic, (total, boot_ns))
            if boot_ns > then_ns:
                self.records_per_s[topic] = max(0, total - before) * SECOND_NS / (boot_ns - then_ns)
        self._totals = totals
        self.records_per_s = {t: v for t, v in self.records_per_s.items() if t in totals}

    def held(self, now: Now) -> dict[str, tuple[int, int]]:
        """Bytes of each topic on all nodes, and their growth per second."""
        sums: dict[str, tuple[int, int]] = {}
        for _, data in self._data(now):
            for one in data.held:
                size, rate = sums.get(one.topic, (0, 0))
                sums[one.topic] = size + one.bytes, rate + max(0, one.bytes_per_s)
        return sums

    def consumers(self, now: Now) -> dict[str, tuple[NodeId, Consumers]]:
        """Consumer groups by name, with their coordinators."""
        return {one.name: (node, one) for node, data in self._data(now) for one in data.consumers}

    def cut(self, now: Now) -> bool:
        """Whether a node's report is not complete."""
        return any(data.cut for _, data in self._data(now))


def lag_of(one: Consumers, partitions: Mapping[str, Mapping[int, Partition]]) -> tuple[int, int]:
    """The lag of a consumer group in records, and the number of partitions of unknown end."""
    lag = unknown = 0
    for topic, indexes, offsets in one.committed:
        rows = partitions.get(topic, {})
        for index, offset in zip(indexes, offsets, strict=True):
            place = rows.get(index)
            if place is None:
                unknown += 1
            else:
                lag += max(0, place.end - max(offset, place.start))
    return lag, unknown
