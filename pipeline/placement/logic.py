"""What groups weigh, from the load reports of their masters: values in, values out, no Spark.

    reports -> a group's work in each time window -> its work over the past -> its weight

A *time window* is a minute; a new one begins every half minute, all by the reports' own time. A
group's work per second in a window is the sum of what its masters did for it, by the time that
their reports cover: a master that moved meanwhile left a part of it with each node, and a lost
report leaves the mean of the others. A window of which reports cover less than half says nothing.

A group's cost is its *work* (requests and bytes) as a share of all groups' work, times the cost of
all groups. The CPU time that a report has for a group will not do: a report shares out all the CPU
time of its node, also that of groups it only follows, over the groups it is master of. A group
would seem heavy because it is alone on its node, and light again after it moves.

What stands for the past (`Measure`) is the mean over the past ten minutes. A percentile leaves room
for peaks, and was tried: under bursty loads it moves more groups than the mean does and leaves the
nodes no more even, since weights are shares of a whole, and the peaks of different groups do not
coincide (figures: docs/spark.md, "Placement").

Weights are those of the built-in estimator (`balancer.registry.load.relative`): the same floor, the
same thousandths. They are *as of* the end of the newest closed time window, which is their version
in the registry. That is the same whenever, wherever and how often it is computed, and it is by the
clocks of the nodes, which judge its age.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

import attrs

from balancer.registry.load import (
    LoadError,
    LoadReport,
    UnknownVersionError,
    cost_us,
    decode_report,
    enough,
    relative,
    work,
)
from paxos.ids import GroupId

COVERED_PERCENT: Final = 50
"""The share of a time window that reports must cover."""
AHEAD_MS_MAX: Final = 60_000
"""A report this far ahead of our clock would make all others late: it is skipped."""
MEAN: Final = "mean"
MALFORMED: Final = "malformed"
UNKNOWN_VERSION: Final = "unknown_version"
AHEAD: Final = "ahead"
DUPLICATE: Final = "duplicate"
LATE: Final = "late"
FAULTS: Final = (MALFORMED, UNKNOWN_VERSION, AHEAD)
"""Why a record of the topic is skipped: it is not a report, it is from a newer node, or its clock
is wrong by more than a minute."""


@attrs.frozen(kw_only=True)
class Timing:
    """How reports are cut into time windows; all in seconds."""

    window_s: int = 60
    slide_s: int = 30
    """From one time window's beginning to the next one's; weights are computed this often."""
    past_s: int = 600
    """A group's cost is computed from the time windows that ended within this time."""
    lateness_s: int = 20
    """A time window closes when a report arrives from this long after its end; a report older than
    the newest by more is too late."""

    def __attrs_post_init__(self) -> None:
        if not 0 < self.slide_s <= self.window_s <= self.past_s or self.lateness_s < 0:
            raise ValueError("0 < slide <= window <= past, and lateness at least 0")
        if self.window_s % self.slide_s or self.past_s % self.slide_s:
            raise ValueError("window and past are multiples of slide")


@attrs.frozen
class Measure:
    """What stands for a group's costs over the past: their mean, or a percentile."""

    percent: float | None = None

    def __attrs_post_init__(self) -> None:
        if self.percent is not None and not 0 <= self.percent <= 100:
            raise ValueError(f"a percentile is from 0 to 100, not {self.percent}")

    def __str__(self) -> str:
        return MEAN if self.percent is None else f"p{self.percent:g}"

    def of(self, costs: Collection[float]) -> float:
        """A percentile between two costs is interpolated, as by Spark's `percentile`."""
        if self.percent is None:
            return sum(costs) / len(costs)
        ordered = sorted(costs)
        spot = self.percent / 100 * (len(ordered) - 1)
        below, above = ordered[math.floor(spot)], ordered[math.ceil(spot)]
        return below + (above - below) * (spot - math.floor(spot))


def measure_of(text: str) -> Measure:
    """Parse `mean`, or a percentile like `p95`.

    Raises:
        ValueError: if the text is neither.
    """
    if text == MEAN:
        return Measure()
    try:
        return Measure(float(text.removeprefix("p")))
    except ValueError as error:
        raise ValueError(f"{text!r} is neither {MEAN} nor like p95") from error


@attrs.frozen(kw_only=True)
class Rules:
    """When there is too little to publish anything."""

    windows_min: int = 3
    """Costs from fewer time windows are not used."""
    stale_s_max: int = 120
    """Weights as of longer ago are not published."""


class GroupCost(NamedTuple):
    """A group's cost per second over the past, from this many time windows."""

    group: GroupId
    work: float
    """`balancer.registry.load.work`, by the measure."""
    cost_us: float
    """`balancer.registry.load.cost_us`: the mean of what its masters reported."""
    windows: int


