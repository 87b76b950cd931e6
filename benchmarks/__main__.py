"""`python -m benchmarks`: measure a fresh three-node cluster, or any Kafka-protocol brokers.

`evenkeel bench` is the same. Exit code 0 if every bar was reached, 1 if not or if a benchmark
failed, 2 for wrong arguments.
"""

import argparse
import logging
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.load import login
from benchmarks.load.frames import TargetError
from benchmarks.load.samples import SampleFolder
from benchmarks.report import comparison as earlier
from benchmarks.report import environment, report, results
from benchmarks.report.comparison import Earlier
from benchmarks.report.progress import view_of
from benchmarks.suites import sizes
from benchmarks.suites.bench import FULL, QUICK, Benchmark
from benchmarks.suites.runs import Run
from benchmarks.suites.suite import BENCHMARKS
from benchmarks.target import given_brokers
from cli import bench as bench_cli
from cluster import state
from cluster.launcher import StartError
from cluster.spec import SpecError
from cluster.workload import CLIENT_LOG
from runtime.config.config import ConfigError

RESULTS_DIR: Final = Path("bench-results")
Refusals: Final = (
    TargetError,
    login.LoginError,
    StartError,
    SpecError,
    ConfigError,
    state.StateError,
)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure a fresh three-node cluster on this machine: fsync on, acks=all.",
    )
    bench_cli.add_options(parser)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = options_of(arguments)
    names = bench_cli.chosen_names(options.only)
    chosen = [one for one in BENCHMARKS if one.name in names]
    began = time.monotonic()
    try:
        if options.command_config is not None and options.bootstrap_servers is None:
            raise TargetError("--command-config is for brokers: name them with --bootstrap-servers")
        login.use(options.command_config)
        against = None if options.compare is None else earlier.read(options.compare)
        context = environment.describe(state.DEFAULT_DATA_DIR)
        samples = None if options.samples is None else SampleFolder.of(options.samples, context)
        run = _measure(options, chosen, samples)
    except (earlier.ResultError, *Refusals) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 1
    context |= {
        "command": ["python", "-m", "benchmarks", *arguments],
        "scale": run.scale.name,
        "bootstrap_servers": options.bootstrap_servers,
        "peers": {peer.name: peer.bootstrap for peer in options.peers},
        "overrides": options.overrides,
        "took_s": round(time.monotonic() - began, 1),
        "configurations": run.configurations,
        "idle_cost_of_a_group": sizes.cost_of_a_group(run.outcomes),
    }
    if against is None and not options.no_compare:
        kind = earlier.Kind.of(context)
        against = earlier.last_of_each(RESULTS_DIR, kind, run.outcomes)
    path = options.json or RESULTS_DIR / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    results.write(path, context, run.outcomes)
    _tell(run, context, against)
    if samples is not None:
        print(f"\nsamples of run {samples.run} are in {samples.folder}")
    print(f"\nkept in {path}; took {time.monotonic() - began:.0f} s")
    complete = {outcome.name for outcome in run.outcomes} == {one.name for one in chosen}
    return 0 if complete and all(outcome.passed for outcome in run.outcomes) else 1


def _measure(
    options: argparse.Namespace, chosen: Sequence[Benchmark], samples: SampleFolder | None
) -> Run:
    CLIENT_LOG.addHandler(logging.NullHandler())  # connections are lost on purpose
    CLIENT_LOG.propagate = False
    replication = options.replication
    peers = [given_brokers(peer.bootstrap, replication, peer.name) for peer in options.peers]
    given = options.bootstrap_servers
    target = None if given is None else given_brokers(given, replication)
    view = view_of(Console(), len(chosen))
    scale = QUICK if options.quick else FULL
    run = Run(scale=scale, view=view, overrides=options.overrides, samples=samples, peers=peers)
    try:
        if target is None:
            run.until_done(partial(run.on_fresh_clusters, chosen))
        else:
            run.until_done(partial(run.on_target, chosen, target))
    finally:
        view.close()
    return run


def _tell(run: Run, context: Mapping[str, Any], against: Sequence[Earlier] | None) -> None:
    """Print all results, as tables."""
    peers = [peer.name for peer in run.peers]
    ours = [outcome for outcome in run.outcomes if outcome.system not in peers]
    print(f"\n{report.table(ours)}")
    if slopes := sizes.cost_of_a_group(ours):
        told = " and ".join(f"{results.number(slope)} {what}" for what, slope in slopes.items())
        print(f"one more idle group costs each node {told}")
    if context["machine"]["file_system"] in environment.MEMORY_FILE_SYSTEMS:
        print("data was kept in memory, so fsync cost nothing")
    for peer in peers:
        theirs = [outcome for outcome in run.outcomes if outcome.system == peer]
        if theirs:
            print(f"\n{report.beside(ours, theirs)}")
    if against is not None and (changes := earlier.changes(ours, against)):
        print(f"\n{report.comparison(ours, against, changes)}")
    elif against is not None:
        print("\nno earlier result to compare with")


if __name__ == "__main__":
    sys.exit(main())
