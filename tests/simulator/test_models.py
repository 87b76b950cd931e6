"""The explicit-state models: no rule is forgotten, and the runner tells good results from bad."""

import re
from pathlib import Path
from typing import Final

import attrs
import pytest

from simulator.model.checker import (
    SOURCES,
    NoCompilerError,
    Verdict,
    check,
    disagreements,
    find_compiler,
)
from simulator.model.runs import ALL, WITHOUT_A_RULE, Expected, Run

FLAG: Final = re.compile(r'\{"(BUG_\w+)", "(R\d+)b?", "')
RULES: Final = {f"R{number}" for number in range(1, 19)}
SOURCE_FILES: Final = sorted(SOURCES.glob("*.cpp"))


def flags(source: Path) -> dict[str, str]:
    """The rules that a model can do without, and their names in docs/protocol.md."""
    return dict(FLAG.findall(source.read_text(encoding="utf-8")))


def test_every_rule_of_the_protocol_can_be_taken_away_in_some_model() -> None:
    assert {rule for source in SOURCE_FILES for rule in flags(source).values()} == RULES


@pytest.mark.parametrize("source", SOURCE_FILES, ids=lambda source: source.stem)
def test_every_rule_of_a_model_is_taken_away_by_a_run(source: Path) -> None:
    taken = {run.flag for run in WITHOUT_A_RULE if run.source == source.name}
    assert taken == set(flags(source))
    assert any(run.source == source.name and not run.flag for run in ALL), "and it runs with all"


def test_a_model_holds_with_its_rules_and_fails_without_one(tmp_path: Path) -> None:
    """The smallest of them, compiled and searched as `make model` does it."""
    try:
        find_compiler()
    except NoCompilerError as missing:
        pytest.skip(str(missing))
    whole = Run("forward.cpp", {})
    broken = Run("forward.cpp", {}, "BUG_DEDUPE_LEQ", Expected.VIOLATED)
    wrong = Run("forward.cpp", {}, "BUG_DEDUPE_LEQ")
    good, bad, unexpected = check([whole, broken, wrong], tmp_path, 1)
    assert good.as_expected
    assert good.states > 1_000
    assert bad.as_expected
    assert "acknowledged that is not executed" in bad.finding
    assert not unexpected.as_expected
    assert unexpected.line().startswith("BAD")


def test_reductions_that_see_other_outcomes_are_told() -> None:
    run = Run("log.cpp", {"REDUCTION": 0}, same_outcomes="small")
    full = Verdict(run, "log: holds", {"outcomes": "12:ab"})
    reduced = attrs.evolve(full, run=attrs.evolve(run, bounds={"REDUCTION": 2}))
    assert not list(disagreements([full, reduced]))
    blind = attrs.evolve(reduced, values={"outcomes": "11:cd"})
    assert list(disagreements([full, blind])) == [
        "reductions disagree (small): 12:ab with 0, 11:cd with 2"
    ]
