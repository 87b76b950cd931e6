"""No file is touched by the event loop while a node serves: found by strace, not by looking."""

import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from cluster import health
from cluster.launcher import Launcher
from tests.cluster.scenery import (
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    three_nodes,
    until,
)
from tests.cluster.trimmed import SHORT_LOG
from tests.exam.loop_calls import LoopCalls

PAGES = ("/livez", "/readyz", "/metrics", "/status", "/console")


@pytest.mark.cluster
async def test_a_nodes_whole_life(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        pytest.skip("there is no strace here")
    seen: Counter[tuple[str, str]] = Counter()
    async with three_nodes(tmp_path, *SHORT_LOG) as cluster:
        watched = {node: watch(cluster, node, tmp_path) for node in (1, 2, 3)}
        async with load(cluster, "steady", rate=200, pad_bytes=4000) as producer:
            await acknowledged(producer, 500)
            await in_thread(partial(pages, cluster))
            seen += watched.pop(3).end()
            await cluster.kill(3)
            await acknowledged(producer, 300)
            cluster.start(3)
            watched[3] = watch(cluster, 3, tmp_path)
            await cluster.wait_ready(3)
            await acknowledged(producer, 300)
        await until(cluster, everything_has_a_master, "every group has a master")
        await judge(cluster, producer)
        for one in watched.values():
            seen += one.end()
    assert not seen, "\n".join(map(str, seen.most_common()))


def watch(cluster: Launcher, node: int, directory: Path) -> LoopCalls:
    pid = cluster.pid_of(node)
    try:
        return LoopCalls(pid, directory / f"loop-{pid}.strace")
    except RuntimeError as refused:
        pytest.skip(f"processes may not be watched here: {refused}")


def pages(cluster: Launcher) -> None:
    for node in cluster.spec.nodes:
        for path in PAGES:
            health.request(node.http, "GET", path, timeout_s=10)
