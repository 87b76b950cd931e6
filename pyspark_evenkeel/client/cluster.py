"""A cluster as Spark's driver and workers use it: any Kafka, blocking, without threads.

    with Cluster(ClusterSettings(bootstrap="host:9092")) as cluster:
        for batches in cluster.read(Place("orders", 0), 0, 1000): ...

Everything is retried, with pauses, until there has been no progress for `settings.retry_ms`: a
killed node and a moving leader are delays, not errors. Connections are opened when needed, one for
each node. An instance belongs to one thread of one process.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeAlias, TypeVar

from pyspark_evenkeel.client import listing, producing
from pyspark_evenkeel.client.fetching import RangeReader
from pyspark_evenkeel.client.listing import OffsetAndTime
from pyspark_evenkeel.client.nodes import Nodes
from pyspark_evenkeel.client.patience import Patience
from pyspark_evenkeel.client.producing import Produced
from pyspark_evenkeel.client.settings import ClusterSettings
from pyspark_evenkeel.errors import (
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
)
from wire.cluster_view import TopicPartition
from wire.codec.primitives import Buffer
from wire.codec.schema import UUID_ZERO
from wire.error_codes import ErrorCode
from wire.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from wire.messages.producer_ids import InitProducerIdRequest, InitProducerIdResponse
from wire.records.batch import Batch
from wire.records.write_tokens import FEATURE, FEATURE_VERSION

T = TypeVar("T")

Place: TypeAlias = TopicPartition
EARLIEST: Final = listing.EARLIEST
LATEST: Final = listing.LATEST
INTERNAL_PREFIX: Final = "__"
ALL_REPLICAS: Final = -1
TOPIC_RESOURCE: Final = 2
TRANSACTION_MS: Final = 60_000
"""Has to be set even without a transaction."""


class ProducerId(NamedTuple):
    id: int
    epoch: int


class Cluster:
    """See above; `close`, or leaving the context, ends its connections."""

    def __init__(self, settings: ClusterSettings) -> None:
        """
        Raises:
            ConfigurationError: if certificates cannot be loaded. No broker is contacted here.
        """
        self.settings = settings
        self._nodes = Nodes(settings)
        self._write_tokens = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._nodes.close()

    def topics(self, names: Collection[str] | None = None) -> dict[str, int]:
        """The number of partitions of these topics; None stands for all that are not internal.

        Raises:
            RefusedError: UNKNOWN_TOPIC_OR_PARTITION for one that does not exist.
            UnavailableError: if no broker answers in time.
        """

        def ask() -> dict[str, int]:
            found: dict[str, int] = {}
            for topic in self._nodes.refresh(names).topics:
                name = topic.name or ""
                code = ErrorCode.NONE if topic.partitions else topic.error_code
                if names is not None and name not in names:
                    continue
                if names is None and (topic.is_internal or name.startswith(INTERNAL_PREFIX)):
                    continue
                if code != ErrorCode.NONE:
                    raise RefusedError(f"topic '{name}' cannot be used", code=code)
                found[name] = len(topic.partitions)
            for name in sorted(set(names or ()) - found.keys()):
                code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                raise RefusedError(f"topic '{name}' cannot be used", code=code)
            return found

        return self._until_done("topics cannot be listed", ask)

    def topic_ids(self, names: Iterable[str]) -> dict[str, bytes]:
        """The known ids of these topics. No broker is asked: they are the ids of the topics whose
        partitions, leaders and leader epochs this client uses."""
        known = self._nodes.view.topics
        return {
            name: known[name].topic_id
            for name in sorted(set(names))
            if name in known and known[name].topic_id != UUID_ZERO
        }

    def offsets(
        self, at: Mapping[Place, int], *, isolation_committed: bool = False
    ) -> dict[Place, OffsetAndTime]:
        """Where partitions begin (EARLIEST), end (LATEST), or the first offset not before a time.

        A time is in milliseconds since 1970; the offset is -1 if no record is that late. With
        `isolation_committed` the end is where the oldest open transaction begins.

        Raises:
            RefusedError: for a partition that does not exist.
            UnavailableError: if it is not known in time.
        """
        return listing.list_offsets(self._nodes, at, committed=isolation_committed)

    def read(
        self,
        place: Place,
        start: int,
        end: int,
        *,
        isolation_committed: bool = False,
        topic_id: bytes = UUID_ZERO,
    ) -> Iterator[list[Batch]]:
        """The batches that overlap [start, end), in order; see `fetching`.

        With `topic_id`, the offsets are that topic's, never those of another topic of the same
        name.

        The first and the last may reach beyond the range: the caller drops records outside it.
        Checksums are verified. Transaction markers are left out, and with `isolation_committed`
        also aborted records.

        Raises:
            DataLossError: if the range is not in the log, or no longer.
            UnavailableError: if there has been no progress for `retry_ms`.
        """
        reader = RangeReader(
            self._nodes, place, start, end, committed=isolation_committed, topic_id=topic_id
        )
        return reader.batches()

    def produce(self, place: Place, data: Buffer, *, acks: int = ALL_REPLICAS) -> Produced:
        """Write one record batch; see `produce_many`."""
        return self.produce_many({place: data}, acks=acks)[place]

    def produce_many(
        self, batches: Mapping[Place, Buffer], *, acks: int = ALL_REPLICAS
    ) -> dict[Place, Produced]:
        """Write one record batch to each partition; returns the outcome for each.

        A batch is sent again while that may help, so it is written only once if it has a write
        token or a producer id. Final answers, errors included, are for the caller to judge.

        Raises:
            UnavailableError: if there has been no progress for `retry_ms`; some may be written.
            RefusedError: UNKNOWN_TOPIC_OR_PARTITION, if it persists.
        """
        return producing.produce_many(self._nodes, batches, acks=acks)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """The value of a topic's setting; None if there is no such setting.

        Raises:
            RefusedError: if this user may not read it.
            UnavailableError: if no broker answers in time.
            UnsupportedError: if the brokers do not support the request.
        """

        def ask() -> str | None:
            wanted = DescribeConfigsResource(TOPIC_RESOURCE, topic, [name])
            request = DescribeConfigsRequest([wanted])
            answer = self._nodes.ask_any(request, DescribeConfigsResponse)
            for result in answer.results:
                if result.error_code != ErrorCode.NONE:
                    raise RefusedError(f"settings of '{topic}'", code=result.error_code)
                for one in result.configs:
                    if one.name == name:
                        return one.value
            return None

        return self._until_done(f"settings of '{topic}' cannot be found", ask)

    def features(self) -> dict[int, dict[str, int]]:
        """Supported features (KIP-584), and their highest versions, of every node that answers.

        Raises:
            UnavailableError: if no node answers.
        """

        def ask() -> dict[int, dict[str, int]]:
            self._nodes.refresh([])
            found = {}
            failures: list[EvenkeelSparkError] = []
            for node in sorted(self._nodes.view.nodes):
                try:
                    found[node] = dict(self._nodes.connection(node).features)
                except UnavailableError as error:
                    failures.append(error)
            if not found:
                why = "; ".join(map(str, failures)) or "it names no nodes"
                raise UnavailableError("no node of the cluster can be reached", why=why)
            return found

        return self._until_done("the nodes' features cannot be found", ask)

    def supports_write_tokens(self) -> bool:
        """Whether every node that answers knows write tokens, so that batches are written once.

        Nodes that are down do not count: nodes without write tokens refuse to work with nodes that
        have them, so a node cannot come back without. For the same reason a positive answer is
        remembered: nodes that are down need not be tried again before every write.
        """
        if not self._write_tokens:
            found = self.features().values()
            self._write_tokens = all(one.get(FEATURE, 0) >= FEATURE_VERSION for one in found)
        return self._write_tokens

    def producer_id(self) -> ProducerId:
        """A new id for an idempotent producer, and its epoch.

        Raises:
            RefusedError: if the broker gives none.
            UnavailableError: if none was given in time.
        """

        def ask() -> ProducerId:
            request = InitProducerIdRequest(None, TRANSACTION_MS)
            answer = self._nodes.ask_any(request, InitProducerIdResponse)
            if answer.error_code != ErrorCode.NONE:
                raise RefusedError("a producer id", code=answer.error_code)
            return ProducerId(answer.producer_id, answer.producer_epoch)

        return self._until_done("no producer id was given", ask)

    def _until_done(self, what: str, attempt: Callable[[], T]) -> T:
        patience = Patience(what, self.settings)
        while True:
            try:
                return attempt()
            except EvenkeelSparkError as error:
                patience.failed(error)
