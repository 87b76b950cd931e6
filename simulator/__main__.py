"""`python -m simulator --seeds 0:200` runs the swarm; `--seed 7 --verbose` replays one world."""

import argparse
import sys

from paxos.timing import Strategy
from simulator import mutants
from simulator.options import DiskKind, draw
from simulator.swarm import PROCESSES, Job, Summary, replay_command, run_world, run_worlds


def main() -> int:
    arguments = _parse()
    disk = DiskKind(arguments.disk) if arguments.disk else None
    by = Strategy(arguments.strategy)
    if arguments.seed is not None:
        return _run_one(Job(arguments.seed, disk, arguments.mutant, arguments.verbose, by))
    first, _, last = arguments.seeds.partition(":")
    seeds = range(int(first), int(last))
    jobs = [Job(seed, disk, arguments.mutant, strategy=by) for seed in seeds]
    summary = Summary()
    for job, verdict in zip(jobs, run_worlds(jobs, arguments.processes), strict=True):
        summary.add(verdict)
        if verdict.failure:
            print(f"seed {verdict.seed} failed at {verdict.at_ns / 1e9:.3f} s: {verdict.failure}")
            print(verdict.report)
            print(f"  replay: {replay_command(verdict, job)}", flush=True)
    print("\n".join(summary.lines()))
    return 1 if summary.failed else 0


def _run_one(job: Job) -> int:
    print(draw(job.seed, disk=job.disk, strategy=job.strategy).describe())
    verdict = run_world(job)
    summary = Summary()
    summary.add(verdict)
    if verdict.failure:
        print(verdict.report)
    print("\n".join(summary.lines()))
    print(f"digest {verdict.digest}")
    return 1 if verdict.failure else 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m simulator", description=__doc__)
    parser.add_argument("--seeds", default="0:200", metavar="FROM:TO", help="seeds, TO excluded")
    parser.add_argument("--seed", type=int, help="one world")
    parser.add_argument("--verbose", action="store_true", help="print all that happens (--seed)")
    parser.add_argument("--processes", type=int, default=PROCESSES)
    parser.add_argument("--disk", choices=[kind.value for kind in DiskKind], default="")
    parser.add_argument("--mutant", choices=sorted(mutants.MUTANTS), default="")
    strategies = [strategy.value for strategy in Strategy]
    parser.add_argument(
        "--strategy", choices=strategies, default="delegate", help="how masters are handed over"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
