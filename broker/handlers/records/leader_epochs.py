"""OffsetForLeaderEpoch: how far the records of a leader epoch reach (KIP-320).

When its partition has another leader, a consumer asks for the end offset of its last record's
epoch: an end before its position would mean that this record is gone. Nothing chosen is ever
truncated, so the answer never says that; clients still need it before they continue reading.

Answered under the lease, which is checked after the work (docs/protocol.md R14).
"""

from broker.handlers.topics.known_names import denial
from broker.requests.context import Broker
from broker.requests.leaders import Leader
from broker.requests.request import Request
from paxos.ids import GroupId
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.leader_epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)

ANY_EPOCH = -1


def handle(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, OffsetForLeaderEpochRequest)
    leaders: dict[GroupId, Leader] = {}
    topics = []
    for topic in message.topics:
        known = broker.registry.topic(topic.topic)
        places = () if known is None else known.partitions
        rows = []
        for asked in topic.partitions:
            row = EpochEndOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, asked.partition)
            if 0 <= asked.partition < len(places):
                uid, group = places[asked.partition]
                leader = leaders.get(group)
                if leader is None:
                    leader = leaders[group] = broker.leaders.of(group)
                _answer(broker, uid, group, leader, asked, row)
            else:
                row.error_code = denial(broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if row.error_code != ErrorCode.NONE:
                broker.statistics.count_error(ErrorCode(row.error_code))
            rows.append(row)
        topics.append(OffsetForLeaderTopicResult(topic.topic, rows))
    response = OffsetForLeaderEpochResponse(0, topics)
    request.reply.complete(encode_response(request.header, response))


def _answer(
    broker: Broker,
    uid: int,
    group: GroupId,
    leader: Leader,
    asked: OffsetForLeaderPartition,
    row: EpochEndOffset,
) -> None:
    current = leader.epoch + broker.registry.epoch_base(uid)
    machine = broker.machines.get(group)
    if asked.current_leader_epoch > current:
        row.error_code = ErrorCode.UNKNOWN_LEADER_EPOCH
    elif machine is None or leader.node != broker.me:
        row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    elif ANY_EPOCH != asked.current_leader_epoch < current:
        row.error_code = ErrorCode.FENCED_LEADER_EPOCH
    else:
        state = machine.partition(uid)
        found = state.end_of_epoch(asked.leader_epoch, current)
        if state.dropped or broker.registry.is_gone(uid):
            row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif not _still_leads(broker, group, leader):
            row.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            row.error_code = ErrorCode.NONE
            row.leader_epoch, row.end_offset = found


def _still_leads(broker: Broker, group: GroupId, leader: Leader) -> bool:
    groups = broker.groups
    return groups.acting(group) and groups.caught_up(group) and broker.leaders.of(group) == leader
