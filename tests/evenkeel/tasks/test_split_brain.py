"""Split brain, tried on real processes: members are killed, stopped, stalled and cut off.

The cluster is real, the members are processes with histories (hurt_member.py), and the faults are
signals, networks that delay everything, and code that blocks its process. While members are out,
the others must run their tasks. When they come back they must have stopped by their own clocks
before any of the others began. What careless code writes with an old token must be refused.

`EXAM=full` (`make faults ARGS="-k split_brain"`) has thirty rounds instead of two, in which nodes
of the cluster are killed as well.
"""

import os
import random
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import trio

from evenkeel import submit_tasks
from tests.evenkeel.shared_cluster import SharedCluster
from tests.evenkeel.tasks.histories import Line, What, overlaps
from tests.evenkeel.tasks.members import Members, member_of, members

pytestmark = pytest.mark.cluster

FULL = os.environ.get("EXAM") == "full"
ROUNDS = 30
TASKS = {f"task-{number}" for number in range(6)}
A_FEW = 100
NAMES = ("m1", "m2", "m3")
"""The leader is the one with the largest offset: the last of those present."""


@asynccontextmanager
async def killed(crew: Members, victim: str) -> AsyncIterator[None]:
    crew.kill(victim)
    yield
    crew.start(victim)


@asynccontextmanager
async def stopped(crew: Members, victim: str) -> AsyncIterator[None]:
    crew.signal(victim, signal.SIGSTOP)
    yield
    crew.signal(victim, signal.SIGCONT)


@asynccontextmanager
async def cut_off(crew: Members, victim: str) -> AsyncIterator[None]:
    crew.networks[victim].cut()
    yield
    crew.networks[victim].heal()


@asynccontextmanager
async def stalled(crew: Members, victim: str) -> AsyncIterator[None]:
    """Its own code blocks it, and then goes on as if nothing had happened."""
    order, obeyed = crew.folder / "stall", crew.folder / "stalled"
    order.write_text(victim)
    await crew.until(lambda _: obeyed.exists(), f"{victim} is stalled")
    obeyed.unlink()
    yield
    crew.new_lines()
    begin = len(crew.lines)
    order.unlink()
    await crew.until(lambda _: is_refused(victim, crew.lines[begin:]), "the old token is refused")


def is_refused(victim: str, lines: list[Line]) -> bool:
    return any(line.what is What.REFUSED and member_of(line) == victim for line in lines)


@asynccontextmanager
async def node_killed(crew: Members, victim: str) -> AsyncIterator[None]:
    node = int(victim[1:])
    await crew.cluster.kill(node)
    yield
    await crew.cluster.restart(node)


Fault = Callable[[Members, str], AbstractAsyncContextManager[None]]
Round = Sequence[tuple[Fault, str]]


def rounds() -> list[Round]:
    """Faults that happen at the same time. At least one member stays well, to take over."""
    if not FULL:
        return [
            [(killed, "m3"), (cut_off, "m1")],
            [(stalled, "m2"), (stopped, "m3")],
        ]
    dice = random.Random("split brain")
    faults = [killed, stopped, cut_off, stalled]
    drawn = []
    for _ in range(ROUNDS):
        victims = dice.sample(NAMES, dice.randrange(1, 3))
        one = [(dice.choice(faults), victim) for victim in victims]
        if sum(fault is stalled for fault, _ in one) > 1:
            one = one[:1]
        if dice.random() < 0.3:
            one.append((node_killed, dice.choice(NAMES)))
        drawn.append(one)
    return drawn


async def test_B4_B13_split_brain_is_tried_and_never_seen(
    cluster: SharedCluster, tmp_path: Path
) -> None:
    await submit_tasks(cluster.bootstrap, "brain", TASKS)
    async with members(cluster, tmp_path, "brain") as crew, trio.open_nursery() as nursery:
        for offset, name in enumerate(NAMES):
            await crew.add(nursery, name, offset)
        await crew.all_begin(NAMES)
        for faults in rounds():
            out = [victim for fault, victim in faults if fault is not node_killed]
            async with AsyncExitStack() as hurt:
                for fault, victim in faults:
                    await hurt.enter_async_context(fault(crew, victim))
                await crew.all_run(TASKS, without=out)
                crew.new_lines()
                begin = len(crew.lines)
            await crew.all_begin(out, begin)
            await crew.all_run(TASKS)
        nursery.cancel_scope.cancel()
    crew.new_lines()
    assert len(crew.lines) > A_FEW
    assert overlaps(crew.lines) == []
    assert {line.task for line in crew.lines} == TASKS
    refused = {member_of(line) for line in crew.lines if line.what is What.REFUSED}
    assert refused >= {victim for one in rounds() for fault, victim in one if fault is stalled}


async def test_members_whose_leases_never_end_are_caught(
    cluster: SharedCluster, tmp_path: Path
) -> None:
    """The same faults find a planted bug: a member that is cut off goes on while others have its
    tasks."""
    await submit_tasks(cluster.bootstrap, "immortal", TASKS)
    crew_of = members(cluster, tmp_path, "immortal", immortal=True)
    async with crew_of as crew, trio.open_nursery() as nursery:
        for offset, name in enumerate(NAMES):
            await crew.add(nursery, name, offset)
        await crew.all_begin(NAMES)
        await crew.all_work(NAMES)
        async with cut_off(crew, "m1"):
            await crew.all_run(TASKS, without=["m1"])
        await crew.all_run(TASKS)
        nursery.cancel_scope.cancel()
    crew.new_lines()
    found = overlaps(crew.lines)
    assert found
    assert all("m1-" in one for one in found)
