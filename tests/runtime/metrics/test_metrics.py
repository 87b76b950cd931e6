"""The inputs of alerts: consumers' lag, the node's own facts and limits, latencies."""

from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from balancer.registry.commands import Command, CreateTopic, DeleteTopic, DrainNode, PauseBalancer
from balancer.registry.records import Outcome
from balancer.stealing.judgement import StealReason
from broker.proposals import commands
from broker.proposals.commands import CommandKind, opaque, records
from coordinator.model import ConsumerGroupId, MemberId, PartitionOffset, TopicOffsets
from coordinator.replicated.commands import CommitOffsets, encode
from node import Node
from paxos.ids import MS, NOBODY, GroupId, NodeId
from runtime.metrics import consumers as consumer_metrics
from runtime.metrics.node import NODE_STATES
from tests.runtime.one_node import LEASE_MS, one_node, run_until
from wire.error_codes import ErrorCode
from wire.records.batch import Record
from wire.records.batch_writer import build_batch
from wire.software import VERSION

PARTITIONS = 4
Rows = dict[tuple[str, str], float]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with one_node(tmp_path, "limits.connections_max=765") as node:
        run_until(node, lambda: not node.shell.not_ready())
        yield node


def value(node: Node, name: str, **labels: str) -> float | None:
    return node.metrics_registry.get_sample_value(name, labels)


def done(node: Node, command: Command) -> None:
    results: list[object] = []
    node.client.propose(command, results.append)
    run_until(node, lambda: results)


# -- consumers ------------------------------------------------------------------------------------


def with_topic(node: Node, name: str, appended: int) -> None:
    """Every partition but the last gets that many records."""
    done(node, CreateTopic(name, name.encode().ljust(16), PARTITIONS, 1))
    outcomes: list[object] = []
    for uid, group in node.registry.topics[name].partitions[: PARTITIONS - 1]:
        batch = memoryview(build_batch([Record(b"value")] * appended))
        node.engine.submit(group, records(uid, batch), outcomes.append)
    run_until(node, lambda: len(outcomes) == PARTITIONS - 1)


def commit(node: Node, consumer_group: str, topic: str, offsets: dict[int, int]) -> None:
    name = ConsumerGroupId(consumer_group)
    parts = tuple(PartitionOffset(number, offset, -1, "") for number, offset in offsets.items())
    command = CommitOffsets(name, -1, MemberId(""), None, 0, (TopicOffsets(topic, parts),))
    outcomes: list[object] = []
    chunks = opaque(CommandKind.CONSUMER_GROUP, encode(command))
    node.engine.submit(GroupId(1), chunks, outcomes.append)
    run_until(node, lambda: outcomes)


def rows(node: Node, name: str) -> Rows:
    return {
        (sample.labels["consumer_group"], sample.labels["topic"]): sample.value
        for family in consumer_metrics.consumer_metrics(node.broker)
        for sample in family.samples
        if sample.name == name
    }


def lags(node: Node) -> Rows:
    return rows(node, "evenkeel_consumer_lag")


def test_lag_is_what_was_appended_and_not_committed(node: Node) -> None:
    with_topic(node, "orders", appended=10)
    commit(node, "readers", "orders", {0: 10, 1: 4, 3: 0})
    assert lags(node) == {("readers", "orders"): 6}, "what has no offset is not counted"
    assert rows(node, "evenkeel_consumer_committed") == {("readers", "orders"): 14}
    commit(node, "readers", "orders", {1: 10})
    assert lags(node) == {("readers", "orders"): 0}
    assert value(node, "evenkeel_consumer_groups") == 1
    assert value(node, "evenkeel_consumer_lag_unknown") == 0
    done(node, DeleteTopic("orders"))
    assert lags(node) == {}


def delete_records(node: Node, topic: str, partition: int, before: int) -> None:
    uid, group = node.registry.topics[topic].partitions[partition]
    outcomes: list[object] = []
    node.engine.submit(group, commands.delete_records(uid, before), outcomes.append)
    run_until(node, lambda: outcomes)


