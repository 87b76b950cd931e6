"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: from the wire to the coordinator and back."""

from functools import partial
from typing import Final

from broker.groups.consumer_groups import paxos_group_of
from broker.requests.context import Broker
from broker.requests.guard import guarded
from broker.requests.request import Request
from coordinator import model
from coordinator.limits import MEMBERS_MAX, PROTOCOLS_MAX
from coordinator.model import ConsumerGroupId, MemberId
from wire.apis import encode_response
from wire.messages.membership import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    JoinGroupResponseMember,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

MEMBER_ID_FIRST_FROM: Final = 4
"""JoinGroup: a new member is given its id first and then joins with it (KIP-394)."""
NULL_PROTOCOL_FROM: Final = 7
"""JoinGroup: "no protocol" is null instead of empty."""
SKIP_ASSIGNMENT_FROM: Final = 9
"""JoinGroup: a restarted leader is told to leave the assignment as it is (KIP-814)."""
NAMED_PROTOCOL_FROM: Final = 5
"""SyncGroup: the kind and the name of the protocol are told, so that a member which has missed a
change of protocols does not take an assignment of the other one (KIP-559)."""
BATCHED_LEAVE_FROM: Final = 3
"""LeaveGroup: several members at once (KIP-345)."""


def handle_join(broker: Broker, request: Request) -> None:
    message, header = request.message, request.header
    assert isinstance(message, JoinGroupRequest)
    if len(message.protocols) > PROTOCOLS_MAX:
        _joined(request, model.JoinGroupResponse(error=model.ErrorCode.INVALID_REQUEST))
        return
    asked = model.JoinGroup(
        group=ConsumerGroupId(message.group_id),
        member_id=MemberId(message.member_id),
        instance_id=message.group_instance_id,
        client_id=header.client_id or "",
        client_host=f"/{request.client_host}",
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple(model.Protocol(one.name, one.metadata) for one in message.protocols),
        require_known_member_id=header.api_version >= MEMBER_ID_FIRST_FROM,
        supports_skip_assignment=header.api_version >= SKIP_ASSIGNMENT_FROM,
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_joined, request))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _joined(request: Request, answer: model.Response) -> None:
    assert isinstance(answer, model.JoinGroupResponse)
    protocol_name = answer.protocol_name
    if protocol_name is None and request.header.api_version < NULL_PROTOCOL_FROM:
        protocol_name = ""
    response = JoinGroupResponse(
        error_code=answer.error,
        generation_id=answer.generation,
        protocol_type=answer.protocol_type,
        protocol_name=protocol_name,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=[JoinGroupResponseMember(*one) for one in answer.members],
    )
    request.reply.complete(encode_response(request.header, response))


def handle_sync(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, SyncGroupRequest)
    if len(message.assignments) > MEMBERS_MAX:
        _synced(request, model.SyncGroupResponse(error=model.ErrorCode.INVALID_REQUEST))
        return
    if request.header.api_version >= NAMED_PROTOCOL_FROM and (
        message.protocol_type is None or message.protocol_name is None
    ):
        refusal = model.ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        _synced(request, model.SyncGroupResponse(error=refusal))
        return
    asked = model.SyncGroup(
        group=ConsumerGroupId(message.group_id),
        generation=message.generation_id,
        member_id=MemberId(message.member_id),
        instance_id=message.group_instance_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments=tuple(
            model.Assignment(MemberId(one.member_id), one.assignment) for one in message.assignments
        ),
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_synced, request))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _synced(request: Request, answer: model.Response) -> None:
    assert isinstance(answer, model.SyncGroupResponse)
    response = SyncGroupResponse(
        error_code=answer.error,
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol_name,
        assignment=answer.assignment,
    )
    request.reply.complete(encode_response(request.header, response))


def handle_heartbeat(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, HeartbeatRequest)
    asked = model.Heartbeat(
        group=ConsumerGroupId(message.group_id),
        generation=message.generation_id,
        member_id=MemberId(message.member_id),
        instance_id=message.group_instance_id,
    )
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_heartbeat, request))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _heartbeat(request: Request, answer: model.Response) -> None:
    assert isinstance(answer, model.HeartbeatResponse)
    response = HeartbeatResponse(error_code=answer.error)
    request.reply.complete(encode_response(request.header, response))


def handle_leave(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, LeaveGroupRequest)
    if len(message.members) > MEMBERS_MAX:
        _left(request, model.LeaveGroupResponse(error=model.ErrorCode.INVALID_REQUEST))
        return
    if request.header.api_version >= BATCHED_LEAVE_FROM:
        members = tuple(
            model.LeavingMember(MemberId(one.member_id), one.group_instance_id, one.reason or "")
            for one in message.members
        )
    else:
        members = (model.LeavingMember(MemberId(message.member_id)),)
    asked = model.LeaveGroup(group=ConsumerGroupId(message.group_id), members=members)
    group = paxos_group_of(broker.registry, message.group_id)
    answered = guarded(broker, request, partial(_left, request))
    broker.consumer_groups.ask(group, asked, answered, request.reply.has_hung_up)


def _left(request: Request, answer: model.Response) -> None:
    assert isinstance(answer, model.LeaveGroupResponse)
    error = answer.error
    if request.header.api_version < BATCHED_LEAVE_FROM and not error and answer.members:
        error = answer.members[0].error
    response = LeaveGroupResponse(
        error_code=error, members=[MemberResponse(*one) for one in answer.members]
    )
    request.reply.complete(encode_response(request.header, response))
