"""Metrics of what clients may do: denials by operation, and the audit log."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from broker.requests.context import Broker
from wire.acls import Operation, titled

_OPERATIONS = tuple(titled(one) for one in Operation if one > Operation.ALL)
"""All labels there can be."""


def authorization_metrics(broker: Broker) -> Iterator[Metric]:
    """Zero everywhere where there is no authorizer."""
    authorizer = broker.authorizer
    denied = CounterMetricFamily(
        "evenkeel_access_denied", "What clients wanted and may not.", labels=["operation"]
    )
    for operation in _OPERATIONS:
        count = 0 if authorizer is None else authorizer.denied[operation]
        denied.add_metric([operation], count)
    yield denied
    left_out = 0 if authorizer is None or authorizer.audit is None else authorizer.audit.left_out
    yield CounterMetricFamily(
        "evenkeel_audit_entries_left_out",
        "Entries beyond the audit log's limit per second.",
        value=left_out,
    )
    yield GaugeMetricFamily(
        "evenkeel_access_rules",
        "Rules in this node's copy of the registry.",
        value=len(broker.registry.security.rules),
    )
