"""The report's transforms on sets small enough to check by hand and by other means."""

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.handoff import figures
from benchmarks.load import samples as kept
from benchmarks.load.samples import SampleFolder, Samples, write_moves, write_samples
from pipeline.report import gaps, logic, main, reading, synthetic, tables, transform
from pipeline.report.files import InputError, find
from pipeline.report.schema import MOVES, SAMPLES, ddl
from tests.benchmarks.load.test_samples import ENVIRONMENT, LABELS
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.spark

S = 1_000_000_000
MS = 1_000_000
FROM, TO = 10 * S, 13 * S + S // 2
"""A window of three whole seconds and a half."""


def a_sample(**changes: Any) -> dict[str, Any]:
    """A request of a closed loop, answered in the window's first second."""
    row = {
        "run": "r",
        "load": 0,
        "pair": 0,
        "benchmark": "b",
        "commit": "c",
        "began": "2026",
        "machine": "m",
        "limits": "none",
        "layout": "balanced",
        "nodes": 3,
        "groups": 12,
        "client": "x",
        "message_bytes": 100,
        "rate": 0.0,
        "connections": 1,
        "in_flight": 1,
        "window_from_ns": FROM,
        "window_to_ns": TO,
        "others_share": 0.5,
        "side": "produce",
        "connection": 0,
        "intended_ns": None,
        "start_ns": FROM,
        "end_ns": FROM + MS,
        "records": 1,
        "bytes": 100,
        "ok": True,
        "error": None,
        **changes,
    }
    since = row["start_ns"] if row["intended_ns"] is None else row["intended_ns"]
    row.setdefault("latency_ns", row["end_ns"] - since)
    assert row.keys() == SAMPLES.keys()
    return row


def answered(at_s: float, **changes: Any) -> dict[str, Any]:
    """... or in any other."""
    end = int(at_s * S)
    return a_sample(start_ns=end - MS, end_ns=end, **changes)


def frame(spark: Any, rows: list[dict[str, Any]], kind: str = "samples") -> Any:
    columns = SAMPLES if kind == "samples" else MOVES
    values = [(*(row[name] for name in columns), None) for row in rows]
    return spark.createDataFrame(values, f"{ddl(kind)}, `_corrupt` string")


def one_pair() -> Iterator[dict[str, Any]]:
    """Load 0, balanced: 3, 0 and 5 messages in its whole seconds. Load 1, concentrated: 2, 1, 4.
    Load 2, also concentrated, ends in its first second. Load 3 has no pair, and ten messages in a
    row."""
    yield from (answered(9.5) for _ in range(50))  # warm-up
    yield from (answered(10.1) for _ in range(3))
    yield from (answered(12.9) for _ in range(5))
    yield from (answered(13.1) for _ in range(70))  # no whole second any more
    yield from (answered(13.6) for _ in range(9))  # after the window
    yield answered(12.5, ok=False, error="refused", records=7, latency_ns=None)
    other = {"load": 1, "layout": "concentrated"}
    for second, count in ((10, 2), (11, 1), (12, 4), (13, 1)):
        yield from (answered(second + 0.2, **other) for _ in range(count))
    yield answered(10.3, load=2, layout="concentrated")
    yield answered(10.4, load=2, layout="concentrated", ok=False, error="gone", latency_ns=None)
    alone = {"load": 3, "pair": None, "message_bytes": None, "benchmark": "z"}
    yield from (answered(10 + step / 3, **alone) for step in range(10))


