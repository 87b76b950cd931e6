"""Metrics of client quotas: by what is limited, never by client, whose number nobody bounds."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from broker.security.quotas import ClientQuotas


def quota_metrics(quotas: ClientQuotas) -> Iterable[Metric]:
    requests = CounterMetricFamily(
        "evenkeel_throttled_requests",
        "Requests whose client had to wait because it had used up a quota.",
        labels=["quota"],
    )
    seconds = CounterMetricFamily(
        "evenkeel_throttle_seconds",
        "Seconds that clients with quotas had to wait.",
        labels=["quota"],
    )
    for key, count in quotas.throttled.items():
        requests.add_metric([key.kafka_name], count)
        seconds.add_metric([key.kafka_name], quotas.throttled_ns[key] / 1e9)
    yield requests
    yield seconds
