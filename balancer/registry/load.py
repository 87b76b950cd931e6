"""The load reports of the nodes, and the built-in estimator that computes weights from them.

Every few seconds each node writes one report to the internal topic LOAD_TOPIC: its work for the
groups it is master of, and its own condition. It is JSON, so that a Spark job or any Kafka consumer
can read it. The topic lives in the registry's group, whose log every node applies: all of them see
the same reports in the same order.

The estimator smooths the cost of each group with an exponentially weighted average; a report counts
in proportion to its interval. Weights are relative: WEIGHT_NORMAL is an average group, and part of
every weight is the same for all, because an idle group costs renewals and memory, too, and may not
stay idle. Old reports are ignored: without fresh ones there are no weights, and plans go by counts.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import attrs

from balancer.planner.problem import WEIGHT_NORMAL, Unfit
from balancer.registry.records import GROUPS_MAX, NODES_MAX
from paxos.ids import MS, GroupId, Incarnation, NodeId, Now

LOAD_TOPIC: Final = "__evenkeel_load"
REPORT_VERSION: Final = 1
REPORT_BYTES_MAX: Final = 512 * 1024
NUMBER_MAX: Final = 2**62
HALF_LIFE_S: Final = 60.0
"""Half-life of the average: noise averages out, a shift is seen soon."""
FRESH_NS: Final = 60_000 * MS
"""Reports older than this are ignored."""
WARM_UP_S: Final = 30.0
"""How much reported time a group needs before its weight is used."""
FLOOR_PERCENT: Final = 25
"""The part of a weight that is the same for all groups."""
IDLE_US: Final = 1_000.0
"""Below this mean cost per second (a thousandth of a CPU) all groups weigh the same."""
NS_PER_BYTE: Final = 1.0
"""Cost of a byte beside the measured CPU time: links and disks have limits, too."""
REQUEST_BYTES: Final = 4_096
"""A request costs about as much CPU as this many bytes."""


class LoadError(ValueError):
    """The bytes are not a report."""


class UnknownVersionError(LoadError):
    """A report from a node of a newer version."""


class GroupLoad(NamedTuple):
    """A node's work for one group during the interval of a report."""

    group: GroupId
    bytes_in: int
    bytes_out: int
    requests: int
    cpu_us: int
    bytes_kept: int = 0
    """Bytes the group keeps at the end of the interval; 0 also if not reported."""


@attrs.frozen(kw_only=True)
class LoadReport:
    node: NodeId
    incarnation: Incarnation
    wall_ms: int
    interval_ms: int
    produce_p99_us: int
    """For the produce requests answered during the interval; 0 if there were none."""
    lag_slots: int
    """The most that any group of the node is behind."""
    uptime_ms: int
    groups: tuple[GroupLoad, ...]
    """Those the node was master of, ascending."""


_NUMBERS: Final = (
    "node",
    "incarnation",
    "wall_ms",
    "interval_ms",
    "produce_p99_us",
    "lag_slots",
    "uptime_ms",
)
_LOADS: Final = ("bytes_in", "bytes_out", "requests", "cpu_us", "bytes_kept")
_LOADS_LATER: Final = {"bytes_kept": 0}
"""Fields that reports of earlier versions lack."""


def encode_report(report: LoadReport) -> bytes:
    value: dict[str, Any] = {"version": REPORT_VERSION}
    value |= {name: getattr(report, name) for name in _NUMBERS}
    value["groups"] = {
        str(one.group): dict(zip(_LOADS, one[1:], strict=True)) for one in report.groups
    }
    return json.dumps(value, separators=(",", ":")).encode()


def decode_report(data: bytes | memoryview) -> LoadReport:
    """The report that these bytes encode; unknown fields are ignored.

    Raises:
        UnknownVersionError: if it has another version.
        LoadError: if the bytes are not a report.
    """
    if len(data) > REPORT_BYTES_MAX:
        raise LoadError(f"{len(data)} bytes, at most {REPORT_BYTES_MAX}")
    try:
        value = json.loads(str(data, "utf-8"))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"not JSON: {error}") from error
    version = value.get("version") if isinstance(value, dict) else None
    if type(version) is not int:
        raise LoadError("no object with a version")
    if version != REPORT_VERSION:
        raise UnknownVersionError(f"version {version}")
    groups = value.get("groups")
    if not isinstance(groups, dict) or len(groups) > GROUPS_MAX + 1:
        raise LoadError("no groups, or too many")
    numbers: dict[str, Any] = {name: _number(value, name) for name in _NUMBERS}
    if not numbers["interval_ms"]:
        raise LoadError("a report covers some time")
    loads = []
    for name, load in groups.items():
        if not (name.isascii() and name.isdigit() and len(name) <= len(str(GROUPS_MAX))):
            raise LoadError(f"group {name[:20]!r}")
        if not isinstance(load, dict):
            raise LoadError(f"the load of group {name} is not an object")
        fields = {**_LOADS_LATER, **load}
        loads.append(GroupLoad(GroupId(int(name)), *(_number(fields, key) for key in _LOADS)))
    loads.sort()
    if len({one.group for one in loads}) < len(loads):
        raise LoadError("a group is there twice")
    return LoadReport(groups=tuple(loads), **numbers)


def _number(value: Mapping[str, Any], name: str) -> int:
    number = value.get(name)
    if type(number) is not int or not 0 <= number <= NUMBER_MAX:
        raise LoadError(f"{name} is no number within 0 and 2^62")
    return number


