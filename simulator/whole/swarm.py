"""Worlds of whole nodes by their seeds, in processes of their own."""

import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from multiprocessing import get_context
from time import process_time
from typing import Final

import attrs

from simulator.environment.violation import Violation
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


def run_world(options: WholeOptions, *, verbose: bool = False) -> Verdict:
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


def run_seed(seed: int) -> Verdict:
    return run_world(draw(seed))


def run_seeds(seeds: Sequence[int], jobs: int) -> Iterator[Verdict]:
    """In processes of their own, in the order of the seeds."""
    context = get_context("spawn")  # else a world would inherit what another one left
    with context.Pool(jobs, maxtasksperchild=20) as pool:
        yield from pool.imap(run_seed, seeds)
