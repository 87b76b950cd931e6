"""A cluster of the previous release is upgraded under load, node by node, goes back, and is
upgraded again: no error reaches the producer or a consumer group, and nothing is lost. Then the
cluster version rises, and the previous release is refused."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from confluent_kafka import Consumer

from cluster import health
from cluster.launcher import Launcher, StartError, node_command
from cluster.spec import ClusterSpec
from cluster.workload import CLIENT_LOG
from history.record import Outcome
from tests.cluster.scenery import (
    FULL,
    SOON_BACK,
    STEP_S,
    TOPIC,
    acknowledged,
    in_thread,
    judge,
    load,
    three_nodes,
)
from tests.doses import ONLY_IN_FULL
from tests.upgrade.previous_release import PreviousRelease, build
from wire.software import CLUSTER_VERSION_NEWEST

pytestmark = pytest.mark.cluster

BY_HAND = "node.raise_cluster_version=by-hand"
RATE = 300
OLD, NEW = "old", "new"
WAY = [(node, which) for which in (NEW, OLD, NEW) for node in (1, 2, 3)]
"""Forward, back and forward: which node is started with which program next."""


@attrs.define
class Programs:
    """Which program each node runs when it is started the next time."""

    previous: PreviousRelease
    of: dict[int, str] = attrs.Factory(lambda: dict.fromkeys((1, 2, 3), OLD))

    def command(self, spec: ClusterSpec, number: int, overrides: Sequence[str]) -> list[str]:
        if self.of[number] == OLD:
            return self.previous.node(spec, number, overrides)
        return node_command(spec, number, (*overrides, BY_HAND))


class Reader:
    """A member of a consumer group, which reads and commits all the time."""

    def __init__(self, bootstrap: str) -> None:
        self.values: list[str] = []
        self.errors: list[str] = []
        self._stop = threading.Event()
        self._settings = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            **SOON_BACK,
        }

    def run(self) -> None:
        consumer = Consumer(self._settings, logger=CLIENT_LOG)
        consumer.subscribe([TOPIC])
        while not self._stop.is_set():
            for message in consumer.consume(500, timeout=0.2):
                error, value = message.error(), message.value()
                if error is not None:
                    self.errors.append(str(error))
                elif value is not None:
                    self.values.append(str(value, "utf-8"))
        consumer.close()

    def stop(self) -> None:
        self._stop.set()

    async def has_read(self, values: set[str]) -> None:
        with trio.move_on_after(STEP_S):
            while not values <= set(self.values):  # noqa: ASYNC110 (its thread sets no event)
                await trio.sleep(0.2)
        missing = values - set(self.values)
        assert not missing, f"{len(missing)} of {len(values)} not read: {sorted(missing)[:5]}"


@asynccontextmanager
async def reading(cluster: Launcher) -> AsyncIterator[Reader]:
    reader = Reader(cluster.spec.bootstrap)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, reader.run)
        try:
            yield reader
        finally:
            reader.stop()


async def asked(cluster: Launcher, number: int, path: str) -> Any:
    return await health.call_async(cluster.spec.node(number).http, "GET", path)


async def set_version(cluster: Launcher, number: int, version: int) -> tuple[int, bytes]:
    address, body = cluster.spec.node(number).http, {"set": version}
    path = "/admin/cluster-version"
    return await in_thread(lambda: health.request(address, "POST", path, body, timeout_s=20.0))


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_forward_back_and_forward_under_load(tmp_path: Path) -> None:
    programs = Programs(await in_thread(lambda: build(tmp_path / "previous")))
    async with three_nodes(tmp_path, command=programs.command) as cluster:
        assert "cluster_version" not in await asked(cluster, 1, "/status"), "the old program"
        async with reading(cluster) as reader, load(cluster, "steady", rate=RATE) as producer:
            for node, which in WAY:
                programs.of[node] = which
                await cluster.restart(node)
                await acknowledged(producer, 10)
                await look_at_mixture(cluster, programs)
            status, said = await set_version(cluster, 1, CLUSTER_VERSION_NEWEST)
            assert status == 200, said
            await acknowledged(producer, 50)
            sent = [one for one in producer.history if one.outcome is Outcome.OK]
            await reader.has_read({str(one.value) for one in sent})
        assert reader.errors == []
        assert producer.errors == []
        report = await judge(cluster, producer)
        assert report.clean, report.anomalies
        for node in (1, 2, 3):
            assert (await asked(cluster, node, "/status"))[
                "cluster_version"
            ] == CLUSTER_VERSION_NEWEST
        await the_previous_release_is_refused(cluster, programs)


async def look_at_mixture(cluster: Launcher, programs: Programs) -> None:
    """While a node runs the old program, the new ones name it, and refuse to raise the version."""
    new = [node for node, which in programs.of.items() if which == NEW]
    old = [node for node, which in programs.of.items() if which == OLD]
    if not new or not old:
        return
    view = await asked(cluster, new[0], "/cluster/version")
    assert view["version"] == 1
    assert all(f"node {node} runs" in view["waits_for"] for node in old), view["waits_for"]
    status, said = await set_version(cluster, new[0], 2)
    assert status == 409
    assert f"node {old[0]} runs" in said.decode()


async def the_previous_release_is_refused(cluster: Launcher, programs: Programs) -> None:
    programs.of[3] = OLD
    with pytest.raises(StartError) as refused:
        await cluster.restart(3)
    assert "format 4" in str(refused.value)
    assert "use the version of the program that wrote it" in str(refused.value)
    programs.of[3] = NEW
    await cluster.restart(3)
