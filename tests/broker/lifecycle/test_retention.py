"""Records that are too old or too many are removed, on every replica alike, and not before."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balancer.registry.commands import ConfigureTopic
from broker.config import BrokerConfig
from broker.lifecycle.retention import STEP, Retention, due, retention_of
from broker.proposals.intake import FailureReason
from broker.state_machine.batch_index import BLOCK_BATCHES, BatchIndex
from broker.state_machine.partition import PartitionState
from paxos.ids import MS
from storage.cold.format import ColdSegment
from storage.errors import ColdDamaged
from tests.broker.batches import START_MS, batch
from tests.broker.data_world import TOPIC, TOPIC_ID, DataWorld, want
from tests.broker.fakes import START_WALL_NS, FakeCold
from wire.error_codes import ErrorCode

CONFIG = BrokerConfig(cluster_id="c", groups_count=1, retention_ms=5_000)


def partition(*times: int, settled: int = 0) -> PartitionState:
    """One batch of one record for each time; the first ones are in the cold store, two per
    segment."""
    cold = FakeCold(segment_batches=2)
    state = PartitionState(1, cold=cold)
    data = bytearray()
    for number, time_ms in enumerate(times):
        one = batch(f"{number:04}", at_ms=time_ms)
        state.append(memoryview(one), len(data), 1)
        data += one
    if settled:
        plan = state.copy_plan(1 << 40, settled)
        assert plan is not None
        cold.settle(plan, lambda position, size: memoryview(bytes(data))[position:][:size])
        state.mark_tiered(plan.end)
    return state


@pytest.mark.parametrize(
    ("configs", "expected"),
    [
        ({}, Retention(5_000, -1, 1 << 26)),
        ({"retention.ms": "-1"}, None),
        ({"retention.ms": "7", "segment.bytes": "1048576"}, Retention(7, -1, 1 << 20)),
        ({"retention.ms": "-1", "retention.bytes": "9"}, Retention(-1, 9, 1 << 26)),
        ({"cleanup.policy": "compact"}, None),
        ({"cleanup.policy": "compact,delete"}, Retention(5_000, -1, 1 << 26)),
    ],
)
def test_the_rules_of_a_topic(configs: dict[str, str], expected: Retention | None) -> None:
    assert retention_of(configs, CONFIG) == expected


@pytest.mark.parametrize(
    ("times", "settled", "now", "expected"),
    [
        ([0, 10, 20, 3_000], 0, 1_000, None),  # nothing is too old
        ([0, 10, 20, 3_000], 0, 1_015, None),  # too little to be worth a command
        ([0, 10, 20, 3_000], 0, 1_100, 3),
        ([0, 10, 20, 3_000], 0, 9_000, 4),
        ([0, 5_000, 10, 3_000], 0, 1_100, 1),  # a record from the future keeps what is behind it
        ([0, 10, 20, 30, 3_000], 4, 1_015, 2),  # cold segments are removed whole
        ([0, 10, 20, 30, 3_000], 4, 1_025, 2),
        ([0, 10, 20, 30, 3_000], 4, 1_031, 4),
        ([0, 10, 20, 30, 40, 3_000], 4, 1_200, 5),  # and on into the log
        ([0, 9_000, 20, 30, 40, 50], 4, 2_000, None),
    ],
)
def test_what_is_too_old(times: list[int], settled: int, now: int, expected: int | None) -> None:
    state = partition(*times, settled=settled)
    assert due(state, Retention(ms=1_000), START_MS + now) == expected


@pytest.mark.parametrize(
    ("settled", "kept", "expected"), [(0, 5, None), (0, 3, 2), (0, 0, 5), (4, 4, None), (4, 2, 2)]
)
def test_what_is_too_many(settled: int, kept: int, expected: int | None) -> None:
    """Of five batches this many may stay; a segment is removed when all of it is too much."""
    state = partition(*range(5), settled=settled)
    size = state.bytes_held // 5
    assert due(state, Retention(bytes=kept * size), START_MS) == expected
    assert due(state, Retention(bytes=5 * size - size // STEP), START_MS) is None


def test_a_batch_without_a_time_goes_with_the_next_one_that_has_one() -> None:
    without = -START_MS - 1
    state = partition(0, without, 10, without, without)
    assert due(state, Retention(ms=1_000), START_MS + 9_000) == 3
    assert due(partition(without, without), Retention(ms=1_000), START_MS + 9_000) is None
    index = BatchIndex()
    for number in range(3 * BLOCK_BATCHES):
        index.append(number, number, 1, 5 if number == 7 else -1)
    assert index.behind_last_timed(index.stop) == 8
    index.drop_before(8)
    assert index.behind_last_timed(index.stop) == index.first


@settings(max_examples=100)
@given(
    times=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    settled=st.integers(0, 30),
    ms=st.integers(0, 200),
    now=st.integers(0, 600),
    seed=st.integers(0, 999),
)
def test_nothing_goes_that_is_still_wanted(
    times: list[int], settled: int, ms: int, now: int, seed: int
) -> None:
    """By age: never a batch younger than the limit, nor one after such a batch. By size: what is
    left is never below the limit."""
    state = partition(*times, settled=settled)
    offset = due(state, Retention(ms=ms), START_MS + now)
    if offset is not None:
        assert all(time_ms < now - ms for time_ms in times[:offset])
    kept_bytes = Random(seed).randrange(state.bytes_held + 10)
    offset = due(state, Retention(bytes=kept_bytes), START_MS)
    if offset is not None:
        assert state.bytes_from(offset) >= kept_bytes


# -- the master ------------------------------------------------------------------------------------


def tick(world: DataWorld, node: int = 1, times: int = 1) -> None:
    world[node].broker.retention.tick(world.cluster.clock.now())  # the first pass waits as well
    for _ in range(times):
        world.cluster.clock.boot_ns += 10_000 * MS
        world[node].broker.retention.tick(world.cluster.clock.now())
        world.settle()


def aged_world(**configs: str) -> DataWorld:
    """Two old records and a new one in partition 0, by the wall clock of the cluster."""
    world = DataWorld()
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {k.replace("_", "."): v for k, v in configs.items()}))
    now_ms = (START_WALL_NS + world.cluster.clock.boot_ns) // MS - START_MS
    for age_ms in (9_000_000, 8_000_000, 0):
        world.produce(1, 0, batch("x", at_ms=now_ms - age_ms))
    return world


def starts(world: DataWorld) -> list[int]:
    return [
        node.machines[world.group(0)].partitions[world.uid(0)].log_start
        for node in world.nodes.values()
    ]


def test_the_master_proposes_and_all_replicas_delete() -> None:
    world = aged_world(retention_ms="3600000")
    tick(world, node=2)
    assert starts(world) == [0, 0, 0], "who is no master deletes nothing"
    tick(world)
    assert starts(world) == [2, 2, 2]
    assert world[1].statistics.retention_trims == 1
    assert world[1].statistics.retention_records == 2
    assert world.fetch(1, want(0, 1)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert world.fetch(1, want(0, 2)).error_code == ErrorCode.NONE


def test_a_topic_that_keeps_all_keeps_all_until_that_is_changed() -> None:
    world = aged_world()
    tick(world, times=3)
    assert starts(world) == [0, 0, 0]
    world.run(ConfigureTopic(TOPIC, TOPIC_ID, {"retention.ms": "3600000"}))
    tick(world)
    assert starts(world) == [2, 2, 2]


@pytest.mark.parametrize("why", list(FailureReason))
def test_what_was_not_carried_out_is_tried_again_in_the_next_pass(why: FailureReason) -> None:
    world = aged_world(retention_ms="3600000")
    world[1].groups.refuse = why
    tick(world, times=2)
    assert starts(world) == [0, 0, 0]
    world[1].groups.refuse = None
    tick(world)
    assert starts(world) == [2, 2, 2]


def test_nothing_is_deleted_by_a_clock_that_is_not_trusted() -> None:
    world = aged_world(retention_ms="3600000")
    world.cluster.clock.trusted = False
    tick(world, times=3)
    assert starts(world) == [0, 0, 0]


def test_damage_is_reported_and_the_pass_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = aged_world(retention_ms="3600000")
    world.produce(1, 1, batch("x", at_ms=-4_000_000))
    segments, damaged = FakeCold.segments, world.uid(0)

    def read(cold: FakeCold, uid: int) -> list[ColdSegment]:
        if uid == damaged:
            raise ColdDamaged(uid, 5, 9, "cold", 512)
        return segments(cold, uid)

    monkeypatch.setattr(FakeCold, "segments", read)
    tick(world)
    assert starts(world) == [0, 0, 0]
    assert world[1].statistics.retention_trims == 1, "of the other partition"
    assert list(world[1].statistics.damaged_cold) == [(damaged, 5)]


def test_a_pass_looks_at_a_bounded_number_of_partitions_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker.lifecycle.retention.LOOKS_MAX", 1)
    world = aged_world(retention_ms="3600000")
    for partition_index in range(1, 4):
        world.produce(1, partition_index, batch("x", at_ms=-4_000_000))
    retention = world[1].broker.retention
    retention.tick(world.cluster.clock.now())
    assert world[1].statistics.retention_trims == 0, "a start has other things to do"
    world.cluster.clock.boot_ns += 10_000 * MS
    moved = []
    for _ in range(6):
        retention.tick(world.cluster.clock.now())
        world.settle()
        moved.append(world[1].statistics.retention_trims)
    assert moved == [1, 2, 3, 4, 4, 4]


def test_sizes_are_those_of_all_partitions_here_in_log_and_cold_store() -> None:
    world = DataWorld()
    for partition_index in (0, 0, 0, 1):
        world.produce(1, partition_index, batch("x"))
    world.settle_log(2)
    for node in (1, 2):
        tick(world, node=node)
        size = world[node].broker.retention.sizes[TOPIC]
        assert (size.records, size.bytes) == (4, 4 * len(batch("x")))
