"""ConsumerGroupHeartbeat (key 68) and ConsumerGroupDescribe (69): broker-side assignment (KIP-848).

One request does everything: the member reports its subscription and its partitions, and the
response says which partitions it may have. Fields unchanged since the last heartbeat are null.
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    inline_struct,
    int8,
    int16,
    int32,
    int32_array,
    optional_struct,
    string,
    string_array,
    uuid,
)


@attrs.define
class TopicIdPartitions:
    topic_id: bytes = uuid()
    partitions: list[int] = int32_array()


@attrs.define
class ConsumerGroupHeartbeatRequest:
    """`member_epoch` 0 joins, -1 leaves, -2 leaves as a static member that will be back."""

    group_id: str = string()
    member_id: str = string()
    member_epoch: int = int32()
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    rebalance_timeout_ms: int = int32(default=-1)
    subscribed_topic_names: list[str] | None = string_array(nullable="0+")
    subscribed_topic_regex: str | None = string("1+", nullable="1+")
    server_assignor: str | None = string(nullable="0+")
    topic_partitions: list[TopicIdPartitions] | None = array(TopicIdPartitions, nullable="0+")


@attrs.define
class HeartbeatAssignment:
    topic_partitions: list[TopicIdPartitions] = array(TopicIdPartitions)


@attrs.define
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    member_id: str | None = string(nullable="0+")
    member_epoch: int = int32()
    heartbeat_interval_ms: int = int32()
    assignment: HeartbeatAssignment | None = optional_struct(HeartbeatAssignment)


@attrs.define
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = string_array()
    include_authorized_operations: bool = boolean()


@attrs.define
class DescribedTopicPartitions:
    topic_id: bytes = uuid()
    topic_name: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class DescribedAssignment:
    topic_partitions: list[DescribedTopicPartitions] = array(DescribedTopicPartitions)


@attrs.define
class DescribedConsumer:
    """`member_type` is 1 for a member that uses this protocol."""

    member_id: str = string()
    instance_id: str | None = string(nullable="0+")
    rack_id: str | None = string(nullable="0+")
    member_epoch: int = int32()
    client_id: str = string()
    client_host: str = string()
    subscribed_topic_names: list[str] = string_array()
    subscribed_topic_regex: str | None = string(nullable="0+")
    assignment: DescribedAssignment = inline_struct(DescribedAssignment)
    target_assignment: DescribedAssignment = inline_struct(DescribedAssignment)
    member_type: int = int8("1+", default=-1)


@attrs.define
class DescribedConsumerGroup:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    group_id: str = string()
    group_state: str = string()
    group_epoch: int = int32()
    assignment_epoch: int = int32()
    assignor_name: str = string()
    members: list[DescribedConsumer] = array(DescribedConsumer)
    authorized_operations: int = int32(default=-2147483648)


@attrs.define
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = int32()
    groups: list[DescribedConsumerGroup] = array(DescribedConsumerGroup)
