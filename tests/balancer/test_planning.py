"""When a plan is made: for drains, deaths, new nodes, shifted load; and when none is."""

from collections import Counter
from random import Random
from typing import Any

import pytest

from balancer.planner.problem import Evenness, Unfit
from balancer.planning import Planning, PlanningConfig, PlanningState, PlanningView
from balancer.registry.commands import (
    AdoptPlan,
    DrainNode,
    MergePlacement,
    PauseBalancer,
    PinGroup,
    PublishWeights,
    SetPolicy,
)
from balancer.registry.load import ClusterLoad
from balancer.registry.policy import Policy, Weights
from balancer.solving import Question, at_once
from paxos.ids import MS, GroupId, NodeId
from tests.balancer.late_answers import answers as answers  # a fixture
from tests.balancer.literals import at, founded, placement, register, run
from tests.balancer.test_load import report

CONFIG = PlanningConfig()
BY_WEIGHT = Policy(evenness=Evenness.WEIGHT)


class Story:
    """A planning node, its registry, and a clock that ticks."""

    def __init__(self, text: str, nodes: tuple[int, ...] = (1, 2, 3)) -> None:
        """`text`: the node of each group, as in test_plans."""
        self.registry = founded(len(text) - 1, nodes)
        run(self.registry, placement({at: int(node) for at, node in enumerate(text)}))
        self.planning = Planning()
        self.now_ms = 0
        self.alive = set(nodes)
        self.masters: dict[int, int] = {}
        self.unfit: dict[int, Unfit] = {}
        self.ours = True
        self.book = ClusterLoad()
        self.adopted: list[AdoptPlan] = []

    def view(self) -> PlanningView:
        now, registry = at(self.now_ms), self.registry
        ideal = dict(registry.placement)
        return PlanningView(
            now=now,
            me=NodeId(1),
            ours=self.ours,
            registry=registry,
            masters=ideal | {GroupId(group): NodeId(node) for group, node in self.masters.items()},
            alive=frozenset(NodeId(node) for node in self.alive),
            unfit={NodeId(node): why for node, why in self.unfit.items()},
            weights=self.book.weights(now, map(GroupId, registry.groups)),
        )

    def run(self, ms: int, step_ms: int = 200) -> "Story":
        """Tick, and adopt what is proposed."""
        for _ in range(0, ms, step_ms):
            self.now_ms += step_ms
            command = self.planning.on_tick(self.view())
            if command is not None:
                self.adopted.append(command)
                run(self.registry, command)
        return self

    @property
    def drawn(self) -> str:
        return "".join(str(node) for node in self.registry.placement.values())

    @property
    def counts(self) -> list[int]:
        return sorted(Counter(self.drawn).values())

    @property
    def last(self) -> Any:
        return self.adopted[-1].record


def test_an_even_cluster_is_left_alone() -> None:
    story = Story("123123").run(60_000)
    assert story.adopted == []
    assert story.planning.state is PlanningState.EVEN


def test_only_the_master_of_the_registry_plans() -> None:
    story = Story("111111")
    story.ours = False
    story.run(5_000)
    assert story.adopted == []
    assert story.planning.state is PlanningState.NOT_OURS
    story.ours = True
    assert story.run(5_000).counts == [2, 2, 2]


def test_a_node_that_drains_loses_its_groups_at_once_and_gets_as_many_back() -> None:
    story = Story("123123")
    run(story.registry, DrainNode(NodeId(3), True))
    story.run(1_000)
    assert story.counts == [3, 3]
    assert story.last.trigger == "node 3 is draining"
    assert [move.reason for move in story.last.moves] == ["node-unusable:draining"] * 2
    run(story.registry, DrainNode(NodeId(3), False))
    assert story.run(1_000).counts == [2, 2, 2]
    assert len(story.adopted[1].record.moves) == 2


