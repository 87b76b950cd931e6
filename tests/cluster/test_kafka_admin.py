"""Kafka's own administration of leaders, with two unmodified clients, on real nodes."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition, admin

from cluster import health, rolling
from cluster.balance import ask
from cluster.launcher import Launcher
from cluster.status import ClusterView
from tests.cluster.scenery import PARTITIONS, TOPIC, in_thread, three_nodes, until
from tests.cluster.test_balance import is_even
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster

WAIT_S = 15.0


def leaders(client: admin.AdminClient) -> dict[int, int]:
    found = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
    return {number: one.leader for number, one in found.partitions.items()}


def preferred(client: admin.AdminClient) -> dict[int, int]:
    found = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
    return {number: one.replicas[0] for number, one in found.partitions.items()}


def elect(client: admin.AdminClient, partition: int) -> int | None:
    """The error's code, None if there was none."""
    places = [TopicPartition(TOPIC, partition)]
    done = client.elect_leaders(ElectionType.PREFERRED, places)
    (error,) = done.result(WAIT_S).values()
    return None if error is None else int(error.code())


async def post(cluster: Launcher, path: str, body: object) -> Any:
    http = cluster.spec.node(1).http
    return await health.call_async(http, "POST", path, body, timeout_s=WAIT_S)


def groups_of(cluster: Launcher) -> dict[int, int]:
    """Partition p of the only topic is in group p + 1: six partitions, six groups."""
    return {partition: partition + 1 for partition in range(PARTITIONS)}


async def test_metadata_and_describe_cluster_show_the_truth(tmp_path: Path) -> None:
    """Leaders are the masters, the preferred replica is the ideal one, the nodes are all there."""
    async with three_nodes(tmp_path) as cluster:
        view = await until(cluster, is_even, "masters are even at the start")
        client = admin.AdminClient({"bootstrap.servers": cluster.spec.bootstrap})
        told = (await in_thread(partial(client.describe_cluster, request_timeout=WAIT_S))).result(
            WAIT_S
        )
        assert sorted(node.id for node in told.nodes) == [1, 2, 3]
        assert {f"{node.host}:{node.port}" for node in told.nodes} == {
            str(node.kafka) for node in cluster.spec.nodes
        }
        assert told.controller.id == view.masters()[0], "the registry's master"
        masters = {p: view.masters()[group] for p, group in groups_of(cluster).items()}
        assert await in_thread(partial(leaders, client)) == masters
        assert await in_thread(partial(preferred, client)) == masters


async def test_electing_the_preferred_leader_steals_its_group(tmp_path: Path) -> None:
    """A group is sent home by Kafka's tool; where it may not go, or is already, that is said."""
    async with three_nodes(tmp_path) as cluster:
        await until(cluster, is_even, "masters are even at the start")
        client = admin.AdminClient({"bootstrap.servers": cluster.spec.bootstrap})
        before = await in_thread(partial(leaders, client))
        assert await in_thread(partial(elect, client, 0)) == KafkaError.ELECTION_NOT_NEEDED
        target = 1 + before[0] % 3
        await post(cluster, "/admin/balancer", {"paused": True})
        await post(cluster, "/admin/placement", {"placement": {"1": target}})

        def is_refused() -> bool:
            code = elect(client, 0)
            return code == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE

        assert await in_thread(is_refused)
        await post(cluster, "/admin/balancer", {"paused": False})
        code = await in_thread(partial(elect, client, 0))
        assert code in (None, KafkaError.ELECTION_NOT_NEEDED)  # the balancer may have been faster
        view = await until(cluster, lambda view: view.masters()[1] == target, "group 1 is home")
        assert view.masters()[1] == target


async def test_a_reassignment_to_the_same_nodes_moves_the_group(tmp_path: Path) -> None:
    """With kafka-python, which knows these requests; other nodes are refused by name."""
    kafka = pytest.importorskip("kafka")
    async with three_nodes(tmp_path) as cluster:
        view = await until(cluster, is_even, "masters are even at the start")
        target = 1 + (view.masters()[1] or 0) % 3
        others = [node for node in (1, 2, 3) if node != target]
        place = kafka.TopicPartition(TOPIC, 0)

        def reassigned(replicas: list[int]) -> Any:
            client = kafka.KafkaAdminClient(bootstrap_servers=cluster.spec.bootstrap)
            try:
                answer = client.alter_partition_reassignments({place: replicas})
                return answer[place], client.list_partition_reassignments()
            finally:
                client.close()

        wrong, under_way = await in_thread(partial(reassigned, [target]))
        assert wrong.errno == ErrorCode.INVALID_REPLICA_ASSIGNMENT
        assert under_way == {}
        accepted, _ = await in_thread(partial(reassigned, [target, *others]))
        assert accepted is None

        def moved(view: ClusterView) -> bool:
            return view.masters()[1] == target and is_even(view)

        await until(cluster, moved, "group 1 has moved, and the rest is level")
        running = cluster.now()
        shown = await in_thread(partial(ask, cluster.spec, running, "GET", "/balancer"))
        assert [one["group"] for one in shown["groups"] if one["pinned"]] == [1]


async def test_a_rolling_restart_needs_all_nodes(tmp_path: Path) -> None:
    """With a node down already, taking another one away would stop the cluster: refused."""
    async with three_nodes(tmp_path) as cluster:
        await cluster.kill(2)
        with pytest.raises(rolling.RollingError, match="node 2 does not run"):
            rolling.rolling_restart(cluster.spec, cluster.now(), lambda _line: None)
