"""A node's settings under Kafka's names, for tools that look there (DescribeConfigs).

All are read-only: they come from the node's configuration file, or cannot be changed at all. The
defaults of topics' settings are among them, under the names that these have on a Kafka broker.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.config import BrokerConfig
from broker.handlers.topics.settings import Setting, Source, replicas_of
from broker.requests.context import Broker
from broker.security.listeners import DEFAULT, SecurityProtocol
from broker.topic_configs import TOPIC_CONFIGS, ConfigType
from coordinator.limits import CoordinatorConfig
from wire.messages.configs import DescribeConfigsSynonym

_FLAGS: Final = {True: "true", False: "false"}
THROTTLES: Final = (
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
)
"""What kafka-reassign-partitions sets and deletes on every node: accepted, and without effect."""
_NO_RATE: Final = str(2**63 - 1)
"""Kafka's default: no bound."""


class _Row(NamedTuple):
    name: str
    value: str | None
    type: ConfigType
    documentation: str
    configured: bool = True
    """Whether the node's configuration decides it."""


def broker_settings(broker: Broker) -> Iterator[Setting]:
    rows = {
        one.name: one
        for one in (
            *_of_topics(broker),
            *_addresses(broker),
            *_of_groups(broker.consumer_groups.config),
            *_others(broker, broker.config),
            *map(_throttle, THROTTLES),
        )
    }
    for _, row in sorted(rows.items()):
        source = Source.STATIC_BROKER if row.configured else Source.DEFAULT
        yield Setting(
            row.name,
            row.value,
            source,
            row.type,
            row.documentation,
            read_only=True,
            synonyms=(DescribeConfigsSynonym(row.name, row.value, source),),
        )


def _throttle(name: str) -> _Row:
    text = "no effect, whatever it is set to: state transfer has bounds of its own"
    return _Row(name, _NO_RATE, ConfigType.LONG, text, configured=False)


def _of_topics(broker: Broker) -> Iterator[_Row]:
    replicas = replicas_of(broker)
    for known in TOPIC_CONFIGS.values():
        value = known.default(broker.config, replicas)
        yield _Row(known.broker_name, value, known.type, known.documentation, configured=False)


def _addresses(broker: Broker) -> Iterator[_Row]:
    node = broker.registry.nodes.get(broker.me)
    named = broker.registry.security.listeners.get(broker.me)
    if named is None:
        told = "" if node is None else _url(DEFAULT.name, *node.kafka)
        protocols = f"{DEFAULT.name}:{DEFAULT.name}"
    else:
        told = ",".join(_url(one.name, *one.address) for one in named)
        protocols = ",".join(f"{one.name}:{SecurityProtocol(one.protocol).name}" for one in named)
    bound = broker.config.listeners or told
    rack = None if node is None else node.zone or None
    text = ConfigType.STRING
    yield _Row("advertised.listeners", told, text, "listen.advertised_kafka")
    yield _Row("broker.id", str(broker.me), ConfigType.INT, "node.id")
    yield _Row("broker.rack", rack, text, "node.zone")
    yield _Row("listener.security.protocol.map", protocols, text, "", False)
    yield _Row("listeners", bound, text, "listen.kafka")
    yield _Row("log.dir", broker.log_dir.path, text, "node.data_dir")
    yield _Row("log.dirs", broker.log_dir.path, text, "node.data_dir: a node has one")
    yield _Row("node.id", str(broker.me), ConfigType.INT, "node.id")
    yield _Row(
        "process.roles", "broker,controller", ConfigType.LIST, "Every node may be both.", False
    )


def _url(name: str, host: str, port: int) -> str:
    return f"{name}://[{host}]:{port}" if ":" in host else f"{name}://{host}:{port}"


def _of_groups(config: CoordinatorConfig) -> Iterator[_Row]:
    integer = ConfigType.INT
    retention_min = config.offsets_retention_ms // 60_000
    yield _Row(
        "group.consumer.heartbeat.interval.ms",
        str(config.consumer_heartbeat_interval_ms),
        integer,
        "",
        False,
    )
    yield _Row(
        "group.consumer.migration.policy",
        "bidirectional",
        ConfigType.STRING,
        "Classic and new members may be in one group, which changes its kind in both directions.",
        False,
    )
    yield _Row(
        "group.consumer.session.timeout.ms",
        str(config.consumer_session_timeout_ms),
        integer,
        "",
        False,
    )
    yield _Row(
        "group.coordinator.rebalance.protocols",
        "classic,consumer",
        ConfigType.LIST,
        "No share and no streams groups.",
        False,
    )
    yield _Row(
        "group.initial.rebalance.delay.ms",
        str(config.initial_rebalance_delay_ms),
        integer,
        "broker.group_initial_rebalance_delay_ms",
    )
    yield _Row(
        "group.max.session.timeout.ms",
        str(config.session_timeout_ms_max),
        integer,
        "broker.group_session_timeout_ms_max",
    )
    yield _Row("group.max.size", str(config.members_per_group_max), integer, "", False)
    yield _Row(
        "group.min.session.timeout.ms",
        str(config.session_timeout_ms_min),
        integer,
        "broker.group_session_timeout_ms_min",
    )
    yield _Row(
        "offset.metadata.max.bytes", str(config.offset_metadata_bytes_max), integer, "", False
    )
    yield _Row("offsets.retention.minutes", str(retention_min), integer, "", False)


def _others(broker: Broker, config: BrokerConfig) -> Iterator[_Row]:
    integer, flag = ConfigType.INT, ConfigType.BOOLEAN
    yield _Row(
        "auto.create.topics.enable",
        _FLAGS[config.auto_create_topics],
        flag,
        "broker.auto_create_topics",
    )
    yield _Row("authorizer.class.name", "", ConfigType.STRING, "There are no ACLs.", False)
    yield _Row("default.replication.factor", str(replicas_of(broker)), integer, "groups.replicas")
    yield _Row("delete.topic.enable", "true", flag, "", False)
    yield _Row("fetch.max.bytes", str(config.fetch_bytes_max), integer, "limits.fetch_bytes_max")
    yield _Row("log.cleaner.enable", "true", flag, "", False)
    yield _Row(
        "log.retention.bytes",
        str(config.retention_bytes),
        ConfigType.LONG,
        "broker.retention_bytes",
    )
    yield _Row(
        "log.retention.check.interval.ms",
        str(config.retention_check_ms),
        ConfigType.LONG,
        "storage.retention_check_ms",
    )
    yield _Row("log.retention.ms", str(config.retention_ms), ConfigType.LONG, "broker.retention_ms")
    yield _Row("message.max.bytes", str(config.batch_bytes_max), integer, "limits.frame_bytes_max")
    yield _Row(
        "num.partitions", str(config.default_partitions), integer, "broker.default_partitions"
    )
    yield _Row("remote.log.storage.system.enable", "false", flag, "Nothing is tiered.", False)
