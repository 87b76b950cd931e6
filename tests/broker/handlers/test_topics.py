"""Topics are created, extended and deleted on any node; settings are shown; what we cannot
guarantee is refused."""

import pytest

from balancer.registry.commands import FoundCluster
from balancer.registry.records import Cluster
from broker.handlers.topics.settings import replicas_of
from paxos.ids import NodeId
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from wire.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

TOPIC, BROKER = 2, 4


def create(world: World, *topics: CreatableTopic, node: int = 1, **fields: object) -> list[int]:
    response = world.ask(node, CreateTopicsRequest(list(topics), **fields), 7)
    return [one.error_code for one in response.topics]


@pytest.mark.parametrize("version", range(2, 8))
def test_a_topic_is_created_on_any_node_and_known_there_at_once(version: int) -> None:
    """The registry's master is node 1; the client asks node 3, and then asks it for metadata."""
    world = World()
    topic = CreatableTopic("orders", 6, 3, configs=[CreatableTopicConfig("retention.ms", "1000")])
    result = world.ask(3, CreateTopicsRequest([topic]), version).topics[0]
    assert (result.name, result.error_code) == ("orders", ErrorCode.NONE)
    there = world[3].registry.topic("orders")
    assert there is not None
    assert len(there.partitions) == 6
    if version >= 5:
        assert (result.num_partitions, result.replication_factor) == (6, 3)
        assert ("retention.ms", "1000") in [(one.name, one.value) for one in result.configs]
    if version >= 7:
        assert result.topic_id == there.topic_id


def test_the_answer_waits_until_this_node_has_applied_it() -> None:
    world = World()
    world.cluster.lagging.add(3)
    asked = world.send(3, CreateTopicsRequest([CreatableTopic("orders", 1, -1)]), 7)
    world.advance(100)
    assert world[1].registry.topic("orders") is not None
    assert not asked.settled
    world.cluster.catch_up(3)
    world.advance(20)
    assert asked.response.topics[0].error_code == ErrorCode.NONE


