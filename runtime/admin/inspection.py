"""Read-only HTTP routes for operators, launchers and Prometheus.

balancer.py and nodes.py have the routes that change something.
"""

from collections.abc import Callable
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from runtime.http.server import Answer, Route, json_answer


class Admin:
    def __init__(
        self,
        metrics: CollectorRegistry,
        *,
        status: Callable[[], dict[str, Any]],
        not_ready: Callable[[], str],
    ) -> None:
        """`not_ready` returns why this node is not ready, or "" if it is."""
        self._metrics, self._status, self._not_ready = metrics, status, not_ready

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/metrics"): self.metrics,
            ("GET", "/livez"): self.live,
            ("GET", "/readyz"): self.ready,
            ("GET", "/status"): self.status,
        }

    async def metrics(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        return Answer(200, generate_latest(self._metrics), CONTENT_TYPE_LATEST)

    async def live(self, _body: Any) -> Answer:  # noqa: ANN401
        return Answer(200, b"ok\n")

    async def ready(self, _body: Any) -> Answer:  # noqa: ANN401
        why = self._not_ready()
        return Answer(503 if why else 200, f"{why or 'ok'}\n".encode())

    async def status(self, _body: Any) -> Answer:  # noqa: ANN401
        return json_answer(self._status())
