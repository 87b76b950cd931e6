"""Metadata (key 3), DescribeCluster (60), DescribeTopicPartitions (75, KIP-966): the nodes, and the
leader of each partition; UnregisterBroker (64) and DescribeQuorum (55)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    optional_struct,
    string,
    uint16,
    uuid,
)


@attrs.define
class MetadataRequestTopic:
    """A topic by id (since version 10; then the name is null) or by name."""

    topic_id: bytes = uuid("10+")
    name: str | None = string(nullable="10+")


@attrs.define
class MetadataRequest:
    """`topics` null means all; version 0 has no null: there an empty list means all."""

    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


@attrs.define
class MetadataResponseBroker:
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string("1+", nullable="0+")


@attrs.define
class MetadataResponsePartition:
    """`leader_epoch` must never go backwards: clients ignore a lower one than they know."""

    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32("7+", default=-1)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    offline_replicas: list[int] = int32_array("5+")


@attrs.define
class MetadataResponseTopic:
    error_code: int = int16()
    name: str | None = string(nullable="12+")
    topic_id: bytes = uuid("10+")
    is_internal: bool = boolean("1+")
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition)
    topic_authorized_operations: int = int32("8+", default=-2147483648)


@attrs.define
class MetadataResponse:
    throttle_time_ms: int = int32("3+")
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker)
    cluster_id: str | None = string("2+", nullable="0+")
    controller_id: int = int32("1+", default=-1)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic)
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+")


@attrs.define
class DescribeClusterRequest:
    """`endpoint_type` is 1 for brokers, 2 for controllers (KIP-919)."""

    include_cluster_authorized_operations: bool = boolean()
    endpoint_type: int = int8("1+", default=1)
    include_fenced_brokers: bool = boolean("2+")


@attrs.define
class DescribeClusterBroker:
    broker_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+")
    is_fenced: bool = boolean("2+")


@attrs.define
class DescribeClusterResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    endpoint_type: int = int8("1+", default=1)
    cluster_id: str = string()
    controller_id: int = int32(default=-1)
    brokers: list[DescribeClusterBroker] = array(DescribeClusterBroker)
    cluster_authorized_operations: int = int32(default=-2147483648)


@attrs.define
class PartitionsOfTopic:
    name: str = string()


@attrs.define
class PartitionCursor:
    """Where the next request is to begin."""

    topic_name: str = string()
    partition_index: int = int32()


@attrs.define
class DescribeTopicPartitionsRequest:
    """`topics` empty means all; they are described in the order of their names."""

    topics: list[PartitionsOfTopic] = array(PartitionsOfTopic)
    response_partition_limit: int = int32(default=2000)
    cursor: PartitionCursor | None = optional_struct(PartitionCursor)


@attrs.define
class DescribedPartition:
    error_code: int = int16()
    partition_index: int = int32()
    leader_id: int = int32()
    leader_epoch: int = int32(default=-1)
    replica_nodes: list[int] = int32_array()
    isr_nodes: list[int] = int32_array()
    eligible_leader_replicas: list[int] | None = int32_array(nullable="0+")
    last_known_elr: list[int] | None = int32_array(nullable="0+")
    offline_replicas: list[int] = int32_array()


@attrs.define
class DescribedTopic:
    error_code: int = int16()
    name: str | None = string(nullable="0+")
    topic_id: bytes = uuid()
    is_internal: bool = boolean()
    partitions: list[DescribedPartition] = array(DescribedPartition)
    topic_authorized_operations: int = int32(default=-2147483648)


@attrs.define
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribedTopic] = array(DescribedTopic)
    next_cursor: PartitionCursor | None = optional_struct(PartitionCursor)


@attrs.define
class UnregisterBrokerRequest:
    broker_id: int = int32()


@attrs.define
class UnregisterBrokerResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class QuorumPartition:
    partition_index: int = int32()


@attrs.define
class QuorumTopic:
    topic_name: str = string()
    partitions: list[QuorumPartition] = array(QuorumPartition)


@attrs.define
class DescribeQuorumRequest:
    topics: list[QuorumTopic] = array(QuorumTopic)


@attrs.define
class QuorumReplica:
    replica_id: int = int32()
    replica_directory_id: bytes = uuid("2+")
    log_end_offset: int = int64()
    last_fetch_timestamp: int = int64("1+", default=-1)
    last_caught_up_timestamp: int = int64("1+", default=-1)


@attrs.define
class DescribedQuorumPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    leader_id: int = int32()
    leader_epoch: int = int32()
    high_watermark: int = int64()
    current_voters: list[QuorumReplica] = array(QuorumReplica)
    observers: list[QuorumReplica] = array(QuorumReplica)


@attrs.define
class DescribedQuorumTopic:
    topic_name: str = string()
    partitions: list[DescribedQuorumPartition] = array(DescribedQuorumPartition)


@attrs.define
class QuorumListener:
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


@attrs.define
class QuorumNode:
    node_id: int = int32("2+")
    listeners: list[QuorumListener] = array(QuorumListener, "2+")


@attrs.define
class DescribeQuorumResponse:
    error_code: int = int16()
    error_message: str | None = string("2+", nullable="2+")
    topics: list[DescribedQuorumTopic] = array(DescribedQuorumTopic)
    nodes: list[QuorumNode] = array(QuorumNode, "2+")
