"""What tests with real node processes share: a cluster, a load, waiting, and a verdict.

The client is confluent-kafka as anybody would use it. Its answers, and what fresh consumers then
read, are written into histories beside the nodes' directories, and the checker judges them.
"""

import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import pytest
import trio

from cluster import status, workload
from cluster.launcher import Command, Launcher, launch, node_command
from cluster.recorder import Recorder, read_history
from cluster.spec import plan
from cluster.status import ClusterView
from cluster.workload import SteadyProducer
from history.anomaly import Report
from history.checker import check
from history.record import Key, Op, Outcome, Record

T = TypeVar("T")
FULL = os.environ.get("EXAM") == "full"
"""`make faults` runs the full dose, `make test` a taste of it."""
TOPIC = "orders"
PARTITIONS = 6
GROUPS = 6
STEP_S = 30.0
READ_S = 180.0
"""Reading everything may take long on a busy machine."""
RATE = 1000
QUICK = (
    "lease.duration_ms=2000",
    "lease.renew_every_ms=700",
    "balancer.hold_down_ms=500",
    "balancer.interval_ms=50",
    "balancer.token_ms=2500",
    "balancer.mute_ms=1000",
)
"""Shorter times than the defaults, in the same relations to each other."""
GROUP_TOPIC = "paxos-group"
"""The topic of keys that stand for a Paxos group, in histories of its replicas."""
SOON_BACK = {"reconnect.backoff.max.ms": 500}
"""The longest time our clients stay away from a node that was down. The default is 10 s; a test
that kills a node twice would wait for the client and not for the cluster."""


async def in_thread(call: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(call, abandon_on_cancel=True)


async def until(
    cluster: Launcher,
    condition: Callable[[ClusterView], bool],
    what: str,
    *,
    within_s: float = STEP_S,
) -> ClusterView:
    view = None
    with trio.move_on_after(within_s):
        while True:
            view = await status.collect(cluster.spec, cluster.now())
            if condition(view):
                return view
            await trio.sleep(0.1)
    seen = "nothing" if view is None else status.render(view)
    pytest.fail(f"not within {within_s} s: {what}; last seen:\n{seen}")


@asynccontextmanager
async def three_nodes(
    tmp_path: Path,
    *overrides: str,
    command: Command = node_command,
    configs: Mapping[str, str] = MappingProxyType({}),
) -> AsyncIterator[Launcher]:
    """A cluster in which every group has a master, and a topic with a partition in each."""
    spec, _ = plan(tmp_path / "data", node_count=3, groups=GROUPS, fixed_ports=False)
    async with launch(spec, overrides=(*QUICK, *overrides), command=command) as cluster:
        await cluster.start_all()
        await until(cluster, everything_has_a_master, "every group has a master")
        create = partial(
            workload.create_topic, partitions=PARTITIONS, replication=3, configs=configs
        )
        await in_thread(partial(create, spec.bootstrap, TOPIC))
        yield cluster


@asynccontextmanager
async def load(
    cluster: Launcher,
    name: str,
    *,
    rate: int = RATE,
    pad_bytes: int = 0,
    bootstrap: str | None = None,
    turns: Sequence[int] = (),
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[SteadyProducer]:
    """A producer that runs while the body runs; at the end every message has its answer."""
    with Recorder(cluster.spec.data_dir / f"history-{name}.jsonl") as recorder:
        producer = SteadyProducer(
            bootstrap or cluster.spec.bootstrap,
            TOPIC,
            partitions=PARTITIONS,
            rate=rate,
            name=name,
            pad_bytes=pad_bytes,
            recorder=recorder,
            settings={**SOON_BACK, **settings},
            turns=turns,
        )
        async with trio.open_nursery() as nursery:
            nursery.start_soon(in_thread, producer.run)
            try:
                yield producer
            except Exception as error:
                view = await status.collect(cluster.spec, cluster.now())
                error.add_note(f"under load {name}, then:\n{status.render(view)}")
                raise
            finally:
                producer.stop()


class NotAcknowledged(Exception):
    """Partitions did not get the acknowledgements that a test waited for."""


async def acknowledged(producer: SteadyProducer, more: int) -> None:
    """Wait until every partition has that many more acknowledgements than now."""
    wanted = [len(acks) + more for acks in producer.acks_ns]
    with trio.move_on_after(STEP_S):
        for acks, goal in zip(producer.acks_ns, wanted, strict=True):
            while len(acks) < goal:  # noqa: ASYNC110 (the client's thread sets no trio event)
                await trio.sleep(0.02)
        return
    told = zip(producer.acks_ns, wanted, strict=True)
    missing = {number: goal - len(acks) for number, (acks, goal) in enumerate(told)}
    raise NotAcknowledged(f"of {more} more, missing after {STEP_S} s by partition: {missing}")


def observed(view: ClusterView) -> list[Record]:
    """What the nodes report about their groups: the applied slot, its hash, the acting node."""
    now = time.monotonic_ns()
    found: list[Record] = []
    for row in view.nodes:
        if row.status is None:
            continue
        process = f"node-{row.spec.id}"
        for group in row.status["groups"]:
            key = Key(GROUP_TOPIC, int(group["group"]))
            applied, chain = int(group["applied"]), str(group["chain"])
            found.append(Record(Op.CHAIN, process, key, chain, applied, began_ns=now))
            if group["acting"]:
                found.append(Record(Op.MASTER, process, key, None, int(group["epoch"])))
    return found


async def judge(
    cluster: Launcher, *producers: SteadyProducer, seen: Iterable[Record] = ()
) -> Report:
    """Two fresh consumers read everything, and every replica reports what it has applied. The
    history of all this and of what else was `seen`, read back from its files, must be that of one
    log."""
    with Recorder(cluster.spec.data_dir / "history-observed.jsonl") as recorder:
        recorder.ended(seen)
        for name in ("fresh-1", "fresh-2"):
            recorder.ended(
                await in_thread(
                    partial(
                        workload.read_everything,
                        cluster.spec.bootstrap,
                        TOPIC,
                        partitions=PARTITIONS,
                        name=name,
                        seconds_max=READ_S,
                    )
                )
            )
        view = await until(cluster, everybody_is_level, "all have applied the same")
        recorder.ended(observed(view))
    files = sorted(cluster.spec.data_dir.glob("history-*.jsonl"))
    report = check(chain.from_iterable(map(read_history, files)))
    assert report.clean, report.summary()
    assert report.sent[Outcome.OK] == sum(producer.acknowledged for producer in producers)
    for producer in producers:
        assert not producer.errors, f"{len(producer.errors)} errors: {producer.errors[:5]}"
    return report


def everybody_is_level(view: ClusterView) -> bool:
    """Every node that answers has the others' position in every group, so their hashes compare."""
    applied: dict[int, set[int]] = {}
    for row in view.nodes:
        for group in () if row.status is None else row.status["groups"]:
            applied.setdefault(group["group"], set()).add(group["applied"])
    return bool(applied) and all(len(slots) == 1 for slots in applied.values())


def everything_has_a_master(view: ClusterView) -> bool:
    return len(view.groups) == GROUPS + 1 and None not in view.masters().values()


def spread(view: ClusterView) -> bool:
    """Every group has a master, and every node is master of some group."""
    return everything_has_a_master(view) and min(view.count_by_master().values()) >= 1
