"""Metrics of who came in and who did not: by listener and mechanism, whose number is bounded; never
by user."""

from collections import Counter
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from broker.security.authentication import Authentication, CutOff

_LABELS = ("listener", "mechanism")


class AuthenticationMetrics(Collector):
    """Zero, or without samples, where no listener asks for authentication."""

    def __init__(
        self,
        registry: CollectorRegistry,
        authentication: Authentication | None,
        cut_off: Mapping[CutOff, int],
    ) -> None:
        self._authentication, self._cut_off = authentication, cut_off
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        here = self._authentication
        none: Counter[tuple[str, str]] = Counter()
        for name, text, counts in (
            (
                "evenkeel_authentications_succeeded",
                "Clients that have proved who they are.",
                here and here.succeeded,
            ),
            (
                "evenkeel_authentications_failed",
                "Clients that could not prove who they are.",
                here and here.failed,
            ),
            (
                "evenkeel_authentications_renewed",
                "Sessions that were renewed (KIP-368).",
                here and here.renewed,
            ),
        ):
            family = CounterMetricFamily(name, text, labels=_LABELS)
            for labels, count in sorted((counts or none).items()):
                family.add_metric(labels, count)
            yield family
        closed = CounterMetricFamily(
            "evenkeel_connections_cut_off",
            "Open connections that were closed because their client is no longer believed.",
            labels=["why"],
        )
        for why in CutOff:
            of_gate = 0 if here is None else here.cut_off[why]
            closed.add_metric([why.value], self._cut_off.get(why, 0) + of_gate)
        yield closed
        yield from self._keys()

    def _keys(self) -> Iterable[Metric]:
        here = self._authentication
        keys = None if here is None else here.keys
        number = 0 if keys is None or keys.current is None else len(keys.current.keys)
        yield GaugeMetricFamily(
            "evenkeel_token_keys", "Keys that access tokens may be signed with.", value=number
        )
        yield GaugeMetricFamily(
            "evenkeel_token_keys_refused",
            "Whether the keys of access tokens could not be read the last time: the old ones stay.",
            value=0 if keys is None else float(bool(keys.complaint)),
        )
        yield CounterMetricFamily(
            "evenkeel_token_keys_unknown",
            "Access tokens that were signed with another key.",
            value=0 if keys is None else keys.unknown_total,
        )
