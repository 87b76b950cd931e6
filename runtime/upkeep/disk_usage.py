"""The disk usage of this node's directory, and a forecast (broker.lifecycle.disk_forecast), for
operators.

It is computed after each retention pass: the loop collects the figures of topics, a thread lists
the directory and computes the rest. /metrics and GET /usage show the last result, so that a request
costs nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

import attrs

from broker.config import BrokerConfig
from broker.lifecycle.disk_forecast import Forecast, Limits, TopicForecast, TopicUse, forecast
from broker.lifecycle.growth_rates import Counter
from broker.lifecycle.retention import Retention, Segments, retention_of, segments_of
from broker.requests.context import Broker
from broker.topic_configs import is_compacted
from runtime.http.server import Answer, Route, json_answer
from runtime.system.worker import Worker
from storage.disk.files import Disk
from storage.usage import Usage, usage

TOPICS_SHOWN_MAX: Final = 200
"""The largest topics are shown; the others are summed up. It also limits the unbounded ones."""
PASSES_KNOWN: Final = 2
"""A rate needs this many retention passes."""


@attrs.frozen
class Look:
    """One result. `known`: rates are known, so that the forecast is meaningful."""

    usage: Usage
    forecast: Forecast
    measured_s: float
    known: bool


class DiskUse:
    """`log_bytes`: all bytes ever logged; `checkpoints`: the size of each group's last one."""

    def __init__(
        self,
        disk: Disk,
        broker: Broker,
        worker: Worker,
        log_bytes: Callable[[], int],
        checkpoints: Callable[[], Sequence[int]],
        limits: Limits,
    ) -> None:
        self._disk, self._broker, self._worker = disk, broker, worker
        self._log_bytes, self._checkpoints, self._limits = log_bytes, checkpoints, limits
        self._log_rate = Counter()
        self._passes_seen, self._busy = 0, False
        self._topics_seen = -1
        self._rules: dict[str, tuple[Retention | None, bool, Segments]] = {}
        self.last: Look | None = None

    def tick(self, now_ns: int) -> None:
        rates = self._broker.retention.rates
        if rates.passes == self._passes_seen or self._busy:
            return
        self._passes_seen, self._busy = rates.passes, True
        self._log_rate.see(self._log_bytes(), now_ns)
        topics, checkpoints = self._topics(), list(self._checkpoints())
        log_rate, measured_s = self._log_rate.per_s or 0.0, rates.measured_s
        known = rates.passes >= PASSES_KNOWN

        def work() -> Look:
            found = usage(self._disk)
            foretold = forecast(topics, found, checkpoints, log_rate, self._limits)
            return Look(found, foretold, measured_s, known)

        self._worker.submit(work, self._looked)

    def _looked(self, look: Look) -> None:
        self._busy, self.last = False, look

    def _topics(self) -> list[TopicUse]:
        retention, registry = self._broker.retention, self._broker.registry
        if self._topics_seen != registry.versions.topics:
            self._topics_seen = registry.versions.topics
            self._rules.clear()
        found = []
        for name, size in retention.sizes.items():
            if name not in self._rules:
                topic = registry.topic(name)
                if topic is None:  # deleted after the pass
                    continue
                self._rules[name] = _rules(topic.configs, self._broker.config)
            rules, compacted, segments = self._rules[name]
            found.append(
                TopicUse(
                    topic=name,
                    partitions=size.partitions,
                    log=size.log_bytes,
                    cold=size.bytes - size.log_bytes,
                    batches_in_log=size.log_batches,
                    rate=retention.rates.appended(name),
                    growth=retention.rates.growth(name),
                    rules=rules,
                    compacted=compacted,
                    segments=segments,
                )
            )
        return found

    # -- over HTTP ----------------------------------------------------------------------------

    def routes(self) -> dict[tuple[str, str], Route]:
        return {("GET", "/usage"): self.show}

    async def show(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        if self.last is None:
            return json_answer({"node": self._broker.me, "error": "not measured yet"}, 503)
        return json_answer({"node": self._broker.me, **look_as_json(self.last)})


def _rules(
    configs: Mapping[str, str], config: BrokerConfig
) -> tuple[Retention | None, bool, Segments]:
    return retention_of(configs, config), is_compacted(configs), segments_of(configs, config)


def held_by_kind(found: Usage) -> dict[str, int]:
    return {
        "log": found.log,
        "cold": found.cold_sum,
        "checkpoints": found.checkpoints,
        "reserve": found.reserve,
        "other": found.other,
    }


def look_as_json(look: Look) -> dict[str, Any]:
    """A result as JSON, in bytes and seconds. Unknown and infinite numbers are null."""
    foretold = look.forecast
    known = look.known
    topics = foretold.topics[:TOPICS_SHOWN_MAX]
    others = foretold.topics[TOPICS_SHOWN_MAX:]
    return {
        "held": held_by_kind(look.usage),
        "held_bytes": look.usage.held,
        "free_bytes": look.usage.free,
        "limit_bytes": foretold.limit,
        "usable_bytes": foretold.usable,
        "rates_known": known,
        "measured_s": round(look.measured_s, 1),
        "predicted_bytes": round(foretold.predicted) if known else None,
        "bound_bytes": round(foretold.bound) if known else None,
        "fits": foretold.fits if known else None,
        "full_in_s": None if not known or foretold.full_in_s == inf else round(foretold.full_in_s),
        "unbounded": [one.use.topic for one in foretold.unbounded[:TOPICS_SHOWN_MAX]],
        "unbounded_count": len(foretold.unbounded),
        "topics": [_topic(one) for one in topics],
        "others": {"count": len(others), "held_bytes": sum(one.use.held for one in others)},
    }


def _topic(one: TopicForecast) -> dict[str, Any]:
    return {
        "topic": one.use.topic,
        "partitions": one.use.partitions,
        "held_bytes": one.use.held,
        "cold_bytes": one.use.cold,
        "bytes_per_s": None if one.use.rate is None else round(one.use.rate, 3),
        "predicted_bytes": None if one.steady is None else round(one.steady),
        "bound_bytes": None if one.bound is None else round(one.bound),
        "unbounded": one.unbounded,
    }
