"""ListConfigResources (KIP-1142): what DescribeConfigs can be asked about.

Version 0 asks for subscriptions to clients' metrics alone (KIP-714): there are none. Consumer
groups have no settings of their own here, so none is listed.
"""

from typing import Final

from broker.handlers.topics.configs import ResourceType
from broker.handlers.topics.known_names import before_denying, knows_a_part
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.refusals import answer_aside, refuse, refuse_more_than
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    ListedConfigResource,
)

TYPES_FROM: Final = 1
TYPES_MAX: Final = 100
_ALL: Final = tuple(ResourceType)


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ListConfigResourcesRequest)
    if request.header.api_version < TYPES_FROM:
        request.reply.complete(encode_response(request.header, ListConfigResourcesResponse()))
        return
    if refuse_more_than(TYPES_MAX, message.resource_types, broker, request):
        return
    types = frozenset(message.resource_types or _ALL)
    unknown = types - set(_ALL)
    if unknown:
        text = f"there are no resources of type {min(unknown)}"
        refuse(broker, request, ErrorCode.UNSUPPORTED_VERSION, text, len(types))
        return

    def answer() -> None:
        _answer(broker, request, types)

    before_denying(
        broker, request, lambda: ResourceType.TOPIC in types, guarded(broker, request, answer)
    )


def _answer(broker: Broker, request: Request, types: frozenset[int]) -> None:
    if knows_a_part(broker):
        request.reply.close("not everything is known here: this node is still catching up")
        return
    topics = list(broker.registry.topics) if ResourceType.TOPIC in types else []
    nodes = list(broker.registry.nodes) if ResourceType.BROKER in types else []

    def written() -> ListConfigResourcesResponse:
        named = [ListedConfigResource(name, ResourceType.TOPIC) for name in topics]
        named += [ListedConfigResource(str(node), ResourceType.BROKER) for node in nodes]
        return ListConfigResourcesResponse(config_resources=named)

    answer_aside(broker, request, len(topics) + len(nodes), written)
