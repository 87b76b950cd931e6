"""Which records have to go, and who decides: their deletion is a command like any other.

A partition's first offset is part of the replicated state: the master finds that records are too
old or too many (`retention.ms`, `retention.bytes`, `cleanup.policy` of their topic) and proposes a
DELETE_RECORDS. Every member then deletes the same offsets, and reclaims disk space by itself: cold
segments below the start, and segments of the log once nothing needs them.

Kafka deletes whole segments, whose size and age are settings of the topic. So do we where the data
is in cold segments. Data still in the log has no segments of its own: of that, as many batches are
deleted as are due, in steps that are worth a command.

Times are the greatest timestamps of batches, set by the producer or the log
(message.timestamp.type), as in Kafka: one batch from the future keeps what lies behind it. A batch
without a timestamp goes with the next one that has one.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final, NamedTuple

import attrs

from balancer.registry.registry import Registry
from broker.config import BrokerConfig
from broker.lifecycle.growth_rates import GrowthRates
from broker.ports import Groups
from broker.proposals.commands import DELETE_RECORDS_RESULT, delete_records, fenced
from broker.proposals.intake import Done, Outcome
from broker.state_machine.machine import GroupMachine
from broker.state_machine.partition import PartitionState
from broker.statistics import BrokerStatistics
from broker.topic_configs import (
    MAX_COMPACTION_LAG_MS,
    RETENTION_BYTES,
    RETENTION_MS,
    SEGMENT_BYTES,
    SEGMENT_MS,
    is_compacted,
    is_deleted,
    setting,
)
from paxos.ids import MS, GroupId, Now
from storage.errors import ColdDamaged
from wire.error_codes import ErrorCode

LOOKS_MAX: Final = 200
LOOKS_NS: Final = 2 * MS
"""Time for looking at partitions in one tick: the cold store may have to read the end of a file
when it is first asked."""
UNDER_WAY_MAX: Final = 200
"""Deletions proposed and not yet answered: the others wait for the next pass."""
STEP: Final = 16
"""Data in the log is deleted when it exceeds the limit by one such part, or by the size of a
segment, or as a whole."""
KEEP: Final = -1
SHARES: Final = 8
"""A cold segment is deleted as a whole, once all of it may go. So that it does not hold back much
that may go, it is ended when it holds one such part of what is kept, whatever the topic's own
settings say; but it is never ended below this size:"""
SEGMENT_BYTES_LEAST: Final = 64 * 1024
SEGMENT_MS_LEAST: Final = 60_000


class Segments(NamedTuple):
    """When a cold segment of a topic is ended: at a size, or at an age by its records' times."""

    bytes: int
    ms: int


