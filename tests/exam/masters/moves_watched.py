"""What the balancer did while nodes came and went, and what it must not do (row R12).

A watcher looks at all nodes ten times a second. It writes down which groups had no master, which
steals and plans the registry remembers, and how far behind each node was. The objections are
functions of these notes, so a test can show that they do object (test_moves_watched.py).
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import attrs
import trio

from cluster import health, status
from cluster.launcher import Launcher
from cluster.state import NodeState
from cluster.status import ClusterView

LOOK_EVERY_S: Final = 0.1
ANSWER_S: Final = 1.0
LAG_SLOTS_MAX: Final = 128
"""As in balancer.stealing.steal.BalancingConfig."""
UNLED_PART_MAX: Final = 0.1
OPERATOR, UNEVEN = "operator", "uneven"
"""Triggers of plans, or the beginnings of their names."""
ADOPTED_MS: Final = 1_000.0
"""A plan may reach the last node this long after it was made."""


def wall_ms() -> float:
    return time.time_ns() / 1e6


@attrs.frozen
class Steal:
    group: int
    source: int
    target: int
    outcome: str
    began_ms: float
    ended_ms: float


@attrs.frozen
class Planned:
    """A move from a plan that the balancer made by itself."""

    wall_ms: float
    group: int
    target: int
    evenness: bool
    """The plan was only for evenness: no node died or came."""


@attrs.define
class Away:
    """A node was killed or stopped, and came back."""

    node: int
    from_ms: float
    killed: bool
    until_ms: float = float("inf")


@attrs.frozen
class Look:
    at_ms: float
    unled: frozenset[int]
    """Groups without a master, except those of nodes that are away."""
    groups: int
    lag: Mapping[tuple[int, int], int]
    """(node, group): how many slots it is behind the group's master."""


@attrs.define
class Notes:
    aways: list[Away] = attrs.Factory(list)
    orders: list[tuple[float, float]] = attrs.Factory(list)
    """The times during which somebody asked for another placement: moved groups may move again."""
    looks: list[Look] = attrs.Factory(list)
    steals: dict[tuple[int, float], Steal] = attrs.Factory(dict)
    planned: set[Planned] = attrs.Factory(set)

    def is_away(self, node: int, at_ms: float, after_ms: float = 0.0) -> bool:
        """Whether the node is away, or was until this long ago."""
        return any(
            one.node == node and one.from_ms <= at_ms < one.until_ms + after_ms
            for one in self.aways
        )

    # ---- objections ------------------------------------------------------------------------------

    def objections(
        self, *, hold_down_ms: float, cool_down_ms: float, dead_after_ms: float
    ) -> list[str]:
        """One sentence for each violation."""
        steals = sorted(self.steals.values(), key=lambda one: one.began_ms)
        return [
            *self._to_the_unfit(steals, hold_down_ms),
            *self._planned_for_the_dead(dead_after_ms),
            *self._too_often(steals, cool_down_ms),
            *self._without_masters(),
        ]

    def _to_the_unfit(self, steals: Sequence[Steal], hold_down_ms: float) -> Iterable[str]:
        for steal in steals:
            for away in self.aways:
                if away.node != steal.target:
                    continue
                if away.from_ms < steal.began_ms < away.until_ms:
                    yield f"to a node that is down: {steal}, {away}"
                if away.killed and 0 <= steal.began_ms - away.until_ms < hold_down_ms:
                    yield f"to a node that has just started: {steal}, {away}"
            lags = [self._lag_at(steal, before=side) for side in (True, False)]
            if min(lags) > LAG_SLOTS_MAX:
                yield f"to a node that lags by {lags} slots: {steal}"

    def _lag_at(self, steal: Steal, *, before: bool) -> int:
        """The target's lag in the look next to the move's beginning, on that side; 0 if unknown."""
        key = (steal.target, steal.group)
        if before:
            looks = (one for one in reversed(self.looks) if one.at_ms <= steal.began_ms)
        else:
            looks = (one for one in self.looks if one.at_ms > steal.began_ms)
        return next((one.lag[key] for one in looks if key in one.lag), 0)

    def _planned_for_the_dead(self, dead_after_ms: float) -> Iterable[str]:
        """A plan may count on a node that is away for a moment, but not on a dead one."""
        for move in sorted(self.planned, key=lambda one: one.wall_ms):
            for away in self.aways:
                dead_ms = away.from_ms + dead_after_ms
                if away.node == move.target and dead_ms < move.wall_ms < away.until_ms:
                    yield f"planned for a dead node: {move}, {away}"

    def _too_often(self, steals: Sequence[Steal], cool_down_ms: float) -> Iterable[str]:
        needed = {
            (one.wall_ms, one.wall_ms + ADOPTED_MS) for one in self.planned if not one.evenness
        }
        by_group: dict[int, list[Steal]] = {}
        for steal in steals:
            if steal.outcome != "abandoned":  # it moved nothing, and no node was needed
                by_group.setdefault(steal.group, []).append(steal)
        for row in by_group.values():
            for first, second in pairwise(row):
                ordered = any(
                    first.began_ms < until_ms and from_ms <= second.began_ms
                    for from_ms, until_ms in [*self.orders, *needed]
                )
                if not ordered and second.began_ms < first.ended_ms + cool_down_ms:
                    yield f"again within the cool-down: {first}, {second}"

    def _without_masters(self) -> Iterable[str]:
        """In two consecutive looks: a look takes time, and a group may move meanwhile."""
        for first, second in pairwise(self.looks):
            unled = first.unled & second.unled
            if len(unled) > UNLED_PART_MAX * second.groups:
                yield f"{second.groups} groups, and no master of {sorted(unled)} at {second.at_ms}"


