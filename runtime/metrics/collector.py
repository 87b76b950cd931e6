"""Prometheus metrics: one Collector reads the parts' statistics when it is scraped.

Histograms need single observations (syncs, steals): the parts keep them in bounded lists, and a
tick moves them. Nothing on the hot path uses prometheus-client.
"""

from collections import Counter, deque
from collections.abc import Iterable
from itertools import accumulate
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from balancer.registry.records import Outcome
from broker.requests.context import Broker
from broker.traffic import BOUNDS_MS, Latency, Traffic
from paxos.ids import NOBODY
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.clients.clients import Clients
from runtime.engine.engine import Engine
from runtime.metrics.authorization import authorization_metrics
from runtime.metrics.consumers import consumer_metrics
from runtime.metrics.node import NodeFacts
from runtime.metrics.quotas import quota_metrics
from runtime.metrics.topics import topic_metrics
from runtime.peers.peers import Peers
from wire.error_codes import ErrorCode

FSYNC_BUCKETS: Final = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2.0)
TICK_GAPS_KEPT: Final = 60
"""One per second: the longest of the last minute is shown, at any scrape interval."""
STEAL_BUCKETS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)

ERRORS_SHOWN: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)
"""Errors that are shown even at 0, because a rate needs a first value; others only once they
occur."""

BROKER_COUNTERS: Final = {
    "produce_requests": "Produce requests received.",
    "produce_batches": "Record batches accepted.",
    "produce_records": "Records in accepted batches.",
    "produce_bytes": "Bytes in accepted batches.",
    "produce_read_aside": "Batches whose records a background thread validated.",
    "produce_timeouts": "Produce requests answered with a time-out.",
    "produce_behind_refusal": "Batches refused because an earlier one of their connection was.",
    "duplicates": "Batches sent again, by idempotent producers or under write tokens.",
    "fetch_requests": "Fetch requests received.",
    "fetch_bytes": "Bytes of record batches sent to consumers.",
    "fetched_unaware": "Partitions read for clients that do not know of a move.",
    "fetches_parked": "Fetches that waited for data.",
    "reads_given_up": "Fetches answered without data that the disk did not deliver in time.",
    "fetches_refused": "Fetches answered at once because too many wait.",
    "list_offsets_requests": "ListOffsets requests received.",
    "log_reads": "Reads of the log for consumers behind the memory tail.",
    "log_bytes": "Bytes of the log read for consumers behind the memory tail.",
    "cold_reads": "Reads of cold segments, for consumers behind the log.",
    "cold_bytes": "Bytes of cold segments read for consumers behind the log.",
    "retention_trims": "Deletions of old records that this node proposed as master.",
    "retention_records": "Records deleted by retention.",
    "damaged_reads": "Batches that had a wrong checksum when read.",
}


