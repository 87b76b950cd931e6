"""The supervisor with small real processes: it starts, watches and ends them, and leaves none."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from cluster import control
from cluster.machine.plan import read
from cluster.machine.supervisor import (
    MachineError,
    Supervisor,
    only_one,
    refuse_taken_ports,
    socket_path,
)
from cluster.programs import FOLDER
from runtime.config.config import Address
from tests.cluster.launcher.test_launcher import gone
from tests.cluster.machine.machine_files import ENV, machine_file, tiny

STEP_S = 20.0


class Running:
    """A supervisor in this process, and what another terminal would do."""

    def __init__(self, folder: Path, **more: Any) -> None:
        self.plan = read(machine_file(folder, more=more.pop("file", "")), {})
        self.nodes = self.plan.running(2)
        self.plan.write(self.nodes, {}, self.plan.data_dir)
        self.said: list[str] = []
        env = {**ENV, "TINY_NODE": more.pop("tiny", "")}
        self.supervisor = Supervisor(
            self.plan, self.nodes, env=env, say=self.said.append, command=tiny,
            **{"first_delay_s": 0.05, **more},
        )  # fmt: skip
        self.code: int | None = None

    async def run(self) -> None:
        self.code = await self.supervisor.run()

    async def ask(self, what: str) -> str:
        path = socket_path(self.plan.data_dir)
        return await trio.to_thread.run_sync(partial(control.ask, path, what, 0))

    def rows(self) -> dict[int, dict[str, Any]]:
        return {row["id"]: row for row in self.supervisor.status()["nodes"]}

    async def until(self, holds: Callable[[], bool]) -> None:
        with trio.fail_after(STEP_S):
            while not holds():  # noqa: ASYNC110 (other processes set no events)
                await trio.sleep(0.02)

    async def up(self) -> list[int]:
        """Wait until both serve; returns their process ids."""
        await self.until(lambda: all(map(_listens, self.nodes)))
        return [row["pid"] for row in self.rows().values()]


def _listens(node: Any) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((node.http.host, node.http.port)) == 0


async def test_a_crashed_node_starts_again_and_the_others_go_on(tmp_path: Path) -> None:
    running = Running(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        first, second = await running.up()
        os.kill(first, signal.SIGKILL)
        await running.until(lambda: running.rows()[1]["starts"] == 2)
        assert await running.up() == [running.rows()[1]["pid"], second]
        assert any("node 1 ended with signal 9; it starts again" in one for one in running.said)
        assert json.loads(await running.ask("status"))["machine"] == "a"
        assert await running.ask("stop") == "machine a is stopping"
    assert running.code == 0
    assert not running.supervisor.again
    assert gone(second)


async def test_delays_grow_between_crashes(tmp_path: Path) -> None:
    running = Running(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        for starts in (1, 2, 3):
            await running.until(lambda starts=starts: running.rows()[2]["starts"] == starts)
            os.kill(running.rows()[2]["pid"], signal.SIGKILL)
        await running.until(lambda: len(running.said) >= 3)
        delays = [one.rpartition(" in ")[2] for one in running.said if "node 2 ended" in one]
        assert delays[:3] == ["0.05 s", "0.1 s", "0.2 s"]
        await running.ask("stop")


async def test_what_needs_a_person_is_not_started_again(tmp_path: Path) -> None:
    """Node 2 refuses its directory; node 1 serves on, and its end is the supervisor's."""
    running = Running(tmp_path, tiny="lonely")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        await running.until(lambda: running.rows()[2]["state"] == "ended")
        assert running.rows()[2]["ending"] == "exit code 3"
        assert running.rows()[1]["state"] == "running"
        await running.ask("stop")
    assert running.code == 0


async def test_when_every_node_needs_a_person_so_does_the_machine(tmp_path: Path) -> None:
    running = Running(tmp_path, tiny="exit-3")
    with trio.fail_after(STEP_S):
        await running.run()
    assert running.code == 3


async def test_who_ignores_sigterm_is_killed_after_the_grace(tmp_path: Path) -> None:
    running = Running(tmp_path, tiny="ignore-term", grace_s=0.3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        pids = await running.up()
        os.kill(os.getpid(), signal.SIGTERM)
        await running.until(lambda: running.code is not None)
    assert running.code == 0
    assert all(map(gone, pids))


async def test_a_second_signal_does_not_wait(tmp_path: Path) -> None:
    running = Running(tmp_path, tiny="ignore-term", grace_s=600.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        pids = await running.up()
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            await trio.sleep(0.1)
        await running.until(lambda: running.code is not None)
    assert all(map(gone, pids))


async def test_a_request_to_start_anew(tmp_path: Path) -> None:
    running = Running(tmp_path)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        await running.up()
        with pytest.raises(control.ControlError, match="cannot dance"):
            await running.ask("dance")
        await running.ask("again")
    assert running.supervisor.again


async def test_nodes_are_pinned_when_asked(tmp_path: Path) -> None:
    running = Running(tmp_path, file="pin = true")
    allowed = sorted(os.sched_getaffinity(0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        pids = await running.up()
        for at, pid in enumerate(pids):
            assert os.sched_getaffinity(pid) == {allowed[at % len(allowed)]}
        await running.ask("stop")


def test_only_one_supervisor_has_a_directory(tmp_path: Path) -> None:
    plan = read(machine_file(tmp_path), {})
    refused = pytest.raises(MachineError, match="machine a runs already in")
    with only_one(plan), refused, only_one(plan):
        pass


def test_taken_ports_are_named(tmp_path: Path) -> None:
    nodes = read(machine_file(tmp_path), {}).nodes
    refuse_taken_ports(nodes)
    taken = nodes[1].kafka
    refused = pytest.raises(MachineError, match=f'node 2: listen.kafka = "{taken}": another')
    with socket.create_server((taken.host, taken.port)), refused:
        refuse_taken_ports(nodes)
    elsewhere = attrs.evolve(nodes[0], peer=Address("203.0.113.1", 7092))
    with pytest.raises(MachineError, match=r"node 1: listen.peer .* no address of this machine"):
        refuse_taken_ports([elsewhere])


def test_a_killed_supervisor_leaves_no_node(tmp_path: Path) -> None:
    """SIGKILL: it can do nothing itself, so the kernel must."""
    machine_file(tmp_path)
    script = (
        "import sys, trio\n"
        "from pathlib import Path\n"
        "from cluster.machine.plan import read\n"
        "from cluster.machine.supervisor import Supervisor\n"
        "from tests.cluster.machine.machine_files import ENV, tiny\n"
        "plan = read(Path(sys.argv[1]), {})\n"
        "nodes = plan.running(2)\n"
        "plan.write(nodes, {}, plan.data_dir)\n"
        "one = Supervisor(plan, nodes, env=ENV, say=print, command=tiny)\n"
        "trio.run(one.run)\n"
    )
    path = tmp_path / "machine.toml"
    parent = subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        cwd=FOLDER,
        env={**ENV, "PYTHONPATH": str(FOLDER)},
    )
    try:
        plan = read(path, {})
        deadline = time.monotonic() + STEP_S
        while not all(map(_listens, plan.nodes)):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        rows = json.loads(control.ask(socket_path(plan.data_dir), "status", 0))["nodes"]
    finally:
        parent.kill()
        parent.wait()
    while not all(gone(row["pid"]) for row in rows):
        assert time.monotonic() < deadline, "a node outlived its supervisor"
        time.sleep(0.05)
