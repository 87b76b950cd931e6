"""ConsumerGroupHeartbeat (KIP-848): the whole life of a consumer group with broker-side assignment.

Every change (a member joins, leaves, changes its subscription, a topic grows) raises the group's
epoch and makes a new plan at once. Each member then reaches it step by step, one step per
heartbeat, by the rule of `assigned_group`. A change goes into the log before any member hears of it
("durable before visible"), so the next coordinator can continue in the middle of it.

Members that still speak the classic protocol may be among them: `classic_members` has their
requests. The first member of the new protocol turns a classic group into one of this kind, and when
only classic members are left it becomes a classic one again (`migration`).
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

import attrs

from coordinator.live.assigned_requests import (
    RefusedError,
    by_topic_id,
    check_heartbeat,
    merged,
    share_of,
)
from coordinator.live.group import LeaveWait, LiveGroup
from coordinator.live.live_assigned import LiveAssigned, Waiting
from coordinator.live.migration import downgraded, upgraded
from coordinator.live.planning import Planning
from coordinator.live.rebalance import ASSIGNED_KINDS, FAILURE_ERRORS, Rebalance
from coordinator.live.tenure import AssignedUnderWay, Tenure
from coordinator.model import (
    AssignedHeartbeat,
    AssignedHeartbeatResponse,
    ConsumerGroupId,
    DescribeAssigned,
    DescribeAssignedResponse,
    DescribedAssigned,
    ErrorCode,
    JoinGroup,
    ProposalFailure,
    Request,
    Response,
    SyncGroup,
    Token,
    refusal,
)
from coordinator.replicated.assigned_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AssignedMember,
    Subscription,
    held_by_others,
)
from coordinator.replicated.assignor import NOTHING, Share
from coordinator.replicated.commands import Result
from coordinator.replicated.stored import StoredGroup
from coordinator.replicated.waits import WaitFor
from coordinator.states import GroupState
from coordinator.subscription import CONSUMER_PROTOCOL, SubscriptionError
from coordinator.timers import NOTHING_LEFT, TimerKey, TimerKind, Wait

R = TypeVar("R")


class Assigning:
    def __init__(self, tenure: Tenure, planning: Planning, rebalance: Rebalance) -> None:
        self._tenure = tenure
        self.planning = planning
        self.topics = planning.topics
        self._rebalance = rebalance
        self.groups = tenure.assigned

    # --- requests

    def heartbeat(self, request: AssignedHeartbeat, token: Token) -> None:
        try:
            check_heartbeat(request, self._tenure.config)
            group = self._group_for(request)
            response = self.attempt(group, partial(self._carry_out, group, request))
        except RefusedError as refused:
            response = AssignedHeartbeatResponse(
                error=refused.error, message=str(refused), member_id=request.member_id
            )
            self._tenure.reply(token, response)
            return
        self.answer(group, request, token, response)

    def answer(
        self, group: LiveAssigned, request: Request, token: Token, response: Response
    ) -> None:
        """Answer as soon as the log has what the answer tells."""
        pending = self._tenure.defer(request, token)
        group.waiting.append(Waiting(group.version, pending, response))
        self._settle(group)

    def describe(self, request: DescribeAssigned, token: Token) -> None:
        group = self.look(request.group)
        if group is None:
            named = ErrorCode.GROUP_ID_NOT_FOUND if request.group else ErrorCode.INVALID_GROUP_ID
            self._tenure.reply(token, refusal(request, named))
            return
        members = tuple(
            DescribedAssigned(
                one.member_id,
                one.instance_id,
                one.subscription.rack_id,
                one.epoch,
                one.client_id,
                one.client_host,
                one.subscription.topics,
                one.subscription.pattern,
                by_topic_id(one.assigned),
                by_topic_id(one.target),
                one.classic is not None,
            )
            for one in group.members.values()
        )
        response = DescribeAssignedResponse(
            error=ErrorCode.NONE,
            group=group.name,
            state=group.state(),
            epoch=group.epoch,
            assignor=group.assignor,
            members=members,
        )
        self._tenure.reply(token, response)

    def view(self, name: ConsumerGroupId) -> LiveAssigned | None:
        """The live view of such a group; None if it has no members, here or in the log."""
        group = self.groups.get(name)
        if group is None and name not in self._tenure.groups:
            stored = self._tenure.store.get(name)
            if stored is not None and stored.assigned is not None and stored.assigned.members:
                group = self.adopt(stored)
        return group

    def look(self, name: ConsumerGroupId) -> LiveAssigned | None:
        """The live view, or else a temporary one of what the log has; None if it is no such
        group."""
        group = self.view(name)
        if group is None and name not in self._tenure.groups:
            stored = self._tenure.store.get(name)
            if stored is not None and stored.assigned is not None:
                return LiveAssigned.from_stored(stored)
        return group

    def has_members(self, name: ConsumerGroupId) -> bool:
        group = self.view(name)
        return group is not None and bool(group.members)

    def adopt(self, stored: StoredGroup) -> LiveAssigned:
        """Take over from the log: all waits continue, and each member is sent its whole
        assignment."""
        return self._take_over(stored, stored.waits)

    def _take_over(self, stored: StoredGroup, known: Mapping[WaitFor, Wait]) -> LiveAssigned:
        tenure = self._tenure
        group = self.groups[stored.name] = LiveAssigned.from_stored(stored)
        for member in group.members.values():
            key = _session_key(group, member)
            session_ms = self._session_ms(member)
            tenure.go_on_waiting(key, session_ms, known.get(WaitFor(key.kind, key.member)))
            if member.revoking:
                key = key._replace(kind=TimerKind.REVOCATION)
                wait_ms = member.subscription.rebalance_timeout_ms
                tenure.go_on_waiting(key, wait_ms, known.get(WaitFor(key.kind, key.member)))
        return group

    # --- one heartbeat

    def attempt(self, group: LiveAssigned, carry_out: Callable[[], R]) -> R:
        """Carry out the whole request or nothing of it.

        Raises:
            RefusedError: if it gets an error.
        """
        before = group.checkpoint()
        try:
            done = carry_out()
        except RefusedError:
            group.restore(before)
            self._forget_if_idle(group)
            raise
        if self.groups.get(group.name) is not group:
            self._replace_classic(group)
        return done

    def _group_for(self, request: AssignedHeartbeat) -> LiveAssigned:
        tenure = self._tenure
        group = self.view(request.group)
        if group is not None:
            return group
        classic = self._rebalance.view(request.group)
        if classic is not None and (classic.members or classic.pending):
            return self._upgrade(classic, request)
        if request.epoch != JOINING_EPOCH:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        if len(self.groups) >= tenure.config.groups_max or not tenure.room_in_log(request.group):
            raise RefusedError(ErrorCode.POLICY_VIOLATION, "too many groups")
        stored = tenure.store.get(request.group)
        group = LiveAssigned(request.group)
        if stored is not None:
            group = LiveAssigned.from_stored(stored)
        self.groups[request.group] = group
        return group

    def _carry_out(
        self, group: LiveAssigned, request: AssignedHeartbeat
    ) -> AssignedHeartbeatResponse:
        if request.epoch in (LEAVING_EPOCH, AWAY_EPOCH):
            return self._leave(group, request)
        member, former = self._member_for(group, request)
        member = attrs.evolve(
            member,
            subscription=merged(member.subscription, request),
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        )
        member = self.take_in(group, member, former, share_of(request.owned))
        return self._answer(group, member, request)

    def take_in(
        self,
        group: LiveAssigned,
        member: AssignedMember,
        former: AssignedMember | None,
        owned: Share | None,
    ) -> AssignedMember:
        """Put a member that is new, or said something new, in its place (that of its `former` self,
        if there is one), make a new plan if that needs one, and let it take its next step."""
        if former is not None:
            group.discard(former)
        known = group.members.get(member.member_id, former)
        just_converted = group.converts and group.version == 0
        changed = known is None or member.subscription != known.subscription or just_converted
        self._put(group, member)
        if (
            changed or member.classic is not None
        ) and group.text_bytes() > self._tenure.config.group_bytes_max // 2:
            raise RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, "the group's member data is too large"
            )
        if changed:
            self.planning.plan_again(group, changed=True)
        else:
            self.planning.plan_if_possible(group, changed=False)
        member = group.members[member.member_id]
        if not member.settled(group.epoch):
            others = held_by_others(group.members.values(), member.member_id)
            self._put(group, member.reconciled(group.epoch, others, owned))
            member = group.members[member.member_id]
        if former is not None:
            self._forget_timers(group, former)
        if member.classic is None:
            self._tenure.timers.cancel(_session_key(group, member)._replace(kind=TimerKind.REJOIN))
        self.refresh(group, member)
        self._watch_revocation(group, member)
        return member

    def _answer(
        self, group: LiveAssigned, member: AssignedMember, request: AssignedHeartbeat
    ) -> AssignedHeartbeatResponse:
        whole = request.owned is not None and request.rebalance_timeout_ms >= 0
        news = group.announced.get(member.member_id) != member.assigned
        group.announced[member.member_id] = member.assigned
        tell = request.epoch == JOINING_EPOCH or whole or news
        return AssignedHeartbeatResponse(
            error=ErrorCode.NONE,
            member_id=member.member_id,
            epoch=member.epoch,
            interval_ms=self._tenure.config.consumer_heartbeat_interval_ms,
            assignment=by_topic_id(member.assigned) if tell else None,
        )

    def _member_for(
        self, group: LiveAssigned, request: AssignedHeartbeat
    ) -> tuple[AssignedMember, AssignedMember | None]:
        """The member that sent the request, new or known, and its former self, if it replaces
        one."""
        if request.epoch == JOINING_EPOCH:
            return self._joining(group, request)
        member = self._named(group, request)
        if request.epoch == member.epoch:
            return member, None
        owned = share_of(request.owned)
        missed = request.epoch == member.previous_epoch  # our last answer was lost
        if not missed or owned is None or not owned <= member.assigned:
            raise RefusedError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                f"epoch {request.epoch}, the member is at {member.epoch}: join again",
            )
        return member, None

    def _named(self, group: LiveAssigned, request: AssignedHeartbeat) -> AssignedMember:
        """The member that continues or leaves: the one with its id, and the current one of its
        instance.

        A member that was replaced gets an error that says so, and not that it is unknown: it must
        not come back.
        """
        instance = request.instance_id
        if instance is not None and group.static.get(instance, request.member_id) != (
            request.member_id
        ):
            raise RefusedError(ErrorCode.FENCED_INSTANCE_ID, "another member has that instance id")
        member = group.members.get(request.member_id)
        if member is None or instance not in (None, member.instance_id):
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        return member

    def _joining(
        self, group: LiveAssigned, request: AssignedHeartbeat
    ) -> tuple[AssignedMember, AssignedMember | None]:
        known = group.members.get(request.member_id)
        if known is not None and request.instance_id not in (None, known.instance_id):
            # Else nobody would own its partitions, and two instances would share its place.
            raise RefusedError(ErrorCode.INVALID_REQUEST, "the member has no such instance id")
        former = group.static.get(request.instance_id) if request.instance_id is not None else None
        if former is not None and former != request.member_id:
            away = group.members[former]
            if away.epoch != AWAY_EPOCH and away.classic is None:
                raise RefusedError(ErrorCode.UNRELEASED_INSTANCE_ID, "the instance id is in use")
            member_id = request.member_id or self._tenure.new_member_id("consumer")
            return away.replaced_by(member_id), away
        if known is not None:
            since = {part: known.since.get(part, 0) for part in known.assigned}
            return attrs.evolve(known, epoch=JOINING_EPOCH, revoking=NOTHING, since=since), None
        self.check_room(group)
        member_id = request.member_id or self._tenure.new_member_id("consumer")
        newcomer = AssignedMember(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            subscription=Subscription(),
        )
        return newcomer, None

    def _leave(self, group: LiveAssigned, request: AssignedHeartbeat) -> AssignedHeartbeatResponse:
        member = self._named(group, request)
        if request.epoch == AWAY_EPOCH and member.instance_id is not None:
            away = member.left_statically()
            self._put(group, away)
            self.refresh(group, away)
        else:
            self.remove(group, [member], "left")
        return AssignedHeartbeatResponse(
            error=ErrorCode.NONE, member_id=request.member_id, epoch=request.epoch
        )

    # --- members and the plan

    def _put(self, group: LiveAssigned, member: AssignedMember) -> None:
        if group.members.get(member.member_id) != member:
            group.put(member)
            group.version += 1

    def remove(self, group: LiveAssigned, gone: Iterable[AssignedMember], reason: str) -> None:
        for member in gone:
            self._forget_timers(group, member)
            group.discard(member)
            group.version += 1
            self._tenure.notice(group.name, "member_gone", f"{member.member_id}: {reason}")
        if not group.only_classic():  # else they plan for themselves from now on
            self.planning.plan_if_possible(group, changed=True)

    def check_room(self, group: LiveAssigned) -> None:
        full = len(group.members) >= self._tenure.config.members_per_group_max
        if full or not self._tenure.room_for_member():
            raise RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")

    # --- from a classic group, and back

    def _upgrade(self, classic: LiveGroup, request: AssignedHeartbeat) -> LiveAssigned:
        """What becomes of a classic group if this member joins it; it takes its place when the
        member is let in (`attempt`)."""
        if classic.members and classic.protocol_type != CONSUMER_PROTOCOL:
            raise RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, "the group is not one of consumers")
        if request.epoch != JOINING_EPOCH:
            raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        if classic.state == GroupState.DEAD:
            raise RefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group is being deleted")
        if classic.snapshot_under_way or classic.durable < classic.version:
            raise RefusedError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group is being written: try again"
            )
        self.check_mixing()
        try:
            return upgraded(classic, self.topics())
        except SubscriptionError as error:
            raise RefusedError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"the group uses the classic protocol, and what a member subscribes to "
                f"cannot be read: {error}",
            ) from error

    def check_mixing(self) -> None:
        """Refuse to make a group one with members of both protocols while not every node could read
        that; clients try again."""
        why = self._tenure.no_mixing()
        if why:
            raise RefusedError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the group cannot have members of both protocols yet: {why}",
            )

    def _replace_classic(self, group: LiveAssigned) -> None:
        assert group.converts
        self._rebalance.end(self._tenure.groups[group.name])
        self.groups[group.name] = group
        for member in group.members.values():
            if member.classic is not None:
                self.refresh(group, member)
        self._tenure.notice(group.name, "upgraded", f"{len(group.members)} members")

    def _downgrade(self, group: LiveAssigned) -> None:
        """Only classic members are left: they share the partitions out themselves again."""
        classic = self._as_classic(group)
        self._rebalance.prepare(classic, "only classic members are left")
        self._rebalance.settle(classic)

    def hand_over_to(self, group: LiveAssigned, heir: AssignedMember) -> None:
        """The last member of the new protocol returns as a classic one, under its instance id: a
        classic group again, stable if it was, in which that member is about to be replaced."""
        if group.snapshot_under_way or group.durable < group.version:
            raise RefusedError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group is being written: try again"
            )
        group.put(heir)
        settled = all(one.settled(group.epoch) for one in group.members.values())
        classic = self._as_classic(group)
        if not settled:
            self._rebalance.prepare(classic, "only classic members are left")

    def _as_classic(self, group: LiveAssigned) -> LiveGroup:
        tenure = self._tenure
        for member in group.members.values():
            self._forget_timers(group, member)
        del self.groups[group.name]
        stored = tenure.store.get(group.name)
        generation_min = stored.generation if stored is not None else 0
        classic = downgraded(group, generation_min, self.topics())
        for version, pending, response in group.waiting:
            assert version > group.durable, "else it was answered"
            if isinstance(pending.request, JoinGroup | SyncGroup):
                tenure.refuse(pending, ErrorCode.REBALANCE_IN_PROGRESS)
            else:
                classic.leaving.append(LeaveWait(classic.version, pending, response))
        self._rebalance.begin(classic)
        tenure.notice(group.name, "downgraded", f"{len(group.members)} members")
        return classic

    # --- deadlines

    def on_timer(self, key: TimerKey) -> None:
        group = self.groups.get(key.group)
        assert group is not None, f"{key} outlived its group"
        member = group.members[key.member]
        if key.kind is TimerKind.CONSUMER:
            self._tenure.counters.sessions_expired += 1
            self.remove(group, [member], "session timed out")
        elif key.kind is TimerKind.REVOCATION:
            self.remove(group, [member], "did not give up its partitions in time")
        else:
            self.remove(group, [member], "did not join again, or sync, in time")
        self._settle(group)

    def refresh(self, group: LiveAssigned, member: AssignedMember) -> None:
        """Restart the session: the member was heard of."""
        self._tenure.wait(_session_key(group, member), self._session_ms(member))

    def _session_ms(self, member: AssignedMember) -> int:
        if member.classic is not None:
            return member.classic.session_timeout_ms
        return self._tenure.config.consumer_session_timeout_ms

    def _watch_revocation(self, group: LiveAssigned, member: AssignedMember) -> None:
        key = TimerKey(TimerKind.REVOCATION, group.name, member.member_id)
        if not member.revoking:
            self._tenure.timers.cancel(key)
        elif not self._tenure.timers.has(key):
            self._tenure.wait(key, member.subscription.rebalance_timeout_ms)

    def _forget_timers(self, group: LiveAssigned, member: AssignedMember) -> None:
        for kind in ASSIGNED_KINDS:
            self._tenure.timers.cancel(TimerKey(kind, group.name, member.member_id))

    # --- the log

    def _settle(self, group: LiveAssigned) -> None:
        """Send what has changed to the log, unless a snapshot is under way; answer what it now
        has."""
        while group.waiting and group.waiting[0].version <= group.durable:
            waiting = group.waiting.pop(0)
            self._tenure.answer(waiting.pending, waiting.response)
        if group.only_classic() and not group.snapshot_under_way:
            self._downgrade(group)
            return
        if not group.snapshot_under_way and group.durable < group.version:
            group.snapshot_under_way = True
            under_way = AssignedUnderWay(group, group.version)
            self._tenure.propose(group.name, group.snapshot(), under_way)
        self._forget_if_idle(group)

    def _forget_if_idle(self, group: LiveAssigned) -> None:
        """A group without members needs no live view: the log has all of it."""
        if group.members or group.waiting or group.snapshot_under_way:
            return
        if group.durable >= group.version and self.groups.get(group.name) is group:
            del self.groups[group.name]

    def on_snapshot(self, under_way: AssignedUnderWay, outcome: Result | ProposalFailure) -> None:
        group = under_way.group
        if self.groups.get(group.name) is not group:
            return
        group.snapshot_under_way = False
        if isinstance(outcome, ProposalFailure):
            self._reload(group, outcome.value, FAILURE_ERRORS[outcome])
        elif outcome.error != ErrorCode.NONE:
            self._reload(group, f"the log: {outcome.error.name}", ErrorCode.NOT_COORDINATOR)
        else:
            group.durable = under_way.version
            group.revision = outcome.value
            group.converts = False
            self._settle(group)

    def _reload(self, group: LiveAssigned, why: str, error: ErrorCode) -> None:
        """Our view did not get into the log: forget it, and take over again from the log."""
        tenure = self._tenure
        tenure.notice(group.name, "snapshot_lost", why)
        tenure.counters.snapshots_lost += 1
        for waiting in group.waiting:
            tenure.refuse(waiting.pending, error)
        left = {}
        for member in group.members.values():
            key = _session_key(group, member)
            for kind in (TimerKind.CONSUMER, TimerKind.REVOCATION):
                wait = tenure.timers.take(key._replace(kind=kind), tenure.now_ms)
                if wait is not None:
                    left[WaitFor(kind, member.member_id)] = wait
            tenure.timers.cancel(key._replace(kind=TimerKind.REJOIN))
        del self.groups[group.name]
        stored = tenure.store.get(group.name)
        if stored is not None and stored.assigned is not None and stored.assigned.members:
            for member in stored.assigned.members:  # had left or was late: is about to again
                left.setdefault(WaitFor(TimerKind.CONSUMER, member.member_id), NOTHING_LEFT)
            self._take_over(stored, left)


def _session_key(group: LiveAssigned, member: AssignedMember) -> TimerKey:
    return TimerKey(TimerKind.CONSUMER, group.name, member.member_id)
