"""ApiVersions: the ranges of what this broker has handlers for, from the one table of APIs."""

from collections.abc import Callable, Iterable

from broker.context import Broker, Request
from wire.apis import advertised, encode_response
from wire.messages.api_versions import ApiVersionsResponse


def handler_for(keys: Iterable[int]) -> Callable[[Broker, Request], None]:
    """The handler that advertises `keys`, in the versions wire.apis says.

    What is left out, and what clients do without it, is told in docs/kafka.md, "Not served".
    """
    served = frozenset(keys)
    response = ApiVersionsResponse(api_keys=[one for one in advertised() if one.api_key in served])

    def handle(broker: Broker, request: Request) -> None:
        request.reply.complete(encode_response(request.header, response))

    return handle
