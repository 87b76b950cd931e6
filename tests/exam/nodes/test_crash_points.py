"""Exam row R4: a node dies under load at every point where its state is half changed, and comes
back.

`make test` tries a few points once; `make faults` tries every point five times.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio

from cluster import health
from cluster.workload import SteadyProducer
from tests.cluster.scenery import FULL, acknowledged, judge, load, spread, until
from tests.doses import ONLY_IN_FULL
from tests.exam.hurting import SMALL_SEGMENTS, Hurting, hurting
from tests.exam.own_copies import judge_own_copies
from tests.exam.points import AT_ELECTIONS, AT_START, AT_STEALS, POINTS, TORN, UNDER_LOAD

pytestmark = pytest.mark.cluster

RATE = 400 if FULL else 200
PAD_BYTES = 1000
"""At the full rate this fills a segment of 1 MiB in about three seconds."""
ROUNDS = 5
SKIP_MAX = 40
A_FEW = 5
PLACED_S_MAX = 30.0


async def die_at(hurt: Hurting, producer: SteadyProducer, order: str, victim: int) -> None:
    """One dose: cause what leads to the point, then the death and the return."""
    cluster, point = hurt.cluster, order.split()[0]
    other = victim % 3 + 1
    if point in AT_START:
        await cluster.kill(victim)
        await acknowledged(producer, A_FEW)  # so that there is something to catch up with
        hurt.order(victim, "crash", order)
        await hurt.restart_to_die(victim)
    else:
        hurt.order(victim, "crash", order)
    if point in AT_STEALS:
        await place(hurt, other, {"all_on": other})
    elif point in AT_ELECTIONS:
        await cluster.kill(other)
    await hurt.died(victim)
    if point in AT_ELECTIONS:
        await cluster.restart(other)
    await acknowledged(producer, A_FEW)  # two of three keep serving
    await cluster.restart(victim)
    if point in AT_STEALS:
        await place(hurt, other, {"even": True})
    await until(cluster, spread, "every node is master of something")


async def place(hurt: Hurting, asked: int, placement: dict[str, object]) -> None:
    """The node that dies may be the registry's master, which then cannot say what has become of the
    change: it is the same one when it is asked for again."""
    with trio.fail_after(PLACED_S_MAX):
        while True:
            try:
                await health.place(hurt.cluster.spec.node(asked).http, placement)
                return
            except health.HealthError as error:
                if "try again" not in str(error):
                    raise
            await trio.sleep(0.2)


async def die_at_all(tmp_path: Path, points: Iterable[str], rounds: int) -> None:
    dice = random.Random(" ".join(points))
    async with hurting(tmp_path, *SMALL_SEGMENTS) as hurt:
        await until(hurt.cluster, spread, "every node is master of something")
        deaths = 0
        async with load(hurt.cluster, "p", rate=RATE, pad_bytes=PAD_BYTES) as producer:
            await acknowledged(producer, A_FEW)
            for point in points:
                for _ in range(rounds):
                    often = point in UNDER_LOAD
                    skip = dice.randrange(SKIP_MAX) if often else 0
                    hurt.marks.fault(point)
                    await die_at(hurt, producer, f"{point} {skip}", deaths % 3 + 1)
                    hurt.marks.heal()
                    deaths += 1
            await acknowledged(producer, A_FEW)
        report = await judge(hurt.cluster, producer)
        await judge_own_copies(hurt.cluster, tmp_path)
    assert deaths == rounds * len(tuple(points))
    assert report.acknowledged_during_faults > 0


@pytest.mark.skipif(FULL, reason="every point is tried by itself")
async def test_a_taste_of_dying(tmp_path: Path) -> None:
    """With half a record on disk; make faults has each of the other points."""
    await die_at_all(tmp_path, (TORN,), 1)


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("point", POINTS)
async def test_nothing_acknowledged_is_lost_wherever_a_node_dies(
    tmp_path: Path, point: str
) -> None:
    await die_at_all(tmp_path, (point,), ROUNDS)
