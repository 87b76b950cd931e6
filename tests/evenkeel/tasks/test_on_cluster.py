"""Task groups on three real nodes: the scenarios of the seeds."""

import socket
import sys
from collections.abc import Sequence
from typing import TypeVar

import pytest
import trio

from evenkeel import (
    Admin,
    ClosedError,
    ConfigurationError,
    ConsumerRecord,
    Contiguous,
    Interleaved,
    LeaseLostError,
    Notice,
    PlanDone,
    Producer,
    SliceReader,
    TaskEvent,
    TaskGroup,
    TaskGroupState,
    TaskLease,
    TaskStarted,
    TaskStopping,
    Timing,
    largest_offset,
    member_name,
    slice_of,
    slices,
    submit_tasks,
)
from evenkeel.tasks.config import NAME_BYTES_MAX
from evenkeel.tasks.topic import new_session
from tests.evenkeel.shared_cluster import SharedCluster
from tests.evenkeel.tasks.parts import CLIENT, STEP_S, quick, workers

pytestmark = pytest.mark.cluster

E = TypeVar("E", bound=TaskEvent)
FIVE = [f"task-{number}" for number in range(1, 6)]


def row(state: TaskGroupState, names: list[str]) -> tuple[int, str, str]:
    """Generation, leader, and how many tasks each of the present workers has."""
    counts = {member_name(one): len(tasks) for one, tasks in state.shares.items()}
    split = "/".join(str(counts.get(name, 0)) for name in names)
    return state.generation, member_name(state.leader), split


def line(state: TaskGroupState) -> str:
    """For those who run this with `-s`."""
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


async def test_B14_one_to_five_clients_and_the_fifth_gets_nothing(
    cluster: SharedCluster,
) -> None:
    """Step by step: who is there, the plan, who holds what, who has acknowledged, what runs."""
    topics = ["orders", "parcels", "prices", "stock"]
    await submit_tasks(cluster.bootstrap, "b14", topics)
    async with workers(cluster.bootstrap, "b14") as crew:
        versions = []
        for count, name in enumerate("ABCDE", 1):
            await crew.add(name, sharding=Interleaved())
            state = await crew.until(
                lambda state, count=count: (
                    len(state.members) == count
                    and (count == 5 or len(state.shares) == count)
                    and all(state.running.get(one) == state.plan_version for one in state.shares)
                )
            )
            versions.append(state.plan_version)
            assert [member_name(one) for one in state.members] == list("ABCDE"[:count])
            for owner, tasks in state.shares.items():
                assert [state.holders[task] for task in tasks] == [owner] * len(tasks)
                assert state.stopped[owner] == state.plan_version
            expected = {member: set(topics[at::count]) for at, member in enumerate("ABCDE"[:count])}
            assert crew.shares() == expected
        assert versions == [1, 2, 3, 4, 4]
        assert crew.workers["E"].started == []
        began = {name: len(crew.workers[name].started) for name in "ABCD"}
        await crew.workers["D"].cancel()
        state = await crew.until(lambda state: len(state.shares) == 4 and state.plan_version > 4)
        assert crew.shares()["E"] == {"stock"}
        assert {name: len(crew.workers[name].started) for name in "ABC"} == {
            name: count for name, count in began.items() if name != "D"
        }


async def test_C11_a_user_iterates_and_acknowledges_what_it_has_stopped(
    cluster: SharedCluster,
) -> None:
    """Events instead of a function: the next owner waits for `release`. It also shows what else a
    lease can do: checkpoints, finishing, notices, withdrawing."""
    config = quick("first", sharding=Contiguous())
    async with TaskGroup(cluster.bootstrap, "c11", config, client=CLIENT) as first:
        await first.submit(["a", "b", "c"])
        leases = [await started(first) for _ in "abc"]
        assert [lease.task for lease in leases] == ["a", "b", "c"]
        assert all(lease.held for lease in leases)
        await leases[2].checkpoint(b"page 17")
        other = TaskGroup(
            cluster.bootstrap, "c11", quick("other", sharding=Contiguous()), client=CLIENT
        )
        async with other:
            stopping = await next_of(first, TaskStopping)
            assert stopping.lease is leases[2]
            assert stopping.lease.held, "until it is released"
            assert first.state.holders["c"] == first.session
            stopping.lease.release()
            assert not stopping.lease.held
            moved = await started(other)
            assert (moved.task, moved.checkpointed) == ("c", b"page 17")
            assert moved.token > leases[2].token
            with pytest.raises(LeaseLostError):
                await leases[2].checkpoint(b"page 18")
            done = await next_of(first, PlanDone)
            assert first.state.plan_version == done.version

            await other.notify(b"hello")
            assert (await next_of(first, Notice)).payload == b"hello"
            moved.finish()
            await first.wait_for(lambda state: state.tasks == ("a", "b"))
            await first.withdraw(["b"])
            assert (await next_of(first, TaskStopping)).lease is leases[1]
            leases[1].release()
            assert await first.wait_for(lambda state: set(state.holders) == {"a"})
            with pytest.raises(ConfigurationError):
                leases[0].release()  # nobody has asked for it
    assert not leases[0].held
    assert first.statistics().sessions == 1


async def started(group: TaskGroup) -> TaskLease:
    return (await next_of(group, TaskStarted)).lease


async def next_of(group: TaskGroup, kind: type[E]) -> E:
    with trio.fail_after(STEP_S):
        async for event in group:
            if isinstance(event, kind):
                return event
    raise AssertionError("the group has ended")