def test_rates_are_medians_of_whole_seconds(spark: Any) -> None:
    seconds = transform.by_second(frame(spark, list(one_pair()))).persist()
    loads = transform.loads(seconds).persist()
    rates = transform.second_rates(seconds, loads).persist()
    of_loads = {row.load: row for row in loads.collect()}
    assert {load: row.cut_short for load, row in of_loads.items()} == {
        0: False,
        1: False,
        2: True,
        3: False,
    }
    assert [(of_loads[n].errors, of_loads[n].error) for n in (0, 2)] == [
        (7, "refused"),
        (1, "gone"),
    ]
    found = {
        (row.run, row.layout): row
        for row in transform.throughput(loads, rates).collect()
        if row.benchmark == "b"
    }
    balanced, concentrated = found["r", "balanced"], found["r", "concentrated"]
    assert (balanced.qps, balanced.seconds, balanced.loads, balanced.errors) == (3, 3, 1, 7)
    assert balanced.mb_per_s == pytest.approx(0.0003)
    assert (concentrated.qps, concentrated.loads, concentrated.cut_short) == (2, 2, 1)
    (pair,) = transform.ratios(loads, rates).collect()
    assert (pair.pair, pair.balanced, pair.concentrated, pair.ratio) == (0, 3, 2, 1.5)
    seconds.unpersist()


def test_percentiles_are_values_that_occur(spark: Any) -> None:
    """Each against sorting, with many equal values, zero, and a minute in nanoseconds."""
    dice = random.Random(7)
    groups: dict[int, list[int]] = {
        1: list(range(1, 1001)),
        2: [5],
        3: [0, 0, 0, 60 * S],
        4: [int(dice.lognormvariate(15, 1.5)) for _ in range(3000)],
        5: [dice.choice((7, 7, 8)) for _ in range(999)],
    }
    rows = [(group, value) for group, values in groups.items() for value in values]
    values = spark.createDataFrame(rows, "cell bigint, value bigint")
    found = {
        (row.cell, row.percent): (row.value, row["count"])
        for row in transform.percentiles(values, ["cell"]).collect()
    }
    assert [found[1, p][0] for p in transform.PERCENTS] == [500, 900, 990, 999, 1000]
    assert found == {
        (group, percent): (int(logic.percentile(values, percent)), len(values))
        for group, values in groups.items()
        for percent in transform.PERCENTS
    }


def test_an_open_loop_counts_from_when_a_request_was_due(spark: Any) -> None:
    """A stall of 100 ms: requests due meanwhile were sent late. A batch has no latency."""
    stalled = [
        a_sample(rate=100.0, in_flight=None, intended_ns=due, start_ns=start, end_ns=start + MS)
        for due, start in ((FROM, FROM), (FROM + 10 * MS, FROM + 100 * MS), (TO, TO))
    ]
    batch = a_sample(load=1, records=9, latency_ns=None)
    failed = a_sample(load=1, ok=False, error="x")
    samples = frame(spark, [*stalled, batch, failed])
    loads = transform.loads(transform.by_second(samples)).drop("cut_short")
    loads = loads.selectExpr("*", "false as cut_short").persist()
    rows = transform.latencies(samples, loads).collect()
    found = sorted((row.counted_from, row.value / MS) for row in rows)
    assert found == [("due", 1), ("due", 91), ("sent", 1), ("sent", 1)]


def move_of(move: figures.Move, number: int, **labels: Any) -> dict[str, Any]:
    intervals = {"quiet": move.quiet, "handover": move.handover, "redirect": move.redirect}
    return {
        "move": number,
        "first_contact": number == 0,
        "source": move.source,
        "target": move.target,
        **{f"{name}_from_ns": one.from_ns for name, one in intervals.items()},
        **{f"{name}_to_ns": one.to_ns for name, one in intervals.items()},
        "phases_ms": {"freeze": 1.0},
        **labels,
    }


def a_handover(dice: random.Random) -> tuple[list[int], list[figures.Move]]:
    """Acknowledgements at random times, and moves at some of them, also before the first and after
    the last."""
    at, times = 0, []
    for _ in range(dice.choice((1, 3, 300))):
        at += dice.choice((0, 1, 2, 3, 80)) * MS
        times.append(at)
    moves = []
    for _ in range(8):
        edges = sorted(dice.randrange(-100 * MS, at + 200 * MS) for _ in range(4))
        moves.append(
            figures.Move(
                source=1,
                target=2,
                quiet=figures.Interval(edges[0], edges[1]),
                handover=figures.Interval(edges[1], edges[2]),
                redirect=figures.Interval(edges[2], edges[3]),
                phases_ms={},
            )
        )
    return times, moves


