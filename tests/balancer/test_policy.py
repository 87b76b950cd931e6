"""The registry's policy, pins, plans and weights; and the budget of steals with its tokens."""

from typing import Any

import attrs
import pytest

from balancer.planner.problem import Evenness
from balancer.registry.commands import (
    AdoptPlan,
    CancelSteal,
    Done,
    MergePlacement,
    PinGroup,
    PlacementSet,
    PublishWeights,
    Refusal,
    Refused,
    ReleaseStealToken,
    SetPolicy,
    TokenGranted,
    TokenRefused,
)
from balancer.registry.policy import (
    PLAN_MOVES_MAX,
    PLANS_MAX,
    STEALS_MAX,
    PlanMove,
    PlanRecord,
    Policy,
    Weights,
)
from balancer.registry.records import Outcome, StealRecord
from balancer.registry.registry import Registry
from balancer.stealing.judgement import Limits, StealReason, judge, muted_nodes
from balancer.stealing.view import ClusterView
from paxos.ids import MS, GroupId, Incarnation, NodeId, Slot
from tests.balancer.literals import acquire, at, founded, group, placement, run

NODES = (1, 2, 3, 4)


def record(moves: int = 1, **changes: Any) -> PlanRecord:
    move = PlanMove(GroupId(1), NodeId(1), NodeId(2), "evenness")
    kept = (move,) * min(moves, PLAN_MOVES_MAX)
    base = PlanRecord(7, NodeId(1), "test", Evenness.COUNT, "counts", kept, moves, moves, "bound")
    return attrs.evolve(base, **changes)


def adopt(ideal: dict[int, int], expected: int, **changes: Any) -> AdoptPlan:
    wanted = {GroupId(number): NodeId(node) for number, node in ideal.items()}
    return AdoptPlan(expected, wanted, True, record(**changes))


def placed(ideal: dict[int, int]) -> Registry:
    registry = founded(6, NODES)
    run(registry, placement(ideal))
    return registry


def reason(result: object) -> Refusal:
    assert isinstance(result, Refused | TokenRefused)
    return result.reason


# ---- policy --------------------------------------------------------------------------------------


def test_the_policy_is_compare_and_set() -> None:
    registry = founded(4)
    wanted = Policy(evenness=Evenness.WEIGHT, capacities={NodeId(2): 50, NodeId(1): 200})
    done, late, again = run(
        registry, SetPolicy(0, wanted), SetPolicy(0, Policy()), SetPolicy(1, wanted)
    )
    assert isinstance(done, Done)
    assert isinstance(again, Done)
    assert reason(late) is Refusal.POLICY_CONFLICT
    assert registry.policy == wanted
    assert registry.versions.policy == 1
    assert list(registry.policy.capacities) == [1, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"steals_max": 0},
        {"steals_max": STEALS_MAX + 1},
        {"tolerance_percent": 40},
        {"tolerance_percent": -1},
        {"topic_excess_max": -1},
        {"produce_p99_ms_max": 0},
        {"capacities": {NodeId(1): -1}},
        {"preferred_zones": ("x" * 65,)},
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    registry = founded(4)
    (result,) = run(registry, SetPolicy(None, attrs.evolve(Policy(), **change)))
    assert reason(result) is Refusal.INVALID_POLICY
    assert registry.policy == Policy()


def test_what_an_operator_places_by_hand_is_not_planned_away() -> None:
    """The first placement is no operator's; every later one by hand turns automatic planning
    off."""
    registry = placed({1: 1, 2: 2})
    assert registry.policy.automatic
    run(registry, MergePlacement(None, GroupId(1), NodeId(3)))
    assert not registry.policy.automatic
    run(registry, adopt({1: 1, 2: 2}, registry.versions.placement))
    assert registry.policy.automatic


# ---- plans ---------------------------------------------------------------------------------------


def test_a_plan_is_adopted_for_the_placement_it_was_made_for() -> None:
    """E8: a stale plan changes nothing and leaves no trace."""
    registry = placed({1: 1, 2: 1})
    version = registry.versions.placement
    adopted, stale = run(registry, adopt({1: 1, 2: 2}, version), adopt({1: 3, 2: 3}, version))
    assert isinstance(adopted, PlacementSet)
    assert reason(stale) is Refusal.PLACEMENT_CONFLICT
    assert registry.placement == {1: 1, 2: 2}
    assert registry.plans == (record(),)


def test_only_the_last_plans_are_remembered() -> None:
    registry = placed({1: 1})
    for wall_ns in range(PLANS_MAX + 5):
        version = registry.versions.placement
        run(registry, adopt({1: 1 + wall_ns % 2}, version, wall_ns=wall_ns))
    assert [one.wall_ns for one in registry.plans] == list(range(5, PLANS_MAX + 5))


