"""Metrics of consumer groups and their lag, exported by the node that coordinates them.

Each consumer group belongs to one Paxos group, and only the master of that group exports it, so
each consumer group appears once in the cluster. A node only knows the ends of partitions in groups
that it is a member of; if not all nodes are members of all groups, the number of partitions of
unknown end is exported. The amount of work and of output per scrape is limited.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from balancer.registry.records import Topic
from broker.groups.forwarded_requests import RequestForwarding
from broker.requests.context import Broker
from coordinator.replicated.stored import StoredGroup
from coordinator.topics import ANY_TOPIC

OFFSETS_SEEN_MAX: Final = 5_000
"""Committed offsets that one scrape reads: about 6 ms of the event loop."""
ROWS_SHOWN_MAX: Final = 200
"""Rows of a consumer group and a topic: those with the largest lag; the others are summed up."""
OTHERS: Final = "(others)"
"""No topic can have this name."""


class _Row(NamedTuple):
    group: str
    topic: str
    lag: int
    committed: int


class _Lags:
    """The lags of all consumer groups that this node coordinates, at one moment."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._budget = OFFSETS_SEEN_MAX
        self.rows: list[_Row] = []
        self.unknown = 0
        """Partitions whose end this node does not know."""
        self.left_out = 0
        """Consumer groups that were left out, because they exceed the limit of a scrape."""
        for group in self._coordinated():
            if self._budget < group.offsets_count:
                self.left_out += 1
                continue
            self._budget -= group.offsets_count
            self.rows += self._rows(group)

    def _coordinated(self) -> Iterator[StoredGroup]:
        for number in self._broker.consumer_groups.coordinated():
            yield from self._broker.machines[number].consumer_groups.groups()

    def _rows(self, group: StoredGroup) -> Iterator[_Row]:
        for name, offsets in group.offsets.items():
            topic = self._broker.registry.topic(name)
            if topic is None:
                continue  # deleted; its offsets will be removed soon
            lag = committed = 0
            for partition, stored in offsets.items():
                if not _is_of(topic, partition, stored.uid):
                    continue  # committed for an earlier topic of this name
                bounds = self._bounds(topic, partition)
                if bounds is None:
                    self.unknown += 1
                else:
                    start, end = bounds
                    committed += stored.offset
                    lag += max(0, end - max(start, stored.offset))
            yield _Row(group.name, name, lag, committed)

    def _bounds(self, topic: Topic, partition: int) -> tuple[int, int] | None:
        """The first and the next offset; records removed by retention are not a lag."""
        if partition >= len(topic.partitions):
            return None
        place = topic.partitions[partition]
        machine = self._broker.machines.get(place.group)
        state = None if machine is None else machine.partitions.get(place.uid)
        if state is None:  # nothing was ever appended, or only other nodes have it
            return None if machine is None else (0, 0)
        return state.log_start, state.next_offset


def _is_of(topic: Topic, partition: int, uid: int) -> bool:
    there = topic.partitions[partition : partition + 1]
    return uid == ANY_TOPIC or not there or there[0].uid == uid


def consumer_metrics(broker: Broker) -> Iterable[Metric]:
    lags = _Lags(broker)
    labels = ["consumer_group", "topic"]
    lag = GaugeMetricFamily(
        "evenkeel_consumer_lag",
        "Records that exist and are not committed yet.",
        labels=labels,
    )
    committed = GaugeMetricFamily(
        "evenkeel_consumer_committed", "Committed offsets, summed over partitions.", labels=labels
    )
    rows = sorted(lags.rows, key=lambda row: row.lag, reverse=True)
    shown, others = rows[:ROWS_SHOWN_MAX], rows[ROWS_SHOWN_MAX:]
    if others:
        sums = sum(row.lag for row in others), sum(row.committed for row in others)
        shown.append(_Row(OTHERS, OTHERS, *sums))
    for row in shown:
        lag.add_metric([row.group, row.topic], row.lag)
        committed.add_metric([row.group, row.topic], row.committed)
    yield from (lag, committed)
    yield _gauge(
        "evenkeel_consumer_lag_unknown",
        "Partitions whose end this node does not know.",
        lags.unknown,
    )
    yield _gauge(
        "evenkeel_consumer_groups_left_out",
        "Consumer groups left out because they exceed the limit of a scrape.",
        lags.left_out,
    )
    yield from _coordinators(broker)


def _coordinators(broker: Broker) -> Iterable[Metric]:
    found = [one for _, one in broker.consumer_groups.statistics()]
    active = [one for one in found if one.active]
    groups = sum(one.groups_stored for one in active)
    yield _gauge("evenkeel_consumer_groups", "Consumer groups that this node coordinates.", groups)
    members = sum(one.members for one in active)
    yield _gauge(
        "evenkeel_consumer_members", "Members of the consumer groups coordinated here.", members
    )
    rebalances = sum(one.rebalances for one in found)
    yield CounterMetricFamily(
        "evenkeel_rebalances", "Rebalances of consumer groups coordinated here.", value=rebalances
    )
    expired = sum(one.sessions_expired for one in found)
    text = "Members removed after their session timeout."
    yield CounterMetricFamily("evenkeel_sessions_expired", text, value=expired)
    if broker.consumer_groups.forwarding is not None:
        yield from _forwarding(broker.consumer_groups.forwarding)


def _forwarding(forwarding: RequestForwarding) -> Iterable[Metric]:
    told = forwarding.statistics
    text = "Requests forwarded to nodes where coordinators have moved."
    yield _counter("evenkeel_group_requests_forwarded", text, told.forwarded)
    text = "Forwarded requests refused there: not the coordinator either."
    yield _counter("evenkeel_group_requests_returned", text, told.returned)
    yield _counter(
        "evenkeel_group_requests_unanswered",
        "Forwarded requests without an answer.",
        told.unanswered,
    )
    text = "Requests from nodes whose coordinators have moved here."
    yield _counter("evenkeel_group_requests_received", text, told.received)
    text = "Requests of other nodes that were too many, too late, or not understood."
    yield _counter("evenkeel_group_requests_refused", text, told.refused)
    under_way = GaugeMetricFamily(
        "evenkeel_group_requests_under_way",
        "Forwarded requests in progress, from clients and from peers.",
        labels=["from"],
    )
    under_way.add_metric(["clients"], forwarding.under_way)
    under_way.add_metric(["peers"], forwarding.guests)
    yield under_way


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
