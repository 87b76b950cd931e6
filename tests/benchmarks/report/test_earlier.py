"""Which result a run is compared with, and what counts as better or worse."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import comparison as earlier
from benchmarks.report import report, results
from benchmarks.report.comparison import Change, Kind, ResultError
from benchmarks.report.results import Figure, Outcome

CONTEXT: dict[str, Any] = {
    "commit": "c0ffee",
    "began": "2026-11-22T10:20:30+00:00",
    "scale": "quick",
    "bootstrap_servers": None,
    "overrides": [],
    "machine": {"cpu": "a cpu", "cores": 2},
}
KIND = Kind.of(CONTEXT)


def outcome(
    name: str, values: Sequence[float], system: str = "evenkeel", others: float = 0.0
) -> Outcome:
    figure = Figure(name="messages/s", values=values)
    return Outcome(name=name, title="", system=system, figures=(figure,), others_share=others)


def keep(folder: Path, age: int, *outcomes: Outcome, **context: Any) -> Path:
    """A result file of that many seconds ago."""
    path = folder / f"{context.get('commit', 'c0ffee')}-{age}.json"
    results.write(path, {**CONTEXT, **context}, outcomes)
    at = 1_700_000_000 - age
    os.utime(path, (at, at))
    return path


def change(
    before: Sequence[float], now: Sequence[float], *, less_is_better: bool = False
) -> Change:
    return Change(
        benchmark="one",
        before=Figure(name="x", values=before),
        now=Figure(name="x", values=now, less_is_better=less_is_better),
    )


def test_better_or_worse_is_said_beyond_the_spread_only() -> None:
    assert change([90, 100, 110], [190, 200, 210]).verdict == "better"
    assert change([90, 100, 110], [40, 50, 60]).verdict == "worse"
    assert change([90, 100, 110], [105, 115, 125]).verdict == "?"
    assert change([1, 2], [3, 4], less_is_better=True).verdict == "worse"
    assert change([3, 4], [1, 2], less_is_better=True).verdict == "better"
    assert change([3, 3], [3, 3]).verdict == "?"


def test_what_was_measured_once_must_change_much_to_count() -> None:
    assert change([100], [115]).verdict == "?"
    assert change([100], [85, 86]).verdict == "?"
    assert change([100], [125]).verdict == "better"


def test_each_benchmark_is_compared_with_its_own_last_result(tmp_path: Path) -> None:
    """A run of one benchmark between two runs of all does not hide the older figures."""
    keep(tmp_path, 30, outcome("a", [1]), outcome("b", [1]), commit="oldest")
    keep(tmp_path, 20, outcome("a", [2]), outcome("b", [2]), commit="older")
    keep(tmp_path, 10, outcome("a", [3]), commit="newest")
    found = earlier.last_of_each(tmp_path, KIND, [outcome("a", [4]), outcome("b", [4])])
    assert {one.benchmark: one.commit for one in found} == {"a": "newest", "b": "older"}


def test_only_what_is_like_it_is_compared_with(tmp_path: Path) -> None:
    keep(tmp_path, 50, outcome("a", [1]), commit="right")
    keep(tmp_path, 40, outcome("a", [2]), scale="full")
    keep(tmp_path, 30, outcome("a", [3]), bootstrap_servers="elsewhere:9092")
    keep(tmp_path, 20, outcome("a", [4]), machine={"cpu": "another", "cores": 2})
    keep(tmp_path, 10, outcome("a", [5], system="peer"))
    keep(tmp_path, 9, Outcome(name="a", title="", failure="it fell over"))
    (tmp_path / "limits.json").write_text('{"fsync_us": 300}')
    (tmp_path / "broken.json").write_text("{")
    (found,) = earlier.last_of_each(tmp_path, KIND, [outcome("a", [6])])
    assert found.commit == "right"
    assert not earlier.last_of_each(tmp_path / "nowhere", KIND, [outcome("a", [6])])


def test_another_setting_is_compared_and_named(tmp_path: Path) -> None:
    """`--set` exists to show the effect of a setting."""
    keep(tmp_path, 10, outcome("a", [1]), overrides=["paxos.window=4"])
    (found,) = earlier.last_of_each(tmp_path, KIND, [outcome("a", [1])])
    assert found.run == "c0ffee of 2026-11-22 10:20 --set paxos.window=4"


def test_the_comparison_fits_80_columns_and_counts(tmp_path: Path) -> None:
    name = "produce-100b-idempotent"
    path = keep(tmp_path, 10, outcome(name, [1e6, 2e6], others=0.5), outcome("b", [9, 10, 11]))
    before = earlier.read(path)
    now = [outcome(name, [4e6, 3e6]), outcome("b", [10, 11, 12]), outcome("c", [1])]
    text = report.comparison(now, before, earlier.changes(now, before))
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert lines[0] == "compared with c0ffee of 2026-11-22 10:20: 2 of 2"
    told = [name, "messages/s", "1,500,000", "3,500,000", "+133%", "better"]
    assert lines[3].split() == told
    assert lines[4].split() == ["b", "messages/s", "10", "11", "+10%", "?"]
    assert "1 better, 0 worse, 1 within the spread (?)" in lines
    assert "others took up to 50% of this machine then, 0% now" in text


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"format": 99}', '{"format": 1}'])
def test_what_is_no_result_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "result.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ResultError, match=r"result\.json"):
        earlier.read(path)


def test_a_result_from_before_systems_had_names_can_be_read(tmp_path: Path) -> None:
    path = keep(tmp_path, 10, outcome("a", [1]))
    value = json.loads(path.read_text())
    del value["benchmarks"][0]["system"]
    path.write_text(json.dumps(value))
    (found,) = earlier.read(path)
    assert found.system == "evenkeel"
