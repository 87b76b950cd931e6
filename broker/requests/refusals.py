"""A request that is refused as a whole, in the format of its API: every item it names is refused.

If a version has an error for the request itself, that is set as well. Nothing is looked up or
decided; long answers are encoded in the background.
"""

from collections.abc import Callable, Mapping, Sized
from functools import partial
from typing import Any, Final

from broker.requests.context import Broker
from broker.requests.request import Request
from wire.apis import APIS, ApiKey, RequestHeader, Response, encode_response
from wire.codec.primitives import FAILURES, Buffer, read_uvarint
from wire.codec.schema import fields_of
from wire.error_codes import ErrorCode
from wire.messages import configs, offsets, produce, topics

BACKGROUND_FROM: Final = 500
"""Writing an answer for this many items costs a millisecond."""

Refuse = Callable[[Any, int, str], Any]
"""The answer to a request: its message, the error and its words."""


def _create_topics(message: Any, error: int, text: str) -> topics.CreateTopicsResponse:  # noqa: ANN401
    return topics.CreateTopicsResponse(
        topics=[
            topics.CreatableTopicResult(name=one.name, error_code=error, error_message=text)
            for one in message.topics
        ]
    )


def _delete_topics(message: Any, error: int, text: str) -> topics.DeleteTopicsResponse:  # noqa: ANN401
    result = topics.DeletableTopicResult
    by_name = [result(name=name, error_code=error) for name in message.topic_names]
    by_id = [
        result(name=one.name, topic_id=one.topic_id, error_code=error, error_message=text)
        for one in message.topics
    ]
    return topics.DeleteTopicsResponse(responses=by_id or by_name)


def _create_partitions(
    message: Any,  # noqa: ANN401
    error: int,
    text: str,
) -> topics.CreatePartitionsResponse:
    return topics.CreatePartitionsResponse(
        results=[
            topics.CreatePartitionsTopicResult(name=one.name, error_code=error, error_message=text)
            for one in message.topics
        ]
    )


def _alter_configs(response: type[Any], message: Any, error: int, text: str) -> Any:  # noqa: ANN401
    return response(
        responses=[
            configs.AlterConfigsResourceResponse(error, text, one.resource_type, one.resource_name)
            for one in message.resources
        ]
    )


def _produce(message: produce.ProduceRequest, error: int, text: str) -> produce.ProduceResponse:
    return produce.ProduceResponse(
        responses=[
            produce.TopicProduceResponse(
                topic.name,
                [
                    produce.PartitionProduceResponse(one.index, error, -1, error_message=text)
                    for one in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


REFUSALS: Final[Mapping[int, Refuse]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.ALTER_CONFIGS: partial(_alter_configs, configs.AlterConfigsResponse),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: partial(
        _alter_configs, configs.IncrementalAlterConfigsResponse
    ),
}
"""Of those whose answer is about each thing that was named."""


def top_level_error(header: RequestHeader, frame: memoryview, error: ErrorCode) -> Response | None:
    """An answer that has an error for the whole request; None where this version has none: without
    one, an empty answer would be taken for the truth."""
    key, version = header.api_key, header.api_version
    response: Any = APIS[key].response
    for field in fields_of(response):
        if field.name == "error_code" and field.spec.versions.has(version):
            answer: Response = response(error_code=error)
            return answer
    if key == ApiKey.OFFSET_FETCH and version >= CONSUMER_GROUPS_FROM:
        return _offset_fetch(header, frame, error)
    return None


CONSUMER_GROUPS_FROM: Final = 8


def _offset_fetch(
    header: RequestHeader, frame: memoryview, error: ErrorCode
) -> offsets.OffsetFetchResponse | None:
    """The first consumer group of the request is told; nearly always there is no other one. Clients
    take one that is missing for an error of the broker's."""
    try:
        _, at = read_uvarint(frame, header.body_offset)
        size, at = read_uvarint(frame, at)
        if not 0 < size <= len(frame) - at + 1:
            return None
        name = frame[at : at + size - 1].tobytes().decode()
    except FAILURES:
        return None
    group = offsets.OffsetFetchResponseGroup(group_id=name, error_code=error)
    return offsets.OffsetFetchResponse(groups=[group])


def refuse(broker: Broker, request: Request, error: ErrorCode, text: str, things: int) -> None:
    """Answer; a request of an API that has no words for it loses its connection."""
    header = request.header
    make = REFUSALS.get(header.api_key) if request.message is not None else None
    if make is None:
        answer = top_level_error(header, request.frame, error)
        if answer is None:
            request.reply.close(text)
        else:
            request.reply.complete(encode_response(header, answer))
    elif things < BACKGROUND_FROM:
        request.reply.complete(_written(make, header, request.message, error, text))
    else:
        work = partial(_written, make, header, request.message, error, text)
        broker.background.submit(work, request.reply.complete)


def refuse_more_than(limit: int, named: Sized, broker: Broker, request: Request) -> bool:
    """Refuse a request that names more things than any client has."""
    if len(named) <= limit:
        return False
    name = APIS[request.header.api_key].name
    text = f"{name} names {len(named)} things, at most {limit} are answered"
    refuse(broker, request, ErrorCode.INVALID_REQUEST, text, len(named))
    return True


def answer_aside(broker: Broker, request: Request, things: int, make: Callable[[], Any]) -> None:
    """Answer what `make` makes, in another thread where it is about many things. It is not to look
    at what the loop changes."""
    if things < BACKGROUND_FROM:
        request.reply.complete(encode_response(request.header, make()))
    else:
        broker.background.submit(
            lambda: encode_response(request.header, make()), request.reply.complete
        )


def _written(
    make: Refuse, header: RequestHeader, message: object, error: ErrorCode, text: str
) -> list[Buffer]:
    return encode_response(header, make(message, error, text))
