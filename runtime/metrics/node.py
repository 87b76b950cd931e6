"""Metrics of the node itself and its limits, with which alerts compare other metrics."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

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
        self.not_ready: Callable[[], str] = lambda: "still starting"
        self.contact: QuorumContact | None = None

    def collect(self) -> Iterable[Metric]:
        engine, registry = self._engine, self._registry
        info = GaugeMetricFamily(
            "evenkeel_node_info",
            "Always 1; the labels tell what runs, and whether it syncs what it acknowledges.",
            labels=["version", "durability"],
        )
        info.add_metric([VERSION, engine.wal.statistics().durability.value], 1)
        yield info
        version = registry.cluster_version.version
        yield _gauge(
            "evenkeel_cluster_version", "Cluster version: what may be written to the logs.", version
        )
        yield _gauge(
            "evenkeel_cluster_version_readable",
            "Newest cluster version that this node can read.",
            CLUSTER_VERSION_NEWEST,
        )
        yield _gauge(
            "evenkeel_ready",
            "1 if clients should be sent to this node; if not, /readyz says why.",
            int(not self.not_ready()),
        )
        timing, limits = engine.multi.timing, self._clients.limits
        yield _gauge(
            "evenkeel_lease_seconds", "Configured duration of a lease.", timing.lease_ns / 1e9
        )
        yield _gauge(
            "evenkeel_clock_margin_seconds",
            "Configured bound of the difference between clocks.",
            timing.margin_ns / 1e9,
        )
        most = limits.pending_bytes_per_node
        yield _gauge(
            "evenkeel_unanswered_limit_bytes",
            "Bytes of requests in progress above which sockets are not read.",
            most,
        )
        yield _gauge(
            "evenkeel_connections_limit",
            "Kafka connections above which further ones are refused.",
            limits.connections_max,
        )
        if self.contact is not None:
            text = "1 if no majority answers this node, which then sends its clients to others."
            yield _gauge("evenkeel_cut_off", text, int(self.contact.cut_off))
        yield self._nodes()
        yield _gauge(
            "evenkeel_balancer_paused",
            "1 if the balancer is paused and moves nothing.",
            int(registry.paused),
        )
        yield _gauge(
            "evenkeel_groups_paused",
            "Paxos groups that the balancer leaves where they are.",
            len(registry.paused_groups),
        )

    def _nodes(self) -> Metric:
        """The cluster's nodes by state, as this one sees them."""
        alive = self._engine.alive()
        states: Counter[str] = Counter()
        for number, node in self._registry.nodes.items():
            leaves = node.draining or node.leaving
            states["dead" if number not in alive else "draining" if leaves else "serving"] += 1
        nodes = GaugeMetricFamily(
            "evenkeel_nodes", "Registered nodes by state, as seen by this node.", labels=["state"]
        )
        for state in NODE_STATES:
            nodes.add_metric([state], states[state])
        return nodes


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)
