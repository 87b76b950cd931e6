"""ListOffsets: where a partition begins, where it ends, and which offset a point in time has.

Offsets for times are exact where the batch's records can be walked cheaply: batches of up to
WALK_BYTES_MAX, before and after decompression, as long as the request's budget lasts (it may name
one partition thousands of times). Else the answer is the first offset of the batch, with the
batch's greatest timestamp: never later than what was asked for, at most one batch too early.
Kafka's clients accept that.

Answered under the lease, which is looked at after the work (protocol.md [R14]).
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import attrs

from broker.context import Broker, Request
from broker.guard import refuse_more_than
from broker.leaders import Leader
from broker.partition import PartitionState
from broker.reader import Reader, UnreadableError
from paxos.ids import GroupId
from wire.apis import encode_response
from wire.batch import (
    Batch,
    BatchError,
    Record,
    decompressed,
    iterate_records,
    parse_header,
)
from wire.error_codes import ErrorCode
from wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
ANY_EPOCH: Final = -1
PARTITIONS_MAX: Final = 10_000
"""In one request; to find a time in a long partition takes a tenth of a millisecond."""
WALK_BYTES_MAX: Final = 1024 * 1024
"""Of one batch, compressed or not."""
REQUEST_BYTES_MAX: Final = 8 * 1024 * 1024
REQUEST_RECORDS_MAX: Final = 12_000
"""All walks of one request: about 30 ms."""


class _Found(NamedTuple):
    """`offset` -1: there is nothing as late as that."""

    offset: int
    timestamp_ms: int
    epoch: int


_NOTHING: Final = _Found(-1, -1, -1)


@attrs.define
class _Budget:
    """What is left for one request to spend on walking through batches."""

    bytes: int = REQUEST_BYTES_MAX
    records: int = REQUEST_RECORDS_MAX


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ListOffsetsRequest)
    named = [one for topic in message.topics for one in topic.partitions]
    if refuse_more_than(PARTITIONS_MAX, named, request):
        return
    broker.statistics.list_offsets_requests += 1
    reader = Reader(broker.tail, broker.log, broker.statistics)
    budget = _Budget()
    topics = []
    for topic in message.topics:
        known = broker.registry.topic(topic.name)
        places = () if known is None else known.partitions
        answers = []
        for asked in topic.partitions:
            if 0 <= asked.partition_index < len(places):
                uid, group = places[asked.partition_index]
                answer = _answer(broker, reader, budget, uid, group, asked)
            else:
                answer = _failed(asked, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if answer.error_code != ErrorCode.NONE:
                broker.statistics.count_error(answer.error_code)
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(topic.name, answers))
    request.reply.complete(encode_response(request.header, ListOffsetsResponse(0, topics)))


def _failed(asked: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(asked.partition_index, error)


def _answer(
    broker: Broker,
    reader: Reader,
    budget: _Budget,
    uid: int,
    group: GroupId,
    asked: ListOffsetsPartition,
) -> ListOffsetsPartitionResponse:
    machine = broker.machines.get(group)
    leader = broker.leaders.of(group)
    if machine is None or leader.node != broker.me:
        return _failed(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = _epoch_problem(asked, leader)
    if error is not ErrorCode.NONE:
        return _failed(asked, error)
    try:
        state = machine.partition(uid)
        found = _look_up(state, reader, budget, asked.timestamp, leader.epoch)
    except UnreadableError as damage:
        broker.on_bug("list offsets", damage)
        return _failed(asked, ErrorCode.KAFKA_STORAGE_ERROR)
    if not (
        broker.groups.acting(group)
        and broker.groups.caught_up(group)
        and broker.leaders.of(group) == leader
    ):
        return _failed(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if found is None:
        return _failed(asked, ErrorCode.UNSUPPORTED_VERSION)
    offset, timestamp_ms, epoch = found
    return ListOffsetsPartitionResponse(
        asked.partition_index, ErrorCode.NONE, timestamp_ms, offset, epoch
    )


def _epoch_problem(asked: ListOffsetsPartition, leader: Leader) -> ErrorCode:
    epoch = asked.current_leader_epoch
    if epoch in (ANY_EPOCH, leader.epoch):
        return ErrorCode.NONE
    if epoch < leader.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def _look_up(
    state: PartitionState, reader: Reader, budget: _Budget, timestamp: int, epoch: int
) -> _Found | None:
    """None where the timestamp has a meaning that later versions gave it."""
    if timestamp == LATEST:
        return _Found(state.next_offset, -1, epoch)
    if timestamp == EARLIEST:
        start = state.log_start
        first_epoch = state.epoch_of(start)[0] if start < state.next_offset else epoch
        return _Found(start, -1, first_epoch)
    if timestamp == MAX_TIMESTAMP:
        return _latest(state, reader, budget)
    if timestamp < 0:
        return None
    start = state.log_start
    if start < state.index_start:
        base = state.cold.find_time(state.uid, timestamp, start)
        if base is not None and base < state.index_start:
            return _in_cold(state, reader, budget, base, timestamp)
    number = state.index.reaching(timestamp)
    return _NOTHING if number is None else _in_log(state, reader, budget, number, timestamp)


def _latest(state: PartitionState, reader: Reader, budget: _Budget) -> _Found:
    """The first of the records with the greatest timestamp of all; of what was cut off at the log
    start in the middle of a cold segment, perhaps one of the next greatest."""
    start = state.log_start
    number = state.index.latest()
    latest_ms = -1 if number is None else state.index.timestamp(number)
    if start < state.index_start:
        kept = [one for one in state.cold.segments(state.uid) if one.end > start]
        times = {one.max_timestamp_ms for one in kept if one.base < state.index_start}
        for time_ms in sorted(times, reverse=True):
            if time_ms < latest_ms:
                break
            base = state.cold.find_time(state.uid, time_ms, start)
            if base is not None and base < state.index_start:
                return _in_cold(state, reader, budget, base, None)
    return _NOTHING if number is None else _in_log(state, reader, budget, number, None)


def _in_cold(
    state: PartitionState, reader: Reader, budget: _Budget, base: int, timestamp_ms: int | None
) -> _Found:
    """As `_in_batch`; to know anything of a cold batch is to read it."""
    data = reader.cold_batch(state, base)
    return _in_batch(state, budget, Batch(parse_header(data), data), timestamp_ms)


def _in_log(
    state: PartitionState, reader: Reader, budget: _Budget, number: int, timestamp_ms: int | None
) -> _Found:
    index = state.index
    base, latest_ms = index.base(number), index.timestamp(number)
    if index.size(number) > min(WALK_BYTES_MAX, budget.bytes) or budget.records <= 0:
        return _Found(max(base, state.log_start), latest_ms, state.epoch_of(base)[0])
    data = reader.batch(state, number)
    batch = Batch(parse_header(data)._replace(base_offset=base), data)
    return _in_batch(state, budget, batch, timestamp_ms)


def _in_batch(
    state: PartitionState, budget: _Budget, batch: Batch, timestamp_ms: int | None
) -> _Found:
    """The first record not before `timestamp_ms` (None: the batch's latest) in the batch."""
    base, latest_ms = batch.header.base_offset, batch.header.max_timestamp_ms
    epoch = state.epoch_of(base)[0]
    wanted_ms = latest_ms if timestamp_ms is None else timestamp_ms
    if len(batch.data) <= min(WALK_BYTES_MAX, budget.bytes) and budget.records > 0:
        try:
            for record in _walked(batch, budget):
                if record.timestamp_ms >= wanted_ms and record.offset >= state.log_start:
                    return _Found(record.offset, record.timestamp_ms, epoch)
        except BatchError:
            pass  # a codec we do not have, or records that are not what the producer said
    return _Found(max(base, state.log_start), latest_ms, epoch)


def _walked(batch: Batch, budget: _Budget) -> Iterator[Record]:
    """The records of a batch, paid for as they are looked at; none if there are too many.

    Raises:
        BatchError: as `iterate_records`.
    """
    budget.bytes -= len(batch.data)
    if batch.header.record_count > budget.records or budget.bytes <= 0:
        return
    bytes_max = min(WALK_BYTES_MAX, budget.bytes)
    budget.bytes -= bytes_max
    payload = decompressed(batch, bytes_max)
    budget.bytes += bytes_max - len(payload)
    for record in iterate_records(batch, payload):
        budget.records -= 1
        yield record
