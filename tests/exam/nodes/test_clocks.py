"""Exam row C1: the wall clock of a running node jumps by five minutes, or to and fro.

Nothing changes: leases use a clock that follows the system's only slowly (runtime/system/clock.py),
and so do the timestamps that a master gives to records (LogAppendTime). A node that *starts* with a
wrong clock learns that from its peers and is master of nothing until the clock is corrected.
"""

import random
import time
from functools import partial
from pathlib import Path

import pytest
import trio
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    TopicPartition,
)

from balancer.stealing.judgement import NODE_MUTE_NS
from cluster import health
from cluster.status import ClusterView
from cluster.workload import MS
from tests.cluster.scenery import (
    FULL,
    PARTITIONS,
    READ_S,
    STEP_S,
    TOPIC,
    acknowledged,
    everything_has_a_master,
    in_thread,
    judge,
    load,
    until,
)
from tests.doses import ONLY_IN_FULL
from tests.exam.hurting import Hurting, hurting

pytestmark = pytest.mark.cluster

JUMP_S = 300
HOLD_S = 3.0
"""Longer than a lease: every group is renewed under the wrong clock."""
A_FEW = 5
RATE = 300
MUTED_S = NODE_MUTE_NS / 1e9
"""A node is muted for this long after three failed steals in a row, as can happen if it is killed
again and again on a busy machine."""
STAMP_ERROR_MS = 1_000
"""The error of a clock that follows the system's by 1 ms a second, for the length of this exam."""
FAULTS = (str(JUMP_S), str(-JUMP_S), f"strobe {JUMP_S} 0.05", f"strobe {JUMP_S} 0.7")


def epochs(view: ClusterView) -> dict[int, tuple[int | None, tuple[int, int]]]:
    """Which node is master of what, and under which ballot: none of it changes without a reason."""
    return {row.group: (row.master, row.ballot) for row in view.groups}


async def test_a_wall_clock_that_jumps_changes_nothing(tmp_path: Path) -> None:
    dice = random.Random(1)
    doses = [(node, fault) for node in (1, 2, 3) for fault in FAULTS]
    doses = doses if FULL else dice.sample(doses, 2)
    began_ms = time.time_ns() // MS
    async with hurting(tmp_path, configs={"message.timestamp.type": "LogAppendTime"}) as hurt:
        cluster = hurt.cluster
        async with load(cluster, "p", rate=RATE) as producer:
            await acknowledged(producer, A_FEW)
            settled = await until(cluster, at_home, "masters are where they belong")
            for node, fault in doses:
                hurt.marks.fault(f"wall clock of node {node}: {fault}")
                hurt.order(node, "wall", fault)
                await trio.sleep(HOLD_S)
                view = await until(cluster, everything_has_a_master, "masters are known")
                assert epochs(view) == epochs(settled), f"{fault} on node {node}"
                hurt.recall(node, "wall")
                await acknowledged(producer, A_FEW)
                hurt.marks.heal()
            view = await until(cluster, everything_has_a_master, "masters are known")
            assert epochs(view) == epochs(settled)
        await judge(cluster, producer)
        found = await in_thread(partial(timestamps, cluster.spec.bootstrap))
        assert sum(map(len, found.values())) == producer.acknowledged
        ended_ms = time.time_ns() // MS
        for partition, stamps in sorted(found.items()):
            assert stamps == sorted(stamps), f"partition {partition} goes back"
            assert began_ms - STAMP_ERROR_MS <= stamps[0], f"partition {partition}"
            assert stamps[-1] <= ended_ms + STAMP_ERROR_MS, f"partition {partition}"


def timestamps(bootstrap: str) -> dict[int, list[int]]:
    """The masters' timestamps of all messages, by partition in the order of offsets."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "stamps"})
    found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    try:
        places = [TopicPartition(TOPIC, number) for number in found]
        left = {
            place.partition: consumer.get_watermark_offsets(place, timeout=READ_S)[1]
            for place in places
        }
        consumer.assign([TopicPartition(TOPIC, number, OFFSET_BEGINNING) for number in found])
        deadline = time.monotonic() + READ_S
        while any(len(found[number]) < left[number] for number in found):
            assert time.monotonic() < deadline, "not all timestamps came in time"
            for message in consumer.consume(2000, timeout=0.1):
                assert message.error() is None, message.error()
                kind, stamp_ms = message.timestamp()
                assert kind == TIMESTAMP_LOG_APPEND_TIME
                found[message.partition()].append(stamp_ms)
    finally:
        consumer.close()
    return found


def at_home(view: ClusterView) -> bool:
    return everything_has_a_master(view) and view.all_at_ideal


@pytest.mark.skipif(not FULL, reason=ONLY_IN_FULL)
@pytest.mark.parametrize("jump_s", [JUMP_S, -JUMP_S])
async def test_a_node_that_starts_with_a_wrong_clock_is_master_of_nothing(
    tmp_path: Path, jump_s: int
) -> None:
    """It does not disturb the others; with its clock corrected it becomes a master again."""
    victim = 2
    async with hurting(tmp_path) as hurt:
        cluster = hurt.cluster
        async with load(cluster, "p", rate=RATE) as producer:
            await acknowledged(producer, A_FEW)
            hurt.marks.fault(f"node {victim} starts {jump_s} s off")
            await cluster.kill(victim)
            await until(cluster, lambda view: without(view, victim), "the others take over")
            hurt.order(victim, "wall", str(jump_s))
            cluster.start(victim)
            await until(cluster, lambda view: distrusts(view, victim), "it knows its clock is off")
            told = await not_ready(hurt, victim)
            assert "clock is off" in told, told
            before = await until(cluster, lambda view: settled(view, victim), "masters stay")
            await trio.sleep(HOLD_S)
            await acknowledged(producer, A_FEW)
            after = await until(cluster, everything_has_a_master, "masters are known")
            assert epochs(after) == epochs(before)
            await cluster.kill(victim)
            hurt.recall(victim, "wall")
            await cluster.restart(victim)
            await until(
                cluster, at_home, "it is master of something again", within_s=STEP_S + MUTED_S
            )
            hurt.marks.heal()
            await acknowledged(producer, A_FEW)
        await judge(cluster, producer)


def without(view: ClusterView, victim: int) -> bool:
    return everything_has_a_master(view) and view.count_by_master()[victim] == 0


def settled(view: ClusterView, victim: int) -> bool:
    """Nothing is left to move, except to the victim."""
    homes = all(row.ideal in (row.master, victim) for row in view.groups)
    return homes and without(view, victim)


def distrusts(view: ClusterView, victim: int) -> bool:
    status = next(row.status for row in view.nodes if row.spec.id == victim)
    return status is not None and not status["clock_trusted"]


async def not_ready(hurt: Hurting, node: int) -> str:
    """The node's own reason for not being ready."""
    http = hurt.cluster.spec.node(node).http
    answer = ""
    with trio.move_on_after(30):
        while "clock is off" not in answer:
            _, body = await trio.to_thread.run_sync(
                lambda: health.request(http, "GET", "/readyz", timeout_s=10)
            )
            answer = body.decode()
            await trio.sleep(0.1)
    return answer