@pytest.mark.parametrize(
    "change", [{"wall_ns": -1}, {"trigger": "x" * 201}, {"proof": "x" * 41}, {"moves_count": 0}]
)
def test_a_record_that_does_not_fit_is_refused(change: dict[str, Any]) -> None:
    registry = placed({1: 1})
    (result,) = run(registry, adopt({1: 2}, registry.versions.placement, **change))
    assert reason(result) is Refusal.INVALID_PLAN
    assert registry.placement == {1: 1}


# ---- pins and weights ----------------------------------------------------------------------------


def test_a_group_moved_by_hand_is_pinned_until_it_is_given_back() -> None:
    registry = placed({1: 1, 2: 2})
    run(registry, PinGroup(GroupId(1), NodeId(3)))
    assert registry.placement == {1: 3, 2: 2}
    assert registry.pins == {1: 3}
    assert registry.policy.automatic
    run(registry, PinGroup(GroupId(1), None))
    assert registry.pins == {}
    assert registry.placement == {1: 3, 2: 2}
    for wrong in (PinGroup(GroupId(9), NodeId(1)), PinGroup(GroupId(1), NodeId(9))):
        (result,) = run(registry, wrong)
        assert isinstance(result, Refused)
    assert registry.pins == {}


def test_weights_are_replaced_by_newer_ones_only() -> None:
    registry = founded(4)
    newer, older = Weights("spark", 20, {GroupId(1): 500}), Weights("spark", 10, {})
    first, second = run(registry, PublishWeights(newer), PublishWeights(older))
    assert isinstance(first, Done)
    assert reason(second) is Refusal.STALE_WEIGHTS
    assert registry.weights == newer
    for wrong, why in (
        (Weights("", 30, {}), Refusal.INVALID_WEIGHTS),
        (Weights("s", 30, {GroupId(1): -1}), Refusal.INVALID_WEIGHTS),
        (Weights("s", 30, {GroupId(5): 1}), Refusal.UNKNOWN_GROUP),
    ):
        (result,) = run(registry, PublishWeights(wrong))
        assert reason(result) is why


def test_everything_is_in_the_snapshot() -> None:
    registry = placed({1: 1, 2: 2})
    run(
        registry,
        SetPolicy(None, Policy(preferred_zones=("a",), topic_excess_max=2)),
        PinGroup(GroupId(1), NodeId(2)),
        PublishWeights(Weights("spark", 20, {GroupId(2): 500})),
        adopt({1: 2, 2: 3}, registry.versions.placement + 1),
    )
    restored = Registry.restore(registry.snapshot())
    assert restored.snapshot() == registry.snapshot()
    for name in ("policy", "pins", "weights", "plans", "versions"):
        assert getattr(restored, name) == getattr(registry, name)


# ---- the budget of steals ------------------------------------------------------------------------


def busy(budget: int) -> Registry:
    """Groups 1 to 4 are on nodes 1, 1, 3, 3 and belong on nodes 2, 3, 4, 2."""
    registry = placed({1: 2, 2: 3, 3: 4, 4: 2})
    run(registry, SetPolicy(None, Policy(steals_max=budget)))
    return registry


def test_E10_with_a_budget_of_one_nothing_else_starts() -> None:
    registry = busy(1)
    first, second = run(registry, acquire(1, 1, 2), acquire(3, 3, 4, now_ms=10))
    assert isinstance(first, TokenGranted)
    assert reason(second) is Refusal.TOKEN_HELD


def test_with_a_budget_of_two_no_node_takes_part_in_two_steals() -> None:
    registry = busy(2)
    first, same_source, same_target, other, third = run(
        registry,
        acquire(1, 1, 2),
        acquire(2, 1, 3),
        acquire(4, 3, 2, attempt=2),
        acquire(3, 3, 4),
        acquire(2, 1, 3),
    )
    assert isinstance(first, TokenGranted)
    assert isinstance(other, TokenGranted)
    for refused in (same_source, same_target, third):
        assert reason(refused) is Refusal.TOKEN_HELD
    run(registry, ReleaseStealToken(first.token.token, Outcome.DONE, 5))
    assert [one.group for one in registry.tokens] == [3]
    assert Registry.restore(registry.snapshot()).tokens == registry.tokens


def test_an_expired_token_is_taken_over_whatever_the_budget() -> None:
    registry = busy(2)
    run(registry, acquire(1, 1, 2), acquire(3, 3, 4))
    (late,) = run(registry, acquire(2, 1, 3, now_ms=11_000))
    assert isinstance(late, TokenGranted)
    assert [one.group for one in registry.tokens] == [2]
    assert [one.outcome for one in registry.history] == [Outcome.EXPIRED] * 2


def test_a_cancelled_token_is_not_honoured_by_the_master() -> None:
    """It is held until it is given back, so that nothing else starts meanwhile (E10)."""
    registry = busy(1)
    (granted,) = run(registry, acquire(1, 1, 2))
    assert isinstance(granted, TokenGranted)
    number = granted.token.token
    assert registry.token_numbered(number) == granted.token
    done, again, unknown = run(
        registry, CancelSteal(number), CancelSteal(number), CancelSteal(number + 1)
    )
    assert isinstance(done, Done)
    assert (reason(again), reason(unknown)) == (Refusal.NOT_STEALING, Refusal.NOT_STEALING)
    assert registry.token_numbered(number) is None
    (other,) = run(registry, acquire(3, 3, 4))
    assert reason(other) is Refusal.TOKEN_HELD
    assert Registry.restore(registry.snapshot()).token_numbered(number) is None