def test_what_retention_took_is_nobodys_lag(node: Node) -> None:
    with_topic(node, "orders", appended=10)
    commit(node, "readers", "orders", {0: 2, 1: 8})
    assert lags(node) == {("readers", "orders"): 8 + 2}
    delete_records(node, "orders", 0, 7)
    assert lags(node) == {("readers", "orders"): 3 + 2}
    delete_records(node, "orders", 0, 10)
    assert lags(node) == {("readers", "orders"): 0 + 2}


def test_an_offset_beyond_the_end_is_no_negative_lag(node: Node) -> None:
    with_topic(node, "orders", appended=10)
    commit(node, "readers", "orders", {0: 12, 1: 9})
    assert lags(node) == {("readers", "orders"): 1}


def test_only_who_coordinates_tells_the_lag(node: Node) -> None:
    """Otherwise a sum over nodes would count it three times."""
    with_topic(node, "orders", appended=10)
    commit(node, "readers", "orders", {0: 0})
    node.multi.replicas[GroupId(1)].lease.holder = NOBODY
    assert lags(node) == {}


def test_partitions_kept_by_others_are_told(node: Node) -> None:
    with_topic(node, "orders", appended=10)
    groups = [place.group for place in node.registry.topics["orders"].partitions]
    here, there = groups.index(GroupId(1)), groups.index(GroupId(2))
    commit(node, "readers", "orders", {here: 3, there: 4})
    elsewhere = GroupId(2)
    machine = node.machines.pop(elsewhere)
    try:
        assert lags(node) == {("readers", "orders"): 7}
        assert value(node, "evenkeel_consumer_lag_unknown") == 1
    finally:
        node.machines[elsewhere] = machine


def test_what_a_scrape_shows_and_looks_at_is_bounded(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_metrics, "ROWS_SHOWN_MAX", 2)
    with_topic(node, "orders", appended=10)
    for number in range(5):
        commit(node, f"readers-{number}", "orders", {0: number})
    assert lags(node) == {
        ("readers-0", "orders"): 10,
        ("readers-1", "orders"): 9,
        ("(others)", "(others)"): 8 + 7 + 6,
    }
    monkeypatch.setattr(consumer_metrics, "OFFSETS_SEEN_MAX", 2)
    assert lags(node) == {("readers-0", "orders"): 10, ("readers-1", "orders"): 9}
    assert value(node, "evenkeel_consumer_groups_left_out") == 3


# -- the node -------------------------------------------------------------------------------------


def test_the_facts_and_limits_of_a_node(node: Node) -> None:
    assert value(node, "evenkeel_node_info", version=VERSION, durability="fsync") == 1
    assert value(node, "evenkeel_ready") == 1
    assert value(node, "evenkeel_lease_seconds") == LEASE_MS / 1000
    assert value(node, "evenkeel_clock_margin_seconds") == 0.1
    assert value(node, "evenkeel_connections_limit") == 765
    limit = node.config.limits.pending_bytes_per_node
    assert value(node, "evenkeel_unanswered_limit_bytes") == limit
    window = value(node, "evenkeel_log_window_limit_bytes")
    assert window == pytest.approx(node.config.storage.log_bytes, abs=4 << 20)
    assert value(node, "evenkeel_nodes", state="serving") == 1
    started = value(node, "process_start_time_seconds")
    assert started is not None
    assert 0 < node.engine.now().wall_ns / 1e9 - started < 24 * 3600, "the process of the tests"
    before = value(node, "process_cpu_seconds_total")
    assert before is not None
    assert before > 0
    sum(range(1_000_000))
    after = value(node, "process_cpu_seconds_total")
    assert after is not None
    assert after > before


def test_not_ready_and_draining_are_told(tmp_path: Path) -> None:
    with one_node(tmp_path) as node:
        assert value(node, "evenkeel_ready") == 0
        run_until(node, lambda: not node.shell.not_ready())
        assert value(node, "evenkeel_ready") == 1
        node.loop.start_draining()
        assert value(node, "evenkeel_ready") == 0


