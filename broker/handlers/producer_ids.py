"""InitProducerId: an id for an idempotent producer, or the next epoch of the one it has (KIP-360).

A producer that lost count of its sequences asks for a new epoch; every partition then starts it at
sequence 0. Transactional ids are refused the way clients understand at once (kafka.md section 5).
A writer's id (`wire.write_tokens`) has no epochs to go on to: its fields mean something else.
"""

from functools import partial
from typing import Final

from broker.context import Broker, Request
from broker.guard import guarded
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.write_tokens import is_write_token

NONE: Final = -1
EPOCH_LAST: Final = 2**15 - 2
"""The last epoch a producer may use, as in Kafka; after it the producer gets a new id."""


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, InitProducerIdRequest)
    if message.transactional_id is not None:
        empty = not message.transactional_id
        error = (
            ErrorCode.INVALID_REQUEST if empty else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
        _answer(request, error)
        return
    has_id, has_epoch = message.producer_id != NONE, message.producer_epoch != NONE
    absurd = message.producer_id < NONE or message.producer_epoch < NONE
    if has_id != has_epoch or absurd or is_write_token(message.producer_id):
        _answer(request, ErrorCode.INVALID_REQUEST)
    elif has_id and message.producer_epoch < EPOCH_LAST:
        _answer(request, ErrorCode.NONE, message.producer_id, message.producer_epoch + 1)
    else:
        broker.producer_ids.take(guarded(broker, request, partial(_on_id, request)))


def _on_id(request: Request, producer_id: int | None) -> None:
    if producer_id is None:
        _answer(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    else:
        _answer(request, ErrorCode.NONE, producer_id, 0)


def _answer(
    request: Request, error: ErrorCode, producer_id: int = NONE, producer_epoch: int = NONE
) -> None:
    response = InitProducerIdResponse(
        error_code=error, producer_id=producer_id, producer_epoch=producer_epoch
    )
    request.reply.complete(encode_response(request.header, response))
