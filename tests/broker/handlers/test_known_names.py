"""What another node has told a client is true, so a node that has not heard of it must not deny
it."""

import pytest

from broker.handlers.topics.registry_changes import EVERYWHERE_NS
from broker.proposals.intake import FailureReason
from paxos.ids import MS, NodeId
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
)
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TOPIC = 2
BEHIND = 3
SOON_MS = 30_000
CREATE = CreateTopicsRequest([CreatableTopic("t", 1, 3)])
SET_ONE = IncrementalAlterConfigsResource(
    TOPIC, "t", [IncrementalAlterableConfig("retention.ms", 0, "7")]
)
DELETE = DeleteTopicsRequest(topics=[DeleteTopicState("t")], timeout_ms=SOON_MS)
CHANGES = {
    "DeleteTopics by name": (DeleteTopicsRequest(topic_names=["t"], timeout_ms=SOON_MS), 5),
    "DeleteTopics": (DELETE, 6),
    "CreatePartitions": (
        CreatePartitionsRequest([CreatePartitionsTopic("t", 2)], timeout_ms=SOON_MS),
        3,
    ),
    "AlterConfigs": (AlterConfigsRequest([AlterConfigsResource(TOPIC, "t", [])]), 2),
    "IncrementalAlterConfigs": (IncrementalAlterConfigsRequest([SET_ONE]), 1),
}


def error_of(response: object) -> int:
    (one,) = (
        getattr(response, "responses", None)
        or getattr(response, "results", None)
        or getattr(response, "topics")  # noqa: B009  whichever it has
    )
    return int(one.error_code)


def make_unheard(world: World) -> None:
    """A topic exists, and one live node does not hear of it."""
    world.cluster.lagging.add(NodeId(BEHIND))
    asked = world.send(1, CREATE, 7)
    world.advance(EVERYWHERE_NS // MS + 100)
    assert error_of(asked.response) == ErrorCode.NONE


@pytest.mark.parametrize("name", CHANGES)
def test_a_topic_that_was_just_made_elsewhere_is_found(name: str) -> None:
    world = World()
    make_unheard(world)
    asked = world.send(BEHIND, *CHANGES[name])
    world.advance(300)
    assert not asked.settled  # it knows that it has missed something
    world.cluster.catch_up(BEHIND)
    world.advance(300)
    assert error_of(asked.response) == ErrorCode.NONE


@pytest.mark.parametrize("name", CHANGES)
def test_of_a_topic_that_nobody_made_it_is_said_soon(name: str) -> None:
    world = World()
    asked = world.send(BEHIND, *CHANGES[name])
    world.advance(100)
    assert error_of(asked.response) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", ["", "a/b", "x" * 32_000])
def test_no_topic_can_have_such_a_name(name: str) -> None:
    """The registry is not asked; its commands have no room for some of these names."""
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name)], timeout_ms=SOON_MS)
    world = World()
    make_unheard(world)
    asked = world.send(BEHIND, delete, 6)  # which would wait for what it has missed
    assert error_of(asked.response) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("name", CHANGES)
def test_where_nobody_can_say_it_is_not_said_that_there_is_none(name: str) -> None:
    world = World()
    world[BEHIND].groups.refuse = FailureReason.NOT_MASTER
    asked = world.send(BEHIND, *CHANGES[name])
    world.advance(61_000, step_ms=100)
    assert error_of(asked.response) == ErrorCode.REQUEST_TIMED_OUT


def test_a_topic_that_was_deleted_elsewhere_can_be_made_again() -> None:
    world = World()
    world.ask(1, CREATE, 7)
    world.cluster.lagging.add(NodeId(BEHIND))
    deleted = world.send(1, DELETE, 6)
    world.advance(2_000)
    assert error_of(deleted.response) == ErrorCode.NONE
    asked = world.send(BEHIND, CREATE, 7)
    world.advance(100)
    world.cluster.catch_up(BEHIND)
    world.advance(300)
    assert error_of(asked.response) == ErrorCode.NONE
    again = world.send(BEHIND, CREATE, 7)
    world.advance(300)
    assert error_of(again.response) == ErrorCode.TOPIC_ALREADY_EXISTS


