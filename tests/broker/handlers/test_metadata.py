"""What Metadata tells clients about nodes, topics and leaders, in every version."""

import pytest

from paxos.ids import REGISTRY_GROUP
from tests.broker.world import World
from wire.apis import APIS, ApiKey
from wire.error_codes import ErrorCode
from wire.messages.metadata import (
    DescribeClusterRequest,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

VERSIONS = range(APIS[ApiKey.METADATA].accepted.last + 1)


def world_with_topic(name: str = "orders", partitions: int = 4, **settings: object) -> World:
    world = World(**settings)
    topic = CreatableTopic(name, partitions, -1)
    response = world.ask(1, CreateTopicsRequest([topic]), 7)
    assert response.topics[0].error_code == ErrorCode.NONE
    return world


def by_name(*names: str) -> MetadataRequest:
    return MetadataRequest([MetadataRequestTopic(name=name) for name in names])


def leaders(response: MetadataResponse, topic: int = 0) -> list[tuple[int, int]]:
    return [(one.leader_id, one.leader_epoch) for one in response.topics[topic].partitions]


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_lists_all_topics_and_nodes(version: int) -> None:
    """Also in version 0, where an empty list means all topics and null does not exist."""
    world = world_with_topic()
    response = world.ask(2, MetadataRequest([] if version == 0 else None), version)
    addresses = [(one.node_id, one.host, one.port) for one in response.brokers]
    assert addresses == [(1, "node-1", 9001), (2, "node-2", 9002), (3, "node-3", 9003)]
    assert [topic.name for topic in response.topics] == ["orders"]
    assert [one.leader_id for one in response.topics[0].partitions] == [1, 1, 1, 1]
    assert response.topics[0].partitions[0].replica_nodes == [1, 2, 3]
    if version >= 1:
        assert response.controller_id == 1
    if version >= 2:
        assert response.cluster_id == "evenkeel-test"


def test_no_topics_are_asked_for_by_an_empty_list() -> None:
    world = world_with_topic()
    assert world.ask(1, MetadataRequest([]), 12).topics == []


def test_by_name_by_id_and_unknown() -> None:
    world = world_with_topic()
    topic_id = world.ask(1, MetadataRequest(None), 12).topics[0].topic_id
    asked = MetadataRequest(
        [
            MetadataRequestTopic(topic_id),
            MetadataRequestTopic(bytes(15) + b"x"),
            MetadataRequestTopic(name="nowhere"),
            MetadataRequestTopic(name="not a name"),
            MetadataRequestTopic(name="nowhere"),
        ]
    )
    found, by_id, by_name_, invalid = world.ask(1, asked, 12).topics
    assert (found.name, found.error_code) == ("orders", ErrorCode.NONE)
    assert (by_id.name, by_id.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)
    assert by_name_.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert world.ask(1, MetadataRequest([MetadataRequestTopic(bytes(15) + b"x")]), 10).topics


def test_the_answer_waits_for_a_leader_and_no_longer_than_that() -> None:
    """A client that gets no leader backs off for longer than an election lasts."""
    world = world_with_topic()
    world.cluster.install(1, None)
    asked = world.send(2, by_name("orders"), 12)
    unconcerned = world.send(2, by_name("nowhere"), 12)
    assert unconcerned.settled
    world.advance(200)
    assert not asked.settled
    world.cluster.install(1, 3)
    world.advance(20)
    assert (3, world.cluster.epochs[1]) in leaders(asked.response)


def test_without_a_leader_the_answer_says_so_in_time() -> None:
    world = world_with_topic(no_coordinator_wait_ms=500)
    epoch = world.cluster.epochs[1]
    world.cluster.install(1, None)
    asked = world.send(2, MetadataRequest(None), 12)
    world.advance(490)
    assert not asked.settled
    world.advance(30)
    partition = asked.response.topics[0].partitions[0]
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.leader_epoch) == (-1, epoch)
    assert [one.leader_id for one in asked.response.topics[0].partitions] == [-1, 1, 1, 1]


def test_a_master_nobody_can_reach_is_no_leader() -> None:
    """A node that has not registered yet has no address that clients could use."""
    world = world_with_topic(nodes=2, no_coordinator_wait_ms=0)
    world.cluster.install(1, 9)
    partition = world.ask(1, MetadataRequest(None), 12).topics[0].partitions[0]
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_an_epoch_never_goes_backwards() -> None:
    """A replica restored from a checkpoint may hold an old lease; clients would ignore the lower
    epoch anyway."""
    world = world_with_topic(no_coordinator_wait_ms=0)
    world.cluster.install(1, 2)
    told = leaders(world.ask(1, MetadataRequest(None), 12))[0]
    world.cluster.epochs[1] -= 1
    world.cluster.masters[1] = 1
    assert leaders(world.ask(1, MetadataRequest(None), 12))[0] == (-1, told[1])
    world.cluster.epochs[1] += 1
    world.cluster.install(1, 3)
    node, epoch = leaders(world.ask(1, MetadataRequest(None), 12))[0]
    assert node == 3
    assert epoch > told[1]