def test_nodes_are_told_by_state(node: Node) -> None:
    def shown() -> list[float | None]:
        return [value(node, "evenkeel_nodes", state=state) for state in NODE_STATES]

    assert shown() == [1, 0, 0]
    done(node, DrainNode(NodeId(1), True))
    assert shown() == [0, 1, 0]
    roster, known = node.registry._roster, node.registry.nodes[NodeId(1)]
    both = {NodeId(1): known, NodeId(2): known}  # nobody has heard of the other one
    node.registry._roster = attrs.evolve(roster, nodes=both)
    assert shown() == [0, 1, 1]


def test_machines_are_told_where_nodes_have_one(node: Node, tmp_path: Path) -> None:
    assert value(node, "evenkeel_machine_nodes", machine="") is None
    (tmp_path / "other").mkdir()
    with one_node(tmp_path / "other", "node.zone=a") as on_a:
        run_until(on_a, lambda: not on_a.shell.not_ready())
        everywhere = len(on_a.registry.groups)
        run_until(on_a, lambda: value(on_a, "evenkeel_machine_masters", machine="a") == everywhere)
        assert value(on_a, "evenkeel_machine_nodes", machine="a") == 1
        assert value(on_a, "evenkeel_machine_crowded_groups", machine="a") == 0
        assert value(on_a, "evenkeel_machine_stops_groups", machine="a") == 0


def test_pauses_are_told(node: Node) -> None:
    assert value(node, "evenkeel_balancer_paused") == 0
    done(node, PauseBalancer(True))
    assert value(node, "evenkeel_balancer_paused") == 1
    done(node, PauseBalancer(False))
    done(node, PauseBalancer(True, GroupId(2)))
    assert value(node, "evenkeel_balancer_paused") == 0
    assert value(node, "evenkeel_groups_paused") == 1


def test_a_mastership_is_counted_once_however_often_it_pauses(node: Node) -> None:
    assert value(node, "evenkeel_masterships_total", group="2") == 1
    replica = node.multi.replicas[GroupId(2)]
    node.clock.trusted = False
    node.engine.tick()
    assert value(node, "evenkeel_group_acting", group="2") == 0
    node.clock.trusted = True
    node.engine.tick()
    assert value(node, "evenkeel_group_acting", group="2") == 1
    assert value(node, "evenkeel_masterships_total", group="2") == 1
    replica.lease.epoch = type(replica.lease.epoch)(replica.lease.epoch + 2)  # somebody between
    node.engine.tick()
    assert value(node, "evenkeel_masterships_total", group="2") == 2


def test_what_did_not_happen_yet_is_0_and_not_absent(node: Node) -> None:
    """A rate needs a first value: otherwise the first failure would go unseen."""
    for outcome in Outcome:
        assert value(node, "evenkeel_steals_total", outcome=outcome.name.lower()) == 0
    reasons = {why: value(node, "evenkeel_balance_groups", reason=why.value) for why in StealReason}
    assert sum(count or 0 for count in reasons.values()) == 4, "every group has one"
    assert None not in reasons.values()
    assert value(node, "evenkeel_errors_total", code=str(int(ErrorCode.REQUEST_TIMED_OUT))) == 0
    assert value(node, "evenkeel_groups", master="none") == 0


def test_latencies_are_histograms(node: Node) -> None:
    for ms in (1, 3, 9_000):
        node.broker.traffic.waited(ms * MS)
    node.broker.traffic.fetch.took(20 * MS)
    bucket = "evenkeel_produce_seconds_bucket"
    assert value(node, bucket, le="0.001") == 1
    assert value(node, bucket, le="0.005") == 2
    assert value(node, bucket, le="5.0") == 2
    assert value(node, bucket, le="+Inf") == value(node, "evenkeel_produce_seconds_count") == 3
    assert value(node, "evenkeel_produce_seconds_sum") == pytest.approx(9.004)
    assert value(node, "evenkeel_fetch_seconds_sum") == pytest.approx(0.02)
