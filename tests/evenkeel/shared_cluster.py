"""Three real nodes for all tests of a module, started as a user does: by `evenkeel up`.

pytest's module fixtures outlive a test's event loop, so the launcher is a process of its own. Tests
ask it for faults through its control socket, as `evenkeel kill 2` in another terminal would.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import trio
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from cluster import control, health, spec, state, status
from cluster.status import ClusterView
from tests.cluster.scenery import GROUPS, QUICK

ROOT: Final = str(Path(__file__).parents[2])
STEP_S: Final = 40.0
PASSING: Final = ("placement_conflict", "not registered")
"""Refusals of a placement that are over soon."""


class SharedCluster:
    """What tests may do to the nodes."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.spec = spec.read(data)
        self.bootstrap = self.spec.bootstrap

    def create_topic(
        self, name: str, partitions: int, settings: Mapping[str, str] | None = None
    ) -> None:
        """When this returns every node knows it: the first answers, the others hear of it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic(name, partitions, 3, config=dict(settings or {}))
        admin.create_topics([new])[name].result(STEP_S)
        deadline = time.monotonic() + STEP_S
        for node in self.bootstrap.split(","):
            while name not in AdminClient({"bootstrap.servers": node}).list_topics().topics:
                assert time.monotonic() < deadline
                time.sleep(0.01)

    def wait_until_all_have_joined(self) -> None:
        """A node registers a little after it is up: until then three replicas are too many."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        new = NewTopic("probe", 1, 3)
        deadline = time.monotonic() + STEP_S
        while True:
            try:
                admin.create_topics([new], validate_only=True)["probe"].result(STEP_S)
            except KafkaException:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            else:
                return

    async def leader_of(self, topic: str, partition: int) -> int:
        """The leader as another Kafka client sees it."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        listed = await trio.to_thread.run_sync(partial(admin.list_topics, topic, timeout=STEP_S))
        leader: int = listed.topics[topic].partitions[partition].leader
        return leader

    async def kill(self, node: int) -> None:
        """SIGKILL; the node stays down until it is restarted."""
        await self._ask("kill", node)

    async def pause(self, node: int) -> None:
        await self._ask("pause", node)

    async def resume(self, node: int) -> None:
        await self._ask("resume", node)

    async def restart(self, node: int) -> None:
        await self._ask("restart", node)

    async def _ask(self, what: str, node: int) -> None:
        await trio.to_thread.run_sync(
            partial(control.ask, state.read(self.data).control, what, node)
        )

    async def steal_to(self, node: int) -> None:
        """Ask that node for every group's master; does not wait for the steals."""
        await self._place({"all_on": node}, asked=node)

    async def place_all_on(self, node: int) -> None:
        """Move every group's master to one node, by steals."""
        await self.steal_to(node)
        await self.until(lambda view: set(view.masters().values()) == {node} and view.all_at_ideal)

    async def spread(self) -> None:
        """Spread the masters evenly, by steals."""
        await self._place({"even": True})
        await self.until(settled)

    async def _place(self, body: dict[str, object], asked: int = 1) -> None:
        """The planner may adopt a plan of its own at the same moment, and a node that has just
        started may not have registered yet: then we ask once more."""
        http = self.spec.node(asked).http
        with trio.fail_after(STEP_S):
            while True:
                try:
                    await health.place(http, body)
                except health.HealthError as error:
                    if not any(passing in str(error) for passing in PASSING):
                        raise
                else:
                    return
                await trio.sleep(0.05)

    async def until(self, condition: Callable[[ClusterView], bool]) -> None:
        with trio.fail_after(STEP_S):
            while True:
                if condition(await status.collect(self.spec, state.read(self.data))):
                    return
                await trio.sleep(0.05)


def settled(view: ClusterView) -> bool:
    """All nodes have joined, and have their share of the masters."""
    shares = view.count_by_master().values()
    return len(view.groups) == GROUPS + 1 and view.all_at_ideal and min(shares, default=0) > 1


@contextmanager
def running_cluster(directory: Path, *settings: str) -> Iterator[SharedCluster]:
    """Three nodes, ready, every group with a master; stopped at the end."""
    data = directory / "data"
    command = [sys.executable, "-m", "cli.main", "up", "-n", "3", "--groups", str(GROUPS)]
    command += ["--free-ports", "--data", str(data), *(f"--set={one}" for one in QUICK + settings)]
    env = {**os.environ, "PYTHONPATH": ROOT, "XDG_STATE_HOME": str(directory / "state")}
    with (
        (directory / "up.log").open("w+") as log,
        subprocess.Popen(command, cwd=directory, env=env, stdout=log, stderr=log) as up,
    ):
        try:
            trio.run(_wait_for_start, up, data)
            shared = SharedCluster(data)
            shared.wait_until_all_have_joined()
            yield shared
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait(STEP_S)


async def _wait_for_start(up: "subprocess.Popen[bytes]", data: Path) -> None:
    with trio.fail_after(STEP_S):
        while True:
            assert up.poll() is None, f"`evenkeel up` ended with {up.returncode}; see up.log"
            try:
                view = await status.collect(spec.read(data), state.read(data))
                if len(view.groups) == GROUPS + 1 and None not in view.masters().values():
                    return
            except (spec.SpecError, state.StateError):
                pass  # nothing there yet
            await trio.sleep(0.05)
