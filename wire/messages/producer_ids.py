"""InitProducerId (key 22): an id for an idempotent producer (KIP-98, KIP-360);
DescribeProducers (61, KIP-664): who writes to a partition."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, int16, int32, int32_array, int64, string


@attrs.define
class InitProducerIdRequest:
    """A producer that sends its current id and epoch asks for the next epoch (KIP-360)."""

    transactional_id: str | None = string(nullable="0+")
    transaction_timeout_ms: int = int32()
    producer_id: int = int64("3+", default=-1)
    producer_epoch: int = int16("3+", default=-1)


@attrs.define
class InitProducerIdResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    producer_id: int = int64(default=-1)
    producer_epoch: int = int16()


@attrs.define
class DescribeProducersTopic:
    name: str = string()
    partition_indexes: list[int] = int32_array()


@attrs.define
class DescribeProducersRequest:
    topics: list[DescribeProducersTopic] = array(DescribeProducersTopic)


@attrs.define
class ProducerState:
    """`last_timestamp` -1: it is not known."""

    producer_id: int = int64()
    producer_epoch: int = int32()
    last_sequence: int = int32(default=-1)
    last_timestamp: int = int64(default=-1)
    coordinator_epoch: int = int32()
    current_txn_start_offset: int = int64(default=-1)


@attrs.define
class DescribedProducersPartition:
    partition_index: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    active_producers: list[ProducerState] = array(ProducerState)


@attrs.define
class DescribedProducersTopic:
    name: str = string()
    partitions: list[DescribedProducersPartition] = array(DescribedProducersPartition)


@attrs.define
class DescribeProducersResponse:
    throttle_time_ms: int = int32()
    topics: list[DescribedProducersTopic] = array(DescribedProducersTopic)