def test_defaults_of_partitions_and_replicas() -> None:
    world = World(nodes=2, default_partitions=5)
    result = world.ask(1, CreateTopicsRequest([CreatableTopic("t", -1, -1)]), 7).topics[0]
    assert (result.num_partitions, result.replication_factor) == (5, 2)


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("a/b", 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("x" * 250, 1, 1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("there", 1, 1), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("t", 0, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 100_000, 1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (CreatableTopic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic("t", -1, -1, [CreatableReplicaAssignment(0, [4])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        *(
            (CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig(*one)]), error)
            for one, error in [
                (("no.such.thing", "1"), ErrorCode.INVALID_CONFIG),
                (("cleanup.policy", "tidy"), ErrorCode.INVALID_CONFIG),
                (("cleanup.policy", ""), ErrorCode.NONE),
                (("cleanup.policy", "delete,delete"), ErrorCode.NONE),
                (("cleanup.policy", "delete,"), ErrorCode.INVALID_CONFIG),
                (("retention.ms", " 7 "), ErrorCode.NONE),
                (("cleanup.policy", "delete"), ErrorCode.NONE),
                (("cleanup.policy", "compact"), ErrorCode.NONE),
                (("cleanup.policy", "compact, delete"), ErrorCode.NONE),
                (("min.cleanable.dirty.ratio", "0.25"), ErrorCode.NONE),
                (("min.cleanable.dirty.ratio", "1.25"), ErrorCode.INVALID_CONFIG),
                (("min.cleanable.dirty.ratio", "nan"), ErrorCode.INVALID_CONFIG),
                (("delete.retention.ms", "-1"), ErrorCode.INVALID_CONFIG),
                (("max.compaction.lag.ms", "0"), ErrorCode.INVALID_CONFIG),
                (("min.compaction.lag.ms", "9"), ErrorCode.NONE),
                (("retention.ms", "soon"), ErrorCode.INVALID_CONFIG),
                (("retention.ms", None), ErrorCode.INVALID_CONFIG),
                (("retention.ms", "-1"), ErrorCode.NONE),
                (("min.insync.replicas", "0"), ErrorCode.INVALID_CONFIG),
                (("min.insync.replicas", "2"), ErrorCode.NONE),
                (("message.timestamp.type", "Whenever"), ErrorCode.INVALID_CONFIG),
                (("max.message.bytes", str(1 << 30)), ErrorCode.INVALID_CONFIG),
            ]
        ),
    ],
)
def test_rules_for_new_topics(topic: CreatableTopic, error: ErrorCode) -> None:
    """validate_only gives the same verdict, with a reason, and changes nothing."""
    world = World()
    assert create(world, CreatableTopic("there", 1, 1)) == [ErrorCode.NONE]
    request = CreateTopicsRequest([topic], validate_only=True)
    result = world.ask(1, request, 7).topics[0]
    assert result.error_code == error
    assert (result.error_message is None) == (error == ErrorCode.NONE)
    assert list(world[1].registry.topics) == ["there"]
    assert create(world, topic) == [error]
    assert ("t" in world[1].registry.topics) == (error == ErrorCode.NONE)


def test_each_topic_of_a_request_has_its_own_verdict() -> None:
    world = World()
    errors = create(
        world,
        CreatableTopic("twice", 1, 1),
        CreatableTopic("good", 1, 1),
        CreatableTopic("twice", 2, 1),
    )
    duplicate = ErrorCode.INVALID_REQUEST
    assert errors == [duplicate, ErrorCode.NONE]
    assert list(world[1].registry.topics) == ["good"]
    assert create(world) == []


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (CreatableTopic("a/b", 0, 0), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic("there", 0, 0), ErrorCode.TOPIC_ALREADY_EXISTS),
        (CreatableTopic("t", 0, 0), ErrorCode.INVALID_CONFIG),
    ],
)
def test_the_first_thing_wrong_with_a_topic_is_told(
    topic: CreatableTopic, error: ErrorCode
) -> None:
    """In Kafka's order: the name, the settings, the replicas, the partitions."""
    world = World()
    create(world, CreatableTopic("there", 1, 1))
    topic.configs = [CreatableTopicConfig("nonsense", "1")]
    [result] = world.ask(1, CreateTopicsRequest([topic]), 7).topics
    assert (result.error_code, result.configs) == (error, [])
    assert create(world, CreatableTopic("t", 0, 0)) == [ErrorCode.INVALID_REPLICATION_FACTOR]


def test_the_last_value_holds_and_is_shown_as_it_was_written() -> None:
    world = World()
    pairs = (("retention.ms", "x"), ("cleanup.policy", " compact "), ("retention.ms", " 7 "))
    topic = CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig(*one) for one in pairs])
    [result] = world.ask(1, CreateTopicsRequest([topic]), 7).topics
    shown = {one.name: one.value for one in result.configs}
    assert (shown["retention.ms"], shown["cleanup.policy"]) == (" 7 ", " compact ")
    kept = world[1].registry.topics["t"].configs
    assert kept == {"cleanup.policy": "compact", "retention.ms": "7"}
    null = [CreatableTopicConfig("retention.ms", one) for one in (None, "2")]
    assert create(world, CreatableTopic("u", 1, 1, configs=null)) == [ErrorCode.INVALID_CONFIG]


def test_what_is_to_be_deleted_or_to_grow_is_answered_once() -> None:
    world = World()
    create(world, CreatableTopic("t", 1, 1))
    topic_id, unknown = world[1].registry.topics["t"].topic_id, bytes(15) + b"x"
    state = DeleteTopicState
    for named, answer in [
        ([state("t")] * 3, ("t", bytes(16))),
        ([state(None, topic_id)] * 2, (None, topic_id)),
        ([state("t"), state(None, topic_id)], ("t", topic_id)),
        ([state("nobody")] * 2, ("nobody", bytes(16))),
        ([state(None, unknown)] * 2, (None, unknown)),
    ]:
        [result] = world.ask(1, DeleteTopicsRequest(topics=named, timeout_ms=5_000), 6).responses
        assert result.error_code == ErrorCode.INVALID_REQUEST
        assert (result.name, bytes(result.topic_id)) == answer
    rows = [CreatePartitionsTopic(name, 5) for name in ("t", "nobody", "t", "nobody")]
    results = world.ask(1, CreatePartitionsRequest(rows, 5_000), 3).results
    refused = ErrorCode.INVALID_REQUEST
    assert {one.name: one.error_code for one in results} == {"t": refused, "nobody": refused}
    assert len(results) == 2
    assert len(world[1].registry.topics["t"].partitions) == 1


