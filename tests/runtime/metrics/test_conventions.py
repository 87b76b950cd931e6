"""A scrape of a node against Prometheus's conventions: names, units, types, texts, labels.

https://prometheus.io/docs/practices/naming/, and what `promtool check metrics` complains about.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from balancer.registry.commands import CreateTopic
from balancer.stealing.judgement import StealReason
from node import Node
from tests.runtime.one_node import one_node, run_until

OTHER_UNITS = re.compile(
    r"_(ms|us|ns|milliseconds|microseconds|minutes|hours|days|kb|mb|gb|kib|mib|percent|per_second)"
    r"(_|$)"
)
UNITS = ("seconds", "bytes", "ratio")
TYPED = re.compile(r"_(gauge|counter|histogram|summary)(_|$)")
RESERVED = ("_count", "_sum", "_bucket", "_total", "_created")
RELATIVE = re.compile(r"\b(those|them|the same)\b|^Of |^From |^To ", re.IGNORECASE)
LABELS_MAX = 220
"""Series of one metric of one node: 200 topics or consumer groups, and a few more."""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with one_node(tmp_path) as node:
        run_until(node, lambda: not node.shell.not_ready())
        results: list[object] = []
        node.client.propose(CreateTopic("t", b"t".ljust(16), 3, 1), results.append)
        run_until(node, lambda: results)
        node.loop.phases_s.append(("ask", 0.1))  # a histogram shows its buckets after the first
        node.metrics.tick()
        yield node


def families(registry: CollectorRegistry) -> list[Metric]:
    return list(text_string_to_metric_families(generate_latest(registry).decode()))


def complaints(metrics: list[Metric]) -> list[str]:
    """What is unusual, a line each."""
    found = []
    for one in metrics:
        name, text = one.name, one.documentation
        if not re.fullmatch(r"(evenkeel|process)_[a-z][a-z0-9_]*", name):
            found.append(f"{name}: letters, or a foreign prefix")
        if OTHER_UNITS.search(name):
            found.append(f"{name}: not a base unit")
        if TYPED.search(name):
            found.append(f"{name}: its type is in the name")
        if name.endswith(RESERVED):
            found.append(f"{name}: a suffix that is Prometheus's")
        if any(f"_{unit}_" in name for unit in UNITS) and not name.startswith("process_"):
            found.append(f"{name}: the unit is not last")
        if one.type not in ("counter", "gauge", "histogram"):
            found.append(f"{name}: type {one.type}")
        if one.type == "histogram" and not name.endswith(UNITS):
            found.append(f"{name}: a histogram without a unit")
        if name.startswith("evenkeel_"):
            found += [f"{name}: {why}: {text!r}" for why in text_complaints(text)]
        found += sample_complaints(one)
    return found


def text_complaints(text: str) -> Iterator[str]:
    if not text.endswith(".") or text.endswith(".."):
        yield "no sentence"
    if not re.match(r"[A-Z0-9]", text) or re.match(r"\d: ", text):
        yield "begins strangely"
    if len(text.split()) < 3:
        yield "says too little"
    if RELATIVE.search(text):
        yield "needs another metric to be understood"


def sample_complaints(one: Metric) -> Iterator[str]:
    labels: dict[str, set[tuple[str, ...]]] = defaultdict(set)
    for sample in one.samples:
        names = tuple(sorted(set(sample.labels) - {"le"}))
        labels[sample.name].add(names)
        if any(not re.fullmatch(r"[a-z][a-z_]*", label) for label in names):
            yield f"{one.name}: labels {names}"
        if one.type == "counter" and not sample.name.endswith("_total"):
            yield f"{one.name}: series {sample.name} of a counter"
    if any(len(sets) > 1 for sets in labels.values()):
        yield f"{one.name}: not all series have the same labels"
    if len({tuple(sorted(sample.labels.items())) for sample in one.samples}) > LABELS_MAX:
        yield f"{one.name}: too many series"


def test_every_metric_keeps_the_conventions(node: Node) -> None:
    metrics = families(node.metrics_registry)
    assert len(metrics) > 100
    assert not complaints(metrics)


def test_the_process_has_the_usual_names(node: Node) -> None:
    names = {sample.name for one in families(node.metrics_registry) for sample in one.samples}
    assert names >= {
        "process_cpu_seconds_total",
        "process_resident_memory_bytes",
        "process_virtual_memory_bytes",
        "process_start_time_seconds",
        "process_open_fds",
        "process_max_fds",
    }


def test_there_are_no_series_of_creation_times(node: Node) -> None:
    assert "_created" not in generate_latest(node.metrics_registry).decode()


def test_histograms_have_buckets_in_order_up_to_infinity(node: Node) -> None:
    histograms = [one for one in families(node.metrics_registry) if one.type == "histogram"]
    assert len(histograms) == 5
    for one in histograms:
        bounds = [sample.labels["le"] for sample in one.samples if sample.name.endswith("_bucket")]
        values = [float(bound) for bound in bounds]
        assert values == sorted(set(values)), one.name
        assert bounds[-1] == "+Inf"
        assert 8 <= len(bounds) <= 20, one.name
        assert values[0] <= 0.001, one.name
        assert 1 <= values[-2] <= 60, one.name


def test_the_balancers_reasons_are_few() -> None:
    """They are a label."""
    assert len(StealReason) < 40


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("evenkeel_wait_ms", "How long it waits."),
        ("evenkeel_bytes_per_second", "What comes in."),
        ("evenkeel_bytes_read", "What was read so far."),
        ("evenkeel_things_gauge", "How many there are."),
        ("other_things", "How many there are."),
        ("evenkeel_things", "How many there are"),
        ("evenkeel_things", "Written."),
        ("evenkeel_things", "0: nothing is there."),
        ("evenkeel_things", "Bytes read by them."),
        ("evenkeel_things", "how many there are."),
    ],
)
def test_what_is_unusual_is_noticed(name: str, text: str) -> None:
    registry = CollectorRegistry()
    Gauge(name, text, registry=registry)
    assert complaints(families(registry))


def test_what_is_usual_is_not() -> None:
    disable_created_metrics()  # type: ignore[no-untyped-call]  # as every node does
    registry = CollectorRegistry()
    Gauge("evenkeel_held_bytes", "Bytes that are held.", ["kind"], registry=registry)
    Counter("evenkeel_reads", "Reads of the whole log.", registry=registry).inc()
    Histogram("evenkeel_read_seconds", "How long reads took.", registry=registry)
    assert not complaints(families(registry))
