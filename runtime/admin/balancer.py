"""Administration of the balancer over HTTP, on any node.

Changes are ordinary proposals on the registry's log; there is no back door to the masters.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import attrs
import trio

from balancer.planner.planner import Plan, all_on, solve
from balancer.planner.problem import Evenness
from balancer.planning import Weighing, adopt, weighing
from balancer.registry.commands import (
    CancelSteal,
    Command,
    Decided,
    Done,
    DrainNode,
    PauseBalancer,
    PinGroup,
    PlacementSet,
    PublishWeights,
    Refusal,
    Refused,
    Result,
    SetPlacement,
    SetPolicy,
)
from balancer.registry.packing import PackingError
from balancer.registry.policy import Policy, Weights
from balancer.registry.registry import Registry
from balancer.replicas import ReplicaPlan, plan_replicas
from broker.proposals.intake import FailureReason
from paxos.ids import MS, GroupId, NodeId, Now
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop
from runtime.balancing.view import (
    balancer_status,
    plan_json,
    problem_view,
    replica_problem,
    replicas_json,
)
from runtime.http.server import Answer, BadRequest, Route, json_answer
from runtime.membership.registry_client import RegistryClient

PROPOSE_TIMEOUT_S: Final = 12.0
"""Longer than the registry needs to get a new master after a crash, even on a busy machine."""
ASK_EVERY_S: Final = 0.1
VERSION_MAX: Final = 2**63 - 1
GROUP_MAX: Final = 2**32 - 1
NUMBER_MAX: Final = 2**31 - 1
"""Limits of the registry's encoding; real values are far lower, and the registry checks them."""
NOT_DONE: Final = "the registry did not answer in time: is a majority of the nodes up? Try again"
NOT_HEARD: Final = (
    "the registry did not answer in time, and the change may still happen: "
    "is a majority of the nodes up? Look, then try again"
)
NOT_KNOWN: Final = (
    "the registry's master was lost, and the change may still happen: look, then try again"
)
COMPUTED_AHEAD_MS_MAX: Final = 60_000
HERE_EVERY_S: Final = 0.005
OPERATOR: Final = "operator"
HELPERS: Final = 1
"""Threads that plan for operators: one, because they compete with the event loop for Python."""
_FLAGS: Final = ("automatic", "spread_zones")
_NUMBERS: Final = ("tolerance_percent", "trigger_percent", "steals_max", "produce_p99_ms_max")


