"""Bars, medians and spreads; tables that fit a terminal; files that can be compared."""

import json
from pathlib import Path

import pytest

from benchmarks import report, results
from benchmarks.histogram import Histogram
from benchmarks.results import Bar, Figure, Outcome, ResultError


def outcome(*figures: Figure, name: str = "produce-100b-idempotent") -> Outcome:
    return Outcome(
        name=name,
        title="a benchmark",
        figures=figures,
        settings={"connections": 64},
        latency_ns=Histogram([1_000_000, 2_000_000]),
        others_share=0.42,
    )


def test_the_median_is_held_against_the_bar() -> None:
    rate = Figure(name="messages/s", values=[90, 200, 110], bar=Bar(100))
    assert rate.value == 110
    assert rate.spread == 1.0
    assert rate.passed is True
    assert Figure(name="messages/s", values=[90, 200, 95], bar=Bar(100)).passed is False
    assert Figure(name="messages/s", values=[90]).passed is None


def test_of_nodes_the_worst_is_held_against_the_bar() -> None:
    memory = Figure(name="RSS MB", values=[40, 90, 41], bar=Bar(80, at_most=True), of_worst=True)
    assert memory.value == 90
    assert memory.passed is False
    assert not outcome(memory).passed


def test_a_latency_must_not_exceed_its_bar() -> None:
    assert Bar(1.5, at_most=True).passed(1.5)
    assert not Bar(1.5, at_most=True).passed(1.51)


def test_a_benchmark_without_figures_has_not_passed_unless_it_was_skipped() -> None:
    assert not Outcome(name="idle", title="", failure="a node has ended").passed
    assert Outcome(name="idle", title="", skipped="not ours").passed


def test_tables_fit_80_columns_and_say_what_was_missed() -> None:
    text = report.table(
        [
            outcome(
                Figure(name="messages/s", values=[1_234_567] * 3, bar=Bar(100_000)),
                Figure(name="node us/message", values=[0.123]),
            ),
            outcome(Figure(name="p50 ms", values=[1.6], bar=Bar(1.5, at_most=True)), name="single"),
            Outcome(name="consume", title="", failure="0 of 100 messages read"),
        ]
    )
    assert max(map(len, text.splitlines())) <= 80
    passed, _, missed = (line for line in text.splitlines() if "%" in line and "others" not in line)
    assert passed.split()[-4:] == ["0%", ">=", "100,000", "pass"]
    assert missed.split()[-4:] == ["0%", "<=", "1.5", "MISS"]
    assert "FAILED: 0 of 100 messages read" in text
    assert "others took up to 42%" in text


def test_a_result_file_can_be_compared(tmp_path: Path) -> None:
    path = tmp_path / "new" / "result.json"
    before = outcome(
        Figure(name="messages/s", values=[90, 100, 110]), Figure(name="MB/s", values=[9, 10, 11])
    )
    results.write(path, {"commit": "c0ffee"}, [before])
    earlier = results.read(path)
    now = outcome(
        Figure(name="messages/s", values=[190, 200, 210]), Figure(name="MB/s", values=[10, 11, 12])
    )
    clear, unclear = report.comparison([now], earlier).splitlines()[-2:]
    assert clear.split() == ["produce-100b-idempotent", "messages/s", "100", "200", "+100%"]
    assert unclear.split()[-2:] == ["+10%", "?"]


def test_the_file_says_everything(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    results.write(path, {"commit": "c0ffee"}, [outcome(Figure(name="x", values=[1], bar=Bar(2)))])
    value = json.loads(path.read_text(encoding="utf-8"))
    assert value["commit"] == "c0ffee"
    (benchmark,) = value["benchmarks"]
    assert benchmark["passed"] is False
    assert benchmark["settings"] == {"connections": 64}
    assert benchmark["figures"][0]["values"] == [1]
    assert Histogram.from_json(benchmark["latency_ns"]).count == 2


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 99}', '{"format": 1}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ResultError, match=r"result\.json"):
        results.read(path)


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (999.6, "1000"), (99.94, "99.9"), (0.4321, "0.432")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert results.number(value) == text
