"""All settings that a topic of Kafka 4 may have are accepted, and what they say is true; the
settings of nodes and consumer groups are told under Kafka's names."""

from typing import Any

import pytest

from broker.topic_configs import _ALL, _IDLE, TOPIC_CONFIGS, ConfigType, TopicConfig
from tests.broker.handlers.test_topics import create
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    ListConfigResourcesRequest,
)
from wire.messages.topics import CreatableTopic, CreatableTopicConfig

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
FOR_EVER = "9223372036854775807"
KAFKAS_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.gzip.level": "-1",
    "compression.lz4.level": "9",
    "compression.type": "producer",
    "compression.zstd.level": "3",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "flush.messages": FOR_EVER,
    "flush.ms": FOR_EVER,
    "follower.replication.throttled.replicas": "",
    "index.interval.bytes": "4096",
    "leader.replication.throttled.replicas": "",
    "local.retention.bytes": "-2",
    "local.retention.ms": "-2",
    "max.compaction.lag.ms": FOR_EVER,
    "max.message.bytes": "1048588",
    "message.timestamp.after.max.ms": "3600000",
    "message.timestamp.before.max.ms": FOR_EVER,
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "preallocate": "false",
    "remote.log.copy.disable": "false",
    "remote.log.delete.on.disable": "false",
    "remote.storage.enable": "false",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.index.bytes": "10485760",
    "segment.jitter.ms": "0",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
}
"""All of Kafka 4's topic settings."""

OTHERS = {
    "compression.gzip.level": "9",
    "compression.lz4.level": "17",
    "compression.type": "zstd",
    "compression.zstd.level": "-131072",
    "file.delete.delay.ms": "0",
    "flush.messages": "1",
    "flush.ms": "0",
    "follower.replication.throttled.replicas": "0:1,12:3,",
    "index.interval.bytes": "0",
    "leader.replication.throttled.replicas": "*",
    "local.retention.bytes": "-1",
    "local.retention.ms": "1000",
    "min.insync.replicas": "2147483647",
    "preallocate": "TRUE",
    "remote.log.copy.disable": "true",
    "remote.log.delete.on.disable": "True",
    "segment.index.bytes": "4",
    "segment.jitter.ms": "7",
    "unclean.leader.election.enable": "true",
}
"""Other values that Kafka accepts."""

REFUSED = {
    "compression.gzip.level": ("0", "10", "-2"),
    "compression.lz4.level": ("0", "18"),
    "compression.type": ("none", "brotli", ""),
    "compression.zstd.level": ("23", "-131073", "fast"),
    "file.delete.delay.ms": ("-1",),
    "flush.messages": ("0",),
    "flush.ms": ("-1",),
    "follower.replication.throttled.replicas": ("1", "a:b", "*,*", "0:1:2"),
    "index.interval.bytes": ("-1", "2147483648"),
    "local.retention.ms": ("-3",),
    "min.insync.replicas": ("0", "2147483648"),
    "preallocate": ("yes", "1"),
    "remote.storage.enable": ("true",),
    "segment.index.bytes": ("3",),
    "unclean.leader.election.enable": ("maybe",),
}


def verdict(name: str, value: str) -> list[ErrorCode]:
    return create(World(), CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig(name, value)]))


def test_a_topic_with_every_setting_at_kafkas_default_is_made() -> None:
    """This is how tools send it that know all settings but not which of them were set."""
    configs = [CreatableTopicConfig(*one) for one in KAFKAS_DEFAULTS.items()]
    assert len(configs) == 33
    assert KAFKAS_DEFAULTS.keys() == TOPIC_CONFIGS.keys()
    assert create(World(), CreatableTopic("t", 1, 1, configs=configs)) == [ErrorCode.NONE]


@pytest.mark.parametrize(("name", "value"), OTHERS.items())
def test_what_kafka_accepts_is_accepted(name: str, value: str) -> None:
    assert verdict(name, value) == [ErrorCode.NONE]


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test_what_kafka_refuses_is_refused(name: str, value: str) -> None:
    assert verdict(name, value) == [ErrorCode.INVALID_CONFIG]


@pytest.mark.parametrize("idle", _IDLE, ids=lambda one: one.name)
def test_what_has_no_effect_says_so(idle: TopicConfig) -> None:
    assert idle.documentation.startswith("No effect: ")
    assert idle.name in KAFKAS_DEFAULTS


def test_no_setting_is_there_twice() -> None:
    assert len(TOPIC_CONFIGS) == len(_ALL) + len(_IDLE)


