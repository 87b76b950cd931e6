"""`python -m simulator.model` checks the protocol: the models, then every rule taken away.

Ends with 0 where everything is as expected, 1 where not, 69 (EX_UNAVAILABLE) without a compiler.
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

EX_UNAVAILABLE: Final = 69


def main() -> int:
    arguments = _parse()
    runs = [
        run
        for run in ALL
        if (not arguments.quick or not run.slow)
        and (not arguments.only or arguments.only in f"{run.source} {run.flag}")
    ]
    began, bad, verdicts = os.times().elapsed, 0, []
    with tempfile.TemporaryDirectory(prefix="evenkeel-model-") as folder:
        try:
            for verdict in check(runs, Path(folder), arguments.processes):
                verdicts.append(verdict)
                print(verdict.line(), flush=True)
                if not verdict.as_expected:
                    bad += 1
                if arguments.verbose or not verdict.as_expected:
                    print(verdict.text, flush=True)
        except NoCompilerError as missing:
            print(missing, file=sys.stderr)
            return EX_UNAVAILABLE
        except ModelError as broken:
            print(broken, file=sys.stderr)
            return 1
    for disagreement in disagreements(verdicts):
        print(f"BAD {disagreement}")
        bad += 1
    states = sum(verdict.states for verdict in verdicts)
    elapsed = os.times().elapsed - began
    print(f"{len(verdicts)} runs, {states:,} states, {bad} not as expected, {elapsed:.0f} s")
    return 1 if bad else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator.model", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out what takes long")
    parser.add_argument("--only", default="", metavar="WORD", help="runs whose name contains it")
    parser.add_argument("--verbose", action="store_true", help="print every counterexample")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
