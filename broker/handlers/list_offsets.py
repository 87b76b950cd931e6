"""ListOffsets: where a partition begins, where it ends, and which offset a point in time has.

Offsets for times are exact where the batch's records can be walked cheaply: uncompressed ones of up
to WALK_BYTES_MAX, gzip up to WALK_GZIP_BYTES_MAX (what it inflates to is not known before). Else
the answer is the first offset of the batch, with the batch's greatest timestamp: never later than
what was asked for, at most one batch too early. Kafka's clients accept that.

Answered under the lease, which is looked at after the work (protocol.md [R14]).
"""

from typing import Final, NamedTuple

from broker.context import Broker, Request
from broker.leaders import Leader
from broker.partition import PartitionState
from broker.reader import Reader, UnreadableError
from paxos.ids import GroupId
from wire.apis import encode_response
from wire.batch import (
    COMPRESSION_MASK,
    Batch,
    BatchError,
    Compression,
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
WALK_BYTES_MAX: Final = 1024 * 1024
WALK_GZIP_BYTES_MAX: Final = 64 * 1024
WALK_RECORDS_MAX: Final = 20_000


class _Found(NamedTuple):
    """`offset` -1: there is nothing as late as that."""

    offset: int
    timestamp_ms: int
    epoch: int


_NOTHING: Final = _Found(-1, -1, -1)


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ListOffsetsRequest)
    broker.statistics.list_offsets_requests += 1
    reader = Reader(broker.tail, broker.log, broker.statistics)
    topics = []
    for topic in message.topics:
        known = broker.registry.topic(topic.name)
        places = () if known is None else known.partitions
        answers = []
        for asked in topic.partitions:
            if 0 <= asked.partition_index < len(places):
                uid, group = places[asked.partition_index]
                answer = _answer(broker, reader, uid, group, asked)
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
    broker: Broker, reader: Reader, uid: int, group: GroupId, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    machine = broker.machines.get(group)
    leader = broker.leaders.of(group)
    if machine is None or leader.node != broker.me:
        return _failed(asked, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    error = _epoch_problem(asked, leader)
    if error is not ErrorCode.NONE:
        return _failed(asked, error)
    try:
        found = _look_up(machine.partition(uid), reader, asked.timestamp, leader.epoch)
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


def _look_up(state: PartitionState, reader: Reader, timestamp: int, epoch: int) -> _Found | None:
    """None where the timestamp has a meaning that later versions gave it."""
    if timestamp == LATEST:
        return _Found(state.next_offset, -1, epoch)
    if timestamp == EARLIEST:
        start = state.log_start
        first_epoch = state.epoch_of(start)[0] if start < state.next_offset else epoch
        return _Found(start, -1, first_epoch)
    if timestamp == MAX_TIMESTAMP:
        number = state.index.latest()
        return _NOTHING if number is None else _in_batch(state, reader, number, None)
    if timestamp < 0:
        return None
    number = state.index.reaching(timestamp)
    return _NOTHING if number is None else _in_batch(state, reader, number, timestamp)


def _in_batch(
    state: PartitionState, reader: Reader, number: int, timestamp_ms: int | None
) -> _Found:
    """The first record not before `timestamp_ms` (None: the batch's latest) in the batch."""
    base = state.index.base(number)
    epoch = state.epoch_of(base)[0]
    data = reader.batch(state, number)
    header = parse_header(data)._replace(base_offset=base)
    if timestamp_ms is None:
        timestamp_ms = header.max_timestamp_ms
    compression = header.attributes & COMPRESSION_MASK
    bytes_max = WALK_BYTES_MAX if compression == Compression.NONE else WALK_GZIP_BYTES_MAX
    if len(data) <= bytes_max and header.record_count <= WALK_RECORDS_MAX:
        try:
            for record in iterate_records(Batch(header, data)):
                if record.timestamp_ms >= timestamp_ms and record.offset >= state.log_start:
                    return _Found(record.offset, record.timestamp_ms, epoch)
        except BatchError:
            pass  # a codec we do not have, or records that are not what the producer said
    return _Found(max(base, state.log_start), header.max_timestamp_ms, epoch)
