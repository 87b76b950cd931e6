"""The phases of a rebalance, its deadlines, and what happens when the log has answered.

PREPARING: the coordinator waits for members to join. When all have joined, or time is up, it raises
the generation by one (A9) and writes it to the log. COMPLETING: the leader assigns the partitions;
when the log has the assignments, each member gets its own (D2, D8). Both times the log comes before
the answer, which costs one proposal more than Kafka spends. In return the next coordinator
continues in the same phase of the same generation, and no generation number ever stands for two
different sets of members.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from coordinator.live.group import LiveGroup, LiveMember, choose_protocol
from coordinator.live.tenure import SnapshotUnderWay, Tenure
from coordinator.model import (
    NO_MEMBER,
    ConsumerGroupId,
    ErrorCode,
    ProposalFailure,
    SyncGroupResponse,
)
from coordinator.replicated.commands import Result
from coordinator.replicated.stored import StoredGroup
from coordinator.replicated.waits import WaitFor
from coordinator.states import GroupEvent, GroupState
from coordinator.timers import NOTHING_LEFT, TimerKey, TimerKind, Wait

FAILURE_ERRORS: Final[Mapping[ProposalFailure, ErrorCode]] = {
    ProposalFailure.NOT_MASTER: ErrorCode.NOT_COORDINATOR,
    ProposalFailure.UNKNOWN: ErrorCode.NOT_COORDINATOR,
    ProposalFailure.OVERLOADED: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}
"""The answer to members whose snapshot did not get into the log. All of these errors are retriable,
and asking again is safe, because a snapshot is compare-and-set."""
CHANGE_ERRORS: Final[Mapping[ProposalFailure, ErrorCode]] = {
    **FAILURE_ERRORS,
    ProposalFailure.UNKNOWN: ErrorCode.REQUEST_TIMED_OUT,
}
"""The answer about a committed or deleted offset, or a deleted group (`model.CHANGES`)."""

ASSIGNED_KINDS: Final = frozenset((TimerKind.CONSUMER, TimerKind.REVOCATION, TimerKind.REJOIN))


class Rebalance:
    def __init__(self, tenure: Tenure) -> None:
        self._tenure = tenure

    # --- phases

    def prepare(self, group: LiveGroup, reason: str) -> None:
        """Ask all members to join again; their heartbeats tell them."""
        tenure = self._tenure
        group.initial = group.state == GroupState.EMPTY
        group.advance(GroupEvent.REBALANCE)
        group.newcomer = False
        for member in group.members.values():
            if member.sync is not None:
                pending, member.sync = member.sync, None
                tenure.refuse(pending, ErrorCode.REBALANCE_IN_PROGRESS)
        group.unsynced.clear()
        tenure.timers.cancel(TimerKey(TimerKind.SYNC, group.name))
        wait_ms = group.rebalance_timeout_ms()
        if group.initial:
            delay_ms = min(tenure.config.initial_rebalance_delay_ms, wait_ms)
            group.initial_left_ms = wait_ms - delay_ms
            group.initial = delay_ms > 0
            wait_ms = delay_ms if group.initial else wait_ms
        self._wait(group, TimerKind.REBALANCE, wait_ms)
        tenure.counters.rebalances += 1
        tenure.notice(group.name, "rebalance", f"after generation {group.generation}: {reason}")

    def maybe_complete(self, group: LiveGroup) -> None:
        if (
            group.state == GroupState.PREPARING_REBALANCE
            and not group.initial
            and group.all_joined()
        ):
            self._complete(group)

    def _complete(self, group: LiveGroup) -> None:
        """End the wait: the members that have joined form the next generation.

        Static members that have not joined stay until their session ends (KIP-345). If there are
        only such members, there is none to lead, and the wait continues.
        """
        tenure = self._tenure
        group.initial = False
        tenure.timers.cancel(TimerKey(TimerKind.REBALANCE, group.name))
        late = [m for m in group.members.values() if m.join is None and m.instance_id is None]
        self._expel(group, late, ErrorCode.UNKNOWN_MEMBER_ID, "did not join the rebalance in time")
        joined = [m for m in group.members.values() if m.join is not None]
        if group.members and not joined:
            self._wait(group, TimerKind.REBALANCE, group.rebalance_timeout_ms())
            return
        group.generation += 1
        group.join_version = group.touch()
        if not joined:
            group.protocol_name = None
            group.advance(GroupEvent.EMPTIED)
            return
        leader = group.members.get(group.leader) if group.leader is not None else None
        if leader is None or leader.join is None:
            leader = joined[0]
        group.leader = leader.member_id
        group.protocol_name = choose_protocol(
            {m.member_id: m.protocols for m in group.members.values()}, leader.member_id
        )
        for member in group.members.values():
            member.assignment = b""
            member.established = True
            member.restarted_from = None
        group.unsynced = set(group.members)
        self._wait(group, TimerKind.SYNC, group.rebalance_timeout_ms())
        group.advance(GroupEvent.JOINED)

    def remove(
        self, group: LiveGroup, gone: Iterable[LiveMember], error: ErrorCode, reason: str
    ) -> None:
        """Members leave, voluntarily or expelled; the others get their partitions."""
        self._expel(group, gone, error, reason)
        if group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            self.prepare(group, reason)
        self.maybe_complete(group)

    def _expel(
        self, group: LiveGroup, gone: Iterable[LiveMember], error: ErrorCode, reason: str
    ) -> None:
        for member in gone:
            group.discard(member)
            self._tenure.timers.cancel(session_key(group, member))
            self.drop_pending(member, error)
            if member.established:
                group.touch()
            self._tenure.notice(group.name, "member_gone", f"{member.member_id}: {reason}")

    def drop_pending(self, member: LiveMember, error: ErrorCode) -> None:
        join, member.join = member.join, None
        sync, member.sync = member.sync, None
        if join is not None:
            self._tenure.refuse(join, error)
        if sync is not None:
            self._tenure.refuse(sync, error)

    # --- deadlines

    def refresh(self, group: LiveGroup, member: LiveMember) -> None:
        """Restart the session: the member was heard of, or has just been answered."""
        self._tenure.wait(session_key(group, member), member.session_timeout_ms)

    def on_timer(self, key: TimerKey) -> None:
        group = self._tenure.groups.get(key.group)
        assert group is not None, f"{key} outlived its group"
        match key.kind:
            case TimerKind.SESSION:
                self._session_over(group, group.members[key.member])
            case TimerKind.PENDING:
                self._tenure.take_back(group, key.member)
                self.maybe_complete(group)
            case TimerKind.REBALANCE:
                if group.initial and group.newcomer and group.initial_left_ms > 0:
                    self._wait_for_more(group)
                else:
                    self._complete(group)
            case TimerKind.SYNC:
                gone = [m for m in group.members.values() if m.member_id in group.unsynced]
                if gone:
                    self.remove(group, gone, ErrorCode.UNKNOWN_MEMBER_ID, "did not sync in time")
            case TimerKind.CONSUMER | TimerKind.REVOCATION | TimerKind.REJOIN:
                raise AssertionError(f"{key} is for groups with broker-side assignment")
        self.settle(group)

    def _session_over(self, group: LiveGroup, member: LiveMember) -> None:
        if member.join is not None or member.sync is not None:
            self.refresh(group, member)  # it waits for our answer, so it is alive
            return
        self._tenure.counters.sessions_expired += 1
        self.remove(group, [member], ErrorCode.UNKNOWN_MEMBER_ID, "session timed out")

    def _wait_for_more(self, group: LiveGroup) -> None:
        """Members are still coming to a group that was empty: one more delay, within bounds."""
        delay_ms = min(self._tenure.config.initial_rebalance_delay_ms, group.initial_left_ms)
        group.initial_left_ms -= delay_ms
        group.newcomer = False
        self._wait(group, TimerKind.REBALANCE, delay_ms)

    def _wait(self, group: LiveGroup, kind: TimerKind, wait_ms: int) -> None:
        self._tenure.wait(TimerKey(kind, group.name), wait_ms)

    # --- the log

    def settle(self, group: LiveGroup) -> None:
        """Answer what the log allows, and send what has changed to the log."""
        tenure = self._tenure
        if (
            group.state in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE)
            and group.durable >= group.join_version
        ):
            for member in group.members.values():
                if member.join is not None:
                    self._answer_join(group, member)
        if group.state == GroupState.STABLE and group.durable >= group.sync_version:
            for member in group.members.values():
                if member.sync is not None:
                    pending, member.sync = member.sync, None
                    tenure.answer(pending, self.sync_response(group, member))
                    self.refresh(group, member)
        while group.leaving and group.leaving[0].version <= group.durable:
            wait = group.leaving.pop(0)
            tenure.answer(wait.pending, wait.response)
        tenure.flush(group)
        tenure.forget_if_idle(group)

    def _answer_join(self, group: LiveGroup, member: LiveMember) -> None:
        pending, member.join = member.join, None
        assert pending is not None
        self._tenure.answer(pending, group.join_response(member, pending.request))
        member.restarted_from = None
        self.refresh(group, member)

    def sync_response(self, group: LiveGroup, member: LiveMember) -> SyncGroupResponse:
        assert group.durable >= group.sync_version
        return SyncGroupResponse(
            error=ErrorCode.NONE,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            assignment=member.assignment,
        )

    def on_snapshot(self, under_way: SnapshotUnderWay, outcome: Result | ProposalFailure) -> None:
        group = under_way.group
        if self._tenure.groups.get(group.name) is not group:
            return
        group.snapshot_under_way = False
        if isinstance(outcome, ProposalFailure):
            self._tenure.notice(group.name, "snapshot_lost", outcome.value)
            self._tenure.counters.snapshots_lost += 1
            self.reload(group, FAILURE_ERRORS[outcome])
        elif outcome.error != ErrorCode.NONE:
            self._tenure.notice(group.name, "snapshot_lost", f"the log: {outcome.error.name}")
            self._tenure.counters.snapshots_lost += 1
            self.reload(group, ErrorCode.NOT_COORDINATOR)
        else:
            group.durable = under_way.version
            group.revision = outcome.value
            group.converts = False
            self.settle(group)

    def reload(self, group: LiveGroup, error: ErrorCode) -> None:
        """Our view did not get into the log: forget it, and take over again from the log.

        To the members this looks like a coordinator that has moved, onto the same node.
        """
        tenure = self._tenure
        left = {}
        for key in self._keys(group):
            wait = tenure.timers.take(key, tenure.now_ms)
            if wait is not None:
                left[WaitFor(key.kind, key.member)] = wait
        for member in group.members.values():
            self.drop_pending(member, error)
        for parting in group.leaving:
            tenure.refuse(parting.pending, error)
        for member_id in list(group.pending):
            tenure.take_back(group, member_id)
        del tenure.groups[group.name]
        stored = tenure.store.get(group.name)
        if stored is not None and stored.members:
            for member_id in stored.members:  # had left or was late: is about to again
                left.setdefault(WaitFor(TimerKind.SESSION, member_id), NOTHING_LEFT)
            self._take_over(stored, left)

    def begin(self, group: LiveGroup) -> None:
        """Go on with a group whose last member with broker-side assignment has left: its classic
        members keep their generation and their partitions for the moment."""
        assert group.name not in self._tenure.groups
        self._tenure.groups[group.name] = group
        for member in group.members.values():
            self.refresh(group, member)

    def end(self, group: LiveGroup) -> None:
        """Members with broker-side assignment are joining: the classic ones go on among them, and
        whoever waits here joins again."""
        for member_id in list(group.pending):
            self._tenure.take_back(group, member_id)
        for key in self._keys(group):
            self._tenure.timers.cancel(key)
        for member in group.members.values():
            self.drop_pending(member, ErrorCode.REBALANCE_IN_PROGRESS)
        assert not group.leaving, "the log has all of the group"
        del self._tenure.groups[group.name]

    def _keys(self, group: LiveGroup) -> list[TimerKey]:
        whole = [TimerKey(kind, group.name) for kind in (TimerKind.REBALANCE, TimerKind.SYNC)]
        return [*(session_key(group, member) for member in group.members.values()), *whole]

    def view(self, name: ConsumerGroupId) -> LiveGroup | None:
        """The live view of a group; None if it has no members, here or in the log."""
        group = self._tenure.groups.get(name)
        if group is None and name not in self._tenure.assigned:
            stored = self._tenure.store.get(name)
            if stored is not None and stored.members:
                group = self.adopt(stored)
        return group

    def adopt(self, stored: StoredGroup) -> LiveGroup:
        """Take over a group with members from the log: all waits continue.

        Generation and assignments stand, so members notice nothing but a new address.
        """
        return self._take_over(stored, stored.waits)

    def _take_over(self, stored: StoredGroup, known: Mapping[WaitFor, Wait]) -> LiveGroup:
        """The log has a rebalance in progress only as the wait for it; it continues, too."""
        group = self._tenure.groups[stored.name] = LiveGroup.from_stored(stored)
        for member in group.members.values():
            wait = known.get(WaitFor(TimerKind.SESSION, member.member_id))
            key = session_key(group, member)
            self._tenure.go_on_waiting(key, member.session_timeout_ms, wait)
        rebalance = known.get(WaitFor(TimerKind.REBALANCE, NO_MEMBER))
        if rebalance is not None and group.state != GroupState.PREPARING_REBALANCE:
            group.advance(GroupEvent.REBALANCE)
            group.unsynced.clear()
        if group.state == GroupState.PREPARING_REBALANCE:
            self._go_on(group, TimerKind.REBALANCE, rebalance)
        elif group.state == GroupState.COMPLETING_REBALANCE:
            sync = known.get(WaitFor(TimerKind.SYNC, NO_MEMBER))
            self._go_on(group, TimerKind.SYNC, sync)
        return group

    def _go_on(self, group: LiveGroup, kind: TimerKind, known: Wait | None) -> None:
        wait_ms = group.rebalance_timeout_ms()
        self._tenure.go_on_waiting(TimerKey(kind, group.name), wait_ms, known)


def session_key(group: LiveGroup, member: LiveMember) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.name, member.member_id)
