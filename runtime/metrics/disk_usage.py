"""What the directory is full of and what it will need, as metrics (runtime.upkeep.disk_usage)."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.upkeep.disk_usage import DiskUse, held_by_kind


class UsageMetrics(Collector):
    """Nothing is shown before it is known."""

    def __init__(self, registry: CollectorRegistry, disk_use: DiskUse) -> None:
        self._disk_use = disk_use
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        held = GaugeMetricFamily(
            "evenkeel_disk_held_bytes", "Of this node's files.", labels=["kind"]
        )
        limit = GaugeMetricFamily("evenkeel_disk_limit_bytes", "What its files may take.")
        predicted = GaugeMetricFamily(
            "evenkeel_disk_predicted_bytes", "Held when it has run for long."
        )
        full = GaugeMetricFamily(
            "evenkeel_disk_full_seconds", "Until writes are refused, at today's rates."
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