@attrs.frozen
class Weighed:
    """Weights to publish."""

    as_of_ms: int
    weights: Mapping[GroupId, int]
    """One for every group of the registry."""
    unknown: tuple[GroupId, ...]
    """The groups of which too little is known: they get the weight of an average group."""


@attrs.frozen
class Nothing:
    """Nothing is published, and why."""

    why: str


@attrs.define
class Tally:
    """Records of the load topic, and how many were skipped for which reason."""

    records: int = 0
    passed_over: Counter[str] = attrs.Factory(Counter)

    def __str__(self) -> str:
        over = ", ".join(
            f"{count} {why}" for why, count in sorted(self.passed_over.items()) if count
        )
        return f"{self.records} reports" + (f", of these passed over: {over}" if over else "")


def reports_in(values: Iterable[bytes | None], now_ms: int) -> tuple[list[LoadReport], Tally]:
    """The reports among the values of these records, each once."""
    tally = Tally()
    reports = []
    for value in values:
        tally.records += 1
        try:
            report = decode_report(value or b"")
        except UnknownVersionError:
            tally.passed_over[UNKNOWN_VERSION] += 1
        except LoadError:
            tally.passed_over[MALFORMED] += 1
        else:
            if report.wall_ms > now_ms + AHEAD_MS_MAX:
                tally.passed_over[AHEAD] += 1
            else:
                reports.append(report)
    single = once(reports)
    tally.passed_over[DUPLICATE] = len(reports) - len(single)
    return single, tally


def closed_until_ms(newest_ms: int, timing: Timing) -> int:
    """The end of the newest closed time window."""
    slide_ms = timing.slide_s * 1_000
    return (newest_ms - timing.lateness_s * 1_000) // slide_ms * slide_ms


def once(reports: Iterable[LoadReport]) -> list[LoadReport]:
    """Each report once, however often it was stored."""
    seen = {(one.node, one.incarnation, one.wall_ms): one for one in reversed([*reports])}
    return list(reversed(seen.values()))


def group_costs(
    reports: Iterable[LoadReport], until_ms: int, timing: Timing, measure: Measure
) -> list[GroupCost]:
    """What groups cost in the time windows of the past that ended by `until_ms`."""
    window_ms, slide_ms = timing.window_s * 1_000, timing.slide_s * 1_000
    after_ms = until_ms - timing.past_s * 1_000
    done: dict[tuple[GroupId, int], float] = {}
    spent_us: dict[tuple[GroupId, int], float] = {}
    told_ms: dict[tuple[GroupId, int], int] = {}
    for report in once(reports):
        first = report.wall_ms // slide_ms * slide_ms + slide_ms
        ends = range(first, min(first + window_ms, until_ms + slide_ms), slide_ms)
        for load in report.groups:
            for end in ends:
                if after_ms < end <= until_ms:
                    place = (load.group, end)
                    done[place] = done.get(place, 0.0) + work(load)
                    spent_us[place] = spent_us.get(place, 0.0) + cost_us(load)
                    told_ms[place] = told_ms.get(place, 0) + report.interval_ms
    seen: dict[GroupId, list[tuple[float, float]]] = {}
    for place, covered_ms in sorted(told_ms.items()):
        if covered_ms * 100 >= window_ms * COVERED_PERCENT:
            rates = done[place] * 1_000 / covered_ms, spent_us[place] * 1_000 / covered_ms
            seen.setdefault(place[0], []).append(rates)
    return [
        GroupCost(
            group,
            measure.of([done for done, _ in rates]),
            sum(spent for _, spent in rates) / len(rates),
            len(rates),
        )
        for group, rates in seen.items()
    ]


def weigh(
    costs: Iterable[GroupCost],
    as_of_ms: int,
    groups: Collection[GroupId],
    now_ms: int,
    rules: Rules,
) -> Weighed | Nothing:
    """Weights of the registry's `groups`, or why there are none."""
    age_s = (now_ms - as_of_ms) / 1_000
    if age_s > rules.stale_s_max:
        return Nothing(f"the newest data is {age_s:.0f} s old (at most {rules.stale_s_max})")
    wanted = sorted(groups)
    known = {one.group: one for one in costs if one.windows >= rules.windows_min}
    told = [group for group in wanted if group in known]
    if not enough(len(told), len(wanted)):
        return Nothing(
            f"reports cover only {len(told)} of {len(wanted)} groups: fewer than half "
            f"(a group needs {rules.windows_min} time windows)"
        )
    spent_us = sum(known[group].cost_us for group in told)
    done = sum(known[group].work for group in told)
    shares = {group: spent_us * known[group].work / done for group in told} if done else {}
    unknown = tuple(group for group in wanted if group not in known)
    return Weighed(as_of_ms, relative(wanted, shares, spent_us / len(told)), unknown)
