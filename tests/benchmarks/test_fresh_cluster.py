"""Every kind of benchmark on three real nodes, as short as can be: that it measures, not what."""

import json
from pathlib import Path

import attrs
import pytest

from benchmarks import results
from benchmarks.bench import QUICK
from benchmarks.progress import PlainView
from benchmarks.runs import Run
from benchmarks.suite import BENCHMARKS

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
    run = Run(scale=SHORT, view=PlainView(lines.append), overrides=SOON_EVEN)
    await run.on_fresh_clusters(chosen)
    told = "\n".join(lines)
    assert [outcome.name for outcome in run.outcomes] == list(NAMES), told
    for outcome in run.outcomes:
        assert not outcome.failure, told
        # CPU is counted in ticks of 10 ms: so short a run may cost a node none of them.
        rates = [one for one in outcome.figures if not one.name.startswith(("%", "node us"))]
        assert all(figure.value > 0 for figure in rates), told
    assert len(run.configurations) == 1
    assert run.configurations[0]["settings"]["storage"]["durability"] == "fsync"
    assert not list((tmp_path / "data").iterdir()), "a cluster's data goes with it"
    results.write(tmp_path / "result.json", {"commit": "x"}, run.outcomes)
    assert len(json.loads((tmp_path / "result.json").read_text())["benchmarks"]) == len(NAMES)
