"""ConsumerGroupHeartbeat (KIP-848): the whole life of a consumer group with broker-side assignment.

Every change (a member joins, leaves, changes its subscription, a topic grows) raises the group's
epoch and makes a new plan at once. Each member then reaches it step by step, one step per
heartbeat, by the rule of `assigned_group`. A change goes into the log before any member hears of it
("durable before visible"), so the next coordinator can continue in the middle of it.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, TypeAlias

import attrs

from coordinator.limits import CoordinatorConfig, text_fits
from coordinator.live.live_assigned import LiveAssigned, Waiting
from coordinator.live.rebalance import FAILURE_ERRORS
from coordinator.live.tenure import AssignedUnderWay, Tenure
from coordinator.model import (
    AssignedHeartbeat,
    AssignedHeartbeatResponse,
    ConsumerGroupId,
    DescribeAssigned,
    DescribeAssignedResponse,
    DescribedAssigned,
    ErrorCode,
    MemberId,
    ProposalFailure,
    Token,
    TopicIdPartitions,
    refusal,
)
from coordinator.replicated.assigned_group import (
    AWAY_EPOCH,
    JOINING_EPOCH,
    LEAVING_EPOCH,
    AssignedMember,
    Subscription,
    by_topic,
    held_by_others,
)
from coordinator.replicated.assignor import ASSIGNORS, NOTHING, MemberSubscription, Share, share_out
from coordinator.replicated.commands import Result
from coordinator.replicated.stored import StoredGroup
from coordinator.replicated.waits import WaitFor
from coordinator.timers import NOTHING_LEFT, TimerKey, TimerKind, Wait
from coordinator.topics import Topics

EPOCH_MAX: Final = 2**31 - 1


Match: TypeAlias = Callable[[str, Iterable[str]], frozenset[str]]
"""The names that a pattern matches as a whole.

Raises:
    ValueError: if it is not a valid pattern.
