"""What is computed from the small tables that Spark returns: summaries, comparisons of runs."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, Final, TypeAlias

from pipeline.report.gaps import KIND
from pipeline.report.schema import BALANCED, CONCENTRATED
from pipeline.report.transform import CELL, DUE, PERCENTS, SENT

Row: TypeAlias = Mapping[str, Any]

MS: Final = 1e6
"""Nanoseconds."""
WHAT: Final = tuple(name for name in CELL if name not in ("run", "began", "commit", "machine"))
"""What was measured; two runs that agree in it can be compared."""
RATIO_OF: Final = tuple(name for name in CELL if name != "layout")
GAPS: Final = {
    "quiet": "usual",
    "handover": "handover",
    "above": "above_usual",
    "redirect": "redirect",
}
"""Name in the gaps of a move -> name in the summary."""
GAP_PERCENTS: Final = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "max": 100.0}


def percentile(values: Sequence[float], percent: float) -> float:
    """The lowest value that at least this share of all values do not exceed."""
    assert values
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def name_of(percent: float) -> str:
    return "max" if percent == 100 else f"p{percent:g}"


def cells(throughput: Iterable[Row], percentiles: Iterable[Row], loads: Iterable[Row]) -> list[Row]:
    """One row with all figures for each cell and each way to count its latencies.

    A cell without latencies, such as one of batches, has one row with `counted_from` None.
    """
    key_of = {one["cell"]: tuple(one[name] for name in CELL) for one in loads}
    found: dict[tuple[Any, ...], dict[str, dict[str, Any]]] = defaultdict(dict)
    for one in percentiles:
        of_cell = found[key_of[one["cell"]]].setdefault(one["counted_from"], {})
        of_cell[f"{name_of(one['percent'])}_ms"] = one["value"] / MS
        of_cell["requests"] = one["count"]
    nothing = {f"{name_of(percent)}_ms": None for percent in PERCENTS} | {"requests": None}
    rows: list[Row] = []
    for one in throughput:
        counted = found[tuple(one[name] for name in CELL)]
        ways = [way for way in (DUE, SENT) if way in counted]
        rows += [{**one, "counted_from": way, **nothing, **counted[way]} for way in ways]
        if not ways:
            rows.append({**one, "counted_from": None, **nothing})
    return sorted(rows, key=_in_order)


def _in_order(row: Row) -> tuple[Any, ...]:
    """By run; sizes as numbers, rows without one first; the layouts of one size together."""
    names = ("began", "run", "benchmark", "client", "rate", "message_bytes", "layout", "side")
    return (*((row[name] is not None, row[name]) for name in names), row["counted_from"] or "")


def ratio_summaries(ratios: Iterable[Row]) -> list[Row]:
    """For each cell that was measured in both layouts: every pair's ratio, and their median."""
    grouped: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for one in ratios:
        if one["ratio"] is not None:
            grouped[tuple(one[name] for name in RATIO_OF)].append(one)
    rows: list[Row] = []
    for key, pairs in grouped.items():
        pairs.sort(key=lambda one: one["pair"])
        rows.append(
            {
                **dict(zip(RATIO_OF, key, strict=True)),
                "pairs": len(pairs),
                CONCENTRATED: median(one[CONCENTRATED] for one in pairs),
                BALANCED: median(one[BALANCED] for one in pairs),
                "ratio": median(one["ratio"] for one in pairs),
                "ratio_least": min(one["ratio"] for one in pairs),
                "ratio_greatest": max(one["ratio"] for one in pairs),
                "ratios": [one["ratio"] for one in pairs],
            }
        )
    return sorted(rows, key=lambda row: _in_order({**row, "layout": "", "counted_from": ""}))


def gap_summaries(moves: Iterable[Row]) -> list[Row]:
    """For each strategy under each load: percentiles of the longest silence of a move."""
    grouped: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for one in moves:
        grouped[tuple(one[name] for name in KIND)].append(one)
    return [
        {
            **dict(zip(KIND, key, strict=True)),
            "moves": len(rows),
            **{
                f"{told}_{name}_ms": round(percentile([row[f"{gap}_ms"] for row in rows], at), 2)
                for gap, told in GAPS.items()
                for name, at in GAP_PERCENTS.items()
            },
            "blips_max": max(row["blips"] for row in rows),
        }
        for key, rows in sorted(grouped.items())
    ]


def comparisons(of_cells: Sequence[Row]) -> list[Row]:
    """Measurements that several runs share: each run's figures, and the change since the first."""
    grouped: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
    for one in of_cells:
        grouped[tuple(one[name] for name in (*WHAT, "counted_from"))].append(one)
    rows: list[Row] = []
    for alike in grouped.values():
        if len({one["run"] for one in alike}) < 2:
            continue
        first = alike[0]
        rows += [
            {
                **{name: one[name] for name in (*CELL, "counted_from", "qps", "p99_ms")},
                "qps_change": _change(first["qps"], one["qps"]),
                "p99_change": _change(first["p99_ms"], one["p99_ms"]),
            }
            for one in alike
        ]
    return rows


def _change(before: float | None, now: float | None) -> float | None:
    return now / before - 1 if before and now is not None else None


def runs(loads: Iterable[Row]) -> list[Row]:
    """A description of each run, oldest first."""
    grouped: dict[str, list[Row]] = defaultdict(list)
    for one in loads:
        grouped[one["run"]].append(one)
    rows: list[Row] = [
        {
            **{name: of_run[0][name] for name in ("run", "began", "commit", "machine")},
            "benchmarks": sorted({one["benchmark"] for one in of_run}),
            "limits": sorted({one["limits"] for one in of_run}),
            "loads": len({one["load"] for one in of_run}),
            "requests": sum(one["requests"] for one in of_run),
            "errors": sum(one["errors"] for one in of_run),
            "others_share": max((one["others_share"] or 0.0 for one in of_run), default=0.0),
        }
        for of_run in grouped.values()
    ]
    return sorted(rows, key=lambda row: (row["began"], row["run"]))


def contradictions(loads: Iterable[Row]) -> list[str]:
    """Loads whose rows do not agree on what the load was: (run, load, side) must be one row."""
    seen: dict[tuple[Any, ...], Row] = {}
    found = []
    for one in loads:
        other = seen.setdefault((one["run"], one["load"], one["side"]), one)
        differ = [
            name for name in other if name in one and _label(name) and other[name] != one[name]
        ]
        if differ:
            found.append(f"load {one['load']} of run {one['run']} has two values of {differ[0]}")
    return found


def _label(name: str) -> bool:
    return name not in ("requests", "errors", "error", "cut_short", "cell")
