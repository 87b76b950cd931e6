"""Kafka's group coordinator as a state machine: requests and results in, replies and commands out.

Theory of operation. The replicated half (`store.GroupStore`) is what the log says; every node has
it. The live half (`Coordinator`) exists only on the group's master: which requests wait for what,
and when each wait ends. It proposes commits and whole snapshots of a group, one snapshot at a time
for each group; it tells a client nothing before the log has it ("durable before visible"). When
mastership moves, the next live half is made from the log, in the same state, generation and
assignments, so the members only have to find the new address.

The caller's part:
- call `elected` when this node may act as master and has applied everything before, and `resigned`
  when it may no longer act. In between, apply every committed command of ours with `store.apply`,
  then pass its result to `on_committed`, in the order of the log. Results from an earlier tenure
  are ignored.
- call `tick` no later than `next_deadline()`. A silence longer than `pause_ms_max` between any two
  calls means that this process was away; it costs no member its session (`timers`).
- call `handing_over` before mastership goes to another node, early enough for one more command.
- pass all times as monotonic milliseconds; wall clocks appear only in what is written down.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from coordinator.limits import CoordinatorConfig
from coordinator.live.admin import Admin
from coordinator.live.assigning import Assigning
from coordinator.live.membership import Membership
from coordinator.live.offsets import Offsets
from coordinator.live.orphaned_offsets import OrphanedOffsets
from coordinator.live.planning import Match, Planning
from coordinator.live.rebalance import ASSIGNED_KINDS, Rebalance
from coordinator.live.tenure import (
    AssignedUnderWay,
    CommitUnderWay,
    Counters,
    DeleteUnderWay,
    ForgettingUnderWay,
    OffsetDeleteUnderWay,
    SnapshotUnderWay,
    SweepUnderWay,
    Tenure,
    WaitRecordsUnderWay,
)
from coordinator.live.wait_records import WaitRecords
from coordinator.model import (
    AssignedHeartbeat,
    ConsumerGroupId,
    DeleteGroup,
    DescribeAssigned,
    DescribeGroup,
    Effects,
    ErrorCode,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    NameGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    ProposalFailure,
    ProposalId,
    Reply,
    Request,
    SyncGroup,
    Token,
    refusal,
)
from coordinator.replicated.codec import Buffer
from coordinator.replicated.commands import Result, Sweep, decode_result
from coordinator.replicated.store import GroupStore
from coordinator.replicated.stored import NO_REVISION, StoredGroup
from coordinator.states import GroupState
from coordinator.timers import TimerKey, Wait
from coordinator.topics import Topics
from paxos.ids import SLOT_ZERO, Slot

MAY_WAIT: Final = frozenset(
    (JoinGroup, SyncGroup, LeaveGroup, OffsetCommit, OffsetDelete, DeleteGroup, AssignedHeartbeat)
)
"""Requests that may be deferred; `pending_max` limits them."""


@attrs.frozen(kw_only=True)
class CoordinatorStatistics:
    """For metrics. The fields from `rebalances` on count since this process started."""

    active: bool
    groups_stored: int
    groups_live: Mapping[GroupState, int]
    members: int
    pending: int
    rebalances: int
    sessions_expired: int
    pauses: int
    snapshots_lost: int


class LiveCoordinator:
    """The live half while this node is master: the parts that share one tenure."""

    def __init__(self, tenure: Tenure, topics: Callable[[], Topics], match: Match) -> None:
        self.tenure = tenure
        self.rebalance = Rebalance(tenure)
        self.assigning = Assigning(tenure, Planning(tenure, topics, match), self.rebalance)
        self.offsets = Offsets(tenure, self.rebalance, self.assigning, topics)
        self.orphaned_offsets = OrphanedOffsets(tenure, topics)
        self.admin = Admin(tenure, self.rebalance, self.assigning)
        self.wait_records = WaitRecords(tenure)
        self.sweeping = False
        membership = Membership(tenure, self.rebalance, self.assigning)
        self.handlers: dict[type, Callable[[Any, Token], None]] = {  # Any: one class each
            JoinGroup: membership.join,
            SyncGroup: membership.sync,
            Heartbeat: membership.heartbeat,
            LeaveGroup: membership.leave,
            OffsetCommit: self.offsets.commit,
            OffsetFetch: self.offsets.fetch,
            OffsetDelete: self.offsets.delete,
            DescribeGroup: self.admin.describe,
            NameGroups: self.admin.name,
            ListGroups: self.admin.list,
            DeleteGroup: self.admin.delete,
            AssignedHeartbeat: self.assigning.heartbeat,
            DescribeAssigned: self.assigning.describe,
        }

    def adopt(self, stored: StoredGroup) -> None:
        if stored.members:
            self.rebalance.adopt(stored)
        elif stored.occupied:
            self.assigning.adopt(stored)

    def adopt_if_lost(self, name: ConsumerGroupId) -> None:
        """A group that was to change its kind, and whose change did not get into the log, goes on
        as what it was."""
        stored = self.tenure.store.get(name)
        if stored is None or name in self.tenure.groups or name in self.tenure.assigned:
            return
        self.adopt(stored)

    def on_timer(self, key: TimerKey) -> None:
        if key.kind in ASSIGNED_KINDS:
            self.assigning.on_timer(key)
        else:
            self.rebalance.on_timer(key)


class Coordinator:
    """`topics` returns the topics that exist; `match` the topics a pattern matches (KIP-848).

    For `no_mixing` see Tenure.
    """

    def __init__(
        self,
        store: GroupStore,
        config: CoordinatorConfig,
        topics: Callable[[], Topics],
        match: Match,
        no_mixing: Callable[[], str] = lambda: "",
    ) -> None:
        self._no_mixing = no_mixing
        self._topics = topics
        self._match = match
        self._store = store
        self._config = config
        self._counters = Counters()
        self._live: LiveCoordinator | None = None
        self._seen_ms = 0
        self._left: tuple[int, dict[TimerKey, Wait]] = (SLOT_ZERO, {})
        """What was left of waits when this node resigned, and the term of that mastership."""

    # --- mastership

    def elected(self, now_ms: int, term: Slot, secret: bytes) -> None:
        """This node is master from now on, and `store` has all that was chosen before.

        `term` is the slot of the lease entry that made it master. No two masterships share one, so
        member ids never repeat. `secret` is random bytes, which make member ids hard to guess.
        """
        assert self._live is None, "elected twice"
        self._seen_ms = now_ms
        tenure = Tenure(self._store, self._config, term, secret, self._counters, self._no_mixing)
        tenure.now_ms = now_ms
        left_as, left = self._left
        if left_as == term:  # nobody was master in between
            tenure.left = left
        self._left = (SLOT_ZERO, {})
        self._live = LiveCoordinator(tenure, self._topics, self._match)
        for stored in self._store.groups():
            self._live.adopt(stored)
        self._live.orphaned_offsets.begin()
        tenure.left = {}

    def resigned(self) -> tuple[Effects, dict[ProposalId, Token]]:
        """This node is no longer master: every waiting client is sent to find the next one.

        The exception is clients that wait for the outcome of a change (`model.CHANGES`) that is
        under way. Their tokens are returned, by the proposal that decides the outcome; keep them
        until it is known.
        """
        live, self._live = self._live, None
        if live is None:
            return Effects(), {}
        tenure = live.tenure
        self._left = (tenure.term, live.wait_records.left())
        left: dict[ProposalId, Token] = {}
        for proposal_id, under_way in tenure.under_way.items():
            if isinstance(under_way, CommitUnderWay | DeleteUnderWay | OffsetDeleteUnderWay):
                left[proposal_id] = under_way.pending.token
                del tenure.pending[under_way.pending.serial]
        for pending in list(tenure.pending.values()):
            tenure.refuse(pending, ErrorCode.NOT_COORDINATOR)
        effects = tenure.take_effects()
        assert not effects.proposals
        return effects, left

    # --- events

    def handle(self, now_ms: int, request: Request, token: Token) -> Effects:
        """Handle a client's request; `token` comes back in the one Reply to it, now or later."""
        live = self._live
        if live is None:
            refused = Reply(token, refusal(request, ErrorCode.NOT_COORDINATOR))
            return Effects(replies=[refused])
        self._observe(live, now_ms)
        tenure = live.tenure
        if _lacks_a_name(request):
            tenure.reply(token, refusal(request, ErrorCode.INVALID_GROUP_ID))
        elif tenure.full() and type(request) in MAY_WAIT:
            tenure.reply(token, refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            live.handlers[type(request)](request, token)
        return tenure.take_effects()

    def on_committed(
        self, now_ms: int, proposal_id: ProposalId, outcome: Buffer | ProposalFailure
    ) -> Effects:
        """Take what `store.apply` returned for a command of ours, or why it will never be
        applied."""
        live = self._live
        under_way = live.tenure.under_way.pop(proposal_id, None) if live is not None else None
        if live is None or under_way is None:
            return Effects()  # proposed in an earlier tenure
        self._observe(live, now_ms)
        verdict: Result | ProposalFailure
        verdict = outcome if isinstance(outcome, ProposalFailure) else decode_result(outcome)
        match under_way:
            case SnapshotUnderWay():
                live.rebalance.on_snapshot(under_way, verdict)
                live.adopt_if_lost(under_way.group.name)
            case CommitUnderWay():
                live.offsets.on_commit(under_way, verdict)
            case DeleteUnderWay():
                live.admin.on_delete(under_way, verdict)
            case OffsetDeleteUnderWay():
                live.offsets.on_delete(under_way, verdict)
            case AssignedUnderWay():
                live.assigning.on_snapshot(under_way, verdict)
                live.adopt_if_lost(under_way.group.name)
            case SweepUnderWay():
                self._on_sweep(live)
            case WaitRecordsUnderWay():
                live.wait_records.on_written()
            case ForgettingUnderWay():
                pass  # if it is not in the log, the next sweep tries again
        return live.tenure.take_effects()

    def tick(self, now_ms: int) -> Effects:
        """Let time pass: act on every deadline that is over."""
        live = self._live
        if live is None:
            return Effects()
        self._observe(live, now_ms)
        while (key := live.tenure.timers.pop_due(now_ms)) is not None:
            live.on_timer(key)
        live.orphaned_offsets.go_on()
        live.wait_records.look()
        return live.tenure.take_effects()

    def next_deadline(self) -> int | None:
        """The latest time for the next `tick`; None if nothing can become due.

        While there are members to watch it is well within `pause_ms_max`, however far their
        deadlines are, so that a longer silence can only be a pause.
        """
        live = self._live
        if live is not None and live.orphaned_offsets.pending:
            return self._seen_ms
        next_ms = live.tenure.timers.next_ms() if live is not None else None
        if live is None or next_ms is None:
            return None
        return min(next_ms, live.wait_records.next_ms, self._seen_ms + self._idle_ms_max)

    @property
    def _idle_ms_max(self) -> int:
        """The longest time between two calls, unless we were away."""
        return self._config.pause_ms_max // 2

    def handing_over(self, now_ms: int) -> Effects:
        """Another node is about to be master: the remaining time of our waits goes into the log
        first."""
        live = self._live
        if live is None:
            return Effects()
        self._observe(live, now_ms)
        live.wait_records.hand_over()
        return live.tenure.take_effects()

    def sweep(self, now_ms: int, wall_ms: int) -> Effects:
        """Every few minutes: forget groups and offsets unused for their retention time."""
        live = self._live
        if live is None:
            return Effects()
        self._observe(live, now_ms)
        live.orphaned_offsets.begin(settled=True)
        config = self._config
        command = Sweep(wall_ms, config.offsets_retention_ms, config.idle_group_ms)
        if not live.sweeping and self._store.sweep_due(command):
            live.sweeping = True
            live.tenure.propose(None, command, SweepUnderWay())
        return live.tenure.take_effects()

    def topics_gone(self) -> None:
        """A topic was deleted: its committed offsets are forgotten, from the next tick on."""
        if self._live is not None:
            self._live.orphaned_offsets.begin()

    def statistics(self) -> CoordinatorStatistics:
        tenure = self._live.tenure if self._live is not None else None
        counters = self._counters
        live = list(tenure.groups.values()) if tenure is not None else []
        assigned = list(self._live.assigning.groups.values()) if self._live is not None else []
        return CoordinatorStatistics(
            active=tenure is not None,
            groups_stored=len(self._store),
            groups_live=Counter(group.visible_state() for group in live),
            members=sum(len(one.members) for one in live)
            + sum(len(one.members) for one in assigned),
            pending=len(tenure.pending) if tenure is not None else 0,
            rebalances=counters.rebalances,
            sessions_expired=counters.sessions_expired,
            pauses=counters.pauses,
            snapshots_lost=counters.snapshots_lost,
        )

    def _observe(self, live: LiveCoordinator, now_ms: int) -> None:
        """Take the time, and find out whether we were away (SIGSTOP, a suspended machine)."""
        gap_ms = now_ms - self._seen_ms
        assert gap_ms >= 0, "monotonic time went backwards"
        tenure = live.tenure
        self._seen_ms = tenure.now_ms = now_ms
        if gap_ms > self._config.pause_ms_max and len(tenure.timers):
            self._counters.pauses += 1
            tenure.notice(None, "paused", f"nothing was heard for {gap_ms} ms")
            away_ms = gap_ms - self._idle_ms_max  # at least: we asked to be called earlier
            tenure.timers.grant(now_ms, away_ms, self._config.grace_ms)

    def _on_sweep(self, live: LiveCoordinator) -> None:
        live.sweeping = False
        for group in live.tenure.groups.values():
            if self._store.get(group.name) is None:
                group.revision = NO_REVISION  # swept while a member was joining: it starts over
        for assigned in live.assigning.groups.values():
            if self._store.get(assigned.name) is None:
                assigned.revision = NO_REVISION


def _lacks_a_name(request: Request) -> bool:
    """As in Kafka a group without a name has no members, but simple consumers may keep their
    offsets in it, as before groups had to be named. Joins and heartbeats of the new protocol are
    looked at where they are handled."""
    if isinstance(request, SyncGroup | Heartbeat | LeaveGroup | OffsetDelete):
        return not request.group
    return False
