"""What the stories in `features` need of a client library, whatever its style.

An adapter has no logic of its own: a method is what a user of that library would write. If a
library has no call for it, the method raises Lacking; the matrix shows that, and does not count it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import attrs


class Lacking(Exception):
    """The library itself has no such call."""


class RefusedError(Exception):
    """The broker refused, and the library reported it; the message is the library's."""


@attrs.frozen
class Message:
    value: bytes
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1
    """-1: the client's own clock."""
    partition: int = 0


@attrs.frozen
class Got:
    """`log_time`: the timestamp is the log's, not the producer's."""

    message: Message
    offset: int
    log_time: bool = False


LOG_APPEND_TIME = 1


def got_of_record(one: Any) -> Got:
    """A ConsumerRecord, which kafka-python and aiokafka share."""
    message = Message(one.value, one.key, tuple(one.headers), one.timestamp, one.partition)
    return Got(message, one.offset, one.timestamp_type == LOG_APPEND_TIME)


class Member(Protocol):
    """A consumer in a group; only its own thread touches it."""

    def poll(self, seconds: float) -> list[Got]: ...

    def partitions(self) -> frozenset[int]: ...

    def close(self) -> None: ...

    def left(self) -> list[Got]:
        """After `close`: what was consumed and committed after the last `poll`."""


class Consumer(Protocol):
    """A consumer with partitions assigned by hand."""

    def poll(self, seconds: float) -> list[Got]: ...

    def seek(self, partition: int, offset: int) -> None: ...

    def pause(self, partition: int) -> None: ...

    def resume(self, partition: int) -> None: ...

    def offset_for_time(self, partition: int, timestamp_ms: int) -> int | None: ...

    def watermarks(self, partition: int) -> tuple[int, int]: ...

    def close(self) -> None: ...


class Client(Protocol):
    """One library, or one way of using it."""

    name: str

    def version(self) -> str: ...

    def produce(
        self,
        topic: str,
        messages: Sequence[Message],
        *,
        acks: str = "all",
        idempotent: bool = False,
        compression: str = "none",
    ) -> None:
        """Send in order and wait until all are acknowledged (with acks=0: sent)."""

    def transact(self, topic: str) -> None:
        """Begin a transaction.

        Raises:
            RefusedError: if the broker says that there are none.
        """

    def consumer(
        self, topic: str, partitions: Sequence[int], *, isolation: str = "read_uncommitted"
    ) -> Consumer:
        """From the beginning of each partition."""

    def member(
        self, group: str, topic: str, *, pattern: bool = False, instance: str | None = None
    ) -> Member:
        """From the committed offset, else from the beginning; commits when it is closed."""

    # -- administration ----------------------------------------------------------------------------

    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> None: ...

    def topics(self) -> dict[str, int]:
        """Names and numbers of partitions."""

    def add_partitions(self, topic: str, total: int) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def topic_config(self, topic: str, name: str) -> str: ...

    def alter_topic_config(self, topic: str, name: str, value: str) -> None: ...

    def delete_records(self, topic: str, partition: int, before: int) -> int:
        """Returns the new first offset."""

    def groups(self) -> list[str]: ...

    def group_members(self, group: str) -> int: ...

    def committed(self, group: str, topic: str, partition: int) -> int | None: ...

    def alter_offset(self, group: str, topic: str, partition: int, offset: int) -> None: ...

    def delete_group(self, group: str) -> None: ...

    def delete_offset(self, group: str, topic: str, partition: int) -> None: ...

    def log_dirs(self) -> int:
        """How many nodes described theirs."""

    def cluster(self) -> tuple[str, int]:
        """Cluster id and number of nodes."""

    def elect_leaders(self, topic: str, partition: int) -> None: ...
