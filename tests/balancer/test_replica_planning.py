"""When groups go to other nodes: nodes come, leave, die and come back; masters follow."""

from collections import Counter

import pytest

from balancer.planning import Planning, PlanningConfig, PlanningState, PlanningView
from balancer.registry.commands import (
    AddNode,
    AdoptPlan,
    Done,
    DrainNode,
    FinishRemoval,
    FoundCluster,
    NoteMembers,
    PauseBalancer,
    PlacementSet,
    RemoveNode,
    SetPolicy,
    SetReplicaSets,
)
from balancer.registry.policy import Policy
from balancer.registry.records import Address
from balancer.registry.registry import Registry
from balancer.replica_planning import ReplicaState, moving
from paxos.ids import MS, GroupId, NodeId, Slot
from tests.balancer.literals import at, placement, register, run

CONFIG = PlanningConfig()
REPLACE_MS = CONFIG.replace_after_ns // MS


class Story:
    """A planning node and its registry; members follow the replica sets after `copy_ms`."""

    def __init__(self, founders: int = 3, groups: int = 12, copy_ms: int = 1_000) -> None:
        self.registry = Registry()
        nodes = tuple(NodeId(one) for one in range(1, founders + 1))
        run(self.registry, FoundCluster("test", groups, nodes, 3), *map(register, nodes))
        run(self.registry, placement({group: 1 + group % founders for group in range(groups + 1)}))
        self.planning = Planning()
        self.copy_ms, self.now_ms, self.slot = copy_ms, 0, 0
        self.alive = set(nodes)
        self.started_ms: dict[GroupId, int] = {}
        self.most_at_once = 0
        self.copies: Counter[int] = Counter()
        self.triggers: list[str] = []

    def run(self, ms: int, step_ms: int = 200) -> "Story":
        for _ in range(0, ms, step_ms):
            self.now_ms += step_ms
            self._follow()
            command = self.planning.on_tick(self._view())
            if command is not None:
                (result,) = run(self.registry, command)
                assert isinstance(result, Done | PlacementSet), result
                masters = isinstance(command, AdoptPlan)
                self.triggers.append(command.record.trigger if masters else command.trigger)
                self.most_at_once = max(self.most_at_once, len(moving(self.registry)))
        return self

    def until_settled(self) -> "Story":
        for _ in range(600):
            before = self.registry.version
            self.run(2_000)
            if self.registry.version == before and not moving(self.registry):
                return self
        raise AssertionError("it never comes to rest")

    def _follow(self) -> None:
        """What the groups' masters do (runtime.balancing.hosting), all at once when the copy is
        complete."""
        under_way = {group: self.started_ms.get(group, self.now_ms)
                     for group in moving(self.registry)}  # fmt: skip
        self.started_ms = under_way
        for group, since in under_way.items():
            wanted = self.registry.replica_set(group)
            new = set(wanted) - set(self.registry.members(group))
            if self.now_ms - since < self.copy_ms or not new <= self.alive:
                continue
            master = self.registry.placement[group]
            if master not in wanted and master in self.alive:
                new |= {master}  # it is stolen away first
                wanted = tuple(sorted({*wanted, master}))
                if set(wanted) == set(self.registry.members(group)):
                    continue
            self.slot += 1
            run(self.registry, NoteMembers(group, Slot(self.slot), wanted))
            self.copies.update(new)

    def _view(self) -> PlanningView:
        return PlanningView(
            now=at(self.now_ms),
            me=NodeId(1),
            ours=True,
            registry=self.registry,
            masters=dict(self.registry.placement),
            alive=frozenset(self.alive),
        )

    def comes(self, *nodes: int) -> "Story":
        for node in map(NodeId, nodes):
            run(self.registry, AddNode(node, Address("h", node)), register(node))
            self.alive.add(node)
        return self

    @property
    def replicas(self) -> list[int]:
        groups = [GroupId(group) for group in self.registry.groups if group]
        counts = Counter(node for group in groups for node in self.registry.members(group))
        return [counts[node] for node in self.registry.nodes]

    @property
    def masters(self) -> list[int]:
        counts = Counter(self.registry.placement.values())
        return [counts[node] for node in self.registry.nodes]


def test_what_was_founded_evenly_stays_as_it_is() -> None:
    story = Story(founders=5, groups=10).run(60_000)
    assert story.triggers == []
    assert story.planning.replicas.state is ReplicaState.AS_WANTED


