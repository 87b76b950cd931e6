"""Nodes come and go: production engines, logs and registry, but no processes.

tests/cluster/test_membership.py does the same with real processes.
"""

from collections.abc import Callable
from typing import Any, cast

import pytest

from balancer.registry.commands import (
    AddNode,
    Command,
    FoundCluster,
    RemoveNode,
    Result,
    SetReplicaSets,
)
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from broker.proposals.intake import Done, Outcome
from paxos.changes import handover
from paxos.changes.membership import first_members
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId, Now, Slot
from paxos.messages import Message
from runtime.balancing.hosting import GIVE_AFTER_NS, PART_AFTER_NS, Hosting
from runtime.membership.registry_client import RegistryClient
from tests.balancer.literals import register
from tests.runtime.engines import TICK_MS, Ledger, Net, command
from tests.runtime.offices import RegistryLedger

FOUNDERS = tuple(NodeId(node) for node in (1, 2, 3))
FOUR = NodeId(4)
G = GroupId(1)


class World:
    """Three nodes with the registry's group and one more, and a fourth that has just begun."""

    def __init__(self) -> None:
        self.registries: dict[NodeId, Registry] = {}
        self.net = Net(4, groups=(0, 1), machine=self._machine)
        self.dropped: list[tuple[NodeId, GroupId]] = []
        self.gifts: list[tuple[NodeId, NodeId]] = []
        self.hostings = {node: self._hosting(node) for node in self.net.node_ids}
        for node in self.net.node_ids:
            for replica in self.net[node].multi.replicas.values():
                replica.members = FOUNDERS
        self.net.elect(1, REGISTRY_GROUP)
        self.net.elect(1)
        for group in (REGISTRY_GROUP, G):
            self.net[FOUR].engine.remove_group(group)
            self.net[FOUR].wal.forget_group(group)
        self.net.advance(5_000)  # what it reported before is forgotten
        self.hostings[FOUR].begin(REGISTRY_GROUP, FOUNDERS)

    def _machine(self, node: NodeId, group: GroupId) -> Ledger:
        if group != REGISTRY_GROUP:
            return Ledger()
        registry = self.registries[node] = Registry()
        return RegistryLedger(registry)

    def _hosting(self, node: NodeId) -> Hosting:
        member = self.net[node]
        machines = cast("dict[GroupId, Any]", member.ledgers)
        hosting = Hosting(
            member.engine,
            RegistryClient(member.engine, self.registries[node]),
            machines,
            lambda group: cast("Any", self._begun(node, group)),
            lambda group: first_members(group, FOUNDERS, 3),
            member.recorder.journal,
        )
        hosting.dropped = lambda group, _machine: self.dropped.append((node, group))

        def give(now: Now, group: GroupId, to: NodeId) -> str:
            self.gifts.append((node, to))
            return handover.steal_away(member.multi.replicas[group], now, to)

        hosting.give = give
        return hosting

    def _begun(self, node: NodeId, group: GroupId) -> Ledger:
        """The registry's group starts with an existing document."""
        if group == REGISTRY_GROUP:
            return RegistryLedger(self.registries[node])
        return Ledger()

    def until(self, condition: Any, ms_max: int = 30_000) -> None:
        for _ in range(0, ms_max, TICK_MS):
            if condition():
                return
            for node, hosting in self.hostings.items():
                hosting.tick(self.net[node].engine.now())
            self.net.advance(TICK_MS)
        raise AssertionError("it never comes true")

    def ask(self, *commands: Command) -> list[Result | None]:
        results: list[Result | None] = []
        client = RegistryClient(self.net[1].engine, self.registries[NodeId(1)])
        for one in commands:
            client.propose(one, results.append)
        self.until(lambda: len(results) == len(commands))
        return results

    def found(self) -> None:
        nodes = [register(node, self.net[node].multi.incarnation) for node in (1, 2, 3)]
        self.ask(FoundCluster("test", 1, FOUNDERS, 3), *nodes)
        self.ask(AddNode(FOUR, Address("host", 1)), register(FOUR, self.net[4].multi.incarnation))

    def write(self, text: str) -> None:
        outcomes: list[Outcome] = []
        master = next(node for node in self.net.node_ids if self.net[node].engine.acting(G))
        self.net[master].engine.submit(G, command(text), outcomes.append)
        self.until(lambda: outcomes)
        assert type(outcomes[0]) is Done

    def has(self, node: int, group: GroupId = G) -> bool:
        return group in self.net[node].multi.replicas