def test_a_race_of_two_creators_has_one_winner() -> None:
    world = World()
    first = world.send(1, CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7)
    second = world.send(2, CreateTopicsRequest([CreatableTopic("t", 2, 1)]), 7)
    world.cluster.settle()
    errors = [one.response.topics[0].error_code for one in (first, second)]
    assert errors == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_without_a_registry_master_the_client_waits_as_long_as_it_said() -> None:
    world = World()
    world.cluster.install(0, None)
    request = CreateTopicsRequest([CreatableTopic("t", 1, 1)], timeout_ms=300)
    lost = world.send(2, request, 7)
    kept = world.send(2, CreateTopicsRequest([CreatableTopic("u", 1, 1)], timeout_ms=5_000), 7)
    world.advance(290)
    assert not lost.settled
    world.advance(20)
    assert lost.response.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    world.cluster.install(0, 3)
    world.advance(100)
    assert kept.response.topics[0].error_code == ErrorCode.NONE


def test_an_attempt_of_unknown_fate_is_repeated_and_recognised() -> None:
    """The first attempt was chosen and its answer was lost: the second must not say "it exists"."""
    world = World()
    steps = [
        (CreateTopicsRequest([CreatableTopic("t", 1, 1)]), 7, "topics"),
        (CreatePartitionsRequest([CreatePartitionsTopic("t", 3)], 5_000), 3, "results"),
        (DeleteTopicsRequest(["t"], timeout_ms=5_000), 5, "responses"),
    ]
    for request, version, field in steps:
        world[1].groups.answers_to_lose = 1
        asked = world.send(1, request, version)
        world.advance(100)
        assert world[1].groups.answers_to_lose == 0
        assert getattr(asked.response, field)[0].error_code == ErrorCode.NONE


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_and_by_id(version: int) -> None:
    world = World()
    create(world, CreatableTopic("a", 1, 1), CreatableTopic("b", 1, 1), CreatableTopic("c", 1, 1))
    topic_id = world[1].registry.topics["b"].topic_id
    if version < 6:
        request = DeleteTopicsRequest(["a", "b", "nope"], timeout_ms=5_000)
    else:
        states = [
            DeleteTopicState("a"),
            DeleteTopicState(topic_id=topic_id),
            DeleteTopicState("nope"),
            DeleteTopicState(topic_id=bytes(15) + b"x"),
            DeleteTopicState(),
        ]
        request = DeleteTopicsRequest(topics=states, timeout_ms=5_000)
    responses = world.ask(3, request, version).responses
    expected = [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    if version == 6:
        expected += [ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST]
        assert (responses[1].name, responses[1].topic_id) == ("b", topic_id)
    assert [one.error_code for one in responses] == expected
    assert list(world[3].registry.topics) == ["c"]


def test_partitions_are_added_never_taken_away() -> None:
    world = World()
    create(world, CreatableTopic("t", 2, 1))
    asked = [
        CreatePartitionsTopic("t", 4),
        CreatePartitionsTopic("nope", 4),
    ]
    for validate_only, count in ((True, 2), (False, 4)):
        request = CreatePartitionsRequest(asked, 5_000, validate_only)
        results = world.ask(2, request, 3).results
        assert [one.error_code for one in results] == [
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert len(world[2].registry.topics["t"].partitions) == count
    for topic, error in [
        (CreatePartitionsTopic("t", 4), ErrorCode.INVALID_PARTITIONS),
        (CreatePartitionsTopic("t", 3), ErrorCode.INVALID_PARTITIONS),
        (
            CreatePartitionsTopic("t", 5, [CreatePartitionsAssignment([9])]),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ]:
        result = world.ask(2, CreatePartitionsRequest([topic], 5_000), 3).results[0]
        assert result.error_code == error
        assert result.error_message


def describe(world: World, node: int, kind: int, name: str, *keys: str) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(kind, name, list(keys) or None)
    request = DescribeConfigsRequest([resource], include_synonyms=True, include_documentation=True)
    result: DescribeConfigsResult = world.ask(node, request, 4).results[0]
    return result


def test_no_names_of_settings_are_all() -> None:
    """An empty list, too, as in Kafka."""
    world = World()
    create(world, CreatableTopic("t", 1, 1))
    for kind, name in ((2, "t"), (4, "1"), (32, "g")):
        told = []
        for keys in (None, []):
            asked = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)])
            told.append([one.name for one in world.ask(1, asked, 4).results[0].configs])
        assert told[0] == told[1] != []
    assert describe(world, 1, 16, "").error_code == ErrorCode.INVALID_REQUEST
    assert describe(world, 1, 16, "mine").error_code == ErrorCode.NONE


