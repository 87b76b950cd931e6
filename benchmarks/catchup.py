"""`python -m benchmarks.catchup`: how soon a node with much data serves again, and comes back.

Three real nodes with fsync, a steady load, and first so much data that most of it has left the log.
Then, each with the load going on:

* `restart`  a node is killed and started: from its start to `ready`;
* `away`     it is down until its peers' logs do not reach back to it, then started: until it is as
             far as the others in every group;
* `emptied`  the same with an empty directory.

Beside them the latency of produce requests at the same rate: before, and while a node catches up.
"""

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs
import trio
from confluent_kafka import KafkaError, Message, Producer

from benchmarks.environment import describe
from benchmarks.histogram import Histogram
from cluster import status, workload
from cluster.launcher import Launcher, StartError, launch
from cluster.spec import plan
from cluster.status import ClusterView

MIB: Final = 1 << 20
TOPIC: Final = "catchup"
AWAY: Final = 3
PATIENCE_S: Final = 900.0
QUIET_S: Final = 10.0
"""Measured before anything happens."""
LEVEL_SLOTS: Final = 50
"""A node that is no further behind is as far as the others: they go on meanwhile."""
SHORT_LOG: Final = (
    f"storage.segment_bytes={16 * MIB}",
    f"storage.log_bytes={64 * MIB}",
    f"storage.checkpoint_bytes={32 * MIB}",
)


@attrs.define(eq=False)
class Load:
    """An open loop: `per_second` messages, each timed from when it was due."""

    producer: Producer
    partitions: int
    message: bytes
    per_second: float
    sent: int = 0
    errors: int = 0
    stopping: bool = False
    latencies: list[int] = attrs.Factory(list)

    def run(self) -> None:
        due = time.monotonic_ns()
        while not self.stopping:
            now = time.monotonic_ns()
            if now < due:
                self.producer.poll((due - now) / 1e9)
                continue
            self._send(due)
            due += round(1e9 / self.per_second)
        self.producer.flush(60)

    def _send(self, due: int) -> None:
        def told(error: KafkaError | None, _message: Message) -> None:
            if error is None:
                self.latencies.append(time.monotonic_ns() - due)
            else:
                self.errors += 1

        self.sent += 1
        try:
            self.producer.produce(
                TOPIC, self.message, partition=self.sent % self.partitions, on_delivery=told
            )
        except BufferError:
            self.errors += 1

    def figures(self) -> dict[str, float]:
        """Of what was acknowledged since the last call."""
        taken, self.latencies = self.latencies, []
        seen = Histogram(taken)
        return {f"p{at:g}_ms": round(seen.percentile(at) / 1e6, 2) for at in (50, 99, 99.9)}


def groups_of(view: ClusterView, node: int) -> Mapping[int, Mapping[str, Any]]:
    (row,) = [row for row in view.nodes if row.spec.id == node]
    return {} if row.status is None else {one["group"]: one for one in row.status["groups"]}


def storage_of(view: ClusterView, node: int) -> Mapping[str, Any]:
    (row,) = [row for row in view.nodes if row.spec.id == node]
    return {} if row.status is None else row.status["storage"]


def is_level(view: ClusterView) -> bool:
    mine, others = groups_of(view, AWAY), groups_of(view, 1)
    return bool(mine) and all(
        group in mine and mine[group]["applied"] + LEVEL_SLOTS > others[group]["applied"]
        for group in others
    )


async def until(cluster: Launcher, holds: Callable[[ClusterView], bool], what: str) -> float:
    """Seconds until it holds."""
    began = time.monotonic()
    with trio.move_on_after(PATIENCE_S):
        while not holds(await _view(cluster)):  # noqa: ASYNC110 (nodes send us no events)
            await trio.sleep(0.1)
        return time.monotonic() - began
    raise TimeoutError(f"not within {PATIENCE_S:.0f} s: {what}")