def described(world: World, kind: int, name: str, **fields: Any) -> Any:
    resource = DescribeConfigsResource(kind, name)
    asked = DescribeConfigsRequest([resource], **fields)
    [result] = world.ask(1, asked, 4).results
    return result


def test_a_node_tells_what_tools_look_for() -> None:
    world = World(listeners="PLAINTEXT://0.0.0.0:9092", default_partitions=7)
    result = described(world, BROKER, "1", include_synonyms=True, include_documentation=True)
    assert result.error_code == ErrorCode.NONE
    found = {one.name: one for one in result.configs}
    assert list(found) == sorted(found)
    assert all(one.read_only for one in found.values())
    told = {
        "advertised.listeners": "PLAINTEXT://10.0.0.1:9001",
        "auto.create.topics.enable": "false",
        "broker.id": "1",
        "broker.rack": None,
        "compression.type": "producer",
        "default.replication.factor": "3",
        "group.consumer.session.timeout.ms": "45000",
        "group.max.session.timeout.ms": "1800000",
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "log.cleanup.policy": "delete",
        "log.dirs": "/data",
        "log.retention.ms": "-1",
        "log.segment.bytes": "67108864",
        "message.max.bytes": "16777216",
        "min.insync.replicas": "2",
        "node.id": "1",
        "num.partitions": "7",
        "offsets.retention.minutes": "10080",
    }
    address = world[1].registry.nodes[1].kafka
    told["advertised.listeners"] = f"PLAINTEXT://{address.host}:{address.port}"
    assert {name: found[name].value for name in told} == told
    assert found["num.partitions"].config_source == 4
    assert found["num.partitions"].documentation == "broker.default_partitions"
    assert found["delete.topic.enable"].config_source == 5
    assert found["num.partitions"].config_type == ConfigType.INT
    assert [one.value for one in found["num.partitions"].synonyms] == ["7"]


@pytest.mark.parametrize(
    ("kind", "name", "error"),
    [
        (BROKER, "", ErrorCode.NONE),
        (METRICS, "anything", ErrorCode.NONE),
        (BROKER, "2", ErrorCode.INVALID_REQUEST),
        (BROKER, "one", ErrorCode.INVALID_REQUEST),
        (LOGGER, "1", ErrorCode.INVALID_REQUEST),
        (GROUP, "", ErrorCode.INVALID_REQUEST),
        (TOPIC, "none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (TOPIC, "not/a/name", ErrorCode.INVALID_TOPIC_EXCEPTION),
        (7, "1", ErrorCode.INVALID_REQUEST),
    ],
)
def test_where_there_is_nothing(kind: int, name: str, error: ErrorCode) -> None:
    """The cluster-wide defaults of nodes are an empty list, as in Kafka: nobody has set any."""
    result = described(World(), kind, name)
    assert (result.error_code, result.configs) == (error, [])
    assert (result.error_message is None) == (error is ErrorCode.NONE)


def test_consumer_groups_have_the_settings_of_the_coordinator() -> None:
    result = described(World(), GROUP, "whatever", include_synonyms=True)
    assert {one.name: one.value for one in result.configs} == {
        "consumer.heartbeat.interval.ms": "1000",
        "consumer.session.timeout.ms": "45000",
    }
    assert [one.synonyms[0].name for one in result.configs] == [
        "group.consumer.heartbeat.interval.ms",
        "group.consumer.session.timeout.ms",
    ]


@pytest.mark.parametrize(
    ("version", "types", "listed"),
    [
        (0, [], []),
        (1, [METRICS], []),
        (1, [GROUP], []),
        (1, [TOPIC], [(TOPIC, "t"), (TOPIC, "u")]),
        (1, [BROKER], [(BROKER, "1"), (BROKER, "2"), (BROKER, "3")]),
        (1, [], [(TOPIC, "t"), (TOPIC, "u"), (BROKER, "1"), (BROKER, "2"), (BROKER, "3")]),
    ],
)
def test_resources_are_listed(
    version: int, types: list[int], listed: list[tuple[int, str]]
) -> None:
    world = World()
    assert create(world, CreatableTopic("t", 1, 1), CreatableTopic("u", 1, 1)) == [0, 0]
    answer = world.ask(2, ListConfigResourcesRequest(types), version)
    assert answer.error_code == ErrorCode.NONE
    found = [(one.resource_type, one.resource_name) for one in answer.config_resources]
    assert found == listed


def test_there_are_no_resources_of_other_types() -> None:
    answer = World().ask(1, ListConfigResourcesRequest([TOPIC, 3]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
