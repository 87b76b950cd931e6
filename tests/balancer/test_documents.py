"""docs/balancer.md agrees with the code: its table of states, its outcomes, its reasons."""

from pathlib import Path

import pytest

from balancer.planner.planner import PlanReason
from balancer.planner.proof import Proof
from balancer.registry.records import Outcome
from balancer.replicas import ReplicaReason
from balancer.stealing.judgement import StealReason
from balancer.stealing.steal import NEXT_STATE


@pytest.fixture(scope="module")
def document() -> str:
    return (Path(__file__).parents[2] / "docs" / "balancer.md").read_text(encoding="utf-8")


def test_the_picture_of_the_states_is_the_table(document: str) -> None:
    """Every transition is drawn, and no other."""
    drawn = {line.strip() for line in document.splitlines() if " --> " in line}
    table = {
        f"{before.replace('-', '_')} --> {after.replace('-', '_')}: {stimulus}"
        for (before, stimulus), after in NEXT_STATE.items()
    }
    assert drawn == table | {"[*] --> idle"}


def test_every_code_is_explained(document: str) -> None:
    codes = [
        *StealReason,
        *PlanReason,
        *ReplicaReason,
        *Proof,
        *(outcome.name for outcome in Outcome),
    ]
    assert [code for code in codes if f"`{code}`" not in document] == []
