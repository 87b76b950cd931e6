"""Bars, medians and spreads; tables that fit a terminal; files that can be compared."""

import json
from pathlib import Path

import pytest

from benchmarks.load.histogram import Histogram
from benchmarks.load.jobs import Measured
from benchmarks.load.usage import Usage
from benchmarks.report import report, results
from benchmarks.report.results import Bar, Figure, Outcome


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


def test_percentiles_have_names_and_a_direction() -> None:
    usage = Usage(1.0, (), 0.1, 0.0)
    latencies = Histogram(range(1_000_000, 101_000_000, 1_000_000))
    measured = Measured(seconds=1.0, count=100, bytes=0, usage=usage, latency_ns=latencies)
    figures = results.latency_figures([measured], prefix="80%: ")
    names = [figure.name for figure in figures]
    assert names == ["80%: p50 ms", "80%: p90 ms", "80%: p99 ms", "80%: p99.9 ms", "80%: max ms"]
    assert [round(figure.value) for figure in figures] == [50, 90, 99, 100, 100]
    assert all(figure.less_is_better for figure in figures)


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


def test_peers_stand_beside_ours_with_the_ratio_of_each_pair_of_rounds() -> None:
    ours = outcome(
        Figure(name="messages/s", values=[200, 220, 210]),
        Figure(name="p50 ms", values=[2, 1, 3], less_is_better=True),
        Figure(name="p99 ms", values=[9, 9, 9], less_is_better=True),
        Figure(name="node us/message", values=[1]),
    )
    theirs = Outcome(
        name=ours.name,
        title="",
        system="other",
        figures=(
            Figure(name="messages/s", values=[100, 100, 105]),
            Figure(name="p50 ms", values=[1, 2, 3]),
            Figure(name="p99 ms", values=[3, 6, 4.5]),
        ),
    )
    failed = Outcome(name="single", title="", system="other", failure="it fell over\nand more")
    text = report.beside([ours, outcome(name="single")], [theirs, failed])
    assert max(map(len, text.splitlines())) <= 80
    rate, middle, tail, broken = text.splitlines()[2:6]
    told = ["produce-100b-idempotent", "messages/s", "210", "100", "2.00", "2-2.2", "+"]
    assert rate.split() == told
    assert middle.split()[-3:] == ["1.00", "0.5-2", "?"]
    assert tail.split()[-3:] == ["2.00", "1.5-3", "-"]
    assert broken.split() == ["single", "other:", "it", "fell", "over"]


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


@pytest.mark.parametrize(
    ("value", "text"), [(1234.5, "1,234"), (999.6, "1000"), (99.94, "99.9"), (0.4321, "0.432")]
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert results.number(value) == text
