"""Expressions that many panels share; users choose `$cluster` and `$node` on each dashboard."""

from collections.abc import Sequence
from typing import Final

from dashboards.panels import GREEN, GREY, RED, YELLOW, Kind, Panel, Query, Step, Unit

CLUSTER: Final = 'cluster="$cluster"'
NODES: Final = 'cluster="$cluster",node=~"$node"'
BY_NODE: Final = "node {{node}}"


def rate(metric: str, by: str = "node", more: str = "") -> str:
    """Per second, over the interval that Grafana chooses for the resolution."""
    return f"sum by ({by}) (rate({metric}{{{NODES}{more}}}[$__rate_interval]))"


def quantile(share: float, histogram: str, by: str = "node", more: str = "") -> str:
    buckets = rate(f"{histogram}_bucket", f"{by}, le" if by else "le", more)
    return f"histogram_quantile({share}, {buckets})"


def quantiles(histogram: str) -> Sequence[Query]:
    """The median of all chosen nodes together, and the slow end of each."""
    return (
        Query(quantile(0.5, histogram, by=""), "p50, all nodes"),
        Query(quantile(0.95, histogram, by=""), "p95, all nodes"),
        Query(quantile(0.99, histogram), "p99, node {{node}}"),
    )


def or_zero(expr: str) -> str:
    """0 where no series answers: nothing of the kind has happened yet, or there is none."""
    return expr if "vector(0)" in expr else f"({expr}) or vector(0)"


def nought(title: str, description: str, expr: str, width: int = 4) -> Panel:
    """A number that should be 0."""
    return Panel(
        title=title,
        description=description,
        queries=[Query(or_zero(expr))],
        kind=Kind.STAT,
        width=width,
        height=4,
        steps=[Step(1, RED)],
    )


def number(title: str, description: str, expr: str, unit: Unit, width: int = 4) -> Panel:
    """A number that may be anything."""
    return Panel(
        title=title,
        description=description,
        queries=[Query(or_zero(expr))],
        kind=Kind.STAT,
        unit=unit,
        width=width,
        height=4,
        base=GREY,
    )


def share(title: str, description: str, queries: Sequence[Query], width: int = 8) -> Panel:
    """A part of a limit."""
    return Panel(
        title=title,
        description=description,
        queries=queries,
        unit=Unit.RATIO,
        width=width,
        steps=[Step(0.7, YELLOW), Step(0.9, RED)],
        base=GREEN,
    )
