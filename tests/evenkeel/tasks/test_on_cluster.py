"""Task groups on three real nodes: the scenarios of the seeds."""

import sys

import pytest

from evenkeel import Contiguous, TaskGroupState, largest_offset, member_name, submit_tasks
from tests.evenkeel.shared_cluster import SharedCluster
from tests.evenkeel.tasks.parts import workers

pytestmark = pytest.mark.cluster

FIVE = [f"task-{number}" for number in range(1, 6)]


def row(state: TaskGroupState, names: list[str]) -> tuple[int, str, str]:
    """Generation, leader, and how many tasks each of the workers has that are there."""
    counts = {member_name(one): len(tasks) for one, tasks in state.shares.items()}
    split = "/".join(str(counts.get(name, 0)) for name in names)
    return state.generation, member_name(state.leader), split


def line(state: TaskGroupState) -> str:
    """For who runs this with `-s`."""
    shares = [
        f"{member_name(member)} has {' '.join(tasks) or 'nothing'}"
        for member, tasks in state.shares.items()
    ]
    what = f"generation {state.generation}, leader {member_name(state.leader)}"
    return f"{what}, plan {state.plan_version}: {', '.join(shares)}"


async def test_A16_the_trace(cluster: SharedCluster) -> None:
    """Workers 1, 2, 3 come and 3, 2 go: generations, leaders and splits are those of the seed."""
    trace = []
    await submit_tasks(cluster.bootstrap, "a16", FIVE)
    async with workers(cluster.bootstrap, "a16") as crew:
        for number in (1, 2, 3):
            await crew.add(
                str(number),
                metadata={"offset": number},
                election=largest_offset,
                sharding=Contiguous(),
            )
            state = await crew.until(
                lambda state, number=number: len(state.members) == len(state.shares) == number
            )
            trace.append((state, ["1", "2", "3"]))
        for number in (3, 2):
            await crew.workers[str(number)].stop()
            state = await crew.until(
                lambda state, number=number: len(state.members) == len(state.shares) == number - 1
            )
            trace.append((state, ["1", "2", "3"][: number - 1]))
    sys.stdout.write("\n".join(line(state) for state, _ in trace))
    assert [row(*one) for one in trace] == [
        (1, "1", "5/0/0"),
        (2, "2", "3/2/0"),
        (3, "3", "2/2/1"),
        (4, "2", "3/2"),
        (5, "1", "5"),
    ]
    assert [state.plan_version for state, _ in trace] == [1, 2, 3, 4, 5]
