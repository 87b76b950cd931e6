"""A request that is refused as a whole, in the format of its API.

Where a version has an error for the whole request, that says it; else every item that the request
names is refused. Nothing is looked up or decided; long answers are encoded in the background.
"""

from collections.abc import Callable, Iterator, Sized
from typing import Any, Final, cast

from balancer.registry.records import Address, Node
from broker.requests.context import Broker
from broker.requests.named_items import NAMED, set_error
from broker.requests.request import Request
from wire.apis import APIS, ApiKey, RequestHeader, Response, encode_response
from wire.codec.primitives import Buffer
from wire.codec.schema import fields_of
from wire.error_codes import ErrorCode
from wire.messages import logs, metadata

BYTES_OF_A_THING: Final = 16
"""The least that an item of a large request costs in its answer: an estimate."""
BACKGROUND_FROM: Final = 500
"""Writing an answer for this many items costs a millisecond."""


def whole_refusal(
    broker: Broker, header: RequestHeader, error: ErrorCode, text: str, listener: str
) -> Response | None:
    """An answer that has an error for the whole request; None where this version has none. Without
    one, an empty answer would be taken for the truth. `listener`: the name of the client's."""
    answer = _empty_answer(broker, header, listener)
    for field in fields_of(type(answer)):
        if field.name == "error_code" and field.spec.versions.has(header.api_version):
            set_error(answer, error, text)
            return cast(Response, answer)
    if header.api_key == ApiKey.DESCRIBE_LOG_DIRS:
        directory = logs.DescribeLogDirsResult(error, broker.log_dir.path)
        return logs.DescribeLogDirsResponse(results=[directory])
    return None


def _empty_answer(broker: Broker, header: RequestHeader, listener: str) -> Any:  # noqa: ANN401
    answer: Any = APIS[header.api_key].response()
    if isinstance(answer, metadata.MetadataResponse):
        answer.brokers = known_brokers(broker, listener)
    return answer


def _name_all(
    answer: Any,  # noqa: ANN401  a Response
    header: RequestHeader,
    message: object,
    error: ErrorCode,
    text: str,
) -> bool:
    """Refuse everything that the request names; False if it names nothing, so that nothing could be
    said. Reads nothing that the loop changes."""
    refused = 0
    for named in NAMED[header.api_key]:
        items = named.refusals(message, error, text)
        if items:
            getattr(answer, named.answered).extend(items)
            refused += len(items)
    return refused > 0


def known_brokers(broker: Broker, listener: str) -> list[metadata.MetadataResponseBroker]:
    """The nodes of the cluster, as Metadata names them to clients of a listener."""
    return [
        metadata.MetadataResponseBroker(node.node, *address, node.zone or None)
        for node, address in reached_by(broker, listener)
    ]


def reached_by(broker: Broker, listener: str) -> Iterator[tuple[Node, Address]]:
    """The nodes that have a listener of this name, and where; the others are left out, as in
    Kafka."""
    registry = broker.registry
    for node in registry.nodes.values():
        address = registry.address(node.node, listener)
        if address is not None:
            yield node, address


def refuse(broker: Broker, request: Request, error: ErrorCode, text: str, things: int) -> None:
    """Answer a decoded request with `error`. One that names nothing loses its connection."""
    header = request.header
    listener = request.reply.connection.listener.name
    whole = whole_refusal(broker, header, error, text, listener)
    if whole is not None:
        request.reply.complete(encode_response(header, whole))
        return
    answer = _empty_answer(broker, header, listener)  # here: it reads the registry

    def written() -> list[Buffer] | None:
        if not _name_all(answer, header, request.message, error, text):
            return None
        return encode_response(header, answer)

    def done(frame: list[Buffer] | None) -> None:
        if frame is None:
            request.reply.close(text)
        else:
            request.reply.complete(frame)

    if things < BACKGROUND_FROM:
        done(written())
    else:
        broker.background.submit(written, done)


def refuse_more_than(limit: int, named: Sized, broker: Broker, request: Request) -> bool:
    """Refuse a request that names more things than any client has."""
    if len(named) <= limit:
        return False
    name = APIS[request.header.api_key].name
    text = f"{name} names {len(named)} things, at most {limit} are answered"
    refuse(broker, request, ErrorCode.INVALID_REQUEST, text, len(named))
    return True


def answer_aside(broker: Broker, request: Request, things: int, make: Callable[[], Any]) -> None:
    """Answer with the result of `make`, in another thread if it is about many items. It must not
    read what the loop changes."""
    if things < BACKGROUND_FROM:
        request.reply.complete(encode_response(request.header, make()))
    else:
        broker.background.submit(
            lambda: encode_response(request.header, make()), request.reply.complete
        )
