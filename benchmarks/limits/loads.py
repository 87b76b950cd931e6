"""The loads that bare append and product both get, and the share that must be reached."""

from collections.abc import Callable
from functools import partial
from typing import Final

import attrs

from benchmarks.load.jobs import Job, Measured, ProduceJob, RequestJob
from benchmarks.report.results import MS, Bar
from benchmarks.target import Target

HALF: Final = Bar(0.5)
"""Of the bare append's rate (issue 8)."""
HALF_AGAIN: Final = Bar(1.5, at_most=True)
"""Times the bare append's latency."""
CONSUME_BAR: Final = Bar(500)
MB: Final = 1e6
RECORD_BYTES: Final = 1000
"""Bytes of a record in a batch."""


@attrs.frozen(kw_only=True)
class Scale:
    """How long to measure; a pair is one round of each side."""

    name: str
    pairs: int
    warm_up_s: float
    window_s: float


@attrs.frozen(kw_only=True)
class Load:
    name: str
    title: str
    unit: str
    """Of `value`."""
    value: Callable[[Measured], float]
    cost: Callable[[Measured], float]
    """CPU time of all servers, in microseconds per request or message, or per megabyte."""
    cost_unit: str
    bar: Bar
    """For the product's value as a share of the bare append's."""
    make: Callable[[Target, str, int, Scale], Job]
    """Called with the topic and its number of partitions."""

    @property
    def of_latency(self) -> bool:
        return self.bar.at_most


def _us_per_mb(measured: Measured) -> float:
    return sum(measured.usage.nodes_s) * 1e6 / max(1e-9, measured.bytes / MB)


def _requests(
    name: str,
    title: str,
    *,
    connections: int,
    in_flight: int,
    records: int = 1,
    partitions_max: int = 0,
    of_latency: bool = False,
) -> Load:
    def make(target: Target, topic: str, _partitions: int, scale: Scale) -> RequestJob:
        return RequestJob(
            bootstrap=target.bootstrap,
            topic=topic,
            connections=connections,
            in_flight=in_flight,
            record_bytes=100 if records == 1 else RECORD_BYTES,
            records=records,
            partitions_max=partitions_max,
            rate=0.0,
            first_node=0,
            warm_up_s=scale.warm_up_s,
            window_s=scale.window_s,
            pids=target.pids,
        )

    of_bytes = records > 1
    return Load(
        name=name,
        title=title,
        unit="p50 ms" if of_latency else "MB/s" if of_bytes else "requests/s",
        value=_median_ms if of_latency else _mb_per_s if of_bytes else _per_s,
        cost=_us_per_mb if of_bytes else _us_per_count,
        cost_unit="us/MB" if of_bytes else "us/request",
        bar=HALF_AGAIN if of_latency else HALF,
        make=make,
    )


def _per_s(measured: Measured) -> float:
    return measured.per_s


def _mb_per_s(measured: Measured) -> float:
    return measured.mb_per_s


def _median_ms(measured: Measured) -> float:
    return measured.latency_ns.percentile(50) / MS


def _us_per_count(measured: Measured) -> float:
    return measured.node_us_per_count


def _produce(
    message_bytes: int, target: Target, topic: str, partitions: int, scale: Scale
) -> ProduceJob:
    return ProduceJob(
        bootstrap=target.bootstrap,
        topic=topic,
        partitions=partitions,
        message_bytes=message_bytes,
        idempotent=False,  # the bare append assigns no producer ids
        warm_up_s=scale.warm_up_s,
        window_s=scale.window_s,
        pids=target.pids,
    )


def _client(name: str, message_bytes: int) -> Load:
    return Load(
        name=name,
        title=f"confluent-kafka producer, {message_bytes:,} B messages, as fast as possible",
        unit="messages/s",
        value=_per_s,
        cost=_us_per_mb,
        cost_unit="us/MB",
        bar=HALF,
        make=partial(_produce, message_bytes),
    )


LOADS: Final = (
    _requests(
        "requests-64x1",
        "one record of 100 B per request, 64 connections with one request each",
        connections=64,
        in_flight=1,
    ),
    _requests(
        "requests-1x64",
        "one record of 100 B per request, one connection with 64 requests in flight",
        connections=1,
        in_flight=64,
    ),
    _requests(
        "one-partition",
        "the same, all to one partition: like the bare append, one log and one order",
        connections=1,
        in_flight=64,
        partitions_max=1,
    ),
    _requests(
        "single",
        "one record of 100 B per request, one connection with one request",
        connections=1,
        in_flight=1,
        of_latency=True,
    ),
    _requests(
        "batches-16kb",
        "batches of 16 records of 1 KB, one connection with 8 requests in flight",
        connections=1,
        in_flight=8,
        records=16,
    ),
    _requests(
        "batches-128kb",
        "batches of 128 records of 1 KB, one connection with 8 requests in flight",
        connections=1,
        in_flight=8,
        records=128,
    ),
    _requests(
        "batches-1mb",
        "batches of 1,000 records of 1 KB, one connection with 8 requests in flight",
        connections=1,
        in_flight=8,
        records=1_000,
    ),
    _client("client-100b", 100),
    _client("client-1kb", 1_000),
    _client("client-10kb", 10_000),
)
