"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: consumer groups with broker-side assignment
(KIP-848).
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from broker.groups.consumer_groups import paxos_group_of
from broker.requests.access import operations
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.refusals import refuse_more_than
from broker.requests.request import Request
from coordinator import model
from coordinator.model import ConsumerGroupId, MemberId
from wire.acls import ResourceType
from wire.apis import encode_response
from wire.messages.assigned_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    DescribedAssignment,
    DescribedConsumer,
    DescribedConsumerGroup,
    DescribedTopicPartitions,
    HeartbeatAssignment,
    TopicIdPartitions,
)

PARTITIONS_MAX: Final = 100_000
"""Partitions that a member claims to hold, in one heartbeat."""
NO_GROUP: Final = "there is no such consumer group"
CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1
OWN_MEMBER_ID_FROM: Final = 1
"""ConsumerGroupHeartbeat: from this version on a member draws its id itself (KIP-1082)."""


def handle_heartbeat(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ConsumerGroupHeartbeatRequest)
    held = [one for topic in message.topic_partitions or () for one in topic.partitions]
    if refuse_more_than(PARTITIONS_MAX, held, broker, request):
        return
    topics = message.subscribed_topic_names
    owned = message.topic_partitions
    asked = model.AssignedHeartbeat(
        group=ConsumerGroupId(message.group_id),
        member_id=MemberId(message.member_id),
        epoch=message.member_epoch,
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        client_id=request.header.client_id or "",
        client_host=f"/{request.client_host}",
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        topics=None if topics is None else tuple(topics),
        pattern=message.subscribed_topic_regex,
        assignor=message.server_assignor,
        owned=None if owned is None else tuple(map(_owned, owned)),
        names_itself=request.header.api_version >= OWN_MEMBER_ID_FROM,
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_beaten, request))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _owned(topic: TopicIdPartitions) -> model.TopicIdPartitions:
    return model.TopicIdPartitions(bytes(topic.topic_id), tuple(topic.partitions))


def _beaten(request: Request, answer: model.Response) -> None:
    assert isinstance(answer, model.AssignedHeartbeatResponse)
    assignment = None
    if answer.assignment is not None:
        assignment = HeartbeatAssignment(
            [TopicIdPartitions(one.topic_id, list(one.partitions)) for one in answer.assignment]
        )
    response = ConsumerGroupHeartbeatResponse(
        error_code=answer.error,
        error_message=answer.message,
        member_id=answer.member_id or None,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=assignment,
    )
    request.reply.complete(encode_response(request.header, response))


def handle_describe(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, ConsumerGroupDescribeRequest)
    asked_operations = message.include_authorized_operations
    act = guarded(broker, request, partial(_described, broker, request, asked_operations))
    put = gather(len(message.group_ids), act)
    for index, name in enumerate(message.group_ids):
        asked = model.DescribeAssigned(group=ConsumerGroupId(name))
        group = paxos_group_of(broker.registry, name)
        broker.consumer_groups.ask(group, asked, partial(put, index))


def _described(
    broker: Broker, request: Request, asked_operations: bool, answers: Sequence[model.Response]
) -> None:
    names = {topic.topic_id: name for name, topic in broker.registry.topics.items()}
    groups = []
    for answer in answers:
        assert isinstance(answer, model.DescribeAssignedResponse)
        groups.append(
            DescribedConsumerGroup(
                error_code=answer.error,
                error_message=NO_GROUP
                if answer.error == model.ErrorCode.GROUP_ID_NOT_FOUND
                else None,
                group_id=answer.group,
                group_state=answer.state,
                group_epoch=answer.epoch,
                assignment_epoch=answer.epoch,
                assignor_name=answer.assignor,
                members=[_member(names, one) for one in answer.members],
                authorized_operations=operations(
                    broker, request, ResourceType.GROUP, answer.group, asked=asked_operations
                ),
            )
        )
    response = ConsumerGroupDescribeResponse(groups=groups)
    request.reply.complete(encode_response(request.header, response))


def _member(names: Mapping[bytes, str], one: model.DescribedAssigned) -> DescribedConsumer:
    return DescribedConsumer(
        member_id=one.member_id,
        instance_id=one.instance_id,
        rack_id=one.rack_id,
        member_epoch=one.epoch,
        client_id=one.client_id,
        client_host=one.client_host,
        subscribed_topic_names=list(one.topics),
        subscribed_topic_regex=one.pattern,
        assignment=_assignment(names, one.assigned),
        target_assignment=_assignment(names, one.target),
        member_type=CLASSIC_MEMBER if one.classic else CONSUMER_MEMBER,
    )


def _assignment(
    names: Mapping[bytes, str], share: Sequence[model.TopicIdPartitions]
) -> DescribedAssignment:
    return DescribedAssignment(
        [
            DescribedTopicPartitions(
                one.topic_id, names.get(one.topic_id, ""), list(one.partitions)
            )
            for one in share
        ]
    )
