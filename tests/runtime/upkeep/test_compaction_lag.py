"""A whole node keeps to `max.compaction.lag.ms`, also for a quiet and small topic."""

import time
from pathlib import Path

import pytest

from balancer.registry.commands import CreateTopic
from broker.lifecycle.compaction_lag import EVERY_NS, EVERYTHING
from broker.proposals.commands import records
from broker.reads.disk_reads import read_waiting
from node import Node
from tests.broker.batches import whole_batches
from tests.runtime.one_node import one_node, run_until
from wire.records.batch import DECOMPRESSED_BYTES_MAX, Record, iterate_records
from wire.records.batch_writer import build_batch
from wire.records.compression import decompress

HOUR_MS = 3_600_000
COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1"}


def ready(node: Node, configs: dict[str, str]) -> None:
    run_until(node, lambda: node.registry.cluster is not None and node.registry.placement)
    run_until(node, lambda: all(map(node.engine.acting, node.engine.intakes)))
    made: list[object] = []
    node.client.propose(CreateTopic("t", b"t" * 16, 1, 1, COMPACTED | configs), made.append)
    run_until(node, lambda: made)


def produce(node: Node, age_ms: int, *keys: bytes) -> None:
    topic = node.registry.topic("t")
    assert topic is not None
    when = time.time_ns() // 1_000_000 - age_ms
    batch = build_batch([Record(b"v", key, timestamp_ms=when) for key in keys])
    outcomes: list[object] = []
    uid, group = topic.partitions[0]
    node.engine.submit(group, records(uid, memoryview(batch)), outcomes.append)
    run_until(node, lambda: outcomes)


def settle(node: Node) -> None:
    """Tier what is in the log to the partition's file, as happens when the log is full."""
    topic = node.registry.topic("t")
    assert topic is not None
    uid, group = topic.partitions[0]
    node.upkeep.tiering.tier_early(group, uid, EVERYTHING)


def left(node: Node) -> list[tuple[int, bytes | None]]:
    """Offset and key of each record that a consumer gets."""
    topic = node.registry.topic("t")
    assert topic is not None
    uid, group = topic.partitions[0]
    state = node.machines[group].partitions[uid]
    offset, found = state.log_start, list[tuple[int, bytes | None]]()
    while offset < state.next_offset:
        buffers, _ = read_waiting(node.tail, node.wal, node.statistics, state, offset, 1 << 20)
        for batch in whole_batches(memoryview(b"".join(buffers))):
            payload = decompress(batch, DECOMPRESSED_BYTES_MAX)
            found += [(one.offset, one.key) for one in iterate_records(batch, payload)]
            offset = batch.header.last_offset + 1
    return found


def test_what_waits_for_too_long_is_compacted_wherever_it_lies(tmp_path: Path) -> None:
    """A bug: of ten keys written five times each, all fifty records stayed for good, first in the
    log, then in a file that was never full."""
    with one_node(tmp_path, "storage.compact_check_ms=20", groups=1) as node:
        ready(node, {"max.compaction.lag.ms": str(HOUR_MS)})
        for age_ms in (HOUR_MS + 5_000, HOUR_MS + 4_000, 3_000):
            produce(node, age_ms, b"a", b"b", b"a")
        run_until(node, lambda: left(node) == [(7, b"b"), (8, b"a")])
        produce(node, 0, b"a")
        produce(node, 0, b"a")
        run_until(node, lambda: node.upkeep.compactor.statistics.rounds >= 1)
        assert left(node)[-2:] == [(9, b"a"), (10, b"a")], "they are young"
    with one_node(tmp_path, "storage.compact_check_ms=20", groups=1) as node:
        run_until(node, lambda: left(node) == [(7, b"b"), (8, b"a"), (9, b"a"), (10, b"a")])


@pytest.mark.parametrize("limit", [{}, {"max.compaction.lag.ms": str(3 * HOUR_MS)}])
def test_what_may_wait_does(tmp_path: Path, limit: dict[str, str]) -> None:
    with one_node(tmp_path, "storage.compact_check_ms=20", groups=1) as node:
        ready(node, limit)
        for _ in range(3):
            produce(node, HOUR_MS, b"a")
        looked_at_ns = node.engine.now().boot_ns + 2 * EVERY_NS
        run_until(node, lambda: node.engine.now().boot_ns > looked_at_ns)
        assert left(node) == [(0, b"a"), (1, b"a"), (2, b"a")]
        assert node.upkeep.tiering.statistics.batches_tiered == 0
        settle(node)
        settled = node.upkeep.tiering.statistics
        run_until(node, lambda: settled.batches_tiered == 3)
        looked_at_ns = node.engine.now().boot_ns + 2 * EVERY_NS
        run_until(node, lambda: node.engine.now().boot_ns > looked_at_ns)
        assert left(node) == [(0, b"a"), (1, b"a"), (2, b"a")], "its file is still appended to"


def test_what_is_too_young_is_not_taken_along(tmp_path: Path) -> None:
    """`min.compaction.lag.ms`: young records stay, and the older ones do not wait for them."""
    with one_node(tmp_path, "storage.compact_check_ms=20", groups=1) as node:
        limits = {"max.compaction.lag.ms": str(HOUR_MS), "min.compaction.lag.ms": str(HOUR_MS // 2)}
        ready(node, limits)
        for age_ms in (HOUR_MS + 5_000, HOUR_MS + 4_000, HOUR_MS // 4, 0):
            produce(node, age_ms, b"a")
        run_until(node, lambda: left(node) == [(1, b"a"), (2, b"a"), (3, b"a")])