def test_the_kept_answer_is_never_a_stale_one() -> None:
    """All topics are encoded once, and again when a topic, a node, a leader or the placement
    changes."""
    world = world_with_topic()
    first = world.ask(1, MetadataRequest(None), 12)
    assert world.ask(1, MetadataRequest(None), 12) == first
    world.cluster.install(2, 2)
    assert leaders(world.ask(1, MetadataRequest(None), 12)) != leaders(first)
    world.ask(1, CreateTopicsRequest([CreatableTopic("more", 1, -1)]), 7)
    again = world.ask(1, MetadataRequest(None), 12)
    assert [topic.name for topic in again.topics] == ["orders", "more"]
    allowed = MetadataRequest(None, include_topic_authorized_operations=True)
    assert world.ask(1, allowed, 12).topics[0].topic_authorized_operations > 0
    assert world.ask(1, MetadataRequest(None), 12).topics[0].topic_authorized_operations < 0


def test_topics_are_created_on_the_way_only_where_configured() -> None:
    asked = by_name("fresh", "bad name")
    world = World(auto_create_topics=True, default_partitions=2)
    world.cluster.lagging.add(2)
    waiting = world.send(2, asked, 12)
    world.cluster.settle()
    assert not waiting.settled
    world.cluster.catch_up(2)
    world.advance(20)
    created, bad = waiting.response.topics
    assert (created.error_code, len(created.partitions)) == (ErrorCode.NONE, 2)
    assert bad.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    refused = MetadataRequest([MetadataRequestTopic(name="other")], allow_auto_topic_creation=False)
    assert world.ask(2, refused, 12).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    plain = World().ask(1, asked, 12).topics[0]
    assert plain.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_describe_cluster(version: int) -> None:
    response = World().ask(3, DescribeClusterRequest(True), version)
    assert [one.broker_id for one in response.brokers] == [1, 2, 3]
    assert (response.cluster_id, response.controller_id) == ("evenkeel-test", 1)
    assert response.cluster_authorized_operations > 0


def test_there_is_a_controller_while_the_registry_has_no_master() -> None:
    """Without a controller, librdkafka's administration waits for one and does not ask again: 40 s
    were seen."""
    world = world_with_topic()
    world.cluster.install(REGISTRY_GROUP, None)
    assert world.ask(2, MetadataRequest([]), 12).controller_id == 2
    assert world.ask(3, DescribeClusterRequest(True), 1).controller_id == 3
    world.cluster.install(REGISTRY_GROUP, 3)
    assert world.ask(2, MetadataRequest([]), 12).controller_id == 3


@pytest.mark.parametrize(
    ("endpoint", "error"),
    [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)],
)
def test_this_is_not_the_controllers_endpoint(endpoint: int, error: ErrorCode) -> None:
    response = World().ask(1, DescribeClusterRequest(endpoint_type=endpoint), 1)
    assert response.error_code == error


# -- a node that is cut off -----------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "wanted", [MetadataRequest([]), by_name("orders"), by_name("orders", "nowhere")]
)
def test_a_node_that_is_cut_off_sends_clients_to_the_others(
    version: int, wanted: MetadataRequest
) -> None:
    """With the code of KIP-1102, at once. A request of an older version gets the usual answer,
    except that no topic is denied."""
    world = world_with_topic()
    world[2].broker.redirects_clients = lambda: True
    asked = world.send(2, wanted, version)
    if version < 13 and wanted.topics and wanted.topics[-1].name == "nowhere":
        assert asked.reply.closed is not None
        return
    response = asked.response
    if version >= 13:
        assert response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED
        assert (response.brokers, response.topics) == ([], [])
        assert response.cluster_id == "evenkeel-test"
    else:
        assert len(response.brokers) == 3
    assert world.ask(1, wanted, 13).error_code == ErrorCode.NONE


def test_what_was_kept_is_not_told_by_a_node_that_is_cut_off() -> None:
    world = world_with_topic()
    everything = MetadataRequest(None)
    assert world.ask(2, everything, 13).error_code == ErrorCode.NONE
    world[2].broker.redirects_clients = lambda: True
    assert world.ask(2, everything, 13).error_code == ErrorCode.REBOOTSTRAP_REQUIRED
    world[2].broker.redirects_clients = lambda: False
    assert world.ask(2, everything, 13).error_code == ErrorCode.NONE