@pytest.fixture
def world() -> World:
    world = World()
    world.found()
    return world


def test_a_node_that_keeps_nothing_learns_the_registry(world: World) -> None:
    world.until(lambda: FOUR in world.registries[FOUR].nodes)
    assert list(world.net[4].multi.replicas) == [REGISTRY_GROUP]
    assert world.registries[FOUR].members(G) == FOUNDERS
    assert not world.hostings[FOUR].is_wanted(G)


def test_a_group_begins_without_a_vote_and_its_old_home_forgets_it(world: World) -> None:
    """It is added when it has caught up, and votes; the master that has to leave is stolen away
    last."""
    for number in range(5):
        world.write(f"before {number}")
    world.ask(SetReplicaSets(None, {G: (NodeId(2), NodeId(3), FOUR)}))
    world.until(lambda: world.has(4))
    assert not world.net[4].wal.acceptor(G)[1], "durably, before it says anything"
    assert not world.net[4].multi.replicas[G].can_vote()
    world.until(lambda: world.net[1].multi.replicas[G].members == (1, 2, 3, 4))
    assert world.net[4].multi.replicas[G].can_vote(), "it votes before it counts"
    began = world.net[1].engine.now().boot_ns
    world.until(lambda: world.gifts)
    assert world.net[1].engine.now().boot_ns - began >= GIVE_AFTER_NS
    world.until(lambda: not world.has(1))
    assert world.dropped == [(1, G)]
    assert world.registries[NodeId(1)].members(G) == (2, 3, 4)
    assert not world.net[1].wal.acceptor(G)[1], "should it return, it does not vote either"
    world.write("after")
    world.until(lambda: world.net[4].ledgers[G].texts()[-1:] == ["after"])
    assert world.net[4].ledgers[G].texts() == world.net[2].ledgers[G].texts()


def test_who_leaves_is_removed_when_it_has_nothing_any_more(world: World) -> None:
    """And not before; the registry's own group counts too."""
    rest = (NodeId(1), NodeId(2), FOUR)
    world.ask(RemoveNode(NodeId(3)))
    world.ask(SetReplicaSets(None, {G: rest}))
    world.until(lambda: world.dropped == [(3, G)])
    world.until(lambda: world.registries[NodeId(1)].members(G) == rest)
    assert world.registries[NodeId(1)].removed == frozenset()
    world.ask(SetReplicaSets(None, {REGISTRY_GROUP: rest}))
    world.until(lambda: world.registries[NodeId(1)].removed == {NodeId(3)})
    assert world.registries[NodeId(1)].members(REGISTRY_GROUP) == rest
    assert world.has(3, REGISTRY_GROUP), "it may want to know why"
    assert not world.hostings[NodeId(3)].is_wanted(G)


def test_a_node_that_cannot_catch_up_is_not_added(world: World) -> None:
    """Nothing is removed in exchange: there are never fewer copies than before."""
    world.ask(SetReplicaSets(None, {G: (NodeId(1), NodeId(2), FOUR)}))
    for node in FOUNDERS:
        world.net.cut(4, node)
    ended = world.net[1].engine.now().boot_ns + 3 * GIVE_AFTER_NS
    world.until(lambda: world.net[1].engine.now().boot_ns >= ended)
    assert world.net[1].multi.replicas[G].members == FOUNDERS
    for node in FOUNDERS:
        world.net.heal(4, node)
    world.until(lambda: world.dropped == [(3, G)])