def test_settings_of_a_topic_say_where_they_come_from() -> None:
    world = World()
    configs = [CreatableTopicConfig("retention.ms", "60000")]
    create(world, CreatableTopic("t", 1, 1, configs=configs))
    result = describe(world, 2, TOPIC, "t")
    values = {one.name: (one.value, one.config_source) for one in result.configs}
    assert values["retention.ms"] == ("60000", 1)
    assert values["cleanup.policy"] == ("delete", 5)
    assert values["min.insync.replicas"] == ("2", 5)
    (asked,) = describe(world, 2, TOPIC, "t", "retention.ms").configs
    assert [(one.name, one.value, one.source) for one in asked.synonyms] == [
        ("retention.ms", "60000", 1),
        ("log.retention.ms", "-1", 5),
    ]
    (asked,) = describe(world, 2, TOPIC, "t", "segment.ms").configs
    assert [(one.name, one.value, one.source) for one in asked.synonyms] == [
        ("log.roll.ms", "604800000", 5)
    ]


def test_settings_of_a_node_are_told_by_itself() -> None:
    world = World(default_partitions=7)
    result = describe(world, 2, BROKER, "2", "num.partitions")
    assert [(one.name, one.value, one.read_only) for one in result.configs] == [
        ("num.partitions", "7", True)
    ]
    assert describe(world, 2, BROKER, "1").error_code == ErrorCode.INVALID_REQUEST
    assert describe(world, 2, 99, "x").error_code == ErrorCode.INVALID_REQUEST
    assert describe(world, 2, TOPIC, "x").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_founders_count_before_they_have_registered() -> None:
    """An early client must not get a final error that three copies are too many."""
    world = World(nodes=2)
    assert replicas_of(world[1].broker) == 2
    founded = world.run  # completes a founding without names, as in old clusters
    founded(FoundCluster("evenkeel-test", 4, (NodeId(1), NodeId(2), NodeId(3)), 3))
    assert len(world[1].registry.nodes) == 2
    assert replicas_of(world[1].broker) == 3


@pytest.mark.parametrize("replicas", [1, 2, 5])
def test_copies_are_what_the_cluster_was_founded_with(replicas: int) -> None:
    """Clusters whose groups had five members refused five copies as more than a broker's default,
    and those whose groups had one took three for granted."""
    world = World(nodes=5)
    broker = world[1].broker
    founders = tuple(map(NodeId, range(1, 6)))
    world[1].registry.cluster = Cluster("evenkeel-test", 4, founders, replicas)
    assert replicas_of(broker) == replicas
    (told,) = describe(world, 1, BROKER, "1", "default.replication.factor").configs
    assert told.value == str(replicas)
