"""Metrics of disk usage and its forecast (runtime.upkeep.disk_usage)."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.upkeep.disk_usage import DiskUse, held_by_kind


class UsageMetrics(Collector):
    """Values are exported once they are known."""

    def __init__(self, registry: CollectorRegistry, disk_use: DiskUse) -> None:
        self._disk_use = disk_use
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        held = GaugeMetricFamily(
            "evenkeel_disk_held_bytes", "Size of this node's files.", labels=["kind"]
        )
        limit = GaugeMetricFamily(
            "evenkeel_disk_limit_bytes", "Bytes that this node's files may take."
        )
        predicted = GaugeMetricFamily(
            "evenkeel_disk_predicted_bytes", "Size of this node's files in the long run."
        )
        full = GaugeMetricFamily(
            "evenkeel_disk_full_seconds", "Time until writes are refused, at present rates."
        )
        look = self._disk_use.last
        if look is not None:
            for kind, size in held_by_kind(look.usage).items():
                held.add_metric([kind], size)
            limit.add_metric([], look.forecast.limit)
        if look is not None and look.known:
            predicted.add_metric([], look.forecast.predicted)
            full.add_metric([], look.forecast.full_in_s)
        yield from (held, limit, predicted, full)
