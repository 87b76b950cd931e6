"""Transactions (KIP-98): keys 24 to 26 and 28, and what operators ask about them (65, 66, KIP-664).

There are none here. The requests of producers are refused, with the error that InitProducerId
already had for them; a listing is empty.
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    int16,
    int32,
    int32_array,
    int64,
    int64_array,
    string,
    string_array,
)


@attrs.define
class AddPartitionsToTxnTopic:
    name: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class AddPartitionsToTxnTransaction:
    transactional_id: str = string("4+")
    producer_id: int = int64("4+")
    producer_epoch: int = int16("4+")
    verify_only: bool = boolean("4+")
    topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "4+")


@attrs.define
class AddPartitionsToTxnRequest:
    """From version 4 on for many transactions at once; only brokers send that."""

    transactions: list[AddPartitionsToTxnTransaction] = array(AddPartitionsToTxnTransaction, "4+")
    v3_and_below_transactional_id: str = string("0-3")
    v3_and_below_producer_id: int = int64("0-3")
    v3_and_below_producer_epoch: int = int16("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = array(AddPartitionsToTxnTopic, "0-3")


@attrs.define
class AddPartitionsToTxnPartitionResult:
    partition_index: int = int32()
    partition_error_code: int = int16()


@attrs.define
class AddPartitionsToTxnTopicResult:
    name: str = string()
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = array(
        AddPartitionsToTxnPartitionResult
    )


@attrs.define
class AddPartitionsToTxnResult:
    transactional_id: str = string("4+")
    topic_results: list[AddPartitionsToTxnTopicResult] = array(AddPartitionsToTxnTopicResult, "4+")


@attrs.define
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16("4+")
    results_by_transaction: list[AddPartitionsToTxnResult] = array(AddPartitionsToTxnResult, "4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = array(
        AddPartitionsToTxnTopicResult, "0-3"
    )


@attrs.define
class AddOffsetsToTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    group_id: str = string()


@attrs.define
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()


@attrs.define
class EndTxnRequest:
    transactional_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    committed: bool = boolean()


@attrs.define
class EndTxnResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64("5+", default=-1)
    producer_epoch: int = int16("5+", default=-1)


@attrs.define
class TxnOffsetCommitRequestPartition:
    partition_index: int = int32()
    committed_offset: int = int64()
    committed_leader_epoch: int = int32("2+", default=-1)
    committed_metadata: str | None = string(nullable="0+")


@attrs.define
class TxnOffsetCommitRequestTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitRequestPartition] = array(TxnOffsetCommitRequestPartition)


@attrs.define
class TxnOffsetCommitRequest:
    transactional_id: str = string()
    group_id: str = string()
    producer_id: int = int64()
    producer_epoch: int = int16()
    generation_id: int = int32("3+", default=-1)
    member_id: str = string("3+")
    group_instance_id: str | None = string("3+", nullable="3+")
    topics: list[TxnOffsetCommitRequestTopic] = array(TxnOffsetCommitRequestTopic)


@attrs.define
class TxnOffsetCommitResponsePartition:
    partition_index: int = int32()
    error_code: int = int16()


@attrs.define
class TxnOffsetCommitResponseTopic:
    name: str = string()
    partitions: list[TxnOffsetCommitResponsePartition] = array(TxnOffsetCommitResponsePartition)


@attrs.define
class TxnOffsetCommitResponse:
    throttle_time_ms: int = int32()
    topics: list[TxnOffsetCommitResponseTopic] = array(TxnOffsetCommitResponseTopic)


@attrs.define
class DescribeTransactionsRequest:
    transactional_ids: list[str] = string_array()


@attrs.define
class TransactionTopic:
    topic: str = string()
    partitions: list[int] = int32_array()


@attrs.define
class DescribedTransaction:
    error_code: int = int16()
    transactional_id: str = string()
    transaction_state: str = string()
    transaction_timeout_ms: int = int32()
    transaction_start_time_ms: int = int64()
    producer_id: int = int64()
    producer_epoch: int = int16()
    topics: list[TransactionTopic] = array(TransactionTopic)


@attrs.define
class DescribeTransactionsResponse:
    throttle_time_ms: int = int32()
    transaction_states: list[DescribedTransaction] = array(DescribedTransaction)


@attrs.define
class ListTransactionsRequest:
    """`duration_filter` below 0 means all; `transactional_id_pattern` is a regular expression."""

    state_filters: list[str] = string_array()
    producer_id_filters: list[int] = int64_array()
    duration_filter: int = int64("1+", default=-1)
    transactional_id_pattern: str | None = string("2+", nullable="2+")


@attrs.define
class ListedTransaction:
    transactional_id: str = string()
    producer_id: int = int64()
    transaction_state: str = string()


@attrs.define
class ListTransactionsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    unknown_state_filters: list[str] = string_array()
    transaction_states: list[ListedTransaction] = array(ListedTransaction)
