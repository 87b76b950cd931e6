"""On real processes, a node that stays away is replaced; when it is back, it gets its share."""

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cli import balance_view
from cluster import status, workload
from cluster.health import ask_any
from cluster.launcher import Launcher, launch
from cluster.spec import plan
from cluster.status import ClusterView
from tests.cluster.scenery import (
    FULL,
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
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster
POLL_S = 0.1
IMPATIENT = [*QUICK, "balancer.dead_after_ms=1000", "balancer.replace_after_s=2"]


async def balancer(cluster: Launcher) -> dict[str, Any]:
    """The output of `evenkeel balance show --json`."""
    shown: dict[str, Any] = await in_thread(
        partial(ask_any, cluster.spec, cluster.now(), "GET", "/balancer")
    )
    return shown


def replicas(view: ClusterView) -> Counter[int]:
    """How many groups each node is a member of, by the masters' reports; without group 0."""
    found: Counter[int] = Counter()
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            if group["acting"] and group["group"]:
                found.update(group["members"])
    return found


def level(view: ClusterView, nodes: tuple[int, ...]) -> bool:
    """Every group has three members, all of them among these nodes. No node has two more groups, or
    two more masters, than another."""
    has, masters = replicas(view), view.count_by_master()
    if has.total() != 3 * GROUPS or not set(has) <= set(nodes) or not view.all_at_ideal:
        return False
    return all(
        max(counts[node] for node in nodes) - min(counts[node] for node in nodes) <= 1
        for counts in (has, Counter(masters))
    )


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_what_a_lost_node_had_goes_to_the_others_and_comes_back_with_it(
    tmp_path: Path,
) -> None:
    """Under load, without loss of anything acknowledged. The history gives the reason, and no
    operator is needed."""
    spec, _ = plan(tmp_path / "data", node_count=4, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=IMPATIENT) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=PARTITIONS, replication=3, configs={})
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        async with load(cluster, "p") as producer:
            await acknowledged(producer, 30)
            before = replicas(await status.collect(spec, cluster.now()))
            assert before[4] > 0
            await cluster.kill(4)
            await until(cluster, partial(level, nodes=(1, 2, 3)), "three nodes have all it had")
            await acknowledged(producer, 30)
            shown = await balancer(cluster)
            reasons = {
                change["reason"]
                for one in shown["replica_changes"]
                for change in one["changes"]
                if 4 in change["before"]
            }
            assert reasons == {"node-dead:4"}
            assert "node-dead:4" in balance_view.history(shown)
            assert shown["groups"][0]["replica_set"] == [1, 2, 3, 4], "nobody could take its place"
            await cluster.restart(4)
            await until(cluster, partial(level, nodes=(1, 2, 3, 4)), "four nodes are even again")
            await acknowledged(producer, 30)
        with trio.fail_after(STEP_S):
            # The last members are being noted. ASYNC110: the wait is for another process.
            while (await balancer(cluster))["replica_moves"]:  # noqa: ASYNC110
                await trio.sleep(POLL_S)
        await judge(cluster, producer)
