"""Produce (key 0) appends record batches and returns their base offsets.

Versions 0-2 have the old message formats. They are advertised, because librdkafka switches off
compression without them (KAFKA-18659), but not accepted. Version 10 adds the new leader (KIP-951).
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

from typing import ClassVar

import attrs

from wire.codec.schema import array, int16, int32, int64, records, string, struct
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint


@attrs.define
class PartitionProduceData:
    """`records` is a view of the request: it is valid as long as the frame is."""

    index: int = int32()
    records: memoryview | None = records()


@attrs.define
class TopicProduceData:
    name: str = string()
    partition_data: list[PartitionProduceData] = array(PartitionProduceData)


@attrs.define
class ProduceRequest:
    """`acks` is -1 for all, 1 for the leader, 0 for no response at all."""

    ITEMS_MAX: ClassVar = 12_000
    """Limit of topics and partitions together: all other clients wait while they are decoded."""

    transactional_id: str | None = string(nullable="0+")
    acks: int = int16()
    timeout_ms: int = int32()
    topic_data: list[TopicProduceData] = array(TopicProduceData)


@attrs.define
class BatchIndexAndErrorMessage:
    """Why one batch of a partition was refused."""

    batch_index: int = int32()
    batch_index_error_message: str | None = string(nullable="0+")


@attrs.define
class PartitionProduceResponse:
    """`log_append_time_ms` is -1 unless the topic has LogAppendTime."""

    index: int = int32()
    error_code: int = int16()
    base_offset: int = int64()
    log_append_time_ms: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+")
    error_message: str | None = string("8+", nullable="0+")
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "10+", tag=0)


@attrs.define
class TopicProduceResponse:
    name: str = string()
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse)


@attrs.define
class ProduceResponse:
    responses: list[TopicProduceResponse] = array(TopicProduceResponse)
    throttle_time_ms: int = int32()
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0)