def test_gaps_are_those_of_the_handover_benchmark(spark: Any) -> None:
    """The same definition as benchmarks/handoff/figures.py, checked with random cases."""
    dice = random.Random(11)
    rows, moves, expected = [], [], {}
    for load in range(30):
        times, made = a_handover(dice)
        shift = 1000 * S
        rows += [a_sample(load=load, side="fetch", start_ns=0, end_ns=shift + one) for one in times]
        labels = {"run": "r", "load": load, "commit": "c", "rate": 1000.0, "grace_ms": 1000.0}
        labels |= {"strategy": "delegate", "producer": "plain"}
        for number, move in enumerate(made):
            shifted = move_of(move, number, **labels)
            moves.append({n: v + shift if n.endswith("_ns") else v for n, v in shifted.items()})
        expected[load] = figures.watched(times, made[1:])
    found = gaps.above_usual(gaps.gaps(frame(spark, rows), frame(spark, moves, "moves")))
    by_load: dict[int, list[Any]] = {}
    for row in sorted(found.collect(), key=lambda row: (row.load, row.move)):
        by_load.setdefault(row.load, []).append(row)
    assert by_load.keys() == expected.keys()
    for load, seen in expected.items():
        of_load = by_load[load]
        assert [row.quiet_ms for row in of_load] == pytest.approx(seen.quiet_ms)
        assert [row.handover_ms for row in of_load] == pytest.approx(seen.handover_ms)
        assert [row.redirect_ms for row in of_load] == pytest.approx(seen.redirect_ms)
        assert [row.above_ms for row in of_load] == pytest.approx(seen.above_ms)
        assert max(row.blips for row in of_load) == seen.blips_max


def sampled(folder: Path) -> None:
    """Two runs in two formats, as the benchmarks write them; the second is twice as fast."""
    for number, form in enumerate(("parquet", "jsonl.gz")):
        began = f"2026-11-2{number}T00:00:00+00:00"
        run = SampleFolder.of(folder, {**ENVIRONMENT, "began": began, "commit": f"{number}" * 12})
        for layout in ("concentrated", "balanced"):
            taken = Samples()
            for step in range(40 * (number + 1)):
                end = FROM + step * S // (10 * (number + 1))
                taken.add("produce", 0, kept.NONE, end - (step % 10 + 1) * MS, end, 100)
            file = run.next_load(**{**LABELS, "layout": layout, "pair": 0})
            write_samples(file, taken, window_ns=(FROM, FROM + 3 * S), form=form)
        taken = Samples()
        for step in range(100):
            taken.add("produce", 0, FROM + step * MS, FROM + step * MS, FROM + (step + 1) * MS, 5)
        file = run.next_load(**{**LABELS, "benchmark": "handoff", "rate": 1000.0})
        write_samples(file, taken, window_ns=(FROM, FROM + 100 * MS), form=form)
        begin = [FROM + step * MS for step in (10, 20, 60)]
        move = figures.Move(
            source=1,
            target=2,
            quiet=figures.Interval(begin[0], begin[1]),
            handover=figures.Interval(begin[1], begin[2]),
            redirect=figures.Interval(begin[2], begin[2] + 500 * MS),
            phases_ms={"freeze": 2.5},
        )
        labels = {"strategy": "delegate", "producer": "plain", "grace_ms": 300.0}
        write_moves(file, labels, [move_of(move, n) for n in (0, 1)], form=form)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_a_report_of_what_the_benchmarks_write(spark: Any, tmp_path: Path) -> None:
    """Both formats, mixed: one report, in files that people can read."""
    sampled(tmp_path / "in")
    inputs = find([str(tmp_path / "in")])
    report = main.make(spark, inputs)
    shown = ("benchmark", "layout", "counted_from", "qps", "p50_ms", "max_ms")
    assert [tuple(row[name] for name in shown) for row in report["cells"]] == [
        ("handoff", "balanced", "due", None, 1, 1),  # a tenth of a second has no rate
        ("handoff", "balanced", "sent", None, 1, 1),
        ("one", "balanced", "sent", 10, 5, 10),
        ("one", "concentrated", "sent", 10, 5, 10),
        ("handoff", "balanced", "due", None, 1, 1),
        ("handoff", "balanced", "sent", None, 1, 1),
        ("one", "balanced", "sent", 20, 5, 10),
        ("one", "concentrated", "sent", 20, 5, 10),
    ]
    assert [(row["pairs"], row["ratio"]) for row in report["ratio_summaries"]] == [(1, 1.0)] * 2
    shown = ("move", "quiet_ms", "handover_ms", "redirect_ms", "phases_ms")
    moves = [tuple(row[name] for name in shown) for row in report["moves"]]
    assert moves == [(1, 1, 1, 460, {"freeze": 1.0})] * 2
    changes = [row["qps_change"] for row in report["comparisons"] if row["benchmark"] == "one"]
    assert changes == [0, 1, 0, 1]
    written = main.write(report, tmp_path / "out", with_plots=False)
    text = (tmp_path / "out" / "report.md").read_text()
    assert tables.UNLIMITED in text
    assert "| due |" in text
    assert "+100%" in text
    assert json.loads((tmp_path / "out" / "report.json").read_text())["samples"] == 440
    assert {path.name for path in written} >= {"cells.csv", "ratios.csv", "gap-summaries.csv"}
    rows = reading.read(spark, inputs, "samples")
    assert reading.chosen(rows, [], ["0000", "zzz"]).count() == 180
    with pytest.raises(InputError, match="no samples are left"):
        main.make(spark, inputs, runs=["nobody"])


