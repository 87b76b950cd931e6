"""A disk that hangs, or is slow, below one of three nodes: it costs that node its masters, and
nobody his answers (rows S7 of docs/exam.md)."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic_ns

import attrs
import pytest
import trio

from cluster import health
from cluster.launcher import Launcher
from cluster.recorder import Recorder
from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    three_nodes,
    until,
)
from tests.exam.hurting import ONLY_IN_FULL, SMALL_SEGMENTS
from tests.exam.own_disks import OwnDisk, command_on, own_disks
from tests.exam.prober import Prober
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster
LOG = logging.getLogger(__name__)
NODES = (1, 2, 3)
RATE = 300
A_FEW = 30
ASKED = 10
GAP_MS_MAX = 2_000 + 1_000
"""The lease of these clusters (scenery.QUICK), and a second."""
DOSES = [None, 2.0, 8.0, 20.0] if FULL else [None]
"""Seconds; None: until others have taken over and go on."""
WRITES_PER_S = 20


@attrs.define
class Bench:
    """A cluster whose nodes have disks of their own."""

    cluster: Launcher
    disks: dict[int, OwnDisk]
    producer: SteadyProducer
    prober: Prober

    async def all_masters_on(self, victim: int) -> None:
        node = self.cluster.spec.node(victim)
        await health.place(node.http, {"all_on": victim})
        await until(self.cluster, lambda view: is_master(view, victim), f"all on node {victim}")

    async def says(self, victim: int, path: str) -> tuple[int, str]:
        """Its answer, which must come."""
        ask = partial(health.request, self.cluster.spec.node(victim).http, "GET", path)
        status, body = await in_thread(partial(ask, timeout_s=10))
        return status, body.decode()

    async def answers(self, victim: int) -> None:
        """It is asked everything while its disk hangs."""
        assert (await self.says(victim, "/livez"))[0] == 200
        status, why = await self.says(victim, "/readyz")
        assert (status, "the disk hangs" in why) == (503, True), why
        assert "evenkeel_disk_hung 1.0" in (await self.says(victim, "/metrics"))[1]
        refused = self.prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER]
        await self.prober.asked_again(victim, ASKED)
        await self.prober.answered(victim)
        assert self.prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER] > refused


def is_master(view: ClusterView, victim: int) -> bool:
    return everything_has_a_master(view) and set(view.masters().values()) == {victim}


def is_rid(view: ClusterView, victim: int) -> bool:
    return everything_has_a_master(view) and victim not in view.masters().values()


@asynccontextmanager
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    with own_disks(tmp_path, NODES) as disks:
        command = command_on(disks)
        async with three_nodes(tmp_path, *SMALL_SEGMENTS, command=command) as cluster:
            marks = Recorder(cluster.spec.data_dir / "history-marks.jsonl")
            prober = Prober(cluster.spec, TOPIC, PARTITIONS, marks)
            with marks:
                async with load(cluster, "p", rate=RATE) as producer, trio.open_nursery() as both:
                    both.start_soon(prober.run)
                    try:
                        await acknowledged(producer, A_FEW)
                        yield Bench(cluster, disks, producer, prober)
                    finally:
                        for disk in disks.values():
                            disk.thaw()
                            disk.lift()
                    both.cancel_scope.cancel()
            await judge(cluster, producer)


async def test_a_frozen_disk_costs_a_node_its_masters_and_nothing_else(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        for number, seconds in enumerate(DOSES):
            victim = NODES[number % len(NODES)]
            await one.all_masters_on(victim)
            began_ns = monotonic_ns()
            one.disks[victim].freeze()
            if seconds is None:
                gone = partial(is_rid, victim=victim)
                await until(one.cluster, gone, f"node {victim} is master of nothing")
                await acknowledged(one.producer, A_FEW)
                await one.answers(victim)
            else:
                await trio.sleep(seconds)
            one.disks[victim].thaw()
            await acknowledged(one.producer, A_FEW)
            gaps = [one.producer.longest_gap_ms(k, began_ns, monotonic_ns()) for k in range(6)]
            LOG.info("node %s frozen for %s s: gaps of %s ms", victim, seconds, gaps)
            if seconds is not None:
                assert max(gaps) <= GAP_MS_MAX, f"frozen for {seconds} s: {gaps}"
            await one.cluster.wait_ready(victim)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_slow_disk_costs_a_node_its_masters(tmp_path: Path) -> None:
    """20 writes a second. On a machine that is so busy that the others' disks are no better, there
    is nowhere to go to: so only where there is time."""
    async with bench(tmp_path) as one:
        for victim in NODES:
            await one.all_masters_on(victim)
            began_ns = monotonic_ns()
            one.disks[victim].limit(one.cluster.pid_of(victim), WRITES_PER_S)
            gone = partial(is_rid, victim=victim)
            await until(one.cluster, gone, f"node {victim} is master of nothing")
            await acknowledged(one.producer, A_FEW)
            assert (await one.says(victim, "/livez"))[0] == 200
            assert "evenkeel_disk_slow 1.0" in (await one.says(victim, "/metrics"))[1]
            gaps = [one.producer.longest_gap_ms(k, began_ns, monotonic_ns()) for k in range(6)]
            LOG.info("node %s slow: gaps of %s ms", victim, gaps)
            assert max(gaps) <= GAP_MS_MAX, gaps
            one.disks[victim].lift()
