"""The settings a topic may have, the values of them that we can honour, and their defaults.

Every setting of Kafka's is accepted with every value that Kafka accepts, unless it would promise
what Evenkeel does not do: that is refused, with a reason, when a topic is created or changed. A
setting about something that is not done here, or always, changes nothing and says so (ADR 52).
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from operator import attrgetter
from typing import Final

import attrs

from broker.config import BrokerConfig
from wire.records.batch import Compression

_BLANKS: Final = "".join(map(chr, range(0x21)))
"""What Kafka leaves out around a value."""

_COMMA: Final = re.compile(r"[ \t\n\v\f\r]*,[ \t\n\v\f\r]*")

_INTEGER: Final = re.compile(r"[+-]?\d{1,100}")
"""As Kafka reads it: digits of any script. int() also accepts blanks and underscores."""

_REPLICAS: Final = re.compile(r"([0-9]{1,10}:[0-9]{1,10})?")

_DECIMAL: Final = re.compile(
    r"([+-]?([0-9]{1,100}(\.[0-9]{0,100})?|\.[0-9]{1,100})([eE][+-]?[0-9]{1,5})?)[fFdD]?"
)
"""As Kafka reads it, without NaN and hexadecimal ones."""

CLEANUP_POLICY: Final = "cleanup.policy"
COMPRESSION_TYPE: Final = "compression.type"
COMPRESSION_LEVEL_DEFAULTS: Final = {"gzip": -1, "lz4": 9, "zstd": 3}
PRODUCER: Final = "producer"
CODECS: Final = ("gzip", "snappy", "lz4", "zstd")
COMPACT: Final = "compact"
DELETE: Final = "delete"
DELETE_RETENTION_MS: Final = "delete.retention.ms"
MIN_COMPACTION_LAG_MS: Final = "min.compaction.lag.ms"
MAX_COMPACTION_LAG_MS: Final = "max.compaction.lag.ms"
MIN_CLEANABLE_DIRTY_RATIO: Final = "min.cleanable.dirty.ratio"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
RETENTION_BYTES: Final = "retention.bytes"
RETENTION_MS: Final = "retention.ms"
SEGMENT_BYTES: Final = "segment.bytes"
SEGMENT_MS: Final = "segment.ms"
SEGMENT_BYTES_MIN: Final = 1 << 20
"""Kafka's own from 4.0 on: a file for every few records would ruin any disk."""
TIMESTAMP_TYPE: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"
TIMESTAMP_AFTER_MAX_MS: Final = "message.timestamp.after.max.ms"
TIMESTAMP_AFTER_MAX_MS_DEFAULT: Final = 3600 * 1000
TIMESTAMP_BEFORE_MAX_MS: Final = "message.timestamp.before.max.ms"
DAY_MS: Final = 24 * 3600 * 1000
NO_LIMIT_MS: Final = 2**63 - 1


class ConfigType(IntEnum):
    """Numbers used by DescribeConfigs from version 3 on; no setting of a topic is a SHORT (4)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


Check = Callable[[str, BrokerConfig, int], str | None]
"""What is wrong with a value, given the broker's settings and the number of replicas."""


@attrs.frozen(kw_only=True)
class TopicConfig:
    name: str
    type: ConfigType
    default: Callable[[BrokerConfig, int], str]
    check: Check
    broker_name: str
    """Kafka's name of the broker setting that is its default."""
    documentation: str


def _only(*allowed: str, because: str) -> Check:
    def check(value: str, config: BrokerConfig, replicas: int) -> str | None:
        return None if value in allowed else f"only {' or '.join(allowed)}: {because}"

    return check


def _integer(least: int, most: Callable[[BrokerConfig, int], int], because: str = "") -> Check:
    def check(value: str, config: BrokerConfig, replicas: int) -> str | None:
        if _INTEGER.fullmatch(value) is None:
            return "not a number"
        number = int(value)
        limit = most(config, replicas)
        if least <= number <= limit:
            return None
        return f"not within {least} and {limit}{because}"

    return check


def _flag(value: str, config: BrokerConfig, replicas: int) -> str | None:
    return None if value.lower() in ("true", "false") else "only true or false"


def _throttled(value: str, config: BrokerConfig, replicas: int) -> str | None:
    fits = value == "*" or all(_REPLICAS.fullmatch(item) for item in _COMMA.split(value))
    return None if fits else "only * or partition:node pairs, with commas between them"


def _policy(value: str, config: BrokerConfig, replicas: int) -> str | None:
    if not {COMPACT, DELETE}.issuperset(items(value)):
        return f"only {DELETE}, {COMPACT}, both with a comma between them, or neither"
    return None


