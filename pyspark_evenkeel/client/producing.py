"""Writing record batches: one per partition, all that one node leads in one request.

A batch is sent again until there is a final answer, so it may reach the log twice unless its header
lets the broker recognise it: by a write token (`wire.records.write_tokens`) or an idempotent
producer's id.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from pyspark_evenkeel.client.connection import Connection, Ticket
from pyspark_evenkeel.client.listing import by_leader
from pyspark_evenkeel.client.nodes import Nodes
from pyspark_evenkeel.client.patience import Patience
from pyspark_evenkeel.errors import (
    BadAnswerError,
    EvenkeelSparkError,
    RefusedError,
    UnavailableError,
)
from wire.cluster_view import TopicPartition
from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.framing import MIB
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

REQUEST_BYTES_MAX: Final = 8 * MIB
"""For all batches in one request, unless a single one is larger."""
BROKER_SHARE: Final = 0.75
"""The share of our waiting time that the broker may spend waiting for its replicas."""
NO_OFFSET: Final = -1


class Produced(NamedTuple):
    """The outcome for a batch: `error` is NONE, or a code that retrying does not change."""

    error: ErrorCode
    base_offset: int
    """NO_OFFSET if the broker did not say."""
    message: str | None = None
    """The broker's own words."""


def produce_many(
    nodes: Nodes, batches: Mapping[TopicPartition, Buffer], *, acks: int
) -> dict[TopicPartition, Produced]:
    """See `Cluster.produce_many`."""
    first = next(iter(sorted(batches)), None)
    more = f" and {len(batches) - 1} more" if len(batches) > 1 else ""
    patience = Patience(f"writing to {first}{more} failed", nodes.settings)
    done: dict[TopicPartition, Produced] = {}
    while len(done) < len(batches):
        before = len(done)
        left = {place: data for place, data in batches.items() if place not in done}
        hinted: list[TopicPartition] = []
        try:
            failure = _one_round(nodes, left, acks, done, hinted)
        except EvenkeelSparkError as error:
            failure = error
        if len(done) > before:
            patience.progressed()
        if failure is not None:
            patience.failed(failure, pause=len(hinted) < len(batches) - len(done))
    return done


def _one_round(
    nodes: Nodes,
    batches: Mapping[TopicPartition, Buffer],
    acks: int,
    done: dict[TopicPartition, Produced],
    hinted: list[TopicPartition],
) -> EvenkeelSparkError | None:
    """Ask all leaders in parallel; returns why some batches still have no final answer."""
    grouped, failure = by_leader(nodes, batches)
    under_way: list[tuple[Connection, Ticket, list[TopicPartition]]] = []
    for node, led in grouped.items():
        for places in _portions(led, batches):
            try:
                connection = nodes.connection(node)
                request = _request(nodes, places, batches, acks)
                ticket = connection.send(request, expect_answer=acks != 0)
            except UnavailableError as error:
                failure = _lost(nodes, places, error)
                continue
            if acks == 0:
                done.update((place, Produced(ErrorCode.NONE, NO_OFFSET)) for place in places)
            else:
                under_way.append((connection, ticket, places))
    for connection, ticket, places in under_way:
        try:
            answer = connection.wait(ticket, ProduceResponse)
        except UnavailableError as error:
            failure = _lost(nodes, places, error)
            continue
        found = _take(nodes, answer, places, done, hinted)
        if isinstance(found, BadAnswerError):
            connection.close(found)
        failure = found or failure
    return failure


def _portions(
    places: list[TopicPartition], batches: Mapping[TopicPartition, Buffer]
) -> Iterator[list[TopicPartition]]:
    portion: list[TopicPartition] = []
    size = 0
    for place in places:
        if portion and size + len(batches[place]) > REQUEST_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append(place)
        size += len(batches[place])
    yield portion


def _request(
    nodes: Nodes,
    places: list[TopicPartition],
    batches: Mapping[TopicPartition, Buffer],
    acks: int,
) -> ProduceRequest:
    topics: dict[str, list[PartitionProduceData]] = {}
    for place in places:
        data = PartitionProduceData(place.partition, memoryview(batches[place]))
        topics.setdefault(place.topic, []).append(data)
    timeout_ms = max(1, int(nodes.settings.request_ms * BROKER_SHARE))
    rows = [TopicProduceData(name, partitions) for name, partitions in topics.items()]
    return ProduceRequest(None, acks, timeout_ms, rows)


def _lost(
    nodes: Nodes, places: list[TopicPartition], error: EvenkeelSparkError
) -> EvenkeelSparkError:
    for place in places:
        nodes.moved(place)
    return error


def _take(
    nodes: Nodes,
    answer: ProduceResponse,
    places: list[TopicPartition],
    done: dict[TopicPartition, Produced],
    hinted: list[TopicPartition],
) -> EvenkeelSparkError | None:
    rows: dict[TopicPartition, PartitionProduceResponse] = {
        TopicPartition(topic.name, row.index): row
        for topic in answer.responses
        for row in topic.partition_responses
    }
    failure: EvenkeelSparkError | None = None
    for place in places:
        row = rows.get(place)
        if row is None:
            failure = BadAnswerError(f"writing to {place}", why="the answer does not have it")
            continue
        if row.error_code == ErrorCode.NONE:
            done[place] = Produced(ErrorCode.NONE, row.base_offset)
            continue
        refused = RefusedError(
            f"writing to {place}", code=row.error_code, message=row.error_message
        )
        if not refused.retriable:
            done[place] = Produced(refused.code, row.base_offset, row.error_message)
            continue
        failure = refused
        if nodes.moved(place, row.current_leader, answer.node_endpoints):
            hinted.append(place)
    return failure
