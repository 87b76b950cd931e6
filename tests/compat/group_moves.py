"""Moves of a coordinator, as the members of a consumer group see them.

    python -m tests.compat.group_moves --moves 50 kafka-go confluent

Three nodes, a producer, and two members of one consumer group. The Paxos group that coordinates the
consumer group is moved round and round; none of the topic's partitions is in it. Prints a table:
`rebalances` counts generations that began after the first one was complete, as the members and the
coordinators tell; `twice` records that were read again; `lost` records that nobody read.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from broker.groups.consumer_groups import hash_consumer_group
from cluster import health, status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from tests.compat.group_member import MEMBERS

HERE: Final = Path(__file__).parent
GO_MEMBERS: Final[Mapping[str, str]] = {
    "kafka-go": "group_kafkago",
    "franz-go": "group_franz",
    "sarama": "group_sarama",
}
KAFKAJS: Final = "kafkajs"
JAVA_MEMBERS: Final[Mapping[str, str]] = {"java": "classic", "java-consumer": "consumer"}
JARS: Final = (
    "org/apache/kafka/kafka-clients/4.3.1/kafka-clients-4.3.1.jar",
    "org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
)
CLIENTS: Final = (*MEMBERS, *GO_MEMBERS, KAFKAJS, *JAVA_MEMBERS)
NODES: Final = 3
GROUPS: Final = 6
PARTITIONS: Final = 3
TOPIC: Final = "moving"
RATE: Final = 200
STEP_S: Final = 30.0
SETTLE_S: Final = 240.0
"""A member in Java is compiled at its start, and a busy machine takes minutes over two of them."""
QUIET_S: Final = 0.6
"""Between two moves: two heartbeats of each member, and some commits."""
SETTINGS: Final = (
    "balancer.hold_down_ms=300",
    "balancer.interval_ms=50",
    "balancer.steal_deadline_ms=6000",
    "balancer.token_ms=12000",
)


class Missing(Exception):
    """The program of a member cannot be built here; the message says why."""


def command_of(client: str, build_dir: Path, *, offline: bool = False) -> Sequence[str]:
    """How to start a member; programs in other languages are built first.

    Raises:
        Missing: the language, or a library, is not here.
    """
    if client in MEMBERS:
        return sys.executable, "-m", "tests.compat.group_member", client
    if client in GO_MEMBERS:
        return _go(client, build_dir / client, offline=offline)
    if client == KAFKAJS:
        return _kafkajs(build_dir / client, offline=offline)
    return _java(JAVA_MEMBERS[client])


def _go(client: str, program: Path, *, offline: bool) -> Sequence[str]:
    fetch = {"GOPROXY": "off"} if offline else {}
    build = ("go", "build", "-o", str(program), ".")
    _build(build, HERE / "go" / GO_MEMBERS[client], fetch)
    return (str(program),)


def _kafkajs(folder: Path, *, offline: bool) -> Sequence[str]:
    shutil.copytree(HERE / "javascript" / "group_kafkajs", folder)
    install = ("npm", "ci", "--no-audit", "--no-fund", *(["--offline"] if offline else []))
    _build(install, folder, {})
    return "node", str(folder / "main.js")


def _java(protocol: str) -> Sequence[str]:
    if shutil.which("java") is None:
        raise Missing("there is no java here")
    repository = Path.home() / ".m2" / "repository"
    jars = [repository / jar for jar in JARS]
    for jar in jars:
        if not jar.exists():
            raise Missing(f"{jar.name} is not in Maven's repository (mvn dependency:get)")
    path = os.pathsep.join(map(str, jars))
    return "java", "-cp", path, str(HERE / "java" / "group_member" / "GroupMember.java"), protocol


def _build(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
    if shutil.which(command[0]) is None:
        raise Missing(f"there is no {command[0]} here")
    built = subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, capture_output=True, text=True
    )
    if built.returncode:
        raise Missing(f"its libraries are not here: {built.stderr.strip()[:200]}")


class Member:
    """A running program, and what it has told."""

    def __init__(self, command: Sequence[str], *where: str) -> None:
        self.read: Counter[tuple[int, int]] = Counter()
        self.assigned: list[int] = []
        self.revoked = 0
        self.errors: list[str] = []
        self._process = subprocess.Popen(
            [*command, *where], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.rstrip().partition(" ")
            if word == "read":
                partition, offset = rest.split()
                self.read[int(partition), int(offset)] += 1
            elif word == "assigned":
                self.assigned.append(int(rest))
            elif word == "revoked":
                self.revoked += 1
            else:
                self.errors.append(line.strip())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@attrs.define
class Seen:
    """What two members saw of the moves."""

    client: str
    moves: int
    rebalances_told: int
    """Of the coordinators, since the members had settled."""
    generations: int
    """Generations that the members began since then, or left."""
    read: int
    twice: int
    lost: int
    errors: list[str]
    forwarded: int

    def row(self) -> str:
        cells = (
            self.client, self.moves, self.rebalances_told, self.generations, self.read, self.twice,
            self.lost, len(self.errors), self.forwarded,
        )  # fmt: skip
        return "| " + " | ".join(map(str, cells)) + " |"


HEAD: Final = (
    "| client | moves | rebalances | generations ended | read | twice | lost | errors "
    "| forwarded |\n|---|---|---|---|---|---|---|---|---|"
)


@asynccontextmanager
async def cluster_of(data_dir: Path, *settings: str) -> AsyncIterator[Launcher]:
    spec, _ = plan(data_dir, node_count=NODES, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=(*SETTINGS, *settings)) as cluster:
        await cluster.start_all()
        await _until(cluster, lambda view: view.all_at_ideal, "masters are where they belong")
        create = partial(workload.create_topic, partitions=PARTITIONS, replication=NODES)
        await trio.to_thread.run_sync(partial(create, spec.bootstrap, TOPIC))
        yield cluster


async def measure(cluster: Launcher, client: str, command: Sequence[str], moves: int) -> Seen:
    """Move the coordinator of a fresh consumer group of two members."""
    group = await _free_group(cluster)
    name = next(
        name
        for name in (f"{client}-{number}" for number in range(1000))
        if 1 + hash_consumer_group(name, GROUPS) == group
    )
    bootstrap = cluster.spec.bootstrap
    producer = workload.SteadyProducer(
        bootstrap, TOPIC, partitions=PARTITIONS, rate=RATE, name=name, settings={}
    )
    members = [Member(command, bootstrap, TOPIC, name) for _ in range(2)]
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, producer.run)
            try:
                await _settled(members)
                rebalances = await _sum(cluster, "evenkeel_rebalances_total")
                forwarded = await _sum(cluster, "evenkeel_group_requests_forwarded_total")
                begun = [(len(one.assigned), one.revoked, len(one.errors)) for one in members]
                for _ in range(moves):
                    await _move(cluster, group)
                    await trio.sleep(QUIET_S)
                rebalances = await _sum(cluster, "evenkeel_rebalances_total") - rebalances
                forwarded = (
                    await _sum(cluster, "evenkeel_group_requests_forwarded_total") - forwarded
                )
                ended = sum(
                    max(len(one.assigned) - assigned, one.revoked - revoked)
                    for one, (assigned, revoked, _) in zip(members, begun, strict=True)
                )
                errors = [
                    error
                    for one, (_, _, known) in zip(members, begun, strict=True)
                    for error in one.errors[known:]
                ]
            finally:
                producer.stop()  # its thread is waited for, whatever has failed
        count = partial(workload.stored, bootstrap, TOPIC, PARTITIONS)
        there = await trio.to_thread.run_sync(count)
        await _until_read(members, there)
    finally:
        producer.stop()
        for member in members:
            member.kill()
    read = members[0].read + members[1].read
    return Seen(
        client=client,
        moves=moves,
        rebalances_told=rebalances,
        generations=ended,
        read=len(read),
        twice=read.total() - len(read),
        lost=there - len(read),
        errors=errors,
        forwarded=forwarded,
    )


async def _free_group(cluster: Launcher) -> int:
    """A Paxos group with none of the topic's partitions."""
    told = await health.call_async(cluster.spec.node(1).http, "GET", f"/console/topic?name={TOPIC}")
    taken = {row[1] for row in told["partitions"]}
    return min(set(range(1, GROUPS + 1)) - taken)


