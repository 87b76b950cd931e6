"""Metrics of this node's listeners for Kafka clients, and of their certificates."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.clients.doors import Entrances


class ListenerMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, entrances: Entrances) -> None:
        self._entrances = entrances
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        here = self._entrances
        yield GaugeMetricFamily(
            "evenkeel_insecure_listeners",
            "Listeners that other machines reach, and that prove nobody.",
            value=len(here.insecure),
        )
        yield CounterMetricFamily(
            "evenkeel_tls_handshakes",
            "TLS handshakes of clients.",
            value=here.handshakes.done_total,
        )
        yield CounterMetricFamily(
            "evenkeel_tls_handshakes_failed",
            "TLS handshakes of clients that failed.",
            value=here.handshakes.failed_total,
        )
        contexts = here.contexts
        expires = GaugeMetricFamily(
            "evenkeel_tls_expires_timestamp_seconds",
            "When the first certificate of the node's chain expires, and the last authority of "
            "clients.",
            labels=["of"],
        )
        refused = GaugeMetricFamily(
            "evenkeel_tls_files_refused",
            "Whether the TLS files have changed, and are wrong: the old ones are in use.",
        )
        if contexts is not None:
            expires.add_metric(["certificate"], contexts.expires_s)
            if contexts.authorities_expire_s is not None:
                expires.add_metric(["client authority"], contexts.authorities_expire_s)
            refused.add_metric([], float(bool(contexts.complaint)))
        yield expires
        yield refused
