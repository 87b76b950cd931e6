"""What every node has on its own disk: each copy is read on its own and compared with all others.

Masters serve the readers of a cluster. A message that only one replica lacks goes unnoticed until
that replica becomes master: the anomaly `lost-on-node`. So in the end all nodes are killed. The
node's own code, without its sockets, opens a copy of each directory and reads every partition from
it.
"""

import shutil
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import trio

from broker.reads.reader import Reader
from cluster.launcher import Launcher
from cluster.recorder import Recorder, read_history
from cluster.status import ClusterView
from cluster.workload import PADDING
from history.checker import check
from history.record import Key, Op, Outcome, Record
from node import Node
from runtime.config.config import load
from runtime.machine import LinuxMachine
from tests.cluster.scenery import PARTITIONS, TOPIC, until
from tests.runtime import doubles
from wire.records.batch import iterate_records, split

ENTRIES_AFTER = 2
"""Later entries tell that an entry is chosen: renewals bring some."""


async def judge_own_copies(cluster: Launcher, scratch: Path) -> None:
    """Kill all nodes, read everything on each disk, and check the history against it."""
    view = await until(cluster, lambda view: len(view.groups) > 0, "the nodes answer")
    behind = {row.group: row.applied for row in view.groups}
    await until(cluster, lambda view: all_beyond(view, behind), "all have renewed")
    for node in cluster.spec.nodes:
        await cluster.kill(node.id)
    data = cluster.spec.data_dir
    with Recorder(data / "history-copies.jsonl") as recorder:
        for node in cluster.spec.nodes:
            copy = scratch / f"copy-{node.id}"
            shutil.copytree(data / f"node-{node.id}", copy)
            config = cluster.spec.config_path(node.id)
            recorder.ended(await trio.to_thread.run_sync(own_copy, config, copy, node.id))
            shutil.rmtree(copy)
    report = check(chain.from_iterable(map(read_history, sorted(data.glob("history-*.jsonl")))))
    assert report.clean, report.summary()


def all_beyond(view: ClusterView, behind: dict[int, int]) -> bool:
    """Every node has applied a few more slots in every group."""
    return all(
        row.status is not None
        and all(
            group["applied"] >= behind[group["group"]] + ENTRIES_AFTER
            for group in row.status["groups"]
        )
        for row in view.nodes
    )


def own_copy(config: Path, directory: Path, node_id: int) -> list[Record]:
    """All messages of the topic in a node's directory."""
    overrides = [f"node.data_dir={directory}"]
    node = Node(load(config, {}, overrides), doubles.Recorder().journal, LinuxMachine())
    try:
        return list(drained(node, f"node-{node_id}"))
    finally:
        node.close()
        node.plane.close()
        node.wakeup.close()


def drained(node: Node, name: str) -> Iterator[Record]:
    reader = Reader(node.tail, node.wal, node.statistics)
    places = node.registry.topics[TOPIC].partitions
    assert len(places) == PARTITIONS
    for number, place in enumerate(places):
        key = Key(TOPIC, number)
        partition = node.machines[place.group].partition(place.uid)
        yield Record(Op.ASSIGN, name, key, None, 0)
        for batch_number in range(partition.index.first, partition.index.stop):
            base = partition.index.base(batch_number)
            read, _ = reader.batch(partition, batch_number)
            (batch,) = split(read())
            for record in iterate_records(batch):
                assert record.value is not None
                value = record.value.decode().rstrip(PADDING)
                offset = base + record.offset - batch.header.base_offset
                yield Record(Op.POLL, name, key, value, offset)
        now = time.monotonic_ns()
        end = partition.next_offset
        yield Record(Op.DRAINED, name, key, name, end, Outcome.OK, now, now)
