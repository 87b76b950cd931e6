"""The table of planted bugs refers to existing code, and the worlds that find them are clean."""

from pathlib import Path
from typing import Final

import pytest

from paxos.ids import MS
from simulator.mutants.planting import plant
from simulator.whole.hunts.__main__ import rows_in
from simulator.whole.hunts.catalogue import HUNTS
from simulator.whole.hunts.hunting import run, small
from simulator.whole.options import Fault
from simulator.whole.swarm import run_world
from tests.doses import some

REPORT: Final = Path(__file__).parents[3] / "docs" / "mutants.md"


def test_every_bug_can_be_planted() -> None:
    for hunt in HUNTS.values():
        with plant(hunt.mutant):
            pass


def test_the_report_has_every_bug_and_no_other() -> None:
    rows = rows_in(REPORT.read_text())
    assert list(rows) == list(HUNTS)
    for name, line in rows.items():
        assert f"| {HUNTS[name].mutant.what} |" in line, "run `python -m simulator.whole.hunts`"


@pytest.mark.parametrize(
    ("name", "seed", "says"),
    [
        ("records-stored-unread", 0, "G1a"),
        ("refusal-shuts-nothing", 3, "overtaken"),
        ("difference-ignored", 0, "fork"),
        ("captives", 0, "captive"),
        ("unfinished-uncounted", 0, "account"),
        ("masters-told-once-a-second", 0, "unready"),
        ("log-read-on-the-loop", 0, "loop"),
        ("unknown-called-refused", 0, "G1a"),
        ("blames-by-the-boot-clock", 3, "blame"),
        ("hung-keeps-masters", 0, "I11"),
        ("doubt-ignored", 0, "fork"),
        ("word-that-stays", 0, "numbers"),
        ("witness-of-anything", 0, "votes"),
        ("taught-unasked", 0, "I3"),
        ("held-answers-are-contact", 0, "captive"),
        ("let-in-at-once", 0, "nonmonotonic-send"),
        ("late-forwards-are-refused", 0, "G1a"),
    ],
)
def test_a_planted_bug_is_found(name: str, seed: int, says: str) -> None:
    hunt = HUNTS[name]
    verdict = run(hunt.options(seed), hunt.mutant)
    assert verdict.failure.startswith(says), verdict.failure


@pytest.mark.parametrize(
    ("fault", "changes", "happened"),
    some(
        [
            (
                Fault.RESET,
                dict(vandals=1, squatters=1, namers=1, tight=True, consumers=0, operators=0),
                ("connections squatted", "unreadable batches refused"),
            ),
            (Fault.FORK, dict(duration_ns=14_000 * MS), ("logs made to differ",)),
            (Fault.WORDS, {}, ("words spoilt",)),
            (Fault.FREEZE, dict(lease_ms=4_000), ("fault: a machine stands still",)),
            (
                Fault.LIES,
                dict(duration_ns=26_000 * MS, fault_gap_ns=100 * MS, groups=1, operators=0),
                ("lies: exaggerate", "lies: teach", "lies: accept", "lies: repeat", "lies: greet"),
            ),
            (Fault.FORK_APART, dict(duration_ns=14_000 * MS), ("logs made to differ",)),
            (Fault.OLD_TWICE, dict(duration_ns=16_000 * MS), ("old copies started twice",)),
        ]
    ),
)
def test_worlds_are_clean(
    fault: Fault, changes: dict[str, object], happened: tuple[str, ...]
) -> None:
    usual: dict[str, object] = dict(faults=frozenset({fault}), fault_gap_ns=300 * MS)
    verdict = run_world(small(1, **{**usual, **changes}))
    assert not verdict.failure, f"{verdict.failure}\n{verdict.report}"
    for what in happened:
        assert verdict.statistics[what], what
