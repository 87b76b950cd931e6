"""Three real node processes, a real Kafka client, and a kill under load: nothing is lost.

The client is confluent-kafka as anybody would use it. What it was told and what a fresh consumer
then reads is judged by the history checker.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
import trio

from cluster import health, status, workload
from cluster.launcher import Launcher, launch
from cluster.recorder import Recorder, observed
from cluster.spec import plan
from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from history.checker import check
from history.record import Op, Outcome

pytestmark = pytest.mark.cluster

T = TypeVar("T")
TOPIC = "orders"
PARTITIONS = 6
GROUPS = 6
VICTIM = 2
STEP_S = 30.0
RATE = 1000
QUICK = (
    "lease.duration_ms=2000",
    "lease.renew_every_ms=700",
    "balancer.hold_down_ms=500",
)
"""Shorter waits than by default; the relations between them are the same."""


async def in_thread(call: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


async def until(
    cluster: Launcher, condition: Callable[[ClusterView], bool], what: str
) -> ClusterView:
    view = None
    with trio.move_on_after(STEP_S):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if condition(view):
                return view
            await trio.sleep(0.1)
    seen = "nothing" if view is None else status.render(view)
    pytest.fail(f"not within {STEP_S} s: {what}; last seen:\n{seen}")


@asynccontextmanager
async def three_nodes(tmp_path: Path) -> AsyncIterator[Launcher]:
    spec, _ = plan(tmp_path / "data", node_count=3, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(workload.create_topic, partitions=PARTITIONS, replication=3)
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        yield cluster


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Recorder]:
    with Recorder(tmp_path / "history.jsonl") as recorder:
        yield recorder


@asynccontextmanager
async def load(cluster: Launcher, name: str, recorder: Recorder) -> AsyncIterator[SteadyProducer]:
    """A producer that goes on while the body runs; afterwards every message has its answer."""
    producer = SteadyProducer(
        cluster.spec.bootstrap,
        TOPIC,
        partitions=PARTITIONS,
        rate=RATE,
        name=name,
        recorder=recorder,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(in_thread, producer.run)
        try:
            yield producer
        finally:
            producer.stop()


async def acknowledged(producer: SteadyProducer, more: int) -> None:
    """Wait until every partition has that many more acknowledgements than now."""
    wanted = [len(acks) + more for acks in producer.acks_ns]
    with trio.fail_after(STEP_S):
        for acks, goal in zip(producer.acks_ns, wanted, strict=True):
            while len(acks) < goal:  # noqa: ASYNC110 (the client's thread sets no trio event)
                await trio.sleep(0.02)


async def judge(cluster: Launcher, recorder: Recorder, *producers: SteadyProducer) -> None:
    """Two fresh consumers read everything, every replica says what it has applied, and the history
    of all of them, read back from its file, must be a log's."""
    for name in ("fresh-1", "fresh-2"):
        recorder.ended(
            await in_thread(
                partial(
                    workload.read_everything,
                    cluster.spec.bootstrap,
                    TOPIC,
                    partitions=PARTITIONS,
                    name=name,
                    seconds_max=STEP_S,
                )
            )
        )
    recorder.ended(observed(await until(cluster, everybody_is_level, "all have applied the same")))
    report = check(recorder.read_back())
    assert report.clean, report.summary()
    assert report.sent[Outcome.OK] == sum(producer.acknowledged for producer in producers)
    for producer in producers:
        assert not producer.errors


def everybody_is_level(view: ClusterView) -> bool:
    """Every node that answers is where the others are, in every group: their hashes compare."""
    applied: dict[int, set[int]] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            applied.setdefault(group["group"], set()).add(group["applied"])
    return bool(applied) and all(len(slots) == 1 for slots in applied.values())


def everything_has_a_master(view: ClusterView) -> bool:
    return len(view.groups) == GROUPS + 1 and None not in view.masters().values()


async def test_a_kill_under_load_loses_nothing(tmp_path: Path, recorder: Recorder) -> None:
    """Kill a master with SIGKILL while a producer goes on; its groups move, and it comes back."""
    async with three_nodes(tmp_path) as cluster:
        async with load(cluster, "p", recorder) as producer:
            await acknowledged(producer, 50)
            await cluster.kill(VICTIM)
            await until(
                cluster,
                lambda view: all(row.master not in (None, VICTIM) for row in view.groups),
                f"the groups of node {VICTIM} have new masters",
            )
            await acknowledged(producer, 50)
            await cluster.restart(VICTIM)
            await acknowledged(producer, 50)
        await judge(cluster, recorder, producer)


async def test_steals_under_load_cost_the_producer_nothing(
    tmp_path: Path, recorder: Recorder
) -> None:
    """All masters to one node and evenly back, by the registry, with not one producer error."""
    async with three_nodes(tmp_path) as cluster:
        http = cluster.spec.node(1).http
        async with load(cluster, "p", recorder) as producer:
            await acknowledged(producer, 20)
            await health.call_async(http, "POST", "/admin/placement", {"all_on": 1}, timeout_s=10)
            await until(
                cluster,
                lambda view: set(view.masters().values()) == {1} and view.all_at_ideal,
                "node 1 is master of all groups",
            )
            await acknowledged(producer, 20)
            await health.call_async(http, "POST", "/admin/placement", {"even": True}, timeout_s=10)
            view = await until(
                cluster,
                lambda view: view.all_at_ideal and min(view.count_by_master().values()) >= 2,
                "masters are spread evenly",
            )
            await acknowledged(producer, 20)
        assert {steal["outcome"] for steal in view.steals} == {"done"}
        await judge(cluster, recorder, producer)


async def test_a_whole_cluster_remembers_what_it_acknowledged(
    tmp_path: Path, recorder: Recorder
) -> None:
    """Kill all nodes at once and start them again: everything acknowledged is still there."""
    async with three_nodes(tmp_path) as cluster:
        async with load(cluster, "p", recorder) as producer:
            await acknowledged(producer, 50)
            for node in cluster.spec.nodes:
                await cluster.kill(node.id)
            async with trio.open_nursery() as nursery:
                for node in cluster.spec.nodes:
                    nursery.start_soon(cluster.restart, node.id)
            await acknowledged(producer, 20)
        await judge(cluster, recorder, producer)


async def test_a_consumer_group_goes_on_after_a_crash(tmp_path: Path, recorder: Recorder) -> None:
    """What a group committed is replicated: its next member reads from there on."""
    async with three_nodes(tmp_path) as cluster:
        async with load(cluster, "p", recorder) as producer:
            await acknowledged(producer, 50)
        bootstrap = cluster.spec.bootstrap
        read = partial(workload.read_as_group, bootstrap, TOPIC, group="g", seconds_max=STEP_S)
        first = await in_thread(partial(read, count=producer.acknowledged))
        await cluster.kill(VICTIM)
        async with load(cluster, "q", recorder) as second_producer:
            await acknowledged(second_producer, 50)
        kept = partial(workload.committed, bootstrap, TOPIC, partitions=PARTITIONS, group="g")
        recorder.ended([*first, *await in_thread(kept)])
        second = await in_thread(partial(read, count=second_producer.acknowledged))
        recorder.ended([*second, *await in_thread(kept)])
        for part, sender in ((first, producer), (second, second_producer)):
            values = sorted(str(one.value) for one in part if one.op == Op.POLL)
            assert values == sorted(str(one.value) for one in sender.history)
        await judge(cluster, recorder, producer, second_producer)
