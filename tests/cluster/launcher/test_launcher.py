"""The launcher with small real processes: it starts, watches, injures and stops them."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pytest
import trio

from cluster import control, health, state
from cluster.chaos import is_stopped
from cluster.launcher import START_S_MAX, Launcher, StartError, launch
from cluster.spec import ClusterSpec, plan
from cluster.state import NodeState, StateError

TINY = Path(__file__).with_name("tiny_node.py")
ENV = {"PATH": os.environ["PATH"]}


def tiny(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
    config = ["--config", str(spec.config_path(node_id)), "--parent-pid", str(os.getpid())]
    return [sys.executable, str(TINY), *config, *(f"--set={one}" for one in overrides)]


def two_nodes(tmp_path: Path) -> ClusterSpec:
    return plan(tmp_path / "data", node_count=2, fixed_ports=False)[0]


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 (other processes set no events)
            await trio.sleep(0.01)


async def ask(launcher: Launcher, what: str, node: int) -> str:
    path = state.read(launcher.spec.data_dir).control
    return await trio.to_thread.run_sync(partial(control.ask, path, what, node))


async def test_nodes_start_are_found_and_stop(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    assert not state.is_running(spec.data_dir)
    async with launch(spec, command=tiny, env=ENV, overrides=["paxos.window=4"]) as launcher:
        await launcher.start_all()
        now = state.read(spec.data_dir)
        pids = [now.nodes[node.id].pid for node in spec.nodes]
        assert now.launcher_pid == os.getpid()
        assert {one.state for one in now.nodes.values()} == {NodeState.RUNNING}
        for node, pid in zip(spec.nodes, pids, strict=True):
            assert health.request(node.http, "GET", "/readyz") == (200, str(pid).encode())
        assert "tiny node 2 ['paxos.window=4']" in spec.log_path(2).read_text()
    assert all(gone(pid) for pid in pids)
    with pytest.raises(StateError, match="no cluster is running"):
        state.read(spec.data_dir)


async def test_a_node_is_killed_and_restarted_from_another_terminal(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    said: list[str] = []
    async with launch(spec, command=tiny, env=ENV, report=said.append) as launcher:
        await launcher.start_all()
        first = launcher.pid_of(1)
        assert await ask(launcher, "kill", 1) == "node 1 killed (SIGKILL)"
        assert gone(first)
        assert state.read(spec.data_dir).nodes[1].state == NodeState.KILLED
        assert not health.is_ready(spec.node(1).http)
        with pytest.raises(control.ControlError, match="node 1 is killed"):
            await ask(launcher, "kill", 1)
        assert await ask(launcher, "restart", 1) == "node 1 restarted and ready"
        assert launcher.pid_of(1) != first
        second = launcher.pid_of(1)
        await ask(launcher, "restart", 1)
        assert gone(second)
        assert launcher.state_of(1) == NodeState.RUNNING
    restarted = "node 1 restarted and ready"
    assert said == ["node 1 killed (SIGKILL)", restarted, restarted]


async def test_a_paused_node_stands_still_and_can_go_on(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    async with launch(spec, command=tiny, env=ENV) as launcher:
        await launcher.start_all()
        assert await ask(launcher, "pause", 2) == "node 2 paused (SIGSTOP)"
        assert is_stopped(launcher.pid_of(2))
        assert state.read(spec.data_dir).nodes[2].state == NodeState.PAUSED
        with pytest.raises(health.HealthError, match="no answer in time"):
            health.request(spec.node(2).http, "GET", "/readyz", timeout_s=0.1)
        assert await ask(launcher, "resume", 2) == "node 2 resumed (SIGCONT)"
        assert health.is_ready(spec.node(2).http)
        await ask(launcher, "pause", 2)
        pid = launcher.pid_of(2)
    assert gone(pid)


@pytest.mark.parametrize(
    ("what", "node", "message"),
    [
        ("resume", 1, "node 1 is running"),
        ("kill", 7, "there is no node 7: this cluster has 1, 2"),
        ("explode", 1, "cannot explode: expected one of kill, pause, resume, restart"),
    ],
)
async def test_what_cannot_be_done_is_refused(
    tmp_path: Path, what: str, node: int, message: str
) -> None:
    async with launch(two_nodes(tmp_path), command=tiny, env=ENV) as launcher:
        await launcher.start_all()
        with pytest.raises(control.ControlError, match=message):
            await ask(launcher, what, node)


async def test_a_node_that_ends_by_itself_is_reported(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    said: list[str] = []
    async with launch(spec, command=tiny, env=ENV, report=said.append) as launcher:
        await launcher.start_all()
        os.kill(launcher.pid_of(2), signal.SIGABRT)
        await until(lambda: bool(said))
        assert state.read(spec.data_dir).nodes[2].state == NodeState.EXITED
    assert said[0].startswith("node 2 ended with signal 6; see ")
    assert said[0].endswith("start it again with: evenkeel restart 2")


async def test_a_node_that_ends_at_once_shows_the_end_of_its_log(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    with pytest.raises(StartError) as caught:
        async with launch(spec, command=tiny, env={**ENV, "TINY_NODE": "exit-3"}) as launcher:
            await launcher.start_all()
    assert re.search(r"node [12] ended with exit code 3 before it was ready", str(caught.value))
    assert "the disk is on fire" in str(caught.value)


async def test_whoever_ends_at_once_is_told_though_others_wait_for_it(tmp_path: Path) -> None:
    """It reports this at once, instead of waiting half a minute for node 1, which needs node 2."""
    started = trio.current_time()
    with pytest.raises(StartError, match="node 2 ended with exit code 3"):
        async with launch(
            two_nodes(tmp_path), command=tiny, env={**ENV, "TINY_NODE": "lonely"}
        ) as it:
            await it.start_all()
    assert trio.current_time() - started < START_S_MAX


async def test_a_node_that_does_not_stop_is_killed_in_a_hurry(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    async with launch(spec, command=tiny, env={**ENV, "TINY_NODE": "ignore-term"}) as launcher:
        await launcher.start_all()
        pids = [launcher.pid_of(1), launcher.pid_of(2)]
        launcher.hurry.set()
        started = trio.current_time()
    assert trio.current_time() - started < 5
    assert all(gone(pid) for pid in pids)


async def test_only_one_launcher_per_directory(tmp_path: Path) -> None:
    spec = two_nodes(tmp_path)
    async with launch(spec, command=tiny, env=ENV):
        with pytest.raises(StateError, match="already running in"):
            async with launch(spec, command=tiny, env=ENV):
                pytest.fail("it must not come this far")


async def test_a_data_directory_with_a_long_name(tmp_path: Path) -> None:
    """A unix socket's path has at most 107 bytes; the cluster's directory may be longer."""
    spec = plan(tmp_path / ("long-" * 30), node_count=1, fixed_ports=False)[0]
    async with launch(spec, command=tiny, env=ENV) as launcher:
        await launcher.start_all()
        assert await ask(launcher, "kill", 1) == "node 1 killed (SIGKILL)"
        directory = state.read(spec.data_dir).control.parent
        assert directory.stat().st_mode & 0o077 == 0
    assert not directory.exists()


ORPHAN_TEST = """
import os, sys
from pathlib import Path
import trio
sys.path.insert(0, sys.argv[2])
from cluster.launcher import launch
from cluster.spec import plan

def command(spec, node_id, overrides):
    parent = str(os.getpid())
    config = str(spec.config_path(node_id))
    return [sys.executable, sys.argv[3], "--config", config, "--parent-pid", parent]

async def main():
    spec = plan(Path(sys.argv[1]), node_count=2, fixed_ports=False)[0]
    async with launch(spec, command=command) as launcher:
        await launcher.start_all()
        await launcher.pause(2)
        print(launcher.pid_of(1), launcher.pid_of(2), flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def test_no_orphans_even_when_the_launcher_is_killed(tmp_path: Path) -> None:
    """This includes a stopped process, which cannot check whether its parent is alive."""
    root = str(Path(__file__).parents[3])
    arguments = ["-c", ORPHAN_TEST, str(tmp_path / "data"), root, str(TINY)]
    command = [sys.executable, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as launcher:  # noqa: ASYNC220 (short)
        assert launcher.stdout is not None
        line = await trio.to_thread.run_sync(launcher.stdout.readline)
        pids = [int(word) for word in line.split()]
        assert len(pids) == 2
        assert not any(gone(pid) for pid in pids)
        launcher.kill()
    await until(lambda: all(gone(pid) for pid in pids))
