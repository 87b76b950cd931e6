"""Every kind of benchmark on three real nodes, as short as can be: that it measures, not what."""

import json
from pathlib import Path

import attrs
import pytest

from benchmarks import environment, results
from benchmarks.bench import QUICK, Bench, Benchmark
from benchmarks.placements import Placements, options_of, phases, ratios
from benchmarks.progress import PlainView
from benchmarks.results import Figure, Outcome
from benchmarks.runs import Run
from benchmarks.samples import BALANCED, SampleFolder
from benchmarks.suite import BENCHMARKS
from tests.benchmarks.test_samples import rows_of

pytestmark = pytest.mark.cluster

SHORT = attrs.evolve(
    QUICK,
    repetitions=1,
    warm_up_s=0.2,
    window_s=0.5,
    consume_bytes=5_000_000,
    settle_s=0.1,
    idle_s=0.5,
)
SOON_EVEN = ("balancer.hold_down_ms=100", "lease.duration_ms=2000", "lease.renew_every_ms=700")
NAMES = ("produce-1kb-idempotent", "requests", "requests-2000", "consume", "idle")


def a_pair(samples: SampleFolder) -> Benchmark:
    """Masters on one node, then evenly spread: the phases of `python -m benchmarks.placements`."""

    async def run(benchmark: Benchmark, bench: Bench, _topic: str) -> Outcome:
        options = options_of(["--sizes", "1000", "--seconds", "0.3", "--warm-up", "0.1"])
        placements = Placements(options=options, samples=samples, view=PlainView(bench.say))
        for phase in phases(1):
            await placements.phase(phase, bench.target)
        assert not placements.failures
        figure = Figure(name="ratio", values=ratios(placements.rates)[1000])
        return Outcome(name=benchmark.name, title=benchmark.title, figures=(figure,))

    return Benchmark(name="placements", title="a pair", run=run, groups=6)


async def test_every_kind_of_benchmark_measures_a_fresh_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    chosen = [
        attrs.evolve(one, groups=6, partitions=min(one.partitions, 6))
        for one in BENCHMARKS
        if one.name in NAMES
    ]
    lines: list[str] = []
    samples = SampleFolder.of(tmp_path / "samples", environment.describe(tmp_path))
    run = Run(scale=SHORT, view=PlainView(lines.append), overrides=SOON_EVEN, samples=samples)
    await run.on_fresh_clusters([*chosen, a_pair(samples)])
    told = "\n".join(lines)
    names = [*NAMES, "placements"]
    assert [outcome.name for outcome in run.outcomes] == names, told
    for outcome in run.outcomes:
        assert not outcome.failure, told
        # CPU is counted in ticks of 10 ms: so short a run may cost a node none of them.
        rates = [one for one in outcome.figures if not one.name.startswith(("%", "node us"))]
        assert all(figure.value > 0 for figure in rates), told
    assert len(run.configurations) == 1
    assert run.configurations[0]["settings"]["storage"]["durability"] == "fsync"
    assert not list((tmp_path / "data").iterdir()), "a cluster's data goes with it"
    results.write(tmp_path / "result.json", {"commit": "x"}, run.outcomes)
    assert len(json.loads((tmp_path / "result.json").read_text())["benchmarks"]) == len(names)
    kept = [rows_of(path) for path in sorted(samples.folder.iterdir())]
    assert [rows[0]["benchmark"] for rows in kept] == [
        *("produce-1kb-idempotent", "requests", "requests-2000", "consume", "consume"),
        *("placements", "placements"),
    ]
    assert [rows[0]["layout"] for rows in kept[:6]] == [BALANCED] * 5 + ["concentrated"]
    assert all(row["ok"] and row["records"] > 0 for rows in kept for row in rows)
    filled, read = kept[3], kept[4]
    assert {row["side"] for row in read} == {"fetch"}
    stored = sum(row["records"] for row in filled)
    assert 5_000 <= sum(row["records"] for row in read) <= stored
