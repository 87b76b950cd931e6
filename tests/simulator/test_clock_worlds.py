"""Worlds about clocks alone: nobody acts by a clock that its peers have proved wrong (ADR 43)."""

from collections import Counter
from typing import Final

import pytest

from simulator.clock_world import ClockWorld
from simulator.mutation import noticed_by
from tests.doses import FULL

SEEDS: Final = 12 if FULL else 6
FOUND_BY: Final = {
    "lost-link-ends-doubt": 0,
    "slow-readings-dropped": 22,
    "stop-unnoticed": 0,
    "words-that-waited-hide-a-stop": 0,
}
"""Where to begin: near a seed that is known to show the bug."""
SEEDS_MAX: Final = 10


def test_nobody_acts_by_a_clock_that_was_proved_wrong() -> None:
    total: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = ClockWorld(seed)
        world.run()
        total += world.statistics
    for what in ("stops told", "slow proofs", "looks at who acts with a wrong clock"):
        assert total[what] > SEEDS, f"{what}: these worlds have hardly any"
    assert total["doubted"] > SEEDS
    assert total["trusted"] > total["doubted"], "trust comes back"


def test_a_world_is_a_function_of_its_seed() -> None:
    worlds = [ClockWorld(3), ClockWorld(3)]
    for world in worlds:
        world.run()
    assert worlds[0].statistics == worlds[1].statistics
    assert worlds[0].loop.events == worlds[1].loop.events


@pytest.mark.parametrize("name", sorted(FOUND_BY))
def test_the_faults_of_before_are_found(name: str) -> None:
    """Forgetting when a link is lost, dropping slow readings, machines that stood still."""
    first = FOUND_BY[name]
    assert any(noticed_by(name, seed) for seed in range(first, first + SEEDS_MAX))
