"""OffsetCommit, OffsetFetch, OffsetDelete: the offsets of consumer groups, in their coordinators'
logs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from balancer.registry.registry import Registry
from broker.groups.consumer_groups import paxos_group_of
from broker.handlers.groups.all_offsets import ask_for_offsets
from broker.handlers.topics.known_names import denial
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.refusals import answer_aside, refuse_more_than
from broker.requests.request import Request
from coordinator import model
from coordinator.model import ConsumerGroupId, MemberId
from paxos.ids import MS
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeletePartitionResult,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteTopic,
    OffsetDeleteTopicResult,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

NO_GROUP_FROM: Final = 9
"""OffsetCommit: in earlier versions a group that is not there is an illegal generation."""
BATCHED_FETCH_FROM: Final = 8
"""OffsetFetch: several consumer groups at once (KIP-709)."""
ALL_OFFSETS_MAX: Final = 500_000
"""Of all groups of one request that names no topics: some 75 MB while it is answered."""
TOP_LEVEL_ERROR_FROM: Final = 2
"""OffsetFetch: in earlier versions an error of the group is repeated for each partition."""

# -- OffsetCommit ----------------------------------------------------------------------------------


def handle_commit(broker: Broker, request: Request) -> None:
    """Commit for the partitions that exist; the others are refused without asking the coordinator.

    The retention time that clients send up to version 4 is ignored, as in Kafka from version 5 on.
    """
    message = request.message
    assert isinstance(message, OffsetCommitRequest)
    known = [_known_partitions(broker.registry, topic) for topic in message.topics]
    asked = model.OffsetCommit(
        group=ConsumerGroupId(message.group_id),
        generation=message.generation_id_or_member_epoch,
        member_id=MemberId(message.member_id),
        instance_id=message.group_instance_id,
        commit_wall_ms=broker.groups.now().wall_ns // MS,
        topics=tuple(topic for topic in known if topic.partitions),
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_committed, broker, request, message))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _known_partitions(registry: Registry, asked: OffsetCommitRequestTopic) -> model.TopicOffsets:
    topic = registry.topic(asked.name)
    places = () if topic is None else topic.partitions
    return model.TopicOffsets(
        asked.name,
        tuple(
            model.PartitionOffset(
                one.partition_index,
                one.committed_offset,
                one.committed_leader_epoch,
                one.committed_metadata or "",
                places[one.partition_index].uid,
            )
            for one in asked.partitions
            if 0 <= one.partition_index < len(places)
        ),
    )


def _committed(
    broker: Broker, request: Request, message: OffsetCommitRequest, answer: model.Response
) -> None:
    assert isinstance(answer, model.OffsetCommitResponse)
    version = request.header.api_version
    errors = {
        (topic.topic, one.partition): _commit_error(one.error, version)
        for topic in answer.topics
        for one in topic.partitions
    }
    unknown = denial(
        broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    topics = [
        OffsetCommitResponseTopic(
            topic.name,
            [
                OffsetCommitResponsePartition(
                    one.partition_index, errors.get((topic.name, one.partition_index), unknown)
                )
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    response = OffsetCommitResponse(topics=topics)
    request.reply.complete(encode_response(request.header, response))


def _commit_error(error: int, version: int) -> int:
    if error == ErrorCode.GROUP_ID_NOT_FOUND and version < NO_GROUP_FROM:
        return ErrorCode.ILLEGAL_GENERATION
    return error


# -- OffsetFetch -----------------------------------------------------------------------------------


def handle_fetch(broker: Broker, request: Request) -> None:
    """There are no transactions, so every offset is stable (`require_stable`, KIP-447)."""
    message = request.message
    assert isinstance(message, OffsetFetchRequest)
    groups = (
        message.groups
        if request.header.api_version >= BATCHED_FETCH_FROM
        else [OffsetFetchRequestGroup(message.group_id, topics=message.topics)]
    )
    if refuse_more_than(ALL_OFFSETS_MAX, range(_all_offsets(broker, groups)), broker, request):
        return
    put = gather(len(groups), guarded(broker, request, partial(_fetched, broker, request, groups)))
    work = _fetch_each(broker, request, groups, put)
    broker.portions.in_steps(broker, request.reply, work, lambda: None)


def _all_offsets(broker: Broker, groups: Sequence[OffsetFetchRequestGroup]) -> int:
    """How many offsets the groups have of which all are asked for, as far as they are here."""
    count = 0
    for one in groups:
        group = paxos_group_of(broker.registry, one.group_id)
        if one.topics is None and group is not None:
            stored = broker.consumer_groups.stored(group, ConsumerGroupId(one.group_id))
            count += 0 if stored is None else stored.offsets_count
    return count


def _fetch_each(
    broker: Broker,
    request: Request,
    groups: Sequence[OffsetFetchRequestGroup],
    put: Callable[[int, model.Response], None],
) -> Iterator[None]:
    for index, one in enumerate(groups):
        asked = model.OffsetFetch(
            group=ConsumerGroupId(one.group_id),
            topics=None if one.topics is None else tuple(map(_topic_partitions, one.topics)),
            member_id=MemberId(one.member_id or ""),
            epoch=one.member_epoch,
        )
        group = paxos_group_of(broker.registry, one.group_id)
        yield from ask_for_offsets(broker, group, asked, partial(put, index), request.reply)


def _topic_partitions(topic: OffsetFetchRequestTopic) -> model.TopicPartitions:
    return model.TopicPartitions(topic.name, tuple(topic.partition_indexes))


def _fetched(
    broker: Broker,
    request: Request,
    asked: Sequence[OffsetFetchRequestGroup],
    answers: Sequence[model.Response],
) -> None:
    rows = sum(
        len(topic.partitions)
        for answer in answers
        if isinstance(answer, model.OffsetFetchResponse)
        for topic in answer.topics
    )
    version = request.header.api_version
    answer_aside(broker, request, rows, lambda: _fetch_response(version, asked, answers))


def _fetch_response(
    version: int,
    asked: Sequence[OffsetFetchRequestGroup],
    answers: Sequence[model.Response],
) -> OffsetFetchResponse:
    groups = []
    for one, answer in zip(asked, answers, strict=True):
        assert isinstance(answer, model.OffsetFetchResponse)
        topics = list(map(_topic, answer.topics))
        if answer.error and version < TOP_LEVEL_ERROR_FROM:
            topics = [_refused_topic(topic, answer.error) for topic in one.topics or ()]
        groups.append(OffsetFetchResponseGroup(one.group_id, topics, answer.error))
    if version >= BATCHED_FETCH_FROM:
        return OffsetFetchResponse(groups=groups)
    return OffsetFetchResponse(topics=groups[0].topics, error_code=groups[0].error_code)


def _topic(topic: model.TopicOffsets) -> OffsetFetchResponseTopic:
    return OffsetFetchResponseTopic(topic.topic, list(map(_partition, topic.partitions)))


def _partition(one: model.PartitionOffset) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(one.partition, one.offset, one.leader_epoch, one.metadata)


def _refused_topic(topic: OffsetFetchRequestTopic, error: int) -> OffsetFetchResponseTopic:
    partitions: Iterable[int] = topic.partition_indexes
    return OffsetFetchResponseTopic(
        topic.name,
        [
            OffsetFetchResponsePartition(one, model.NO_OFFSET, metadata="", error_code=error)
            for one in partitions
        ],
    )


# -- OffsetDelete ----------------------------------------------------------------------------------


def handle_delete(broker: Broker, request: Request) -> None:
    """Forget a group's offsets in topics that none of its members subscribes to (KIP-496). For the
    partitions that exist; the others are refused without asking the coordinator."""
    message = request.message
    assert isinstance(message, OffsetDeleteRequest)
    named = [_there(broker.registry, topic) for topic in message.topics]
    asked = model.OffsetDelete(
        group=ConsumerGroupId(message.group_id),
        topics=tuple(topic for topic in named if topic.partitions),
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_deleted, broker, request, message))
    broker.consumer_groups.ask(group, asked, answered)


def _there(registry: Registry, asked: OffsetDeleteTopic) -> model.TopicPartitions:
    topic = registry.topic(asked.name)
    count = 0 if topic is None else len(topic.partitions)
    indexes = (one.partition_index for one in asked.partitions)
    return model.TopicPartitions(asked.name, tuple(one for one in indexes if 0 <= one < count))


def _deleted(
    broker: Broker, request: Request, message: OffsetDeleteRequest, answer: model.Response
) -> None:
    assert isinstance(answer, model.OffsetDeleteResponse)
    errors = {
        (topic.topic, one.partition): one.error
        for topic in answer.topics
        for one in topic.partitions
    }
    unknown = denial(
        broker, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    topics = [
        OffsetDeleteTopicResult(
            topic.name,
            [
                OffsetDeletePartitionResult(
                    one.partition_index, errors.get((topic.name, one.partition_index), unknown)
                )
                for one in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    response = OffsetDeleteResponse(error_code=answer.error)
    if not answer.error:
        response.topics = topics
    request.reply.complete(encode_response(request.header, response))
