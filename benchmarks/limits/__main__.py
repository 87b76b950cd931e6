"""`python -m benchmarks.limits`: what this machine can do at best, and what share of it we reach.

Exit code 0 if every bar was reached, 1 if not or if something was not measured, 2 for wrong
arguments. docs/performance.md says how to read it.
"""

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
from rich.console import Console

from benchmarks.__main__ import RESULTS_DIR, Refusals
from benchmarks.handoff.report import write_into
from benchmarks.limits import tables
from benchmarks.limits.loads import LOADS, Scale
from benchmarks.limits.machine import PROBES
from benchmarks.limits.measure import CONSUME, Limits
from benchmarks.report import comparison as earlier
from benchmarks.report import environment, report, results
from benchmarks.report.progress import view_of
from benchmarks.suites import bench
from benchmarks.suites.runs import Run
from cluster import state

FULL: Final = Scale(name="full", pairs=4, warm_up_s=1.0, window_s=3.0)
QUICK: Final = Scale(name="quick", pairs=2, warm_up_s=0.5, window_s=1.5)
PAIRS_MAX: Final = 1_000
PARTITIONS_MAX: Final = 1_000
NAMES: Final = (*(one.name for one in (*PROBES, *LOADS)), CONSUME.name)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.limits",
        description="Measure what this machine can do at best, and a fresh three-node cluster "
        "against a bare replicated append of three processes, in alternating rounds.",
    )
    parser.add_argument("--quick", action="store_true", help="two short pairs of rounds each")
    parser.add_argument("--only", nargs="+", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--pairs", type=_number(int, 1, PAIRS_MAX), help="of rounds, for each load")
    parser.add_argument(
        "--seconds", type=_number(float, 0.1, 60), help="measured in each round, after its warm-up"
    )
    parser.add_argument(
        "--partitions",
        type=_number(int, 1, PARTITIONS_MAX),
        default=12,
        help="of the topic that is loaded; there are 12 groups (default %(default)s)",
    )
    parser.add_argument(
        "--spread",
        action="store_true",
        help="masters evenly spread, not all on one node like the bare append's leader",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to keep the result")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier result")
    parser.add_argument(
        "--page", type=Path, metavar="FILE", help="a page with marks, for the tables"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="SECTION.KEY=VALUE",
        help="another setting for our own nodes; may be repeated",
    )
    return parser.parse_args(arguments)


def _number(kind: type[int] | type[float], least: float, most: float) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = kind(least) - 1
        if not least <= value <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {least} to {most}")
        return value

    return parse


def scale_of(options: argparse.Namespace) -> Scale:
    scale = QUICK if options.quick else FULL
    changes = {"pairs": options.pairs, "window_s": options.seconds}
    return attrs.evolve(scale, **{name: value for name, value in changes.items() if value})


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = options_of(arguments)
    chosen = set(options.only or NAMES)
    scale = scale_of(options)
    began = time.monotonic()
    view = view_of(Console(), len(chosen))
    limits = Limits(
        probes=[one for one in PROBES if one.name in chosen],
        loads=[one for one in LOADS if one.name in chosen],
        consume=CONSUME.name in chosen,
        scale=scale,
        partitions=options.partitions,
        spread=options.spread,
        overrides=options.overrides,
        view=view,
    )
    run = Run(scale=bench.FULL, view=view)
    try:
        against = [] if options.compare is None else earlier.read(options.compare)
        context = environment.describe(state.DEFAULT_DATA_DIR)
        run.until_done(limits.measure)
    except (earlier.ResultError, bench.BenchmarkFailed, OSError, *Refusals) as error:
        print(f"limits: {error}", file=sys.stderr)
        return 1
    finally:
        view.close()
    context |= {
        "command": ["python", "-m", "benchmarks.limits", *arguments],
        "scale": scale.name,
        "pairs": scale.pairs,
        "window_s": scale.window_s,
        "partitions": options.partitions,
        "masters": limits.layout,
        "overrides": options.overrides,
        "took_s": round(time.monotonic() - began, 1),
        "configurations": limits.configurations,
    }
    outcomes = limits.outcomes
    path = options.json or RESULTS_DIR / f"limits-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results.write(path, context, outcomes)
    print(f"\n{tables.table(outcomes)}")
    if options.page is not None:
        write_into(
            options.page,
            tables.markdown(outcomes, context),
            begin=tables.BEGIN,
            end=tables.END,
        )
    if changes := earlier.changes(outcomes, against):
        print(f"\n{report.comparison(outcomes, against, changes)}")
    print(f"\nkept in {path}; took {time.monotonic() - began:.0f} s")
    complete = len(outcomes) == len(chosen)
    return 0 if complete and all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
