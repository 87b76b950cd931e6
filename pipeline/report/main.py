"""`python -m pipeline report SAMPLES... --output DIR`: tables and pictures of benchmark samples.

Exit code 0 with the report written, 2 if the samples cannot be judged.
"""

import argparse
import time
from collections.abc import Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline import session
from pipeline.report import gaps, logic, plots, reading, tables, transform
from pipeline.report.files import InputError, Inputs, find
from pipeline.report.logic import Row
from pipeline.report.schema import BALANCED, CONCENTRATED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HELP: Final = "tables and pictures of benchmark samples: rates, percentiles, balanced or not, moves"
LOADS_MAX: Final = 100_000
"""More than this makes no readable report."""
MOVES_MAX: Final = 1_000_000


def options_of(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m pipeline report", description=__doc__)
    parser.add_argument(
        "samples",
        nargs="+",
        metavar="SAMPLES",
        help="files or folders written by a benchmark's --samples, of any number of runs",
    )
    parser.add_argument("--output", type=Path, required=True, metavar="DIR")
    for name in ("run", "commit"):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="BEGIN",
            help=f"only {name}s whose name begins so; may be repeated",
        )
    parser.add_argument("--no-plots", action="store_true", help="no PNG files")
    session.add_session_options(parser)
    return parser.parse_args(argv)


def main(argv: Sequence[str]) -> int:
    options = options_of(argv)
    began = time.monotonic()

    def tell(line: str) -> None:
        session.say(f"[{time.monotonic() - began:5.1f} s] {line}")

    try:
        inputs = find(options.samples)
        spark = session.start("report", options)
        try:
            tell("Spark has started")
            report = make(spark, inputs, options.run, options.commit, tell)
        finally:
            spark.stop()
    except InputError as error:
        session.say(f"report: {error}")
        return 2
    written = write(report, options.output, with_plots=not options.no_plots)
    tell(f"wrote {', '.join(path.name for path in written)} to {options.output}")
    return 0


def make(
    spark: "SparkSession",
    inputs: Inputs,
    runs: Sequence[str] = (),
    commits: Sequence[str] = (),
    tell: session.Say = session.say,
) -> dict[str, Any]:
    """The report as plain values.

    Raises:
        InputError: if a row is not a sample, or none is left.
    """
    samples = reading.read(spark, inputs, "samples")
    assert samples is not None, "find() has seen to it"
    samples = reading.chosen(samples, runs, commits)
    with ExitStack() as cached:
        report = _of_samples(samples, cached, tell)
    moves = _moves(spark, inputs, samples, runs, commits)
    tell(f"gaps of {len(moves)} moves are done")
    return {**report, "moves": moves, "gap_summaries": logic.gap_summaries(moves)}


def _of_samples(samples: "DataFrame", cached: ExitStack, tell: session.Say) -> dict[str, Any]:
    """Everything except the moves. Small tables used repeatedly are cached until `cached` ends."""

    def keep(table: "DataFrame") -> "DataFrame":
        cached.callback(table.persist().unpersist)
        return table

    seconds = keep(transform.by_second(samples))
    _all_sound(seconds, samples)
    of_loads = keep(transform.loads(seconds))
    loads = _rows(of_loads, LOADS_MAX)
    if not loads:
        raise InputError("no samples are left: the files are empty, or --run or --commit has none")
    if wrong := logic.contradictions(loads):
        raise InputError("; ".join(wrong[:3]))
    requests = sum(one["requests"] for one in loads)
    count = len({(one["run"], one["load"]) for one in loads})
    tell(f"{requests:,} samples of {count} loads are sound")
    rates = keep(transform.second_rates(seconds, of_loads))
    throughput = _rows(transform.throughput(of_loads, rates), LOADS_MAX)
    ratios = _rows(transform.ratios(of_loads, rates), LOADS_MAX)
    tell("throughput is done")
    values = transform.latencies(samples, of_loads)
    percentiles = _rows(transform.percentiles(values, ["cell", "counted_from"]), LOADS_MAX)
    tell("percentiles are done")
    cells = logic.cells(throughput, percentiles, loads)
    return {
        "samples": requests,
        "runs": logic.runs(loads),
        "cells": cells,
        "ratios": ratios,
        "ratio_summaries": logic.ratio_summaries(ratios),
        "comparisons": logic.comparisons(cells),
        "left_out": [one for one in loads if one["cut_short"]],
    }


