"""Clusters with short logs, where a node that was away is soon behind all of them."""

from collections.abc import Mapping
from typing import Any

from cluster.launcher import Launcher, StartError
from cluster.status import ClusterView
from tests.cluster.scenery import until

MIB = 1 << 20
SHORT_LOG = (
    f"storage.segment_bytes={MIB}",
    f"storage.low_water_bytes={8 * MIB}",
    f"storage.reserve_bytes={4 * MIB}",
    f"storage.log_bytes={3 * MIB}",
    f"storage.checkpoint_bytes={MIB}",
    f"limits.frame_bytes_max={2 * MIB}",
)
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
    """Wait until the others' logs begin above these slots in all groups."""

    def trimmed(view: ClusterView) -> bool:
        others = [groups_of(view, node) for node in (1, 2)]
        return all(
            groups.keys() >= slots.keys()
            and all(groups[group]["log_start"] > slot + 1 for group, slot in slots.items())
            for groups in others
        )

    await until(cluster, trimmed, "the logs of the others are trimmed")


async def restart(cluster: Launcher, node: int) -> None:
    """Start it again; on a busy machine it may need longer than the launcher waits."""
    try:
        await cluster.restart(node)
    except StartError:
        if cluster.exit_code_of(node) is not None:
            raise


def is_back(view: ClusterView) -> bool:
    """The state is installed, no transfer is running, and all groups are at the others'
    positions."""
    storage = storage_of(view, AWAY)
    mine, others = groups_of(view, AWAY), groups_of(view, 1)
    return (
        bool(storage)
        and storage["catching_up"] is None
        and not storage["waiting"]
        and storage["transfers"] > 0
        and mine.keys() == others.keys()
        and all(mine[group]["applied"] + 200 > others[group]["applied"] for group in mine)
    )
