"""ApiVersions: the version ranges that this broker has handlers for, from the one table of APIs.

It also advertises our one feature that a client may want to check before relying on it: Kafka has a
field for such names from version 3 on (KIP-584), and clients ignore names they do not know.

What a client says about itself is remembered for its connection (broker.client_software). As in
Kafka a name or version with other than the usual characters is refused (KIP-511).
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from broker.client_software import software
from broker.requests.context import Broker
from broker.requests.request import Request
from wire.apis import advertised, encode_response
from wire.error_codes import ErrorCode
from wire.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from wire.records.write_tokens import FEATURE, FEATURE_VERSION

NAMED_FROM: Final = 3
"""The first version in which a client names its software."""
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?")


def handler_for(keys: Iterable[int]) -> Callable[[Broker, Request], None]:
    """The handler that advertises `keys`, in the versions that wire.apis lists.

    docs/kafka.md, "Not served", says what is left out, and what clients do without it.
    """
    served = frozenset(keys)
    response = ApiVersionsResponse(
        api_keys=[one for one in advertised() if one.api_key in served],
        supported_features=[SupportedFeatureKey(FEATURE, 1, FEATURE_VERSION)],
    )

    def handle(broker: Broker, request: Request) -> None:
        message = request.message
        assert isinstance(message, ApiVersionsRequest)
        if request.header.api_version >= NAMED_FROM and not _is_named(message):
            refused = ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            request.reply.complete(encode_response(request.header, refused))
            return
        request.reply.connection.software = software(message.client_software_name)
        request.reply.complete(encode_response(request.header, response))

    return handle


def _is_named(message: ApiVersionsRequest) -> bool:
    words = (message.client_software_name, message.client_software_version)
    return all(_SOFTWARE.fullmatch(word) is not None for word in words)
