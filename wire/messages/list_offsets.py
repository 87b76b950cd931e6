"""ListOffsets (key 2): a log's first or last offset, or the first one not before a timestamp."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, int8, int16, int32, int64, string


@attrs.define
class ListOffsetsPartition:
    """`timestamp` is -1 for the end, -2 for the start, -3 for the greatest timestamp (KIP-734), -4
    for the start of the broker's local log (KIP-405), -5 for the end of remote storage
    (KIP-1005), -6 for what is to be copied there next (KIP-1023)."""

    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1)
    timestamp: int = int64()


@attrs.define
class ListOffsetsTopic:
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


@attrs.define
class ListOffsetsRequest:
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+")


@attrs.define
class ListOffsetsPartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64(default=-1)
    offset: int = int64(default=-1)
    leader_epoch: int = int32("4+", default=-1)


@attrs.define
class ListOffsetsTopicResponse:
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


@attrs.define
class ListOffsetsResponse:
    throttle_time_ms: int = int32("2+")
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