def items(value: str) -> list[str]:
    """Of a list, each once."""
    value = value.strip(_BLANKS)
    return list(dict.fromkeys(_COMMA.split(value))) if value else []


def _gzip_level(value: str, config: BrokerConfig, replicas: int) -> str | None:
    wrong = _integer(-1, lambda *_: 9)(value, config, replicas)
    return "only -1, or within 1 and 9" if wrong or int(value) == 0 else None


def _ratio(value: str, config: BrokerConfig, replicas: int) -> str | None:
    if _DECIMAL.fullmatch(value) is None:
        return "not a decimal number"
    return None if 0 <= float(value.rstrip("fFdD")) <= 1 else "not within 0 and 1"


def majority(replicas: int) -> int:
    """How many replicas have a record when it is acknowledged, whatever the client asks for."""
    return replicas // 2 + 1


def _long_max(config: BrokerConfig, replicas: int) -> int:
    return 2**63 - 1


def _int_max(config: BrokerConfig, replicas: int) -> int:
    return 2**31 - 1


def _always(value: str) -> Callable[[BrokerConfig, int], str]:
    return lambda config, replicas: value


_ALL: Final = (
    TopicConfig(
        name=CLEANUP_POLICY,
        type=ConfigType.LIST,
        default=_always(DELETE),
        check=_policy,
        broker_name="log.cleanup.policy",
        documentation="How records are removed: by age and size, or by a later one of their key.",
    ),
    TopicConfig(
        name=COMPRESSION_TYPE,
        type=ConfigType.STRING,
        default=_always(PRODUCER),
        check=_only(PRODUCER, "uncompressed", *CODECS, because="Kafka has no others"),
        broker_name=COMPRESSION_TYPE,
        documentation="Codec that record batches are stored with; producer: as they were sent.",
    ),
    *(
        TopicConfig(
            name=f"compression.{codec}.level",
            type=ConfigType.INT,
            default=_always(str(level)),
            check=check,
            broker_name=f"compression.{codec}.level",
            documentation=f"Effort for batches compressed here, if compression.type={codec}; "
            f"more than the default compresses like the default.",
        )
        for (codec, level), check in zip(
            COMPRESSION_LEVEL_DEFAULTS.items(),
            (_gzip_level, _integer(1, lambda *_: 17), _integer(-131_072, lambda *_: 22)),
            strict=True,
        )
    ),
    TopicConfig(
        name=DELETE_RETENTION_MS,
        type=ConfigType.LONG,
        default=_always("86400000"),
        check=_integer(0, _long_max),
        broker_name="log.cleaner.delete.retention.ms",
        documentation="How long a tombstone stays after compaction first sees it.",
    ),
    TopicConfig(
        name=MAX_COMPACTION_LAG_MS,
        type=ConfigType.LONG,
        default=_always(str(NO_LIMIT_MS)),
        check=_integer(1, _long_max),
        broker_name="log.cleaner.max.compaction.lag.ms",
        documentation="Records of this age may be compacted, wherever they are and however few.",
    ),
    TopicConfig(
        name="max.message.bytes",
        type=ConfigType.INT,
        default=lambda config, replicas: str(config.batch_bytes_max),
        check=_integer(0, lambda config, replicas: config.batch_bytes_max, ", the broker's limit"),
        broker_name="message.max.bytes",
        documentation="The largest record batch that is accepted.",
    ),
    TopicConfig(
        name=TIMESTAMP_AFTER_MAX_MS,
        type=ConfigType.LONG,
        default=_always(str(TIMESTAMP_AFTER_MAX_MS_DEFAULT)),
        check=_integer(0, _long_max),
        broker_name="log.message.timestamp.after.max.ms",
        documentation="How far a producer's time may be ahead of the broker's.",
    ),
    TopicConfig(
        name=TIMESTAMP_BEFORE_MAX_MS,
        type=ConfigType.LONG,
        default=_always(str(2**63 - 1)),
        check=_integer(0, _long_max),
        broker_name="log.message.timestamp.before.max.ms",
        documentation="How far a producer's time may be behind the broker's.",
    ),
    TopicConfig(
        name=TIMESTAMP_TYPE,
        type=ConfigType.STRING,
        default=_always("CreateTime"),
        check=_only("CreateTime", LOG_APPEND_TIME, because="Kafka has no others"),
        broker_name="log.message.timestamp.type",
        documentation="Which timestamp a record has: the producer's, or the time of its arrival.",
    ),
    TopicConfig(
        name=MIN_CLEANABLE_DIRTY_RATIO,
        type=ConfigType.DOUBLE,
        default=_always("0.5"),
        check=_ratio,
        broker_name="log.cleaner.min.cleanable.ratio",
        documentation="Which share of the tiered bytes must be new before they are compacted.",
    ),
    TopicConfig(
        name=MIN_COMPACTION_LAG_MS,
        type=ConfigType.LONG,
        default=_always("0"),
        check=_integer(0, _long_max),
        broker_name="log.cleaner.min.compaction.lag.ms",
        documentation="Younger records are not compacted.",
    ),
    TopicConfig(
        name=MIN_INSYNC_REPLICAS,
        type=ConfigType.INT,
        default=lambda config, replicas: str(majority(replicas)),
        check=_integer(1, _int_max),
        broker_name=MIN_INSYNC_REPLICAS,
        documentation="With fewer replicas in sync, acks=all is refused. Every acknowledged record "
        "is on a majority, whatever this says.",
    ),
    TopicConfig(
        name=RETENTION_BYTES,
        type=ConfigType.LONG,
        default=lambda config, replicas: str(config.retention_bytes),
        check=_integer(-(2**63), _long_max),
        broker_name="log.retention.bytes",
        documentation="Most bytes that a partition keeps; negative: no limit.",
    ),
    TopicConfig(
        name=RETENTION_MS,
        type=ConfigType.LONG,
        default=lambda config, replicas: str(config.retention_ms),
        check=_integer(-1, _long_max),
        broker_name="log.retention.ms",
        documentation="How long records are kept; -1: no limit.",
    ),
    TopicConfig(
        name=SEGMENT_BYTES,
        type=ConfigType.INT,
        default=_always(str(64 << 20)),
        check=_integer(SEGMENT_BYTES_MIN, _int_max),
        broker_name="log.segment.bytes",
        documentation="Size of the files with a partition's older data, deleted as a whole.",
    ),
    TopicConfig(
        name=SEGMENT_MS,
        type=ConfigType.LONG,
        default=_always(str(7 * DAY_MS)),
        check=_integer(1, _long_max),
        broker_name="log.roll.ms",
        documentation="Longest time span of one such file.",
    ),
)


