"""A node dies in the middle of a checkpoint, of tiering, or of installing a peer's state.

`make test` tries a few of these points once; `make faults` tries every one of them.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest

from cluster.workload import SteadyProducer
from tests.cluster.scenery import FULL, acknowledged, everything_has_a_master, judge, load, until
from tests.cluster.trimmed import AWAY, SHORT_LOG, groups_of, is_back, left_behind, restart
from tests.doses import ONLY_IN_FULL
from tests.exam.hurting import Hurting, hurting
from tests.exam.points import AT_TRANSFER, AT_UPKEEP

pytestmark = pytest.mark.cluster

RATE = 600
PAD_BYTES = 3000
A_FEW = 5


async def die_at_upkeep(hurt: Hurting, producer: SteadyProducer, point: str) -> None:
    hurt.order(AWAY, "crash", f"{point} 0")
    await hurt.died(AWAY)
    await acknowledged(producer, A_FEW)
    await restart(hurt.cluster, AWAY)
    await acknowledged(producer, A_FEW)


async def die_at_transfer(hurt: Hurting, producer: SteadyProducer, point: str) -> None:
    cluster = hurt.cluster
    view = await until(cluster, everything_has_a_master, "masters")
    slots = {number: one["applied"] for number, one in groups_of(view, AWAY).items()}
    await cluster.kill(AWAY)
    await left_behind(cluster, slots)
    hurt.order(AWAY, "crash", f"{point} 0")
    await hurt.restart_to_die(AWAY)
    await hurt.died(AWAY)
    await acknowledged(producer, A_FEW)
    await restart(cluster, AWAY)
    await until(cluster, is_back, "the node is back")


async def die_at_all(tmp_path: Path, points: Iterable[str]) -> None:
    async with hurting(tmp_path, *SHORT_LOG) as hurt:
        async with load(hurt.cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await acknowledged(producer, A_FEW)
            for point in points:
                hurt.marks.fault(point)
                die = die_at_transfer if point in AT_TRANSFER else die_at_upkeep
                await die(hurt, producer, point)
                hurt.marks.heal()
            await acknowledged(producer, A_FEW)
        report = await judge(hurt.cluster, producer)
    assert report.acknowledged_during_faults > 0


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("point", [*AT_UPKEEP, *AT_TRANSFER])
async def test_nothing_is_lost_wherever_a_node_dies(tmp_path: Path, point: str) -> None:
    await die_at_all(tmp_path, (point, point))