def test_a_new_node_gets_replicas_and_then_masters() -> None:
    """A few groups at once, also the registry's group; masters are balanced when that is over."""
    story = Story(groups=12).comes(4)
    while story.planning.state is not PlanningState.MOVING:
        story.run(200)
    assert story.masters == [5, 4, 4, 0]
    story.until_settled()
    assert story.replicas == [9, 9, 9, 9]
    assert max(story.masters) - min(story.masters) <= 1
    assert story.most_at_once == CONFIG.moves_max
    assert story.registry.members(GroupId(0)) == (1, 2, 3, 4)
    for group, node in story.registry.placement.items():
        assert node in story.registry.members(group)


def test_from_3_to_5_to_3_nodes_every_step_ends_even_and_who_left_is_gone() -> None:
    story = Story(groups=15).comes(4, 5).until_settled()
    assert story.replicas == [9] * 5
    assert sorted(story.masters) == [3, 3, 3, 3, 4]
    run(story.registry, RemoveNode(NodeId(1)), RemoveNode(NodeId(2)))
    story.until_settled()
    results = run(story.registry, FinishRemoval(NodeId(1)), FinishRemoval(NodeId(2)))
    assert [type(result) for result in results] == [Done, Done]
    assert story.replicas == [15] * 3
    assert max(story.masters) - min(story.masters) <= 1


def test_a_node_that_leaves_gives_its_masters_away_first() -> None:
    story = Story(founders=4, groups=8)
    run(story.registry, RemoveNode(NodeId(2)))
    story.run(2_000)
    assert 2 not in story.registry.placement.values()
    assert any(2 in story.registry.members(GroupId(group)) for group in range(9))
    story.until_settled()
    assert not any(2 in story.registry.members(GroupId(group)) for group in range(9))


def test_a_node_that_is_gone_for_long_is_replaced_and_one_that_comes_back_gets_its_share() -> None:
    story = Story(founders=4, groups=12).run(2_000)
    story.alive -= {4}
    story.run(REPLACE_MS - 1_000, step_ms=500)
    assert story.replicas == [9, 9, 9, 9]
    story.run(2_000)
    assert story.triggers[-1].startswith("node-dead:4")
    story.until_settled()
    assert story.replicas == [12, 12, 12, 0]
    assert story.registry.replica_set(GroupId(0)) == (1, 2, 3, 4), "nobody could take its place"
    story.alive |= {4}
    story.until_settled()
    assert story.replicas == [9, 9, 9, 9]


def test_who_dies_while_it_gets_a_copy_is_replaced_there_too() -> None:
    story = Story(founders=5, groups=5, copy_ms=10**9)
    run(story.registry, RemoveNode(NodeId(5)))
    story.run(3_000)
    on_the_way = story.registry.replica_set(GroupId(4))
    assert 5 not in on_the_way
    (new,) = set(on_the_way) - set(story.registry.members(GroupId(4)))
    story.alive -= {new}
    story.run(REPLACE_MS + 2_000, step_ms=1_000)
    assert new not in story.registry.replica_set(GroupId(4))


@pytest.mark.parametrize("automatic", [False, True])
def test_a_drain_copies_nothing_and_a_pause_stops_all(automatic: bool) -> None:
    story = Story(founders=5, groups=10)
    run(story.registry, SetPolicy(None, Policy(automatic=automatic)))
    run(story.registry, DrainNode(NodeId(3), True))
    story.run(30_000)
    assert story.copies == {}
    run(story.registry, PauseBalancer(True), RemoveNode(NodeId(3)))
    story.run(30_000)
    assert story.copies == {}
    run(story.registry, PauseBalancer(False))
    story.until_settled()
    assert not any(3 in story.registry.members(GroupId(group)) for group in range(11))


def test_planning_by_hand_leaves_sets_where_they_are_until_somebody_leaves() -> None:
    story = Story(groups=6)
    run(story.registry, SetPolicy(None, Policy(automatic=False)))
    story.comes(4).run(20_000)
    assert story.replicas == [6, 6, 6, 0]
    run(story.registry, RemoveNode(NodeId(3)))
    story.until_settled()
    assert story.replicas == [6, 6, 0, 6]


def test_a_set_made_by_hand_is_not_levelled() -> None:
    story = Story(founders=5, groups=5)
    crowded = {GroupId(group): (NodeId(1), NodeId(2), NodeId(3)) for group in range(1, 6)}
    run(story.registry, SetReplicaSets(None, crowded, by_hand=True))
    story.until_settled()
    assert story.replicas == [5, 5, 5, 0, 0]
    assert max(story.masters) == 2, "but masters are"


def test_a_cluster_without_founders_is_left_alone() -> None:
    story = Story()
    story.registry = Registry()
    run(story.registry, FoundCluster("test", 3), *map(register, (1, 2, 3)), placement({0: 1, 1: 2}))
    story.run(3_000)
    assert story.planning.replicas.state is ReplicaState.ALL
