"""The balancer as an operator uses it: real nodes, the command line, a Kafka client's load."""

import json
import os
import signal
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cli import main as cli
from cluster import health, rolling, state, workload
from cluster.launcher import Launcher
from cluster.state import NodeState
from cluster.workload import LoadProducer, LoadResult
from tests.cluster.scenery import (
    FULL,
    GROUPS,
    STEP_S,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    three_nodes,
    until,
)
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

SIZES = (100, 10_000) if FULL else (1_000,)
DRAIN_S_MAX = 5.0


class Terminal:
    """A user who types `evenkeel` commands for this cluster."""

    def __init__(self, cluster: Launcher, capsys: pytest.CaptureFixture[str]) -> None:
        self._data, self._capsys = str(cluster.spec.data_dir), capsys

    async def types(self, line: str) -> str:
        """The command's output; it must succeed."""
        words = [*line.split(), "--data", self._data]
        code = await in_thread(partial(cli.run, words))
        printed = self._capsys.readouterr()
        assert code == 0, printed.err
        assert all(len(one) <= 80 for one in printed.out.splitlines()), printed.out
        return printed.out

    async def fails(self, line: str) -> str:
        words = [*line.split(), "--data", self._data]
        assert await in_thread(partial(cli.run, words)) == 1
        return self._capsys.readouterr().err

    async def sees(self, line: str) -> Any:
        return json.loads(await self.types(f"{line} --json"))


def is_even(view: Any) -> bool:
    counts = Counter(view.masters().values())
    return view.all_at_ideal and sorted(counts.values()) == [2, 2, 3]


def is_on_node_1(view: Any) -> bool:
    return view.all_at_ideal and set(view.masters().values()) == {1}


