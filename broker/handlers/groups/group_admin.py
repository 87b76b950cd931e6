"""DescribeGroups, ListGroups and DeleteGroups: consumer groups as an operator sees them."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from broker.groups.consumer_groups import paxos_group_of
from broker.requests.access import operations
from broker.requests.context import Broker
from broker.requests.guard import gather, guarded
from broker.requests.refusals import answer_aside
from broker.requests.request import Request
from broker.requests.steps import STEP
from coordinator import model
from coordinator.model import ConsumerGroupId
from coordinator.states import RECONCILING, STATE_NAMES, GroupState
from paxos.ids import GroupId
from wire.acls import ResourceType
from wire.apis import encode_response
from wire.error_codes import ErrorCode
from wire.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)

NOT_FOUND_FROM: Final = 6
"""The first version of DescribeGroups for which an unknown group is an error (KIP-1043)."""
NOT_FOUND: Final = "Group {} not found: there is no classic consumer group of this name"
_STATES: Final = {name.lower(): name for name in (*STATE_NAMES.values(), RECONCILING)}


def handle_describe(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DescribeGroupsRequest)
    act = guarded(broker, request, partial(_described, broker, request, message))
    put = gather(len(message.groups), act)
    for index, name in enumerate(message.groups):
        asked = model.DescribeGroup(group=ConsumerGroupId(name))
        group = paxos_group_of(broker.registry, name)
        broker.consumer_groups.ask(group, asked, partial(put, index))


def _described(
    broker: Broker,
    request: Request,
    message: DescribeGroupsRequest,
    answers: Sequence[model.Response],
) -> None:
    asked_operations = message.include_authorized_operations
    dead = STATE_NAMES[GroupState.DEAD]
    groups = []
    for answer in answers:
        assert isinstance(answer, model.DescribeGroupResponse)
        missing = (
            request.header.api_version >= NOT_FOUND_FROM
            and not answer.error
            and answer.state == dead
        )
        groups.append(
            DescribedGroup(
                error_code=ErrorCode.GROUP_ID_NOT_FOUND if missing else answer.error,
                error_message=NOT_FOUND.format(answer.group) if missing else None,
                group_id=answer.group,
                group_state="" if answer.error else answer.state,
                protocol_type=answer.protocol_type,
                protocol_data=answer.protocol_name,
                members=[DescribedGroupMember(*one) for one in answer.members],
                authorized_operations=operations(
                    broker, request, ResourceType.GROUP, answer.group, asked=asked_operations
                ),
            )
        )
    response = DescribeGroupsResponse(groups=groups)
    request.reply.complete(encode_response(request.header, response))


def handle_list(broker: Broker, request: Request) -> None:
    """The consumer groups this node coordinates: clients ask every node for its own.

    While a Paxos group has no reachable coordinator, its consumer groups are in no node's list: a
    node that knows this answers with an error, rather than let the lists look complete.
    """
    message = request.message
    assert isinstance(message, ListGroupsRequest)
    types = frozenset(one.lower() for one in message.types_filter)
    states = frozenset(_STATES.get(one.lower(), one) for one in message.states_filter)
    if not broker.consumer_groups.complete(broker.me):
        missing = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        request.reply.complete(encode_response(request.header, missing))
        return
    coordinated = broker.consumer_groups.coordinated()
    act = guarded(broker, request, partial(_named, broker, request, states, types, coordinated))
    put = gather(len(coordinated), act)
    for index, group in enumerate(coordinated):
        broker.consumer_groups.ask(group, model.NameGroups(), partial(put, index))


def _named(
    broker: Broker,
    request: Request,
    states: frozenset[str],
    types: frozenset[str],
    coordinated: Sequence[GroupId],
    answers: Sequence[model.Response],
) -> None:
    """One coordinator that is still loading makes the whole list incomplete: an error."""
    slices = []
    for group, answer in zip(coordinated, answers, strict=True):
        assert isinstance(answer, model.NameGroupsResponse)
        if answer.error:
            refused = ListGroupsResponse(error_code=answer.error)
            request.reply.complete(encode_response(request.header, refused))
            return
        names = answer.names
        slices += [(group, names[at : at + STEP]) for at in range(0, len(names), STEP)]
    act = guarded(broker, request, partial(_listed, broker, request, types))
    put = gather(len(slices), act)
    broker.portions.in_steps(broker, request.reply, _ask(broker, states, slices, put), _nothing)


def _ask(
    broker: Broker,
    states: frozenset[str],
    slices: Sequence[tuple[GroupId, tuple[ConsumerGroupId, ...]]],
    put: Callable[[int, model.Response], None],
) -> Iterator[None]:
    looked_at = 0
    for index, (group, names) in enumerate(slices):
        if looked_at and looked_at + len(names) > STEP:
            looked_at = 0
            yield
        looked_at += len(names)
        asked = model.ListGroups(names=names, states=states)
        broker.consumer_groups.ask(group, asked, partial(put, index))


def _nothing() -> None:
    """The last answer completes the request, perhaps later."""


def _listed(
    broker: Broker, request: Request, types: frozenset[str], answers: Sequence[model.Response]
) -> None:
    error, count = 0, 0
    for answer in answers:
        assert isinstance(answer, model.ListGroupsResponse)
        error = error or answer.error
        count += len(answer.groups)

    def make() -> ListGroupsResponse:
        groups = [
            ListedGroup(one.group, one.protocol_type, one.state, one.type)
            for answer in answers
            if isinstance(answer, model.ListGroupsResponse)
            for one in answer.groups
            if not types or one.type in types
        ]
        return ListGroupsResponse(error_code=error, groups=[] if error else groups)

    answer_aside(broker, request, count, make)


def handle_delete(broker: Broker, request: Request) -> None:
    message = request.message
    assert isinstance(message, DeleteGroupsRequest)
    names = list(dict.fromkeys(message.groups_names))
    put = gather(len(names), guarded(broker, request, partial(_deleted, request, names)))
    for index, name in enumerate(names):
        asked = model.DeleteGroup(group=ConsumerGroupId(name))
        group = paxos_group_of(broker.registry, name)
        broker.consumer_groups.ask(group, asked, partial(put, index))


def _deleted(request: Request, names: Sequence[str], answers: Sequence[model.Response]) -> None:
    results = []
    for name, answer in zip(names, answers, strict=True):
        assert isinstance(answer, model.DeleteGroupResponse)
        results.append(DeletableGroupResult(name, answer.error))
    response = DeleteGroupsResponse(results=results)
    request.reply.complete(encode_response(request.header, response))
