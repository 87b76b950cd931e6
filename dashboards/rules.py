"""What Prometheus computes and watches: recording rules and alerts as values.

The alerts are in alerts.py; `make dashboards` writes all of it to prometheus/*.yml. An alert keeps
its value apart from the condition on it (`when`), so that a test can check that the value exists in
a healthy cluster, where the condition does not hold.

Labels: `cluster` and `node` come from the list of targets (`targets.json`), all others from the
node. In what a node reports about another one, that one's number has another label (`peer`).
"""

from collections.abc import Sequence
from typing import Final

import attrs

RUNBOOKS: Final = "docs/runbooks"


@attrs.frozen
class Recording:
    """`cluster_node:...` names the labels that are left."""

    name: str
    expr: str


@attrs.frozen(kw_only=True)
class Alert:
    name: str
    value: str
    when: str
    lasts: str = "0s"
    """How long the condition must hold before the alert fires."""
    severity: str
    """critical: look now. warning: look today. info: good to know."""
    summary: str
    description: str

    @property
    def expr(self) -> str:
        return f"{self.value} {self.when}"

    @property
    def page(self) -> str:
        return f"{RUNBOOKS}/{self.name}.md"


RECORDINGS: Final[Sequence[Recording]] = (
    Recording(
        "cluster_node:evenkeel_masters:sum",
        "sum by (cluster, node) (evenkeel_group_acting)",
    ),
    Recording(
        "cluster_group:evenkeel_group_acting:sum",
        "sum by (cluster, group) (evenkeel_group_acting)",
    ),
    Recording(
        "cluster_node:evenkeel_lease_left:ratio",
        "min by (cluster, node) (evenkeel_lease_remaining_seconds"
        " and on (cluster, node, group) evenkeel_group_acting == 1)"
        " / on (cluster, node) max by (cluster, node) (evenkeel_lease_seconds)",
    ),
    Recording(
        "cluster_node:evenkeel_cpu:ratio_rate5m",
        'sum by (cluster, node) (rate(process_cpu_seconds_total{job="evenkeel"}[5m]))',
    ),
    Recording(
        "cluster_node:evenkeel_produce_seconds:p95_5m",
        "histogram_quantile(0.95,"
        " sum by (cluster, node, le) (rate(evenkeel_produce_seconds_bucket[5m])))",
    ),
    Recording(
        "cluster_node:evenkeel_fetch_seconds:p95_5m",
        "histogram_quantile(0.95,"
        " sum by (cluster, node, le) (rate(evenkeel_fetch_seconds_bucket[5m])))",
    ),
    Recording(
        "cluster_node:evenkeel_wal_sync_seconds:p99_5m",
        "histogram_quantile(0.99,"
        " sum by (cluster, node, le) (rate(evenkeel_wal_sync_seconds_bucket[5m])))",
    ),
    Recording(
        "cluster_node:evenkeel_errors:ratio_rate5m",
        "sum by (cluster, node) (rate(evenkeel_errors_total[5m]))"
        " / (sum by (cluster, node) (rate(evenkeel_produce_requests_total[5m]))"
        " + sum by (cluster, node) (rate(evenkeel_fetch_requests_total[5m])))",
    ),
    Recording(
        "cluster_node:evenkeel_disk_used:ratio",
        "sum by (cluster, node) (evenkeel_disk_held_bytes)"
        " / on (cluster, node) max by (cluster, node) (evenkeel_disk_limit_bytes)",
    ),
    Recording(
        "cluster_node:evenkeel_damage:sum",
        "sum by (cluster, node) (evenkeel_log_damage_total)"
        " + sum by (cluster, node) (evenkeel_cold_damage_total)",
    ),
    Recording(  # a moved coordinator must not start a new series
        "cluster_consumer_group_topic:evenkeel_consumer_lag:max",
        "max by (cluster, consumer_group, topic) (evenkeel_consumer_lag)",
    ),
    Recording(
        "cluster_consumer_group_topic:evenkeel_consumer_committed:max",
        "max by (cluster, consumer_group, topic) (evenkeel_consumer_committed)",
    ),
)
