"""How clients behave, as data: a row for each family and the settings that people use it with.

What real clients wait for in seconds to minutes is shorter here by one factor, so that a world of a
minute has it all: requests time out after 1.5 s rather than 30, metadata is asked for anew every
15 s rather than every five minutes.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

import attrs

from paxos.ids import MS
from wire.error_codes import ErrorCode


class Asks(Enum):
    """Which node a client asks who leads what."""

    LEAST_LOADED = "of those connected, the one that owes the fewest answers"
    ANY_CONNECTED = "any of those that it is connected to"
    FIRST_CONNECTED = "the one that it has been connected to for longest"


_COMMON: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NETWORK_EXCEPTION,
    )
)


@attrs.frozen(kw_only=True)
class Family:
    software: str = ""
    """What it calls itself in ApiVersions, where it does so."""
    produce_version: int = 10
    fetch_version: int = 16
    list_version: int = 7
    """Of ListOffsets, by which it finds where a log begins."""
    metadata_version: int = 13
    acks: int = -1
    idempotent: bool = False
    in_flight_max: int = 5
    """Requests that a node may owe answers to."""
    many_partitions: bool = False
    """Whether one request has a batch of every partition that its node leads, or of one only."""
    drains: bool = False
    """After a failure: nothing is sent to a partition before all under way is answered."""
    keeps: bool = False
    """Whether a request that timed out leaves its connection as it is."""
    timeout_ns: int = 1_500 * MS
    delivery_ns: int = 6_000 * MS
    """A batch that is older is given up."""
    back_off_ns: tuple[int, int] = (100 * MS, 120 * MS)
    """The first and the longest: it doubles each time."""
    retries: frozenset[ErrorCode] = _COMMON
    """Errors after which a batch is sent again; after others it is given up."""
    refreshes: frozenset[ErrorCode] = frozenset(
        (
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.KAFKA_STORAGE_ERROR,
        )
    )
    """Errors after which it asks who leads; so it does when a connection ends."""
    refresh_every_ns: int = 15_000 * MS
    asks: Asks = Asks.ANY_CONNECTED
    takes_hints: bool = True
    """Whether it believes the new leader that a refusal names (KIP-951)."""
    hint_ends_back_off: bool = False
    rebootstraps: bool = True
    """Whether it knows REBOOTSTRAP_REQUIRED (KIP-1102)."""
    bumps_epoch: bool = False
    """What becomes of an id whose batch was given up: the next epoch, or a new id is asked for."""
    sessions: bool = False
    """Whether a consumer asks for a fetch session (KIP-227)."""


_LIBRDKAFKA: Final = Family(
    software="librdkafka", in_flight_max=1_000_000, back_off_ns=(100 * MS, 1_000 * MS)
)
_LIBRDKAFKA_OLD: Final = attrs.evolve(
    _LIBRDKAFKA,
    produce_version=7,
    fetch_version=11,
    list_version=2,
    metadata_version=4,
    takes_hints=False,
    rebootstraps=False,
)
_JAVA: Final = Family(
    software="apache-kafka-java",
    list_version=10,
    in_flight_max=5,
    many_partitions=True,
    asks=Asks.LEAST_LOADED,
    hint_ends_back_off=True,
    bumps_epoch=True,
    sessions=True,
    back_off_ns=(100 * MS, 1_000 * MS),
)
_KAFKAJS: Final = Family(
    produce_version=7,
    fetch_version=11,
    list_version=3,
    metadata_version=6,
    in_flight_max=1,
    many_partitions=True,
    keeps=True,
    asks=Asks.FIRST_CONNECTED,
    takes_hints=False,
    rebootstraps=False,
    back_off_ns=(300 * MS, 3_000 * MS),
    delivery_ns=9_000 * MS,
)

FAMILIES: Final[Mapping[str, Family]] = {
    "librdkafka": _LIBRDKAFKA,
    "librdkafka acks=1": attrs.evolve(_LIBRDKAFKA, acks=1),
    "librdkafka acks=0": attrs.evolve(_LIBRDKAFKA, acks=0),
    "librdkafka idempotent": attrs.evolve(
        _LIBRDKAFKA, idempotent=True, in_flight_max=5, drains=True
    ),
    "librdkafka 2.0": _LIBRDKAFKA_OLD,
    "java": attrs.evolve(_JAVA, idempotent=True),
    "java acks=1": attrs.evolve(_JAVA, acks=1),
    "java acks=0": attrs.evolve(_JAVA, acks=0),
    "kafkajs": _KAFKAJS,
    "kafkajs idempotent": attrs.evolve(_KAFKAJS, idempotent=True, delivery_ns=1 << 60),
    "kafkajs acks=0": attrs.evolve(_KAFKAJS, acks=0),
}
"""By name. kafkajs with sequences never gives up: it would use their numbers again."""

OF_HUNTS: Final[Mapping[str, Family]] = {
    **FAMILIES,
    "java, well informed": attrs.evolve(_JAVA, idempotent=True, refresh_every_ns=100 * MS),
}
"""With those that no swarm draws: planted bugs are looked for with them."""

CONSUMERS: Final = ("librdkafka", "librdkafka 2.0", "java", "kafkajs")
"""Families that read: the others of a language differ from it in what they produce only."""
