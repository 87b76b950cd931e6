"""OffsetCommit (key 8) and OffsetFetch (key 9): the progress of a consumer group."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int16, int32, int32_array, int64, string


@attrs.define
class OffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("6+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@attrs.define
class OffsetCommitRequestTopic:
    name: str = string()
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition)


@attrs.define
class OffsetCommitRequest:
    """`generation_id_or_member_epoch` is -1 if the consumer is not a member of the group."""

    group_id: str = string()
    generation_id_or_member_epoch: int = int32(default=-1)
    member_id: str = string()
    retention_time_ms: int = int64("0-4", default=-1)
    group_instance_id: str | None = string("7+", nullable="0+")
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic)


@attrs.define
class OffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@attrs.define
class OffsetCommitResponseTopic:
    name: str = string()
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition)


@attrs.define
class OffsetCommitResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic)


@attrs.define
class OffsetFetchRequestTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@attrs.define
class OffsetFetchRequestGroup:
    group_id: str = string()
    member_id: str | None = string("9+", nullable="0+")
    member_epoch: int = int32("9+", default=-1)
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, nullable="0+")


@attrs.define
class OffsetFetchRequest:
    """One group up to version 7, several from 8 on (KIP-709); `topics` null means all."""

    group_id: str = string("0-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    topics: list[OffsetFetchRequestTopic] | None = array(
        OffsetFetchRequestTopic, "0-7", nullable="2-7"
    )
    require_stable: bool = boolean("7+")


@attrs.define
class OffsetFetchResponsePartition:
    """`committed_offset` is -1 if nothing was committed."""

    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("5+", default=-1)
    metadata: str | None = string(nullable="0+")
    error_code: int = int16()


@attrs.define
class OffsetFetchResponseTopic:
    name: str = string()
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition)


@attrs.define
class OffsetFetchResponseGroup:
    group_id: str = string()
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic)
    error_code: int = int16()


@attrs.define
class OffsetFetchResponse:
    throttle_time_ms: int = int32("3+")
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
    error_code: int = int16("2-7")


@attrs.define
class OffsetDeletePartition:
    partition_index: int = int32()


@attrs.define
class OffsetDeleteTopic:
    name: str = string()
    partitions: list[OffsetDeletePartition] = array(OffsetDeletePartition)


@attrs.define
class OffsetDeleteRequest:
    """Deletes committed offsets of a consumer group (KIP-496)."""

    group_id: str = string()
    topics: list[OffsetDeleteTopic] = array(OffsetDeleteTopic)


@attrs.define
class OffsetDeletePartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@attrs.define
class OffsetDeleteTopicResult:
    name: str = string()
    partitions: list[OffsetDeletePartitionResult] = array(OffsetDeletePartitionResult)


@attrs.define
class OffsetDeleteResponse:
    error_code: int = int16()
    throttle_time_ms: int = int32()
    topics: list[OffsetDeleteTopicResult] = array(OffsetDeleteTopicResult)