async def test_an_operator_looks_plans_moves_drains_and_reads_what_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every action of `evenkeel balance` on real nodes; the test waits for the effect of each."""
    async with three_nodes(tmp_path) as cluster:
        terminal = Terminal(cluster, capsys)
        await until(cluster, is_even, "masters are even at the start")
        shown = await terminal.types("balance show")
        assert shown.count("in-place") == GROUPS + 1
        assert "automatic, planner" in await terminal.types("balance")

        preview = await terminal.types("balance plan --dry-run --explain --without 2")
        assert "if node 2 died: " in preview
        assert "node-unusable: dead" in preview
        assert "no equally even plan has fewer" in preview
        nothing = await terminal.sees("balance plan")
        assert not any(one["move"] for one in nothing["decisions"])

        moved = next(one["group"] for one in nothing["decisions"] if one["target"] == 1)
        await terminal.types(f"balance move {moved} 2")
        await until(cluster, lambda view: view.masters()[moved] == 2, "the group moved by hand")
        await until(cluster, is_even, "the others made room")
        assert ", pinned" in await terminal.types("balance show")
        await terminal.types(f"balance move {moved} --unpin")

        await terminal.types("balance drain 3")
        await until(
            cluster,
            lambda view: 3 not in view.masters().values() and view.all_at_ideal,
            "node 3 is empty",
        )
        assert "draining" in await terminal.types("balance show")
        await terminal.types("balance pause")
        assert "paused" in await terminal.types("balance show")
        await terminal.types("balance undrain 3")
        await terminal.types("balance resume")
        await until(cluster, is_even, "node 3 has its share again")

        await terminal.types("balance --all-on 1")
        await until(
            cluster, lambda view: set(view.masters().values()) == {1}, "all masters on node 1"
        )
        assert "set by hand" in await terminal.types("balance show")
        assert "adopted" in await terminal.types("balance run")
        await until(cluster, is_even, "masters are even after `run`")

        history = await terminal.types("balance history")
        assert "node 3 is draining" in history
        assert "operator" in history
        assert "done" in history
        told = await terminal.sees("balance history")
        assert sum(steal["outcome"] == "done" for steal in told["steals"]) >= 8
        assert all(one["moves_count"] >= one["at_least"] for one in told["plans"])

        assert "policy set" in await terminal.types("balance policy tolerance_percent=5")
        assert "tolerance_percent=5" in await terminal.types("balance policy")
        assert "invalid_policy" in await terminal.fails("balance policy steals_max=99")
        assert "no steal is running" in await terminal.fails("balance cancel")


async def test_E8_every_node_knows_the_registry_from_its_start_on(tmp_path: Path) -> None:
    """A node shows the placement that was set while it was away (pulled), and later ones."""
    async with three_nodes(tmp_path) as cluster:
        await cluster.kill(3)
        http = cluster.spec.node(1).http
        await health.place(http, {"placement": {"1": 2, "2": 2}})
        await cluster.restart(3)

        def version(node: int) -> int:
            status = health.call(cluster.spec.node(node).http, "GET", "/balancer")
            return int(status["placement_version"])

        wanted = await in_thread(partial(version, 1))
        await until(cluster, everything_has_a_master, "every group has a master")
        assert await in_thread(partial(version, 3)) == wanted
        await health.place(http, {"placement": {"3": 2}})
        with trio.fail_after(STEP_S):
            while await in_thread(partial(version, 3)) <= wanted:  # noqa: ASYNC110 (watched)
                await trio.sleep(0.02)


async def test_sigterm_gives_all_masters_away_within_five_seconds(tmp_path: Path) -> None:
    """Under load, without an error: the node has ended, and every group has a master again."""
    async with three_nodes(tmp_path) as cluster:
        await until(cluster, is_even, "masters are even at the start")
        async with load(cluster, "p") as producer:
            await acknowledged(producer, 50)
            started = time.monotonic()
            os.kill(cluster.pid_of(3), signal.SIGTERM)
            with trio.fail_after(2 * DRAIN_S_MAX):
                while cluster.state_of(3) is NodeState.RUNNING:  # noqa: ASYNC110 (no event)
                    await trio.sleep(0.02)
            assert time.monotonic() - started < DRAIN_S_MAX + 1
            await until(
                cluster,
                lambda view: all(row.master in (1, 2) for row in view.groups),
                "the others have all groups",
            )
            await acknowledged(producer, 50)
        await judge(cluster, producer)
        log = cluster.spec.log_path(3).read_text(encoding="utf-8")
        drained = [json.loads(line) for line in log.splitlines() if '"drained"' in line]
        assert [line["masters_left"] for line in drained] == [0]


async def test_a_rolling_restart_costs_no_client_anything(tmp_path: Path) -> None:
    """All three nodes, one after the other, under load: no call fails, and each node takes less
    than 60 s."""
    async with three_nodes(tmp_path) as cluster:
        await until(cluster, is_even, "masters are even at the start")
        before = {node.id: cluster.pid_of(node.id) for node in cluster.spec.nodes}
        async with load(cluster, "p", rate=300) as producer:
            await acknowledged(producer, 50)
            running = state.read(cluster.spec.data_dir)
            said: list[str] = []
            done = await in_thread(
                partial(rolling.rolling_restart, cluster.spec, running, said.append)
            )
            await acknowledged(producer, 50)
        assert [steps.node for steps in done] == [1, 2, 3]
        assert all(steps.total_s < 60 for steps in done), said
        assert all(cluster.pid_of(node) != pid for node, pid in before.items())
        await until(cluster, is_even, "masters are even at the end")
        await judge(cluster, producer)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_E22_rates_with_masters_on_one_node_and_spread(tmp_path: Path) -> None:
    """The figures of `make demo`, by message size: every acknowledged message counts, and is there.

    Which placement is faster can only be measured on machines with separate cores (limits.md).
    """
    async with three_nodes(tmp_path) as cluster:
        await until(cluster, is_even, "masters are even at the start")
        servers, http = cluster.spec.bootstrap, cluster.spec.node(1).http
        create = partial(workload.create_topic, partitions=GROUPS, replication=3)
        await in_thread(partial(create, servers, "rates"))
        results: dict[tuple[str, int], LoadResult] = {}
        for placement, done in (({"all_on": 1}, is_on_node_1), ({"even": True}, is_even)):
            await health.place(http, placement)
            await until(cluster, done, f"masters are placed: {placement}")
            for size in SIZES:
                producer = LoadProducer(servers, "rates", partitions=GROUPS, message_bytes=size)
                measured = await in_thread(partial(producer.measure, 0.3, 2.0))
                results[str(placement), size] = measured
        assert len(results) == 2 * len(SIZES)
        assert all(one.acknowledged_per_s > 0 for one in results.values()), results
        assert all(one.errors == 0 for one in results.values()), results
        stored = await in_thread(partial(workload.stored, servers, "rates", GROUPS))
        assert stored == sum(one.acknowledged for one in results.values())