class NodeMetrics(Collector):
    """All metrics of a node; `tick` moves single observations into the histograms."""

    def __init__(
        self,
        registry: CollectorRegistry,
        engine: Engine,
        broker: Broker,
        loop: BalancingLoop,
        clients: Clients,
        peers: Peers,
    ) -> None:
        self._engine, self._broker, self._loop = engine, broker, loop
        self._clients, self._peers = clients, peers
        self.facts = NodeFacts(engine, clients, broker.registry)
        # Nobody queries when a histogram began; the library has no types for this call.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._tick_gaps_ns: deque[int] = deque(maxlen=TICK_GAPS_KEPT)
        self._fsync = Histogram(
            "evenkeel_wal_sync_seconds",
            "Time until one batch of all Paxos groups was durable.",
            buckets=FSYNC_BUCKETS,
            registry=registry,
        )
        self._steal = Histogram(
            "evenkeel_steal_seconds",
            "Duration of steals this node made, from asking for the token.",
            buckets=STEAL_BUCKETS,
            registry=registry,
        )
        self._phase = Histogram(
            "evenkeel_steal_phase_seconds",
            "Duration of each phase of the steals this node made.",
            ["phase"],
            buckets=STEAL_BUCKETS,
            registry=registry,
        )
        registry.register(self)
        ProcessCollector(registry=registry)  # process_*, as every exporter names them

    def tick(self) -> None:
        """Called once a second."""
        engine, writer, loop = self._engine.statistics, self._engine.writer, self._loop
        self._tick_gaps_ns.append(engine.loop_lag_ns_max)
        engine.loop_lag_ns_max = 0
        syncs, writer.durations_s = writer.durations_s, []
        for seconds in syncs:
            self._fsync.observe(seconds)
        steals, loop.durations_s = loop.durations_s, []
        for seconds in steals:
            self._steal.observe(seconds)
        phases, loop.phases_s = loop.phases_s, []
        for phase, seconds in phases:
            self._phase.labels(phase).observe(seconds)

    def collect(self) -> Iterable[Metric]:
        yield from self.facts.collect()
        yield from self._groups()
        yield from self._disk()
        yield from self._engine_and_log()
        yield from self._kafka()
        yield from latency_metrics(self._broker.traffic)
        yield from consumer_metrics(self._broker)
        yield from authorization_metrics(self._broker)
        yield from topic_metrics(self._broker)
        yield from quota_metrics(self._broker.quotas)
        yield from self._links()

    def _groups(self) -> Iterable[Metric]:
        now = self._engine.now()
        masters: Counter[str] = Counter(none=0)
        labels = ["group"]
        left = GaugeMetricFamily(
            "evenkeel_lease_remaining_seconds",
            "Time until the Paxos group's lease ends.",
            labels=labels,
        )
        lag = GaugeMetricFamily(
            "evenkeel_group_slots_behind", "Slots chosen and not yet applied here.", labels=labels
        )
        acting = GaugeMetricFamily(
            "evenkeel_group_acting",
            "1 if this node acts as master of the Paxos group.",
            labels=labels,
        )
        misplaced = GaugeMetricFamily(
            "evenkeel_group_misplaced",
            "1 if the Paxos group's master is not the ideal one.",
            labels=labels,
        )
        diverged = GaugeMetricFamily(
            "evenkeel_group_diverged",
            "Members whose log differs from this node's: alert on anything but 0.",
            labels=labels,
        )
        placement = self._broker.registry.placement
        for one in self._engine.multi.statistics(now):
            group = str(one.group)
            masters["none" if one.holder == NOBODY else str(one.holder)] += 1
            left.add_metric([group], one.lease_left_ns / 1e9)
            lag.add_metric([group], max(0, one.chosen_to - one.applied))
            acting.add_metric([group], int(one.acting))
            diverged.add_metric([group], len(one.diverged))
            ideal = placement.get(one.group)
            misplaced.add_metric([group], int(ideal is not None and ideal != one.holder))
        by_master = GaugeMetricFamily(
            "evenkeel_groups", "Paxos groups by master, as this node sees it.", labels=["master"]
        )
        for master, count in sorted(masters.items()):
            by_master.add_metric([master], count)
        terms = CounterMetricFamily(
            "evenkeel_masterships",
            "How often this node became master of the Paxos group.",
            labels=labels,
        )
        for number, count in sorted(self._engine.masterships.counts.items()):
            terms.add_metric([str(number)], count)
        yield from (by_master, terms, left, lag, acting, misplaced, diverged)

    def _engine_and_log(self) -> Iterable[Metric]:
        engine, wal = self._engine.statistics, self._engine.wal.statistics()
        forwards = self._engine.forwards
        yield _counter("evenkeel_proposals", "Entries this node proposed.", engine.proposals)
        yield _counter(
            "evenkeel_commands", "Commands of clients that this node accepted.", engine.commands
        )
        yield _counter(
            "evenkeel_entries_applied", "Entries applied, all Paxos groups.", engine.applied
        )
        yield _counter(
            "evenkeel_forwarded",
            "Commands forwarded to the masters of their Paxos groups.",
            engine.forwarded_out,
        )
        yield _counter(
            "evenkeel_forwarded_unaware",
            "Commands forwarded for clients that do not know of a move.",
            engine.forwarded_unaware,
        )
        yield _counter(
            "evenkeel_forwards_received",
            "Commands that other nodes forwarded to this one.",
            engine.forwarded_in,
        )
        yield _counter(
            "evenkeel_forward_timeouts",
            "Forwarded commands that were not answered in time.",
            forwards.timeouts,
        )
        yield _counter("evenkeel_wal_bytes", "Bytes staged into the log.", wal.bytes_staged)
        yield _counter("evenkeel_wal_records", "Records staged into the log.", wal.records)
        yield _counter("evenkeel_wal_syncs", "Batches of the log made durable.", wal.syncs)
        yield _gauge("evenkeel_wal_segments", "Segment files in use.", wal.segments)
        yield _gauge(
            "evenkeel_wal_unwritten_bytes",
            "Bytes staged into the log and not durable yet.",
            wal.bytes_unwritten,
        )
        gap_ns = max(engine.loop_lag_ns_max, *self._tick_gaps_ns, 0)
        text = "Longest gap between ticks in the last minute."
        yield _gauge("evenkeel_tick_gap_seconds", text, gap_ns / 1e9)
        trusted = int(self._engine.clock.trusted)
        yield _gauge("evenkeel_clock_trusted", "1 if this node trusts its clock.", trusted)
        stops = self._engine.clock.trust.stood_still
        yield _counter(
            "evenkeel_clock_stood_still",
            "How often a clock was seen to have stood still, ours or a peer's.",
            stops,
        )
        differing = len(self._engine.terms.differing)
        text = "Nodes whose lease settings differ from ours."
        yield _gauge("evenkeel_lease_settings_differ", text, differing)
        steals = CounterMetricFamily(
            "evenkeel_steals", "Steals this node made, by outcome.", labels=["outcome"]
        )
        for outcome in Outcome:
            name = outcome.name.lower()
            steals.add_metric([name], self._loop.outcomes[name])
        yield steals

    def _disk(self) -> Iterable[Metric]:
        engine, room = self._engine, self._engine.writer.room
        repairs, scrubber = engine.repairs, engine.scrubber
        silent = sum(replica.rejoin is not None for replica in engine.multi.replicas.values())
        yield _gauge(
            "evenkeel_groups_non_voting", "Paxos groups this node may not vote in.", silent
        )
        yield _counter("evenkeel_log_damage", "Damaged places found in the log.", repairs.found)
        yield _gauge(
            "evenkeel_entries_missing",
            "Damaged entries that are not repaired yet.",
            repairs.missing,
        )
        yield _counter(
            "evenkeel_entries_repaired",
            "Damaged entries learned again from peers.",
            repairs.repaired,
        )
        if scrubber is not None:
            yield _counter(
                "evenkeel_scrubbed_bytes",
                "Bytes of the log that were read again to find damage.",
                scrubber.bytes_read,
            )
            yield _counter(
                "evenkeel_scrub_errors",
                "Reads of the scrubber that the disk failed.",
                scrubber.errors,
            )
        free = GaugeMetricFamily("evenkeel_disk_free_bytes", "Bytes free for the data directory.")
        if room is not None:  # first measured a moment after the start
            free.add_metric([], room.free_bytes)
        yield free
        yield _gauge(
            "evenkeel_disk_low",
            "1 if the disk is nearly full and writes are refused.",
            int(engine.disk_pressure.low),
        )
        yield _gauge(
            "evenkeel_disk_stuck",
            "1 if the disk is full and this node pauses.",
            int(engine.disk_pressure.stuck),
        )
        health = engine.disk_health
        yield _gauge(
            "evenkeel_disk_hung", "1 if the disk hangs and masters are given up.", int(health.hung)
        )
        yield _gauge(
            "evenkeel_disk_slow",
            "1 if the disk is slow and masters are given away.",
            int(health.slow),
        )
        text = "How long the current batch has waited for the disk."
        yield _gauge("evenkeel_disk_waiting_seconds", text, health.waited_ns / 1e9)
        refused = engine.statistics.refused_disk_full
        yield _counter(
            "evenkeel_refused_disk_full",
            "Commands refused because the disk is nearly full.",
            refused,
        )

    def _kafka(self) -> Iterable[Metric]:
        statistics = self._broker.statistics
        for name, text in BROKER_COUNTERS.items():
            yield _counter(f"evenkeel_{name}", text, getattr(statistics, name))
        errors = CounterMetricFamily(
            "evenkeel_errors",
            "Partitions answered with an error, by Kafka's error code.",
            labels=["code"],
        )
        counts = dict.fromkeys(map(int, ERRORS_SHOWN), 0) | statistics.errors
        for code, count in sorted(counts.items()):
            errors.add_metric([str(int(code))], count)
        yield errors
        clients = self._clients
        yield _gauge("evenkeel_connections", "Open Kafka connections.", len(clients.connections))
        yield _counter(
            "evenkeel_connections_accepted", "Kafka connections accepted.", clients.accepted_total
        )
        yield _counter(
            "evenkeel_connections_refused",
            "Kafka connections refused over a limit.",
            clients.refused_total,
        )
        yield _counter(
            "evenkeel_connections_displaced",
            "Unused connections closed in favour of new ones.",
            clients.displaced_total,
        )
        held = GaugeMetricFamily(
            "evenkeel_buffer_bytes", "Memory used for connections, by kind.", labels=["kind"]
        )
        for kind, size in clients.memory.by_kind().items():
            held.add_metric([kind], size)
        held.add_metric(["to-peers"], self._peers.unsent_bytes)
        yield held
        yield self._burdens()
        yield _counter(
            "evenkeel_memory_waits", "Requests that waited for memory.", clients.memory.waits
        )
        unanswered = clients.unanswered_bytes
        yield _gauge("evenkeel_unanswered_bytes", "Bytes of requests in progress.", unanswered)

    def _burdens(self) -> Metric:
        broker = self._broker
        held = GaugeMetricFamily(
            "evenkeel_request_memory_bytes",
            "Memory of requests besides their bytes, roughly.",
            labels=["kind"],
        )
        held.add_metric(["decoded"], broker.request_memory.decoded)
        held.add_metric(["decompressed"], broker.request_memory.unpacked)
        held.add_metric(["parked"], broker.delayed_fetches.bytes)
        held.add_metric(["portions"], broker.portions.bytes)
        return held

    def _links(self) -> Iterable[Metric]:
        up = GaugeMetricFamily(
            "evenkeel_peer_up", "1 if the link to the peer works.", labels=["peer"]
        )
        dropped = CounterMetricFamily(
            "evenkeel_peer_dropped",
            "Frames dropped because the queue to the peer was full.",
            labels=["peer"],
        )
        for node, link in self._peers.outgoing.items():
            up.add_metric([str(node)], int(self._peers.connected(node)))
            dropped.add_metric([str(node)], link.dropped)
        offsets = GaugeMetricFamily(
            "evenkeel_clock_offset_seconds", "Peer's wall clock minus ours.", labels=["peer"]
        )
        for node, offset in sorted(self._engine.clock.offsets_ns.items()):
            offsets.add_metric([str(node)], offset / 1e9)
        yield from (up, dropped, offsets)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def latency_metrics(traffic: Traffic) -> Iterable[Metric]:
    yield _histogram(
        "evenkeel_produce_seconds",
        "Time from a produce request to its answer; one request in eight is timed.",
        traffic.produce,
    )
    yield _histogram(
        "evenkeel_fetch_seconds",
        "Reading and answering a fetch, its wait for data left out; one in eight is timed.",
        traffic.fetch,
    )


def _histogram(name: str, text: str, latency: Latency) -> Metric:
    bounds = [*(str(bound / 1000) for bound in BOUNDS_MS), "+Inf"]
    buckets = list(zip(bounds, accumulate(latency.counts), strict=True))
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=latency.sum_ns / 1e9)
