"""Which group is stolen next, and why every other one is not: pure functions of a view (E9, E10).

Every node judges alike from what all of them know (placement, leases, pauses, steal history), so
they agree without talking on the group whose turn it is. If they see things differently for a
moment, the steal token lets only one of them proceed.
"""

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Final

import attrs

from balancer.registry.records import StealRecord, StealToken
from balancer.stealing.view import ClusterView
from paxos.ids import MS, GroupId, NodeId

NODE_FAILURES_MAX: Final = 3
"""After this many failed steals to one node in a row it is muted ..."""
NODE_MUTE_NS: Final = 30_000 * MS
"""... for this long after the last of them."""
PACED_PAUSE_NS: Final = 1_000 * MS
"""Pause between two steals while some node answers its producers slowly."""


class StealReason(StrEnum):
    """Why this node does not move a group now, or that it does."""

    IN_PLACE = "in-place"
    NO_IDEAL = "no-ideal"
    """The placement does not mention the group."""
    NOT_SEEN = "not-seen"
    """This node has no replica of the group and cannot see its state."""
    NO_MASTER = "no-master"
    """There is no master to ask; an election comes first."""
    MASTER_DEAD = "master-dead"
    """The master does not answer; its lease will expire."""
    IDEAL_DEAD = "ideal-dead"
    IDEAL_NOT_MEMBER = "ideal-not-member"
    """Its ideal node is to become a member, and does not have the data yet."""
    IDEAL_DRAINING = "ideal-draining"
    IDEAL_MUTED = "ideal-muted"
    """The last steals to its ideal node failed, one after the other."""
    IDEAL_SLOW = "ideal-slow"
    """Its ideal node already answers its producers slowly."""
    PAUSED = "paused"
    GROUP_PAUSED = "group-paused"
    MUTED = "muted"
    """Its last steal failed less than the cool-down ago."""
    LAGGING = "lagging"
    """This node is the ideal one and still has too many slots to apply."""
    NOT_VOTING = "not-voting"
    """This node is the ideal one and has lost part of its disk: as master it could only wait for
    its lease to end, and so would all clients."""
    PASSED_OVER = "passed-over"
    """Its ideal node left its turn unused: others continue without it for a while."""
    NODE_BUSY = "node-busy"
    """Its master or its ideal node takes part in another steal."""
    PACED = "paced"
    """Some node answers its producers slowly: steals are further apart."""
    LATER = "later"
    """A group with a lower number goes first."""
    OTHERS_TURN = "others-turn"
    """It is next, and another node's to steal."""
    STEALING = "stealing"
    """According to the steal token, this group is being moved."""
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
    """What a verdict depends on beside the view."""

    lag_slots_max: int
    cool_down_ns: int


def muted_groups(
    history: Iterable[StealRecord], now_wall_ns: int, cool_down_ns: int
) -> frozenset[GroupId]:
    """Groups whose latest steal failed less than the cool-down ago.

    Taken from the replicated history, so that all nodes continue with the same group.
    """
    latest = {one.group: one for one in history}
    return frozenset(
        group
        for group, one in latest.items()
        if one.outcome.failed and now_wall_ns < one.finished_wall_ns + cool_down_ns
    )


def muted_nodes(history: Iterable[StealRecord], now_wall_ns: int) -> frozenset[NodeId]:
    """Nodes to which the latest steals failed, in a row and recently."""
    failures: dict[NodeId, int] = {}
    last_ns: dict[NodeId, int] = {}
    for one in history:
        failures[one.target] = failures.get(one.target, 0) + 1 if one.outcome.failed else 0
        last_ns[one.target] = one.finished_wall_ns
    return frozenset(
        node
        for node, count in failures.items()
        if count >= NODE_FAILURES_MAX and now_wall_ns < last_ns[node] + NODE_MUTE_NS
    )


def held_tokens(view: ClusterView) -> list[StealToken]:
    """All steals in progress."""
    known = (view.token, *view.others)
    return [one for one in known if one is not None and not one.free_at(view.now.wall_ns)]


def paced(view: ClusterView) -> bool:
    """Whether the next steal has to wait because producers do."""
    last = max((one.finished_wall_ns for one in view.history), default=0)
    return bool(view.slow) and view.now.wall_ns < last + PACED_PAUSE_NS


def token_held(view: ClusterView) -> bool:
    return view.token is not None and not view.token.free_at(view.now.wall_ns)


def judge(
    view: ClusterView, limits: Limits, passed_over: Collection[NodeId]
) -> tuple[list[tuple[GroupId, StealReason]], GroupId | None]:
    """A reason for every group, ascending, and the group whose turn it is (its reason is NEXT).

    Whether this node may use its turn at all is not checked here (`Balancing` does).
    """
    now_ns = view.now.wall_ns
    mutes = _Mutes(
        muted_groups(view.history, now_ns, limits.cool_down_ns), muted_nodes(view.history, now_ns)
    )
    held = held_tokens(view)
    stealing = {one.group for one in held}
    busy = {node for one in held for node in (one.source, one.target)}
    waits = paced(view)
    reasons: list[tuple[GroupId, StealReason]] = []
    turn: GroupId | None = None
    for group in sorted(view.placement.keys() | view.groups.keys()):
        why = StealReason.STEALING if group in stealing else _obstacle(view, group, mutes)
        if why is None:
            why = _bypassed(view, group, limits, passed_over)
        if why is None and not token_held(view):
            master, ideal = view.groups[group].master, view.placement[group]
            why = (
                StealReason.NODE_BUSY
                if {master, ideal} & busy
                else StealReason.PACED
                if waits
                else None
            )
        if why is None:
            why = StealReason.NEXT if turn is None else StealReason.LATER
            turn = group if turn is None else turn
        reasons.append((group, why))
    return reasons, turn


@attrs.frozen
class _Mutes:
    groups: frozenset[GroupId]
    nodes: frozenset[NodeId]


def _obstacle(view: ClusterView, group: GroupId, mutes: _Mutes) -> StealReason | None:
    """What prevents any node from stealing the group; None if it is misplaced and can be moved."""
    ideal, seen = view.placement.get(group), view.groups.get(group)
    if ideal is None or seen is None:
        return StealReason.NO_IDEAL if ideal is None else StealReason.NOT_SEEN
    if seen.master == ideal:
        return StealReason.IN_PLACE
    members = view.members.get(group)
    checks = (
        (seen.master is None, StealReason.NO_MASTER),
        (members is not None and ideal not in members, StealReason.IDEAL_NOT_MEMBER),
        (seen.master not in view.alive, StealReason.MASTER_DEAD),
        (ideal not in view.alive, StealReason.IDEAL_DEAD),
        (ideal in view.draining, StealReason.IDEAL_DRAINING),
        (view.paused, StealReason.PAUSED),
        (group in view.paused_groups, StealReason.GROUP_PAUSED),
        (group in mutes.groups, StealReason.MUTED),
        (ideal in mutes.nodes, StealReason.IDEAL_MUTED),
        (ideal in view.slow and seen.master not in view.slow, StealReason.IDEAL_SLOW),
    )
    return next((why for blocked, why in checks if blocked), None)


def _bypassed(
    view: ClusterView, group: GroupId, limits: Limits, passed_over: Collection[NodeId]
) -> StealReason | None:
    """Why this node skips a group that could be moved."""
    if view.placement[group] != view.me:
        return StealReason.PASSED_OVER if view.placement[group] in passed_over else None
    if not view.groups[group].voting:
        return StealReason.NOT_VOTING
    return StealReason.LAGGING if view.groups[group].lag > limits.lag_slots_max else None
