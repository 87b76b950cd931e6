"""The routes of the HTTP side: what an operator, a launcher or Prometheus may ask of a node.

Changes go through the registry, by whichever node is asked: placement and pause are proposals on
group 0's log like any other, there is no back door to the masters.
"""

from collections.abc import Callable
from typing import Any, Final

import trio
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from balancer.planner import all_on, plan_placement
from balancer.registry import Registry
from balancer.registry_commands import (
    Command,
    Done,
    PauseBalancer,
    PlacementSet,
    Refused,
    Result,
    SetPlacement,
)
from paxos.ids import GroupId, NodeId
from runtime.http import Answer, BadRequest, Route, json_answer
from runtime.registry_client import RegistryClient

PROPOSE_TIMEOUT_S: Final = 5.0
VERSION_MAX: Final = 2**63 - 1
GROUP_MAX: Final = 2**32 - 1
"""What the registry's commands can hold; what exists is far less, and the registry says so."""
NOT_DONE: Final = "the registry did not answer in time: is a majority of the nodes up? Try again"


class Admin:
    def __init__(
        self,
        client: RegistryClient,
        metrics: CollectorRegistry,
        *,
        status: Callable[[], dict[str, Any]],
        not_ready: Callable[[], str],
        wake: Callable[[], None],
    ) -> None:
        """`not_ready` says why this node is not ready, or "" if it is; `wake` ends a round of the
        engine after something was proposed from outside the data plane."""
        self._client, self._metrics = client, metrics
        self._status, self._not_ready, self._wake = status, not_ready, wake

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/metrics"): self.metrics,
            ("GET", "/livez"): self.live,
            ("GET", "/readyz"): self.ready,
            ("GET", "/status"): self.status,
            ("POST", "/admin/placement"): self.placement,
            ("POST", "/admin/balancer"): self.balancer,
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

    async def placement(self, body: dict[str, Any]) -> Answer:
        """{"all_on": node} | {"even": true} | {"placement": {group: node}}."""
        registry = self._client.registry
        wanted = _wanted_placement(body, registry)
        expected = body.get("expected_version", registry.versions.placement)
        if not _is_number(expected, VERSION_MAX):
            raise BadRequest("expected_version must be a number")
        return await self._propose(SetPlacement(expected, wanted))

    async def balancer(self, body: dict[str, Any]) -> Answer:
        """{"paused": bool} for all groups, or for one with "group"."""
        paused, group = body.get("paused"), body.get("group")
        if not isinstance(paused, bool) or not (group is None or _is_number(group, GROUP_MAX)):
            raise BadRequest('expected {"paused": true|false}, and "group": a number or nothing')
        return await self._propose(PauseBalancer(paused, None if group is None else GroupId(group)))

    async def _propose(self, command: Command) -> Answer:
        answered = trio.Event()
        results: list[Result | None] = []

        def on_result(result: Result | None) -> None:
            results.append(result)
            answered.set()

        with trio.move_on_after(PROPOSE_TIMEOUT_S):
            self._client.propose(command, on_result)
            self._wake()
            await answered.wait()
        result = results[0] if results else None
        if isinstance(result, PlacementSet | Done):
            return json_answer({"version": result.version})
        if isinstance(result, Refused):
            text = f"{result.reason.name.lower()} {result.detail}".strip()
            return json_answer({"error": text}, 409)
        return json_answer({"error": NOT_DONE}, 503)


def _wanted_placement(body: dict[str, Any], registry: Registry) -> dict[GroupId, NodeId]:
    groups = [GroupId(group) for group in registry.groups]
    nodes = set(registry.nodes)
    if body.get("even") is True:
        return dict(plan_placement(groups, nodes, registry.placement).placement)
    if "all_on" in body:
        return all_on(groups, _node(body["all_on"], nodes))
    wanted = body.get("placement")
    if not isinstance(wanted, dict):
        raise BadRequest('expected {"all_on": node}, {"even": true} or {"placement": {...}}')
    merged = dict(registry.placement)
    by_name = {str(group): group for group in groups}
    for name, node in wanted.items():
        if name not in by_name:
            raise BadRequest(f"group {name[:20]!r}: there are 0 to {len(groups) - 1}")
        merged[by_name[name]] = _node(node, nodes)
    return merged


def _is_number(value: object, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def _node(value: object, nodes: set[NodeId]) -> NodeId:
    if not isinstance(value, int) or isinstance(value, bool) or value not in nodes:
        known = ", ".join(str(node) for node in sorted(nodes))
        raise BadRequest(f"that node is not registered; there are {known or 'none yet'}")
    return NodeId(value)
