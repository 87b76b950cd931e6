"""`python -m simulator --seeds 0:200` runs the swarm; `--seed 7 --verbose` replays one world."""

import argparse
import subprocess
import sys

from paxos.timing import Strategy
from simulator.environment.options import PARSERS, DiskKind
from simulator.mutants import catalogue as mutants
from simulator.shrink import shrink
from simulator.swarm import PROCESSES, Job, Summary, again, options_of, run_world, run_worlds

RERUN_EVERY = 100
"""One world in this many runs a second time, in another process, and must be the same."""
SHRUNK_MAX = 3
"""At most this many failing worlds are shrunk; it takes half a minute each."""


def main() -> int:
    arguments = _parse()
    disk = DiskKind(arguments.disk) if arguments.disk else None
    by = Strategy(arguments.strategy)
    settings = tuple(arguments.set)
    if arguments.seed is not None:
        job = Job(arguments.seed, disk, arguments.mutant, arguments.verbose, by, settings)
        return _run_one(job, make_small=arguments.shrink)
    first, _, last = arguments.seeds.partition(":")
    seeds = range(int(first), int(last))
    jobs = [Job(seed, disk, arguments.mutant, strategy=by, settings=settings) for seed in seeds]
    summary, small = Summary(), 0
    for job, verdict in zip(jobs, run_worlds(jobs, arguments.jobs), strict=True):
        if verdict.seed % RERUN_EVERY == 0 and not verdict.failure:
            verdict = again(job, verdict)
        summary.add(verdict)
        if verdict.failure:
            print(f"seed {verdict.seed} failed at {verdict.at_ns / 1e9:.3f} s: {verdict.failure}")
            print(verdict.report)
            print(f"  replay: {job.replay_command()}", flush=True)
            if small < SHRUNK_MAX:
                small += 1
                print("\n".join(shrink(job, verdict).lines(job)), flush=True)
    print("\n".join(summary.lines()))
    if summary.failed:
        print(f"commit {_commit()}, failed seeds: {summary.failed}")
    return 1 if summary.failed else 0


def _commit() -> str:
    """Recorded with the seeds: another commit may draw other worlds from them."""
    command = ["git", "describe", "--always", "--dirty"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 # fixed words
    return asked.stdout.strip() or "unknown: this is no git checkout"


def _run_one(job: Job, *, make_small: bool) -> int:
    print(options_of(job).describe())
    summary = Summary()
    verdict = run_world(job)
    summary.add(verdict)
    if verdict.failure:
        print(verdict.report)
    print("\n".join(summary.lines()))
    print(f"digest {verdict.digest}")
    if verdict.failure and make_small:
        print("\n".join(shrink(job, verdict).lines(job)))
    return 1 if verdict.failure else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--seeds", default="0:200", metavar="FROM:TO", help="seeds, TO excluded")
    parser.add_argument("--seed", type=int, help="one world")
    parser.add_argument("--verbose", action="store_true", help="print all that happens (--seed)")
    parser.add_argument("--shrink", action="store_true", help="make a failing --seed small")
    parser.add_argument("--jobs", type=int, default=PROCESSES, help="processes at a time")
    parser.add_argument("--disk", choices=[kind.value for kind in DiskKind], default="")
    parser.add_argument("--mutant", choices=sorted(mutants.MUTANTS), default="")
    strategies = [strategy.value for strategy in Strategy]
    parser.add_argument(
        "--strategy", choices=strategies, default="delegate", help="how masters are handed over"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"change an option of the world: {', '.join(PARSERS)}",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
