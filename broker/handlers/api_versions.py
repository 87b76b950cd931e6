"""ApiVersions: the ranges of what this broker has handlers for, from the one table of APIs."""

from collections.abc import Callable, Iterable

from broker.context import Broker, Request
from wire.apis import advertised, encode_response
from wire.messages.api_versions import ApiVersionsResponse


def handler_for(keys: Iterable[int]) -> Callable[[Broker, Request], None]:
    """The handler that advertises `keys`, in the versions wire.apis says.

    Of what Kafka 4 has we leave out: transactions (24, 25, 26, 28), KIP-848 (68, 69), telemetry
    (71, 72), 74 and 75; clients fall back silently, or say clearly what is missing.
    """
    served = frozenset(keys)
    response = ApiVersionsResponse(api_keys=[one for one in advertised() if one.api_key in served])

    def handle(broker: Broker, request: Request) -> None:
        request.reply.complete(encode_response(request.header, response))

    return handle
