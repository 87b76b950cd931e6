"""Histograms of the latency of clients' requests (broker.latency)."""

from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric

from broker.latency import BOUNDS_MS, Latency
from broker.traffic import Traffic


def latency_metrics(traffic: Traffic) -> Iterable[Metric]:
    yield _histogram(
        "evenkeel_produce_seconds",
        "From a produce request to its answer; one request in eight is timed.",
        traffic.produce,
    )
    yield _histogram(
        "evenkeel_fetch_seconds",
        "Reading and answering a fetch, without its wait for data; one in eight is timed.",
        traffic.fetch,
    )


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    bounds = [*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    buckets = list(zip(bounds, accumulate(latency.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=latency.sum_ns / 1e9)
