"""The checkers are checked: when a rule of docs/protocol.md is removed, they notice.

Only a few quick mutants run here; `make mutants` runs them all and writes docs/mutants.md.
"""

from pathlib import Path
from typing import Final

import pytest

from paxos import quorum
from paxos.acceptor import Acceptor
from paxos.proposer import Proposer
from simulator.mutants.catalogue import MUTANTS, planted
from simulator.mutants.planting import Edit, Mutant, StaleEditError, plant
from simulator.mutation import Finding, findings_in, noticed_by, report, row
from simulator.swarm import Job, run_world
from tests.doses import some

REPORT: Final = Path(__file__).parents[2] / "docs" / "mutants.md"
MUTANTS_MIN: Final = 30
SEEDS_MAX: Final = 10

FIRST_SEED: Final = {
    "forget-promise": 0,
    "act-until-apply": 0,
    "resume-same-ballot": 0,
    "no-incarnation": 0,
    "read-no-epoch": 1,
}
"""Where to begin: near a seed that is known to show the mutant, which saves time and changes
nothing else."""


@pytest.mark.parametrize("name", some(sorted(FIRST_SEED)))
def test_the_swarm_finds(name: str) -> None:
    first = FIRST_SEED[name]
    for seed in range(first, first + SEEDS_MAX):
        if noticed_by(name, seed):
            return
    pytest.fail(f"{name} ({MUTANTS[name].what}) survived seeds {first} to {first + SEEDS_MAX}")


def test_without_a_mutant_the_same_seeds_are_good() -> None:
    """Otherwise the mutants would be found for another reason."""
    for seed in some(sorted(set(FIRST_SEED.values()))):
        verdict = run_world(Job(seed))
        assert not verdict.failure, verdict.report


def test_every_edit_fits_the_source() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    for name, mutant in MUTANTS.items():
        functions = {edit.function for edit in mutant.edits}
        before = {function: function.__code__ for function in functions}
        with planted(name):
            for function in functions:
                assert function.__code__ is not before[function], name
        for function in functions:
            assert function.__code__ is before[function], f"{name} left something behind"


def test_an_edit_that_does_not_fit_is_refused_and_changes_nothing() -> None:
    good = Edit(quorum.quorum_size, "// 2 + 1", "// 2")
    stale = Edit(Acceptor.on_prepare, "no such line", "")
    with (
        pytest.raises(StaleEditError, match="on_prepare"),
        plant(Mutant("", "", (good, stale), "")),
    ):
        pass
    assert quorum.quorum_size("abc") == 2  # type: ignore[arg-type] # any collection does


def test_a_mutant_reaches_whoever_imported_the_function_by_name() -> None:
    """`Proposer.on_promise` calls `is_quorum` of its own module's namespace."""
    with planted("outsiders-count"):
        proposer = Proposer(members=(1, 2, 3))  # type: ignore[arg-type] # plain ints do
        proposer.on_promise(8, ())  # type: ignore[arg-type]
        assert proposer.on_promise(9, ())  # type: ignore[arg-type]


def test_the_committed_report_has_every_mutant_and_no_other() -> None:
    rows = [line for line in REPORT.read_text().splitlines() if line.startswith("| `")]
    assert [line.split("`")[1] for line in rows] == list(MUTANTS)
    for line in rows:
        mutant = MUTANTS[line.split("`")[1]]
        assert f"| {mutant.rule} | {mutant.what} |" in line, "run `make mutants` again"


def test_the_report_says_who_noticed_and_who_did_not() -> None:
    found = Finding("forget-promise", 1, "I2 one value chosen", 0, "")
    tested = Finding("no-cas", 20, "", 0, "tests/a.py::test_b")
    hole = Finding("keep-range", 200, "", 2, "")
    assert row(found).endswith("| 1 | I2 one value chosen |")
    assert row(tested).endswith("| not in 20 | `tests/a.py::test_b` |")
    assert row(hole).endswith("| not in 200, 2 endless | **nobody** |")
    text = report([found, tested, hole])
    assert "3 mutants: 1 found by the swarm, 1 by a test alone, 1 by nobody" in text
    assert "`keep-range`: no reason is known" in text
    assert list(findings_in(text).values()) == [found, tested, hole], "it can be read back"
