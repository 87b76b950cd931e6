"""The production balancer in a world: registry on group 0's log, steal token, stealing machine.

Does what runtime/balancing/balancing_loop.py does for a real node, as far as the simulator needs
it: fill in the view, carry out the actions, check the token on the master's side. Nodes register
themselves; the world changes the ideal placement through the registry, as an operator would.
"""

from typing import Final

import attrs

from balancer.registry.commands import Command, MergePlacement, Result
from balancer.registry.registry import Registry
from balancer.stealing.steal import (
    Action,
    Balancing,
    BalancingConfig,
    ProposeRegistry,
    RequestSteal,
    State,
)
from balancer.stealing.view import ClusterView, GroupView
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.messages import StealAbort, StealRequest
from simulator.environment.violation import Violation
from simulator.node.host import Host
from simulator.node.registry_client import RegistryClient

CONFIG: Final = BalancingConfig(
    hold_down_ns=500 * MS,
    pause_ns=50 * MS,
    acquire_timeout_ns=500 * MS,
    deadline_ns=2_000 * MS,
    release_timeout_ns=500 * MS,
    token_ns=3_500 * MS,
    retry_ns=100 * MS,
    cool_down_ns=800 * MS,
    patience_ns=600 * MS,
    pass_over_ns=2_000 * MS,
)
ALIVE_NS: Final = 1_500 * MS
PARKED_NS: Final = 200 * MS


@attrs.frozen
class _Running:
    group: GroupId
    source: NodeId
    until_ns: int


class StealBudget:
    """I9, while clocks are within the bound: the cluster has a limited number of steals at a time
    (one, unless the policy allows more), and a node takes part in one at most."""

    def __init__(self, most: int = 1, *, enforced: bool) -> None:
        self._most, self._enforced = most, enforced
        self._running: dict[NodeId, _Running] = {}
        """By target."""
        self.count = 0
        self.together = 0
        """The most that were under way at once."""

    def requested(self, node: NodeId, group: GroupId, source: NodeId, at_ns: int) -> None:
        self._running = {n: run for n, run in self._running.items() if at_ns < run.until_ns}
        others = {n: run for n, run in self._running.items() if n != node}
        taking_part = {*others, *(run.source for run in others.values())}
        if self._enforced and (len(others) >= self._most or taking_part & {node, source}):
            raise Violation(
                f"I9: node {node} steals group {group} from {source} while others do: {others}"
            )
        self._running[node] = _Running(group, source, at_ns + CONFIG.deadline_ns)
        self.count += 1
        self.together = max(self.together, len(self._running))

    def ended(self, node: NodeId) -> None:
        """The steal has stopped, or the node has crashed: a dead node steals nothing."""
        self._running.pop(node, None)


class SimBalancing:
    """One life of one node's balancing loop."""

    def __init__(self, node: Host, registry: Registry) -> None:
        self._node, self._registry = node, registry
        self._client = RegistryClient(node, registry)
        self.machine = Balancing(CONFIG)
        self._parked: list[tuple[int, NodeId, StealRequest]] = []

    def tick(self, now: Now) -> None:
        self._client.tick(now)
        self._carry_out(self.machine.on_tick(now, self._view(now)))
        parked, self._parked = self._parked, []
        for since, sender, request in parked:
            allowed = self.allows(now, sender, request)
            if allowed:
                self._node.admit(sender, request)
            elif allowed is None and now.boot_ns - since < PARKED_NS:
                self._parked.append((since, sender, request))

    def propose(self, command: Command) -> None:
        """Ask the registry for something, as an operator would."""
        self._client.propose(command)

    def place(self, group: GroupId, target: NodeId) -> None:
        """Set the ideal master of a group."""
        self.propose(MergePlacement(None, group, target))

    def _view(self, now: Now) -> ClusterView:
        core = self._node.core
        alive = [node for node, at in core.heard.items() if now.boot_ns - at < ALIVE_NS]
        groups = {}
        for ident, replica in core.replicas.items():
            lease, learner = replica.lease, replica.learner
            free = lease.free(now, replica.timing.margin_ns)
            groups[ident] = GroupView(
                ident,
                None if free else lease.holder,
                lease.ver,
                lease.epoch,
                lease.renewals,
                learner.applied,
                learner.chosen_to,
                replica.speaks_for_the_chosen(),
            )
        return ClusterView.of_registry(
            self._registry,
            now=now,
            me=core.me,
            incarnation=core.incarnation,
            alive=frozenset([core.me, *alive]),
            registry_reachable=groups[REGISTRY_GROUP].master is not None,
            groups=groups,
        )

    def _carry_out(self, actions: list[Action]) -> None:
        node = self._node
        for action in actions:
            if isinstance(action, ProposeRegistry):
                self._client.propose(action.command, self._on_result)
            elif isinstance(action, RequestSteal):
                loop_ns = node.world.loop.now_ns
                node.world.steals.requested(node.me, action.group, action.master, loop_ns)
                incarnation = node.core.incarnation
                node.ask_for(action.group, incarnation, action.lease_ver, self.machine.token)
            else:
                node.world.steals.ended(node.me)
                node.world.statistics[f"balancer {action.outcome.name.lower()}"] += 1
                if action.outcome.failed:
                    node.groups[action.group].intake.steal_refused(node.now())

    def _on_result(self, result: Result) -> None:
        self._carry_out(self.machine.on_token_result(self._node.now(), result))

    # -- what the node reports ----------------------------------------------------------------

    def on_abort(self, now: Now, abort: StealAbort) -> None:
        self._carry_out(self.machine.on_abort(now, abort.group, abort.reason))

    def admits(self, now: Now, sender: NodeId, request: StealRequest) -> bool:
        """The master's check; a request ahead of our copy of the registry waits a little."""
        allowed = self.allows(now, sender, request)
        if allowed is None:
            self._parked.append((now.boot_ns, sender, request))
        return bool(allowed)

    def allows(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        """Whether the token is valid for this steal; None if our copy is not that far yet (E16)."""
        token = self._registry.token_numbered(request.token)
        if request.token > self._registry.last_token:
            return None
        return (
            token is not None
            and (token.group, token.target) == (request.group, sender)
            and now.wall_ns <= token.expires_wall_ns
        )

    @property
    def idle(self) -> bool:
        return self.machine.state is State.IDLE
