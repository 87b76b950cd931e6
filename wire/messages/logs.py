"""DeleteRecords (key 21), AlterReplicaLogDirs (34) and DescribeLogDirs (35)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int16, int32, int32_array, int64, string


@attrs.define
class DeleteRecordsPartition:
    """Deletes the records below `offset`; -1 means the high watermark."""

    partition_index: int = int32()
    offset: int = int64()


@attrs.define
class DeleteRecordsTopic:
    name: str = string()
    partitions: list[DeleteRecordsPartition] = array(DeleteRecordsPartition)


@attrs.define
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = array(DeleteRecordsTopic)
    timeout_ms: int = int32()


@attrs.define
class DeleteRecordsPartitionResult:
    partition_index: int = int32()
    low_watermark: int = int64()
    error_code: int = int16()


@attrs.define
class DeleteRecordsTopicResult:
    name: str = string()
    partitions: list[DeleteRecordsPartitionResult] = array(DeleteRecordsPartitionResult)


@attrs.define
class DeleteRecordsResponse:
    throttle_time_ms: int = int32()
    topics: list[DeleteRecordsTopicResult] = array(DeleteRecordsTopicResult)


@attrs.define
class DescribableLogDirTopic:
    topic: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class DescribeLogDirsRequest:
    """`topics` null means all."""

    topics: list[DescribableLogDirTopic] | None = array(DescribableLogDirTopic, nullable="0+")


@attrs.define
class DescribeLogDirsPartition:
    partition_index: int = int32()
    partition_size: int = int64()
    offset_lag: int = int64()
    is_future_key: bool = boolean()


@attrs.define
class DescribeLogDirsTopic:
    name: str = string()
    partitions: list[DescribeLogDirsPartition] = array(DescribeLogDirsPartition)


@attrs.define
class DescribeLogDirsResult:
    """The size of the volume is there from version 4 on (KIP-827)."""

    error_code: int = int16()
    log_dir: str = string()
    topics: list[DescribeLogDirsTopic] = array(DescribeLogDirsTopic)
    total_bytes: int = int64("4+", default=-1)
    usable_bytes: int = int64("4+", default=-1)


@attrs.define
class DescribeLogDirsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("3+")
    results: list[DescribeLogDirsResult] = array(DescribeLogDirsResult)


@attrs.define
class AlterReplicaLogDirTopic:
    name: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class AlterReplicaLogDir:
    path: str = string()
    topics: list[AlterReplicaLogDirTopic] = array(AlterReplicaLogDirTopic)


@attrs.define
class AlterReplicaLogDirsRequest:
    dirs: list[AlterReplicaLogDir] = array(AlterReplicaLogDir)


@attrs.define
class AlterReplicaLogDirPartitionResult:
    partition_index: int = int32()
    error_code: int = int16()


@attrs.define
class AlterReplicaLogDirTopicResult:
    topic_name: str = string()
    partitions: list[AlterReplicaLogDirPartitionResult] = array(AlterReplicaLogDirPartitionResult)


@attrs.define
class AlterReplicaLogDirsResponse:
    throttle_time_ms: int = int32()
    results: list[AlterReplicaLogDirTopicResult] = array(AlterReplicaLogDirTopicResult)
