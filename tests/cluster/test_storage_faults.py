"""Disks that fail, forget, lie and run full under three real nodes; a real client loses no message.

The client of each test continues while the disk is damaged. Its answers are compared with what
fresh consumers read in the end, from the very node whose disk it was.
"""

import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from time import monotonic_ns

import attrs
import pytest
import trio
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from cli import main as cli
from cluster import health, workload
from cluster.launcher import Launcher
from cluster.workload import SteadyProducer
from tests.cluster import scenery
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    STEP_S,
    TOPIC,
    acknowledged,
    in_thread,
    judge,
    spread,
    three_nodes,
    until,
)
from tests.cluster.with_faults import faulty
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster
LOG = logging.getLogger(__name__)

VICTIM = 3
RATE = 300
FORGETFUL = "directory is not the one the peers know"
FAILURES = 20 if FULL else 1
ENDS_S_MAX = 5.0
"""It takes about a second on an idle machine."""
MIB = 1 << 20
SMALL = (
    f"storage.segment_bytes={4 * MIB}",
    f"storage.low_water_bytes={8 * MIB}",
    f"storage.reserve_bytes={4 * MIB}",
    "limits.tail_bytes=65536",  # nearly all reads come from the disk
)


@attrs.define
class Disks:
    """A running cluster, and the failures its disks can be given."""

    cluster: Launcher
    faults: Path

    def directory(self, node: int = VICTIM) -> Path:
        return self.cluster.spec.data_dir / f"node-{node}"

    def fault(self, name: str, content: str = "", node: int = VICTIM) -> None:
        path = self.faults / str(node) / name
        path.with_suffix(".tmp").write_text(content)
        path.with_suffix(".tmp").rename(path)

    def heal(self, name: str, node: int = VICTIM) -> None:
        (self.faults / str(node) / name).unlink()

    def said(self, event: str, node: int = VICTIM) -> int:
        """How often the node has logged it."""
        lines = self.cluster.spec.log_path(node).read_text().splitlines()
        return sum(json.loads(line)["event"] == event for line in lines if line.startswith("{"))

    async def metric(self, name: str, node: int = VICTIM) -> float:
        http = self.cluster.spec.node(node).http
        ask = partial(health.request, http, "GET", "/metrics", timeout_s=10)
        _, text = await trio.to_thread.run_sync(ask)
        (line,) = [one for one in text.decode().splitlines() if one.startswith(f"{name} ")]
        return float(line.split()[1])

    async def until(
        self, name: str, condition: Callable[[float], bool], node: int = VICTIM
    ) -> float:
        value = None
        with trio.move_on_after(STEP_S):
            while True:
                value = await self.metric(name, node)
                if condition(value):
                    return value
                await trio.sleep(0.05)
        pytest.fail(f"not within {STEP_S} s: {name} of node {node} is {value}")

    def load(self) -> AbstractAsyncContextManager[SteadyProducer]:
        return scenery.load(self.cluster, "p", rate=RATE)

    async def all_on(self, node: int) -> None:
        await health.place(self.cluster.spec.node(node).http, {"all_on": node})
        await until(
            self.cluster,
            lambda view: set(view.masters().values()) == {node} and view.all_at_ideal,
            f"node {node} is master of all groups",
        )

    async def repaired(self) -> None:
        """The victim has all its data again and votes in all groups."""
        await self.until("evenkeel_entries_missing", lambda value: value == 0)
        await self.until("evenkeel_groups_non_voting", lambda value: value == 0)


@asynccontextmanager
async def disks(tmp_path: Path, *overrides: str) -> AsyncIterator[Disks]:
    faults = tmp_path / "faults"
    async with three_nodes(tmp_path, *SMALL, *overrides, command=faulty(faults)) as cluster:
        yield Disks(cluster, faults)


def flip(directory: Path, value: str) -> None:
    """Flip one bit of the record batch that carried this message, wherever it is."""
    for path in sorted(directory.glob("segment-*.wal")):
        at = path.read_bytes().find(value.encode())
        if at >= 0:
            with path.open("r+b") as file:
                file.seek(at)
                byte = file.read(1)[0]
                file.seek(at)
                file.write(bytes([byte ^ 0x10]))
            return
    pytest.fail(f"{value} is not in {directory}")


async def test_two_flipped_bits_of_a_stopped_node_are_repaired_from_its_peers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with disks(tmp_path) as world:
        cluster = world.cluster
        async with world.load() as producer:
            await acknowledged(producer, 30)
            await cluster.kill(VICTIM)
            flip(world.directory(), "p-31")
            flip(world.directory(), "p-107")
            assert cli.run(["data", "verify", str(world.directory())]) == 1
            assert capsys.readouterr().out.count("damaged: segment-") == 2
            await cluster.restart(VICTIM)
            assert await world.metric("evenkeel_log_damage_total") == 2, "the alarm"
            assert world.said("log damaged")
            await world.repaired()
            await acknowledged(producer, 20)
        await world.all_on(VICTIM)
        await judge(cluster, producer)


async def test_bits_flipped_below_a_running_node_are_found_by_the_scrubber(tmp_path: Path) -> None:
    scrub = ("storage.scrub_every_s=1", f"storage.scrub_bytes_per_s={256 * MIB}")
    async with disks(tmp_path, *scrub) as world:
        async with world.load() as producer:
            await acknowledged(producer, 30)
            await world.all_on(VICTIM)
            flip(world.directory(), "p-31")
            flip(world.directory(), "p-107")
            await world.until("evenkeel_log_damage_total", lambda value: value == 2)
            await world.until("evenkeel_entries_repaired_total", lambda value: value == 2)
            await world.repaired()
            assert await world.metric("evenkeel_scrubbed_bytes_total") > 0
            await acknowledged(producer, 20)
        await world.all_on(VICTIM)
        await judge(world.cluster, producer)


