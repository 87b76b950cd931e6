"""More than three nodes, and nodes that come and go: real processes, real Kafka clients."""

import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
import trio
import trio.lowlevel

from cli import main as cli
from cluster import status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from cluster.status import ClusterView
from history.record import Op, Record
from paxos.changes.membership import first_members
from paxos.ids import GroupId, NodeId
from tests.cluster.scenery import (
    FULL,
    GROUPS,
    PARTITIONS,
    QUICK,
    READ_S,
    STEP_S,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    until,
)
from tests.cluster.trimmed import SHORT_LOG, left_behind, storage_of
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster
READ_ALONG = 60_000 if FULL else 12_000
"""Messages that a consumer group reads while nodes come and go."""


@asynccontextmanager
async def nodes_of(tmp_path: Path, count: int, *overrides: str) -> AsyncIterator[Launcher]:
    spec, _ = plan(tmp_path / "data", node_count=count, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=(*QUICK, *overrides)) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=PARTITIONS, replication=3, configs={})
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        yield cluster


def hosts(view: ClusterView) -> dict[int, list[int]]:
    """The nodes of each group, by their own reports."""
    found: dict[int, list[int]] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            found.setdefault(group["group"], []).append(row.spec.id)
    return found


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_five_nodes_keep_three_copies(tmp_path: Path) -> None:
    """Groups live on three of five nodes, any node tells any client where, and one node may die."""
    async with nodes_of(tmp_path, 5) as cluster:
        five = [NodeId(node.id) for node in cluster.spec.nodes]
        wanted = {
            group: list(first_members(GroupId(group), five, 3)) for group in range(GROUPS + 1)
        }
        assert hosts(await status.collect(cluster.spec, cluster.now())) == wanted
        async with load(cluster, "p", bootstrap=str(cluster.spec.node(4).kafka)) as producer:
            await acknowledged(producer, 30)
            await cluster.kill(5)
            await until(
                cluster,
                lambda view: all(row.master not in (None, 5) for row in view.groups),
                "the groups of node 5 have new masters",
            )
            await acknowledged(producer, 30)
            await cluster.restart(5)
            await acknowledged(producer, 30)
        read = partial(
            workload.read_as_group,
            str(cluster.spec.node(5).kafka),
            TOPIC,
            group="g",
            seconds_max=STEP_S,
        )
        seen = await in_thread(partial(read, count=producer.acknowledged))
        values = sorted(str(one.value) for one in seen if one.op == Op.POLL)
        assert values == sorted(str(one.value) for one in producer.history)
        await judge(cluster, producer, seen=seen)
        await trio.lowlevel.checkpoint()


def members_of(view: ClusterView) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            if group["acting"]:
                found[group["group"]] = group["members"]
    return found


def even(view: ClusterView) -> bool:
    """Masters are on their ideal nodes, and no node has two more of them than another."""
    counts = view.count_by_master().values()
    return view.all_at_ideal and max(counts) - min(counts) <= 1


