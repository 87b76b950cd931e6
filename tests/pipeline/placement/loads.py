"""Loads that change, and what comes of planning by different measures of them: how many groups are
moved, and how even the nodes then really are. Simulated time, the real estimators and planner.

    python -m tests.pipeline.placement.loads      # the table of docs/spark.md, "Placement"
"""

import math
from collections import deque
from collections.abc import Callable
from random import Random
from statistics import fmean
from typing import Final, NamedTuple

from balancer.planner.planner import even_placement, solve
from balancer.planner.problem import Evenness, GroupNeed, NodeOffer, Objectives, Problem
from balancer.registry.load import ClusterLoad, GroupLoad, LoadReport
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now
from pipeline.placement.logic import GroupCost, Measure, Rules, Timing, Weighed, measure_of, weigh
from tests.pipeline.placement.reports import INTERVAL_S, START_MS

NODES: Final = tuple(map(NodeId, range(1, 6)))
GROUPS: Final = tuple(map(GroupId, range(40)))
TIMING: Final = Timing()
WARM_UP_S: Final = 900
BUILT_IN: Final = "built-in"
TRIGGER_PERCENT: Final = 30
SUSTAIN_S: Final = 20
PAUSE_S: Final = 60
BIN_S: Final = 30
"""The load of nodes is averaged over this time."""

Rate = Callable[[int, int], float]
"""(group, second) -> µs of CPU time a second."""


class Verdict(NamedTuple):
    moves: int
    fullest: float
    """The mean over time of the fullest node's load divided by the mean node's."""
    fullest_p95: float


