"""Metrics of a node's topics; the number of labels is limited, for any number of topics.

Sizes are those of the last retention pass over all partitions (broker.lifecycle.retention), so
that a scrape costs almost nothing. First offsets are only shown if there are few partitions.
"""

from collections.abc import Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from broker.requests.context import Broker

TOPICS_SHOWN_MAX: Final = 200
"""The largest topics are shown; the others are summed up."""
PARTITIONS_SHOWN_MAX: Final = 200
"""If this node has more partitions, no first offsets are shown."""
OTHERS: Final = "(others)"
"""No topic can have this name."""


def topic_metrics(broker: Broker) -> Iterable[Metric]:
    held = GaugeMetricFamily(
        "evenkeel_topic_bytes",
        "Size of the topic on this node, in log and cold segments.",
        labels=["topic"],
    )
    records = GaugeMetricFamily(
        "evenkeel_topic_records", "Offsets from first to last of all partitions.", labels=["topic"]
    )
    sizes = sorted(broker.retention.sizes.items(), key=lambda one: one[1].bytes, reverse=True)
    shown, others = sizes[:TOPICS_SHOWN_MAX], sizes[TOPICS_SHOWN_MAX:]
    for topic, size in shown:
        held.add_metric([topic], size.bytes)
        records.add_metric([topic], size.records)
    if others:
        held.add_metric([OTHERS], sum(size.bytes for _, size in others))
        records.add_metric([OTHERS], sum(size.records for _, size in others))
    yield from (held, records, _log_starts(broker))


def _log_starts(broker: Broker) -> Metric:
    starts = GaugeMetricFamily(
        "evenkeel_partition_log_start",
        "First offset of each partition, if there are few.",
        labels=["topic", "partition"],
    )
    count = sum(len(machine.partitions) for machine in broker.machines.values())
    if count > PARTITIONS_SHOWN_MAX:
        return starts
    for machine in broker.machines.values():
        for uid, state in machine.partitions.items():
            partition = broker.registry.partition(uid)
            if partition is not None:
                starts.add_metric([partition.topic, str(partition.index)], state.log_start)
    return starts
