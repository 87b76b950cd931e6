"""Metrics of this node's compactor."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.upkeep.compactor import Compactor


class CompactionMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, compactor: Compactor) -> None:
        self._compactor = compactor
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        now = self._compactor.statistics
        for name, text, count in (
            ("evenkeel_compaction_rounds", "Compaction rounds over one partition.", now.rounds),
            (
                "evenkeel_compaction_seconds",
                "Time that compaction rounds took, rests included.",
                now.seconds,
            ),
            ("evenkeel_compaction_read_bytes", "Bytes read by compaction.", now.bytes_read),
            (
                "evenkeel_compaction_removed_bytes",
                "Bytes removed by compaction.",
                now.bytes_removed,
            ),
            (
                "evenkeel_compaction_removed_records",
                "Records removed because a later one has their key.",
                now.records_removed,
            ),
            (
                "evenkeel_compaction_removed_tombstones",
                "Tombstones removed after their retention time.",
                now.tombstones_removed,
            ),
            (
                "evenkeel_compaction_unreadable_batches",
                "Batches kept whole because they could not be read.",
                now.unreadable_batches,
            ),
            (
                "evenkeel_compaction_gave_way",
                "Rounds ended early: damage, no room, files gone.",
                now.gave_way,
            ),
        ):
            yield CounterMetricFamily(name, text, value=count)
        yield GaugeMetricFamily(
            "evenkeel_compaction_dirty_partitions",
            "Partitions with records to be compacted, due or not.",
            value=now.partitions_dirty,
        )
        yield GaugeMetricFamily(
            "evenkeel_compaction_dirty_ratio",
            "Dirty ratio of the dirtiest partition.",
            value=now.dirty_ratio_max,
        )
