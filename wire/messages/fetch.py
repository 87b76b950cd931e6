"""Fetch (key 1) reads record batches, by topic name up to version 12, by topic id from 13 on.

Fetch sessions (KIP-227, version 7) are never granted: session id 0 makes every client send full
requests. A tagged field of the partition names its new leader (KIP-951) from version 12 on, and one
of the response has the leader's address from 16 on.

Tags from `PRIVATE_TAG` on are ours (docs/kafka.md, "Progress on request"): Kafka's own are numbered
from 0 without gaps, and a client skips a tag that it does not know (KIP-482).
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

from typing import Final

import attrs

from wire.codec.schema import (
    RecordsField,
    array,
    int8,
    int16,
    int32,
    int32_array,
    int64,
    record_chunks,
    string,
    struct,
    uuid,
)
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint

PRIVATE_TAG: Final = 10_000


@attrs.define
class FetchPartition:
    """`current_leader_epoch` lets us refuse a client that is behind or ahead of us (KIP-320)."""

    partition: int = int32()
    current_leader_epoch: int = int32("9+", default=-1)
    fetch_offset: int = int64()
    last_fetched_epoch: int = int32("12+", default=-1)
    log_start_offset: int = int64("5+", default=-1)
    partition_max_bytes: int = int32()


@attrs.define
class FetchTopic:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[FetchPartition] = array(FetchPartition)


@attrs.define
class ReplicaState:
    """From version 15 on a follower names itself here instead of in `replica_id`."""

    replica_id: int = int32(default=-1)
    replica_epoch: int = int64(default=-1)


@attrs.define
class ForgottenTopic:
    """A topic that leaves the fetch session (KIP-227)."""

    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[int] = int32_array()


@attrs.define
class ProgressReport:
    """A consumer that answers ReportProgress sends this in every Fetch.

    `consumer` is a number that it keeps for its lifetime. `reported` is the last ReportProgress of
    this node for which it has committed in time, 0 before the first.
    """

    consumer: int = int64()
    reported: int = int64()


@attrs.define
class FetchRequest:
    """`max_bytes` is soft: if the first batch is larger, it is still returned whole (KIP-74)."""

    replica_id: int = int32("0-14", default=-1)
    max_wait_ms: int = int32()
    min_bytes: int = int32()
    max_bytes: int = int32(default=2147483647)
    isolation_level: int = int8()
    session_id: int = int32("7+")
    session_epoch: int = int32("7+", default=-1)
    topics: list[FetchTopic] = array(FetchTopic)
    forgotten_topics_data: list[ForgottenTopic] = array(ForgottenTopic, "7+")
    rack_id: str = string("11+")
    cluster_id: str | None = string("12+", nullable="0+", tag=0)
    replica_state: ReplicaState | None = struct(ReplicaState, "15+", tag=1)
    progress: ProgressReport | None = struct(ProgressReport, "12+", tag=PRIVATE_TAG)


@attrs.define
class AbortedTransaction:
    """Only sent by brokers that have transactions."""

    producer_id: int = int64()
    first_offset: int = int64()


@attrs.define
class EpochEndOffset:
    """Where the fetcher's log diverges (KIP-595); only Kafka's followers read it."""

    epoch: int = int32(default=-1)
    end_offset: int = int64(default=-1)


@attrs.define
class SnapshotId:
    """Only for KRaft observers; Evenkeel never sends it."""

    end_offset: int = int64(default=-1)
    epoch: int = int32(default=-1)


@attrs.define
class ReportProgress:
    """The partition's master is about to move: commit now; it waits at most `wait_ms`."""

    request: int = int64()
    wait_ms: int = int32()


@attrs.define
class PartitionData:
    """`records` may be several buffers, such as a batch's patched head and its unchanged rest."""

    partition_index: int = int32()
    error_code: int = int16()
    high_watermark: int = int64()
    last_stable_offset: int = int64(default=-1)
    log_start_offset: int = int64("5+", default=-1)
    aborted_transactions: list[AbortedTransaction] | None = array(AbortedTransaction, nullable="0+")
    preferred_read_replica: int = int32("11+", default=-1)
    records: RecordsField = record_chunks()
    diverging_epoch: EpochEndOffset | None = struct(EpochEndOffset, "12+", tag=0)
    current_leader: LeaderIdAndEpoch | None = struct(LeaderIdAndEpoch, "12+", tag=1)
    snapshot_id: SnapshotId | None = struct(SnapshotId, "12+", tag=2)
    report_progress: ReportProgress | None = struct(ReportProgress, "12+", tag=PRIVATE_TAG)


@attrs.define
class FetchableTopicResponse:
    topic: str = string("0-12")
    topic_id: bytes = uuid("13+")
    partitions: list[PartitionData] = array(PartitionData)


@attrs.define
class FetchResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("7+")
    session_id: int = int32("7+")
    responses: list[FetchableTopicResponse] = array(FetchableTopicResponse)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "16+", tag=0)
