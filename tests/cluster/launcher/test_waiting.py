"""Waiting for nodes: a wait says what it waits for, and blocks nobody else."""

import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import pytest
import trio

from cluster import state
from cluster.launcher import Launcher, StartError, launch
from cluster.spec import ClusterSpec
from cluster.state import NodeNow, NodeState
from cluster.waiting import COLUMNS, WaitReporter, missing, wrapped
from tests.cluster.launcher.test_launcher import ENV, tiny, two_nodes, until

pytestmark = pytest.mark.cluster

STEP_S = 30.0


@asynccontextmanager
async def pair(tmp_path: Path, said: list[str]) -> AsyncIterator[Launcher]:
    """Two nodes; neither becomes ready alone."""
    spec, env = two_nodes(tmp_path), {**ENV, "TINY_NODE": "pair"}
    async with launch(spec, command=tiny, env=env, report=said.append) as launcher:
        await launcher.start_all()
        yield launcher


async def evenkeel(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """A command in another terminal."""
    run = partial(
        subprocess.run,
        [sys.executable, "-m", "cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
        env={**os.environ, "COLUMNS": str(COLUMNS)},
    )
    return await trio.to_thread.run_sync(run)


async def test_a_restart_that_cannot_succeed_alone_says_so_and_waits_for_the_others(
    tmp_path: Path,
) -> None:
    """All nodes are dead; each is started from its own terminal, some time apart."""
    said: list[str] = []
    async with pair(tmp_path, said) as launcher:
        data = ["--data", str(launcher.spec.data_dir)]
        for node in (1, 2):
            await launcher.kill(node)
        first = await evenkeel("restart", "1", "--timeout", "3", *data)
        assert first.returncode == 1
        told = " ".join(first.stdout.split())
        assert "is a majority up?; node 2 is not running: evenkeel restart 2" in told
        assert "again with: evenkeel wait 1" in " ".join(first.stderr.split())
        assert max(map(len, first.stdout.splitlines())) <= COLUMNS
        waited: list[subprocess.CompletedProcess[str]] = []

        async def wait() -> None:
            waited.append(await evenkeel("wait", "1", *data))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            second = await evenkeel("restart", "2", *data)
        assert (second.returncode, waited[0].returncode) == (0, 0)
        assert "node 2 is ready" in second.stdout
        assert "node 1 is ready" in waited[0].stdout


async def test_dead_nodes_are_restarted_together(tmp_path: Path) -> None:
    said: list[str] = []
    async with pair(tmp_path, said) as launcher:
        for node in (1, 2):
            await launcher.kill(node)
        data = ["--data", str(launcher.spec.data_dir)]
        done = await evenkeel("restart", "1", "2", *data)
        assert done.returncode == 0, done.stderr
        assert {"node 1 started", "node 2 started"} <= set(said)
        assert all(launcher.state_of(node) == NodeState.RUNNING for node in (1, 2))


async def test_while_one_waits_the_launcher_is_free(tmp_path: Path) -> None:
    """The launcher's own restart also waits, and must not block the restart that it waits for."""
    said: list[str] = []
    async with pair(tmp_path, said) as launcher:
        for node in (1, 2):
            await launcher.kill(node)
        async with trio.open_nursery() as nursery:
            for node in (1, 2):
                nursery.start_soon(launcher.handle, "restart", node)
        assert {"node 1 restarted and ready", "node 2 restarted and ready"} <= set(said)


async def test_a_start_that_takes_too_long_says_what_it_waits_for(tmp_path: Path) -> None:
    said: list[str] = []
    spec, env = two_nodes(tmp_path), {**ENV, "TINY_NODE": "pair"}
    async with launch(spec, command=tiny, env=env, report=said.append) as launcher:
        launcher._start(1)
        with pytest.raises(StartError, match="not ready after 3 s: is a majority up"):
            await launcher.wait_ready(1, 3.0)
    assert any("is a majority up?; node 2 is not running" in " ".join(one.split()) for one in said)


async def test_a_node_that_ends_while_it_is_waited_for_shows_its_log(tmp_path: Path) -> None:
    said: list[str] = []
    async with pair(tmp_path, said) as launcher:
        await launcher.kill(1)
        launcher._env = {**ENV, "TINY_NODE": "exit-3"}
        done = await evenkeel("restart", "1", "--data", str(launcher.spec.data_dir))
        assert done.returncode == 1
        assert "node 1 ended before it was ready" in done.stderr
        assert "the disk is on fire" in done.stderr
        await until(lambda: launcher.state_of(1) == NodeState.EXITED)


def test_what_is_told_is_told_once_and_now_and_then() -> None:
    said: list[str] = []
    telling = WaitReporter(1, said.append, 100.0)
    for now in range(100, 140):
        telling.waits("this" if now < 110 else "that", "", float(now))
    assert said == [
        "node 1, 2 s: this",
        "node 1, 10 s: that",
        "node 1, 25 s: that",
    ]


def test_lines_fit_a_terminal() -> None:
    long = "node 1, 12 s: its clock has not been compared with others yet: is a majority of the up?"
    lines = wrapped(long).splitlines()
    assert len(lines) == 2
    assert max(map(len, lines)) < COLUMNS


def running(spec: ClusterSpec, *states: NodeState) -> state.State:
    nodes = {number: NodeNow(one, 1) for number, one in enumerate(states, 1)}
    return state.State(launcher_pid=1, control=spec.data_dir, nodes=nodes)


def test_what_is_missing_is_named_with_what_to_do(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    spec = attrs.evolve(spec, nodes=(*spec.nodes, attrs.evolve(spec.nodes[1], id=3)))
    up, dead, paused = NodeState.RUNNING, NodeState.KILLED, NodeState.PAUSED
    assert missing(spec, running(spec, up, up, up)) == missing(spec, running(spec, up, up, dead))
    assert missing(spec, running(spec, up, up, dead)) == ""
    both = missing(spec, running(spec, up, dead, NodeState.EXITED))
    assert both == "; nodes 2 and 3 are not running: evenkeel restart 2 3"
    mixed = missing(spec, running(spec, up, paused, dead))
    assert mixed == "; nodes 2 and 3 are not running: evenkeel resume 2, evenkeel restart 3"
