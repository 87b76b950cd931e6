"""The shell of the balancing loop: it makes the view, and carries out the decisions of
balancer.stealing.steal.

Also the master's registry check of a steal request, and the drain of this node's masters (SIGTERM):
the same handover, group by group, with every group on another node as the ideal.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from balancer.registry.commands import Result
from balancer.registry.records import Outcome
from balancer.registry.registry import Registry
from balancer.stealing.steal import (
    Action,
    Balancing,
    ProposeRegistry,
    RequestSteal,
    State,
    StealFinished,
)
from balancer.stealing.view import ClusterView
from paxos.changes import handover
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now
from paxos.messages import StealAbort, StealRequest
from paxos.step import Notice
from runtime.balancing.planning_loop import Views, views
from runtime.engine.engine import Engine
from runtime.membership.registry_client import RegistryClient
from runtime.system.journal import Journal

STEALS_KEPT: Final = 64


class BalancingLoop:
    def __init__(
        self,
        engine: Engine,
        client: RegistryClient,
        balancing: Balancing | None,
        journal: Journal,
    ) -> None:
        self._engine, self._client, self.machine = engine, client, balancing
        self._journal = journal
        self._registry: Registry = client.registry
        self.finished: list[tuple[int, StealFinished]] = []
        """This node's last STEALS_KEPT steals, done or failed, with their wall time in ns."""
        self.outcomes: Counter[str] = Counter()
        self.durations_s: list[float] = []
        self.phases_s: list[tuple[str, float]] = []
        self.draining = False
        self.on_stolen: Callable[[GroupId], None] = lambda _group: None
        """Called with each group that this node has stolen."""
        self.give: Callable[[Now, GroupId, NodeId], str] = self._give
        """Gives a group away on this node's own initiative; returns "", or why it cannot."""
        self.given: Callable[[], Iterable[NodeId]] = tuple
        """The targets of handovers that the core has not begun yet."""
        self.slow: Callable[[Now], frozenset[NodeId]] = lambda _now: frozenset()
        """Nodes whose producers wait too long, according to their load reports."""

    @property
    def registry(self) -> Registry:
        return self._registry

    @property
    def busy(self) -> bool:
        """Whether this node is stealing: then the loop runs every tick."""
        return self.machine is not None and self.machine.state is not State.IDLE

    # -- the loop -----------------------------------------------------------------------------

    def tick(self, now: Now, groups: Views | None = None) -> None:
        """Steal if it is time; `groups` is the result of `views`, if the caller has it."""
        if self.machine is not None and not self.draining:
            self._carry_out(self.machine.on_tick(now, self.view(now, groups)))

    def view(self, now: Now, groups: Views | None = None) -> ClusterView:
        multi = self._engine.multi
        return ClusterView.of_registry(
            self._registry,
            now=now,
            me=multi.me,
            incarnation=multi.incarnation,
            alive=self._engine.alive(),
            registry_reachable=self._engine.master(REGISTRY_GROUP) is not None,
            groups=views(self._engine, now) if groups is None else groups,
            slow=self.slow(now) | ({multi.me} if self._cramped else set()),
        )

    @property
    def _cramped(self) -> bool:
        """Whether this node should not have masters because of its disk."""
        return self._engine.disk_pressure.low or self._engine.disk_health.degraded

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            if isinstance(action, ProposeRegistry):
                self._client.propose(action.command, self._on_result)
            elif isinstance(action, RequestSteal):
                assert self.machine is not None
                token = self.machine.token
                self._engine.request_steal(action.group, action.master, action.lease_ver, token)
            else:
                self._finished(action)

    def _on_result(self, result: Result | None) -> None:
        if result is not None and self.machine is not None:
            self._carry_out(self.machine.on_token_result(self._engine.now(), result))

    def _finished(self, steal: StealFinished) -> None:
        now = self._engine.now()
        self.finished = [*self.finished[-STEALS_KEPT + 1 :], (now.wall_ns, steal)]
        name = steal.outcome.name.lower()
        self.outcomes[name] += 1
        self.durations_s.append(steal.duration_ns / 1e9)
        self.phases_s.append(("token", steal.phases.token_ns / 1e9))
        self.phases_s.append(("handover", steal.phases.handover_ns / 1e9))
        if steal.outcome.failed:
            self._engine.steal_refused(steal.group)
        elif steal.outcome is Outcome.DONE:
            self.on_stolen(steal.group)
        self._journal.info(
            "steal finished",
            group=steal.group,
            outcome=name,
            source=steal.source,
            target=steal.target,
            ms=round(steal.duration_ns / MS, 2),
            detail=steal.detail,
        )

    # -- notices of the engine ----------------------------------------------------------------

    def on_notice(self, now: Now, notice: Notice) -> None:
        if notice.what == "steal-refused":
            self._engine.steal_refused(notice.group)
            if self.machine is not None:
                self._carry_out(self.machine.on_abort(now, notice.group, notice.detail))

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        """The master's check of a steal: a valid token for it, and no pause (E16). None: the answer
        needs a newer registry."""
        registry, token = self._registry, self._registry.token_numbered(request.token)
        if request.token > registry.last_token:
            return None  # our copy of the registry is older than the token
        refusal = ""
        if token is None or token.group != request.group:
            refusal = "no token"  # given back, taken over, or cancelled
        elif token.target != sender or now.wall_ns > token.expires_wall_ns:
            refusal = "token of another"
        elif registry.paused or request.group in registry.paused_groups:
            refusal = "paused"
        elif registry.placement.get(request.group, sender) != sender:
            refusal = "stale plan"  # the placement has changed since the token was granted
        if refusal:
            assert self._engine.links is not None
            abort = StealAbort(request.group, request.lease_ver, refusal)
            self._engine.links.send(sender, abort)
            return False
        return True

    # -- drain --------------------------------------------------------------------------------

    def start_draining(self) -> None:
        """Take no more masters; `drain_next` gives away those we have."""
        self.draining = self._engine.disk_watch.leaving = True
        for replica in self._engine.multi.replicas.values():
            replica.election.abstaining = True

    def _give(self, now: Now, group: GroupId, target: NodeId) -> str:
        return handover.steal_away(self._engine.multi.replicas[group], now, target)

    def masters(self, now: Now) -> list[GroupId]:
        """The groups this node acts for."""
        replicas = self._engine.multi.replicas
        return [group for group, replica in sorted(replicas.items()) if replica.acting(now)]

    def drain_next(self, now: Now) -> int:
        """Hand over one more group unless a handover is in progress; returns how many can still be
        handed over.

        That is 0 if every other node is draining too, or is gone: a lost link counts at once, even
        if its node was heard a moment ago.
        """
        replicas, links = self._engine.multi.replicas, self._engine.links
        assert links is not None
        mine = self.masters(now)
        handing = [one.handing_to for one in replicas.values() if one.handing_to is not None]
        on_their_way = {*handing, *self.given()}
        if any(links.connected(target) for target in on_their_way):
            return max(1, len(mine))
        view = self.view(now)
        able = [
            node
            for node in view.alive - {view.me} - self._engine.draining_peers
            if links.connected(node)
        ]
        load = Counter(one.master for one in view.groups.values())
        able.sort(key=lambda node: (load[node], node))
        can_go = 0
        for group in mine:
            ideal, members = view.placement.get(group), replicas[group].members
            targets = [node for node in able if node in members]
            can_go += bool(targets)
            for target in sorted(targets, key=lambda node: node != ideal):  # then by masters held
                if not self.give(now, group, target):
                    return len(mine)
        return can_go
