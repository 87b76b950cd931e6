"""The report without Spark: which files, the figures from small tables, text and pictures."""

import csv
import io
import struct
from pathlib import Path
from typing import Any

import pytest

from benchmarks.handoff import figures
from pipeline.__main__ import main
from pipeline.report import logic, plots, schema, tables
from pipeline.report.files import InputError, find
from pipeline.report.main import _alike, _pictures
from pipeline.report.transform import CELL, PERCENTS

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


# --- files ---------------------------------------------------------------------------------------


def test_files_are_known_by_their_names(tmp_path: Path) -> None:
    for name in ("a.samples.parquet", "b.samples.jsonl.gz", "a.moves.jsonl", ".c.samples.jsonl"):
        (tmp_path / name).touch()
    (tmp_path / "handoff.json").touch()
    (tmp_path / "big.samples.parquet").mkdir()  # as Spark writes it
    remote = "hdfs://somewhere/d.samples.parquet"
    found = find([str(tmp_path), str(tmp_path / "a.moves.jsonl"), remote])
    assert {kind: [Path(path).name for path in paths] for kind, paths in found.paths.items()} == {
        ("samples", "parquet"): ["a.samples.parquet", "big.samples.parquet", "d.samples.parquet"],
        ("samples", "json"): ["b.samples.jsonl.gz"],
        ("moves", "json"): ["a.moves.jsonl"],
    }
    assert [form for form, _ in found.of("samples")] == ["parquet", "json"]


def test_what_cannot_be_a_report_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").touch()
    with pytest.raises(InputError, match="does not exist"):
        find([str(tmp_path / "nothing")])
    with pytest.raises(InputError, match=r"neither samples nor moves: names end with \.samples"):
        find([str(tmp_path / "other.json")])
    with pytest.raises(InputError, match="no samples in"):
        find([str(tmp_path)])
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.samples.jsonl").touch()
    with pytest.raises(InputError, match="rows would count twice"):
        find([str(tmp_path / "one"), str(tmp_path / "two")])
    assert main(["report", str(tmp_path / "nothing"), "--output", str(tmp_path / "out")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_columns_are_documented() -> None:
    """Printed by `python -m pipeline.report.schema`."""
    lines = [*DOCUMENT.read_text(encoding="utf-8").splitlines(), ""]
    for kind in schema.COLUMNS:
        rows = schema.documented(kind)
        assert rows[0] in lines
        begin = next(at for at in range(len(lines)) if lines[at : at + len(rows)] == rows)
        assert not lines[begin + len(rows)].startswith("|")


# --- figures -------------------------------------------------------------------------------------


def a_cell(**changes: Any) -> dict[str, Any]:
    labels: dict[str, Any] = dict.fromkeys(CELL, "x")
    labels |= {
        "nodes": 3,
        "groups": 12,
        "rate": 0.0,
        "connections": 4,
        "in_flight": 1,
        "message_bytes": 100,
    }
    labels |= {"layout": "balanced", "limits": "none", "side": "produce", "began": "1", "run": "1"}
    return {**labels, **changes}


def measured(**changes: Any) -> dict[str, Any]:
    figures_ = {"qps": 100.0, "qps_least": 90.0, "qps_greatest": 110.0, "mb_per_s": 0.5}
    counts = {"loads": 2, "cut_short": 0, "errors": 0, "error": None, "others_share": 0.1}
    return {**a_cell(), **figures_, **counts, "seconds": 10, **changes}


def test_a_cell_has_a_row_for_each_way_to_count() -> None:
    loads = [{**a_cell(), "cell": 1}, {**a_cell(side="fetch"), "cell": 2}]
    percentiles = [
        {"cell": 1, "counted_from": way, "percent": percent, "value": at * 1e6, "count": 7}
        for way in ("sent", "due")
        for at, percent in enumerate(PERCENTS)
    ]
    rows = logic.cells([measured(), measured(side="fetch")], percentiles, loads)
    names = ("side", "counted_from", "p50_ms", "p99.9_ms", "max_ms", "requests")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("fetch", None, None, None, None, None),
        ("produce", "due", 0, 3, 4, 7),
        ("produce", "sent", 0, 3, 4, 7),
    ]


def test_ratios_are_summed_up_by_their_median() -> None:
    pairs = [
        a_cell(pair=pair, balanced=rate, concentrated=100.0, ratio=rate / 100, message_bytes=size)
        for size in (10_000, 100)
        for pair, rate in ((2, 150.0), (0, 90.0), (1, 400.0))
    ]
    rows = logic.ratio_summaries([*pairs, a_cell(ratio=None, pair=9)])
    assert [row["message_bytes"] for row in rows] == [100, 10_000]
    assert rows[0]["ratios"] == [0.9, 4.0, 1.5]
    assert (rows[0]["pairs"], rows[0]["ratio"], rows[0]["balanced"]) == (3, 1.5, 150)
    assert (rows[0]["ratio_least"], rows[0]["ratio_greatest"]) == (0.9, 4.0)


def some_moves() -> list[dict[str, Any]]:
    kind = {"run": "1", "commit": "c", "strategy": "delegate", "producer": "plain"}
    kind |= {"rate": 100.0, "grace_ms": 1000.0}
    return [
        {
            **kind,
            "side": side,
            "quiet_ms": 1.0 + number / 10,
            "handover_ms": 5.0 + number,
            "above_ms": 4.0 + number / 3,
            "redirect_ms": 60.0 - number,
            "blips": number % 3,
        }
        for side in ("produce", "fetch")
        for number in range(7)
    ]


def test_gaps_are_summed_up_as_by_the_handover_benchmark() -> None:
    moves = some_moves()
    fetch, produce = logic.gap_summaries(moves)
    assert (fetch["side"], produce["side"], produce["moves"], produce["blips_max"]) == (
        *("fetch", "produce"),
        *(7, 2),
    )
    for name, told in logic.GAPS.items():
        expected = figures.spread([row[f"{name}_ms"] for row in moves if row["side"] == "produce"])
        assert {at: produce[f"{told}_{at}_ms"] for at in expected} == expected


def test_runs_are_compared_with_the_first_that_measured_the_same() -> None:
    rows = [
        {
            **measured(run=run, began=run, qps=qps, message_bytes=size),
            "counted_from": "sent",
            "p99_ms": p99,
        }
        for run, size, qps, p99 in (
            ("1", 100, 100.0, 4.0),
            ("2", 100, 150.0, 3.0),
            ("2", 1000, 70.0, 3.0),
            ("3", 100, None, None),
        )
    ]
    found = logic.comparisons(rows)
    changes = [(row["run"], row["qps_change"], row["p99_change"]) for row in found]
    assert changes == [("1", 0, 0), ("2", 0.5, -0.25), ("3", None, None)]


def test_runs_are_told_oldest_first_with_their_errors() -> None:
    load = {**a_cell(), "requests": 5, "errors": 1, "others_share": 0.2, "load": 0}
    other = {**load, "load": 1, "limits": "cpu 50%", "others_share": None}
    first = {**load, "run": "0", "began": "0", "others_share": None}
    rows = logic.runs([load, other, first])
    names = ("run", "loads", "requests", "errors", "others_share", "limits")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("0", 1, 5, 1, 0.0, ["none"]),
        ("1", 2, 10, 2, 0.2, ["cpu 50%", "none"]),
    ]


