"""Whose turn it is to steal: a cluster as a literal, and the reason for every group."""

from typing import Any

import attrs
import pytest

from balancer.registry.records import Outcome, StealRecord, StealToken
from balancer.stealing.judgement import Limits, StealReason, judge, muted_groups
from balancer.stealing.view import ClusterView
from paxos.ids import MS, GroupId, Incarnation, NodeId, Slot
from tests.balancer.literals import at, group, view

LIMITS = Limits(lag_slots_max=100, cool_down_ns=5_000 * MS)


def past(number: int, outcome: Outcome, finished_ms: float) -> StealRecord:
    return StealRecord(
        1, GroupId(number), NodeId(1), NodeId(2), Slot(9), 1, outcome, at(finished_ms).wall_ns, 5
    )


def token(number: int, acquired_ms: float = 0, target: int = 2, **kwargs: Any) -> StealToken:
    start = at(acquired_ms).wall_ns
    base = StealToken(
        1,
        GroupId(number),
        NodeId(1),
        NodeId(target),
        Incarnation(1),
        1,
        Slot(10),
        1,
        start,
        start + 10_000 * MS,
    )
    return attrs.evolve(base, **kwargs)


def reasons(one: ClusterView, passed_over: tuple[int, ...] = ()) -> dict[int, StealReason]:
    judged, turn = judge(one, LIMITS, {NodeId(node) for node in passed_over})
    assert [number for number, why in judged if why is StealReason.NEXT] == (
        [] if turn is None else [turn]
    )
    return {int(number): why for number, why in judged}


def test_E9_actual_against_ideal() -> None:
    """Only differences are moved, and a group without an ideal node is left alone."""
    cluster = view(at(0), {1: 1, 2: 2, 3: 3, 9: 1}, {1: 1, 2: 2, 3: 3})
    assert reasons(cluster) == {
        1: StealReason.IN_PLACE,
        2: StealReason.IN_PLACE,
        3: StealReason.IN_PLACE,
        9: StealReason.NO_IDEAL,
    }


def test_E10_lowest_numbered_misplaced_group_first() -> None:
    """Groups 2, 5 and 7 are misplaced, in whatever order they are listed."""
    cluster = view(at(0), {7: 1, 5: 1, 2: 1, 1: 1}, {5: 3, 1: 1, 7: 2, 2: 2})
    assert reasons(cluster) == {
        1: StealReason.IN_PLACE,
        2: StealReason.NEXT,
        5: StealReason.LATER,
        7: StealReason.LATER,
    }


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"masters": {2: None}}, StealReason.NO_MASTER),
        ({"alive": (2, 3)}, StealReason.MASTER_DEAD),
        ({"alive": (1, 3)}, StealReason.IDEAL_DEAD),
        ({"draining": frozenset({NodeId(2)})}, StealReason.IDEAL_DRAINING),
        ({"members": {GroupId(2): frozenset({NodeId(1)})}}, StealReason.IDEAL_NOT_MEMBER),
        ({"paused": True}, StealReason.PAUSED),
        ({"paused_groups": frozenset({GroupId(2)})}, StealReason.GROUP_PAUSED),
        ({"history": (past(2, Outcome.ABORTED, -1_000),)}, StealReason.MUTED),
        ({"token": token(2)}, StealReason.STEALING),
        ({"me": 2, "groups": {2: group(2, 1, applied=10, chosen_to=111)}}, StealReason.LAGGING),
        ({"me": 2, "groups": {2: group(2, 1, voting=False)}}, StealReason.NOT_VOTING),
        ({"masters": {}}, StealReason.NOT_SEEN),
    ],
)
def test_what_keeps_a_misplaced_group_where_it_is(change: dict[str, Any], why: StealReason) -> None:
    """Group 2 is on node 1 and belongs on node 2; each case has one obstacle."""
    fields = {"masters": {2: 1}, "ideal": {2: 2}} | change
    assert reasons(view(at(0), **fields)) == {2: why}


def test_a_hindered_group_does_not_stop_those_behind_it() -> None:
    """E10 with a muted group: the next one gets its turn."""
    cluster = view(at(0), {1: 1, 2: 1}, {1: 2, 2: 3}, history=(past(1, Outcome.TIMED_OUT, -1_000),))
    assert reasons(cluster) == {1: StealReason.MUTED, 2: StealReason.NEXT}


def test_mute_ends_with_the_cool_down_and_with_a_success() -> None:
    """Only the latest steal of a group counts, and only for a while."""
    failed, done = past(1, Outcome.LOST, 0), past(1, Outcome.DONE, 100)
    cool_down = LIMITS.cool_down_ns
    assert muted_groups([failed], at(4_999).wall_ns, cool_down) == {1}
    assert muted_groups([failed], at(5_000).wall_ns, cool_down) == frozenset()
    assert muted_groups([failed, done], at(200).wall_ns, cool_down) == frozenset()
    assert muted_groups([past(1, Outcome.ABANDONED, 0)], at(1).wall_ns, cool_down) == frozenset()


def test_the_groups_of_a_passed_over_node_wait_behind_the_others() -> None:
    cluster = view(at(0), {1: 1, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 3}, me=3)
    assert reasons(cluster, passed_over=(2,)) == {
        1: StealReason.PASSED_OVER,
        2: StealReason.PASSED_OVER,
        3: StealReason.NEXT,
    }


def test_all_nodes_agree_on_whose_turn_it_is() -> None:
    """The verdict does not depend on the node that looks, except for that node's own lag."""
    cluster = view(at(0), {1: 3, 2: 1, 3: 1}, {1: 2, 2: 2, 3: 3})
    seen = [reasons(attrs.evolve(cluster, me=NodeId(me))) for me in (1, 2, 3)]
    assert seen[0] == seen[1] == seen[2]