async def test_A2_A5_the_broker_knows_nothing_of_tasks_and_makes_its_group_lazily(
    cluster: SharedCluster,
) -> None:
    """Members decide what is shared and how; a member with another way of sharing is not
    accepted."""
    async with Admin(cluster.bootstrap) as admin, workers(cluster.bootstrap, "a2") as crew:
        assert "a2" not in {one.name for one in await admin.list_groups()}
        await crew.add("one")
        await crew.until(lambda state: len(state.members) == 1)
        described = await admin.describe_group("a2")
        assert described.protocol_type == "evenkeel-tasks"
        assert len(described.members) == 1
        stranger = TaskGroup(cluster.bootstrap, "a2", quick(sharding=Interleaved()), client=CLIENT)
        async with stranger:
            with pytest.raises(ConfigurationError, match="Interleaved"), trio.fail_after(STEP_S):
                async for _ in stranger:
                    pass


async def test_A3_what_is_finished_is_done_once_and_stopping_drains(
    cluster: SharedCluster,
) -> None:
    """A queue of tasks that are done when their function returns. A task that fails ends its
    member, and another one does it."""
    done: list[str] = []
    failures = ["job-3"]

    async def work(lease: TaskLease) -> None:
        if lease.task in failures:
            failures.remove(lease.task)
            raise RuntimeError("no luck")
        done.append(lease.task)

    jobs = [f"job-{number}" for number in range(6)]
    await submit_tasks(cluster.bootstrap, "a3", jobs)
    with trio.fail_after(STEP_S):
        with pytest.raises(ExceptionGroup) as caught:
            async with TaskGroup(cluster.bootstrap, "a3", quick(), client=CLIENT) as group:
                await group.run(work)
        assert caught.group_contains(RuntimeError, match="no luck")
        another = TaskGroup(cluster.bootstrap, "a3", quick(), client=CLIENT)
        async with another, trio.open_nursery() as nursery:
            nursery.start_soon(another.run, work)
            await another.wait_for(lambda state: not state.tasks)
            another.stop()
        stopped = TaskGroup(cluster.bootstrap, "a3", quick(), client=CLIENT)
        async with stopped:
            stopped.stop()
            await stopped.run(work)
    assert sorted(set(done)) == jobs
    assert done.count("job-3") == 1


async def test_C3_many_begin_at_once_and_leave_nothing_behind(cluster: SharedCluster) -> None:
    """The first member creates the ledger's topic; in the end the group is empty."""
    async with workers(cluster.bootstrap, "c3") as crew:
        async with trio.open_nursery() as nursery:
            for name in "pqr":
                nursery.start_soon(crew.add, name)
        await crew.workers["q"].group.submit("abc")
        state = await crew.until(lambda state: len(state.members) == len(state.shares) == 3)
        assert set(state.tasks) == set("abc")
        assert sorted(map(len, crew.shares().values())) == [1, 1, 1]
    for worker in crew.workers.values():
        assert len(worker.started) == len(worker.stopped) > 0
        with pytest.raises(ClosedError):
            await worker.group.submit("d")
    async with Admin(cluster.bootstrap) as admin:
        assert not (await admin.describe_group("c3")).members


async def test_B16_a_topic_is_read_by_slices_each_from_its_own_checkpoint(
    cluster: SharedCluster,
) -> None:
    """There are more slices than partitions. Another member joins and the first one leaves:
    each record is handed over once, by the holder of its slice, and each slice continues where
    it was."""
    count = 3
    cluster.create_topic("b16", partitions=2)
    handled: list[tuple[str, ConsumerRecord]] = []
    patient = Timing(lease_ms=30_000, renew_ms=500, drift_ms_max=100, stop_ms=10_000)
    names = (quick(one, timing=patient, session_timeout_ms=30_000) for one in "pq")

    async def handle(lease: TaskLease, records: Sequence[ConsumerRecord]) -> None:
        await trio.lowlevel.checkpoint()  # what is cancelled here has not been handled
        handled.extend((lease.task, one) for one in records)

    async def produce(first: int, last: int) -> None:
        async with Producer(cluster.bootstrap, client=CLIENT) as producer:
            for number in range(first, last):
                await producer.send("b16", b"%d" % number, key=b"key-%d" % number)
            await producer.flush()
        with trio.fail_after(STEP_S):
            while len(handled) < last:  # noqa: ASYNC110 (it is filled from three tasks)
                await trio.sleep(0.02)

    reader = SliceReader(cluster.bootstrap, count, handle, client=CLIENT)
    first, other = (TaskGroup(cluster.bootstrap, "b16", one, client=CLIENT) for one in names)
    async with other, trio.open_nursery() as nursery:
        async with first, trio.open_nursery() as inner:
            await first.submit(slices("b16", count))
            inner.start_soon(first.run, reader)
            nursery.start_soon(other.run, reader)
            await other.wait_for(lambda state: len(set(state.holders.values())) == 2)
            await produce(0, 60)
            first.stop()
        await other.wait_for(lambda state: set(state.holders.values()) == {other.session})
        await produce(60, 120)
        other.stop()
    assert sorted(int(one.value or b"") for _, one in handled) == list(range(120))
    assert all(task == slice_of("b16", one.key or b"", count) for task, one in handled)
    assert len({task for task, _ in handled}) == count


async def test_B7_nobody_has_a_name_twice(cluster: SharedCluster) -> None:
    """Members of one name are told apart, and so are two lives of one member."""
    sessions = set()
    async with workers(cluster.bootstrap, "b7") as crew:
        for _ in range(2):
            worker = await crew.add("twin")
            sessions.add(worker.group.session)
            await worker.cancel()
        host = TaskGroup(cluster.bootstrap, "b7", quick(), client=CLIENT)
        async with host:
            sessions.add(host.session)
            assert member_name(host.session) == socket.gethostname()[:NAME_BYTES_MAX]
    assert len(sessions) == 3
    assert len({new_session("same") for _ in range(1000)}) == 1000
