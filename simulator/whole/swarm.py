"""Worlds of whole nodes by their seeds, in processes of their own."""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from time import process_time
from typing import Final

import attrs

from simulator.environment.violation import Violation
from simulator.mutants.planting import plant
from simulator.whole.mutants import MUTANTS
from simulator.whole.options import WholeOptions, draw
from simulator.whole.world import World

LINES: Final = 60


@attrs.frozen
class Verdict:
    seed: int
    failure: str
    report: str
    digest: str
    simulated_s: float
    cpu_s: float
    statistics: Counter[str]


def run_world(
    options: WholeOptions, *, verbose: bool = False, mutant: str | None = None
) -> Verdict:
    """`mutant`: with this bug of `simulator.whole.mutants` in place."""
    if mutant is not None:
        with plant(MUTANTS[mutant]):
            return run_world(options, verbose=verbose)
    began_s, failure, report = process_time(), "", ""
    world = World(options, verbose=verbose)
    try:
        world.run()
    except (Violation, AssertionError) as wrong:
        failure = f"{type(wrong).__name__}: {wrong}"
        report = "\n".join((*list(world.trace.tail)[-LINES:], traceback.format_exc()))
    return Verdict(
        options.seed,
        failure,
        report,
        world.trace.digest(),
        world.loop.now_ns / 1e9,
        process_time() - began_s,
        world.statistics,
    )


def run_seed(mutant: str | None, seed: int) -> Verdict:
    return run_world(draw(seed), mutant=mutant)


def run_seeds(seeds: Sequence[int], jobs: int, mutant: str | None = None) -> Iterator[Verdict]:
    """In processes of their own, in the order of the seeds."""
    context = get_context("spawn")  # else a world would inherit what another one left
    with context.Pool(jobs, maxtasksperchild=20) as pool:
        yield from pool.imap(partial(run_seed, mutant), seeds)
