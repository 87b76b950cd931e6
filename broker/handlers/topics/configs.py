"""DescribeConfigs: the settings in force for a topic, a node, a consumer group.

The cluster-wide defaults of nodes, those of the node with the empty name, are an empty list, as in
a Kafka where nobody has set any.
"""

from collections.abc import Iterable
from enum import IntEnum
from functools import partial

from balancer.registry.catalogue import name_problem
from broker.handlers.topics.broker_settings import broker_settings
from broker.handlers.topics.known_names import NO_TOPIC, before_denying, denied, is_unknown
from broker.handlers.topics.live_settings import live_settings, loggers
from broker.handlers.topics.registry_changes import Verdict
from broker.handlers.topics.settings import Setting, group_settings, replicas_of, topic_settings
from broker.requests.context import Broker
from broker.requests.request import Request
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeConfigsRequest)
    names = [
        one.resource_name for one in message.resources if one.resource_type == ResourceType.TOPIC
    ]
    answer = partial(_answer, broker, request, message)
    before_denying(broker, request, partial(is_unknown, broker, names), answer)


def _answer(broker: Broker, request: Request, message: DescribeConfigsRequest) -> None:
    results = [_describe(broker, one, message) for one in message.resources]
    response = DescribeConfigsResponse(results=results)
    request.reply.complete(encode_response(request.header, response))


def _describe(
    broker: Broker, resource: DescribeConfigsResource, message: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    found = _settings(broker, resource.resource_type, resource.resource_name)
    if isinstance(found, Verdict):
        result.error_code, result.error_message = found
        return result
    keys = frozenset(resource.configuration_keys or ())  # as in Kafka, no names are all names
    result.configs = [_result(one, message) for one in found if not keys or one.name in keys]
    return result


def _settings(broker: Broker, kind: int, name: str) -> Iterable[Setting] | Verdict:
    if kind == ResourceType.TOPIC:
        wrong = name_problem(name)
        if wrong is not None:
            return Verdict(ErrorCode.INVALID_TOPIC_EXCEPTION, wrong)
        topic = broker.registry.topic(name)
        if topic is None:
            return denied(broker, NO_TOPIC)
        return topic_settings(broker.config, replicas_of(broker), topic)
    if kind == ResourceType.BROKER:
        return node_problem(broker, name) or (_of_node(broker) if name else ())
    if kind == ResourceType.BROKER_LOGGER:
        return loggers(broker, name)
    if kind == ResourceType.CLIENT_METRICS:
        nameless = Verdict(ErrorCode.INVALID_REQUEST, "the subscription has no name")
        return () if name else nameless
    if kind == ResourceType.GROUP:
        if not name:
            return Verdict(ErrorCode.INVALID_REQUEST, "the consumer group has no name")
        return group_settings(broker)
    return Verdict(ErrorCode.INVALID_REQUEST, f"there are no resources of type {kind}")


def _of_node(broker: Broker) -> Iterable[Setting]:
    yield from broker_settings(broker)
    yield from live_settings(broker)


def node_problem(broker: Broker, name: str) -> Verdict | None:
    """Why this is not the name of this node, or of the defaults of all; as Kafka says it."""
    if name in ("", str(broker.me)):
        return None
    text = (
        f"unexpected broker id: expected {broker.me} or the empty string, but received {name[:20]}"
        if name.isdecimal()
        else f"a broker id is an integer, but it is {name[:20]!r}"
    )
    return Verdict(ErrorCode.INVALID_REQUEST, text)


def _result(setting: Setting, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=setting.name,
        value=setting.value,
        read_only=setting.read_only,
        config_source=setting.source,
        synonyms=list(setting.synonyms) if message.include_synonyms else [],
        config_type=setting.type,
        documentation=setting.documentation if message.include_documentation else None,
    )
