"""InitProducerId (key 22): an id for an idempotent producer (KIP-98, KIP-360)."""

import attrs

from wire.codec.schema import int16, int32, int64, string


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
