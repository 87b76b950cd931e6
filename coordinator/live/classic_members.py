"""Classic members of a group with broker-side assignment: JoinGroup to LeaveGroup.

Nobody leads here and nobody waits for the others. A heartbeat tells such a member to join again
when there is something to change for it; its JoinGroup is one step towards its target, like a
heartbeat of the new protocol (what it holds is in its metadata), and SyncGroup tells it what it has
now. A cooperative member keeps the rest meanwhile; an eager one has given everything up.

The generation in its requests is its member epoch. A member that was told to join again, or has
joined, and does not do the next thing within its rebalance timeout is removed, as in Kafka.
"""

from collections.abc import Sequence
from functools import partial

import attrs

from coordinator.live.assigned_requests import RefusedError
from coordinator.live.assigning import Assigning
from coordinator.live.group import rebalance_timeout_ms
from coordinator.live.live_assigned import LiveAssigned
from coordinator.live.migration import assignment_of, parts_of, subscription_of
from coordinator.live.tenure import Tenure
from coordinator.model import (
    NO_MEMBER,
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
    SyncGroupResponse,
    Token,
    refusal,
)
from coordinator.replicated.assigned_group import (
    AWAY_EPOCH,
    AssignedMember,
    ClassicMember,
    Subscription,
    held_by_others,
)
from coordinator.subscription import (
    CONSUMER_PROTOCOL,
    ConsumerSubscription,
    SubscriptionError,
    read_subscription,
)
from coordinator.timers import TimerKey, TimerKind


class ClassicMembers:
    def __init__(self, tenure: Tenure, assigning: Assigning) -> None:
        self._tenure = tenure
        self._assigning = assigning

    # --- JoinGroup

    def join(self, group: LiveAssigned, request: JoinGroup, token: Token) -> bool:
        """Whether the request was dealt with; if not, the group is a classic one now, and the
        request one to that."""
        try:
            said = _read(group, request)
            self._check_limits(said)
            if all(one.classic is None for one in group.members.values()) and not group.converts:
                self._assigning.check_mixing()
            if not request.member_id:
                request = attrs.evolve(request, member_id=self._new_id(request))
                if request.require_known_member_id and request.instance_id is None:
                    self._tenure.reply(token, refusal(request, ErrorCode.MEMBER_ID_REQUIRED))
                    return True
                former = group.static.get(request.instance_id or "")
            else:
                former = None
                _check_instance(group, request)
            if former is not None and group.only_classic(without=former):
                heir = _heir(group, group.members[former], request, said)
                self._assigning.hand_over_to(group, heir)
                return False
            step = partial(self._step, group, request, said, former)
            member = self._assigning.attempt(group, step)
        except RefusedError as refused:
            self._tenure.reply(token, refusal(request, refused.error))
            return True
        self._expect(group, member, anew=True)
        response = JoinGroupResponse(
            error=ErrorCode.NONE,
            generation=member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=request.protocols[0].name,
            member_id=member.member_id,
        )
        self._assigning.answer(group, request, token, response)
        return True

    def _step(
        self,
        group: LiveAssigned,
        request: JoinGroup,
        said: ConsumerSubscription,
        former_id: MemberId | None,
    ) -> AssignedMember:
        former = group.members[former_id] if former_id is not None else None
        known = group.members.get(request.member_id)
        if former is not None:
            member = former.replaced_by(request.member_id)
        elif known is not None:
            member = known
        else:
            self._assigning.check_room(group)
            member = AssignedMember(
                member_id=request.member_id,
                instance_id=request.instance_id,
                client_id="",
                client_host="",
                subscription=Subscription(),
            )
        member = _saying(member, request, said)
        owned = parts_of(said.owned, self._assigning.topics())
        return self._assigning.take_in(group, member, former, owned)

    def _new_id(self, request: JoinGroup) -> MemberId:
        return self._tenure.new_member_id(request.instance_id or request.client_id or "member")

    def _check_limits(self, said: ConsumerSubscription) -> None:
        config = self._tenure.config
        topics_count, owned_count = len(said.topics), len(said.owned)
        if topics_count > config.subscriptions_per_member_max:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "too many topics")
        if owned_count > config.assigned_partitions_max:
            raise RefusedError(ErrorCode.INVALID_REQUEST, "too many partitions")

    # --- SyncGroup, Heartbeat

    def sync(self, group: LiveAssigned, request: SyncGroup, token: Token) -> None:
        try:
            member, classic = _named(group, request)
            _check_protocol(classic, request)
            if group.epoch > member.epoch and not member.revoking:
                self._expect(group, member)
                raise RefusedError(ErrorCode.REBALANCE_IN_PROGRESS, "there is a newer plan")
        except RefusedError as refused:
            self._tenure.reply(token, refusal(request, refused.error))
            return
        self._tenure.timers.cancel(_rejoin_key(group, member))
        self._assigning.refresh(group, member)
        names = {topic_id: name for name, (topic_id, _) in self._assigning.topics().ids.items()}
        response = SyncGroupResponse(
            error=ErrorCode.NONE,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=classic.protocols[0].name,
            assignment=assignment_of(member, member.assigned, names),
        )
        self._assigning.answer(group, request, token, response)

    def heartbeat(self, group: LiveAssigned, request: Heartbeat, token: Token) -> None:
        try:
            member, _ = _named(group, request)
        except RefusedError as refused:
            self._tenure.reply(token, HeartbeatResponse(error=refused.error))
            return
        self._assigning.refresh(group, member)
        error = ErrorCode.NONE
        if _must_rejoin(group, member):
            self._expect(group, member)
            error = ErrorCode.REBALANCE_IN_PROGRESS
        self._tenure.reply(token, HeartbeatResponse(error=error))

    def _expect(self, group: LiveAssigned, member: AssignedMember, *, anew: bool = False) -> None:
        """Give the member its rebalance timeout for what it has to do next."""
        key = _rejoin_key(group, member)
        if anew or not self._tenure.timers.has(key):
            self._tenure.wait(key, member.subscription.rebalance_timeout_ms)

    # --- LeaveGroup

    def leave(self, group: LiveAssigned, request: LeaveGroup, token: Token) -> None:
        gone: dict[MemberId, AssignedMember] = {}
        results = []
        for leaving in request.members:
            error = ErrorCode.NONE
            try:
                member = _leaving(group, leaving)
                if member.member_id in gone:
                    error = ErrorCode.UNKNOWN_MEMBER_ID
                gone[member.member_id] = member
            except RefusedError as refused:
                error = refused.error
            results.append(LeftMember(leaving.member_id, leaving.instance_id, error))
        if gone:
            self._assigning.remove(group, gone.values(), "left")
        response = LeaveGroupResponse(error=ErrorCode.NONE, members=tuple(results))
        self._assigning.answer(group, request, token, response)