def test_a_load_that_contradicts_itself_is_named() -> None:
    load = {**a_cell(), "load": 3, "requests": 1, "cell": 1}
    assert logic.contradictions([load, {**load, "side": "fetch", "client": "other"}]) == []
    found = logic.contradictions([load, {**load, "nodes": 5, "requests": 9, "cell": 2}])
    assert found == ["load 3 of run 1 has two values of nodes"]


# --- text and pictures ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "told"),
    [(0.0, "0"), (0.01234, "0.0123"), (9.876, "9.88"), (123.4, "123"), (12345.6, "12,346")],
)
def test_numbers_have_three_digits(value: float, told: str) -> None:
    assert tables.number(value) == told


def test_sizes_and_loops_are_words() -> None:
    sizes = (100, 1_000, 1_500, 10_000, 1_000_000, 1_001, None)
    told = ["100 B", "1 KB", "1.5 KB", "10 KB", "1 MB", "1001 B", "any"]
    assert [tables.size(one) for one in sizes] == told
    assert tables.loop(a_cell()) == "closed, 4 x 1"
    assert tables.loop(a_cell(rate=1000.0)) == "open, 1000/s"
    assert tables.loop(a_cell(in_flight=None)) == "as fast as it goes"


def a_report(limits: str = "none") -> dict[str, Any]:
    cells = []
    ratios = []
    for place, size in enumerate((100, 1_000, 10_000, 100_000)):
        for layout, qps in (("concentrated", 9_000.0), ("balanced", 14_000.0)):
            spread = {"qps": qps / (place + 1), "qps_least": 800.0, "qps_greatest": 15_000.0}
            late = {f"{logic.name_of(p)}_ms": 1.0 + place + p / 10 for p in PERCENTS}
            row = measured(layout=layout, message_bytes=size, limits=limits, **spread, **late)
            cells.append({**row, "counted_from": "sent", "requests": 1000})
        ratios += [
            a_cell(pair=n, message_bytes=size, limits=limits, balanced=r, concentrated=1.0, ratio=r)
            for n, r in enumerate((0.9, 1.7, 2.0))
        ]
    moves = some_moves()
    return {
        "samples": 8000,
        "runs": logic.runs([{**one, "load": 0} for one in cells]),
        "cells": cells,
        "ratios": ratios,
        "ratio_summaries": logic.ratio_summaries(ratios),
        "moves": moves,
        "gap_summaries": logic.gap_summaries(moves),
        "comparisons": logic.comparisons([*cells, *({**one, "run": "2"} for one in cells)]),
        "left_out": [{**cells[0], "load": 4, "error": "refused"}],
    }