# ---- estimating ----------------------------------------------------------------------------------


@attrs.define
class _Estimate:
    cost_us: float
    """Per second."""
    seen_s: float


@attrs.frozen
class _Heard:
    report: LoadReport
    boot_ns: int


def work(load: GroupLoad) -> int:
    """Work requested of the group's master, in bytes: nodes divide their CPU time by it."""
    return load.requests * REQUEST_BYTES + load.bytes_in + load.bytes_out


def cost_us(load: GroupLoad) -> float:
    return load.cpu_us + (load.bytes_in + load.bytes_out) * NS_PER_BYTE / 1_000


def enough(known: int, wanted: int) -> bool:
    """Whether the costs of enough groups are known to compute weights for all: half of them."""
    return wanted > 0 and known * 2 >= wanted


def relative(
    wanted: Iterable[GroupId], costs_us: Mapping[GroupId, float], mean_us: float
) -> dict[GroupId, int]:
    """Weights by cost per second, in thousandths of the mean; groups without a cost are average."""
    if mean_us < IDLE_US:
        return dict.fromkeys(wanted, WEIGHT_NORMAL)
    floor = WEIGHT_NORMAL * FLOOR_PERCENT // 100
    return {
        group: floor + round((WEIGHT_NORMAL - floor) * costs_us.get(group, mean_us) / mean_us)
        for group in wanted
    }


class ClusterLoad:
    """What one node knows of the cluster's load; bounded by the numbers of nodes and groups."""

    def __init__(self) -> None:
        self._heard: dict[NodeId, _Heard] = {}
        self._estimates: dict[GroupId, _Estimate] = {}

    def observe(self, report: LoadReport, now: Now) -> None:
        """Enter a report; ignored if a newer one of its node is known."""
        known = self._heard.get(report.node)
        if known is None and len(self._heard) >= NODES_MAX:
            return
        if known is not None and (report.incarnation, report.wall_ms) <= (
            known.report.incarnation,
            known.report.wall_ms,
        ):
            return
        # By its own time: a node that catches up applies old reports.
        age_ns = max(0, now.wall_ns - report.wall_ms * MS)
        self._heard[report.node] = _Heard(report, now.boot_ns - age_ns)
        seconds = report.interval_ms / 1_000
        keep = 0.5 ** (seconds / HALF_LIFE_S)
        for load in report.groups:
            cost = cost_us(load) / seconds
            known_cost = self._estimates.get(load.group)
            if known_cost is None:
                self._estimates[load.group] = _Estimate(cost, seconds)
            else:
                # Until it is warm: the plain mean, which does not depend on the first sample.
                part = (
                    max(keep, 0.0)
                    if known_cost.seen_s > HALF_LIFE_S
                    else (known_cost.seen_s / (known_cost.seen_s + seconds))
                )
                known_cost.cost_us = part * known_cost.cost_us + (1 - part) * cost
                known_cost.seen_s += seconds

    @property
    def reports(self) -> Mapping[NodeId, LoadReport]:
        return {node: heard.report for node, heard in sorted(self._heard.items())}

    def fresh(self, now: Now) -> dict[NodeId, LoadReport]:
        """The reports that are recent enough."""
        return {
            node: heard.report
            for node, heard in sorted(self._heard.items())
            if now.boot_ns - heard.boot_ns <= FRESH_NS
        }

    def weights(self, now: Now, groups: Iterable[GroupId]) -> dict[GroupId, int] | None:
        """A weight for each group; None if too little is known, or nothing recent."""
        wanted = sorted(groups)
        reported = {load.group for report in self.fresh(now).values() for load in report.groups}
        known = [
            self._estimates[group].cost_us
            for group in wanted
            if group in reported and self._estimates[group].seen_s >= WARM_UP_S
        ]
        if not enough(len(known), len(wanted)):
            return None
        warm = {
            group: estimate.cost_us
            for group, estimate in self._estimates.items()
            if estimate.seen_s >= WARM_UP_S
        }
        return relative(wanted, warm, sum(known) / len(known))

    def bytes_kept(self, now: Now) -> dict[GroupId, int]:
        """What groups keep, according to recent reports of their masters."""
        return {
            load.group: load.bytes_kept
            for report in self.fresh(now).values()
            for load in report.groups
        }

    # ---- the condition of the nodes --------------------------------------------------------------

    def slow(self, now: Now, produce_p99_ms_max: int) -> frozenset[NodeId]:
        """Nodes whose producers waited too long in the last reported interval."""
        return frozenset(
            node
            for node, report in self._recent(now).items()
            if report.produce_p99_us > produce_p99_ms_max * 1_000
        )

    def unfit(self, now: Now, *, lag_slots_max: int, hold_down_ms: int) -> dict[NodeId, Unfit]:
        """Nodes that should get nothing just now, by their own reports."""
        found = {}
        for node, report in self._recent(now).items():
            if report.uptime_ms < hold_down_ms:
                found[node] = Unfit.RESTARTED
            elif report.lag_slots > lag_slots_max:
                found[node] = Unfit.LAGGING
        return found

    def _recent(self, now: Now) -> dict[NodeId, LoadReport]:
        """The reports of nodes that have not missed two reports since."""
        return {
            node: heard.report
            for node, heard in sorted(self._heard.items())
            if now.boot_ns - heard.boot_ns <= 3 * heard.report.interval_ms * MS
        }