def rates(kind: str, dice: Random, seconds: int) -> Rate:
    """Forty groups with uneven loads, each with noise of a fifth, and the changes that `kind`
    names."""
    base = [20_000 / (rank + 1) ** 0.8 for rank in range(len(GROUPS))]
    dice.shuffle(base)
    later = dice.sample(base, len(base))
    periods = [dice.uniform(100, 400) for _ in GROUPS]
    phases = [dice.uniform(0, 400) for _ in GROUPS]
    bursting = [dice.random() < 0.5 for _ in GROUPS]
    spikes = [[dice.uniform(0, seconds) for _ in range(seconds // 1_440)] for _ in GROUPS]

    def rate(group: int, second: int) -> float:
        cost, phase = base[group], phases[group]
        if kind == "bursts" and bursting[group]:
            within = (second + phase) % periods[group] / periods[group]
            cost *= 4 if within < 0.2 else 0.25
        elif kind == "spikes" and any(at <= second < at + 30 for at in spikes[group]):
            cost += 60_000
        elif kind == "shift" and second > seconds / 2:
            cost = later[group]
        elif kind == "drift":
            cost *= 1 + 0.8 * math.sin(2 * math.pi * second / seconds + phase)
        return max(0.0, cost * dice.gauss(1, 0.2))

    return rate


class Observer:
    """From the rates it computes weights by one measure: the built-in estimator's, or ours."""

    def __init__(self, measure: Measure | None) -> None:
        self._measure = measure
        self._book = ClusterLoad()
        self._lately: deque[list[float]] = deque(maxlen=TIMING.window_s // INTERVAL_S)
        self._windows: deque[list[float]] = deque(maxlen=TIMING.past_s // TIMING.slide_s)
        self._found: dict[GroupId, int] | None = None

    def weights(self, second: int, told: list[float]) -> dict[GroupId, int] | None:
        """The weights at the end of an interval, once there are any."""
        if self._measure is None:
            return self._built_in(second, told)
        self._lately.append(told)
        full = len(self._lately) == self._lately.maxlen
        if full and (second + INTERVAL_S) % TIMING.slide_s == 0:
            sums = [sum(column) for column in zip(*self._lately, strict=True)]
            self._windows.append([one / len(self._lately) for one in sums])
            seen = list(zip(*self._windows, strict=True))
            costs = [
                GroupCost(
                    group, self._measure.of(seen[group]), fmean(seen[group]), len(self._windows)
                )
                for group in GROUPS
            ]
            weighed = weigh(costs, START_MS, GROUPS, START_MS, Rules())
            self._found = dict(weighed.weights) if isinstance(weighed, Weighed) else None
        return self._found

    def _built_in(self, second: int, told: list[float]) -> dict[GroupId, int] | None:
        wall_ms = START_MS + second * 1_000
        now = Now(wall_ms * MS, wall_ms * MS, True)
        loads = (GroupLoad(group, 0, 0, 0, round(told[group] * INTERVAL_S)) for group in GROUPS)
        report = LoadReport(
            node=NODES[0],
            incarnation=Incarnation(1),
            wall_ms=wall_ms,
            interval_ms=INTERVAL_S * 1_000,
            produce_p99_us=0,
            lag_slots=0,
            uptime_ms=0,
            groups=tuple(loads),
        )
        self._book.observe(report, now)
        return self._book.weights(now, GROUPS)


class Planner:
    """Plans by weight as `balancer.planning` does: a trigger, held for a while, and a pause."""

    def __init__(self) -> None:
        self.placement = even_placement(GROUPS, NODES)
        self.moves = 0
        self._over_since: int | None = None
        self._planned_at = -PAUSE_S

    def look(self, second: int, weights: dict[GroupId, int]) -> None:
        if not solve(self._problem(weights, TRIGGER_PERCENT)).moves:
            self._over_since = None
            return
        if self._over_since is None:
            self._over_since = second
        rested = second - self._planned_at >= PAUSE_S
        if rested and second - self._over_since >= SUSTAIN_S:
            plan = solve(self._problem(weights, Objectives().tolerance_percent))
            self.moves += len(plan.moves)
            self.placement = dict(plan.placement)
            self._planned_at, self._over_since = second, None

    def _problem(self, weights: dict[GroupId, int], tolerance: int) -> Problem:
        return Problem(
            nodes=tuple(map(NodeOffer, NODES)),
            groups=tuple(GroupNeed(group, weights[group]) for group in GROUPS),
            current=self.placement,
            objectives=Objectives(evenness=Evenness.WEIGHT, tolerance_percent=tolerance),
        )


def play(kind: str, measure: str | None, seed: int, seconds: int) -> Verdict:
    """One world; `measure` is BUILT_IN, one of ours, or None: nothing ever moves."""
    rate = rates(kind, Random(seed), seconds)
    observer = Observer(None if measure in (None, BUILT_IN) else measure_of(str(measure)))
    planner = Planner()
    ratios = []
    loads = dict.fromkeys(NODES, 0.0)
    for second in range(0, seconds, INTERVAL_S):
        told = [rate(group, second) for group in GROUPS]
        for group in GROUPS:
            loads[planner.placement[group]] += told[group]
        if (second + INTERVAL_S) % BIN_S == 0:
            if second > WARM_UP_S:
                ratios.append(max(loads.values()) * len(NODES) / sum(loads.values()))
            loads = dict.fromkeys(NODES, 0.0)
        weights = None if measure is None else observer.weights(second, told)
        if weights is not None and second % 10 == 0:
            planner.look(second, weights)
    return Verdict(planner.moves, sum(ratios) / len(ratios), Measure(95).of(ratios))


def table(seeds: int, seconds: int) -> str:
    """The table of docs/spark.md: means over the seeds."""
    kinds = ("steady", "bursts", "spikes", "shift", "drift")
    lines = ["| planned by | " + " | ".join(kinds) + " |", "|---|" + "---|" * len(kinds)]
    for measure in (None, BUILT_IN, "mean", "p50", "p75", "p95"):
        cells = []
        for kind in kinds:
            told = [play(kind, measure, seed, seconds) for seed in range(seeds)]
            means = [sum(column) / seeds for column in zip(*told, strict=True)]
            cells.append(f"{means[0]:.0f}, {means[1]:.2f} ({means[2]:.2f})")
        lines.append(f"| {measure or 'counts'} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table(seeds=5, seconds=7_200))  # noqa: T201 (for docs/spark.md)
