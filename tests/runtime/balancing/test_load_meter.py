"""A node reports its load on the load topic, reads the others' reports there, and plans by them."""

from pathlib import Path

import attrs

from balancer.planner.problem import Unfit
from balancer.registry.catalogue import INTERNAL_TOPICS
from balancer.registry.commands import CreateTopic, DrainNode
from balancer.registry.load import LOAD_TOPIC, encode_report
from broker.proposals.commands import records
from node import Node
from paxos.ids import MS, REGISTRY_GROUP, GroupId, NodeId
from tests.runtime.one_node import one_node, run_until
from wire.records.batch import Record
from wire.records.batch_writer import build_batch


def produced(node: Node, uid: int, group: GroupId, *values: bytes) -> None:
    outcomes: list[object] = []
    batch = memoryview(build_batch([Record(value) for value in values]))
    node.engine.submit(group, records(uid, batch), outcomes.append)
    run_until(node, lambda: outcomes)


def test_a_node_reports_its_load_where_every_node_and_client_can_read_it(tmp_path: Path) -> None:
    with one_node(tmp_path, groups=2) as node:
        run_until(node, lambda: node.planner.cluster_load.reports)
        topic = node.registry.topic(LOAD_TOPIC)
        assert topic is not None
        assert [place.group for place in topic.partitions] == [REGISTRY_GROUP]
        assert topic.name in INTERNAL_TOPICS
        first = node.planner.cluster_load.reports[NodeId(1)]
        assert node.meter.reports_sent == 1
        reported = {load.group for load in first.groups}
        assert {REGISTRY_GROUP} <= reported <= {0, 1, 2}, "those it was the master of by then"
        assert first.uptime_ms < 60_000
        now = node.engine.now()
        assert node.planner.view(now).unfit == {1: Unfit.RESTARTED}

        made: list[object] = []
        node.client.propose(CreateTopic("t", b"t" * 16, 2, 1), made.append)
        run_until(node, lambda: made and all(map(node.engine.acting, node.engine.intakes)))
        node.broker.traffic.produced(GroupId(1), 3_000)
        node.broker.traffic.fetched(GroupId(2), 1_000)
        node.broker.traffic.waited(7 * MS)
        told = node.meter.sample(node.engine.now())
        by_group = {load.group: load for load in told.groups}
        assert sorted(by_group) == [0, 1, 2]
        assert (by_group[GroupId(1)].bytes_in, by_group[GroupId(1)].requests) == (3_000, 1)
        assert by_group[GroupId(2)].bytes_out == 1_000
        assert by_group[GroupId(1)].cpu_us > by_group[GroupId(2)].cpu_us > 0
        assert told.produce_p99_us == 7_000
        assert node.meter.sample(node.engine.now()).produce_p99_us == 0


def test_the_topic_takes_no_group_from_users(tmp_path: Path) -> None:
    """Users' partitions are placed as if it did not exist."""
    with one_node(tmp_path, groups=2) as node:
        run_until(node, lambda: node.planner.cluster_load.reports)
        made: list[object] = []
        node.client.propose(CreateTopic("t", b"t" * 16, 4, 1), made.append)
        run_until(node, lambda: made)
        topic = node.registry.topic("t")
        assert topic is not None
        assert [place.group for place in topic.partitions] == [1, 2, 1, 2]


def test_what_is_no_report_is_counted_and_passed_over(tmp_path: Path) -> None:
    """Clients may not produce there, and the meaning of a newer node's report must not be
    guessed."""
    with one_node(tmp_path, groups=1) as node:
        run_until(node, lambda: node.planner.cluster_load.reports)
        topic = node.registry.topic(LOAD_TOPIC)
        assert topic is not None
        uid = topic.partitions[0].uid
        produced(node, uid, REGISTRY_GROUP, b"nonsense", b"{}")
        assert node.meter.reports_bad == 2
        assert list(node.planner.cluster_load.reports) == [1]


def test_what_nodes_say_of_their_producers_paces_steals(tmp_path: Path) -> None:
    """A report of another node, as this node would read it from its own log: it is slow."""
    with one_node(tmp_path, groups=1) as node:
        run_until(node, lambda: node.planner.cluster_load.reports)
        topic = node.registry.topic(LOAD_TOPIC)
        assert topic is not None
        assert node.loop.view(node.engine.now()).slow == frozenset()
        mine = node.meter.sample(node.engine.now())
        other = attrs.evolve(mine, node=NodeId(2), produce_p99_us=5_000_000, interval_ms=5_000)
        produced(node, topic.partitions[0].uid, REGISTRY_GROUP, encode_report(other))
        assert node.loop.view(node.engine.now()).slow == {2}


def test_the_drain_of_the_only_node_changes_nothing(tmp_path: Path) -> None:
    """There is nobody to plan for, and the masters have to be somewhere."""
    with one_node(tmp_path, groups=2) as node:
        run_until(node, lambda: node.registry.placement)
        done: list[object] = []
        node.client.propose(DrainNode(NodeId(1), True), done.append)
        run_until(node, lambda: done)
        run_until(node, lambda: node.planner.state == "even")
        assert node.registry.plans == ()
        assert node.planner.adopted == 0
