"""CreateTopics (key 19), DeleteTopics (20) and CreatePartitions (37)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    string,
    string_array,
    uuid,
)


@attrs.define
class CreatableReplicaAssignment:
    partition_index: int = int32()
    broker_ids: list[int] = int32_array()


@attrs.define
class CreatableTopicConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@attrs.define
class CreatableTopic:
    """`num_partitions` and `replication_factor` -1 ask for the defaults (KIP-464)."""

    name: str = string()
    num_partitions: int = int32()
    replication_factor: int = int16()
    assignments: list[CreatableReplicaAssignment] = array(CreatableReplicaAssignment)
    configs: list[CreatableTopicConfig] = array(CreatableTopicConfig)


@attrs.define
class CreateTopicsRequest:
    topics: list[CreatableTopic] = array(CreatableTopic)
    timeout_ms: int = int32(default=60_000)
    validate_only: bool = boolean()


@attrs.define
class CreatableTopicConfigs:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()


@attrs.define
class CreatableTopicResult:
    """From version 5 on it also describes the new topic (KIP-525)."""

    name: str = string()
    topic_id: bytes = uuid("7+")
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    num_partitions: int = int32("5+", default=-1)
    replication_factor: int = int16("5+", default=-1)
    configs: list[CreatableTopicConfigs] | None = array(CreatableTopicConfigs, "5+", nullable="0+")
    topic_config_error_code: int = int16("5+", tag=0)


@attrs.define
class CreateTopicsResponse:
    throttle_time_ms: int = int32()
    topics: list[CreatableTopicResult] = array(CreatableTopicResult)


@attrs.define
class DeleteTopicState:
    """A topic by name, or by id with a null name (KIP-516)."""

    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()


@attrs.define
class DeleteTopicsRequest:
    topic_names: list[str] = string_array("0-5")
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    timeout_ms: int = int32()


@attrs.define
class DeletableTopicResult:
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+")
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="0+")


@attrs.define
class DeleteTopicsResponse:
    throttle_time_ms: int = int32()
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)


@attrs.define
class CreatePartitionsAssignment:
    broker_ids: list[int] = int32_array()


@attrs.define
class CreatePartitionsTopic:
    """`count` is the new total; `assignments` null lets the brokers choose."""

    name: str = string()
    count: int = int32()
    assignments: list[CreatePartitionsAssignment] | None = array(
        CreatePartitionsAssignment, nullable="0+"
    )


@attrs.define
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = array(CreatePartitionsTopic)
    timeout_ms: int = int32()
    validate_only: bool = boolean()


@attrs.define
class CreatePartitionsTopicResult:
    name: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class CreatePartitionsResponse:
    throttle_time_ms: int = int32()
    results: list[CreatePartitionsTopicResult] = array(CreatePartitionsTopicResult)
