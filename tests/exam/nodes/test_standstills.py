"""Exam rows R5 and C3: a master stands still, stopped from outside or stalled from within.

Meanwhile another node becomes master of its groups, and a new client, which never knew the old
master, writes to them. Questions wait in the sockets of the stopped node. When it wakes it must not
answer any of them from what it knew (every answer is in the history), and it has stepped down.
"""

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import trio

from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    TOPIC,
    acknowledged,
    judge,
    load,
    spread,
    until,
)
from tests.exam.hurting import Hurting, hurting
from tests.exam.prober import Prober
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster

SHORT_S_MAX = 1.5
"""Less than a lease (2 s): nobody may become master meanwhile."""
ASKED = 5
"""How many questions wait, all asked after the newest acknowledgement."""
A_FEW = 5
RATE = 300

StandStill = Callable[[Hurting, int], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def stopped(hurt: Hurting, victim: int) -> AsyncIterator[None]:
    """SIGSTOP and SIGCONT: meanwhile the kernel goes on filling its sockets."""
    await hurt.cluster.pause(victim)
    yield
    await hurt.cluster.resume(victim)


@asynccontextmanager
async def stalled(hurt: Hurting, victim: int) -> AsyncIterator[None]:
    """Its event loop stands still; its other threads go on."""
    hurt.order(victim, "stall", "")
    await hurt.obeyed(victim, "stall")
    yield
    hurt.recall(victim, "stalling")


def doses(stand_still: StandStill) -> list[tuple[StandStill, float | None]]:
    """Half of them last until others take over (None), half of them are short."""
    dice = random.Random(stand_still.__name__)
    short = [dice.uniform(0.1, SHORT_S_MAX) for _ in range(10)]
    return [(stand_still, seconds) for one in short for seconds in (None, one)]


TASTE = [(stopped, None), (stalled, None), (stalled, 0.5)]
EXAMS = [doses(stopped), doses(stalled)] if FULL else [TASTE]


@pytest.mark.parametrize("exam", EXAMS, ids=lambda exam: exam[0][0].__name__)
async def test_who_stood_still_answers_nothing_stale(
    tmp_path: Path, exam: list[tuple[StandStill, float | None]]
) -> None:
    async with hurting(tmp_path) as hurt:
        cluster = hurt.cluster
        prober = Prober(cluster.spec, TOPIC, PARTITIONS, hurt.marks)
        async with load(cluster, "p", rate=RATE) as producer, trio.open_nursery() as nursery:
            producers = [producer]
            nursery.start_soon(prober.run)
            nursery.start_soon(hurt.watch)
            await acknowledged(producer, A_FEW)
            for number, (stand_still, seconds) in enumerate(exam):
                victim = number % 3 + 1
                before = await until(cluster, spread, "every node is master of something")
                hurt.marks.fault(f"node {victim} is {stand_still.__name__}")
                refused = prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER]
                async with stand_still(hurt, victim):
                    if seconds is None:
                        producers.append(await write_to_others(hurt, victim, before, number))
                        await prober.asked_again(victim, ASKED)
                    else:
                        await trio.sleep(seconds)
                hurt.marks.heal()
                await acknowledged(producer, A_FEW)
                if seconds is None:
                    await prober.answered(victim)
                    refused = prober.answers[victim][ErrorCode.NOT_LEADER_OR_FOLLOWER] - refused
                    assert refused > 0, "nobody asked the old master"
            nursery.cancel_scope.cancel()
        await judge(cluster, *producers)


async def write_to_others(
    hurt: Hurting, victim: int, before: ClusterView, number: int
) -> SteadyProducer:
    """Wait until other nodes are masters of the victim's groups; then a new client writes there."""
    lost = {row.group for row in before.groups if row.master == victim}
    assert lost

    def taken_over(view: ClusterView) -> bool:
        masters = {row.group: row.master for row in view.groups}
        return all(masters.get(group) not in (None, victim) for group in lost)

    await until(hurt.cluster, taken_over, f"others have taken the groups of node {victim}")
    others = [str(node.kafka) for node in hurt.cluster.spec.nodes if node.id != victim]
    async with load(hurt.cluster, f"q{number}", bootstrap=",".join(others)) as producer:
        await acknowledged(producer, A_FEW)
    return producer
