"""Load reports as literals, for the placement job's stories."""

from collections.abc import Mapping
from typing import Any

import attrs

from balancer.registry.load import GroupLoad, LoadReport
from paxos.ids import GroupId, Incarnation, NodeId

START_MS = 1_700_000_010_000
"""A multiple of 30 s."""
INTERVAL_S = 5


def report(node: int, at_s: float, cpu_us: Mapping[int, int], **changes: Any) -> LoadReport:
    """Five seconds of a node, reported `at_s` after START_MS: for each group that many µs of CPU a
    second, and as many requests."""
    base = LoadReport(
        node=NodeId(node),
        incarnation=Incarnation(1),
        wall_ms=START_MS + round(at_s * 1_000),
        interval_ms=INTERVAL_S * 1_000,
        produce_p99_us=900,
        lag_slots=0,
        uptime_ms=60_000,
        groups=tuple(
            GroupLoad(GroupId(group), 0, 0, cost * INTERVAL_S, cost * INTERVAL_S)
            for group, cost in sorted(cpu_us.items())
        ),
    )
    return attrs.evolve(base, **changes)


def steady(masters: Mapping[int, Mapping[int, int]], from_s: int, until_s: int) -> list[LoadReport]:
    """Every node's reports; `masters` has the groups of each with their costs."""
    return [
        report(node, second, groups)
        for second in range(from_s, until_s, INTERVAL_S)
        for node, groups in sorted(masters.items())
    ]
