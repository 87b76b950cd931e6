"""Every kind of benchmark on real nodes, as short as possible: it only shows that measuring
works."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from benchmarks.load.frames import TargetError
from benchmarks.load.jobs import PacedJob
from benchmarks.load.samples import BALANCED, SampleFolder
from benchmarks.placement.options import options_of
from benchmarks.placement.placements import Placements, phases
from benchmarks.placement.ratios import Case, ratios
from benchmarks.report import environment, report, results
from benchmarks.report.progress import PlainView
from benchmarks.report.results import Figure, Outcome, latency_figures
from benchmarks.suites import saturation
from benchmarks.suites.bench import MIB, QUICK, Bench, Benchmark, CatchupScale
from benchmarks.suites.runs import Run
from benchmarks.suites.suite import BENCHMARKS
from benchmarks.target import Target, fresh_cluster, given_brokers
from cluster import programs
from cluster.launcher import Launcher
from cluster.workload import WorkloadError, stored
from tests.benchmarks.load.test_samples import rows_of
from tests.benchmarks.machines.machines_here import skip_without_machines
from tests.cluster.scenery import FULL
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

SHORT = attrs.evolve(
    QUICK,
    repetitions=1,
    warm_up_s=0.2,
    window_s=0.5,
    consume_bytes=5_000_000,
    settle_s=0.1,
    idle_s=0.5,
    probe_s=0.3,
    size_repetitions=1,
    size_window_s=0.3,
    size_idle_s=0.3,
    kills=1,
    catch_up=CatchupScale(
        bytes=8 * MIB,
        fill_bytes_per_s=16 * MIB,
        bytes_per_s=3 * MIB,
        log_bytes=4 * MIB,
        quiet_s=0.2,
    ),
)
SHORT_LOG = (
    *SHORT.catch_up.short_log,
    f"storage.low_water_bytes={8 * MIB}",
    f"storage.reserve_bytes={4 * MIB}",
    f"limits.frame_bytes_max={2 * MIB}",
)
SOON_EVEN = ("balancer.hold_down_ms=100", "lease.duration_ms=2000", "lease.renew_every_ms=700")
LOADS = (
    *("produce-1kb-idempotent", "requests"),
    *(("requests-2000", "client-1000") if FULL else ()),
    *("latency", "consume"),
)
NAMES = (*LOADS, "groups-12", "failover")
STALL_S = 0.6


def a_pair(samples: SampleFolder) -> Benchmark:
    """Masters on one node, then evenly spread: the phases of
    `python -m benchmarks.placement.placements`."""

    async def run(benchmark: Benchmark, bench: Bench, _topic: str) -> Outcome:
        options = options_of(
            ["--sizes", "1000", "--readers", "0", "--seconds", "0.3", "--warm-up", "0.1"]
        )
        placements = Placements(options=options, samples=samples, view=PlainView(bench.say))
        for phase in phases(1):
            await placements.phase(phase, bench.target)
        assert not placements.failures
        figure = Figure(name="ratio", values=ratios(placements.rates)[Case(3, 6, 0, 1000)])
        return Outcome(name=benchmark.name, title=benchmark.title, figures=(figure,))

    return Benchmark(name="placements", title="a pair", run=run, groups=6)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_every_kind_of_benchmark_measures_a_fresh_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(saturation, "STEPS_MAX", 2)
    monkeypatch.setattr(saturation, "SHARES", (10, 80))
    monkeypatch.setattr(saturation, "KEPT", 0.2)  # of what a busy machine did a moment ago
    chosen = [
        attrs.evolve(one, groups=6, partitions=min(one.partitions, 6), alone=False)
        for one in BENCHMARKS
        if one.name in NAMES
    ]
    lines: list[str] = []
    samples = SampleFolder.of(tmp_path / "samples", environment.describe(tmp_path))
    run = Run(scale=SHORT, view=PlainView(lines.append), overrides=SOON_EVEN, samples=samples)
    await run.on_fresh_clusters([*chosen[:-1], a_pair(samples), a_stall(), chosen[-1]])
    told = "\n".join(lines)
    names = [*NAMES[:-1], "placements", "stalled", NAMES[-1]]
    assert [outcome.name for outcome in run.outcomes] == names, told
    for outcome in run.outcomes:
        assert not outcome.failure, told
        # CPU is counted in ticks of 10 ms: such a short run may cost a node none of them.
        free = ("%", "node us", "errors")
        rates = [one for one in outcome.figures if not one.name.startswith(free)]
        assert all(figure.value > 0 for figure in rates), told
    assert len(run.configurations) == 1
    assert run.configurations[0]["settings"]["storage"]["durability"] == "fsync"
    assert not list((tmp_path / "data").iterdir()), "a cluster's data goes with it"
    results.write(tmp_path / "result.json", {"commit": "x"}, run.outcomes)
    assert len(json.loads((tmp_path / "result.json").read_text())["benchmarks"]) == len(names)
    kept = [rows_of(path) for path in sorted(samples.folder.iterdir())]
    loads = [rows[0]["benchmark"] for rows in kept]
    assert list(dict.fromkeys(loads)) == [*LOADS, "groups-12", "placements", "stalled"]
    layouts = {rows[0]["layout"] for rows in kept if rows[0]["benchmark"] != "placements"}
    assert layouts == {BALANCED}
    assert all(row["ok"] and row["records"] > 0 for rows in kept for row in rows)
    filled, read = (rows for rows in kept if rows[0]["benchmark"] == "consume")
    assert {row["side"] for row in read} == {"fetch"}
    stored = sum(row["records"] for row in filled)
    assert 5_000 <= sum(row["records"] for row in read) <= stored


def a_stall() -> Benchmark:
    """All nodes stand still in the middle of an open loop through a real client."""

    async def run(benchmark: Benchmark, bench: Bench, topic: str) -> Outcome:
        target, rate, window_s = bench.target, 200.0, 2.0
        job = PacedJob(
            bootstrap=target.bootstrap,
            topic=topic,
            partitions=benchmark.partitions,
            message_bytes=100,
            idempotent=True,
            rate=rate,
            warm_up_s=0.5,
            window_s=window_s,
        )

        async def stall(cluster: Launcher) -> None:
            await _some_stored(target, topic, benchmark.partitions, int(rate * 0.8))
            for node in (1, 2, 3):
                await cluster.pause(node)
            await trio.sleep(STALL_S)
            for node in (1, 2, 3):
                await cluster.resume(node)

        assert target.launcher is not None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stall, target.launcher)
            measured = await bench.run(job)
        latencies = measured.latency_ns
        assert latencies.count == rate * window_s, "what was due in the window counts, all of it"
        assert latencies.max > 0.9 * STALL_S * 1e9
        assert latencies.percentile(90) > 0.3 * STALL_S * 1e9, "not one slow message: all of them"
        return bench.outcome(benchmark, [measured], latency_figures([measured]), {})

    return Benchmark(name="stalled", title="a stall", run=run, groups=6, partitions=6)


async def _some_stored(target: Target, topic: str, partitions: int, wanted: int) -> None:
    with trio.fail_after(20):
        while True:
            try:
                found = await trio.to_thread.run_sync(stored, target.bootstrap, topic, partitions)
            except WorkloadError:
                found = 0  # a node that has not heard of the topic yet
            if found >= wanted:
                return
            await trio.sleep(0.05)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_catching_up_is_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (catch_up,) = [one for one in BENCHMARKS if one.name == "catchup"]
    lines: list[str] = []
    run = Run(scale=SHORT, view=PlainView(lines.append), overrides=SOON_EVEN)
    await run.on_fresh_clusters([attrs.evolve(catch_up, overrides=SHORT_LOG)])
    told = "\n".join(lines)
    (caught_up,) = run.outcomes
    assert not caught_up.failure, told
    assert caught_up.repetitions[0]["away"]["transfers"] > 0, "state came from a peer"
    assert caught_up.passed, told


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_peer_is_measured_beside_ours_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The peer is one more cluster; the benchmark gets only its address."""
    monkeypatch.chdir(tmp_path)
    by_name = {one.name: one for one in BENCHMARKS}
    names = ("requests", "groups-48")
    chosen = [attrs.evolve(by_name[name], groups=3, nodes=1) for name in names]
    lines: list[str] = []
    other = fresh_cluster(groups=3, nodes=1, overrides=SOON_EVEN, say=lines.append)
    async with other as second:
        peer = given_brokers(second.bootstrap, name="second")
        assert peer.replication == 1, "as many as there are brokers"
        with pytest.raises(TargetError, match="replication 2, but there are 1 brokers"):
            given_brokers(second.bootstrap, 2, name="second")
        scale = attrs.evolve(SHORT, repetitions=2, window_s=0.3)
        run = Run(scale=scale, view=PlainView(lines.append), overrides=SOON_EVEN, peers=[peer])
        await run.on_fresh_clusters(chosen)
    told = "\n".join(lines)
    outcomes = [(one.name, one.system, one.failure) for one in run.outcomes]
    measured = [
        ("requests", "evenkeel", ""),
        ("requests", "second", ""),
        ("groups-48", "evenkeel", ""),
    ]
    assert outcomes == measured, told
    ours, theirs, _ = run.outcomes
    assert all(figure.value > 0 for one in (ours, theirs) for figure in one.figures), told
    assert not any(figure.bar for figure in theirs.figures), "the bars are ours"
    systems = [re.findall("(evenkeel|second): ", line) for line in lines if "requests/s" in line]
    assert systems == [["evenkeel"], ["second"], ["second"], ["evenkeel"]], told
    assert "second" in report.beside([ours], [theirs])