def _idle(
    name: str, type_: ConfigType, value: str, because: str, check: Check, broker: str = ""
) -> TopicConfig:
    """A setting of Kafka's about something that is never done here, or always. Whoever sets it is
    promised nothing that does not hold anyway, so its value is kept, and changes nothing."""
    return TopicConfig(
        name=name,
        type=type_,
        default=_always(value),
        check=check,
        broker_name=broker or name,
        documentation=f"No effect: {because}.",
    )


_NO_TIERS: Final = "nothing is kept elsewhere"
_FLUSHED: Final = "what is acknowledged has been flushed by a majority"
_OWN_INDEX: Final = "the index of batches is of another kind"
_NO_FETCHERS: Final = "replicas do not fetch from each other"

_IDLE: Final = (
    _idle(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        "a deleted file stays open for its readers",
        _integer(0, _long_max),
        "log.segment.delete.delay.ms",
    ),
    _idle(
        "flush.messages",
        ConfigType.LONG,
        str(NO_LIMIT_MS),
        _FLUSHED,
        _integer(1, _long_max),
        "log.flush.interval.messages",
    ),
    _idle(
        "flush.ms",
        ConfigType.LONG,
        str(NO_LIMIT_MS),
        _FLUSHED,
        _integer(0, _long_max),
        "log.flush.interval.ms",
    ),
    _idle("follower.replication.throttled.replicas", ConfigType.LIST, "", _NO_FETCHERS, _throttled),
    _idle(
        "index.interval.bytes",
        ConfigType.INT,
        "4096",
        _OWN_INDEX,
        _integer(0, _int_max),
        "log.index.interval.bytes",
    ),
    _idle("leader.replication.throttled.replicas", ConfigType.LIST, "", _NO_FETCHERS, _throttled),
    _idle(
        "local.retention.bytes",
        ConfigType.LONG,
        "-2",
        _NO_TIERS,
        _integer(-2, _long_max),
        "log.local.retention.bytes",
    ),
    _idle(
        "local.retention.ms",
        ConfigType.LONG,
        "-2",
        _NO_TIERS,
        _integer(-2, _long_max),
        "log.local.retention.ms",
    ),
    _idle(
        "preallocate",
        ConfigType.BOOLEAN,
        "false",
        "the log is allocated ahead, other files are not",
        _flag,
        "log.preallocate",
    ),
    _idle("remote.log.copy.disable", ConfigType.BOOLEAN, "false", _NO_TIERS, _flag),
    _idle("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", _NO_TIERS, _flag),
    _idle(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        _NO_TIERS,
        _only(
            "false",
            because="tiered storage functionality is disabled, as in a Kafka without "
            "remote.log.storage.system.enable",
        ),
    ),
    _idle(
        "segment.index.bytes",
        ConfigType.INT,
        "10485760",
        _OWN_INDEX,
        _integer(4, _int_max),
        "log.index.size.max.bytes",
    ),
    _idle(
        "segment.jitter.ms",
        ConfigType.LONG,
        "0",
        "files end when they are full or old",
        _integer(0, _long_max),
        "log.roll.jitter.ms",
    ),
    _idle(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "a new master has everything that was acknowledged, or there is none",
        _flag,
    ),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {
    one.name: one for one in sorted((*_ALL, *_IDLE), key=attrgetter("name"))
}


def setting(configs: Mapping[str, str], name: str, config: BrokerConfig, replicas: int = 1) -> str:
    """The value in force for a topic with these settings."""
    value = configs.get(name)
    return TOPIC_CONFIGS[name].default(config, replicas) if value is None else value


def as_kept(name: str, value: str) -> str:
    """A value in which nothing is wrong, as it is kept and shown: without the blanks, signs and
    repetitions that Kafka reads over, so that no reader meets them."""
    value, kind = value.strip(_BLANKS), TOPIC_CONFIGS[name].type
    if kind is ConfigType.LIST:
        return ",".join(items(value))
    if kind in (ConfigType.INT, ConfigType.LONG):
        return str(int(value))
    if kind is ConfigType.DOUBLE:
        return str(float(value.rstrip("fFdD")))
    return value.lower() if kind is ConfigType.BOOLEAN else value


def problem(configs: Mapping[str, str | None], config: BrokerConfig, replicas: int) -> str | None:
    """What is wrong with the settings of a new topic; None if nothing is."""
    for name, value in configs.items():
        known = TOPIC_CONFIGS.get(name)
        if known is None:
            return f"unknown topic config {name[:100]!r}; known: {', '.join(TOPIC_CONFIGS)}"
        if value is None:
            return f"{name} has no value"
        wrong = known.check(value.strip(_BLANKS), config, replicas)
        if wrong is not None:
            return f"{name}={value[:100]}: {wrong}"
    return None


def relation_problem(configs: Mapping[str, str], config: BrokerConfig, replicas: int) -> str | None:
    """What is wrong between settings of a topic that are each valid by themselves; None if
    nothing."""
    least, most = (
        int(setting(configs, name, config, replicas))
        for name in (MIN_COMPACTION_LAG_MS, MAX_COMPACTION_LAG_MS)
    )
    if least > most:
        return f"{MIN_COMPACTION_LAG_MS}={least} is more than {MAX_COMPACTION_LAG_MS}={most}"
    return None


def is_compacted(configs: Mapping[str, str]) -> bool:
    """Whether records are removed when a later one has their key."""
    return COMPACT in items(configs.get(CLEANUP_POLICY, DELETE))


def is_deleted(configs: Mapping[str, str]) -> bool:
    """Whether records are removed by age and size."""
    return DELETE in items(configs.get(CLEANUP_POLICY, DELETE))


@attrs.frozen
class CompactionRules:
    """What a compacted topic's settings say, as numbers."""

    delete_retention_ms: int
    lag_ms_min: int
    lag_ms_max: int
    dirty_ratio_min: float


def compaction_rules(
    configs: Mapping[str, str], config: BrokerConfig, replicas: int
) -> CompactionRules:
    def value(name: str) -> str:
        return setting(configs, name, config, replicas)

    return CompactionRules(
        int(value(DELETE_RETENTION_MS)),
        int(value(MIN_COMPACTION_LAG_MS)),
        int(value(MAX_COMPACTION_LAG_MS)),
        float(value(MIN_CLEANABLE_DIRTY_RATIO)),
    )


@attrs.frozen
class Storing:
    """How a topic's batches are compressed where they are received."""

    codec: Compression
    level: int


def storing(configs: Mapping[str, str]) -> Storing | None:
    """None: as their producer sent them. A level above the default is too slow for the one thread
    that compresses for all clients of a node."""
    kind = configs.get(COMPRESSION_TYPE, PRODUCER)
    if kind == PRODUCER:
        return None
    if kind == "uncompressed":
        return Storing(Compression.NONE, 0)
    default = COMPRESSION_LEVEL_DEFAULTS.get(kind, 0)
    level = int(configs.get(f"compression.{kind}.level", default))
    usual = 6 if kind == "gzip" else default
    return Storing(Compression[kind.upper()], min(level, usual))


def replicas_needed(configs: Mapping[str, str]) -> int:
    """How many replicas have to be in sync for acks=all; a majority always has to."""
    return int(configs.get(MIN_INSYNC_REPLICAS, 1))
