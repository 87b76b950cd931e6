"""How much disk a node will need: a function of topics' rules, growth rates and present sizes.

How much of a topic is kept follows from its rules: a number of bytes per partition, or the last
hours, at the present append rate. The newest part of it lies in the log, which all topics share and
whose size is a setting; the rest is cold data. So a node that has run for long holds

    the log window + each topic's data behind it + two checkpoints of each group + the reserve

and that is the prediction. The bound is higher: data is removed only when that is worthwhile (a
whole cold segment, a step of the log), spare files lie ready, and the log may wait for a
checkpoint. A topic that is kept for ever has no bound, nor has one that is only compacted (it grows
with its keys): these are listed, and count as growth at the present rate until the disk is full. A
topic that is both compacted and deleted counts as if it were not compacted.
"""

from collections.abc import Sequence
from math import inf
from typing import Final

import attrs

from broker.lifecycle.retention import STEP, Retention, Segments
from storage.cold.format import (
    BLOCK_BYTES,
    BLOCK_HEADER_BYTES,
    HEADER_BYTES,
    TABLE_ENTRY,
    TRAILER_BYTES,
)
from storage.usage import Usage

FILES_READY: Final = 2
"""Log files beside those in use: the one to be written next, and one just finished with."""
FILES_LATE: Final = 3
"""Further ones, where two lie ready for reuse and the log waits for a checkpoint."""
BATCH_BYTES: Final = 1024
"""Size of a batch, where the log has none to measure."""
FOREVER_S: Final = 10 * 365 * 24 * 3600.0
"""Nothing later than this is predicted."""


@attrs.frozen(kw_only=True)
class TopicUse:
    """What this node holds of a topic, in bytes."""

    topic: str
    partitions: int
    log: int
    cold: int
    batches_in_log: int
    rate: float | None
    """Bytes appended per second; None: not known yet."""
    growth: float | None
    """How fast the size of log and cold data together changes, in bytes per second."""
    rules: Retention | None
    compacted: bool
    segments: Segments

    @property
    def held(self) -> int:
        return self.log + self.cold


