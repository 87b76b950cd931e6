"""`python -m benchmarks.handoff`: the four ways to hand a group over, side by side (E19).

Each strategy gets a fresh cluster of three nodes, once under little traffic and once under a
thousand messages a second, and moves one group round and round between the nodes. Then clients of
several languages, with and without idempotence, each see as many moves of the default strategy.
Exit code 0 if the default strategy reaches its bars (issue 4) and no client loses, doubles or is
told anything (issue 26), else 1.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.handoff.by_client import watch
from benchmarks.handoff.figures import Run, missed_bars
from benchmarks.handoff.moves import measure
from benchmarks.handoff.programs import PROGRAMS, Missing
from benchmarks.handoff.report import (
    BEGIN,
    CLIENTS_BEGIN,
    CLIENTS_END,
    END,
    by_client,
    markdown,
    plot,
    write_into,
)
from benchmarks.load.frames import TargetError
from benchmarks.load.samples import SampleFolder
from benchmarks.report import environment
from cluster import state
from cluster.launcher import StartError
from cluster.workload import WorkloadError
from paxos.timing import Strategy
from runtime.config.config import BalancerSection

GRACE_MS: Final = int(BalancerSection().forward_grace_ms)
"""The product's default."""
RESULT: Final = Path("bench-results") / "handoff.json"
RATES: Final = (100, 1000)
GRACES: Final = (100, 300)
BAR_RATE: Final = 1000
"""The bars hold at this many acknowledged messages a second."""
CLIENT_RATE: Final = 300


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    names = [strategy.value for strategy in Strategy]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.handoff", description=__doc__)
    parser.add_argument("--moves", type=int, default=50, help="of each run (default %(default)s)")
    parser.add_argument("--strategies", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--rates", nargs="+", type=int, default=RATES, metavar="PER_SECOND")
    parser.add_argument(
        "--graces",
        nargs="+",
        type=int,
        default=GRACES,
        metavar="MS",
        help="measure the default strategy with these values of balancer.forward_grace_ms as well",
    )
    parser.add_argument(
        "--clients", nargs="*", choices=list(PROGRAMS), default=list(PROGRAMS), metavar="NAME"
    )
    parser.add_argument("--client-rate", type=int, default=CLIENT_RATE, metavar="PER_SECOND")
    parser.add_argument(
        "--only-clients", action="store_true", help="leave the strategies' figures as they are"
    )
    parser.add_argument("--json", type=Path, default=RESULT, metavar="FILE")
    parser.add_argument(
        "--samples",
        type=Path,
        metavar="DIR",
        help="keep every acknowledgement and every move in this folder",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="put the tables into this page")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the gaps into this PNG")
    parser.add_argument(
        "--again", action="store_true", help="measure nothing: tables and plot of the JSON file"
    )
    parser.add_argument(
        "--set", action="append", default=[], dest="overrides", metavar="SECTION.KEY=VALUE"
    )
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = options_of(arguments)
    missed: list[str] = []
    if options.again:
        value = json.loads(options.json.read_text(encoding="utf-8"))
    else:
        value, missed = _measure(options, arguments)
    texts = {}
    if not options.only_clients:
        texts[BEGIN, END] = markdown(value, value["results"])
    if value["by_client"]:
        texts[CLIENTS_BEGIN, CLIENTS_END] = by_client(value, value["by_client"])
    for (begin, end), text in texts.items():
        print(text)
        if options.page is not None:
            write_into(options.page, text, begin=begin, end=end)
    if options.plot is not None and not options.only_clients:
        plot(value["results"], options.plot)
    for one in missed:
        print(f"MISSED: {one}")
    return 1 if missed else 0


def _runs(options: argparse.Namespace) -> list[Run]:
    """Every strategy under every load; the default strategy also with a plain producer, and with
    other values of the grace."""
    runs = []
    for strategy in options.strategies:
        for rate in options.rates:
            run = Run(strategy=strategy, rate=rate, moves=options.moves, grace_ms=GRACE_MS)
            runs.append(run)
            if has_bars(run):
                runs.append(attrs.evolve(run, idempotent=False))
    barred = [run for run in runs if has_bars(run)]
    return runs + [attrs.evolve(run, grace_ms=grace) for grace in options.graces for run in barred]


def has_bars(run: Run) -> bool:
    return (run.strategy, run.rate, run.grace_ms) == (Strategy.DELEGATE.value, BAR_RATE, GRACE_MS)


def _measure(
    options: argparse.Namespace, arguments: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Measure all runs. The file is written after each, so that nothing measured is lost."""
    began = time.monotonic()
    context = environment.describe(state.DEFAULT_DATA_DIR)
    samples = None if options.samples is None else SampleFolder.of(options.samples, context)
    summaries: list[dict[str, Any]] = []
    value = {
        "format": 1,
        **context,
        "niceness": os.getpriority(os.PRIO_PROCESS, 0),
        "command": ["python", "-m", "benchmarks.handoff", *arguments],
        "results": summaries,
        "by_client": [],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    missed: list[str] = []
    for run in [] if options.only_clients else _runs(options):
        kind = "idempotent" if run.idempotent else "plain"
        what = f"{run.strategy}, {kind} producer, {run.rate} messages/s, grace {run.grace_ms} ms"
        print(f"{what}, {run.moves} moves ...", file=sys.stderr)
        try:
            result = trio.run(partial(measure, run, tuple(options.overrides), samples))
        except (TargetError, StartError, WorkloadError) as error:
            missed.append(f"{what} was not measured: {error}")
            continue
        summaries.append(result.summary())
        if has_bars(run):
            missed += [f"{kind} producer: {one}" for one in missed_bars(result)]
        value |= {"took_s": round(time.monotonic() - began, 1)}
        options.json.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    for row, problems in _each_client(options):
        missed += problems
        if row:
            value["by_client"].append(row)
        value |= {"took_s": round(time.monotonic() - began, 1)}
        options.json.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return value, missed


def _each_client(options: argparse.Namespace) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """What each client saw, with each kind of producer, and the bars that it missed."""
    for name in options.clients:
        try:
            program = PROGRAMS[name]()
        except Missing as why:
            print(f"{name}: skipped: {why}", file=sys.stderr)
            continue
        for kind in ("plain", "idempotent"):
            what = f"{program.client}, {kind} producer"
            print(f"{what}, {options.moves} moves ...", file=sys.stderr)
            ask = partial(
                watch,
                program,
                idempotent=kind == "idempotent",
                rate=options.client_rate,
                moves=options.moves,
                overrides=tuple(options.overrides),
            )
            try:
                seen = trio.run(ask)
            except (TargetError, StartError, WorkloadError) as error:
                print(f"{what} was not measured: {error}", file=sys.stderr)
                yield {}, [f"{what} was not measured: {error}"]
                continue
            yield seen.summary(), [f"{what}: {one}" for one in seen.missed_bars()]


if __name__ == "__main__":
    sys.exit(main())