def loads_of_placements(folder: Path, *words: str) -> tuple[Any, Any, str]:
    """The command as a user types it: concentrated, balanced, and the output."""
    skip_without_machines()
    command = [sys.executable, "-P", "-m", "benchmarks.placement.placements", "--samples", "kept"]
    command += ["--pairs", "1", "--sizes", "10000", "--seconds", "2", "--groups", "3", *words]
    for setting in SOON_EVEN:
        command += ["--set", setting]
    environ = programs.environment(os.environ)
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (folder / "kept").glob("*.ratios.json")
    concentrated, balanced = json.loads(path.read_text())["loads"]
    assert (concentrated["layout"], balanced["layout"]) == ("concentrated", "balanced")
    return concentrated, balanced, done.stdout


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_E22_balanced_masters_take_more_than_masters_on_one_node(tmp_path: Path) -> None:
    """The links are so slow that they alone decide, whatever else this machine does. Three nodes
    without readers can have twice the rate (docs/benchmarks.md); the test requires half of that
    gain."""
    words = ("--readers", "0", "--warm-up", "1", "--limit", "network=4mbit")
    concentrated, balanced, told = loads_of_placements(tmp_path, *words)
    assert balanced["per_s"] > 1.5 * concentrated["per_s"], told


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
def test_masters_on_one_machine_send_what_balanced_ones_share(tmp_path: Path) -> None:
    """The command as a user types it, with a link of its own for each node: which link carries
    what. The speed depends on what else this machine does, so it is not checked."""
    words = ("--readers", "1", "--limit", "network=20mbit")
    concentrated, balanced, told = loads_of_placements(tmp_path, *words)
    for load in (concentrated, balanced):
        usage = load["usage"]
        assert load["per_s"] > 0
        assert load["read_per_s"][0] > 0
        full = 20e6 / 8 * usage["seconds"] + 128 * 1024
        assert max(*usage["sent_bytes"], *usage["received_bytes"]) <= 1.02 * full
    master, *others = concentrated["usage"]["sent_bytes"]
    assert master > 3 * max(others), "it sends every message to both others and the reader"
    shared = balanced["usage"]["sent_bytes"]
    assert max(shared) < 2 * min(shared)
    assert "readers" in told
    assert "link" in told