def test_to_cancel_a_second_steal_does_not_bring_the_first_one_back() -> None:
    registry = busy(2)
    tokens = []
    for granted in run(registry, acquire(1, 1, 2), acquire(3, 3, 4)):
        assert isinstance(granted, TokenGranted)
        tokens.append(granted.token.token)
    run(registry, *map(CancelSteal, tokens))
    restored = Registry.restore(registry.snapshot())
    assert [registry.token_numbered(one) for one in tokens] == [None, None]
    assert [restored.token_numbered(one) for one in tokens] == [None, None]
    run(registry, *(ReleaseStealToken(one, Outcome.ABORTED, 5) for one in tokens))
    (again,) = run(registry, acquire(1, 1, 2, attempt=2))
    assert isinstance(again, TokenGranted)
    assert registry.token_numbered(again.token.token) == again.token


def seen(registry: Registry, me: int, masters: dict[int, int], **kwargs: Any) -> ClusterView:
    return ClusterView.of_registry(
        registry,
        now=at(100),
        me=NodeId(me),
        incarnation=Incarnation(1),
        alive=frozenset(NodeId(node) for node in NODES),
        registry_reachable=True,
        groups={GroupId(number): group(number, node) for number, node in masters.items()},
        **kwargs,
    )


MASTERS = {1: 1, 2: 1, 3: 3, 4: 3}
LIMITS = Limits(lag_slots_max=100, cool_down_ns=5_000 * MS)


def test_with_budget_left_the_turn_goes_to_a_group_of_idle_nodes() -> None:
    """Group 1 moves from node 1 to 2: only group 3, from 3 to 4, shares no node with it."""
    registry = busy(2)
    run(registry, acquire(1, 1, 2))
    reasons, turn = judge(seen(registry, 4, MASTERS), LIMITS, ())
    assert turn == 3
    assert dict(reasons) == {
        1: StealReason.STEALING,
        2: StealReason.NODE_BUSY,
        3: StealReason.NEXT,
        4: StealReason.NODE_BUSY,
    }


def test_a_node_sees_its_own_token_first_and_others_only_when_they_are_in_its_way() -> None:
    registry = busy(2)
    run(registry, acquire(1, 1, 2))
    assert seen(registry, 3, MASTERS).token is None
    mine = seen(registry, 2, MASTERS).token
    assert mine is not None
    assert mine.group == 1
    run(registry, acquire(3, 3, 4))
    in_the_way = seen(registry, 3, MASTERS)
    assert in_the_way.token == registry.tokens[0]
    assert in_the_way.others == registry.tokens[1:]


# ---- mutes and pacing ----------------------------------------------------------------------------


def steal(number: int, target: int, outcome: Outcome, finished_ms: float) -> StealRecord:
    return StealRecord(
        number,
        GroupId(number),
        NodeId(1),
        NodeId(target),
        Slot(9),
        1,
        outcome,
        at(finished_ms).wall_ns,
        5,
    )


def test_a_node_whose_steals_fail_in_a_row_is_muted_for_a_while() -> None:
    failed = [steal(number, 2, Outcome.TIMED_OUT, number) for number in range(3)]
    assert muted_nodes(failed[:2], at(10).wall_ns) == frozenset()
    assert muted_nodes(failed, at(10).wall_ns) == {2}
    assert muted_nodes(failed, at(30_002).wall_ns) == frozenset()
    done = steal(9, 2, Outcome.DONE, 5)
    assert muted_nodes([*failed, done], at(10).wall_ns) == frozenset()
    view = seen(founded(6, NODES), 1, MASTERS)
    view = attrs.evolve(
        view, placement={GroupId(5): NodeId(2)}, history=tuple(failed), groups={5: group(5, 3)}
    )
    assert judge(view, LIMITS, ())[0] == [(5, StealReason.IDEAL_MUTED)]


def test_steals_are_paced_while_producers_wait() -> None:
    """Node 1, which has to give groups away, is slow: they leave, but not all at once."""
    registry = busy(1)
    run(registry, acquire(1, 1, 2, now_ms=0), ReleaseStealToken(1, Outcome.DONE, 50_000))
    slow = frozenset({NodeId(1)})
    view = seen(registry, 3, MASTERS | {1: 2}, slow=slow)
    assert dict(judge(view, LIMITS, ())[0])[GroupId(2)] is StealReason.PACED
    later = attrs.evolve(view, now=at(2_051))
    assert judge(later, LIMITS, ())[1] == 2
    target_slow = attrs.evolve(later, slow=frozenset({NodeId(3)}))
    assert dict(judge(target_slow, LIMITS, ())[0])[GroupId(2)] is StealReason.IDEAL_SLOW