def test_a_short_absence_changes_nothing_and_a_long_one_does() -> None:
    """Its groups have masters elsewhere: leaving them there is no move."""
    story = Story("123123")
    story.alive = {1, 2}
    story.run(10_000)
    story.alive = {1, 2, 3}
    story.run(10_000)
    assert story.adopted == []
    story.alive = {1, 2}
    story.masters = {2: 1, 5: 2}
    story.run(CONFIG.dead_after_ns // MS + 1_000)
    assert story.drawn == "121122"
    assert story.last.trigger == "node 3 is dead"
    story.alive, story.masters = {1, 2, 3}, {}
    assert story.run(2_000).counts == [2, 2, 2]


def test_a_new_node_gets_its_share() -> None:
    story = Story("121212", nodes=(1, 2))
    run(story.registry, register(3))
    story.alive.add(3)
    assert story.run(2_000).counts == [2, 2, 2]
    assert story.last.trigger == "node 3 has no groups"


def test_a_node_that_has_just_started_waits_for_its_share() -> None:
    story = Story("121212", nodes=(1, 2))
    run(story.registry, register(3))
    story.alive.add(3)
    story.unfit = {3: Unfit.RESTARTED}
    story.run(3_000)
    assert story.adopted == []
    story.unfit = {}
    assert story.run(2_000).counts == [2, 2, 2]


def test_a_lagging_node_keeps_what_it_has_while_another_drains() -> None:
    story = Story("123123")
    story.unfit = {2: Unfit.LAGGING}
    run(story.registry, DrainNode(NodeId(3), True))
    assert story.run(2_000).drawn == "121121"
    story.unfit = {}
    assert story.run(2_000).counts == [3, 3]


def test_a_placement_set_by_hand_stays_but_a_drain_is_obeyed() -> None:
    story = Story("123123")
    run(story.registry, MergePlacement(None, GroupId(0), NodeId(2)))
    run(story.registry, MergePlacement(None, GroupId(3), NodeId(2)))
    story.run(30_000)
    assert story.drawn == "223223"
    assert story.planning.state is PlanningState.MANUAL
    run(story.registry, DrainNode(NodeId(2), True))
    story.run(2_000)
    assert "2" not in story.drawn
    assert not story.registry.policy.automatic


def test_paused_there_are_no_plans_and_a_paused_group_never_moves() -> None:
    story = Story("111111")
    run(story.registry, PauseBalancer(True))
    story.run(5_000)
    assert story.planning.state is PlanningState.PAUSED
    run(story.registry, PauseBalancer(False), PauseBalancer(True, GroupId(5)))
    story.run(2_000)
    assert story.counts == [2, 2, 2]
    assert story.drawn[5] == "1"
    run(story.registry, PauseBalancer(True, GroupId(0)), DrainNode(NodeId(1), True))
    story.run(10_000)
    assert [index for index, node in enumerate(story.drawn) if node == "1"] == [0, 5]
    assert len(story.adopted) == 1


def test_a_pinned_group_stays_and_the_rest_is_levelled_around_it() -> None:
    story = Story("123123")
    run(story.registry, PinGroup(GroupId(0), NodeId(3)))
    story.run(2_000)
    assert story.drawn[0] == "3"
    assert story.counts == [2, 2, 2]


def test_a_plan_that_lost_the_race_is_made_again_for_the_new_placement() -> None:
    """E8: compare-and-set refuses it, and nothing is lost."""
    story = Story("111111")
    command = None
    for story.now_ms in range(1_000, 3_000, 200):
        command = command or story.planning.on_tick(story.view())
    assert command is not None
    run(story.registry, PinGroup(GroupId(0), NodeId(2)), command)
    assert story.registry.plans == ()
    assert story.run(2_000).counts == [2, 2, 2]


def test_with_nobody_usable_there_is_no_plan() -> None:
    story = Story("1212", nodes=(1, 2))
    run(story.registry, DrainNode(NodeId(1), True), DrainNode(NodeId(2), True))
    assert story.run(5_000).adopted == []


# ---- by weight -----------------------------------------------------------------------------------


def loaded(story: Story, rates: dict[int, float], seconds: int) -> Story:
    """Each node reports the cost of its groups every 5 s, in µs of CPU a second."""
    for _ in range(0, seconds, 5):
        for node in sorted(story.alive):
            mine = {
                int(group): int(rates[int(group)])
                for group, ideal in story.registry.placement.items()
                if ideal == node
            }
            story.book.observe(report(node, story.now_ms / 1_000, mine), at(story.now_ms))
        story.run(5_000, step_ms=1_000)
    return story


def fluctuating(story: Story, rates: dict[int, float], seconds: int, dice: Random) -> None:
    for _ in range(0, seconds, 5):
        noisy = {group: rate * dice.uniform(0.8, 1.2) for group, rate in rates.items()}
        loaded(story, noisy, 5)


@pytest.mark.parametrize("seed", range(5))
def test_no_ping_pong_under_a_load_that_fluctuates_by_a_fifth(seed: int) -> None:
    """Ten simulated minutes with uneven groups: once the placement is even, nothing moves."""
    dice = Random(seed)
    rates = {group: dice.uniform(5_000, 40_000) for group in range(13)}
    story = Story("123" * 4 + "1")
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    loaded(story, rates, 180)
    before = len(story.adopted)
    fluctuating(story, rates, 600, dice)
    assert len(story.adopted) == before
    assert story.planning.state is PlanningState.TOLERATED


def test_a_shift_of_load_is_followed_once_and_then_it_is_even_again() -> None:
    rates = dict.fromkeys(range(12), 10_000.0)
    story = Story("123" * 4)
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    loaded(story, rates, 120)
    assert story.adopted == []
    rates |= {0: 60_000.0, 3: 60_000.0}
    loaded(story, rates, 300)
    assert len(story.adopted) == 1
    assert story.last.trigger == "uneven by weight"
    assert (story.last.weights, story.last.evenness) == ("built-in", Evenness.WEIGHT)
    assert story.drawn[0] != story.drawn[3]
    fluctuating(story, rates, 300, Random(1))
    assert len(story.adopted) == 1


def test_a_node_for_which_there_is_nothing_is_not_planned_for_again_and_again() -> None:
    """Two groups carry all the load: the third node may stay empty, whatever the noise suggests."""
    rates = {0: 90_000.0, 1: 90_000.0, 2: 2.0, 3: 2.0, 4: 2.0}
    story = Story("12121")
    story.registry = founded(4, (1, 2, 3))
    run(story.registry, placement({0: 1, 1: 2, 2: 1, 3: 2, 4: 1}), SetPolicy(None, BY_WEIGHT))
    loaded(story, rates, 120)
    before = len(story.adopted)
    fluctuating(story, rates, 600, Random(3))
    assert before <= 2
    assert len(story.adopted) == before


@pytest.mark.parametrize("seed", range(4))
def test_no_ping_pong_either_where_a_few_groups_carry_nearly_all(seed: int) -> None:
    """Loads with a heavy tail; some groups are heavier than a node's share."""
    dice = Random(seed)
    rates = {group: min(400_000.0, dice.paretovariate(1.1) * 5_000) for group in range(25)}
    story = Story("1234" * 6 + "1", nodes=(1, 2, 3, 4))
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    loaded(story, rates, 240)
    before = len(story.adopted)
    fluctuating(story, rates, 600, dice)
    assert len(story.adopted) == before


def test_published_weights_are_believed_before_the_built_in_ones() -> None:
    story = Story("123" * 4)
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    loaded(story, dict.fromkeys(range(12), 10_000.0), 60)
    heavy = {GroupId(0): 5_000, GroupId(3): 5_000}
    computed = at(story.now_ms).wall_ns
    run(story.registry, PublishWeights(Weights("spark", computed, heavy)))
    story.run(120_000, step_ms=1_000)
    assert [one.record.weights for one in story.adopted] == ["spark"]


def test_weights_of_a_time_far_ahead_are_not_believed() -> None:
    story = Story("123" * 4)
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    heavy = {GroupId(0): 9_000, GroupId(3): 9_000}
    ahead = at(story.now_ms).wall_ns + CONFIG.weights_age_ns + 121_000 * MS
    run(story.registry, PublishWeights(Weights("spark", ahead, heavy)))
    assert story.run(120_000, step_ms=1_000).adopted == []


def test_old_weights_are_not_believed_and_what_must_be_planned_goes_by_counts() -> None:
    """Nothing moves because weights grew old; but a drain is planned."""
    story = Story("123" * 4)
    run(story.registry, SetPolicy(None, BY_WEIGHT))
    heavy = {GroupId(0): 9_000, GroupId(3): 9_000}
    run(story.registry, PublishWeights(Weights("spark", at(0).wall_ns, heavy)))
    story.now_ms = CONFIG.weights_age_ns // MS + 1
    story.run(60_000, step_ms=1_000)
    assert story.adopted == []
    assert story.planning.state is PlanningState.TOLERATED
    run(story.registry, DrainNode(NodeId(3), True))
    story.run(2_000)
    assert story.counts == [6, 6]
    assert (story.last.weights, story.last.evenness) == ("counts", Evenness.COUNT)


def test_what_if_a_node_died() -> None:
    """A preview is a plan that nobody proposes."""
    story = Story("123123")
    problem = story.planning.problem(story.view(), without=frozenset({NodeId(2)}))
    assert {one.node: one.unfit for one in problem.nodes} == {1: None, 2: Unfit.DEAD, 3: None}
    assert story.drawn == "123123"


def test_capacities_and_topics_come_from_the_registry() -> None:
    registry = founded(4)
    policy = Policy(capacities={NodeId(2): 50})
    run(registry, placement({0: 1, 1: 2, 2: 3, 3: 1, 4: 2}), SetPolicy(None, policy))
    story = Story("12312")
    story.registry = registry
    problem = story.planning.problem(story.view())
    assert [one.capacity for one in problem.nodes] == [100, 50, 100]
    assert problem.objectives == policy.objectives


def test_a_decision_about_a_situation_that_is_over_is_dropped() -> None:
    """The answer comes late; meanwhile a node has begun to drain."""
    story = Story("111111")
    asked: list[Question] = []

    def never(question: Question) -> None:
        asked.append(question)

    story.planning.solver = never
    story.run(2_000)
    assert len({id(one) for one in asked}) == 1, "the same question, again and again"
    run(story.registry, DrainNode(NodeId(2), True))
    story.planning.solver = at_once
    story.run(2_000)
    assert (story.counts, set(story.drawn)) == ([3, 3], {"1", "3"})
    assert len(story.adopted) == 1


def test_a_newcomer_is_still_new_if_the_decision_about_it_was_dropped() -> None:
    story = Story("12121")
    story.registry = founded(4, (1, 2, 3))
    run(story.registry, placement({0: 1, 1: 2, 2: 1, 3: 2, 4: 1}), SetPolicy(None, BY_WEIGHT))
    loaded(story, dict.fromkeys(range(5), 2.0), 30)
    before = story.planning._welcomed
    story.planning.solver = lambda _question: None
    story.planning._welcomed = before - {NodeId(3)}
    run(story.registry, PauseBalancer(True, GroupId(4)))
    story.run(2_000)
    assert NodeId(3) not in story.planning._welcomed
    story.planning.solver = at_once
    run(story.registry, PauseBalancer(False, GroupId(4)))
    story.run(2_000)
    assert NodeId(3) in story.planning._welcomed
