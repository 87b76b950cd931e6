"""Stacks in py-spy's format become shares of the samples."""

import pytest

from benchmarks.studies.profile import read_folded, shares, table

FOLDED = """\
run (node.py:1);end_round (runtime/engine/engine.py:292);flush (runtime/network/channel.py:120) 6
run (node.py:1);end_round (runtime/engine/engine.py:293) 3
run (node.py:1);walk (a.py:1);walk (a.py:2) 1
"""


def test_a_function_counts_once_per_stack_whatever_its_lines() -> None:
    stacks, samples = read_folded(FOLDED)
    found = shares(stacks)
    assert samples == 10
    assert found["end_round (runtime/engine/engine.py)"].own == pytest.approx(0.3)
    assert found["end_round (runtime/engine/engine.py)"].total == pytest.approx(0.9)
    assert found["walk (a.py)"].total == pytest.approx(0.1)
    assert found["run (node.py)"].own == 0


def test_the_table_begins_with_the_largest_share() -> None:
    stacks, _ = read_folded(FOLDED)
    first, *_ = table(shares(stacks), lambda one: one.own, "function").splitlines()[2:]
    assert first.split() == ["flush", "(runtime/network/channel.py)", "60.0%", "60.0%"]
