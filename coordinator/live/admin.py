"""DescribeGroups, ListGroups and DeleteGroups."""

from typing import Final

from coordinator.live.assigning import Assigning
from coordinator.live.group import LiveGroup
from coordinator.live.rebalance import CHANGE_ERRORS, Rebalance
from coordinator.live.tenure import DeleteUnderWay, Tenure
from coordinator.model import (
    ConsumerGroupId,
    DeleteGroup,
    DeleteGroupResponse,
    DescribedMember,
    DescribeGroup,
    DescribeGroupResponse,
    ErrorCode,
    ListedGroup,
    ListGroups,
    ListGroupsResponse,
    NameGroups,
    NameGroupsResponse,
    ProposalFailure,
    Token,
    refusal,
)
from coordinator.replicated.commands import DropGroup, Result
from coordinator.states import STATE_NAMES, GroupEvent, GroupState
from coordinator.subscription import CONSUMER_PROTOCOL

CONSUMER: Final = "consumer"
"""The type of groups with broker-side assignment; the others are "classic"."""


class Admin:
    def __init__(self, tenure: Tenure, rebalance: Rebalance, assigning: Assigning) -> None:
        self._assigning = assigning
        self._tenure = tenure
        self._rebalance = rebalance

    def describe(self, request: DescribeGroup, token: Token) -> None:
        group = None
        if self._assigning.look(request.group) is None:  # else not a classic group: Dead here
            group = self._look(request.group)
        if group is None:
            response = DescribeGroupResponse(error=ErrorCode.NONE, group=request.group)
            self._tenure.reply(token, response)
            return
        state = group.visible_state()
        stable = state == GroupState.STABLE
        members = tuple(
            DescribedMember(
                m.member_id,
                m.instance_id,
                m.client_id,
                m.client_host,
                m.metadata(group.protocol_name) if stable else b"",
                m.assignment if stable else b"",
            )
            for m in group.members.values()
        )
        response = DescribeGroupResponse(
            error=ErrorCode.NONE,
            group=group.name,
            state=STATE_NAMES[state],
            protocol_type=group.protocol_type or "",
            protocol_name=(group.protocol_name or "") if stable else "",
            members=members,
        )
        self._tenure.reply(token, response)

    def name(self, _: NameGroups, token: Token) -> None:
        """Those of the log, then those that are not in it yet."""
        store = self._tenure.store
        live = dict.fromkeys((*self._tenure.groups, *self._assigning.groups))
        names = (*store.names(), *(name for name in live if store.get(name) is None))
        self._tenure.reply(token, NameGroupsResponse(error=ErrorCode.NONE, names=names))

    def list(self, request: ListGroups, token: Token) -> None:
        groups, assigned, store = self._tenure.groups, self._assigning.groups, self._tenure.store
        listed = []
        for name in request.names:
            stored = store.get(name)
            if name in groups or name in assigned or (stored and stored.assigned is not None):
                one = self._listed(name)
            elif stored is not None:  # a view of it would cost ten times as much
                state = STATE_NAMES[stored.state]
                one = ListedGroup(name, stored.protocol_type or "", state)
            else:
                continue  # it was deleted since
            if one is not None and (not request.states or one.state in request.states):
                listed.append(one)
        response = ListGroupsResponse(error=ErrorCode.NONE, groups=tuple(listed))
        self._tenure.reply(token, response)

    def _listed(self, name: ConsumerGroupId) -> ListedGroup | None:
        assigned = self._assigning.look(name)
        if assigned is not None:
            return ListedGroup(name, CONSUMER_PROTOCOL, assigned.state(), CONSUMER)
        group = self._look(name)
        if group is None:
            return None
        return ListedGroup(name, group.protocol_type or "", STATE_NAMES[group.visible_state()])

    def delete(self, request: DeleteGroup, token: Token) -> None:
        """An empty group refuses new members at once, and is gone when the log has the deletion."""
        tenure = self._tenure
        if self._assigning.has_members(request.group):
            tenure.reply(token, refusal(request, ErrorCode.NON_EMPTY_GROUP))
            return
        group = self._rebalance.view(request.group)
        if group is None and tenure.store.get(request.group) is not None:
            group = tenure.open(request.group)
        if group is None:
            tenure.reply(token, refusal(request, ErrorCode.GROUP_ID_NOT_FOUND))
            return
        error = ErrorCode.NONE
        if group.state == GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif group.state != GroupState.EMPTY:
            error = ErrorCode.NON_EMPTY_GROUP
        elif group.durable < group.version:
            error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the log does not have the leaving yet
        if error != ErrorCode.NONE:
            tenure.reply(token, refusal(request, error))
            return
        group.advance(GroupEvent.DELETED)
        under_way = DeleteUnderWay(tenure.defer(request, token))
        tenure.propose(request.group, DropGroup(request.group), under_way)

    def on_delete(self, under_way: DeleteUnderWay, outcome: Result | ProposalFailure) -> None:
        tenure = self._tenure
        error = CHANGE_ERRORS[outcome] if isinstance(outcome, ProposalFailure) else outcome.error
        group = tenure.groups.get(under_way.pending.request.group)
        if group is not None and group.state == GroupState.DEAD:
            self._rebalance.reload(group, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        tenure.answer(under_way.pending, DeleteGroupResponse(error=error))

    def _look(self, name: ConsumerGroupId) -> LiveGroup | None:
        """The live view, or else a temporary one of what the log has."""
        group = self._tenure.groups.get(name)
        if group is None:
            stored = self._tenure.store.get(name)
            return LiveGroup.from_stored(stored) if stored is not None else None
        return group
