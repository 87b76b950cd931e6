"""`python -m benchmarks.suites.catchup`: how soon a node with much data serves again, and catches
up.

Three real nodes with fsync, a steady load, and first so much data that most of it has left the log.
Then, each while the load continues:

* `restart`  a node is killed and started: from its start to `ready`;
* `away`     it is down until its peers' logs do not reach back to it, then started: until it is as
             far as the others in every group;
* `emptied`  the same with an empty directory.

Besides, the latency of produce requests at the same rate: before, and while a node catches up.
`python -m benchmarks --only catchup` is the same with less data, as figures like the others.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from benchmarks.load.histogram import Histogram
from benchmarks.load.paced import PacedProducer
from benchmarks.report.environment import describe
from benchmarks.report.results import Bar, Figure, Outcome
from benchmarks.suites.bench import FULL, Bench, Benchmark, BenchmarkFailed, CatchupScale
from cluster import status, workload
from cluster.control import Refused
from cluster.health import HealthError
from cluster.launcher import Launcher, StartError, launch
from cluster.spec import plan
from cluster.status import ClusterView

TOPIC: Final = "catchup"
GROUPS: Final = 6
AWAY: Final = 3
PATIENCE_S: Final = 900.0
LEVEL_SLOTS: Final = 50
"""A node that is no further behind has caught up: the others advance meanwhile."""
PERCENTS: Final = (50, 99, 99.9)
QUEUE_KB_MAX: Final = 64 * 1024
"""In the client: anything it holds beyond this would be data that was not requested."""
MB: Final = 1e6


@attrs.define(eq=False)
class Load:
    """An open loop of messages, each timed from when it was due."""

    producer: PacedProducer
    latencies: list[int]
    stopping: bool = False

    def run(self) -> None:
        self.producer.run(lambda _due: not self.stopping)

    def figures(self) -> dict[str, float]:
        """Of what was acknowledged since the last call."""
        taken = self.latencies[:]
        del self.latencies[: len(taken)]  # the other thread appends meanwhile
        seen = Histogram(taken)
        return {f"p{at:g}_ms": round(seen.percentile(at) / 1e6, 2) for at in PERCENTS}


def groups_of(view: ClusterView, node: int) -> Mapping[int, Mapping[str, Any]]:
    (row,) = [row for row in view.nodes if row.spec.id == node]
    return {} if row.status is None else {one["group"]: one for one in row.status["groups"]}


def storage_of(view: ClusterView, node: int) -> Mapping[str, Any]:
    (row,) = [row for row in view.nodes if row.spec.id == node]
    return {} if row.status is None else row.status["storage"]


def is_level(view: ClusterView) -> bool:
    mine, others = groups_of(view, AWAY), groups_of(view, 1)
    return bool(mine and others) and all(
        group in mine and mine[group]["applied"] + LEVEL_SLOTS > others[group]["applied"]
        for group in others
    )


async def until(cluster: Launcher, holds: Callable[[ClusterView], bool], what: str) -> float:
    """Wait for a condition; returns the seconds it took.

    Raises:
        TimeoutError: if it does not come true.
    """
    began = time.monotonic()
    with trio.move_on_after(PATIENCE_S):
        while True:
            try:
                if holds(await status.collect(cluster.spec, cluster.now())):
                    return time.monotonic() - began
            except HealthError:  # try again: a node is starting
                pass
            await trio.sleep(0.1)
    raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")


async def storage_told(cluster: Launcher) -> Mapping[str, Any]:
    """The disk status of the node that is sometimes down; a busy node may be asked twice."""
    told: dict[str, Any] = {}

    def is_told(view: ClusterView) -> bool:
        told.update(storage_of(view, AWAY))
        return bool(told)

    await until(cluster, is_told, "the node reports its disk")
    return told


async def away(cluster: Launcher, load: Load, *, emptied: bool) -> dict[str, Any]:
    slots: dict[int, int] = {}

    def is_told(view: ClusterView) -> bool:
        slots.update({group: one["applied"] for group, one in groups_of(view, AWAY).items()})
        return bool(slots)

    await until(cluster, is_told, "the node reports its groups")
    await cluster.kill(AWAY)

    def trimmed(view: ClusterView) -> bool:
        others = [groups_of(view, node) for node in (1, 2)]
        return all(
            groups.keys() >= slots.keys()
            and all(groups[group]["log_start"] > slot + 1 for group, slot in slots.items())
            for groups in others
        )

    down_s = await until(cluster, trimmed, "logs are trimmed")
    if emptied:
        shutil.rmtree(cluster.spec.data_dir / f"node-{AWAY}")
    load.figures()
    began = time.monotonic()
    await start_again(cluster)
    await until(cluster, is_level, "the node has caught up")
    seconds = time.monotonic() - began
    storage = await storage_told(cluster)
    received = storage["received_bytes"]
    return {
        "down_s": round(down_s, 1),
        "seconds": round(seconds, 1),
        "transfers": storage["transfers"],
        "received_bytes": received,
        "bytes_per_s": round(received / seconds),
        "produce": load.figures(),
    }


async def start_again(cluster: Launcher) -> None:
    """Start the node and wait until it is ready, however much it has to fetch before.

    Raises:
        StartError: if it ends.
        TimeoutError: if it takes longer than any disk should.
    """
    cluster.start(AWAY)
    with trio.move_on_after(PATIENCE_S):
        while True:
            try:
                await cluster.wait_ready(AWAY)
                return
            except StartError:  # not in the launcher's time
                if cluster.exit_code_of(AWAY) is not None:
                    raise
    raise TimeoutError(f"node {AWAY} is not ready after {PATIENCE_S:.0f} s")


async def restarted(cluster: Launcher, load: Load) -> dict[str, Any]:
    """Kill the node and start it at once: the cost when there is next to nothing to catch up on."""
    await cluster.kill(AWAY)
    load.figures()
    began = time.monotonic()
    await start_again(cluster)
    ready_s = time.monotonic() - began
    await until(cluster, is_level, "the node has caught up")
    seconds = time.monotonic() - began
    return {
        "ready_s": round(ready_s, 2),
        "seconds": round(seconds, 2),
        "produce": load.figures(),
    }


async def story(
    cluster: Launcher, dose: CatchupScale, say: Callable[[str], None]
) -> dict[str, Any]:
    """All measurements, on a cluster that has just been started.

    Raises:
        TimeoutError: if something takes longer than any disk should.
        StartError: if a node does not come back.
    """
    bootstrap = cluster.spec.bootstrap
    await trio.to_thread.run_sync(_create_topic, bootstrap, cluster.spec.groups)
    result: dict[str, Any] = {}
    async with _loading(bootstrap, cluster.spec.groups, dose) as load:
        wanted, rate = dose.bytes // dose.message_bytes, dose.bytes_per_s / dose.message_bytes
        await until(cluster, lambda _view: load.producer.acknowledged >= wanted, "data")
        load.producer.change_rate(rate)
        # What the fast load has left in the client's queue must not count for this one.
        await until(cluster, lambda _view: load.producer.outstanding < max(1, rate), "an answer")
        await trio.sleep(dose.quiet_s)
        load.figures()
        await trio.sleep(dose.quiet_s)
        result["before"] = load.figures()
        result["data"] = dict(await storage_told(cluster))
        say(f"filled with {dose.bytes / MB:.0f} MB; p99 {result['before']['p99_ms']} ms")
        result["restart"] = await restarted(cluster, load)
        say(f"restarted: ready after {result['restart']['ready_s']} s")
        for name, emptied in (("away", False), ("emptied", True)):
            result[name] = one = await away(cluster, load, emptied=emptied)
            say(f"{name}: {one['received_bytes'] / MB:.0f} MB in {one['seconds']} s")
    result["sent"], result["errors"] = load.producer.sent, load.producer.failed
    return result


@asynccontextmanager
async def _loading(bootstrap: str, partitions: int, dose: CatchupScale) -> AsyncIterator[Load]:
    latencies: list[int] = []
    producer = PacedProducer(
        bootstrap,
        TOPIC,
        partitions=partitions,
        message=bytes(range(256)) * (dose.message_bytes // 256),
        per_second=dose.fill_bytes_per_s / dose.message_bytes,
        settings={
            "enable.idempotence": True,
            "linger.ms": 0,
            "queue.buffering.max.kbytes": QUEUE_KB_MAX,
        },
        delivered=lambda due, _sent, now: latencies.append(now - due),
    )
    load = Load(producer, latencies)
    thread = threading.Thread(target=load.run)
    thread.start()
    try:
        yield load
    finally:
        load.stopping = True
        with trio.CancelScope(shield=True):  # bounded by the producer's own timeout
            await trio.to_thread.run_sync(thread.join)


def _create_topic(bootstrap: str, partitions: int) -> None:
    workload.create_topic(bootstrap, TOPIC, partitions=partitions, replication=3)


# --- as one of the benchmarks --------------------------------------------------------------------


async def run(benchmark: Benchmark, bench: Bench, _topic: str) -> Outcome:
    """All measurements, with the amounts of the scale."""
    assert bench.target.launcher is not None, "the nodes are ours"
    dose = bench.scale.catch_up
    try:
        told = await story(bench.target.launcher, dose, bench.say)
    except (TimeoutError, StartError, Refused) as error:
        raise BenchmarkFailed(str(error)) from error
    return Outcome(
        name=benchmark.name,
        title=benchmark.title,
        figures=tuple(_figures(told)),
        settings={"scale": bench.scale.name, **attrs.asdict(dose)},
        repetitions=(told,),
    )


def _figures(told: Mapping[str, Any]) -> list[Figure]:
    def less(name: str, value: float, bar: Bar | None = None) -> Figure:
        return Figure(name=name, values=[value], bar=bar, less_is_better=True)

    figures = [less("restart: ready s", told["restart"]["ready_s"])]
    for name in ("away", "emptied"):
        one = told[name]
        figures.append(less(f"{name}: level s", one["seconds"]))
        figures.append(Figure(name=f"{name}: MB/s", values=[one["bytes_per_s"] / MB]))
    figures.append(less("before: p99 ms", told["before"]["p99_ms"]))
    figures += [
        less(f"{name}: p99 ms", told[name]["produce"]["p99_ms"]) for name in ("away", "emptied")
    ]
    return [*figures, less("errors", told["errors"], Bar(0, at_most=True))]


BENCHMARK: Final = Benchmark(
    name="catchup",
    title="a node restarted, away for longer than the logs, and emptied, under load",
    run=run,
    groups=GROUPS,
    overrides=FULL.catch_up.short_log,
    alone=True,
    needs_nodes=True,
)


# --- the command ---------------------------------------------------------------------------------


async def measure(
    directory: Path, options: argparse.Namespace, dose: CatchupScale
) -> dict[str, Any]:
    spec, _ = plan(directory, node_count=3, groups=options.groups, fixed_ports=False)
    result: dict[str, Any] = {"machine": describe(directory), "dose": attrs.asdict(dose)}
    async with launch(spec, overrides=(*dose.short_log, *options.overrides)) as cluster:
        await cluster.start_all()
        return result | await story(cluster, dose, _say)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    usual = CatchupScale()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.suites.catchup", description=__doc__
    )
    parser.add_argument("--bytes", type=int, default=usual.bytes, help="data before it begins")
    parser.add_argument("--fill-bytes-per-s", type=int, default=usual.fill_bytes_per_s)
    parser.add_argument(
        "--bytes-per-s", type=int, default=usual.bytes_per_s, help="load that is measured"
    )
    parser.add_argument("--message-bytes", type=int, default=usual.message_bytes)
    parser.add_argument("--groups", type=int, default=GROUPS)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of(sys.argv[1:])
    dose = CatchupScale(
        bytes=options.bytes,
        fill_bytes_per_s=options.fill_bytes_per_s,
        bytes_per_s=options.bytes_per_s,
        message_bytes=options.message_bytes,
    )
    with tempfile.TemporaryDirectory(prefix="evenkeel-catchup-") as directory:
        result = trio.run(measure, Path(directory) / "data", options, dose)
    print(json.dumps(result, indent=2, default=str))
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
