"""A whole node deletes what is too old by its topic's settings, and reports what it keeps."""

import time
from pathlib import Path

from prometheus_client import generate_latest

from balancer.registry.commands import ConfigureTopic, CreateTopic
from broker.proposals.commands import records
from node import Node
from tests.runtime.one_node import one_node, run_until
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

HOUR_MS = 3_600_000


def produced(node: Node, topic: str, *ages_ms: int) -> None:
    """One batch for each age."""
    known = node.registry.topic(topic)
    assert known is not None
    uid, group = known.partitions[0]
    for age_ms in ages_ms:
        outcomes: list[object] = []
        when = time.time_ns() // 1_000_000 - age_ms
        batch = memoryview(build_batch([Record(b"x", timestamp_ms=when)]))
        node.engine.submit(group, records(uid, batch), outcomes.append)
        run_until(node, lambda outcomes=outcomes: outcomes)


def test_old_records_go_and_others_stay(tmp_path: Path) -> None:
    with one_node(tmp_path, "storage.retention_check_ms=20", groups=1) as node:
        run_until(node, lambda: node.registry.cluster is not None and node.registry.placement)
        run_until(node, lambda: all(map(node.engine.acting, node.engine.intakes)))
        made: list[object] = []
        node.client.propose(CreateTopic("t", b"t" * 16, 1, 1), made.append)
        node.client.propose(
            CreateTopic("kept", b"k" * 16, 1, 1, {"retention.ms": "-1"}), made.append
        )
        run_until(node, lambda: len(made) == 2)
        produced(node, "kept", 1_000 * HOUR_MS)
        produced(node, "t", 1_000 * HOUR_MS, 2 * HOUR_MS, 0)  # the default is a week
        statistics = node.broker.statistics
        run_until(node, lambda: statistics.retention_records == 1)
        node.client.propose(
            ConfigureTopic("t", b"t" * 16, {"retention.ms": str(HOUR_MS)}), made.append
        )
        run_until(node, lambda: statistics.retention_records == 2)
        retention = node.broker.retention
        run_until(
            node,
            lambda: "t" in retention.sizes and retention.sizes["t"].records == 1,
        )
        shown = generate_latest(node.metrics_registry).decode()
        assert 'evenkeel_topic_records{topic="t"} 1.0' in shown
        assert 'evenkeel_topic_records{topic="kept"} 1.0' in shown
        assert 'evenkeel_partition_log_start{partition="0",topic="t"} 2.0' in shown
        assert "evenkeel_retention_records_total 2.0" in shown
