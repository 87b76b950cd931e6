"""Disks run full under a pipeline and have room again before it ends: nothing overtakes.

Each time, the node refuses the middle of a pipeline. It must not then accept later requests, when
there is room again, before the client could have seen the refusal. Disks are full by their own
report (tests/cluster/faulty_node.py), or they are small file systems that another program fills,
which needs root.
"""

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Final

import pytest
import trio

from cluster import health, workload
from cluster.launcher import Launcher, node_command
from tests.cluster.scenery import FULL, PARTITIONS, READ_S, in_thread, three_nodes
from tests.cluster.with_faults import faulty
from tests.doses import ONLY_IN_FULL
from tests.exam.disks.careful import Careful
from tests.exam.load.test_order import Dose, produce, read_back

pytestmark = pytest.mark.cluster

MIB: Final = 1 << 20
DISK_BYTES: Final = 800 * MIB
SMALL: Final = (
    f"storage.segment_bytes={4 * MIB}",
    f"storage.low_water_bytes={16 * MIB}",
    f"storage.reserve_bytes={8 * MIB}",
)
NODES: Final = (1, 2, 3)
FULL_S: Final = 0.8
"""How long disks stay full, and how long they then have room. A node checks twice a second."""
FULL_MAX_S: Final = 10.0
TOGETHER: Final = ((1,), (1, 2), (2, 3), (2,), NODES, (3,))
"""The nodes whose disks are full at a time: one set after the other, for ever."""
DONE_S: Final = 240.0

Fill = Callable[[int, bool], None]
"""Fill the disk of a node, or make room there."""

WHOLE: Final[Mapping[str, tuple[Dose, ...]]] = {
    **{
        name: tuple(
            Dose(producers, size, count // producers, acks)
            for producers in (1, 4, 40)
            for acks in (-1, 0, 1)
        )
        for name, size, count in (
            ("1 KB", 1_000, 12_000),
            ("20 KB", 20_000, 1_600),
            ("900 KB", 900_000, 40),
        )
    },
    "idempotent": tuple(
        Dose(4, size, 2_000, -1, idempotent=True, eager=True) for size in (1_000, 20_000)
    ),
}


def told_full(faults: Path) -> Fill:
    """The disks report that they have no room."""

    def fill(node: int, full: bool) -> None:
        room = faults / str(node) / "room"
        if full:
            room.write_text("1")
        else:
            room.unlink(missing_ok=True)

    return fill


def really_full(data: Path) -> Fill:
    """Another program's file takes all the room."""

    def fill(node: int, full: bool) -> None:
        ballast = data / f"node-{node}" / "ballast"
        if not full:
            ballast.unlink(missing_ok=True)
            return
        room = os.statvfs(ballast.parent)
        with ballast.open("wb") as file, contextlib.suppress(OSError):  # the node wrote first
            os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - MIB))

    return fill


@contextmanager
def file_systems(data: Path) -> Iterator[None]:
    """A file system for each node."""
    with ExitStack() as mounted:
        for node in NODES:
            directory = data / f"node-{node}"
            directory.mkdir(parents=True)
            small = ("mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "evenkeel", str(directory))
            subprocess.run(small, check=True)
            mounted.callback(subprocess.run, ("umount", "-l", str(directory)), check=True)
        yield


@asynccontextmanager
async def small_disks(tmp_path: Path, real: bool) -> AsyncIterator[tuple[Launcher, Fill]]:
    faults = tmp_path / "faults"
    with ExitStack() as stack:
        if real:
            stack.enter_context(file_systems(tmp_path / "data"))
        command = node_command if real else faulty(faults)
        async with three_nodes(tmp_path, *SMALL, command=command) as cluster:
            yield cluster, really_full(tmp_path / "data") if real else told_full(faults)


async def counted(cluster: Launcher, name: str) -> int:
    """The sum over all nodes."""
    total = 0
    for node in NODES:
        ask = partial(health.request, cluster.spec.node(node).http, "GET", "/metrics", timeout_s=10)
        _, text = await trio.to_thread.run_sync(ask)
        for line in text.decode().splitlines():
            total += int(float(line.split()[1])) if line.startswith(f"{name} ") else 0
    return total


async def refusals(cluster: Launcher) -> int:
    """How many commands were refused for lack of room so far."""
    return await counted(cluster, "evenkeel_refused_disk_full_total")


async def run_full(cluster: Launcher, fill: Fill, before: int) -> None:
    """Disks stay full until something was refused; after that they are full again and again. A node
    that has used up its prepared space pauses and refuses nothing, so the wait has this limit."""
    with trio.move_on_after(FULL_MAX_S):
        while await refusals(cluster) == before:  # noqa: ASYNC110 (another process sets no event)
            await trio.sleep(0.05)
    for node in NODES:
        fill(node, False)
    for nodes in cycle(TOGETHER):
        for full in (True, False):
            for node in nodes:
                fill(node, full)
            await trio.sleep(FULL_S)


@asynccontextmanager
async def full_disks(cluster: Launcher, fill: Fill) -> AsyncIterator[None]:
    """All disks are full; while the body runs they have room for moments only."""
    while await counted(cluster, "evenkeel_disk_low"):  # noqa: ASYNC110 (of the dose before)
        await trio.sleep(0.05)
    before = await refusals(cluster)
    try:
        for node in NODES:
            fill(node, True)
        while await counted(cluster, "evenkeel_disk_low") < len(NODES):  # noqa: ASYNC110 (the same)
            await trio.sleep(0.05)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run_full, cluster, fill, before)
            yield
            nursery.cancel_scope.cancel()
    finally:
        for node in NODES:
            fill(node, False)


