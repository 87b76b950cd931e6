"""docs/reading-the-safety-argument.md covers every rule, and the planted bugs it names exist.

tests/test_source.py checks that its files and functions exist.
"""

import re
from pathlib import Path

from simulator.mutants.catalogue import MUTANTS

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reading-the-safety-argument.md").read_text()
RULES = re.compile(r"^\| ((?:R|F)\d+b?) \|", re.MULTILINE)


def test_every_rule_of_the_protocol_leads_somewhere() -> None:
    rules = set(RULES.findall((DOCS / "protocol.md").read_text()))
    assert {"R1", "R4b", "R6b", "R18", "F1", "F4"} <= rules
    found = set()
    for row in PAGE.splitlines():
        cells = row.split("|")
        if len(cells) > 3 and re.search(r"`[\w/]+\.py` `\w", cells[2]):
            found |= set(re.findall(r"\b[RF]\d+b?\b", cells[1]))
    assert rules - found == set()


def test_the_planted_bugs_it_names_exist() -> None:
    named = set(re.findall(r"`([a-z]+(?:-[a-z0-9]+)+)`", PAGE))
    assert len(named) > 60
    assert named - set(MUTANTS) == set()
