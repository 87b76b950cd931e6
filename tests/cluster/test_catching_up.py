"""A node was away for longer than its peers' logs reach back, or has lost its disk. It comes back
under load, and nothing acknowledged is lost or changed."""

import shutil
from pathlib import Path

import pytest

from cluster.status import ClusterView
from tests.cluster.scenery import (
    FULL,
    acknowledged,
    everybody_is_level,
    everything_has_a_master,
    judge,
    load,
    three_nodes,
    until,
)
from tests.cluster.trimmed import (
    AWAY,
    MIB,
    SHORT_LOG,
    groups_of,
    is_back,
    left_behind,
    restart,
    storage_of,
)
from tests.doses import ONLY_IN_FULL

pytestmark = pytest.mark.cluster

RATE = 600
PAD_BYTES = 3000


@pytest.mark.parametrize(
    "emptied", [False, True] if FULL else [True], ids=["away", "emptied"] if FULL else ["emptied"]
)
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
            await restart(cluster, AWAY)
            await until(cluster, is_back, "the node is back")
            await acknowledged(producer, 20)
        await until(cluster, everybody_is_level, "all have applied the same")
        await judge(cluster, producer)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
async def test_damaged_checkpoints_and_cold_data_come_from_peers(tmp_path: Path) -> None:
    """A group whose checkpoints are all damaged gets its state; damaged cold data is repaired in
    place."""
    quick = ("storage.scrub_every_s=1", f"storage.scrub_bytes_per_s={64 * MIB}")
    async with three_nodes(tmp_path, *SHORT_LOG, *quick) as cluster:
        async with load(cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await acknowledged(producer, 20)
            view = await until(cluster, everything_has_a_master, "masters")
            slots = {number: one["applied"] for number, one in groups_of(view, AWAY).items()}
            await left_behind(cluster, slots)
            await until(cluster, is_settled, "node 3 has cold data")
            await cluster.kill(AWAY)
            data = cluster.spec.data_dir / f"node-{AWAY}"
            for checkpoint in data.glob(f"checkpoint-{2:010d}-*.ckpt"):
                flip(checkpoint)
            flip(max(data.glob("cold-*.seg"), key=lambda path: path.stat().st_size))
            await restart(cluster, AWAY)
            await until(cluster, is_back, "the group's state is back")
            await until(cluster, lambda view: storage_of(view, AWAY)["mended"] > 0, "it is mended")
            await acknowledged(producer, 20)
        await judge(cluster, producer)


def is_settled(view: ClusterView) -> bool:
    storage = storage_of(view, AWAY)
    return storage["cold_bytes"] > MIB and storage["segments_retired"] > 3