async def run(cluster: Launcher, fill: Fill, number: int, dose: Dose) -> int:
    """How many requests were begun before their client could know of a refusal."""
    bootstrap, topic = cluster.spec.bootstrap, f"full-{number}"
    create = partial(workload.create_topic, bootstrap, topic, partitions=PARTITIONS, replication=3)
    await in_thread(create)
    calls, careful, told = list[Callable[[], None]](), list[Careful](), Counter[str]()
    for number in range(dose.producers):
        if dose.idempotent:
            calls.append(partial(produce, bootstrap, topic, number, dose, told))
        else:
            place, size = number % PARTITIONS, dose.message_bytes
            one = Careful(bootstrap, topic, number, place, size, dose.messages, dose.acks)
            careful.append(one)
            calls.append(partial(one.run, DONE_S))
    with trio.fail_after(DONE_S):
        async with full_disks(cluster, fill), trio.open_nursery() as nursery:
            for call in calls:
                nursery.start_soon(in_thread, call)
    total = dose.producers * dose.messages
    assert told == ({"None": total} if dose.idempotent else {}), dose
    with trio.fail_after(READ_S):
        found = await in_thread(partial(read_back, bootstrap, topic, total if dose.acks else 0))
    if dose.idempotent:
        for number in range(dose.producers):
            assert found[number] == list(range(dose.messages)), (dose, number)
    doubtful = sum(one.unsure > 0 for one in careful)
    sys.stderr.write(
        f"{dose}: {sum(one.shadows for one in careful)} behind a refusal, {doubtful} producers "
        f"unsure, {sum(one.whole for one in careful)} with their last connection whole\n"
    )
    for one in careful:
        assert not one.breaches, (dose, one.number, one.breaches)
        judge(one, found.get(one.number, []), dose)
    return sum(one.shadows for one in careful)


def judge(one: Careful, found: list[int], dose: Dose) -> None:
    """Check the log of one producer and its order."""
    about = (dose, one.number, one.unsure)
    if not one.acks:  # a refused record is lost, as in Kafka: nobody sends it again
        for first, end in pairwise((*one.connections, one.messages)):
            of_it = [index for index in found if first <= index < end]
            assert of_it == sorted(set(of_it)), (*about, of_it)
        if one.whole:
            first = one.connections[-1]
            assert of_it == list(range(first, one.messages)), (*about, of_it)
    elif one.unsure:  # sent again although the first attempt may have been appended
        assert set(found) == set(range(one.messages)), about
    else:
        assert found == list(range(one.messages)), (*about, found)


REAL: Final = pytest.param(
    True,
    id="file systems",
    marks=[
        pytest.mark.skipif(os.geteuid() != 0, reason="file systems are mounted by root"),
    ],
)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("doses", WHOLE.values(), ids=WHOLE)
@pytest.mark.parametrize("real", [pytest.param(False, id="told"), REAL])
async def test_a_pipeline_that_meets_full_disks_loses_nothing_and_keeps_its_order(
    tmp_path: Path, real: bool, doses: tuple[Dose, ...]
) -> None:
    async with small_disks(tmp_path, real) as (cluster, fill):
        for number, dose in enumerate(doses):
            before = await refusals(cluster)
            behind = await run(cluster, fill, number, dose)
            assert await refusals(cluster) > before, f"{dose} met no full disk"
            if dose.acks and not dose.idempotent and dose.messages > 1:
                assert behind, f"{dose}: nothing was under way behind a refusal"
