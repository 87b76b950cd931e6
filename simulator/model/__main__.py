"""`python -m simulator.model` checks the protocol: the models, each without each rule, the traces.

Exits with 0 if everything is as expected, 1 if not, 69 (EX_UNAVAILABLE) without a compiler. The
traces are those of the production core in the worlds of --traces; they need no compiler.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path
from typing import Final

from simulator.model.checker import (
    PROCESSES,
    ModelError,
    NoCompilerError,
    check,
    disagreements,
)
from simulator.model.runs import ALL
from simulator.model.traces import (
    QUICK_SEEDS,
    RARE,
    REFUSED_BY,
    SEEDS,
    seed_range,
    validate_all,
    validate_all_planted,
)

EX_UNAVAILABLE: Final = 69


def main() -> int:
    arguments = _parse()
    began, bad = os.times().elapsed, 0
    try:
        bad += _check_models(arguments)
    except NoCompilerError as missing:
        print(missing, file=sys.stderr)
        return EX_UNAVAILABLE
    except ModelError as broken:
        print(broken, file=sys.stderr)
        return 1
    if not arguments.only:
        bad += _check_planted(RARE if arguments.quick else frozenset(), arguments.processes)
        seeds = QUICK_SEEDS if arguments.quick else SEEDS
        bad += _check_traces(arguments.traces or seeds, arguments.processes)
    print(f"{bad} not as expected, {os.times().elapsed - began:.0f} s")
    return 1 if bad else 0


def _check_models(arguments: argparse.Namespace) -> int:
    runs = [
        run
        for run in ALL
        if (not arguments.quick or not run.slow)
        and (not arguments.only or arguments.only in f"{run.source} {run.flag}")
    ]
    bad, verdicts = 0, []
    with tempfile.TemporaryDirectory(prefix="evenkeel-model-") as folder:
        for verdict in check(runs, Path(folder), arguments.processes):
            verdicts.append(verdict)
            print(verdict.line(), flush=True)
            if not verdict.as_expected:
                bad += 1
            if arguments.verbose or not verdict.as_expected:
                print(verdict.text, flush=True)
    for disagreement in disagreements(verdicts):
        print(f"BAD {disagreement}")
        bad += 1
    print(f"{len(verdicts)} runs, {sum(verdict.states for verdict in verdicts):,} states")
    return bad


def _check_planted(left_out: frozenset[str], processes: int) -> int:
    """Without this check a specification that accepts everything would look good."""
    names = [name for name in REFUSED_BY if name not in left_out]
    bad = 0
    for name, verdict in validate_all_planted(names, processes):
        if verdict.rule != REFUSED_BY[name]:
            bad += 1
            print(f"BAD {name}, which breaks {REFUSED_BY[name]}: {verdict.line()}", flush=True)
    print(f"{len(names)} planted bugs, {bad} not refused by the rule they break")
    return bad


def _check_traces(seeds: range, processes: int) -> int:
    bad = events = 0
    for validation in validate_all(seeds, processes):
        events += validation.events
        if not validation.accepted:
            bad += 1
            print(f"BAD {validation.line()}", flush=True)
    print(f"{len(seeds)} traces, {events:,} events, {bad} not accepted")
    return bad


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator.model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--only", default="", metavar="WORD", help="runs whose name contains it")
    parser.add_argument("--traces", type=seed_range, metavar="A:B", help="seeds of the worlds")
    parser.add_argument("--verbose", action="store_true", help="print every counterexample")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
