"""A node that was away for longer than its peers' logs reach back, or has lost its disk, comes back
under load, and nothing that was acknowledged is lost or changed."""

import shutil
from pathlib import Path

import pytest

from tests.cluster.scenery import (
    acknowledged,
    everybody_is_level,
    everything_has_a_master,
    judge,
    load,
    three_nodes,
    until,
)
from tests.cluster.trimmed import AWAY, SHORT_LOG, groups_of, is_back, left_behind

pytestmark = pytest.mark.cluster

RATE = 600
PAD_BYTES = 3000


@pytest.mark.parametrize("emptied", [False, True], ids=["away", "emptied"])
async def test_a_node_comes_back_that_the_logs_do_not_reach_back_to(
    tmp_path: Path, *, emptied: bool
) -> None:
    async with three_nodes(tmp_path, *SHORT_LOG) as cluster:
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await acknowledged(producer, 20)
            view = await until(cluster, everything_has_a_master, "masters")
            slots = {number: one["applied"] for number, one in groups_of(view, AWAY).items()}
            await cluster.kill(AWAY)
            await acknowledged(producer, 20)
            await left_behind(cluster, slots)
            if emptied:
                shutil.rmtree(cluster.spec.data_dir / f"node-{AWAY}")
            await cluster.restart(AWAY)
            await until(cluster, is_back, "the node is back")
            await acknowledged(producer, 20)
        await until(cluster, everybody_is_level, "all have applied the same")
        await judge(cluster, producer)
