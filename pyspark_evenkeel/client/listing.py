"""Finding offsets: the first, the last, or the first one not before a time (ListOffsets)."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyspark_evenkeel.client.connection import Connection, Ticket
from pyspark_evenkeel.client.nodes import Nodes
from pyspark_evenkeel.client.patience import Patience
from pyspark_evenkeel.errors import (
    BadAnswerError,
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
)
from wire.cluster_view import NO_EPOCH, TopicPartition
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

EARLIEST: Final = -2
LATEST: Final = -1
CONSUMER: Final = -1


class OffsetAndTime(NamedTuple):
    """`offset` is -1 if no record is that late; `timestamp_ms` is -1 if none was asked for."""

    offset: int
    timestamp_ms: int


def by_leader(
    nodes: Nodes, places: Iterable[TopicPartition]
) -> tuple[dict[int, list[TopicPartition]], EvenkeelSparkError | None]:
    """Partitions by their leading node, and why some are left out.

    Raises:
        UnavailableError, RefusedError: if no node can be asked.
    """
    wanted = sorted(places)
    nodes.know(place.topic for place in wanted)
    found: dict[int, list[TopicPartition]] = {}
    failure: EvenkeelSparkError | None = None
    for place in wanted:
        try:
            found.setdefault(nodes.leader(place), []).append(place)
        except RefusedError as error:
            failure = error
    return found, failure


def list_offsets(
    nodes: Nodes, at: Mapping[TopicPartition, int], *, committed: bool
) -> dict[TopicPartition, OffsetAndTime]:
    """See `Cluster.offsets`."""
    patience = Patience("offsets cannot be found", nodes.settings)
    done: dict[TopicPartition, OffsetAndTime] = {}
    while len(done) < len(at):
        before = len(done)
        left = {place: when for place, when in at.items() if place not in done}
        try:
            failure = _one_round(nodes, left, committed, done)
        except EvenkeelSparkError as error:
            failure = error
        if len(done) > before:
            patience.progressed()
        if failure is not None:
            patience.failed(failure)
    return done


def _one_round(
    nodes: Nodes,
    at: Mapping[TopicPartition, int],
    committed: bool,
    done: dict[TopicPartition, OffsetAndTime],
) -> EvenkeelSparkError | None:
    """Ask all leaders once, in parallel; returns why some partitions are still missing."""
    grouped, failure = by_leader(nodes, at)
    under_way: list[tuple[Connection, Ticket, list[TopicPartition]]] = []
    for node, places in grouped.items():
        try:
            connection = nodes.connection(node)
            request = _request(nodes, at, places, committed)
            request.timeout_ms = nodes.settings.request_ms * 3 // 4
            under_way.append((connection, connection.send(request), places))
        except UnavailableError as error:
            failure = _lost(nodes, places, error)
    for connection, ticket, places in under_way:
        try:
            answer = connection.wait(ticket, ListOffsetsResponse)
        except UnavailableError as error:
            failure = _lost(nodes, places, error)
            continue
        found = _take(nodes, answer, places, done)
        if isinstance(found, BadAnswerError):
            connection.close(found)
        failure = found or failure
    return failure


def _lost(
    nodes: Nodes, places: Iterable[TopicPartition], error: EvenkeelSparkError
) -> EvenkeelSparkError:
    for place in places:
        nodes.moved(place)
    return error


def _request(
    nodes: Nodes,
    at: Mapping[TopicPartition, int],
    places: Iterable[TopicPartition],
    committed: bool,
) -> ListOffsetsRequest:
    """With leader epochs: a node that still has the previous topic refuses instead of answering for
    its log; one that has a later topic makes us look up the leader again."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for place in places:
        known = nodes.view.partition(place)
        epoch = NO_EPOCH if known is None else known.epoch
        topics.setdefault(place.topic, []).append(
            ListOffsetsPartition(place.partition, epoch, at[place])
        )
    rows = [ListOffsetsTopic(name, partitions) for name, partitions in topics.items()]
    return ListOffsetsRequest(CONSUMER, int(committed), rows)


def _take(
    nodes: Nodes,
    answer: ListOffsetsResponse,
    places: Iterable[TopicPartition],
    done: dict[TopicPartition, OffsetAndTime],
) -> EvenkeelSparkError | None:
    rows: dict[TopicPartition, ListOffsetsPartitionResponse] = {
        TopicPartition(topic.name, row.partition_index): row
        for topic in answer.topics
        for row in topic.partitions
    }
    failure: EvenkeelSparkError | None = None
    for place in places:
        row = rows.get(place)
        if row is None:
            failure = BadAnswerError(f"offsets of {place}", why="the answer does not have them")
        elif row.error_code == ErrorCode.NONE:
            done[place] = OffsetAndTime(row.offset, row.timestamp)
        else:
            nodes.moved(place)
            failure = RefusedError(f"offsets of {place}", code=row.error_code)
            if not failure.retriable:
                raise failure
    return failure