class BalancerAdmin:
    def __init__(
        self,
        client: RegistryClient,
        loop: BalancingLoop,
        planner: PlanningLoop,
        *,
        now: Callable[[], Now],
        wake: Callable[[], None],
    ) -> None:
        """`wake` ends a round of the engine, after a proposal from outside of the data plane."""
        self._client, self._loop, self._planner = client, loop, planner
        self._now, self._wake = now, wake
        self._helpers = trio.CapacityLimiter(HELPERS)

    def routes(self) -> dict[tuple[str, str], Route]:
        return {
            ("GET", "/balancer"): self.show,
            ("GET", "/problem"): self.problem,
            ("POST", "/admin/placement"): self.placement,
            ("POST", "/admin/plan"): self.plan,
            ("POST", "/admin/balancer"): self.pause,
            ("POST", "/admin/move"): self.move,
            ("POST", "/admin/drain"): self.drain,
            ("POST", "/admin/cancel"): self.cancel,
            ("POST", "/admin/policy"): self.policy,
            ("POST", "/admin/weights"): self.weights,
        }

    @property
    def _registry(self) -> Registry:
        return self._client.registry

    async def show(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        return json_answer(balancer_status(self._loop, self._planner, self._now()))

    async def problem(self, _body: Any) -> Answer:  # noqa: ANN401 # JSON
        """The planner's input, for programs that compute weights and check their effect."""
        return json_answer(problem_view(self._planner, self._now()))

    async def placement(self, body: dict[str, Any]) -> Answer:
        """{"all_on": node} | {"even": true} | {"placement": {group: node}}.

        A node can only be master of groups that it has: other groups do not move.
        """
        registry = self._registry
        expected = body.get("expected_version", registry.versions.placement)
        wanted = None if body.get("even") is True else _wanted_placement(body, registry)
        if not _is_number(expected, VERSION_MAX):
            raise BadRequest("expected_version must be a number")
        if wanted is not None:
            answer = await self.propose(SetPlacement(expected, wanted))
            others = [group for group, node in wanted.items() if node != body.get("all_on", node)]
            if others and answer.status == 200:
                return json_answer({**json.loads(answer.body), "without_replica": others})
            return answer
        command, _ = await self._planned(frozenset())
        return await self.propose(attrs.evolve(command, expected_version=expected))

    async def plan(self, body: dict[str, Any]) -> Answer:
        """{"dry_run": bool, "without": [nodes]}: make a plan now; it is adopted unless dry."""
        dry, without = body.get("dry_run", True), body.get("without", [])
        if not isinstance(dry, bool) or not isinstance(without, list):
            raise BadRequest('expected {"dry_run": true|false, "without": [node, ...]}')
        if without and not dry:
            raise BadRequest('"without" only asks what would happen: it needs "dry_run": true')
        nodes = set(self._registry.nodes)
        command, shown = await self._planned(frozenset(_node(one, nodes) for one in without))
        if dry:
            return json_answer(shown)
        answer = await self.propose(command)
        return answer if answer.status != 200 else json_answer({**shown, "adopted": True})

    async def _planned(self, without: frozenset[NodeId]) -> tuple[Any, dict[str, Any]]:
        """A plan for an operator, as a command and as JSON.

        It includes nodes that lag or have just started: the operator decides. With hundreds of
        groups planning takes tens of milliseconds, so a helper thread does it. The registry may
        change meanwhile: then the command is refused, and the operator asks again.
        """
        view = attrs.evolve(self._planner.view(self._now()), unfit={})
        weighed: Weighing = weighing(view, self._planner.asked.config)
        problem = self._planner.asked.problem(view, weighed, without)
        of_replicas = replica_problem(self._planner, view, without)
        placement, version = view.registry.placement, view.registry.versions.placement

        def work() -> tuple[Plan, ReplicaPlan | None]:
            return solve(problem), None if of_replicas is None else plan_replicas(of_replicas)

        plan, replicas = await trio.to_thread.run_sync(work, limiter=self._helpers)
        command = adopt(view, plan, OPERATOR, weighed, automatic=True)
        command = attrs.evolve(command, expected_version=version)
        shown = plan_json(placement, problem, plan, weighed)
        return command, {**shown, "replicas": replicas_json(replicas)}

    async def pause(self, body: dict[str, Any]) -> Answer:
        """{"paused": bool} for all groups, or with "group" for one."""
        paused, group = body.get("paused"), body.get("group")
        if not isinstance(paused, bool) or not (group is None or _is_number(group, GROUP_MAX)):
            raise BadRequest('expected {"paused": true|false}, and "group": a number or nothing')
        return await self.propose(PauseBalancer(paused, None if group is None else GroupId(group)))

    async def move(self, body: dict[str, Any]) -> Answer:
        """{"group": group, "node": node}: move and pin the group; node null unpins it."""
        group, node = body.get("group"), body.get("node")
        if not isinstance(group, int) or not _is_number(group, GROUP_MAX) or "node" not in body:
            raise BadRequest('expected {"group": a number, "node": a number or null}')
        target = None if node is None else _node(node, set(self._registry.nodes))
        return await self.propose(PinGroup(GroupId(group), target))

    async def drain(self, body: dict[str, Any]) -> Answer:
        """{"node": node, "draining": bool}: begin or end the drain of a node."""
        draining = body.get("draining")
        if not isinstance(draining, bool):
            raise BadRequest('expected {"node": a number, "draining": true|false}')
        node = _node(body.get("node"), set(self._registry.nodes))
        return await self.propose(DrainNode(node, draining))

    async def cancel(self, body: dict[str, Any]) -> Answer:
        """{"token": number}: cancel a steal, or with {} the one that has run longest."""
        running = [
            one.token for one in self._registry.tokens if not one.free_at(self._now().wall_ns)
        ]
        token = body.get("token", running[0] if running else None)
        if token is None:
            raise BadRequest("no steal is running")
        if not isinstance(token, int) or not _is_number(token, VERSION_MAX):
            raise BadRequest("token must be a number")
        return await self.propose(CancelSteal(token))

    async def policy(self, body: dict[str, Any]) -> Answer:
        """Change some fields of the policy; the others stay. Capacities are merged."""
        version = self._registry.versions.policy
        return await self.propose(SetPolicy(version, _policy(body, self._registry)))

    async def weights(self, body: dict[str, Any]) -> Answer:
        """{"source": name, "computed_wall_ms": when, "weights": {group: thousandths}}: publish."""
        source, computed = body.get("source"), body.get("computed_wall_ms")
        given = body.get("weights")
        if not isinstance(source, str) or not isinstance(given, dict):
            raise BadRequest('expected {"source": ..., "computed_wall_ms": ..., "weights": {...}}')
        if not isinstance(computed, int) or not _is_number(computed, VERSION_MAX // MS):
            raise BadRequest("computed_wall_ms must be a number of milliseconds since 1970")
        ahead_ms = computed - self._now().wall_ns // MS
        if ahead_ms > COMPUTED_AHEAD_MS_MAX:
            raise BadRequest(
                f"computed_wall_ms is {ahead_ms} ms ahead of this node's clock: weights computed "
                "now would be refused until then; check the clock of the machine that computed them"
            )
        groups = {str(group): GroupId(group) for group in self._registry.groups}
        weights = {}
        for name, weight in given.items():
            if name not in groups:
                raise BadRequest(
                    f"Paxos group {name[:20]!r}: Paxos groups are 0 to {len(groups) - 1}"
                )
            if not _is_number(weight, NUMBER_MAX):
                raise BadRequest(
                    f"the weight of Paxos group {name} must be a number from 0 to {NUMBER_MAX}"
                )
            weights[groups[name]] = int(weight)
        return await self.propose(PublishWeights(Weights(source, computed * MS, weights)))

    async def propose(self, command: Command) -> Answer:
        """Propose a command. Retry while the registry has no master, or an old one (an election
        takes a little more than a lease), and if another decision came first. A proposal of unknown
        outcome is not repeated: the operator must look first."""
        told: Result | FailureReason | None = None
        with trio.move_on_after(PROPOSE_TIMEOUT_S):
            told = await self._ask(command)
            while told in (FailureReason.NOT_MASTER, FailureReason.OVERLOADED) or _is_overtaken(
                told
            ):
                await trio.sleep(ASK_EVERY_S)
                told = None
                told = await self._ask(command)
            await self._until_here(told)
        if isinstance(told, PlacementSet | Done):
            return json_answer({"version": told.version})
        if isinstance(told, Refused):
            text = f"{told.reason.name.lower()} {told.detail}".strip()
            return json_answer({"error": text}, 409)
        if told is None:  # proposed, and the time is up
            return json_answer({"error": NOT_HEARD}, 503)
        return json_answer({"error": NOT_KNOWN if told is FailureReason.UNKNOWN else NOT_DONE}, 503)

    async def _ask(self, command: Command) -> Result | FailureReason:
        answered = trio.Event()
        answers: list[Result | FailureReason] = []

        def on_told(told: Result | FailureReason) -> None:
            answers.append(told)
            answered.set()

        try:
            self._client.submit(Decided(self._registry.applied, command), on_told)
        except PackingError as error:
            raise BadRequest(f"the registry has no room for such a value: {error}") from error
        self._wake()
        await answered.wait()
        return answers[0]

    async def _until_here(self, result: Result | FailureReason) -> None:
        """Wait until our copy of the registry has the change, so that the client's next request to
        this node sees it."""
        versions = self._registry.versions
        while (isinstance(result, Done) and versions.all < result.version) or (
            isinstance(result, PlacementSet) and versions.placement < result.version
        ):
            await trio.sleep(HERE_EVERY_S)
            versions = self._registry.versions


def _is_overtaken(told: Result | FailureReason) -> bool:
    return isinstance(told, Refused) and told.reason is Refusal.OVERTAKEN


def _wanted_placement(body: dict[str, Any], registry: Registry) -> dict[GroupId, NodeId]:
    groups = [GroupId(group) for group in registry.groups]
    nodes = set(registry.nodes)
    if "all_on" in body:
        node = _node(body["all_on"], nodes)
        has = [group for group in groups if registry.may_have(node, group)]
        return {**registry.placement, **all_on(has, node)}
    wanted = body.get("placement")
    if not isinstance(wanted, dict):
        raise BadRequest('expected {"all_on": node}, {"even": true} or {"placement": {...}}')
    merged = dict(registry.placement)
    by_name = {str(group): group for group in groups}
    for name, node in wanted.items():
        if name not in by_name:
            raise BadRequest(f"Paxos group {name[:20]!r}: there are 0 to {len(groups) - 1}")
        merged[by_name[name]] = _node(node, nodes)
    return merged


def _policy(body: dict[str, Any], registry: Registry) -> Policy:
    changes: dict[str, Any] = {}
    for key, value in body.items():
        is_flag = key in _FLAGS and isinstance(value, bool)
        if is_flag or (key in _NUMBERS and _is_number(value, NUMBER_MAX)):
            changes[key] = value
        elif key == "evenness" and value in ("count", "weight"):
            changes[key] = Evenness[value.upper()]
        elif key == "topic_excess_max" and (value is None or _is_number(value, NUMBER_MAX)):
            changes[key] = value
        elif key == "preferred_zones" and _are_texts(value):
            changes[key] = tuple(value)
        elif key == "capacities" and isinstance(value, dict):
            changes[key] = _capacities(value, registry)
        else:
            known = ", ".join(field.name for field in attrs.fields(Policy))
            raise BadRequest(f"unknown setting or value: {key[:40]!r}; known are {known}")
    return attrs.evolve(registry.policy, **changes)


def _capacities(given: dict[str, Any], registry: Registry) -> dict[NodeId, int]:
    merged = dict(registry.policy.capacities)
    nodes = {str(node): node for node in registry.nodes}
    for name, percent in given.items():
        if name not in nodes or not _is_number(percent, NUMBER_MAX):
            raise BadRequest(f"capacities: node {name[:20]!r}: not registered, or no percentage")
        merged[nodes[name]] = percent
    return dict(sorted(merged.items()))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _is_number(value: object, largest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= largest


def _node(value: object, nodes: set[NodeId]) -> NodeId:
    if not isinstance(value, int) or isinstance(value, bool) or value not in nodes:
        known = ", ".join(str(node) for node in sorted(nodes))
        raise BadRequest(f"that node is not registered; there are {known or 'none yet'}")
    return NodeId(value)