@attrs.frozen(kw_only=True)
class Limits:
    """The node's settings."""

    log_bytes: int
    segment_bytes: int
    checkpoint_bytes: int
    settle_bytes_per_s: int
    reserve_bytes: int
    low_water_bytes: int
    check_ms: int

    @property
    def segments_kept(self) -> int:
        return max(2, self.log_bytes // self.segment_bytes)

    @property
    def log_expected(self) -> int:
        return (self.segments_kept + FILES_READY) * self.segment_bytes

    def log_bound(self, rate: float) -> int:
        """Another two checkpoints' worth is kept as well; where data arrives faster than tiering
        may move it, the log grows to twice its window before tiering runs at the speed of the
        disk."""
        checkpoints = -(-2 * self.checkpoint_bytes // self.segment_bytes)
        window = max(self.segments_kept, checkpoints)
        if 0 < self.settle_bytes_per_s < rate:
            window *= 2
        return (window + FILES_READY + FILES_LATE) * self.segment_bytes


@attrs.frozen(kw_only=True)
class TopicForecast:
    use: TopicUse
    steady: float | None
    """Bytes in log and cold data once it has run for long; None: unbounded, or not known."""
    bound: float | None
    unbounded: str = ""
    """Why it has no bound; "" if it has one."""
    cold_steady: float | None = None
    cold_bound: float | None = None
    grows: float = 0.0
    """Growth of cold data in bytes per second, until `cold_steady`."""


@attrs.frozen(kw_only=True)
class Forecast:
    """`predicted` and `bound` cover what has a bound; the rest counts with its present size."""

    predicted: float
    bound: float
    limit: int
    """What this node's files may occupy: the disk, or storage.data_bytes_max."""
    usable: int
    """The limit without the low-water mark: above it, clients' writes are refused."""
    full_in_s: float
    """Seconds until then at present rates; infinite: never."""
    topics: tuple[TopicForecast, ...]
    """Largest first."""

    @property
    def unbounded(self) -> tuple[TopicForecast, ...]:
        return tuple(one for one in self.topics if one.unbounded)

    @property
    def fits(self) -> bool:
        return self.full_in_s == inf


def forecast(
    topics: Sequence[TopicUse],
    usage: Usage,
    checkpoints: Sequence[int],
    log_rate: float,
    limits: Limits,
) -> Forecast:
    """`checkpoints`: size of each Paxos group's last checkpoint; `log_rate`: bytes per second
    written to the log, all topics' and its own."""
    log_rate = max(log_rate, sum(one.rate or 0.0 for one in topics))
    log_s = limits.log_bytes / log_rate if log_rate > 0 else inf
    found = [topic_forecast(one, log_rate, log_s, limits) for one in topics]
    two = max(usage.checkpoints, 2 * sum(checkpoints))
    rest = max(usage.reserve, limits.reserve_bytes) + usage.other + two
    steady = [one.use.cold if one.cold_steady is None else one.cold_steady for one in found]
    bounds = [one.use.cold if one.cold_bound is None else one.cold_bound for one in found]
    # While a file is compacted or a checkpoint is written, both the old and the new one exist.
    passing = max((one.segments.bytes for one in topics if one.compacted and one.cold), default=0)
    passing += max(checkpoints, default=0)
    limit = usage.held + usage.free
    room = usage.free - limits.low_water_bytes
    return Forecast(
        predicted=limits.log_expected + sum(steady) + rest,
        bound=limits.log_bound(log_rate) + sum(bounds) + rest + passing,
        limit=limit,
        usable=max(0, limit - limits.low_water_bytes),
        full_in_s=_full_in(room, found, usage, log_rate, limits),
        topics=tuple(sorted(found, key=lambda one: (-one.use.held, one.use.topic))),
    )


def topic_forecast(use: TopicUse, log_rate: float, log_s: float, limits: Limits) -> TopicForecast:
    """`log_s`: for how many seconds the log holds all data."""
    rate, rules = use.rate or 0.0, use.rules
    overhead = cold_overhead(use, log_rate, limits)
    if rules is None:
        why = "compacted: it grows with its keys" if use.compacted else "kept for ever"
        grows = min(rate, max(0.0, use.growth or 0.0)) if use.compacted else rate
        return TopicForecast(
            use=use, steady=None, bound=None, unbounded=why, grows=grows * overhead
        )
    steady, bound = _kept(use, rules, limits)
    in_log = min(rate * log_s, steady or 0.0) if rate else 0.0
    return TopicForecast(
        use=use,
        steady=steady,
        bound=bound,
        cold_steady=None if steady is None else (steady - in_log) * overhead,
        cold_bound=None if bound is None else bound * overhead,
        grows=rate * overhead,
    )


def _kept(use: TopicUse, rules: Retention, limits: Limits) -> tuple[float | None, float | None]:
    """What all its partitions hold once it has run for long: expected, and at most."""
    steady: list[float] = []
    most: list[float] = []
    if rules.bytes >= 0:
        late = use.segments.bytes + rules.bytes // STEP + BLOCK_BYTES
        steady.append(use.partitions * (rules.bytes + late / 2) if use.rate else use.held)
        most.append(max(use.partitions * (rules.bytes + late), use.held))
    if rules.ms >= 0 and use.rate is not None:
        late_ms = use.segments.ms + rules.ms // STEP + limits.check_ms
        steady.append(use.rate * (rules.ms + late_ms / 2) / 1000)
        most.append(use.rate * (rules.ms + late_ms) / 1000 + use.partitions * BLOCK_BYTES)
    return min(steady, default=None), min(most, default=None)


def cold_overhead(use: TopicUse, log_rate: float, limits: Limits) -> float:
    """How much larger cold files are than the batches in them. Tiering moves one log segment's
    worth of a partition at a time: where that is little, blocks are small."""
    batch = use.log / use.batches_in_log if use.batches_in_log else BATCH_BYTES
    piece = file = float(BLOCK_BYTES)
    if use.rate and use.partitions:
        share = use.rate / use.partitions
        piece = min(piece, max(batch, limits.segment_bytes * share / log_rate))
        file = max(batch, min(use.segments.bytes, share * use.segments.ms / 1000))
    header = HEADER_BYTES + TRAILER_BYTES
    block = BLOCK_HEADER_BYTES + TABLE_ENTRY.size
    return 1 + TABLE_ENTRY.size / max(1.0, batch) + block / max(1.0, piece) + header / file


@attrs.frozen
class Flow:
    """Something that grows from `start_s` on, until it has grown by `most` bytes."""

    start_s: float
    per_s: float
    most: float


def _full_in(
    room: int, topics: Sequence[TopicForecast], usage: Usage, log_rate: float, limits: Limits
) -> float:
    """New data first fills the log, up to its limit."""
    missing = max(0, limits.log_expected - usage.log)
    start_s = missing / log_rate if log_rate > 0 else inf
    flows = [Flow(0.0, log_rate, missing)]
    for one in topics:
        most = inf if one.cold_steady is None else max(0.0, one.cold_steady - one.use.cold)
        flows.append(Flow(start_s, one.grows, most))
    return time_until(room, flows)


def time_until(room: float, flows: Sequence[Flow]) -> float:
    """Seconds until all of them together have grown by `room`; infinite: not within FOREVER_S."""
    if room <= 0:
        return 0.0
    edges: list[tuple[float, float]] = []
    for flow in flows:
        if flow.per_s > 0 and flow.most > 0 and flow.start_s < inf:
            edges.append((flow.start_s, flow.per_s))
            edges.append((flow.start_s + flow.most / flow.per_s, -flow.per_s))
    at_s = per_s = 0.0
    for edge_s, change in sorted(edges):
        if per_s * (edge_s - at_s) >= room and per_s > 0:
            break
        if edge_s > FOREVER_S:
            break
        room -= per_s * (edge_s - at_s)
        at_s, per_s = edge_s, per_s + change
    full_s = at_s + room / per_s if per_s > 1e-9 else inf
    return full_s if full_s <= FOREVER_S else inf
