"""Settings, as frozen values that are always valid: each class checks itself when it is made."""

import ssl
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, Self

import attrs

from evenkeel.errors import ConfigurationError
from evenkeel.properties import security_of
from evenkeel.sasl import Sasl, TokenSource
from evenkeel.sharing import PartitionAssignor
from wire.addresses import parse_addresses
from wire.records.batch import Compression

LIBRARY_NAME: Final = "evenkeel"
IDEMPOTENT_WINDOW: Final = 5
"""Batches of one partition in flight: a broker remembers this many of a producer (KIP-98)."""


class Acks(Enum):
    """Which acknowledgements make a record count as delivered."""

    NONE = 0
    """None: it is delivered once it has been sent."""
    LEADER = 1
    ALL = -1
    """All replicas in sync; with Evenkeel a majority, as for LEADER."""


class Isolation(Enum):
    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1


class OffsetReset(Enum):
    """Where to begin without a committed offset, or if the log no longer contains it."""

    EARLIEST = "earliest"
    LATEST = "latest"
    ERROR = "error"


class Assignor(Enum):
    """How a consumer group distributes partitions; members must have one in common."""

    RANGE = "range"
    ROUND_ROBIN = "roundrobin"
    COOPERATIVE_STICKY = "cooperative-sticky"


def _at_least(one: object, least: int, *names: str) -> None:
    for name in names:
        value = getattr(one, name)
        if value < least:
            raise ConfigurationError(f"{name} is {value}", advice=f"it must be at least {least}")


def addresses(bootstrap: str | Sequence[str]) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`, or a sequence of those; an IPv6 address is in brackets.

    Raises:
        ConfigurationError: if there is none, or one that is not an address.
    """
    try:
        return parse_addresses(bootstrap)
    except ValueError as error:
        raise ConfigurationError(str(error), advice="write host:port,host:port") from None


@attrs.frozen(kw_only=True)
class ClientConfig:
    """What producers, consumers and admin clients have in common.

    `request_timeout_ms` is how long to wait for an answer before the connection is closed: the cost
    of a hung broker. Between attempts the pause grows from `retry_backoff_ms` up to
    `retry_backoff_max_ms`. A whole operation may take `operation_timeout_ms`.
    """

    client_id: str = LIBRARY_NAME
    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 10_000
    operation_timeout_ms: int = 60_000
    retry_backoff_ms: int = 20
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None

    @classmethod
    def from_properties(
        cls,
        properties: Mapping[str, str],
        *,
        token: str | TokenSource | None = None,
        **others: Any,  # noqa: ANN401
    ) -> Self:
        """With the settings of security that a properties file for Kafka's tools or librdkafka has
        (wire/client_settings.py), and `others` by the names here. `token`: for OAUTHBEARER, where
        no file with one is named.

        Raises:
            ConfigurationError: if one is not supported, or a file that they name is wrong.
        """
        tls, sasl = security_of(properties, token)
        return cls(tls=tls, sasl=sasl, **others)

    def __attrs_post_init__(self) -> None:
        names = [field.name for field in attrs.fields(ClientConfig) if field.name.endswith("_ms")]
        _at_least(self, 1, *names)
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigurationError("retry_backoff_max_ms is less than retry_backoff_ms")


@attrs.frozen(kw_only=True)
class ProducerConfig:
    """`idempotent`: no retry, and no move of a leader, puts a record into the log twice.

    A batch is sent when it has `batch_bytes`, or when its first record is `linger_ms` old.
    `buffer_bytes` bounds all unacknowledged records: `send` waits for room, at most
    `send_timeout_ms`. A record has succeeded or failed after `delivery_timeout_ms`.
    """

    acks: Acks = Acks.ALL
    idempotent: bool = True
    compression: Compression = Compression.NONE
    linger_ms: float = 5
    batch_bytes: int = 64 * 1024
    record_bytes_max: int = 1024 * 1024
    buffer_bytes: int = 32 * 1024 * 1024
    request_bytes_max: int = 8 * 1024 * 1024
    send_timeout_ms: int = 60_000
    delivery_timeout_ms: int = 120_000
    requests_in_flight_max: int = 5

    def __attrs_post_init__(self) -> None:
        _at_least(self, 0, "linger_ms")
        _at_least(self, 1, "send_timeout_ms", "delivery_timeout_ms", "requests_in_flight_max")
        _at_least(self, 512, "batch_bytes", "record_bytes_max")
        _at_least(self, self.record_bytes_max + self.batch_bytes, "buffer_bytes")
        _at_least(self, self.record_bytes_max + 1024, "request_bytes_max")
        if self.idempotent and self.acks is not Acks.ALL:
            raise ConfigurationError(
                "an idempotent producer needs acks ALL", advice="or set idempotent=False"
            )

    @property
    def window(self) -> int:
        """How many batches of a partition may be in flight. Without sequences only one keeps the
        order."""
        return IDEMPOTENT_WINDOW if self.idempotent else 1


@attrs.frozen(kw_only=True)
class ConsumerConfig:
    """`group` makes the consumer a member of that consumer group, with committed offsets.

    Offsets are committed every `auto_commit_ms` (None: never automatically), when partitions are
    taken away, when the consumer closes, and when a broker asks for progress before a partition's
    master moves. Records count as processed if they were handed out before the last call for more.

    `buffer_bytes` bounds the records that are fetched and not handed out, over all partitions.
    """

    group: str | None = None
    instance: str | None = None
    """A static member's name (KIP-345): after a restart it gets its partitions back."""
    assignors: tuple[Assignor | PartitionAssignor, ...] = (Assignor.COOPERATIVE_STICKY,)
    """In order of preference."""
    offset_reset: OffsetReset = OffsetReset.EARLIEST
    isolation: Isolation = Isolation.READ_UNCOMMITTED
    auto_commit_ms: int | None = 5_000
    session_timeout_ms: int = 45_000
    heartbeat_ms: int = 3_000
    rebalance_timeout_ms: int = 60_000
    fetch_wait_ms: int = 500
    fetch_bytes_min: int = 1
    fetch_bytes_max: int = 16 * 1024 * 1024
    partition_bytes_max: int = 1024 * 1024
    buffer_bytes: int = 64 * 1024 * 1024
    decompressed_bytes_max: int = 128 * 1024 * 1024
    check_crcs: bool = True

    def __attrs_post_init__(self) -> None:
        _at_least(self, 1, "session_timeout_ms", "heartbeat_ms", "rebalance_timeout_ms")
        _at_least(self, 0, "fetch_wait_ms", "fetch_bytes_min")
        _at_least(self, 1, "fetch_bytes_max", "partition_bytes_max", "decompressed_bytes_max")
        _at_least(self, self.partition_bytes_max, "buffer_bytes")
        if self.auto_commit_ms is not None:
            _at_least(self, 1, "auto_commit_ms")
        if 3 * self.heartbeat_ms > self.session_timeout_ms:
            raise ConfigurationError(
                "a session must outlive two lost heartbeats", advice="heartbeat_ms <= a third"
            )
        if self.group == "":
            raise ConfigurationError("a consumer group needs a name")
        if self.instance is not None and self.group is None:
            raise ConfigurationError("a static member needs a consumer group")
        if self.group is not None and not self.assignors:
            raise ConfigurationError("a member of a consumer group needs an assignor")
        if Assignor.COOPERATIVE_STICKY in self.assignors and len(self.assignors) > 1:
            raise ConfigurationError(
                "COOPERATIVE_STICKY cannot be offered together with others",
                why="the others take every partition away before each rebalance",
            )