async def _until(
    cluster: Launcher, condition: Callable[[status.ClusterView], bool], what: str
) -> status.ClusterView:
    with trio.move_on_after(STEP_S):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if condition(view):
                return view
            await trio.sleep(0.05)
    raise RuntimeError(f"not within {STEP_S} s: {what}")


async def _move(cluster: Launcher, group: int) -> None:
    view = await status.collect(cluster.spec, cluster.now())
    master = view.masters()[group]
    assert master is not None
    target = master % NODES + 1
    await health.place(cluster.spec.node(1).http, {"placement": {str(group): target}})
    await _until(cluster, lambda view: view.masters()[group] == target, f"{group} moves")


async def _settled(members: Sequence[Member]) -> None:
    """Both have a share, and nothing has changed for a while."""
    deadline, before = time.monotonic() + SETTLE_S, None
    while time.monotonic() < deadline:
        now = [(tuple(one.assigned), one.revoked) for one in members]
        if now == before and all(one.assigned and one.read for one in members):
            return
        before = now
        await trio.sleep(4.0)
    raise RuntimeError(f"the members do not share the topic: {before}")


async def _sum(cluster: Launcher, metric: str) -> int:
    total = 0.0
    for node in cluster.spec.nodes:
        ask = partial(health.request, node.http, "GET", "/metrics")
        _, text = await trio.to_thread.run_sync(ask)
        found = re.search(rf"^{metric} ([0-9.e+]+)$", text.decode(), re.MULTILINE)
        total += float(found.group(1)) if found else 0.0
    return int(total)


async def _until_read(members: Sequence[Member], there: int) -> None:
    """What is missing after a while is lost."""
    with trio.move_on_after(STEP_S):
        while len(members[0].read.keys() | members[1].read.keys()) < there:  # noqa: ASYNC110
            await trio.sleep(0.1)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compat.group_moves")
    parser.add_argument("--moves", type=int, default=50)
    parser.add_argument("clients", nargs="*", default=list(CLIENTS), metavar="CLIENT")
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    arguments = parser.parse_args()
    bad = 0
    print(HEAD)
    for client in arguments.clients:
        with tempfile.TemporaryDirectory(prefix="group-moves-") as folder:
            try:
                command = command_of(client, Path(folder))
            except Missing as missing:
                print(f"{client}: skipped, {missing}", flush=True)
                continue
            async with cluster_of(Path(folder) / "data", *arguments.set) as cluster:
                seen = await measure(cluster, client, command, arguments.moves)
                cluster.hurry.set()
        bad += bool(seen.rebalances_told or seen.generations or seen.twice or seen.lost)
        print(seen.row(), flush=True)
        for error in seen.errors[:5]:
            print("    ", error, file=sys.stderr)
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(trio.run(main))
