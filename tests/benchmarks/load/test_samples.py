"""Raw samples: what the loads record agrees with the sums that they report."""

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from benchmarks.handoff import raw
from benchmarks.handoff.clients import Follower, Probe
from benchmarks.handoff.figures import Interval, Move, Run
from benchmarks.load import generator, samples
from benchmarks.load.generator import LoadFailed
from benchmarks.load.jobs import job_from_json, job_to_json
from benchmarks.load.samples import SampleFile, SampleFolder, Samples, write_moves, write_samples
from benchmarks.suites.bench import QUICK, Bench
from benchmarks.target import given_brokers
from pipeline.report import schema
from tests.benchmarks.load.brokers import stall_once, tiny_broker
from tests.benchmarks.load.test_generator import job_for
from wire.error_codes import ErrorCode

ENVIRONMENT = {
    "began": "2026-11-22T10:20:30+00:00",
    "commit": "0123456789abcdef",
    "uncommitted_changes": True,
    "machine": {"cpu": "a cpu", "cores": 2, "kernel": "Linux 6"},
}
LABELS: dict[str, Any] = {
    "benchmark": "one",
    "layout": samples.BALANCED,
    "nodes": 3,
    "groups": 12,
    "client": "one record per request",
    "message_bytes": 100,
    "rate": 0.0,
    "connections": 4,
    "in_flight": 1,
}


@pytest.fixture(params=["jsonl.gz", "parquet"])
def form(request: pytest.FixtureRequest) -> str:
    if request.param == "parquet":
        pytest.importorskip("pyarrow")
    return str(request.param)


