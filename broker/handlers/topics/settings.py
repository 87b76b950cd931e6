"""Settings as DescribeConfigs tells them: of a topic, and of a consumer group."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from balancer.registry.records import Topic
from broker.config import BrokerConfig
from broker.requests.context import Broker
from broker.topic_configs import TOPIC_CONFIGS, ConfigType
from wire.messages.configs import DescribeConfigsSynonym


class Source(IntEnum):
    """Where a value comes from."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_LOGGER = 6


class Setting(NamedTuple):
    name: str
    value: str | None
    source: Source
    type: ConfigType
    documentation: str
    read_only: bool = False
    synonyms: tuple[DescribeConfigsSynonym, ...] = ()
    """The defaults behind the value, in the order in which they would apply."""


def topic_settings(config: BrokerConfig, replicas: int, topic: Topic) -> Iterator[Setting]:
    """Also in another thread: it reads nothing that changes. `replicas`: see `replicas_of`."""
    for known in TOPIC_CONFIGS.values():
        value = topic.configs.get(known.name)
        default = known.default(config, replicas)
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


def group_settings(broker: Broker) -> Iterator[Setting]:
    """The same for every consumer group: none has settings of its own."""
    config = broker.consumer_groups.config
    for name, value, documentation in (
        (
            "consumer.heartbeat.interval.ms",
            config.consumer_heartbeat_interval_ms,
            "How often members report, in groups with broker-side assignment.",
        ),
        (
            "consumer.session.timeout.ms",
            config.consumer_session_timeout_ms,
            "How long a member of such a group may be silent.",
        ),
    ):
        fallback = DescribeConfigsSynonym(f"group.{name}", str(value), Source.DEFAULT)
        yield Setting(
            name,
            str(value),
            Source.DEFAULT,
            ConfigType.INT,
            documentation,
            read_only=True,
            synonyms=(fallback,),
        )
