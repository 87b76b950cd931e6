"""InitProducerId: an id for an idempotent producer, always a new one (KIP-98).

Without a transactional id nothing proves that the id and epoch in a request belong to the client,
so they are ignored: of two producers with one identity each would have records dropped as
duplicates of the other's. A producer that lost count of its sequences raises its epoch by itself
(KIP-360), or takes a new id. Transactional ids are refused in a way that clients understand
immediately (docs/kafka.md).
"""

from functools import partial
from typing import Final

from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse

NONE: Final = -1


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
    if (message.producer_id == NONE) != (message.producer_epoch == NONE):
        _answer(request, ErrorCode.INVALID_REQUEST)
        return
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
