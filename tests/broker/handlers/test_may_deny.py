"""A node that knows it is behind does not answer that a topic does not exist."""

from typing import Any

import pytest

from paxos.ids import REGISTRY_GROUP, NodeId
from tests.broker.batches import batch
from tests.broker.world import Asked, World
from wire.error_codes import ErrorCode
from wire.messages.configs import DescribeConfigsRequest, DescribeConfigsResource
from wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from wire.messages.leader_epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.logs import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from wire.messages.placement import (
    AlterPartitionReassignmentsRequest,
    ElectLeadersRequest,
    ElectTopicPartitions,
    ReassignablePartition,
    ReassignableTopic,
)
from wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from wire.messages.topics import CreatableTopic, CreateTopicsRequest

BEHIND = 3
TOPIC_ID = (1).to_bytes(16, "big")
CREATE = CreateTopicsRequest([CreatableTopic("t", 1, 3)])
BY_NAME = MetadataRequest([MetadataRequestTopic(name="t")])
BY_ID = MetadataRequest([MetadataRequestTopic(TOPIC_ID, None)])
ALL = MetadataRequest(None)
UNKNOWN, UNKNOWN_ID = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID
MOVED, LOADING = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
PART = PartitionProduceData(0, batch("a"))
FETCHED = [FetchPartition(0, fetch_offset=0, partition_max_bytes=1_000)]
NAMED = [OffsetCommitRequestPartition(0, 1)]
EPOCH = [OffsetForLeaderPartition(0)]
PARTITIONS = {
    "Produce": (ProduceRequest(None, -1, 1_000, [TopicProduceData("t", [PART])]), 9, UNKNOWN),
    "Fetch by name": (FetchRequest(topics=[FetchTopic("t", partitions=FETCHED)]), 11, UNKNOWN),
    "Fetch by id": (
        FetchRequest(topics=[FetchTopic("", TOPIC_ID, FETCHED)]),
        13,
        UNKNOWN_ID,
    ),
    "ListOffsets": (
        ListOffsetsRequest(-1, 0, [ListOffsetsTopic("t", [ListOffsetsPartition(0, timestamp=-1)])]),
        7,
        UNKNOWN,
    ),
    "OffsetForLeaderEpoch": (
        OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic("t", EPOCH)]),
        4,
        UNKNOWN,
    ),
    "DeleteRecords": (
        DeleteRecordsRequest([DeleteRecordsTopic("t", [DeleteRecordsPartition(0, 1)])], 1_000),
        2,
        UNKNOWN,
    ),
}
TOOLS = {
    "DescribeConfigs": (DescribeConfigsRequest([DescribeConfigsResource(2, "t")]), 4),
    "ElectLeaders": (ElectLeadersRequest(0, [ElectTopicPartitions("t", [0])], 5_000), 2),
    "AlterPartitionReassignments": (
        AlterPartitionReassignmentsRequest(
            5_000, topics=[ReassignableTopic("t", [ReassignablePartition(0, [1, 2, 3])])]
        ),
        0,
    ),
}


def errors(response: Any) -> list[int]:
    """All errors of a partition or a resource, wherever they are in the answer."""
    found = []
    rows = [response]
    while rows:
        row = rows.pop()
        names = getattr(type(row), "__attrs_attrs__", ())
        lists = [
            value for one in names if isinstance(value := getattr(row, one.name), list) and value
        ]
        inner = [one for value in lists for one in value if hasattr(type(one), "__attrs_attrs__")]
        if not inner:
            found.append(int(row.error_code))
        rows += inner
    return found


def world_of(*, knows: bool = False) -> World:
    """Node 3 has not heard of a topic; `knows`: it knows that it has missed something."""
    world = World()
    world.cluster.lagging.add(NodeId(BEHIND))
    world.send(1, CREATE, 7)
    world.advance(2_000)
    if knows:
        world[BEHIND].groups.outdated.add(REGISTRY_GROUP)
    return world


def answered(world: World, asked: Asked) -> Any:
    world.advance(1_500)
    return asked.response


@pytest.mark.parametrize("name", PARTITIONS)
def test_who_asks_for_a_partition_looks_for_its_leader_again(name: str) -> None:
    request, version, unknown = PARTITIONS[name]
    world = world_of()
    assert errors(answered(world, world.send(BEHIND, request, version))) == [unknown]
    world = world_of(knows=True)
    assert errors(answered(world, world.send(BEHIND, request, version))) == [MOVED]


def test_a_coordinator_that_does_not_know_the_topic_is_asked_again() -> None:
    commit = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("t", NAMED)])
    for knows, error in ((False, UNKNOWN), (True, LOADING)):
        world = world_of(knows=knows)
        for group in range(1, 5):
            world.cluster.install(group, BEHIND)
        assert errors(answered(world, world.send(BEHIND, commit, 8))) == [error]


@pytest.mark.parametrize("name", TOOLS)
def test_tools_wait_and_are_told_that_it_is_not_known(name: str) -> None:
    request, version = TOOLS[name]
    world = world_of()
    assert errors(answered(world, world.send(BEHIND, request, version))) == [UNKNOWN]
    world = world_of(knows=True)
    asked = world.send(BEHIND, request, version)
    world.advance(500)
    assert not asked.settled
    assert errors(answered(world, asked)) == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("wanted", [BY_NAME, BY_ID, ALL])
def test_who_asks_which_topics_there_are_waits_until_it_is_known(wanted: MetadataRequest) -> None:
    world = world_of(knows=True)
    asked = world.send(BEHIND, wanted, 12)
    world.advance(500)
    assert not asked.settled
    world.cluster.catch_up(BEHIND)
    world[BEHIND].groups.outdated.clear()
    world.advance(100)
    (topic,) = asked.response.topics
    assert (topic.name, topic.error_code) == ("t", ErrorCode.NONE)


@pytest.mark.parametrize("wanted", [BY_NAME, BY_ID, ALL])
def test_and_asks_another_node_where_that_takes_long(wanted: MetadataRequest) -> None:
    """librdkafka reports an unknown topic to its application on LEADER_NOT_AVAILABLE as well."""
    world = world_of(knows=True)
    asked = world.send(BEHIND, wanted, 12)
    world.advance(1_500)
    assert asked.reply.closed is not None


def test_what_is_known_is_told_at_once() -> None:
    world = World()
    world.ask(1, CREATE, 7)
    world[BEHIND].groups.outdated.add(REGISTRY_GROUP)
    (topic,) = world.ask(BEHIND, BY_NAME, 12).topics
    assert topic.error_code == ErrorCode.NONE
    world[1].groups.outdated.add(REGISTRY_GROUP)  # but the node that decides what exists knows it
    nowhere = MetadataRequest([MetadataRequestTopic(name="nowhere")])
    assert world.ask(1, nowhere, 12).topics[0].error_code == UNKNOWN


def test_no_topic_can_have_such_a_name() -> None:
    world = world_of(knows=True)
    wrong = MetadataRequest([MetadataRequestTopic(name="a/b")])
    topic = world.ask(BEHIND, wrong, 12).topics[0]
    assert topic.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
