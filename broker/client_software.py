"""Which client libraries act on a new leader that an answer names (KIP-951), by their own words.

A client names its library in ApiVersions from version 3 on (KIP-511), on each of its connections.
That is a hint and no more: whatever a client says here, its records are safe. Who is wrong about
itself is redirected by answers that it does not understand, or forwarded for without need.

Libraries that are not listed, and connections on which none was named, get no leader in an answer.
Most would skip the tagged fields that hold it, but @platformatic/kafka 1.35 takes them for the
rest of the answer and waits for bytes that never come, and it names itself on its first connection
only. A library that belongs on this list loses little without: it asks for metadata instead.
"""

from typing import Final

import attrs

NEVER: Final = 1 << 15
"""Above every version of an API."""


@attrs.frozen
class ClientSoftware:
    """The first versions of Produce and Fetch in which it acts on the leader beside an error."""

    produce_from: int = NEVER
    fetch_from: int = NEVER
    beside_success: bool = False
    """Whether it also acts on one beside a success (ADR 14)."""

    def moves_after_produce(self, version: int) -> bool:
        return version >= self.produce_from

    def moves_after_fetch(self, version: int) -> bool:
        return version >= self.fetch_from


OTHER: Final = ClientSoftware()
_KAFKA_3_7: Final = ClientSoftware(produce_from=10, fetch_from=16)
_LIBRDKAFKA: Final = ClientSoftware(produce_from=10, fetch_from=16, beside_success=True)
_OURS: Final = ClientSoftware(produce_from=10, fetch_from=12, beside_success=True)
_BY_NAME: Final = {
    "apache-kafka-java": _KAFKA_3_7,
    "kgo": _KAFKA_3_7,  # franz-go
    "evenkeel": _OURS,
    "pyspark-evenkeel": _OURS,
}


def software(name: str) -> ClientSoftware:
    """What is known of the library with this name."""
    if "rdkafka" in name or name.startswith("confluent-kafka"):  # the names of its bindings
        return _LIBRDKAFKA
    return _BY_NAME.get(name, OTHER)
