"""A cluster whose nodes are on machines of their own (network namespaces), with counters and
watchers.

For programs that run in the namespace of the machines' clients (`net.clients.entered()`), which
tests cannot enter; the tests start those programs (`program`).
"""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import trio

from balancer.registry.commands import Refusal
from benchmarks.machines.network import Network
from benchmarks.machines.nodes import on_machines
from cluster import health, status, workload
from cluster.launcher import Command, Launcher, launch
from cluster.spec import ClusterSpec, plan
from cluster.status import ClusterView
from tests.benchmarks.machines.machines_here import skip_without_machines
from tests.cluster.scenery import (
    FULL,
    GROUPS,
    PARTITIONS,
    QUICK,
    TOPIC,
    everything_has_a_master,
    in_thread,
    until,
)

LOOK_EVERY_S: Final = 0.2
PROGRAM_S, PROGRAM_S_FULL = 240.0, 1_500.0
PLACED_S: Final = 60.0
"""After failed steals a node is muted for half a minute (balancer.judgement)."""
LONG_S: Final = 10.0
CONFLICT: Final = Refusal.PLACEMENT_CONFLICT.name.lower()
Condition = Callable[[ClusterView], bool]
PREPARES: Final = "prepares-{}.txt"


@attrs.frozen
class Apart:
    cluster: Launcher
    net: Network

    def prepares(self, from_ns: int, to_ns: int) -> Counter[int]:
        """How many ballots all nodes have begun since, by group."""
        found: Counter[int] = Counter()
        for node in self.cluster.spec.nodes:
            path = self.cluster.spec.data_dir / PREPARES.format(node.id)
            for line in path.read_text().splitlines():
                at_ns, group = map(int, line.split())
                found[group] += from_ns <= at_ns <= to_ns
        return found


@asynccontextmanager
async def apart(
    net: Network, directory: Path, *overrides: str, quick: bool = True
) -> AsyncIterator[Apart]:
    """A node on each machine, a topic with a partition in each group, and every ballot counted."""
    spec, _ = plan(directory, groups=GROUPS, fixed_ports=False, hosts=net.addresses)
    nodes = len(spec.nodes)
    settings = (*(QUICK if quick else ()), f"groups.replicas={nodes}", *overrides)
    async with (
        on_machines(net, spec) as command,
        launch(spec, overrides=settings, command=counting(command)) as cluster,
    ):
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "masters")
        await in_thread(lambda: create_topic(spec.bootstrap, nodes))
        yield Apart(cluster, net)


def create_topic(bootstrap: str, replication: int) -> None:
    workload.create_topic(bootstrap, TOPIC, partitions=PARTITIONS, replication=replication)


def counting(command: Command) -> Command:
    """The same node, which also writes down every ballot it begins (counting_node.py)."""

    def counted(spec: ClusterSpec, node_id: int, overrides: Sequence[str]) -> list[str]:
        words = command(spec, node_id, overrides)
        at = words.index("node", words.index(sys.executable))
        path = str(spec.data_dir / PREPARES.format(node_id))
        assert words[at - 1] == "-m"
        return [*words[: at - 1], "-m", "tests.exam.network.counting_node", path, *words[at + 1 :]]

    return counted


class Watcher:
    """Writes down, again and again, which node is master of what."""

    def __init__(self, cluster: Launcher) -> None:
        self._cluster = cluster
        self.changes: Counter[int] = Counter()
        """By group: how often its master was another node than before."""
        self._last: dict[int, int] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self.look(await status.collect(self._cluster.spec, self._cluster.now()))
            await trio.sleep(LOOK_EVERY_S)

    def look(self, view: ClusterView) -> None:
        for group, master in view.masters().items():
            if master is not None:
                self.changes[group] += self._last.get(group, master) != master
                self._last[group] = master


def is_master(node: int) -> Callable[[ClusterView], bool]:
    return lambda view: {one.master for one in view.groups} == {node}


async def placed(cluster: Launcher, wanted: dict[str, object], ready: Condition) -> ClusterView:
    """Move the masters where they are wanted; if that takes long, log the reason."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(tell_why, cluster)
        await order(cluster, wanted)
        view = await until(cluster, ready, f"masters as in {wanted}", within_s=PLACED_S)
        nursery.cancel_scope.cancel()
    return view


async def order(cluster: Launcher, wanted: dict[str, object]) -> None:
    """Order again if the balancer's own plan came first: nodes have come back."""
    with trio.fail_after(PLACED_S):
        while True:
            try:
                await health.place(cluster.spec.nodes[0].http, wanted)
                return
            except health.HealthError as error:
                if CONFLICT not in str(error):
                    raise


async def tell_why(cluster: Launcher) -> None:
    """Print again and again what delays it, until cancelled."""
    while True:
        await trio.sleep(LONG_S)
        for node in cluster.spec.nodes:
            sys.stderr.write(f"{await whys(cluster, node.id)}\n")


async def whys(cluster: Launcher, node: int) -> str:
    """What a node reports about each group and about the nodes."""
    told = await health.call_async(cluster.spec.node(node).http, "GET", "/balancer")
    groups = {one["group"]: (one["master"], one["ideal"], one["why"]) for one in told["groups"]}
    return f"node {node}: {groups}; {told['nodes']}; steals {told['steals'][-8:]}"


async def program(module: str, *arguments: str) -> Any:
    """For the tests: the findings of such a program, from its last line."""
    skip_without_machines()
    command = [sys.executable, "-m", f"tests.exam.network.{module}", *arguments]
    limit_s = PROGRAM_S_FULL if FULL else PROGRAM_S
    run = partial(
        subprocess.run, command, capture_output=True, text=True, timeout=limit_s, check=False
    )
    done = await in_thread(run)
    sys.stderr.write("".join(line for line in done.stderr.splitlines(True) if line[0] == "{"))
    assert done.returncode == 0, done.stderr[-8000:]
    return json.loads(done.stdout.splitlines()[-1])
