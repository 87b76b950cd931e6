"""Worlds of whole nodes: `python -m simulator.whole --seeds 0:100`; `--seed 7 --verbose`: one."""

import argparse
import os
import sys
from collections import Counter
from typing import Final

from simulator.whole.mutants import MUTANTS
from simulator.whole.options import draw
from simulator.whole.swarm import run_seeds, run_world

RERUN_EVERY: Final = 25
"""Of so many worlds one runs a second time, in another process, and must be the same."""
TOLD_EVERY: Final = 50
"""Worlds: a long run says how far it is."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m simulator.whole")
    parser.add_argument("--seeds", default="0:100", help="first:last, the last one not included")
    parser.add_argument("--seed", type=int, help="one world")
    parser.add_argument("--verbose", action="store_true", help="with --seed: all that happens")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--mutant", choices=sorted(MUTANTS), help="with this bug planted")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        options = draw(arguments.seed)
        print(options.describe())
        verdict = run_world(options, verbose=arguments.verbose, mutant=arguments.mutant)
        print(verdict.report or "clean")
        print(f"{verdict.failure}\n{_figures(Counter(verdict.statistics))}")
        return int(bool(verdict.failure))
    first, last = map(int, arguments.seeds.split(":"))
    seeds = range(first, last)
    if arguments.mutant is not None:
        return _hunt(seeds, arguments.jobs, arguments.mutant)
    return _run_all(seeds, arguments.jobs)


def _hunt(seeds: range, jobs: int, mutant: str) -> int:
    """Until a world fails; 0 if one does."""
    for verdict in run_seeds(seeds, jobs, mutant):
        if verdict.failure:
            tried = verdict.seed - seeds.start + 1
            print(f"{mutant}: found by world {tried}, seed {verdict.seed}: {verdict.failure}")
            return 0
    print(f"{mutant}: not in {len(seeds)} worlds")
    return 1


def _run_all(seeds: range, jobs: int) -> int:
    failed: list[int] = []
    simulated_s = cpu_s = 0.0
    statistics = Counter[str]()
    digests: dict[int, str] = {}
    for verdict in run_seeds(seeds, jobs):
        simulated_s, cpu_s = simulated_s + verdict.simulated_s, cpu_s + verdict.cpu_s
        statistics.update(verdict.statistics)
        digests[verdict.seed] = verdict.digest
        if verdict.failure:
            failed.append(verdict.seed)
            print(f"seed {verdict.seed} at {verdict.simulated_s:.1f} s: {verdict.failure}")
            print(f"  replay: python -m simulator.whole --seed {verdict.seed}", flush=True)
        if len(digests) % TOLD_EVERY == 0:
            print(f"{len(digests)} worlds, {len(failed)} failed, {cpu_s:.0f} CPU s", flush=True)
    for again in run_seeds([seed for seed in seeds if seed % RERUN_EVERY == 0], jobs):
        if digests[again.seed] != again.digest:
            failed.append(again.seed)
            print(f"seed {again.seed} went another way the second time")
    print(_figures(statistics))
    speed = simulated_s / max(cpu_s, 1e-9)
    print(f"{len(seeds)} worlds, {simulated_s:.0f} simulated seconds, {speed:.1f} a CPU second")
    print(f"failed: {failed}" if failed else "all clean")
    return int(bool(failed))


def _figures(statistics: Counter[str]) -> str:
    return "\n".join(f"  {name}: {count}" for name, count in sorted(statistics.items()))


if __name__ == "__main__":
    sys.exit(main())