async def away(cluster: Launcher, load: Load, *, emptied: bool) -> dict[str, Any]:
    view = await status.collect(cluster.spec, cluster.now())
    slots = {group: one["applied"] for group, one in groups_of(view, AWAY).items()}
    await cluster.kill(AWAY)

    def trimmed(view: ClusterView) -> bool:
        return all(
            groups_of(view, node)[group]["log_start"] > slot + 1
            for node in (1, 2)
            for group, slot in slots.items()
        )

    down_s = await until(cluster, trimmed, "logs are trimmed")
    if emptied:
        shutil.rmtree(cluster.spec.data_dir / f"node-{AWAY}")
    load.figures()
    began = time.monotonic()
    try:
        await cluster.restart(AWAY)
    except StartError:  # not ready in the launcher's time: it has more to get than that
        if cluster.exit_code_of(AWAY) is not None:
            raise
    await until(cluster, is_level, "the node is level")
    seconds = time.monotonic() - began
    view = await status.collect(cluster.spec, cluster.now())
    received = storage_of(view, AWAY)["received_bytes"]
    return {
        "down_s": round(down_s, 1),
        "seconds": round(seconds, 1),
        "transfers": storage_of(view, AWAY)["transfers"],
        "received_bytes": received,
        "bytes_per_s": round(received / seconds),
        "produce": load.figures(),
    }


async def restarted(cluster: Launcher, load: Load) -> dict[str, Any]:
    """Killed and started at once: what it takes where there is next to nothing to catch up."""
    await cluster.kill(AWAY)
    load.figures()
    began = time.monotonic()
    await cluster.restart(AWAY)
    ready_s = time.monotonic() - began
    await until(cluster, is_level, "the node is level")
    seconds = time.monotonic() - began
    return {
        "ready_s": round(ready_s, 2),
        "seconds": round(seconds, 2),
        "produce": load.figures(),
    }


async def measure(directory: Path, options: argparse.Namespace) -> dict[str, Any]:
    spec, _ = plan(directory, node_count=3, groups=options.groups, fixed_ports=False)
    result: dict[str, Any] = {"machine": describe(directory), "options": vars(options)}
    async with launch(spec, overrides=(*SHORT_LOG, *options.overrides)) as cluster:
        await cluster.start_all()
        await trio.to_thread.run_sync(_create_topic, spec.bootstrap, options.groups)
        message = bytes(range(256)) * (options.message_bytes // 256)
        producer = Producer(
            {"bootstrap.servers": spec.bootstrap, "enable.idempotence": True, "linger.ms": 0}
        )
        load = Load(producer, options.groups, message, options.fill_bytes_per_s / len(message))
        thread = threading.Thread(target=load.run)
        thread.start()
        try:
            wanted = options.bytes // len(message)
            await until(cluster, lambda _view: load.sent >= wanted, "data")
            load.per_second = options.bytes_per_s / len(message)
            await trio.sleep(QUIET_S)
            load.figures()
            await trio.sleep(QUIET_S)
            result["before"] = load.figures()
            result["data"] = dict(storage_of(await _view(cluster), AWAY))
            result["restart"] = await restarted(cluster, load)
            result["away"] = await away(cluster, load, emptied=False)
            result["emptied"] = await away(cluster, load, emptied=True)
        finally:
            load.stopping = True
            await trio.to_thread.run_sync(thread.join)
        result["sent"], result["errors"] = load.sent, load.errors
    return result


async def _view(cluster: Launcher) -> ClusterView:
    return await status.collect(cluster.spec, cluster.now())


def _create_topic(bootstrap: str, partitions: int) -> None:
    workload.create_topic(bootstrap, TOPIC, partitions=partitions, replication=3)


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.catchup", description=__doc__)
    parser.add_argument("--bytes", type=int, default=4096 * MIB, help="data before it begins")
    parser.add_argument("--fill-bytes-per-s", type=int, default=40 * MIB)
    parser.add_argument("--bytes-per-s", type=int, default=4 * MIB, help="load that is measured")
    parser.add_argument("--message-bytes", type=int, default=16384)
    parser.add_argument("--groups", type=int, default=6)
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    return parser.parse_args(arguments)


def main() -> int:
    options = options_of(sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="evenkeel-catchup-") as directory:
        result = trio.run(measure, Path(directory) / "data", options)
    print(json.dumps(result, indent=2, default=str))
    return 1 if result["errors"] else 0


if __name__ == "__main__":
    sys.exit(main())
