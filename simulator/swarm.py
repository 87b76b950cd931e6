"""Many worlds: run a range of seeds, say which fail and how to replay them."""

import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import attrs

from paxos.timing import Strategy
from simulator.environment.options import DiskKind, Options, changed, draw
from simulator.environment.violation import Violation
from simulator.model.specification import Refused
from simulator.model.traces import JudgedWorld
from simulator.mutants import catalogue as mutants
from simulator.world import World

PROCESSES: Final = 2
TAIL_SHOWN: Final = 40


@attrs.frozen
class Job:
    """One world; `settings` change its options after they are drawn."""

    seed: int
    disk: DiskKind | None = None
    mutant: str = ""
    verbose: bool = False
    strategy: Strategy = Strategy.DELEGATE
    settings: tuple[str, ...] = ()

    def replay_command(self) -> str:
        parts = [f"python -m simulator --seed {self.seed} --verbose"]
        if self.disk is not None:
            parts.append(f"--disk {self.disk.value}")
        if self.mutant:
            parts.append(f"--mutant {self.mutant}")
        if self.strategy is not Strategy.DELEGATE:
            parts.append(f"--strategy {self.strategy.value}")
        parts += [f"--set {setting}" for setting in self.settings]
        return " ".join(parts)


@attrs.frozen(kw_only=True)
class Verdict:
    """How one world went; `failure` is empty if nothing was wrong.

    `checker` names who objected, the same for the same bug in another world; `struck` are the
    strikes of the nemesis so far, and `notes` the lines of the trace about them.
    """

    seed: int
    failure: str
    checker: str
    at_ns: int
    cpu_s: float
    digest: str
    statistics: Counter[str]
    struck: tuple[int, ...]
    report: str = ""
    notes: tuple[str, ...] = ()


def make_world(options: Options, *, verbose: bool = False) -> World:
    return (JudgedWorld if options.judged else World)(options, verbose=verbose)


class TimeUp(Exception):
    """Ends a world early, when its end is not needed."""


def options_of(job: Job) -> Options:
    return changed(draw(job.seed, disk=job.disk, strategy=job.strategy), job.settings)


def run_world(job: Job, *, options: Options | None = None, stop_ns: int = 0) -> Verdict:
    """One world, from beginning to end or to its first broken promise; to `stop_ns` if given.

    An AssertionError is the core's own verdict that it is broken, any other exception is a crash of
    the node: both are failures of the world.
    """
    options = options or options_of(job)
    started = time.process_time()
    world = make_world(options, verbose=job.verbose)
    if stop_ns:
        world.loop.at(stop_ns, _time_up)
    failure = report = checker = ""
    with mutants.planted(job.mutant):
        try:
            world.run()
        except TimeUp:
            pass
        except Exception as error:  # noqa: BLE001 # whatever it is, it is the finding
            failure, checker = f"{type(error).__name__}: {error}", checker_of(error)
            tail = list(world.trace.tail)[-TAIL_SHOWN:]
            report = "\n".join((options.describe(), "  ...", *tail, f"  {failure}"))
    return Verdict(
        seed=job.seed,
        failure=failure,
        checker=checker,
        at_ns=world.loop.now_ns,
        cpu_s=time.process_time() - started,
        digest=world.trace.digest(),
        statistics=world.statistics,
        struck=tuple(world.nemesis.struck),
        report=report,
        notes=tuple(world.nemesis.notes),
    )


def _time_up() -> None:
    raise TimeUp


def checker_of(error: Exception) -> str:
    """A checker by its name; the code's own assertions and crashes by the place they are in."""
    if isinstance(error, Refused):
        return f"trace: {error.rule}"
    if isinstance(error, Violation):
        return str(error).partition(" ")[0].rstrip(":")
    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"`{frame.name}`"
    if not frame.filename.startswith("<"):
        path = Path(frame.filename)
        place = f"`{path.parent.name}/{path.name}` {place}"
    kind = "assertion" if isinstance(error, AssertionError) else type(error).__name__
    return f"{kind} in {place}"


def run_worlds(jobs: Iterable[Job], processes: int = PROCESSES) -> Iterator[Verdict]:
    """Verdicts in the order of the jobs."""
    processes = min(processes, os.cpu_count() or 1)
    if processes <= 1:
        yield from map(run_world, jobs)
        return
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        yield from pool.imap(run_world, jobs)


def again(job: Job, before: Verdict) -> Verdict:
    """Run the same world again: a digest other than `before` is a failure of determinism."""
    verdict = run_world(job)
    if verdict.failure or verdict.digest == before.digest:
        return verdict
    failure = f"not deterministic: digest {before.digest}, then {verdict.digest}"
    return attrs.evolve(verdict, failure=failure, checker="determinism", report=failure)


@attrs.define
class Summary:
    worlds: int = 0
    failed: list[int] = attrs.Factory(list)
    simulated_ns: int = 0
    cpu_s: float = 0.0
    started: float = attrs.Factory(time.monotonic)
    statistics: Counter[str] = attrs.Factory(Counter)

    def add(self, verdict: Verdict) -> None:
        self.worlds += 1
        self.simulated_ns += verdict.at_ns
        self.cpu_s += verdict.cpu_s
        self.statistics.update(verdict.statistics)
        if verdict.failure:
            self.failed.append(verdict.seed)

    def lines(self) -> Iterator[str]:
        elapsed = max(time.monotonic() - self.started, 1e-9)
        simulated = self.simulated_ns / 1e9
        yield (
            f"{self.worlds} worlds, {len(self.failed)} failed: {simulated:,.0f} simulated s in "
            f"{elapsed:.1f} s ({simulated / elapsed:.0f} simulated s per real s, "
            f"{simulated / max(self.cpu_s, 1e-9):.0f} per CPU s)"
        )
        for name in sorted(self.statistics):
            yield f"  {name}: {self.statistics[name]:,}"
