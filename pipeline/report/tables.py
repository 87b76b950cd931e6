"""The report as Markdown, as CSV and as JSON: plain values in, text out."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pipeline.report.logic import GAPS, Row
from pipeline.report.schema import BALANCED, CONCENTRATED, NO_LIMITS
from pipeline.report.transform import DUE, SENT

UNLIMITED: Final = (
    "The nodes of these runs shared one machine's cores, disk and network, without limits for "
    "each: the ratio says nothing about nodes on machines of their own."
)
HOW: Final = {
    "throughput": "Messages/s: the median of all whole seconds after the warm-up, seconds without "
    "any included; in brackets the least and the greatest median of a single load.",
    "latency": "Percentiles are exact, over all requests of all loads of a row; none is an "
    "average of others. *Due*: an open loop, counted from when the request should have been sent, "
    "so that a stall costs all that came during it (no coordinated omission). *Sent*: counted from "
    "when it was sent, which is all there is in a closed loop: such figures say how long a request "
    "took at that concurrency, and hide what would have been sent meanwhile.",
    "gaps": "The longest silence between two acknowledgements (two messages read) that touches an "
    "interval of a move, p50 / p90 / p99 / max of all moves, in ms; *above usual* is the "
    "handover's less the median of the quiet intervals. First contacts are left out.",
}
HEADS: Final = {
    "ratios": "run|benchmark|client|loop|limits|nodes|groups|message|pairs|concentrated/s|"
    "balanced/s|ratio|ratios of pairs",
    "cells": "run|benchmark|client|loop|masters|message|counted from|messages/s|MB/s|p50 ms|"
    "p90 ms|p99 ms|p99.9 ms|max ms|requests|errors",
    "comparisons": "benchmark|client|loop|masters|message|run|commit|messages/s|change|"
    "p99 ms|change",
    "runs": "run|began|commit|machine|limits|loads|requests|errors|others took at most",
    "gaps": "run|strategy|producer|messages/s|grace ms|side|moves|usual gap|handover gap|"
    "above usual|redirect gap|blips",
}
"""Column heads of the tables."""


def number(value: float | None) -> str:
    """Three significant digits below a thousand, thousands with commas above."""
    if value is None:
        return ""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


def size(message_bytes: int | None) -> str:
    """1 KB is 1,000 B, as in the benchmarks."""
    if message_bytes is None:
        return "any"
    for unit, factor in (("MB", 1_000_000), ("KB", 1_000)):
        if message_bytes >= factor and message_bytes % (factor // 10) == 0:
            return f"{message_bytes / factor:g} {unit}"
    return f"{message_bytes} B"


def loop(row: Row) -> str:
    """How the client sent, in words."""
    if row["rate"]:
        return f"open, {row['rate']:g}/s"
    if row["in_flight"] is None:
        return "as fast as it goes"
    return f"closed, {row['connections']} x {row['in_flight']}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """A Markdown table; the first `left` columns are text, the others numbers."""
    rule = ["---" if column < left else "---:" for column in range(len(head))]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows))


def markdown(report: Mapping[str, Any]) -> str:
    """All tables with what they mean; those without rows are left out."""
    parts = [f"# Benchmark report\n\n{_made(report)}"]
    sections: Sequence[tuple[str, str, Callable[[Mapping[str, Any]], str]]] = (
        ("ratio_summaries", "Balanced against concentrated masters", _ratios),
        ("cells", "Throughput and latency", _cells),
        ("gap_summaries", "Handing masters over", _gaps),
        ("comparisons", "Runs compared", _comparisons),
        ("runs", "Runs", _runs),
        ("left_out", "Left out", _left_out),
    )
    parts += [f"## {title}\n\n{make(report)}" for name, title, make in sections if report[name]]
    return "\n\n".join(parts) + "\n"


def _made(report: Mapping[str, Any]) -> str:
    return f"Made of {report['samples']:,} samples by `python -m pipeline report`."


def _ratios(report: Mapping[str, Any]) -> str:
    rows = report["ratio_summaries"]
    head = HEADS["ratios"].split("|")
    cells = [
        [
            *(one["run"], one["benchmark"], one["client"], loop(one), one["limits"]),
            *("" if one[name] is None else str(one[name]) for name in ("nodes", "groups")),
            size(one["message_bytes"]),
            str(one["pairs"]),
            number(one[CONCENTRATED]),
            number(one[BALANCED]),
            f"{one['ratio']:.2f}",
            ", ".join(f"{ratio:.2f}" for ratio in one["ratios"]),
        ]
        for one in rows
    ]
    note = f"\n\n{UNLIMITED}" if any(one["limits"] == NO_LIMITS for one in rows) else ""
    what = (
        "Acknowledged messages a second with all masters on one node, and with masters evenly "
        "spread: medians of the pairs, and balanced / concentrated for each pair; `ratio` is the "
        "median of those."
    )
    return f"{what}{note}\n\n{table(head, cells, 5)}"


def _cells(report: Mapping[str, Any]) -> str:
    head = HEADS["cells"].split("|")
    cells = [
        [
            *(one["run"], one["benchmark"], _client(one), loop(one), one["layout"]),
            size(one["message_bytes"]),
            {DUE: "due", SENT: "sent"}.get(one["counted_from"], ""),
            _with_spread(one),
            number(one["mb_per_s"]),
            *(number(one[f"{name}_ms"]) for name in ("p50", "p90", "p99", "p99.9", "max")),
            "" if one["requests"] is None else f"{one['requests']:,}",
            str(one["errors"]),
        ]
        for one in report["cells"]
    ]
    return f"{HOW['throughput']}\n\n{HOW['latency']}\n\n{table(head, cells, 7)}"


def _client(row: Row) -> str:
    return row["client"] if row["side"] == "produce" else f"{row['client']}: {row['side']}"


def _with_spread(row: Row) -> str:
    if row["qps"] is None:
        return "no whole second"
    if row["loads"] == 1:
        return number(row["qps"])
    return f"{number(row['qps'])} ({number(row['qps_least'])} - {number(row['qps_greatest'])})"


def _gaps(report: Mapping[str, Any]) -> str:
    head = HEADS["gaps"].split("|")
    cells = [
        [
            *(one["run"], f"`{one['strategy']}`", one["producer"]),
            f"{one['rate']:g}",
            f"{one['grace_ms']:g}",
            one["side"],
            str(one["moves"]),
            *(
                " / ".join(
                    f"{one[f'{told}_{name}_ms']:.1f}" for name in ("p50", "p90", "p99", "max")
                )
                for told in GAPS.values()
            ),
            str(one["blips_max"]),
        ]
        for one in report["gap_summaries"]
    ]
    return f"{HOW['gaps']}\n\n{table(head, cells, 3)}"


def _comparisons(report: Mapping[str, Any]) -> str:
    head = HEADS["comparisons"].split("|")
    cells = [
        [
            *(one["benchmark"], _client(one), loop(one), one["layout"]),
            size(one["message_bytes"]),
            *(one["run"], f"`{one['commit']}`"),
            number(one["qps"]),
            _percent(one["qps_change"]),
            number(one["p99_ms"]),
            _percent(one["p99_change"]),
        ]
        for one in report["comparisons"]
    ]
    return f"Changes are against the first run of each kind.\n\n{table(head, cells, 7)}"


def _percent(change: float | None) -> str:
    return "" if change is None else f"{change:+.0%}"


def _runs(report: Mapping[str, Any]) -> str:
    head = HEADS["runs"].split("|")
    cells = [
        [
            *(one["run"], one["began"], f"`{one['commit']}`", one["machine"]),
            ", ".join(one["limits"]),
            *(f"{one[name]:,}" for name in ("loads", "requests", "errors")),
            f"{one['others_share']:.0%}",
        ]
        for one in report["runs"]
    ]
    return table(head, cells, 5)


def _left_out(report: Mapping[str, Any]) -> str:
    what = "Loads whose samples end more than a second before their window does:"
    rows = (
        f"- load {one['load']} of run {one['run']} ({one['benchmark']}, {one['layout']}, "
        f"{size(one['message_bytes'])}): {one['error'] or 'nobody says why'}"
        for one in report["left_out"]
    )
    return "\n".join([what, "", *rows])


def to_csv(rows: Sequence[Row]) -> str:
    """All columns of the rows; lists are separated by spaces."""
    names = list(rows[0])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row[column]) for column in names] for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:  # noqa: ANN401 (whatever a table holds)
    return " ".join(map(str, value)) if isinstance(value, list) else value


def to_json(report: Mapping[str, Any]) -> str:
    return json.dumps(report, indent=1) + "\n"
