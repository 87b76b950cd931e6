"""Which group is stolen next, and why every other one is not: pure functions of a view (E9, E10).

Every node judges alike from what all of them know (placement, leases, pauses, steal history), and
so they agree on the group whose turn it is without talking. Where they see things differently for
a moment, the steal token lets one of them through.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum

import attrs

from balancer.records import StealRecord
from balancer.view import ClusterView
from paxos.ids import GroupId, NodeId


class Why(StrEnum):
    """Why a group is not being moved by this node now, or that it is."""

    IN_PLACE = "in-place"
    NO_IDEAL = "no-ideal"
    """The placement does not mention the group."""
    NOT_SEEN = "not-seen"
    """This node has no replica of the group to look at."""
    NO_MASTER = "no-master"
    """Nobody to ask; an election comes first."""
    MASTER_DEAD = "master-dead"
    """The master does not answer; its lease runs out by itself."""
    IDEAL_DEAD = "ideal-dead"
    IDEAL_DRAINING = "ideal-draining"
    PAUSED = "paused"
    GROUP_PAUSED = "group-paused"
    MUTED = "muted"
    """Its last steal failed less than the cool-down ago."""
    LAGGING = "lagging"
    """This node is the ideal one and has too many slots still to apply."""
    PASSED_OVER = "passed-over"
    """Its ideal node had its turn and did nothing: others go on without it for a while."""
    LATER = "later"
    """A lower-numbered group goes first."""
    OTHERS_TURN = "others-turn"
    """It is next, and for another node to steal."""
    STEALING = "stealing"
    """The steal token says that this group is being moved."""
    TOKEN_HELD = "token-held"  # noqa: S105  # the code of a reason, not a secret
    HOLD_DOWN = "hold-down"
    """This node has only just started."""
    REGISTRY_UNREACHABLE = "registry-unreachable"
    CLOCK_UNTRUSTED = "clock-untrusted"
    SETTLING = "settling"
    """The pause between two steals, or after a refusal."""
    NEXT = "next"
    """This node steals it now."""


@attrs.frozen
class Limits:
    """What a verdict depends on besides the view."""

    lag_slots_max: int
    cool_down_ns: int


def muted_groups(
    history: Iterable[StealRecord], now_wall_ns: int, cool_down_ns: int
) -> frozenset[GroupId]:
    """Groups whose latest steal failed less than the cool-down ago.

    Read from the replicated history, so that all nodes go on to the same next group.
    """
    latest = {one.group: one for one in history}
    return frozenset(
        group
        for group, one in latest.items()
        if one.outcome.failed and now_wall_ns < one.finished_wall_ns + cool_down_ns
    )


def token_held(view: ClusterView) -> bool:
    return view.token is not None and not view.token.free_at(view.now.wall_ns)


def judge(
    view: ClusterView, limits: Limits, passed_over: Collection[NodeId]
) -> tuple[list[tuple[GroupId, Why]], GroupId | None]:
    """A reason for every group, ascending, and the group whose turn it is (its reason is NEXT).

    Whether this node may act on its turn at all is not asked here (`Balancing` does).
    """
    muted = muted_groups(view.history, view.now.wall_ns, limits.cool_down_ns)
    stealing = view.token.group if view.token is not None and token_held(view) else None
    reasons: list[tuple[GroupId, Why]] = []
    turn: GroupId | None = None
    for group in sorted(view.placement.keys() | view.groups.keys()):
        why = Why.STEALING if group == stealing else _obstacle(view, group, muted)
        if why is None:
            why = _bypassed(view, group, limits, passed_over)
        if why is None:
            why = Why.NEXT if turn is None else Why.LATER
            turn = group if turn is None else turn
        reasons.append((group, why))
    return reasons, turn


def _obstacle(view: ClusterView, group: GroupId, muted: Collection[GroupId]) -> Why | None:
    """What keeps everybody from stealing the group; None where it is misplaced and can be moved."""
    ideal, seen = view.placement.get(group), view.groups.get(group)
    if ideal is None or seen is None:
        return Why.NO_IDEAL if ideal is None else Why.NOT_SEEN
    if seen.master == ideal:
        return Why.IN_PLACE
    checks = (
        (seen.master is None, Why.NO_MASTER),
        (seen.master not in view.alive, Why.MASTER_DEAD),
        (ideal not in view.alive, Why.IDEAL_DEAD),
        (ideal in view.draining, Why.IDEAL_DRAINING),
        (view.paused, Why.PAUSED),
        (group in view.paused_groups, Why.GROUP_PAUSED),
        (group in muted, Why.MUTED),
    )
    return next((why for blocked, why in checks if blocked), None)


def _bypassed(
    view: ClusterView, group: GroupId, limits: Limits, passed_over: Collection[NodeId]
) -> Why | None:
    """Why this node looks past a group that could be moved."""
    if view.placement[group] != view.me:
        return Why.PASSED_OVER if view.placement[group] in passed_over else None
    return Why.LAGGING if view.groups[group].lag > limits.lag_slots_max else None