async def evenkeel(cluster: Launcher, *words: str) -> str:
    """The command line as in another terminal: it exits with 0, and its lines fit a terminal."""
    said = io.StringIO()

    def run() -> int:
        with redirect_stdout(said):
            return cli.run(["node", *words, "--data", str(cluster.spec.data_dir)])

    code = await in_thread(run)
    lines = said.getvalue()
    assert code == 0, lines
    assert all(len(line) <= 80 or "/" in line for line in lines.splitlines()), lines
    return lines


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_three_nodes_become_five_and_three_again_under_load(tmp_path: Path) -> None:
    """Nodes, a founder among them, are added and removed while a producer and a consumer group run,
    and one is killed in the middle. Nothing is lost, and every group has its three copies. The logs
    are short: a new node gets checkpoints and data from a member."""
    async with nodes_of(tmp_path, 3, *SHORT_LOG) as cluster:
        seen: list[Record] = []
        async with load(cluster, "p", pad_bytes=2000) as producer, group_of(cluster, seen):
            await left_behind(cluster, dict.fromkeys(range(1, GROUPS + 1), 1))
            await evenkeel(cluster, "add", "--no-wait")
            await evenkeel(cluster, "add", "5", "--zone", "b")
            view = await until(cluster, even, "masters are even on five nodes")
            assert {row.spec.id for row in view.nodes} == {1, 2, 3, 4, 5}
            assert {group: len(have) for group, have in members_of(view).items()} == {
                0: 5,
                **dict.fromkeys(range(1, GROUPS + 1), 3),
            }
            kept = lambda view: hosts(view) == members_of(view)  # noqa: E731
            view = await until(cluster, kept, "nobody keeps what he need not")  # for PART_AFTER_NS
            assert storage_of(view, 4)["transfers"] > 0
            assert storage_of(view, 5)["transfers"] > 0
            await acknowledged(producer, 20)

            processes = [cluster._nodes[number].process for number in (1, 4)]
            await evenkeel(cluster, "remove", "1", "--no-wait")
            await cluster.kill(5)
            await cluster.restart(5)
            await evenkeel(cluster, "remove", "1")
            assert "node 4 is removed: done after" in await evenkeel(cluster, "remove", "4")
            assert [one.exit_code for one in processes] == [0, 0]
            assert "this node has stopped" in cluster.spec.log_path(4).read_text(encoding="utf-8")
            view = await until(cluster, even, "masters are even on three nodes")
            assert members_of(view) == {group: [2, 3, 5] for group in range(GROUPS + 1)}
            assert "removed: 1, 4" in await evenkeel(cluster, "list")
            await acknowledged(producer, 20)
        await judge(cluster, producer, seen=seen)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_a_cluster_that_began_with_one_node_knows_the_others_again(tmp_path: Path) -> None:
    """The first node's configuration names no other node. It confirms to an added node that was
    killed that the disk is its own; without that the added node would wait for ever."""
    spec, _ = plan(tmp_path / "data", node_count=1, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        await evenkeel(cluster, "add", "--no-wait")
        joined = lambda view: members_of(view).get(0) == [1, 2]  # noqa: E731
        await until(cluster, joined, "it is a member of the registry's group")
        await cluster.kill(2)
        await cluster.restart(2)
        await until(cluster, everything_has_a_master, "every group has a master again")
        await trio.lowlevel.checkpoint()


@asynccontextmanager
async def group_of(cluster: Launcher, seen: list[Record]) -> AsyncIterator[None]:
    """A consumer group that reads that many messages while the body runs, and commits."""
    read = partial(
        workload.read_as_group,
        cluster.spec.bootstrap,
        TOPIC,
        group="readers",
        count=READ_ALONG,
        seconds_max=READ_S,
    )

    async def go() -> None:
        seen.extend(await in_thread(read))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(go)
        yield


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_an_empty_disk_takes_the_place_of_a_lost_one(tmp_path: Path) -> None:
    """`node replace`: the same id with an empty disk. The node learns everything and its votes
    count: the cluster survives the death of another node."""
    async with nodes_of(tmp_path, 3) as cluster:
        async with load(cluster, "p") as producer:
            await acknowledged(producer, 30)
            await cluster.kill(2)
            await acknowledged(producer, 10)
            said = await evenkeel(cluster, "replace", "2")
            assert "node 2 has everything again" in said
            await cluster.kill(3)
            await until(
                cluster,
                lambda view: all(row.master in (1, 2) for row in view.groups),
                "the groups of node 3 have new masters",
            )
            await acknowledged(producer, 20)
            await cluster.restart(3)
        await judge(cluster, producer)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("count", [7, 9])
async def test_more_nodes_start(tmp_path: Path, count: int) -> None:
    """The registry is on all of them, each group on three; one client reads what another wrote."""
    async with nodes_of(tmp_path, count) as cluster:
        view = await status.collect(cluster.spec, cluster.now())
        copies = {group: len(members) for group, members in members_of(view).items()}
        assert copies.pop(0) == count
        assert set(copies.values()) <= {3, 4}, "four while one of them takes over from another"
        async with load(cluster, "p", bootstrap=str(cluster.spec.node(count).kafka)) as producer:
            await acknowledged(producer, 20)
        await judge(cluster, producer)