# --- what a request says, and whether its sender may say it ---------------------------------------


def _read(group: LiveAssigned, request: JoinGroup) -> ConsumerSubscription:
    """What the member subscribes to and holds, if it can be a member of this group.

    As in Kafka it has to share a protocol with the other classic members: they may be on their own
    again one day.
    """
    mismatch = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_type != CONSUMER_PROTOCOL:
        raise RefusedError(mismatch, "the group is one of consumers")
    own = {request.member_id, group.static.get(request.instance_id or "")}
    offers: Sequence[ClassicMember] = [
        one.classic
        for name, one in group.members.items()
        if one.classic is not None and name not in own
    ]
    common = {name for name, _ in request.protocols}
    for offer in offers:
        common &= {name for name, _ in offer.protocols}
    if not common:
        raise RefusedError(mismatch, "the group's classic members have no such protocol in common")
    try:
        return read_subscription(request.protocols[0].metadata)
    except SubscriptionError as error:
        raise RefusedError(mismatch, f"the subscription cannot be read: {error}") from error


def _saying(
    member: AssignedMember, request: JoinGroup, said: ConsumerSubscription
) -> AssignedMember:
    return attrs.evolve(
        member,
        subscription=subscription_of(said, rebalance_timeout_ms(request)),
        client_id=request.client_id,
        client_host=request.client_host,
        classic=ClassicMember(request.session_timeout_ms, request.protocols),
    )


def _heir(
    group: LiveAssigned, former: AssignedMember, request: JoinGroup, said: ConsumerSubscription
) -> AssignedMember:
    """A static member as it would be if it had been classic all along."""
    epoch = group.epoch if former.epoch == AWAY_EPOCH else former.epoch
    return attrs.evolve(_saying(former, request, said), epoch=epoch)


def _check_instance(group: LiveAssigned, request: JoinGroup) -> None:
    """A member that names an instance id must be the one that has it."""
    if request.instance_id is None:
        return
    holder = group.static.get(request.instance_id)
    if holder is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "nobody has that instance id")
    if holder != request.member_id:
        raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, "another member has that instance id")


def _named(
    group: LiveAssigned, request: SyncGroup | Heartbeat
) -> tuple[AssignedMember, ClassicMember]:
    if request.instance_id is not None:
        holder = group.static.get(request.instance_id)
        if holder is not None and holder != request.member_id:
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, "another member has that instance id")
    member = group.members.get(request.member_id)
    if member is None or request.instance_id not in (None, member.instance_id):
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
    if member.classic is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the member is not a classic one")
    if request.generation != member.epoch:
        raise RefusedError(ErrorCode.ILLEGAL_GENERATION, f"the member is at {member.epoch}")
    return member, member.classic


def _check_protocol(classic: ClassicMember, request: SyncGroup) -> None:
    ours = classic.protocols[0].name
    same_type = request.protocol_type in (None, CONSUMER_PROTOCOL)
    if not same_type or request.protocol_name not in (None, ours):
        raise RefusedError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the protocol is {ours}")


def _must_rejoin(group: LiveAssigned, member: AssignedMember) -> bool:
    """Whether the member is behind, has something to give up, or can have all that it waits for."""
    if member.settled(group.epoch):
        return False
    if member.epoch < group.epoch or member.revoking:
        return True
    missing = member.target - member.assigned
    return not missing & held_by_others(group.members.values(), member.member_id)


def _leaving(group: LiveAssigned, leaving: LeavingMember) -> AssignedMember:
    """The classic member that leaves; an operator may name it by its instance id alone."""
    member_id = leaving.member_id
    if leaving.instance_id is not None:
        holder = group.static.get(leaving.instance_id)
        if holder is None:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "nobody has that instance id")
        if member_id not in (NO_MEMBER, holder):
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, "another member has that instance id")
        member_id = holder
    member = group.members.get(member_id)
    if member is None or member.classic is None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such classic member")
    return member


def _rejoin_key(group: LiveAssigned, member: AssignedMember) -> TimerKey:
    return TimerKey(TimerKind.REJOIN, group.name, member.member_id)