"""


class _RefusedError(Exception):
    """A heartbeat that gets an error; nothing has changed."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class Assigning:
    """`topics` and `match` are the broker's; they are called whenever their answer may matter."""

    def __init__(
        self,
        tenure: Tenure,
        topics: Callable[[], Topics],
        match: Match,
        classic_has_members: Callable[[ConsumerGroupId], bool],
    ) -> None:
        self._tenure = tenure
        self._topics = topics
        self._match = match
        self._classic_has_members = classic_has_members
        self.groups: dict[ConsumerGroupId, LiveAssigned] = {}

    # --- requests

    def heartbeat(self, request: AssignedHeartbeat, token: Token) -> None:
        try:
            _check(request, self._tenure.config)
            group = self._group_for(request)
            response = self._try(group, request)
        except _RefusedError as refused:
            response = AssignedHeartbeatResponse(
                error=refused.error, message=str(refused), member_id=request.member_id
            )
            self._tenure.reply(token, response)
            return
        self._settle(group)
        if group.durable >= group.version:
            self._tenure.reply(token, response)
        else:
            pending = self._tenure.defer(request, token)
            group.waiting.append(Waiting(group.version, pending, response))

    def describe(self, request: DescribeAssigned, token: Token) -> None:
        group = self.look(request.group)
        if group is None:
            self._tenure.reply(token, refusal(request, ErrorCode.GROUP_ID_NOT_FOUND))
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
                _by_topic_id(one.assigned),
                _by_topic_id(one.target),
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
        if group is None:
            stored = self._tenure.store.get(name)
            if stored is not None and stored.assigned is not None and stored.assigned.members:
                group = self.adopt(stored)
        return group

    def look(self, name: ConsumerGroupId) -> LiveAssigned | None:
        """The live view, or else a temporary one of what the log has; None if it is no such
        group."""
        group = self.view(name)
        if group is None:
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
        session_ms = tenure.config.consumer_session_timeout_ms
        for member in group.members.values():
            key = _session_key(group, member)
            tenure.go_on_waiting(key, session_ms, known.get(WaitFor(key.kind, key.member)))
            if member.revoking:
                key = key._replace(kind=TimerKind.REVOCATION)
                wait_ms = member.subscription.rebalance_timeout_ms
                tenure.go_on_waiting(key, wait_ms, known.get(WaitFor(key.kind, key.member)))
        return group

    def topics_in_use(self, group: LiveAssigned) -> frozenset[str] | None:
        """The topics that members subscribe to; None if their patterns cannot be matched, as after
        a limit was lowered."""
        ids = self._topics().ids
        names = {topic_id: name for name, (topic_id, _) in ids.items()}
        try:
            wanted = self._wanted(group, ids).values()
        except _RefusedError:
            return None
        return frozenset(names[topic_id] for topics in wanted for topic_id in topics)

    # --- one heartbeat

    def _try(self, group: LiveAssigned, request: AssignedHeartbeat) -> AssignedHeartbeatResponse:
        """Carry out the whole request or nothing of it."""
        before = group.checkpoint()
        try:
            return self._carry_out(group, request)
        except _RefusedError:
            group.restore(before)
            self._forget_if_idle(group)
            raise

    def _group_for(self, request: AssignedHeartbeat) -> LiveAssigned:
        tenure = self._tenure
        if self._classic_has_members(request.group):
            raise _RefusedError(ErrorCode.GROUP_ID_NOT_FOUND, "the group uses the classic protocol")
        group = self.view(request.group)
        if group is not None:
            return group
        if request.epoch != JOINING_EPOCH:
            raise _RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        if len(self.groups) >= tenure.config.groups_max or not tenure.room_in_log(request.group):
            raise _RefusedError(ErrorCode.POLICY_VIOLATION, "too many groups")
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
        owned = _share_of(request.owned)
        subscription = _merged(member.subscription, request)
        known = group.members.get(member.member_id)
        changed = known is None or subscription != member.subscription
        self._put(
            group,
            attrs.evolve(
                member,
                subscription=subscription,
                client_id=request.client_id,
                client_host=request.client_host,
            ),
        )
        if changed and group.text_bytes() > self._tenure.config.group_bytes_max // 2:
            raise _RefusedError(
                ErrorCode.GROUP_MAX_SIZE_REACHED, "the group's member data is too large"
            )
        if changed:
            self._plan_again(group, changed=True)
        else:
            self._plan_if_possible(group, changed=False)
        member = group.members[member.member_id]
        if not member.settled(group.epoch):
            others = held_by_others(group.members.values(), member.member_id)
            self._put(group, member.reconciled(group.epoch, others, owned))
            member = group.members[member.member_id]
        if former is not None:
            self._forget_timers(group, former)
        self._refresh(group, member)
        self._watch_revocation(group, member)
        return self._answer(group, member, request)

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
            assignment=_by_topic_id(member.assigned) if tell else None,
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
        owned = _share_of(request.owned)
        missed = request.epoch == member.previous_epoch  # our last answer was lost
        if not missed or owned is None or not owned <= member.assigned:
            raise _RefusedError(
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
            raise _RefusedError(ErrorCode.FENCED_INSTANCE_ID, "another member has that instance id")
        member = group.members.get(request.member_id)
        if member is None or instance not in (None, member.instance_id):
            raise _RefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no such member")
        return member

    def _joining(
        self, group: LiveAssigned, request: AssignedHeartbeat
    ) -> tuple[AssignedMember, AssignedMember | None]:
        known = group.members.get(request.member_id)
        if known is not None and request.instance_id not in (None, known.instance_id):
            # Else nobody would own its partitions, and two instances would share its place.
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "the member has no such instance id")
        former = group.static.get(request.instance_id) if request.instance_id is not None else None
        if former is not None and former != request.member_id:
            away = group.members[former]
            if away.epoch != AWAY_EPOCH:
                raise _RefusedError(ErrorCode.UNRELEASED_INSTANCE_ID, "the instance id is in use")
            group.discard(away)
            member_id = request.member_id or self._tenure.new_member_id("consumer")
            return attrs.evolve(away, member_id=member_id, epoch=JOINING_EPOCH), away
        if known is not None:
            since = {part: known.since.get(part, 0) for part in known.assigned}
            return attrs.evolve(known, epoch=JOINING_EPOCH, revoking=NOTHING, since=since), None
        full = len(group.members) >= self._tenure.config.members_per_group_max
        if full or not self._tenure.room_for_member():
            raise _RefusedError(ErrorCode.GROUP_MAX_SIZE_REACHED, "the group is full")
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
            self._refresh(group, away)
        else:
            self._remove(group, member, "left")
        return AssignedHeartbeatResponse(
            error=ErrorCode.NONE, member_id=request.member_id, epoch=request.epoch
        )

    # --- members and the plan

    def _put(self, group: LiveAssigned, member: AssignedMember) -> None:
        if group.members.get(member.member_id) != member:
            group.put(member)
            group.version += 1

    def _remove(self, group: LiveAssigned, member: AssignedMember, reason: str) -> None:
        self._forget_timers(group, member)
        group.discard(member)
        group.version += 1
        self._tenure.notice(group.name, "member_gone", f"{member.member_id}: {reason}")
        self._plan_if_possible(group, changed=True)

    def _plan_if_possible(self, group: LiveAssigned, *, changed: bool) -> None:
        """Plan after an event that no request caused (time is up, topics have grown): there is no
        request to refuse.

        If no plan can be made, members keep their present shares.
        """
        try:
            self._plan_again(group, changed=changed)
        except _RefusedError as refused:
            self._tenure.notice(group.name, "plan_refused", str(refused))

    def _plan_again(self, group: LiveAssigned, *, changed: bool) -> None:
        """Make a new epoch and a new plan, if the input of the last plan has changed."""
        topics = self._topics()
        if not changed and group.topics_version == topics.version:
            return
        group.topics_version = topics.version
        subscriptions = {
            name: MemberSubscription(wanted, group.members[name].target)
            for name, wanted in self._wanted(group, topics.ids).items()
        }
        wanted = frozenset(topic for one in subscriptions.values() for topic in one.topics)
        partitions = {
            topic_id: count for topic_id, count in topics.ids.values() if topic_id in wanted
        }
        if not changed and partitions == group.topics:
            return
        if sum(partitions.values()) > self._tenure.config.assigned_partitions_max:
            raise _RefusedError(ErrorCode.POLICY_VIOLATION, "too many partitions for one group")
        assignor = _chosen(group.members.values())
        shares = share_out(assignor, subscriptions, partitions)
        group.epoch += 1
        group.assignor = assignor
        group.topics = partitions
        group.version += 1
        self._tenure.counters.rebalances += 1
        for name, share in shares.items():
            group.put(attrs.evolve(group.members[name], target=share))
        detail = f"epoch {group.epoch}: {len(group.members)} members"
        self._tenure.notice(group.name, "rebalance", detail)

    def _wanted(
        self, group: LiveAssigned, ids: Mapping[str, tuple[bytes, int]]
    ) -> dict[MemberId, frozenset[bytes]]:
        """The ids of the existing topics that each member subscribes to.

        Most members subscribe alike: a pattern is matched against all topics once for all of them.
        """
        members = group.members.values()
        patterns = {member.subscription.pattern for member in members} - {None}
        if len(patterns) > self._tenure.config.patterns_per_group_max:
            raise _RefusedError(ErrorCode.POLICY_VIOLATION, "too many patterns in one group")
        meant: dict[tuple[tuple[str, ...], str | None], frozenset[bytes]] = {}
        wanted = {}
        for member in members:
            topics, pattern = said = (member.subscription.topics, member.subscription.pattern)
            if said not in meant:
                names = {*topics, *(self._matched(pattern, ids) if pattern else ())}
                meant[said] = frozenset(ids[name][0] for name in names if name in ids)
            wanted[member.member_id] = meant[said]
        return wanted

    def _matched(self, pattern: str, names: Iterable[str]) -> frozenset[str]:
        try:
            return self._match(pattern, names)
        except ValueError as error:
            raise _RefusedError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from error

    # --- deadlines

    def on_timer(self, key: TimerKey) -> None:
        group = self.groups.get(key.group)
        assert group is not None, f"{key} outlived its group"
        member = group.members[key.member]
        if key.kind is TimerKind.CONSUMER:
            self._tenure.counters.sessions_expired += 1
            self._remove(group, member, "session timed out")
        else:
            self._remove(group, member, "did not give up its partitions in time")
        self._settle(group)

    def _refresh(self, group: LiveAssigned, member: AssignedMember) -> None:
        tenure = self._tenure
        tenure.wait(_session_key(group, member), tenure.config.consumer_session_timeout_ms)

    def _watch_revocation(self, group: LiveAssigned, member: AssignedMember) -> None:
        key = TimerKey(TimerKind.REVOCATION, group.name, member.member_id)
        if not member.revoking:
            self._tenure.timers.cancel(key)
        elif not self._tenure.timers.has(key):
            self._tenure.wait(key, member.subscription.rebalance_timeout_ms)

    def _forget_timers(self, group: LiveAssigned, member: AssignedMember) -> None:
        for kind in (TimerKind.CONSUMER, TimerKind.REVOCATION):
            self._tenure.timers.cancel(TimerKey(kind, group.name, member.member_id))

    # --- the log

    def _settle(self, group: LiveAssigned) -> None:
        """Send what has changed to the log, unless a snapshot is under way; answer what it now
        has."""
        while group.waiting and group.waiting[0].version <= group.durable:
            waiting = group.waiting.pop(0)
            self._tenure.answer(waiting.pending, waiting.response)
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
        del self.groups[group.name]
        stored = tenure.store.get(group.name)
        if stored is not None and stored.assigned is not None and stored.assigned.members:
            for member in stored.assigned.members:  # had left or was late: is about to again
                left.setdefault(WaitFor(TimerKind.CONSUMER, member.member_id), NOTHING_LEFT)
            self._take_over(stored, left)


