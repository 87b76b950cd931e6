"""The nodes of a cluster: one connection to each that is needed, and the leaders of partitions.

Connections belong to addresses and are opened when needed. A node's failure is reported to the
caller that asked for it; `Patience` decides about retries.
"""

import random
import ssl
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Final, TypeAlias, TypeVar

from pyspark_evenkeel.client.connection import Connection
from pyspark_evenkeel.client.opening import open_connection
from pyspark_evenkeel.client.security import tls_context
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    BadAnswerError,
    EvenkeelSparkError,
    RefusedError,
    SecurityError,
    UnavailableError,
)
from wire.apis import Request
from wire.cluster_view import ClusterView, TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

R = TypeVar("R")
Address: TypeAlias = tuple[str, int]

CONNECT_S_LEAST: Final = 1.0
"""If several nodes can be asked, one that does not even connect must not block us for long."""


class Nodes:
    """Not thread-safe, and not usable across a fork."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.settings = settings
        self.view = ClusterView()
        self._bootstrap = settings.addresses
        self._tls: ssl.SSLContext | None = tls_context(settings.security)
        self._connections: dict[Address, Connection] = {}
        self._failed_at: dict[Address, float] = {}
        self._stale: set[str] = set()
        """Topics with a leader that was not where we thought."""

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # -- connections ------------------------------------------------------------------------------

    def connection(self, node: int) -> Connection:
        """The connection to a node, opened if there is none.

        Raises:
            UnavailableError: if it cannot be opened.
        """
        known = self.view.nodes.get(node)
        if known is None:
            raise UnavailableError(f"cannot reach node {node}", why="its address is unknown")
        return self._to((known.host, known.port))

    def any_connection(self) -> Connection:
        """A connection to some node: an open one if there is any.

        Raises:
            UnavailableError: if none can be reached; it says what was wrong with each.
        """
        for connection in self._connections.values():
            if self._is_good(connection):
                return connection
        places = [(one.host, one.port) for one in self.view.nodes.values()]
        random.shuffle(places)
        places += [one for one in self._bootstrap if one not in places]
        places.sort(key=lambda place: self._failed_at.get(place, 0.0))
        failures: list[EvenkeelSparkError] = []
        patience_s = max(CONNECT_S_LEAST, self.settings.connect_ms / 1000 / len(places))
        for place in places:
            try:
                return self._to(place, patience_s)
            except EvenkeelSparkError as error:
                failures.append(error)
        final = next((one for one in failures if isinstance(one, SecurityError)), None)
        if final is not None:
            raise final
        nonsense = all(isinstance(one, BadAnswerError) for one in failures)
        kind = BadAnswerError if nonsense else UnavailableError
        raise kind("no broker can be reached", why="; ".join(map(str, failures)))

    def ask_any(self, message: Request, kind: type[R], *, version: int | None = None) -> R:
        """Ask some node; one that does not answer is asked last the next time.

        Raises:
            UnavailableError: if there is no answer.
        """
        connection = self.any_connection()
        try:
            return connection.ask(message, kind, version=version)
        except UnavailableError:
            for place, one in self._connections.items():
                if one is connection:
                    self._failed_at[place] = time.monotonic()
            raise

    def _to(self, place: Address, patience_s: float | None = None) -> Connection:
        connection = self._connections.get(place)
        if connection is not None:
            if self._is_good(connection):
                return connection
            connection.close()
            del self._connections[place]
        try:
            connection = open_connection(*place, self.settings, self._tls, patience_s)
        except EvenkeelSparkError:
            self._failed_at[place] = time.monotonic()
            raise
        self._failed_at.pop(place, None)
        self._connections[place] = connection
        return connection

    def _is_good(self, connection: Connection) -> bool:
        if not connection.usable:
            return False
        return connection.in_flight > 0 or time.monotonic() < connection.expires_at

    # -- who leads what ---------------------------------------------------------------------------

    def refresh(self, topics: Collection[str] | None) -> MetadataResponse:
        """Ask any node for these topics, or all; its answer is also entered in `view`.

        Raises:
            UnavailableError, RefusedError: if no node answers.
        """
        for _ in range(len(self.view.nodes) + len(self._bootstrap)):
            connection = self.any_connection()
            answer = self._metadata(connection, topics)
            if answer.error_code != ErrorCode.REBOOTSTRAP_REQUIRED:
                break
            self._leave(connection)
        if answer.error_code != ErrorCode.NONE:
            raise RefusedError("the cluster's metadata", code=answer.error_code)
        asked = None if topics is None else sorted(topics)
        self.view.take(answer, asked)
        self._stale = set() if asked is None else self._stale - set(asked)
        return answer

    def _metadata(self, connection: Connection, topics: Collection[str] | None) -> MetadataResponse:
        version = connection.version_for(MetadataRequest)
        asked = None if topics is None else sorted(topics)
        rows = None if asked is None else [MetadataRequestTopic(name=name) for name in asked]
        if asked == [] and version == 0:
            rows = [MetadataRequestTopic(name="")]  # in version 0 an empty list would mean all
        request = MetadataRequest(rows, allow_auto_topic_creation=False)
        return self.ask_any(request, MetadataResponse, version=version)

    def _leave(self, connection: Connection) -> None:
        """The node is cut off from the others, and sends its clients to them (KIP-1102)."""
        for place, one in list(self._connections.items()):
            if one is connection:
                self._failed_at[place] = time.monotonic()
                del self._connections[place]
        connection.close()

    def know(self, topics: Iterable[str]) -> None:
        """Ask about those topics that are unknown, or whose leaders have moved."""
        unknown = {name for name in topics if name in self._stale or name not in self.view.topics}
        if unknown:
            self.refresh(unknown)

    def leader(self, place: TopicPartition) -> int:
        """The node that leads a partition, as far as is known; see `know`.

        Raises:
            RefusedError: LEADER_NOT_AVAILABLE or UNKNOWN_TOPIC_OR_PARTITION, both retriable.
        """
        found = self.view.leader(place)
        if found is None:
            self._stale.add(place.topic)
            known = self.view.partition(place) is not None
            code = int(ErrorCode.LEADER_NOT_AVAILABLE)
            if not known:
                code = self.view.errors.get(place.topic, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            raise RefusedError(f"{place} cannot be used", code=code)
        return found

    def moved(
        self,
        place: TopicPartition,
        hint: LeaderIdAndEpoch | None = None,
        endpoints: Sequence[NodeEndpoint] = (),
    ) -> bool:
        """The leader was not what we thought: True if the refusal named the new one (KIP-951)."""
        if self.view.learn(place, hint, endpoints):
            return True
        self._stale.add(place.topic)
        return False
