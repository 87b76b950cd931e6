"""`evenkeel up` and the commands of another terminal, as a user types them, with real nodes."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from cluster import spec, state, status
from cluster.state import NodeState
from storage.format import segment_name
from tests.cluster.scenery import QUICK

pytestmark = pytest.mark.cluster

STEP_S = 40.0
LOOKS = "storage.retention_check_ms=500"
"""How often sizes are measured; rates are known from the second time on."""
ROOT = str(Path(__file__).parents[3])


def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": ROOT, "XDG_STATE_HOME": str(tmp_path / "state")}


def evenkeel(tmp_path: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "cli.main", *arguments]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=STEP_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + STEP_S
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


@pytest.fixture
def up(tmp_path: Path) -> Iterator["subprocess.Popen[str]"]:
    """A running `evenkeel up` of three nodes, with its output read up to the welcome."""
    command = [sys.executable, "-m", "cli.main", "up", "-n", "3", "--groups", "4"]
    with subprocess.Popen(
        [*command, "--free-ports", *(f"--set={one}" for one in (*QUICK, LOOKS))],
        cwd=tmp_path,
        env=environment(tmp_path),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as launcher:
        try:  # an error here must not be waited for
            assert launcher.stdout is not None
            told = ""
            for line in launcher.stdout:
                told += line
                if line.startswith("Ctrl-C stops"):
                    break
            assert "ready: 3 nodes, 4 Paxos groups" in told, told
            assert told.count("/metrics") == 3
            assert told.count("/console/") == 1
            yield launcher
        finally:
            launcher.kill()


def pids(tmp_path: Path) -> list[int]:
    return [now.pid for now in state.read(tmp_path / "data").nodes.values()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_another_terminal_sees_and_hurts_the_cluster(
    tmp_path: Path, up: "subprocess.Popen[str]"
) -> None:
    data = tmp_path / "data"

    def masters() -> dict[int, int | None]:
        return trio.run(status.collect, spec.read(data), state.read(data)).masters()

    until(lambda: sorted(masters()) == [0, 1, 2, 3, 4] and None not in masters().values())

    def seen() -> dict[int, int | None]:
        told = json.loads(evenkeel(tmp_path, "status", "--json"))
        return {group["group"]: group["master"] for group in told["groups"]}

    until(lambda: seen() == masters())  # masters still move to their ideal nodes
    text = evenkeel(tmp_path, "status")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.count("fsync") == 3

    def usage() -> list[dict[str, Any]]:
        told: list[dict[str, Any]] = json.loads(evenkeel(tmp_path, "data", "usage", "--json"))
        return told

    until(lambda: all(one.get("rates_known") for one in usage()))
    for one in usage():
        first = data / f"node-{one['node']}" / segment_name(1)
        assert first.stat().st_size <= one["held"]["log"] <= one["held_bytes"]
        assert 0 < one["held_bytes"] < one["predicted_bytes"] < one["bound_bytes"]
        assert one["held_bytes"] < one["limit_bytes"]
    text = evenkeel(tmp_path, "data", "usage")
    assert max(len(line) for line in text.splitlines()) <= 80
    assert text.startswith("node ")

    assert "all masters belong on node 3" in evenkeel(tmp_path, "balance", "--all-on", "3")
    until(lambda: set(masters().values()) == {3})

    assert evenkeel(tmp_path, "kill", "3") == "node 3 killed (SIGKILL)\n"
    until(lambda: not {3, None} & set(masters().values()))
    assert state.read(tmp_path / "data").nodes[3].state == NodeState.KILLED
    started, *waiting, ready = evenkeel(tmp_path, "restart", "3").splitlines()
    assert started == "node 3 started"
    assert not waiting or waiting[0].startswith("node 3, "), "what it waits for, on a busy machine"
    assert ready.startswith("node 3 is ready, after ")
    until(lambda: set(masters().values()) == {3})

    before = pids(tmp_path)
    up.send_signal(signal.SIGINT)
    assert up.stdout is not None
    rest = up.stdout.read()
    assert up.wait(STEP_S) == 0, rest
    assert "stopped; the data is kept in" in rest
    assert not any(alive(pid) for pid in before)


def test_no_node_survives_the_launcher(tmp_path: Path, up: "subprocess.Popen[str]") -> None:
    before = pids(tmp_path)
    assert all(alive(pid) for pid in before)
    up.kill()
    # The nodes end with the launcher's first thread. Its last thread, and with it the lock on the
    # directory, may end a moment later.
    up.wait(STEP_S)
    until(lambda: not any(alive(pid) for pid in before))
    assert not state.is_running(tmp_path / "data")
