"""Three nodes with a registry: engines as in engines.py, with the balancing shell on top.

Group 0's state machine is the production registry. Each node runs the production loop that joins
the cluster and balances it, at every tick. `Office` does what the shell does in between.
"""

from balancer.planning import Planning
from balancer.registry.commands import Command, FoundCluster, Result, SetPlacement
from balancer.registry.load import ClusterLoad
from balancer.registry.registry import Registry
from balancer.stealing.steal import Balancing, BalancingConfig
from paxos.entry import Entry
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now, Slot
from paxos.messages import StealRequest
from paxos.step import Notice
from runtime.balancing.balancing_loop import BalancingLoop
from runtime.balancing.planning_loop import PlanningLoop
from runtime.membership.registry_client import Joining, RegistryClient
from tests.balancer.literals import register
from tests.runtime.engines import TICK_MS, Ledger, Member, Net

GROUPS = 6
"""Data groups, numbered from 1."""


class RegistryLedger(Ledger):
    """Group 0: its commands are the registry's."""

    def __init__(self, registry: Registry) -> None:
        super().__init__()
        self._registry = registry

    def apply(
        self, slot: Slot, entry: Entry, position: int, *, keep_in_tail: bool, answer: bool
    ) -> list[bytes]:
        before = len(self.lines)
        super().apply(slot, entry, position, keep_in_tail=keep_in_tail, answer=answer)
        return [self._registry.apply(line[5:], slot) for _, line in self.lines[before:]]


class Office:
    """One node's balancing shell (what runtime.shell does with it)."""

    def __init__(self, member: Member, registry: Registry, nodes: int) -> None:
        self.member, self.registry = member, registry
        engine = member.engine
        self.client = RegistryClient(engine, registry)
        config = BalancingConfig(hold_down_ns=0)
        self.loop = BalancingLoop(engine, self.client, Balancing(config), member.recorder.journal)
        self.book = ClusterLoad()
        self.planner = PlanningLoop(
            engine,
            self.client,
            Planning(),
            self.book,
            hold_down_ms=0,
            lag_slots_max=128,
            journal=member.recorder.journal,
        )
        self.joining = Joining(
            self.client,
            FoundCluster("test", GROUPS),
            register(member.node, member.multi.incarnation),
            member.net.node_ids[:nodes],
        )
        self.results: list[Result | None] = []
        engine.hooks = self

    def tick(self) -> None:
        now = self.member.engine.now()
        self.joining.tick(now)
        self.planner.tick(now)
        self.loop.tick(now)

    def propose(self, command: Command) -> None:
        self.client.propose(command, self.results.append)

    # runtime.engine.ports.Hooks

    def on_notice(self, now: Now, notice: Notice) -> None:
        self.loop.on_notice(now, notice)

    def may_hand_over(self, now: Now, sender: NodeId, request: StealRequest) -> bool | None:
        return self.loop.may_hand_over(now, sender, request)

    def begin_handover(self, now: Now, sender: NodeId, request: StealRequest) -> None:
        self.member.engine.hand_over(now, sender, request)

    def masters_changed(self, now: Now) -> None:
        pass

    def groups_applied(self, now: Now, groups: set[GroupId]) -> None:
        if REGISTRY_GROUP in groups:
            self.member.engine.retry_parked_steals()


class Cluster:
    """`nodes` of them are configured; all of them join by themselves."""

    def __init__(self, nodes: int = 3) -> None:
        self.registries: dict[NodeId, Registry] = {}
        self.nodes = nodes
        self.net = Net(nodes, groups=tuple(range(GROUPS + 1)), machine=self._machine)
        self.offices = {node: self._office(node) for node in self.net.node_ids}
        self.looks_every: dict[NodeId, int] = {}
        """How many ticks a slow node's office waits before it looks for work again."""
        self._ticks = 0

    def _machine(self, node: NodeId, group: GroupId) -> Ledger:
        if group != REGISTRY_GROUP:
            return Ledger()
        registry = self.registries[node] = Registry()
        return RegistryLedger(registry)

    def _office(self, node: NodeId) -> Office:
        return Office(self.net[node], self.registries[node], self.nodes)

    def __getitem__(self, node: int) -> Office:
        return self.offices[NodeId(node)]

    def advance(self, ms: int) -> None:
        for _ in range(0, ms, TICK_MS):
            self._ticks += 1
            for node, office in self.offices.items():
                if self.net[node].up and self._ticks % self.looks_every.get(node, 1) == 0:
                    office.tick()
            self.net.advance(TICK_MS)

    def until(self, condition: object, ms_max: int = 30_000) -> None:
        assert callable(condition)
        for _ in range(0, ms_max, TICK_MS):
            if condition():
                return
            self.advance(TICK_MS)
        raise AssertionError(f"not within {ms_max} ms: masters {self.masters()}")

    def restart(self, node: int) -> None:
        self.net.restart(node)
        self.offices[NodeId(node)] = self._office(NodeId(node))

    def masters(self) -> dict[int, int | None]:
        """The acting master of each group; there are never two."""
        found: dict[int, int | None] = dict.fromkeys(range(GROUPS + 1))
        for member in self.net.up():
            for group in member.multi.replicas:
                if member.acting(group):
                    assert found[group] is None, f"group {group} has two masters"
                    found[group] = member.node
        return found

    def set_placement(self, ideal: dict[int, int], by: int = 1) -> None:
        """An operator asks a node; when this returns, that node's registry shows it."""
        placement = {GroupId(group): NodeId(node) for group, node in ideal.items()}
        self[by].propose(SetPlacement(None, placement))
        self.until(lambda: self[by].registry.placement == placement)

    def is_placed(self) -> bool:
        placement = self[1].registry.placement
        return bool(placement) and self.masters() == dict(placement)

    def finished(self) -> list[str]:
        return sorted(
            steal.outcome.name.lower()
            for office in self.offices.values()
            for _, steal in office.loop.finished
        )


def everything_on(node: int) -> dict[int, int]:
    return dict.fromkeys(range(GROUPS + 1), node)


def seconds(number: float) -> int:
    return int(number * 1_000 * MS)