def _all_sound(seconds: "DataFrame", samples: "DataFrame") -> None:
    unsound = seconds.agg({"unsound": "sum"}).first()
    if unsound[0]:
        reading.refuse(samples, "samples")


def _moves(
    spark: "SparkSession",
    inputs: Inputs,
    samples: "DataFrame",
    runs: Sequence[str],
    commits: Sequence[str],
) -> list[Row]:
    """The gaps of every move."""
    moves = reading.read(spark, inputs, "moves")
    if moves is None:
        return []
    moves = reading.chosen(moves, runs, commits)
    if moves.where(~transform.is_sound("moves")).limit(1).count():
        reading.refuse(moves, "moves")
    found = gaps.above_usual(gaps.gaps(samples, moves.drop("_corrupt")))
    rows = _rows(found, MOVES_MAX)
    return sorted(rows, key=lambda row: (row["run"], row["load"], row["move"], row["side"]))


def _rows(table: "DataFrame", most: int) -> list[Row]:
    rows = [row.asDict() for row in table.limit(most + 1).collect()]
    if len(rows) > most:
        raise InputError(f"more than {most:,} rows of figures: choose with --run and --commit")
    return rows


def write(report: dict[str, Any], folder: Path, *, with_plots: bool) -> list[Path]:
    """Write all files of the report; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {folder / "report.md": tables.markdown(report)}
    written[folder / "report.json"] = tables.to_json(report)
    for name, rows in report.items():
        if isinstance(rows, list) and rows:
            written[folder / f"{name.replace('_', '-')}.csv"] = tables.to_csv(rows)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    pictures = _pictures(report, folder) if with_plots and _can_draw() else []
    return [*written, *pictures]


def _can_draw() -> bool:
    if find_spec("matplotlib"):
        return True
    session.say("no pictures: matplotlib is not installed (pip install '.[spark]')")
    return False


def _pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """Pictures of the newest run that has data for each of them.

    An open loop sends the same messages per second to both layouts: only a closed loop has a ratio
    of rates.
    """
    drawn = []
    summaries = report["ratio_summaries"]
    closed = [one for one in summaries if not one["rate"]]
    if closed:
        rows, cells = _of_the_last(closed, report["cells"])
        drawn.append(folder / "placements.png")
        plots.placements(rows, cells, drawn[-1])
    if summaries:
        _, cells = _of_the_last(summaries, report["cells"])
        first = next(iter(cells))["counted_from"]
        if first is not None:
            drawn.append(folder / "latency.png")
            plots.latency([one for one in cells if one["counted_from"] == first], drawn[-1])
    if report["moves"]:
        last_run = report["moves"][-1]["run"]
        drawn.append(folder / "gaps.png")
        plots.gaps([one for one in report["moves"] if one["run"] == last_run], drawn[-1])
    return drawn


def _of_the_last(
    summaries: Sequence[Row], cells: Sequence[Row]
) -> tuple[Sequence[Row], Sequence[Row]]:
    """The newest of the summaries with those like it, and the cells they are of."""
    last = summaries[-1]
    rows = [one for one in summaries if _alike(one, last)]
    sizes = {one["message_bytes"] for one in rows}
    layouts = (BALANCED, CONCENTRATED)
    return rows, [
        one
        for one in cells
        if _alike(one, last) and one["layout"] in layouts and one["message_bytes"] in sizes
    ]


def _alike(one: Row, other: Row) -> bool:
    """Whether two rows agree in all that is drawn, except for what goes with the message size."""
    names = ("run", "client", "benchmark", "rate", "nodes", "groups", "side")
    return all(one[name] == other[name] for name in names)
