"""Many worlds: run a range of seeds, say which fail and how to replay them."""

import multiprocessing
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from paxos.timing import Strategy
from simulator import mutants
from simulator.options import DiskKind, draw
from simulator.world import World

PROCESSES: Final = 2
TAIL_SHOWN: Final = 40


@attrs.frozen
class Verdict:
    """How one world went; `failure` is empty where nothing was wrong."""

    seed: int
    failure: str
    at_ns: int
    digest: str
    statistics: Counter[str]
    report: str = ""


@attrs.frozen
class Job:
    seed: int
    disk: DiskKind | None = None
    mutant: str = ""
    verbose: bool = False
    strategy: Strategy = Strategy.DELEGATE


def run_world(job: Job) -> Verdict:
    """One world, from beginning to end or to its first broken promise.

    An AssertionError is the core's own opinion that it is broken, any other exception is a crash of
    the node: both are failures of the world.
    """
    options = draw(job.seed, disk=job.disk, strategy=job.strategy)
    world = World(options, verbose=job.verbose)
    failure = report = ""
    with mutants.planted(job.mutant):
        try:
            world.run()
        except Exception as error:  # noqa: BLE001 # whatever it is, it is the finding
            failure = f"{type(error).__name__}: {error}"
            tail = list(world.trace.tail)[-TAIL_SHOWN:]
            report = "\n".join((options.describe(), "  ...", *tail, f"  {failure}"))
    statistics = world.statistics
    return Verdict(job.seed, failure, world.loop.now_ns, world.trace.digest(), statistics, report)


def run_worlds(jobs: Iterable[Job], processes: int = PROCESSES) -> Iterator[Verdict]:
    """Verdicts in the order of the jobs."""
    if processes <= 1:
        yield from map(run_world, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run_world, jobs)


@attrs.define
class Summary:
    worlds: int = 0
    failed: list[int] = attrs.Factory(list)
    simulated_ns: int = 0
    started: float = attrs.Factory(time.monotonic)
    statistics: Counter[str] = attrs.Factory(Counter)

    def add(self, verdict: Verdict) -> None:
        self.worlds += 1
        self.simulated_ns += verdict.at_ns
        self.statistics.update(verdict.statistics)
        if verdict.failure:
            self.failed.append(verdict.seed)

    def lines(self) -> Iterator[str]:
        elapsed = time.monotonic() - self.started
        simulated = self.simulated_ns / 1e9
        yield (
            f"{self.worlds} worlds, {len(self.failed)} failed: {simulated:,.0f} simulated s in "
            f"{elapsed:.1f} s ({simulated / max(elapsed, 1e-9):.0f} simulated s per real s)"
        )
        for name in sorted(self.statistics):
            yield f"  {name}: {self.statistics[name]:,}"


def replay_command(verdict: Verdict, job: Job) -> str:
    disk = f" --disk {job.disk.value}" if job.disk else ""
    mutant = f" --mutant {job.mutant}" if job.mutant else ""
    by = "" if job.strategy is Strategy.DELEGATE else f" --strategy {job.strategy.value}"
    return f"python -m simulator --seed {verdict.seed} --verbose{disk}{mutant}{by}"