def test_the_report_says_what_its_figures_are_worth() -> None:
    text = tables.markdown(a_report())
    assert "the ratio says nothing about nodes on machines of their own" in text
    assert "| none | 3 | 12 | 100 B | 3 | 1 | 1.7 | 1.70 | 0.90, 1.70, 2.00 |" in text
    assert "no coordinated omission" in text
    assert "9,000 (800 - 15,000)" in text
    assert "- load 4 of run 1 (x, concentrated, 100 B): refused" in text
    for block in text.split("\n\n"):
        if block.startswith("|"):
            assert len({line.replace(" | ", "|").count("|") for line in block.splitlines()}) == 1
    assert tables.UNLIMITED not in tables.markdown(a_report(limits="50 Mbit/s"))


def test_a_picture_is_of_what_differs_by_message_size_only() -> None:
    """A small message may have had another limit, and more requests under way, than a large one."""
    one = a_cell(message_bytes=100, limits="network 10mbit", connections=96)
    assert _alike(one, a_cell(message_bytes=1_000, limits="network 20mbit", connections=12))
    others = ({"nodes": 5}, {"groups": 1}, {"benchmark": "y"}, {"rate": 9.0}, {"run": "2"})
    assert not any(_alike(one, a_cell(**other)) for other in others)


def test_the_ratio_that_is_drawn_is_of_a_closed_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open loop offers both layouts the same load: its ratio is 1, whatever they can do."""
    report = a_report()
    opened = {"rate": 100.0}
    closed_loop = list(report["ratio_summaries"])
    report["ratio_summaries"] = closed_loop + [{**one, **opened} for one in closed_loop]
    report["cells"] = report["cells"] + [{**one, **opened} for one in report["cells"]]
    drawn: list[list[dict[str, Any]]] = []
    monkeypatch.setattr(
        plots, "placements", lambda rows, cells, _path: drawn.append([*rows, *cells])
    )
    monkeypatch.setattr(plots, "latency", lambda *_: None)
    monkeypatch.setattr(plots, "gaps", lambda *_: None)
    assert tmp_path / "placements.png" in _pictures(report, tmp_path)
    assert {one["rate"] for one in drawn[0]} == {0.0}
    report["ratio_summaries"] = report["ratio_summaries"][len(closed_loop) :]
    assert tmp_path / "placements.png" not in _pictures(report, tmp_path)


def test_csv_has_a_column_for_each_value() -> None:
    rows = list(csv.DictReader(io.StringIO(tables.to_csv(a_report()["ratio_summaries"]))))
    assert [row["message_bytes"] for row in rows] == ["100", "1000", "10000", "100000"]
    assert rows[0]["ratios"] == "0.9 1.7 2.0"


@pytest.mark.parametrize("limits", ["none", "50 Mbit/s"])
def test_pictures_fit_a_readme(tmp_path: Path, limits: str) -> None:
    pytest.importorskip("matplotlib")
    report = a_report(limits)
    plots.placements(report["ratio_summaries"], report["cells"], tmp_path / "placements.png")
    plots.latency(report["cells"], tmp_path / "latency.png")
    plots.gaps(report["moves"], tmp_path / "gaps.png")
    pictures = {"placements.png", "latency.png", "gaps.png"}
    assert {path.name for path in tmp_path.iterdir()} == pictures
    for path in tmp_path.iterdir():
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])  # PNG's first chunk
        assert data.startswith(b"\x89PNG")
        assert width == plots.WIDTH_IN * plots.DPI
        assert 0.2 < height / width < 0.8
        assert len(data) < 200_000
