"""ElectLeaders (key 43) and the reassignment of partitions (45 and 46, KIP-455)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int8, int16, int32, int32_array, string


@attrs.define
class ElectTopicPartitions:
    topic: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class ElectLeadersRequest:
    """`election_type` 0 elects the preferred leader (KIP-183), 1 an unclean one (KIP-460)."""

    election_type: int = int8("1+")
    topic_partitions: list[ElectTopicPartitions] | None = array(ElectTopicPartitions, nullable="0+")
    timeout_ms: int = int32(default=60_000)


@attrs.define
class ElectPartitionResult:
    partition_id: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class ReplicaElectionResult:
    topic: str = string()
    partition_result: list[ElectPartitionResult] = array(ElectPartitionResult)


@attrs.define
class ElectLeadersResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult)


@attrs.define
class ReassignablePartition:
    """`replicas` null cancels a reassignment that is in progress."""

    partition_index: int = int32()
    replicas: list[int] | None = int32_array(nullable="0+")


@attrs.define
class ReassignableTopic:
    name: str = string()
    partitions: list[ReassignablePartition] = array(ReassignablePartition)


@attrs.define
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = int32(default=60_000)
    allow_replication_factor_change: bool = boolean("1+", default=True)
    topics: list[ReassignableTopic] = array(ReassignableTopic)


@attrs.define
class ReassignablePartitionResponse:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class ReassignableTopicResponse:
    name: str = string()
    partitions: list[ReassignablePartitionResponse] = array(ReassignablePartitionResponse)


@attrs.define
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    allow_replication_factor_change: bool = boolean("1+", default=True)
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    responses: list[ReassignableTopicResponse] = array(ReassignableTopicResponse)


@attrs.define
class ListPartitionReassignmentsTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@attrs.define
class ListPartitionReassignmentsRequest:
    """`topics` null means all reassignments in progress."""

    timeout_ms: int = int32(default=60_000)
    topics: list[ListPartitionReassignmentsTopic] | None = array(
        ListPartitionReassignmentsTopic, nullable="0+"
    )


@attrs.define
class OngoingPartitionReassignment:
    partition_index: int = int32()
    replicas: list[int] = int32_array()
    adding_replicas: list[int] = int32_array()
    removing_replicas: list[int] = int32_array()


@attrs.define
class OngoingTopicReassignment:
    name: str = string()
    partitions: list[OngoingPartitionReassignment] = array(OngoingPartitionReassignment)


@attrs.define
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    topics: list[OngoingTopicReassignment] = array(OngoingTopicReassignment)
