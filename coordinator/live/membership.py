"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup: who is a member, and what a member may do now."""

from coordinator.limits import CoordinatorConfig, text_fits
from coordinator.live.assigning import Assigning
from coordinator.live.classic_members import ClassicMembers
from coordinator.live.group import LeaveWait, LiveGroup, LiveMember, protocols_bytes
from coordinator.live.live_assigned import LiveAssigned
from coordinator.live.rebalance import Rebalance, session_key
from coordinator.live.tenure import Tenure
from coordinator.model import (
    NO_MEMBER,
    ConsumerGroupId,
    ErrorCode,
    Heartbeat,
    HeartbeatResponse,
    JoinGroup,
    JoinGroupResponse,
    LeaveGroup,
    LeaveGroupResponse,
    LeavingMember,
    LeftMember,
    MemberId,
    SyncGroup,
    Token,
    refusal,
)
from coordinator.states import GroupEvent, GroupState
from coordinator.subscription import CONSUMER_PROTOCOL, subscribed_topics
from coordinator.timers import TimerKey, TimerKind


class Membership:
    def __init__(self, tenure: Tenure, rebalance: Rebalance, assigning: Assigning) -> None:
        self._assigning = assigning
        self._tenure = tenure
        self._rebalance = rebalance
        self._classic_members = ClassicMembers(tenure, assigning)

    # --- JoinGroup

    def join(self, request: JoinGroup, token: Token) -> None:
        error = check_join(request, self._tenure.config)
        if error == ErrorCode.NONE:
            error = self._join(request, token)
        if error != ErrorCode.NONE:
            self._tenure.reply(token, refusal(request, error))

    def _join(self, request: JoinGroup, token: Token) -> ErrorCode:
        """NONE if the request was answered or deferred, else the error to refuse it with."""
        tenure = self._tenure
        assigned = self._assigned(request.group)
        if assigned is not None and self._classic_members.join(assigned, request, token):
            return ErrorCode.NONE
        group = self._rebalance.view(request.group)
        if group is None and request.member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group is None:
            if not tenure.room_for_live() or not tenure.room_in_log(request.group):
                return ErrorCode.POLICY_VIOLATION
            group = tenure.open(request.group)
        if group.state == GroupState.DEAD:
            error = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif not group.supports(request):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        elif request.member_id:
            error = self._join_known(group, request, token)
        else:
            error = self._join_unknown(group, request, token)
        self._rebalance.settle(group)
        return error

    def _assigned(self, name: ConsumerGroupId) -> LiveAssigned | None:
        """The group, if it has members with broker-side assignment."""
        group = self._assigning.view(name)
        return group if group is not None and group.members else None

    def _join_unknown(self, group: LiveGroup, request: JoinGroup, token: Token) -> ErrorCode:
        former = group.static.get(request.instance_id) if request.instance_id is not None else None
        if former is not None:
            return self._replace_static(group, group.members[former], request, token)
        self._make_room(group)
        if not self._tenure.room_for_member() or not self._has_room(group, request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        member_id = self._new_id(request)
        if request.require_known_member_id and request.instance_id is None:
            self._tenure.lend(group, member_id, request.session_timeout_ms)
            response = JoinGroupResponse(error=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id)
            self._tenure.reply(token, response)
            return ErrorCode.NONE
        self._add(group, member_id, request, token)
        return ErrorCode.NONE

    def _join_known(self, group: LiveGroup, request: JoinGroup, token: Token) -> ErrorCode:
        if request.member_id in group.pending:
            if request.instance_id is not None:
                return ErrorCode.UNKNOWN_MEMBER_ID  # only dynamic members get lent ids
            if not self._has_room(group, request):
                return ErrorCode.GROUP_MAX_SIZE_REACHED
            self._tenure.take_back(group, request.member_id)
            self._add(group, request.member_id, request, token)
            return ErrorCode.NONE
        error = group.fence(request.member_id, request.instance_id)
        if error != ErrorCode.NONE:
            return error
        member = group.members[request.member_id]
        if not self._has_room(group, request):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        unchanged = member.protocols == request.protocols
        if group.state == GroupState.COMPLETING_REBALANCE and unchanged:
            self._defer_join(group, member, request, token)  # the first answer was lost
        elif group.state == GroupState.STABLE and unchanged and member.member_id != group.leader:
            self._defer_join(group, member, request, token)
        else:
            self._rejoin(group, member, request, token)
        return ErrorCode.NONE

    def _add(self, group: LiveGroup, member_id: MemberId, request: JoinGroup, token: Token) -> None:
        member = LiveMember(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
            request.protocols,
        )
        group.add(member)
        group.change(member, request)
        self._defer_join(group, member, request, token)
        self._rejoined(group, f"{member_id} joins")

    def _rejoin(
        self, group: LiveGroup, member: LiveMember, request: JoinGroup, token: Token
    ) -> None:
        group.change(member, request)
        self._defer_join(group, member, request, token)
        self._rejoined(group, f"{member.member_id} joins again")

    def _rejoined(self, group: LiveGroup, reason: str) -> None:
        if group.state == GroupState.PREPARING_REBALANCE:
            group.newcomer = True
        else:
            self._rebalance.prepare(group, reason)
        self._rebalance.maybe_complete(group)

    def _defer_join(
        self, group: LiveGroup, member: LiveMember, request: JoinGroup, token: Token
    ) -> None:
        """A member has one pending JoinGroup: a second one means that it gave up on the first."""
        self._rebalance.drop_pending(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.join = self._tenure.defer(request, token)
        self._rebalance.refresh(group, member)

    def _replace_static(
        self, group: LiveGroup, member: LiveMember, request: JoinGroup, token: Token
    ) -> ErrorCode:
        """A static member returns with a new process (KIP-345): same place, new id.

        Its former self is fenced from now on. If the group is stable and the new self asks for
        nothing else, there is no rebalance: only the log has to learn of it.
        """
        if not self._has_room(group, request, instead_of=member):
            return ErrorCode.GROUP_MAX_SIZE_REACHED
        former, was_leader = member.member_id, group.leader == member.member_id
        before = member.protocols
        self._rebalance.drop_pending(member, ErrorCode.FENCED_INSTANCE_ID)
        self._tenure.timers.cancel(session_key(group, member))
        group.discard(member)
        member.member_id = self._new_id(request)
        group.add(member)
        group.change(member, request)
        if was_leader:
            group.leader = member.member_id
        if member.established:
            group.touch()
        self._defer_join(group, member, request, token)
        if group.state == GroupState.STABLE and _wants_the_same(group, member, before):
            member.restarted_from = former
            group.join_version = group.version
        else:
            self._rejoined(group, f"{member.member_id} replaces {former}")
        return ErrorCode.NONE

    def _new_id(self, request: JoinGroup) -> MemberId:
        return self._tenure.new_member_id(request.instance_id or request.client_id or "member")

    def _make_room(self, group: LiveGroup) -> None:
        """Lent ids keep no client out: if there is no place left, the oldest lent id is taken back,
        of this group or, if the coordinator is full, of any group.

        This group is settled when the client has joined it: before, it may look idle, and would be
        forgotten.
        """
        tenure = self._tenure
        while group.pending and not self._has_places(group, 0):
            self._take_back(group, next(iter(group.pending)))
        while tenure.lent and not tenure.room_for_member():
            name, member_id = next(iter(tenure.lent))
            other = tenure.groups[name]
            self._take_back(other, member_id)
            if other is not group:
                self._rebalance.settle(other)

    def _take_back(self, group: LiveGroup, member_id: MemberId) -> None:
        self._tenure.take_back(group, member_id)
        self._rebalance.maybe_complete(group)

    def _has_places(self, group: LiveGroup, known: int) -> bool:
        count = len(group.members) + len(group.pending) - known
        return count < self._tenure.config.members_per_group_max

    def _has_room(
        self, group: LiveGroup, request: JoinGroup, instead_of: LiveMember | None = None
    ) -> bool:
        config = self._tenure.config
        member = instead_of or group.members.get(request.member_id)
        known = member is not None or request.member_id in group.pending
        own_bytes = protocols_bytes(request.protocols)
        own_bytes += 4 * config.text_bytes_max if member is None else 0
        freed = protocols_bytes(member.protocols) if member is not None else 0
        return (
            self._has_places(group, known)
            and group.size_bytes() - freed + own_bytes <= config.group_bytes_max
        )

    # --- SyncGroup

    def sync(self, request: SyncGroup, token: Token) -> None:
        tenure = self._tenure
        assigned = self._assigned(request.group)
        if assigned is not None:
            self._classic_members.sync(assigned, request, token)
            return
        group = self._rebalance.view(request.group)
        error = _check_sync(group, request)
        if error != ErrorCode.NONE:
            tenure.reply(token, refusal(request, error))
            return
        assert group is not None
        member = group.members[request.member_id]
        if group.state == GroupState.COMPLETING_REBALANCE and member.member_id == group.leader:
            if not self._fits(group, request):
                tenure.notice(group.name, "assignment_too_large", member.member_id)
                tenure.reply(token, refusal(request, ErrorCode.POLICY_VIOLATION))
                return
            self._assign(group, request)
        group.unsynced.discard(member.member_id)
        if not group.unsynced:
            tenure.timers.cancel(TimerKey(TimerKind.SYNC, group.name))
        self._rebalance.drop_pending(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.sync = tenure.defer(request, token)
        self._rebalance.refresh(group, member)
        if group.state == GroupState.STABLE:
            self._rebalance.settle(group)

    def _assign(self, group: LiveGroup, request: SyncGroup) -> None:
        """Give each member its part of the leader's plan (D8); visible once it is in the log."""
        parts = dict(request.assignments)
        for member in group.members.values():
            member.assignment = parts.get(member.member_id, b"")
        group.advance(GroupEvent.ASSIGNED)
        group.sync_version = group.touch()

    def _fits(self, group: LiveGroup, request: SyncGroup) -> bool:
        plan_bytes = sum(len(part) for _, part in request.assignments)
        return group.size_bytes() + plan_bytes <= self._tenure.config.group_bytes_max

    # --- Heartbeat, LeaveGroup

    def heartbeat(self, request: Heartbeat, token: Token) -> None:
        assigned = self._assigned(request.group)
        if assigned is not None:
            self._classic_members.heartbeat(assigned, request, token)
            return
        group = self._rebalance.view(request.group)
        error = ErrorCode.UNKNOWN_MEMBER_ID
        if group is not None:
            error = group.fence(request.member_id, request.instance_id)
            if error == ErrorCode.NONE and request.generation != group.generation:
                error = ErrorCode.ILLEGAL_GENERATION
            if error == ErrorCode.NONE:
                self._rebalance.refresh(group, group.members[request.member_id])
                if group.state == GroupState.PREPARING_REBALANCE:
                    error = ErrorCode.REBALANCE_IN_PROGRESS
        self._tenure.reply(token, HeartbeatResponse(error=error))

    def leave(self, request: LeaveGroup, token: Token) -> None:
        assigned = self._assigned(request.group)
        if assigned is not None:
            self._classic_members.leave(assigned, request, token)
            return
        tenure = self._tenure
        group = self._rebalance.view(request.group)
        gone: dict[MemberId, LiveMember] = {}
        results = []
        for leaving in request.members:
            error = ErrorCode.UNKNOWN_MEMBER_ID
            if group is not None:
                error = self._leave_one(group, leaving, gone)
            results.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        response = LeaveGroupResponse(error=ErrorCode.NONE, members=tuple(results))
        if group is None:
            tenure.reply(token, response)
            return
        if gone:
            reason = next((one.reason for one in request.members if one.reason), "left")
            error = ErrorCode.UNKNOWN_MEMBER_ID
            self._rebalance.remove(group, gone.values(), error, text_cut(reason))
        else:
            self._rebalance.maybe_complete(group)
        group.leaving.append(LeaveWait(group.version, tenure.defer(request, token), response))
        self._rebalance.settle(group)

    def _leave_one(
        self, group: LiveGroup, leaving: LeavingMember, gone: dict[MemberId, LiveMember]
    ) -> ErrorCode:
        member_id = leaving.member_id
        if member_id in group.pending and leaving.instance_id is None:
            self._tenure.take_back(group, member_id)
            return ErrorCode.NONE
        if leaving.instance_id is not None and member_id == NO_MEMBER:
            member_id = group.static.get(leaving.instance_id, NO_MEMBER)
        error = group.fence(member_id, leaving.instance_id)
        if error == ErrorCode.NONE and member_id in gone:
            error = ErrorCode.UNKNOWN_MEMBER_ID
        if error == ErrorCode.NONE:
            gone[member_id] = group.members[member_id]
        return error


def check_join(request: JoinGroup, config: CoordinatorConfig) -> ErrorCode:
    """The error for a JoinGroup that is wrong whatever the group; NONE if it is not."""
    if not request.group or not text_fits(request.group, config.group_id_bytes_max):
        return ErrorCode.INVALID_GROUP_ID
    timeout_ms = request.session_timeout_ms
    if not config.session_timeout_ms_min <= timeout_ms <= config.session_timeout_ms_max:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    if not request.protocol_type or not request.protocols:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    texts = (request.client_id, request.client_host, request.protocol_type)
    names = [name for name, _ in request.protocols]
    if (
        len(names) > config.protocols_per_member_max
        or not all(text_fits(text, config.text_bytes_max) for text in (*texts, *names))
        or not text_fits(request.instance_id or "", config.text_bytes_max)
        or request.instance_id == ""
        or protocols_bytes(request.protocols) > config.member_metadata_bytes_max
    ):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def _check_sync(group: LiveGroup | None, request: SyncGroup) -> ErrorCode:
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.fence(request.member_id, request.instance_id)
    if error != ErrorCode.NONE:
        return error
    if request.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state == GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    for given, ours in (
        (request.protocol_type, group.protocol_type),
        (request.protocol_name, group.protocol_name),
    ):
        if given is not None and given != ours:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _wants_the_same(
    group: LiveGroup, member: LiveMember, before: tuple[tuple[str, bytes], ...]
) -> bool:
    """Whether a restarted static member can continue with its former self's assignment.

    It must offer the same protocols in the same order of preference. For Kafka's consumers it must
    also subscribe to the same topics; the rest of the metadata (owned partitions, user data) may
    differ.
    """
    if [name for name, _ in before] != [name for name, _ in member.protocols]:
        return False
    if group.protocol_type != CONSUMER_PROTOCOL:
        return before == member.protocols
    former = next((data for name, data in before if name == group.protocol_name), b"")
    now = member.metadata(group.protocol_name)
    if former == now:
        return True
    topics = subscribed_topics(now)
    return topics is not None and topics == subscribed_topics(former)


def text_cut(text: str, length: int = 200) -> str:
    return text if len(text) <= length else text[:length] + "..."
