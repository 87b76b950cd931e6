"""More than three nodes, and nodes that come and go: real processes, real Kafka clients."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio.lowlevel

from cluster import status, workload
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from cluster.status import ClusterView
from history.record import Op
from paxos.ids import GroupId, NodeId
from paxos.membership import first_members
from tests.cluster.scenery import (
    GROUPS,
    PARTITIONS,
    QUICK,
    STEP_S,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    until,
)

pytestmark = pytest.mark.cluster


@asynccontextmanager
async def nodes_of(tmp_path: Path, count: int) -> AsyncIterator[Launcher]:
    spec, _ = plan(tmp_path / "data", node_count=count, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=PARTITIONS, replication=3, configs={})
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        yield cluster


def hosts(view: ClusterView) -> dict[int, list[int]]:
    """Which nodes have each group, as they say themselves."""
    found: dict[int, list[int]] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            found.setdefault(group["group"], []).append(row.spec.id)
    return found


async def test_five_nodes_keep_three_copies(tmp_path: Path) -> None:
    """Groups live on three of five nodes, and any node tells any client where; one may die."""
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