def segments_of(configs: Mapping[str, str], config: BrokerConfig) -> Segments:
    size, ms = (int(setting(configs, name, config)) for name in (SEGMENT_BYTES, SEGMENT_MS))
    rules = retention_of(configs, config)
    if rules is not None and rules.bytes >= 0:
        size = min(size, max(rules.bytes // SHARES, SEGMENT_BYTES_LEAST))
    if rules is not None and rules.ms >= 0:
        ms = min(ms, max(rules.ms // SHARES, SEGMENT_MS_LEAST))
    if is_compacted(configs):  # only ended files are compacted
        ms = min(ms, int(setting(configs, MAX_COMPACTION_LAG_MS, config)))
    return Segments(size, ms)


@attrs.frozen
class Retention:
    """A topic's rules as numbers; negative: no limit."""

    ms: int = KEEP
    bytes: int = KEEP
    segment_bytes: int = 1 << 26


def retention_of(configs: Mapping[str, str], config: BrokerConfig) -> Retention | None:
    """None if nothing is deleted by age or size."""
    if not is_deleted(configs):
        return None
    ms, size = (int(setting(configs, name, config)) for name in (RETENTION_MS, RETENTION_BYTES))
    if ms < 0 and size < 0:
        return None
    return Retention(ms, size, int(setting(configs, SEGMENT_BYTES, config)))


def due(state: PartitionState, rules: Retention, now_wall_ms: int) -> int | None:
    """The offset below which records should be deleted now; None if that is not worth a command, or
    not known yet."""
    wanted = state.log_start
    if wanted == state.next_offset or not state.cold.knows(state.uid):
        return None
    if rules.ms >= 0:
        wanted = max(wanted, _too_old(state, rules, now_wall_ms - rules.ms))
    if rules.bytes >= 0:
        wanted = max(wanted, _too_many(state, rules))
    wanted = min(wanted, state.next_offset)
    return wanted if wanted > state.log_start else None


def _too_old(state: PartitionState, rules: Retention, before_ms: int) -> int:
    wanted = state.log_start
    for segment in state.cold.segments(state.uid):
        if segment.max_timestamp_ms >= before_ms:
            return wanted
        if segment.max_timestamp_ms >= 0:
            wanted = segment.end
    index = state.index
    reaching = index.reaching(before_ms)
    number = index.behind_last_timed(index.stop if reaching is None else reaching)
    if number == index.first:
        return wanted
    freed = index.bytes_before(number) - index.bytes_before(index.first)
    late_ms = before_ms - index.timestamp(index.first)
    if number == index.stop or late_ms >= rules.ms // STEP or freed >= rules.segment_bytes:
        return _base(state, number)
    return wanted


def _too_many(state: PartitionState, rules: Retention) -> int:
    wanted = state.log_start
    over = state.bytes_held - rules.bytes
    if over <= 0:
        return wanted
    for segment in state.cold.segments(state.uid):
        if segment.end > wanted:
            if segment.bytes > over:
                return wanted
            over -= segment.bytes
            wanted = segment.end
    index = state.index
    if len(index) and over >= min(rules.segment_bytes, rules.bytes // STEP):
        wanted = max(wanted, _base(state, index.within(index.first, over)))
    return wanted


def _base(state: PartitionState, number: int) -> int:
    index = state.index
    return index.base(number) if number < index.stop else state.next_offset


@attrs.define
class TopicSize:
    """What this node keeps of a topic: bytes in log and cold segments, and records."""

    bytes: int = 0
    records: int = 0
    log_bytes: int = 0
    """The part of `bytes` that is only in the log."""
    log_batches: int = 0
    partitions: int = 0


class RetentionEnforcer:
    """Looks at all partitions of this node, some in each tick: how large they are, and whether
    records are due where this node is master.

    `sizes` are those of the last completed pass, by topic name.
    """

    def __init__(
        self,
        groups: Groups,
        registry: Registry,
        machines: Mapping[GroupId, GroupMachine],
        config: BrokerConfig,
        statistics: BrokerStatistics,
    ) -> None:
        self._groups, self._registry, self._machines = groups, registry, machines
        self._config, self._statistics = config, statistics
        self._left: Iterator[tuple[GroupId, PartitionState]] | None = None
        self._began_boot_ns: int | None = None
        """None: the first pass waits as long as any other. At a start, threads find out where cold
        data ends; the loop should not have to wait for that."""
        self.sizes: Mapping[str, TopicSize] = {}
        self._adding: dict[str, TopicSize] = {}
        self.rates = GrowthRates()
        self._under_way: set[int] = set()
        self._rules: dict[str, Retention | None] = {}
        self._topics_seen = -1

    def tick(self, now: Now) -> None:
        """Continue the pass over all partitions, or begin one if it is time. Call it often."""
        if self._left is None:
            if self._began_boot_ns is None:
                self._began_boot_ns = now.boot_ns
            if now.boot_ns - self._began_boot_ns < self._config.retention_check_ms * MS:
                return
            self._began_boot_ns = now.boot_ns
            self._left = self._partitions()
        until_ns = now.boot_ns + LOOKS_NS
        for _ in range(LOOKS_MAX):
            found = next(self._left, None)
            if found is None:
                self._left = None
                self.sizes, self._adding = self._adding, {}
                held = {topic: size.bytes for topic, size in self.sizes.items()}
                self.rates.end_pass(held, now.boot_ns)
                return
            try:
                self._look(*found, now)
            except ColdDamaged as damage:  # the repair task replaces it; then it is due
                self._statistics.damaged_cold.append((damage.uid, damage.base))
            if self._groups.now().boot_ns >= until_ns or len(self._under_way) >= UNDER_WAY_MAX:
                return

    def _partitions(self) -> Iterator[tuple[GroupId, PartitionState]]:
        for group in sorted(self._machines):
            machine = self._machines.get(group)
            for state in [] if machine is None else list(machine.partitions.values()):
                yield group, state

    def _look(self, group: GroupId, state: PartitionState, now: Now) -> None:
        uid = state.uid
        partition = self._registry.partition(uid)
        if partition is None or state.dropped:
            return
        self._add(partition.topic, state)
        self.rates.see(partition.topic, uid, state.index, now.boot_ns)
        rules = self._rules_of(partition.topic)
        groups = self._groups
        if rules is None or uid in self._under_way or not now.trusted or not groups.acting(group):
            return
        offset = due(state, rules, now.wall_ns // MS)
        if offset is not None and groups.caught_up(group):
            self._under_way.add(uid)
            done = partial(self._done, uid, state.log_start)
            command = fenced(groups.epoch(group), delete_records(uid, offset))
            groups.submit(group, command, done)  # by the rules as this master knows them

    def _add(self, topic: str, state: PartitionState) -> None:
        size = self._adding.setdefault(topic, TopicSize())
        size.log_bytes += state.index.bytes_held
        size.log_batches += len(state.index)
        size.bytes += state.index.bytes_held
        size.bytes += state.cold.bytes_of(state.uid)
        size.records += state.next_offset - state.log_start
        size.partitions += 1

    def _rules_of(self, name: str) -> Retention | None:
        if self._topics_seen != self._registry.versions.topics:
            self._topics_seen = self._registry.versions.topics
            self._rules.clear()
        if name not in self._rules:
            topic = self._registry.topic(name)
            assert topic is not None, f"a partition of {name}, which is no topic"
            self._rules[name] = retention_of(topic.configs, self._config)
        return self._rules[name]

    def _done(self, uid: int, log_start: int, outcome: Outcome) -> None:
        """What was refused, or may still be applied, is checked again in the next pass."""
        self._under_way.discard(uid)
        if isinstance(outcome, Done):
            error, start = DELETE_RECORDS_RESULT.unpack(outcome.result)
            if error == ErrorCode.NONE:
                self._statistics.retention_trims += 1
                self._statistics.retention_records += max(0, start - log_start)