@attrs.define
class Watch:
    """Takes the notes; `lease_ms`: how long the groups of a node that has come back may wait."""

    cluster: Launcher
    lease_ms: float
    notes: Notes = attrs.Factory(Notes)
    _lost: set[int] = attrs.Factory(set)
    """Groups whose master is away: they wait for an election."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self.look()
            await trio.sleep(LOOK_EVERY_S)

    async def look(self) -> None:
        view = await status.collect(self.cluster.spec, self.cluster.now(), timeout_s=ANSWER_S)
        self.notes.looks.append(self._look(view))
        for node in self.cluster.spec.nodes:
            if self.cluster.state_of(node.id) is NodeState.RUNNING:
                try:
                    told = await health.call_async(node.http, "GET", "/balancer")
                except health.HealthError:
                    continue
                self._note(told)
                return

    def _look(self, view: ClusterView) -> Look:
        at_ms = wall_ms()
        unled = {row.group for row in view.groups if row.master is None}
        self._lost &= unled
        self._lost |= {
            row.group
            for row in view.groups
            if row.group in unled
            and row.last_known is not None
            and self.notes.is_away(row.last_known, at_ms, self.lease_ms)
        }
        applied = {
            (node.spec.id, group["group"]): group["applied"]
            for node in view.nodes
            if node.status is not None
            for group in node.status["groups"]
        }
        master = {row.group: row.applied for row in view.groups if row.master is not None}
        lag = {
            (node, group): master[group] - slot
            for (node, group), slot in applied.items()
            if group in master
        }
        return Look(at_ms, frozenset(unled - self._lost), len(view.groups), lag)

    def _note(self, told: Mapping[str, Any]) -> None:
        for one in told["steals"]:
            ended_ms = float(one["finished_wall_ms"])
            self.notes.steals[one["group"], ended_ms] = Steal(
                one["group"],
                one["source"],
                one["target"],
                one["outcome"],
                ended_ms - one["duration_ms"],
                ended_ms,
            )
        for plan in told["plans"]:
            if plan["trigger"] != OPERATOR:
                at_ms, evenness = float(plan["wall_ms"]), plan["trigger"].startswith(UNEVEN)
                self.notes.planned.update(
                    Planned(at_ms, move["group"], move["target"], evenness)
                    for move in plan["moves"]
                )
