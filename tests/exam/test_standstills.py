"""Exam rows R5 and C3: a master stands still, stopped from outside or stalled from within.

While it does, somebody else becomes master of its groups and acknowledges. When it wakes,
questions asked meanwhile wait in its sockets: it may answer none of them with what it knew (every
answer is in the history), and it is master of none of those groups any more.
"""

import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from cluster.status import ClusterView
from tests.cluster.scenery import (
    PARTITIONS,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    judge,
    load,
    until,
)
from tests.exam.hurting import FULL, Hurting, hurting
from tests.exam.prober import Prober
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster

LEASE_S = 2.0
"""That of scenery.QUICK."""
LONG_S = 4.0
"""So long that every lease has ended and somebody else has one."""
A_FEW = 5

StandStill = Callable[[Hurting, int, float], Awaitable[None]]


async def stopped(hurt: Hurting, victim: int, seconds: float) -> None:
    """SIGSTOP and SIGCONT: the kernel goes on filling its sockets."""
    await hurt.cluster.pause(victim)
    await trio.sleep(seconds)
    await hurt.cluster.resume(victim)


async def stalled(hurt: Hurting, victim: int, seconds: float) -> None:
    """Its event loop stands still; its other threads go on."""
    hurt.order(victim, "stall", str(seconds))
    await hurt.obeyed(victim, "stall")
    await trio.sleep(seconds)


def doses(stand_still: StandStill) -> list[tuple[StandStill, float]]:
    """Short ones, which nobody may take for a death, and long ones."""
    dice = random.Random(stand_still.__name__)
    return [
        (stand_still, seconds) for seconds in (LONG_S, *(dice.uniform(0.1, 8) for _ in range(19)))
    ]


TASTE = [(stopped, LONG_S), (stalled, LONG_S), (stalled, 0.5)]
EXAMS = [doses(stopped), doses(stalled)] if FULL else [TASTE]


def groups_of(view: ClusterView, node: int) -> set[int]:
    return {row.group for row in view.groups if row.master == node}


@pytest.mark.parametrize("exam", EXAMS, ids=lambda exam: exam[0][0].__name__)
async def test_who_stood_still_answers_nothing_stale(
    tmp_path: Path, exam: list[tuple[StandStill, float]]
) -> None:
    async with hurting(tmp_path) as hurt:
        cluster = hurt.cluster
        prober = Prober(cluster.spec, TOPIC, PARTITIONS, hurt.marks)
        async with load(cluster, "p") as producer, trio.open_nursery() as nursery:
            nursery.start_soon(prober.run)
            nursery.start_soon(hurt.watch)
            await acknowledged(producer, A_FEW)
            refused_after = 0
            for number, (stand_still, seconds) in enumerate(exam):
                victim = number % 3 + 1
                before = await until(cluster, spread, "every node is master of something")
                refused = prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER]
                hurt.marks.fault(f"{stand_still.__name__} for {seconds:.2f} s")
                await stand_still(hurt, victim, seconds)
                hurt.marks.heal()
                await acknowledged(producer, A_FEW)
                if seconds >= LONG_S:
                    await it_stepped_down(hurt, victim, before)
                    refused = prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER] - refused
                    refused_after += refused
            nursery.cancel_scope.cancel()
        assert refused_after > 0, "nobody asked the old master"
        await judge(cluster, producer)


async def it_stepped_down(hurt: Hurting, victim: int, before: ClusterView) -> None:
    """What it was master of has a newer ballot than that under which it was."""
    lost = groups_of(before, victim)
    ballots = {row.group: row.ballot for row in before.groups}
    assert lost

    def taken_over(view: ClusterView) -> bool:
        newer = {row.group for row in view.groups if row.ballot > ballots[row.group]}
        return everything_has_a_master(view) and newer >= lost

    await until(hurt.cluster, taken_over, f"others have taken the groups of node {victim}")


def spread(view: ClusterView) -> bool:
    return everything_has_a_master(view) and min(view.count_by_master().values()) >= 1
