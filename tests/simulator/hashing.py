"""Digests of worlds under two hash seeds: the meaning of a seed must not depend on the process."""

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence


def digests(seeds: Iterable[int], settings: Sequence[str]) -> set[tuple[str, ...]]:
    """The digests of these worlds, by a process under each of two hash seeds: one element if they
    agree."""
    program = (
        "from simulator.swarm import Job, run_world\n"
        f"for seed in {tuple(seeds)}:\n"
        f"    print(run_world(Job(seed, settings={tuple(settings)})).digest)\n"
    )
    found = set()
    for hash_seed in ("0", "77"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        found.add(tuple(run.stdout.split()))
    return found
