"""The checkers are checked: each rule of protocol.md that is taken away is noticed by the swarm."""

from typing import Final

import pytest

from simulator.mutants import MUTANTS
from simulator.swarm import Job, run_world

SEEDS_MAX: Final = 60

FIRST_SEED: Final = {
    "forget-promise": 0,
    "reply-before-fsync": 27,
    "naive-fresh-ballot": 43,
    "resume-same-ballot": 4,
    "no-incarnation": 4,
    "act-until-apply": 0,
    "no-holder-margin": 14,
    "no-other-margin": 17,
    "read-no-epoch": 7,
}
"""Where to begin: a seed that is known to show the mutant is near, which saves time, not rigour."""


NEEDS_A_SCRIPT: Final = {"no-cas": "scenario 11: the draining master leaves chance no opening"}


def test_every_mutant_is_looked_for() -> None:
    assert FIRST_SEED.keys() | NEEDS_A_SCRIPT.keys() == MUTANTS.keys()


@pytest.mark.parametrize("name", sorted(FIRST_SEED))
def test_the_swarm_finds(name: str) -> None:
    first = FIRST_SEED[name]
    for seed in range(first, first + SEEDS_MAX):
        if run_world(Job(seed, mutant=name)).failure:
            return
    pytest.fail(f"{name} ({MUTANTS[name].what}) survived seeds {first} to {first + SEEDS_MAX}")


def test_without_a_mutant_the_same_seeds_are_good() -> None:
    """Or the mutants would be found for another reason."""
    for seed in sorted(set(FIRST_SEED.values())):
        verdict = run_world(Job(seed))
        assert not verdict.failure, verdict.report