EVERYWHERE = {
    "CreateTopics": (CreateTopicsRequest([CreatableTopic("new", 1, 3)], timeout_ms=SOON_MS), 7),
    "DeleteTopics": CHANGES["DeleteTopics"],
    "CreatePartitions": CHANGES["CreatePartitions"],
    "IncrementalAlterConfigs": CHANGES["IncrementalAlterConfigs"],
}


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_change_is_told_when_every_node_has_heard_of_it(name: str) -> None:
    """Otherwise a client that goes on at another node would not find the new topic, would write to
    or read the old one, or would be refused by the old settings."""
    world = World()
    world.ask(1, CREATE, 7)
    world.cluster.lagging.add(NodeId(BEHIND))
    asked = world.send(1, *EVERYWHERE[name])
    world.advance(500)
    assert world[1].registry.version > world[BEHIND].registry.version
    assert not asked.settled
    world.cluster.catch_up(BEHIND)
    world.advance(100)
    assert error_of(asked.response) == ErrorCode.NONE


@pytest.mark.parametrize("name", EVERYWHERE)
def test_a_change_waits_not_long_for_who_is_behind_and_not_for_who_is_silent(name: str) -> None:
    world = World()
    world.ask(1, CREATE, 7)
    world.cluster.lagging.add(NodeId(BEHIND))
    asked = world.send(1, *EVERYWHERE[name])
    world.advance(EVERYWHERE_NS // MS - 100)
    assert not asked.settled
    world.advance(200)
    assert error_of(asked.response) == ErrorCode.NONE
    world.cluster.dead.add(NodeId(BEHIND))
    another = CreateTopicsRequest([CreatableTopic("another", 1, 3)], timeout_ms=SOON_MS)
    assert error_of(world.ask(1, another, 7)) == ErrorCode.NONE


def test_a_change_waits_no_longer_than_its_client() -> None:
    world = World()
    world.cluster.lagging.add(NodeId(BEHIND))
    create = CreateTopicsRequest([CreatableTopic("new", 1, 3)], timeout_ms=200)
    asked = world.send(1, create, 7)
    world.advance(150)
    assert not asked.settled
    world.advance(100)
    assert error_of(asked.response) == ErrorCode.NONE


def test_what_is_only_validated_waits_for_nobody() -> None:
    world = World()
    world.ask(1, CREATE, 7)
    world.cluster.lagging.add(NodeId(BEHIND))
    world.send(1, *CHANGES["IncrementalAlterConfigs"])
    world.cluster.settle()
    topics = [CreatableTopic("new", 1, 3)]
    create = CreateTopicsRequest(topics, timeout_ms=SOON_MS, validate_only=True)
    assert error_of(world.ask(1, create, 7)) == ErrorCode.NONE
    partitions = [CreatePartitionsTopic("t", 2)]
    grow = CreatePartitionsRequest(partitions, timeout_ms=SOON_MS, validate_only=True)
    assert error_of(world.ask(1, grow, 3)) == ErrorCode.NONE


def test_a_topic_that_metadata_makes_is_told_when_every_node_has_heard_of_it() -> None:
    """Its producer goes on at the leader, which may be any node."""
    world = World(auto_create_topics=True, no_coordinator_wait_ms=1_000)
    world.cluster.lagging.add(NodeId(BEHIND))
    metadata = MetadataRequest([MetadataRequestTopic(name="new")], allow_auto_topic_creation=True)
    asked = world.send(1, metadata, 8)
    world.advance(500)
    assert world[1].registry.topic("new") is not None
    assert not asked.settled
    world.cluster.catch_up(BEHIND)
    world.advance(100)
    assert error_of(asked.response) == ErrorCode.NONE