def test_what_is_no_sample_is_refused_in_words(spark: Any, tmp_path: Path) -> None:
    good = a_sample()
    wrong = {
        "start_ns <= end_ns": {**good, "end_ns": FROM - 1, "latency_ns": None},
        "latency_ns is the time from intended_ns, else": {**good, "latency_ns": 3},
        "layout is one of balanced, concentrated": {**good, "layout": "odd"},
        "client has a value": {name: good[name] for name in good if name != "client"},
        "records >= 0": {**good, "records": -1},
    }
    lines = [json.dumps(row) for row in (good, *wrong.values(), {**good, "records": "many"})]

    def given(name: str, *lines: str) -> Any:
        path = tmp_path / f"{name}.samples.jsonl.gz"
        with gzip.open(path, "wt", encoding="utf-8") as text:
            text.write("\n".join(lines))
        return main.make(spark, find([str(path)]))

    with pytest.raises(InputError) as refusal:
        given("several", *lines, '{"run": "half a ro')
    told = str(refusal.value)
    assert all(f"rows break the rule: {rule}" in told for rule in wrong), told
    assert told.count("1 rows break") == len(wrong)
    assert "2 rows break the rule: it is a row of JSON" in told
    assert told.endswith("}")
    with pytest.raises(InputError, match='"half a ro'):
        given("half", '{"run": "half a ro')
    with pytest.raises(InputError, match="load 0 of run r has two values of limits"):
        given("two", json.dumps(good), json.dumps({**good, "limits": "cpu 50%"}))
    path = str(tmp_path / "other.samples.parquet")
    spark.createDataFrame([("r", "x")], "run string, load string").write.parquet(path)
    with pytest.raises(InputError, match="load is string instead of bigint; pair is missing"):
        reading.read(spark, find([path]), "samples")


def test_synthetic_samples_are_samples(spark: Any) -> None:
    rows = synthetic.samples(spark, 4000, 2).selectExpr("*", "cast(null as string) as _corrupt")
    assert rows.where(~transform.is_sound("samples")).count() == 0
    assert rows.select("load").distinct().count() == synthetic.LOADS