def test_who_was_away_until_no_member_it_knows_was_left_hears_of_it(world: World) -> None:
    """By its own log it is a member for ever, and the members it would ask have left as well."""
    for node in (1, 2, 4):
        world.net.cut(3, node)
    world.ask(SetReplicaSets(None, {G: (FOUR,)}))
    world.until(lambda: sorted(world.dropped) == [(1, G), (2, G)], 60_000)
    assert world.registries[NodeId(1)].members(G) == (4,)
    for node in (1, 2, 4):
        world.net.heal(3, node)
    world.until(lambda: (3, G) in world.dropped)
    world.ask(SetReplicaSets(None, {G: (NodeId(3), FOUR)}))
    world.until(lambda: world.net[4].multi.replicas[G].members == (3, 4))


def test_nobody_forgets_a_group_whose_other_members_have_not_heard_of_the_change(
    world: World,
) -> None:
    """They would need its vote once more, to elect a master among the members they know."""
    four, rest = (*FOUNDERS, FOUR), (NodeId(1), NodeId(2), FOUR)
    world.ask(SetReplicaSets(None, {G: four}))
    world.until(lambda: world.registries[NodeId(1)].members(G) == four)
    master, lost = world.net[1].multi.replicas[G], [NodeId(2), FOUR]
    since = master.configured
    for node in (1, 3):
        links = world.net[node].links
        links.send = _deaf(links.send, lambda: lost if master.configured > since else [])
    world.ask(SetReplicaSets(None, {G: rest}))
    world.until(lambda: master.members == rest)
    ended = world.net[1].engine.now().boot_ns + 5_000 * MS
    world.until(lambda: world.net[1].engine.now().boot_ns >= ended)
    assert world.registries[NodeId(1)].members(G) == four
    assert not world.dropped
    lost.clear()
    world.until(lambda: world.dropped == [(3, G)])
    assert world.registries[NodeId(1)].members(G) == rest


def test_nobody_forgets_a_group_that_it_has_just_been_added_to(world: World) -> None:
    """Its master added it while it was wanted, and notes that in the registry a moment later. The
    node itself is behind and has not heard of it (whole worlds, seed 409)."""
    master, four = world.net[1].multi.replicas[G], (*FOUNDERS, FOUR)
    world.write("before")
    for node in FOUNDERS:
        links = world.net[node].links
        links.send = _deaf(links.send, lambda: [FOUR] if FOUR in master.members else [])
    world.ask(SetReplicaSets(None, {G: four}))
    world.until(lambda: master.members == four)
    world.hostings[NodeId(1)].tick = lambda now: None  # type: ignore[method-assign]
    world.ask(SetReplicaSets(None, {G: FOUNDERS}))
    world.until(lambda: not world.hostings[FOUR].is_wanted(G))
    began = world.net[4].engine.now().boot_ns
    world.until(lambda: world.net[4].engine.now().boot_ns - began > PART_AFTER_NS * 2 // 3)
    assert world.has(4), "it is a member, and may have voted"


def _deaf(send: Any, lost: Callable[[], list[NodeId]]) -> Callable[[NodeId, Message], None]:
    """`send` that loses messages to some nodes of the group."""

    def sends(to: NodeId, message: Message) -> None:
        if message.group != G or to not in lost():
            send(to, message)

    return sends


def test_nothing_is_dropped_because_of_an_old_copy_of_the_registry(world: World) -> None:
    """A restarted node may not know yet that it has got the group since."""
    two = world.net[2]
    learner = two.multi.replicas[REGISTRY_GROUP].learner
    learner.note_chosen(Slot(learner.applied + 1_000))
    world.ask(SetReplicaSets(None, {G: (NodeId(1), NodeId(3), FOUR)}))
    world.until(lambda: world.registries[NodeId(2)].members(G) == (1, 3, 4))
    began = two.engine.now().boot_ns
    world.until(lambda: two.engine.now().boot_ns - began > 2 * PART_AFTER_NS)
    assert world.has(2), "there is more of the registry than it has seen"
    learner.chosen_to = learner.applied
    world.until(lambda: not world.has(2))
    assert not world.hostings[NodeId(2)]._parting, "the next time it waits anew"