def _session_key(group: LiveAssigned, member: AssignedMember) -> TimerKey:
    return TimerKey(TimerKind.CONSUMER, group.name, member.member_id)


# --- reading requests -----------------------------------------------------------------------------


def _check(request: AssignedHeartbeat, config: CoordinatorConfig) -> None:
    """Refuse what is wrong with a heartbeat whatever the state of the group."""
    if not request.group or not text_fits(request.group, config.group_id_bytes_max):
        raise _RefusedError(ErrorCode.INVALID_GROUP_ID, "the group id is empty or too long")
    texts = (request.member_id, request.instance_id, request.rack_id, request.pattern)
    for text in (*texts, request.client_id, request.client_host):
        if not text_fits(text or "", config.text_bytes_max):
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "a text is too long")
    if request.epoch < AWAY_EPOCH or request.epoch > EPOCH_MAX:
        raise _RefusedError(ErrorCode.INVALID_REQUEST, f"epoch {request.epoch} is out of range")
    if (request.names_itself or request.epoch != JOINING_EPOCH) and not request.member_id:
        raise _RefusedError(ErrorCode.INVALID_REQUEST, "no member id")
    if request.epoch == AWAY_EPOCH and request.instance_id is None:
        raise _RefusedError(ErrorCode.INVALID_REQUEST, "only a static member may leave temporarily")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        raise _RefusedError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"{request.assignor[:40]!r}: there are {' and '.join(ASSIGNORS)}",
        )
    _check_lists(request, config)
    if request.epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms <= 0:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "no rebalance timeout")
        if request.topics is None and not request.pattern:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "no subscription")
        if request.owned:
            raise _RefusedError(
                ErrorCode.INVALID_REQUEST, "a joining member must not own partitions"
            )


