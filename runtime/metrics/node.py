"""Metrics of the node itself and its limits, with which alerts compare other metrics."""

import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from balancer.registry.registry import Registry
from runtime.clients.clients import Clients
from runtime.engine.engine import Engine
from runtime.membership.quorum_contact import QuorumContact
from wire.software import CLUSTER_VERSION_NEWEST, VERSION

NODE_STATES: Final = ("serving", "draining", "dead")


class NodeFacts:
    """`not_ready` is the shell's once it is set: why clients should not come yet, or ""."""

    def __init__(self, engine: Engine, clients: Clients, registry: Registry) -> None:
        self._engine, self._clients, self._registry = engine, clients, registry
        self._started_wall_ns = engine.now().wall_ns
        self.not_ready: Callable[[], str] = lambda: "still starting"
        self.contact: QuorumContact | None = None

    def collect(self) -> Iterable[Metric]:
        engine, registry = self._engine, self._registry
        info = GaugeMetricFamily(
            "evenkeel_node_info",
            "Always 1: what runs, and whether it syncs what it acknowledges.",
            labels=["version", "durability"],
        )
        info.add_metric([VERSION, engine.wal.statistics().durability.value], 1)
        yield info
        version = registry.cluster_version.version
        yield _gauge("evenkeel_cluster_version", "What may be written to the logs.", version)
        newest = CLUSTER_VERSION_NEWEST
        yield _gauge("evenkeel_cluster_version_readable", "The newest this node reads.", newest)
        yield _gauge("evenkeel_ready", "0: /readyz says why.", int(not self.not_ready()))
        started = self._started_wall_ns / 1e9
        yield _gauge("evenkeel_start_time_seconds", "Since 1970.", started)
        cpu = CounterMetricFamily(
            "evenkeel_cpu_seconds", "CPU time of all threads.", value=time.process_time()
        )
        yield cpu
        timing, limits = engine.multi.timing, self._clients.limits
        yield _gauge("evenkeel_lease_seconds", "Duration of a lease.", timing.lease_ns / 1e9)
        yield _gauge("evenkeel_clock_margin_seconds", "Clock bound.", timing.margin_ns / 1e9)
        most = limits.pending_bytes_per_node
        yield _gauge("evenkeel_unanswered_limit_bytes", "Above, sockets are not read.", most)
        yield _gauge("evenkeel_connections_limit", "More are refused.", limits.connections_max)
        if self.contact is not None:
            text = "1: no majority answers this node, and it sends its clients to others."
            yield _gauge("evenkeel_cut_off", text, int(self.contact.cut_off))
        yield self._nodes()
        yield _gauge("evenkeel_balancer_paused", "1: nothing is moved.", int(registry.paused))
        yield _gauge("evenkeel_groups_paused", "Not balanced.", len(registry.paused_groups))

    def _nodes(self) -> Metric:
        """The cluster's nodes by state, as this one sees them."""
        alive = self._engine.alive()
        states: Counter[str] = Counter()
        for number, node in self._registry.nodes.items():
            leaves = node.draining or node.leaving
            states["dead" if number not in alive else "draining" if leaves else "serving"] += 1
        nodes = GaugeMetricFamily("evenkeel_nodes", "Registered nodes.", labels=["state"])
        for state in NODE_STATES:
            nodes.add_metric([state], states[state])
        return nodes


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
