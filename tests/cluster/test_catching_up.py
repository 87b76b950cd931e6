"""A node that was away for longer than its peers' logs reach back, or has lost its disk, comes back
under load, and nothing that was acknowledged is lost or changed."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from cluster.launcher import Launcher
from cluster.status import ClusterView
from tests.cluster.scenery import (
    acknowledged,
    everybody_is_level,
    everything_has_a_master,
    judge,
    load,
    three_nodes,
    until,
)

pytestmark = pytest.mark.cluster

MIB = 1 << 20
SHORT_LOG = (
    f"storage.segment_bytes={MIB}",
    f"storage.low_water_bytes={8 * MIB}",
    f"storage.reserve_bytes={4 * MIB}",
    f"storage.log_bytes={3 * MIB}",
    f"storage.checkpoint_bytes={MIB}",
    f"limits.frame_bytes_max={2 * MIB}",
)
RATE = 600
PAD_BYTES = 3000
AWAY = 3


def groups_of(view: ClusterView, node: int) -> Mapping[int, Mapping[str, Any]]:
    for row in view.nodes:
        if row.spec.id == node and row.status is not None:
            return {group["group"]: group for group in row.status["groups"]}
    return {}


def storage_of(view: ClusterView, node: int) -> Mapping[str, Any]:
    (row,) = [row for row in view.nodes if row.spec.id == node]
    return {} if row.status is None else row.status["storage"]


async def left_behind(cluster: Launcher, slots: Mapping[int, int]) -> None:
    """Wait until the others' logs begin above these slots of all groups."""

    def trimmed(view: ClusterView) -> bool:
        others = [groups_of(view, node) for node in (1, 2)]
        return all(
            len(groups) == len(slots)
            and all(groups[group]["log_start"] > slot + 1 for group, slot in slots.items())
            for groups in others
        )

    await until(cluster, trimmed, "the logs of the others are trimmed")


def is_back(view: ClusterView) -> bool:
    """Nothing is on its way, and every group has been handed over."""
    storage = storage_of(view, AWAY)
    mine = groups_of(view, AWAY)
    return (
        bool(storage)
        and storage["catching_up"] is None
        and not storage["waiting"]
        and storage["transfers"] >= len(mine)
        and all(group["applied"] + 200 > group["chosen"] for group in mine.values())
    )


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