def _check_lists(request: AssignedHeartbeat, config: CoordinatorConfig) -> None:
    topics, owned = request.topics or (), request.owned or ()
    if (
        len(topics) > config.subscriptions_per_member_max
        or sum(len(one.partitions) for one in owned) > config.assigned_partitions_max
    ):
        raise _RefusedError(ErrorCode.INVALID_REQUEST, "too many topics or partitions")
    if any(not text_fits(topic, config.topic_bytes_max) for topic in topics):
        raise _RefusedError(ErrorCode.INVALID_REQUEST, "the name of a topic is too long")


def _merged(known: Subscription, request: AssignedHeartbeat) -> Subscription:
    """A field that is None in a heartbeat keeps its value."""
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        known.topics if request.topics is None else tuple(sorted(set(request.topics))),
        known.pattern if request.pattern is None else request.pattern or None,
        known.assignor if request.assignor is None else request.assignor,
        known.rack_id if request.rack_id is None else request.rack_id,
        known.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
    )


def _share_of(owned: tuple[TopicIdPartitions, ...] | None) -> Share | None:
    if owned is None:
        return None
    return frozenset((topic_id, one) for topic_id, partitions in owned for one in partitions)


def _by_topic_id(share: Share) -> tuple[TopicIdPartitions, ...]:
    return tuple(TopicIdPartitions(topic, tuple(ones)) for topic, ones in by_topic(share).items())


def _chosen(members: Iterable[AssignedMember]) -> str:
    """The assignor that most members ask for; the default if none does."""
    votes = [one.subscription.assignor for one in members if one.subscription.assignor]
    if not votes:
        return ASSIGNORS[0]
    return max(ASSIGNORS, key=votes.count)