def rows_of(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".parquet":
        from pyarrow import parquet

        rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
        return rows
    with gzip.open(path, "rt", encoding="utf-8") as text:
        return [json.loads(line) for line in text]


def a_file(folder: Path) -> SampleFile:
    return SampleFolder.of(folder, ENVIRONMENT).next_load(**LABELS)


def only_rows(folder: Path) -> list[dict[str, Any]]:
    (path,) = folder.iterdir()
    return rows_of(path)


def test_every_row_says_all_about_itself(tmp_path: Path, form: str) -> None:
    taken = Samples()
    taken.add(samples.PRODUCE, 3, 100, 120, 150, 1000)
    taken.add(samples.PRODUCE, 3, samples.NONE, 130, 170, 1000)
    taken.add_batch(samples.FETCH, 150, 180, 7, 700)
    taken.add_failure(samples.PRODUCE, 190, 2, "refused")
    file = a_file(tmp_path)
    path = write_samples(file, taken, window_ns=(90, 200), others_share=0.25, form=form)
    rows = rows_of(path)
    assert path == tmp_path / f"{file.labels.run}-000.samples.{form}"
    assert all(set(row) == set(samples.SAMPLE_COLUMNS) for row in rows)
    shown = ("intended_ns", "start_ns", "end_ns", "latency_ns", "records", "bytes", "ok", "error")
    assert [tuple(row[name] for name in shown) for row in rows] == [
        (100, 120, 150, 50, 1, 1000, True, None),
        (None, 130, 170, 40, 1, 1000, True, None),
        (None, 150, 180, None, 7, 700, True, None),
        (None, 190, 190, None, 2, 0, False, "refused"),
    ]
    assert {(row["commit"], row["machine"], row["window_from_ns"]) for row in rows} == {
        ("0123456789ab+", "a cpu, 2 cores, Linux 6", 90)
    }
    assert [row["connection"] for row in rows] == [3, 3, None, None]


def test_what_a_load_in_which_nothing_came_leaves_is_a_file_without_rows(
    tmp_path: Path, form: str
) -> None:
    path = write_samples(a_file(tmp_path), Samples(), window_ns=(0, 1), form=form)
    assert rows_of(path) == []


def test_the_report_reads_the_columns_that_are_written() -> None:
    """The job must not import the benchmarks, nor they the job: this test keeps them in step."""
    for ours, theirs in (
        (samples.SAMPLE_COLUMNS, schema.SAMPLES),
        (samples.MOVE_COLUMNS, schema.MOVES),
    ):
        assert list(ours.items()) == [(name, column.type) for name, column in theirs.items()]
    assert set(schema.LOAD) > set(samples.LOAD_COLUMNS)
    layouts = (samples.BALANCED, samples.CONCENTRATED, samples.MOVING, samples.UNKNOWN)
    assert layouts == schema.LAYOUTS
    assert (samples.PRODUCE, samples.FETCH) == schema.SIDES
    assert samples.NO_LIMITS == schema.NO_LIMITS


def test_loads_of_a_run_are_numbered_and_survive_json(tmp_path: Path) -> None:
    folder = SampleFolder.of(tmp_path / "new", ENVIRONMENT)
    first, second = folder.next_load(**LABELS), folder.next_load(**LABELS, pair=4)
    assert (first.labels.load, second.labels.load, second.labels.pair) == (0, 1, 4)
    assert first.labels.run == second.labels.run == folder.run
    with tiny_broker() as broker:
        job = job_for(broker, samples=second)
    assert job_from_json(job_to_json(job)) == job


def test_a_closed_loop_writes_down_what_it_counts(tmp_path: Path) -> None:
    with tiny_broker() as broker:
        measured = generator.run(job_for(broker, window_s=0.2, samples=a_file(tmp_path)))
    rows = only_rows(tmp_path)
    within = [row for row in rows if row["window_from_ns"] <= row["end_ns"] < row["window_to_ns"]]
    assert len(within) == measured.count
    assert sum(row["bytes"] for row in within) == measured.bytes
    assert max(row["latency_ns"] for row in within) == measured.latency_ns.max
    assert len(rows) > len(within), "the warm-up is there, too"
    assert {row["intended_ns"] for row in rows} == {None}
    assert set(Counter(row["connection"] for row in rows)) == {0, 1, 2, 3}
    assert rows[0]["window_to_ns"] - rows[0]["window_from_ns"] == 200_000_000


def test_an_open_loop_writes_down_when_requests_were_due(tmp_path: Path) -> None:
    """During a stall of 0.2 s, due requests are sent late or answered late."""
    with tiny_broker(judge=stall_once(50, 0.2)) as broker:
        job = job_for(broker, rate=500.0, window_s=0.4, samples=a_file(tmp_path))
        measured = generator.run(job)
    rows = only_rows(tmp_path)
    due = [row for row in rows if row["window_from_ns"] <= row["intended_ns"] < row["window_to_ns"]]
    assert len(due) == measured.latency_ns.count
    assert max(row["latency_ns"] for row in due) == measured.latency_ns.max > 150_000_000
    assert all(row["latency_ns"] == row["end_ns"] - row["intended_ns"] for row in rows)
    assert all(row["intended_ns"] <= row["start_ns"] <= row["end_ns"] for row in rows)


def test_a_load_that_fails_says_so_in_its_last_row(tmp_path: Path) -> None:
    def judge(number: int) -> int:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if number == 20 else ErrorCode.NONE

    with tiny_broker(judge=judge) as broker, pytest.raises(LoadFailed):
        generator.run(job_for(broker, samples=a_file(tmp_path)))
    *rows, last = only_rows(tmp_path)
    assert [row["ok"] for row in rows] == [True] * len(rows)
    assert (last["ok"], last["latency_ns"]) == (False, None)
    assert "NOT_LEADER_OR_FOLLOWER" in last["error"]


async def test_a_benchmark_labels_the_loads_that_it_starts(tmp_path: Path) -> None:
    with tiny_broker() as broker:
        bench = Bench(
            given_brokers(f"127.0.0.1:{broker.port}", 1),
            QUICK,
            lambda _line: None,
            benchmark="mine",
            samples=SampleFolder.of(tmp_path, ENVIRONMENT),
            pair=2,
        )
        measured = await bench.run(job_for(broker, window_s=0.2))
    rows = only_rows(tmp_path)
    assert len(rows) >= measured.count
    names = ("benchmark", "layout", "pair", "nodes", "client", "connections", "in_flight")
    assert {tuple(row[name] for name in names) for row in rows} == {
        ("mine", "unknown", 2, None, "one record per request", 4, 1)
    }
    assert rows[0]["others_share"] >= 0


def test_a_handover_leaves_messages_and_moves(tmp_path: Path, form: str) -> None:
    probe = Probe("nobody:1", "t", 1000, idempotent=True)
    follower = Follower("nobody:1", "t")
    probe.due_ns, probe.sent_ns = [10, 20, 30, 40], [11, 21, 31, 41]
    probe.acked, probe.failed = [(15, 0), (28, 1)], [(35, 2, "refused")]
    follower.got = [(18, 0), (29, 1), (30, 1)]
    rows = raw.samples_of(probe, follower).columns()
    shown = zip(rows["side"], rows["end_ns"], rows["latency_ns"], rows["error"], strict=True)
    assert list(shown) == [
        ("produce", 15, 5, None),
        ("produce", 28, 8, None),
        ("fetch", 18, 8, None),
        ("fetch", 29, 9, None),
        ("fetch", 30, 10, None),  # delivered twice
        ("produce", 35, None, "refused"),
        ("produce", 35, None, "no answer"),
    ]
    move = Move(
        source=1,
        target=2,
        quiet=Interval(5, 9),
        handover=Interval(10, 20),
        redirect=Interval(20, 40),
        phases_ms={"freeze": 1.5},
    )
    run = Run(strategy="delegate", rate=1000, moves=1, grace_ms=600)
    folder = SampleFolder.of(tmp_path, ENVIRONMENT)
    raw.keep(folder, run, probe, follower, first=[move], done=[move], nodes=3, groups=3)
    kept = {path.name.split(".")[1]: rows_of(path) for path in tmp_path.iterdir()}
    assert len(kept["samples"]) == 7
    assert {row["window_from_ns"] for row in kept["samples"]} == {5}
    moves = kept["moves"]
    assert [(row["move"], row["first_contact"]) for row in moves] == [(0, True), (1, False)]
    assert (moves[1]["handover_from_ns"], moves[1]["redirect_to_ns"]) == (10, 40)
    again = write_moves(a_file(tmp_path / form), *_parts(moves), form=form)
    assert [dict(row["phases_ms"]) for row in rows_of(again)] == [{"freeze": 1.5}] * 2


def _parts(moves: list[dict[str, Any]]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    same = {name: moves[0][name] for name in ("strategy", "producer", "grace_ms")}
    return same, [{**row, "phases_ms": dict(row["phases_ms"])} for row in moves]


def test_labels_are_the_columns_of_a_load() -> None:
    assert [field.name for field in attrs.fields(samples.Labels)] == list(samples.LOAD_COLUMNS)
