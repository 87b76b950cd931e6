"""Metrics of this node's listeners for Kafka clients, of its links, and of their certificates."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.clients.doors import Entrances
from runtime.peers.peers import Peers


class ListenerMetrics(Collector):
    def __init__(self, registry: CollectorRegistry, entrances: Entrances, peers: Peers) -> None:
        self._entrances, self._peers = entrances, peers
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        here = self._entrances
        yield GaugeMetricFamily(
            "evenkeel_insecure_listeners",
            "Listeners that other machines reach, and that prove nobody.",
            value=len(here.insecure),
        )
        yield CounterMetricFamily(
            "evenkeel_tls_handshakes",
            "TLS handshakes of clients.",
            value=here.handshakes.done_total,
        )
        yield CounterMetricFamily(
            "evenkeel_tls_handshakes_failed",
            "TLS handshakes of clients that failed.",
            value=here.handshakes.failed_total,
        )
        yield from self._links()
        yield from self._files()

    def _links(self) -> Iterable[Metric]:
        peers = self._peers
        handshakes = peers.security.handshakes
        yield CounterMetricFamily(
            "evenkeel_peer_tls_handshakes",
            "TLS handshakes on links between nodes, of both sides.",
            value=0 if handshakes is None else handshakes.done_total,
        )
        yield CounterMetricFamily(
            "evenkeel_peer_tls_handshakes_failed",
            "TLS handshakes on links between nodes that failed.",
            value=0 if handshakes is None else handshakes.failed_total,
        )
        yield CounterMetricFamily(
            "evenkeel_peer_connections_refused",
            "Connections to the port for nodes that were not let in.",
            value=peers.refused_total,
        )
        encrypted = GaugeMetricFamily(
            "evenkeel_peer_encrypted",
            "1 if both connections of the link to the peer are encrypted; nothing if it is down.",
            labels=["peer"],
        )
        for node in peers.outgoing:
            if peers.connected(node):
                encrypted.add_metric([str(node)], int(peers.encrypted(node)))
        yield encrypted

    def _files(self) -> Iterable[Metric]:
        used = {"": self._entrances.contexts, "peer ": self._peers.security.contexts}
        expires = GaugeMetricFamily(
            "evenkeel_tls_expires_timestamp_seconds",
            "When the first certificate of a chain of the node's expires, and the last authority "
            "of clients or of nodes.",
            labels=["of"],
        )
        refused = GaugeMetricFamily(
            "evenkeel_tls_files_refused",
            "Whether the TLS files have changed, and are wrong: the old ones are in use.",
        )
        for of, contexts in used.items():
            if contexts is not None:
                expires.add_metric([f"{of}certificate"], contexts.expires_s)
                if contexts.authorities_expire_s is not None:
                    last = contexts.authorities_expire_s
                    expires.add_metric([f"{of or 'client '}authority"], last)
        complaints = [one.complaint for one in used.values() if one is not None]
        if complaints:
            refused.add_metric([], float(any(complaints)))
        yield expires
        yield refused
