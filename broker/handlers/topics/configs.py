"""DescribeConfigs: the settings in force for a topic, and for this node."""

from collections.abc import Iterable, Iterator
from enum import IntEnum
from functools import partial
from typing import NamedTuple

from balancer.registry.records import Topic
from broker.handlers.topics.known_names import NO_TOPIC, before_denying, denied, is_unknown
from broker.requests.context import Broker
from broker.requests.request import Request
from broker.topic_configs import TOPIC_CONFIGS, ConfigType
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4


class Source(IntEnum):
    """Where a value comes from."""

    DYNAMIC_TOPIC = 1
    STATIC_BROKER = 4
    DEFAULT = 5


class Setting(NamedTuple):
    name: str
    value: str
    source: Source
    type: ConfigType
    documentation: str
    read_only: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    """The defaults behind the value, in the order in which they would apply."""


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
    settings: Iterable[Setting] = ()
    if resource.resource_type == ResourceType.TOPIC:
        topic = broker.registry.topic(resource.resource_name)
        if topic is None:
            result.error_code, result.error_message = denied(broker, NO_TOPIC)
        else:
            settings = topic_settings(broker, topic)
    elif resource.resource_type == ResourceType.BROKER:
        if resource.resource_name != str(broker.me):
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = f"this is node {broker.me}: ask a node about itself"
        else:
            settings = _broker_settings(broker)
    else:
        result.error_code = ErrorCode.INVALID_REQUEST
        result.error_message = f"there are no resources of type {resource.resource_type}"
    wanted = resource.configuration_keys
    keys = None if wanted is None else frozenset(wanted)
    result.configs = [_result(one, message) for one in settings if keys is None or one.name in keys]
    return result


def topic_settings(broker: Broker, topic: Topic) -> Iterator[Setting]:
    replicas = replicas_of(broker)
    for known in TOPIC_CONFIGS.values():
        value = topic.configs.get(known.name)
        default = known.default(broker.config, replicas)
        source = Source.DEFAULT if value is None else Source.DYNAMIC_TOPIC
        fallback = DescribeConfigsSynonym(known.broker_name, default, Source.DEFAULT)
        own = DescribeConfigsSynonym(known.name, value, Source.DYNAMIC_TOPIC)
        yield Setting(
            known.name,
            default if value is None else value,
            source,
            known.type,
            known.documentation,
            synonyms=(fallback,) if value is None else (own, fallback),
        )


def replicas_of(broker: Broker) -> int:
    """How many copies a partition has: its Paxos group's members, of which all groups have as many.
    Founders are members before they have registered; a cluster older than replica sets has none."""
    cluster, nodes = broker.registry.cluster, len(broker.registry.nodes)
    if cluster is None or not cluster.replicas:
        return max(1, min(broker.config.replication, nodes))
    return min(cluster.replicas, max(nodes, len(cluster.founders)))


def _broker_settings(broker: Broker) -> Iterator[Setting]:
    config = broker.config
    flags = {True: "true", False: "false"}
    table = (
        ("auto.create.topics.enable", flags[config.auto_create_topics], ConfigType.BOOLEAN),
        ("broker.id", str(broker.me), ConfigType.INT),
        ("default.replication.factor", str(replicas_of(broker)), ConfigType.INT),
        ("fetch.max.bytes", str(config.fetch_bytes_max), ConfigType.INT),
        (
            "group.initial.rebalance.delay.ms",
            str(config.consumer_group_rebalance_delay_ms),
            ConfigType.INT,
        ),
        ("log.retention.bytes", str(config.retention_bytes), ConfigType.LONG),
        (
            "log.retention.check.interval.ms",
            str(config.retention_check_ms),
            ConfigType.LONG,
        ),
        ("log.retention.ms", str(config.retention_ms), ConfigType.LONG),
        ("message.max.bytes", str(config.batch_bytes_max), ConfigType.INT),
        ("num.partitions", str(config.default_partitions), ConfigType.INT),
    )
    for name, value, kind in table:
        synonym = DescribeConfigsSynonym(name, value, Source.STATIC_BROKER)
        yield Setting(
            name, value, Source.STATIC_BROKER, kind, "", read_only=True, synonyms=(synonym,)
        )


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
