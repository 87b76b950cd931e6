"""`python -m benchmarks`: measure a fresh three-node cluster, or any Kafka-protocol brokers.

Exit code 0 if every bar was reached, 1 if not or if a benchmark failed, 2 for wrong arguments.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from benchmarks import environment, report, results
from benchmarks.bench import FULL, QUICK, Benchmark
from benchmarks.frames import TargetError
from benchmarks.progress import view_of
from benchmarks.runs import Run
from benchmarks.samples import SampleFolder
from benchmarks.suite import BENCHMARKS
from benchmarks.target import NODES, given_brokers
from cluster import state
from cluster.launcher import StartError
from cluster.spec import SpecError
from runtime.config import ConfigError

RESULTS_DIR: Final = Path("bench-results")
Refusals: Final = (TargetError, StartError, SpecError, ConfigError, state.StateError)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure a fresh three-node cluster on this machine: fsync on, acks=all.",
    )
    parser.add_argument("--quick", action="store_true", help="about a minute instead of four")
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the result is kept")
    parser.add_argument(
        "--samples", type=Path, metavar="DIR", help="keep every request as a row of a file there"
    )
    parser.add_argument("--compare", type=Path, metavar="FILE", help="an earlier result")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT[,...]",
        help="measure these brokers instead; topics are made there, and deleted again",
    )
    parser.add_argument(
        "--replication", type=int, default=NODES, help="of those topics (default %(default)s)"
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


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = options_of(arguments)
    chosen = [one for one in BENCHMARKS if options.only is None or one.name in options.only]
    began = time.monotonic()
    try:
        earlier = None if options.compare is None else results.read(options.compare)
        context = environment.describe(state.DEFAULT_DATA_DIR)
        samples = None if options.samples is None else SampleFolder.of(options.samples, context)
        run = _measure(options, chosen, samples)
    except (results.ResultError, *Refusals) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    context |= {
        "command": ["python", "-m", "benchmarks", *arguments],
        "scale": run.scale.name,
        "took_s": round(time.monotonic() - began, 1),
        "configurations": run.configurations,
    }
    path = options.json or RESULTS_DIR / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results.write(path, context, run.outcomes)
    print(f"\n{report.table(run.outcomes)}")
    if context["machine"]["file_system"] in environment.MEMORY_FILE_SYSTEMS:
        print("data was kept in memory, so fsync has cost nothing")
    if earlier is not None:
        print(f"\n{report.comparison(run.outcomes, earlier)}")
    if samples is not None:
        print(f"\nsamples of run {samples.run} are in {samples.folder}")
    print(f"\nkept in {path}; took {time.monotonic() - began:.0f} s")
    complete = len(run.outcomes) == len(chosen)
    return 0 if complete and all(outcome.passed for outcome in run.outcomes) else 1


def _measure(
    options: argparse.Namespace, chosen: Sequence[Benchmark], samples: SampleFolder | None
) -> Run:
    view = view_of(Console(), len(chosen))
    scale = QUICK if options.quick else FULL
    run = Run(scale=scale, view=view, overrides=options.overrides, samples=samples)
    try:
        if options.bootstrap_servers is None:
            run.until_done(partial(run.on_fresh_clusters, chosen))
        else:
            target = given_brokers(options.bootstrap_servers, options.replication)
            run.until_done(partial(run.on_target, chosen, target))
    finally:
        view.close()
    return run


if __name__ == "__main__":
    sys.exit(main())
