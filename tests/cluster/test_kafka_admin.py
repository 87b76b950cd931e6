"""Kafka's own administration of leaders on real nodes, with two unmodified clients."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition, admin

from cluster import health, rolling, status
from cluster.health import ask_any
from cluster.launcher import Launcher
from cluster.spec import plan
from cluster.state import NodeNow, NodeState, State
from cluster.status import ClusterView
from tests.cli.test_balance import is_even
from tests.cluster.scenery import PARTITIONS, TOPIC, in_thread, three_nodes, until
from wire.error_codes import ErrorCode

pytestmark = pytest.mark.cluster
kafka: Any = pytest.importorskip("kafka")  # which also lets its import's warnings pass

WAIT_S = 15.0


def leaders(client: admin.AdminClient) -> dict[int, int]:
    found = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
    return {number: one.leader for number, one in found.partitions.items()}


def preferred(client: admin.AdminClient) -> dict[int, int]:
    found = client.list_topics(TOPIC, timeout=WAIT_S).topics[TOPIC]
    return {number: one.replicas[0] for number, one in found.partitions.items()}


def elect(client: admin.AdminClient, partition: int) -> int | None:
    """The error's code, or None."""
    places = [TopicPartition(TOPIC, partition)]
    done = client.elect_leaders(ElectionType.PREFERRED, places)
    (error,) = done.result(WAIT_S).values()
    return None if error is None else int(error.code())


async def post(cluster: Launcher, path: str, body: object) -> Any:
    http = cluster.spec.node(1).http
    return await health.call_async(http, "POST", path, body, timeout_s=WAIT_S)


async def shows_the_truth(cluster: Launcher, client: admin.AdminClient) -> None:
    """Leaders are the masters, preferred replicas are the ideal nodes, and all nodes are listed."""
    view = await until(cluster, is_even, "masters are even at the start")
    future = await in_thread(partial(client.describe_cluster, request_timeout=WAIT_S))
    told = await in_thread(partial(future.result, WAIT_S))
    assert sorted(node.id for node in told.nodes) == [1, 2, 3]
    assert {f"{node.host}:{node.port}" for node in told.nodes} == {
        str(node.kafka) for node in cluster.spec.nodes
    }
    assert told.controller.id == view.masters()[0], "the registry's master"
    masters = {partition: view.masters()[partition + 1] for partition in range(PARTITIONS)}
    assert await in_thread(partial(leaders, client)) == masters
    assert await in_thread(partial(preferred, client)) == masters


async def elects(cluster: Launcher, client: admin.AdminClient) -> None:
    """Kafka's tool sends a group to its ideal node. If that is impossible or already done, the
    answer says so."""
    before = await in_thread(partial(leaders, client))
    assert await in_thread(partial(elect, client, 0)) == KafkaError.ELECTION_NOT_NEEDED
    target = 1 + before[0] % 3
    await post(cluster, "/admin/balancer", {"paused": True})
    await post(cluster, "/admin/placement", {"placement": {"1": target}})
    refused = await in_thread(partial(elect, client, 0))
    assert refused == KafkaError.PREFERRED_LEADER_NOT_AVAILABLE
    await post(cluster, "/admin/balancer", {"paused": False})
    code = await in_thread(partial(elect, client, 0))
    assert code in (None, KafkaError.ELECTION_NOT_NEEDED)  # the balancer may have been faster
    view = await status.collect(cluster.spec, cluster.now())
    assert view.masters()[1] == target, "whoever is told so finds it so"
    await post(cluster, "/admin/plan", {"dry_run": False})
    await until(cluster, is_even, "masters are even again")


async def reassigns(cluster: Launcher) -> None:
    """With kafka-python, which knows these requests; nodes outside the replica set are refused by
    name."""
    view = await status.collect(cluster.spec, cluster.now())
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
    assert wrong.errno == ErrorCode.INVALID_REPLICATION_FACTOR
    assert under_way == {}
    accepted, _ = await in_thread(partial(reassigned, [target, *others]))
    assert accepted is None

    def moved(view: ClusterView) -> bool:
        return view.masters()[1] == target and is_even(view)

    await until(cluster, moved, "group 1 has moved, and the rest is level")
    shown = await in_thread(partial(ask_any, cluster.spec, cluster.now(), "GET", "/balancer"))
    assert [one["group"] for one in shown["groups"] if one["pinned"]] == [1]


async def test_kafkas_administration_steers_the_balancer(tmp_path: Path) -> None:
    """Three stories on one cluster; masters are even before and after each."""
    async with three_nodes(tmp_path) as cluster:
        client = admin.AdminClient({"bootstrap.servers": cluster.spec.bootstrap})
        await shows_the_truth(cluster, client)
        await elects(cluster, client)
        await reassigns(cluster)


def test_a_rolling_restart_needs_all_nodes(tmp_path: Path) -> None:
    """If one node is down, taking another one down would stop the cluster: it is refused."""
    spec, _ = plan(tmp_path / "data", node_count=3, groups=3, fixed_ports=False)
    nodes = {node.id: NodeNow(NodeState.RUNNING, 1) for node in spec.nodes}
    nodes[2] = NodeNow(NodeState.KILLED, 1)
    running = State(launcher_pid=1, control=tmp_path / "control.sock", nodes=nodes)
    said: list[str] = []
    with pytest.raises(rolling.RollingError, match="node 2 is not running"):
        rolling.rolling_restart(spec, running, said.append)
    alone, _ = plan(tmp_path / "alone", node_count=1, groups=3, fixed_ports=False)
    with pytest.raises(rolling.RollingError, match="no other node to give its masters to"):
        rolling.rolling_restart(alone, running, said.append)
    assert said == []