def empty(directory: Path, _copy: Path) -> None:
    shutil.rmtree(directory)


def restore(directory: Path, copy: Path) -> None:
    shutil.rmtree(directory)
    shutil.copytree(copy, directory)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_node_does_not_vote_with_amnesia(tmp_path: Path) -> None:
    """Its directory is emptied, then replaced by an old copy: each time it votes only after it has
    learned from the others."""
    async with disks(tmp_path) as world:
        async with world.load() as producer:
            for times, harm in enumerate((empty, restore)):
                await until(world.cluster, spread, "every node is master of something")
                await acknowledged(producer, 20)
                await world.cluster.kill(VICTIM)
                copy = tmp_path / harm.__name__
                shutil.copytree(world.directory(), copy)
                await world.cluster.restart(VICTIM)
                await acknowledged(producer, 20)
                assert world.said(FORGETFUL) == times
                await world.cluster.kill(VICTIM)
                harm(world.directory(), copy)
                await world.cluster.restart(VICTIM)
                assert world.said(FORGETFUL) == times + 1
                await votes_decide(world, producer)
        await world.all_on(VICTIM)
        await judge(world.cluster, producer)


async def votes_decide(world: Disks, producer: SteadyProducer) -> None:
    """With another node dead, nothing is chosen without the victim's vote."""
    await world.repaired()
    await world.cluster.kill(1)
    await until(
        world.cluster,
        lambda view: all(row.master not in (None, 1) for row in view.groups),
        "the others have all groups",
    )
    await acknowledged(producer, 20)
    await world.cluster.restart(1)


async def test_a_failed_write_or_fsync_ends_the_node_at_once(tmp_path: Path) -> None:
    """With exit code 74 and without a second try; the others continue, and a restart repairs it."""
    async with disks(tmp_path) as world:
        async with world.load() as producer:
            await acknowledged(producer, 30)
            for number in range(FAILURES):
                victim, fault = VICTIM - number % 3, ("eio-fsync", "eio-write")[number % 2]
                await ends_at_once(world, victim, fault)
                await acknowledged(producer, 20)
                world.heal(fault, victim)
                await world.cluster.restart(victim)
                await until(world.cluster, spread, "every node is master of something again")
            await acknowledged(producer, 20)
        await world.all_on(VICTIM)
        await judge(world.cluster, producer)


async def ends_at_once(world: Disks, victim: int, fault: str) -> None:
    """From now on its disk fails. It meets the failure once per file, and ends."""
    world.fault(fault, node=victim)
    with trio.fail_after(STEP_S):
        while world.cluster.exit_code_of(victim) is None:  # noqa: ASYNC110 (no event)
            await trio.sleep(0.01)
    ended_ns = monotonic_ns()
    assert world.cluster.exit_code_of(victim) == os.EX_IOERR
    assert world.said("disk failed: stopping, nothing more is acknowledged", victim)
    met = (world.faults / str(victim) / f"{fault}-met").read_text().splitlines()
    files = [line.split()[1] for line in met]
    assert len(files) == len(set(files)), f"tried again: {met}"
    took_s = (ended_ns - int(met[0].split()[0])) / 1e9
    LOG.info("%s of node %d: gone after %.0f ms", fault, victim, 1e3 * took_s)
    assert took_s < ENDS_S_MAX
    world.heal(f"{fault}-met", victim)


def trim(bootstrap: str) -> list[int]:
    """Delete what is below offset 0 of each partition, which is nothing; the answers have the first
    offsets."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    places = [TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)]
    told = admin.delete_records(places, request_timeout=STEP_S)
    return [told[place].result(STEP_S).low_watermark for place in places]


async def test_full_disks_refuse_writes_and_nothing_else_and_heal_by_themselves(
    tmp_path: Path,
) -> None:
    """First one disk, then all: reads and changes of masters go on, and no message is lost."""
    async with disks(tmp_path) as world:
        cluster = world.cluster
        async with world.load() as producer:
            await acknowledged(producer, 20)
            world.fault("room", str(1))
            await world.until("evenkeel_disk_low", lambda value: value == 1)
            await until(
                cluster,
                lambda view: not set(view.masters().values()) & {None, VICTIM},
                "its masters have gone where there is room",
            )
            await acknowledged(producer, 20)
            await world.all_on(2)
            world.fault("room", str(1), 1)  # now a majority has no room
            await world.until("evenkeel_refused_disk_full_total", lambda value: value > 0, 2)
            assert await world.metric("evenkeel_disk_low", 2) == 0
            world.fault("room", str(1), 2)
            await world.until("evenkeel_disk_low", lambda value: value == 1, 2)
            before = producer.acknowledged
            await cluster.kill(2)
            await until(
                cluster,
                lambda view: all(row.master not in (None, 2) for row in view.groups),
                "elections go on",
            )
            read = await in_thread(
                partial(
                    workload.read_everything,
                    cluster.spec.bootstrap,
                    TOPIC,
                    partitions=PARTITIONS,
                    name="meanwhile",
                    seconds_max=STEP_S,
                )
            )
            assert len({one.value for one in read if one.value}) >= before, "reads go on"
            trimmed = await in_thread(partial(trim, cluster.spec.bootstrap))
            assert trimmed == [0] * PARTITIONS, "trimming goes on"
            for node in (1, 2, VICTIM):
                world.heal("room", node)
            await cluster.restart(2)
            await world.until("evenkeel_disk_low", lambda value: value == 0)
            await acknowledged(producer, 20)
            assert cluster.pid_of(VICTIM), "the same process"
        await world.all_on(VICTIM)
        await judge(cluster, producer)
