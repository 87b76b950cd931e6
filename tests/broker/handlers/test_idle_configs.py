"""Kafka's settings that have no effect here are accepted where they ask for nothing."""

import pytest

from broker.topic_configs import _ALL, _IDLE, TOPIC_CONFIGS, TopicConfig
from tests.broker.handlers.test_topics import create
from tests.broker.world import World
from wire.error_codes import ErrorCode
from wire.messages.topics import CreatableTopic, CreatableTopicConfig

KAFKAS_DEFAULTS = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "max.compaction.lag.ms": "9223372036854775807",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "min.insync.replicas": "1",
    "retention.bytes": "-1",
    "retention.ms": "604800000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "unclean.leader.election.enable": "false",
    **{one.name: one.default(World()[1].broker.config, 1) for one in _IDLE},
}


def verdict(name: str, value: str) -> list[ErrorCode]:
    return create(World(), CreatableTopic("t", 1, 1, configs=[CreatableTopicConfig(name, value)]))


def test_a_topic_with_every_setting_at_kafkas_default_is_made() -> None:
    """This is how tools send it that know all settings but not which of them were set."""
    configs = [CreatableTopicConfig(*one) for one in KAFKAS_DEFAULTS.items()]
    assert len(configs) >= 31
    assert create(World(), CreatableTopic("t", 1, 1, configs=configs)) == [ErrorCode.NONE]


@pytest.mark.parametrize("idle", _IDLE, ids=lambda one: one.name)
def test_what_has_no_effect_is_not_taken_with_a_value_that_asks_for_one(idle: TopicConfig) -> None:
    other = {"false": "true", "": "*"}.get(idle.default(World()[1].broker.config, 1), "7")
    assert verdict(idle.name, other) == [ErrorCode.INVALID_CONFIG]
    assert idle.documentation.startswith("No effect: ")


def test_no_setting_is_there_twice() -> None:
    assert len(TOPIC_CONFIGS) == len(_ALL) + len(_IDLE)
