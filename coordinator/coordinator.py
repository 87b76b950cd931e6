"""Kafka's group coordinator as a state machine: requests and results in, replies and commands out.

Theory of operation. The replicated half (`store.GroupStore`) is what the log says; every node has
it. The live half (`Coordinator`) exists on the group's master only: who is waiting for what, and
when whose patience ends. It proposes whole snapshots of a group, one at a time for each group, and
commits; it tells a client nothing before the log has it ("durable before visible"). When mastership
moves, the next live half is made from the log, in the same state, generation and assignments, so
the members only have to find the new address.

The caller's part:
- `elected` when this node may act as master and has applied everything before; `resigned` when not
  any more. In between, every committed command of ours goes to `store.apply` and then its result to
  `on_committed`, in the order of the log. Results of before are ignored here.
- `tick` no later than `next_deadline()`; a longer silence than `pause_ms_max` between any two calls
  is taken as this process having been away, and costs no member its session (`timers`).
- `handing_over` before mastership is given to another node, early enough for one more command.
- all times are monotonic milliseconds; wall clocks come only in what is written down.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs

from coordinator.limits import CoordinatorConfig
from coordinator.live.admin import Admin
from coordinator.live.assigning import Assigning, Match
from coordinator.live.membership import Membership
from coordinator.live.offsets import Offsets
from coordinator.live.orphaned_offsets import OrphanedOffsets
from coordinator.live.rebalance import ASSIGNED_KINDS, Rebalance
from coordinator.live.tenure import (
    AssignedUnderWay,
    CommitUnderWay,
    Counters,
    DeleteUnderWay,
    ForgettingUnderWay,
    OffsetDeleteUnderWay,
    SnapshotUnderWay,
    StampUnderWay,
    SweepUnderWay,
    Tenure,
)
from coordinator.live.wait_records import WaitRecords
from coordinator.model import (
    AssignedHeartbeat,
    DeleteGroup,
    DescribeAssigned,
    DescribeGroup,
    Effects,
    ErrorCode,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
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
from coordinator.replicated.stored import NO_REVISION
from coordinator.states import GroupState
from coordinator.timers import TimerKey, Wait
from coordinator.topics import Topics
from paxos.ids import SLOT_ZERO, Slot

MAY_WAIT: Final = frozenset(
    (JoinGroup, SyncGroup, LeaveGroup, OffsetCommit, OffsetDelete, DeleteGroup, AssignedHeartbeat)
)
"""Requests that may be parked, so that `parked_max` holds for them."""


@attrs.frozen(kw_only=True)
class CoordinatorStatistics:
    """What to make metrics of. The last group of fields counts since this process started."""

    active: bool
    groups_stored: int
    groups_live: Mapping[GroupState, int]
    members: int
    parked: int
    proposals_under_way: int
    rebalances: int
    sessions_expired: int
    pauses: int
    snapshots_lost: int


class Office:
    """The live half while this node is master: the parts that share one tenure."""

    def __init__(self, tenure: Tenure, topics: Callable[[], Topics], match: Match) -> None:
        self.tenure = tenure
        self.rebalance = Rebalance(tenure)
        self.assigning = Assigning(tenure, topics, match, self.rebalance.has_members)
        self.offsets = Offsets(tenure, self.rebalance, self.assigning, topics)
        self.tying = OrphanedOffsets(tenure, topics)
        self.admin = Admin(tenure, self.rebalance, self.assigning)
        self.stamps = WaitRecords(tenure)
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
            ListGroups: self.admin.list,
            DeleteGroup: self.admin.delete,
            AssignedHeartbeat: self.assigning.heartbeat,
            DescribeAssigned: self.assigning.describe,
        }

    def on_timer(self, key: TimerKey) -> None:
        if key.kind in ASSIGNED_KINDS:
            self.assigning.on_timer(key)
        else:
            self.rebalance.on_timer(key)


class Coordinator:
    """`topics` and `match` say what topics there are and which a pattern means (KIP-848)."""

    def __init__(
        self,
        store: GroupStore,
        config: CoordinatorConfig,
        topics: Callable[[], Topics],
        match: Match,
    ) -> None:
        self._topics = topics
        self._match = match
        self._store = store
        self._config = config
        self._counters = Counters()
        self._office: Office | None = None
        self._seen_ms = 0
        self._left: tuple[int, dict[TimerKey, Wait]] = (SLOT_ZERO, {})
        """What was left of waits when this node resigned, and as which master."""

    # --- mastership

    def elected(self, now_ms: int, term: Slot, secret: bytes) -> None:
        """This node is master from now on, and `store` has all that was chosen before.

        `term` is the slot of the lease entry that made it so: no two masterships share one, which
        makes member ids unique for ever. `secret` is chance, which makes them hard to guess.
        """
        assert self._office is None, "elected twice"
        self._seen_ms = now_ms
        tenure = Tenure(self._store, self._config, term, secret, self._counters)
        tenure.now_ms = now_ms
        left_as, left = self._left
        if left_as == term:  # nobody was master in between
            tenure.left = left
        self._left = (SLOT_ZERO, {})
        self._office = Office(tenure, self._topics, self._match)
        for stored in self._store.groups():
            if stored.members:
                self._office.rebalance.adopt(stored)
            elif stored.occupied:
                self._office.assigning.adopt(stored)
        self._office.tying.begin()
        tenure.left = {}

    def resigned(self) -> tuple[Effects, dict[ProposalId, Token]]:
        """This node is not master any more: everyone who waits is sent to find the next one.

        Except those who want to know what became of a change (`model.CHANGES`) that is on its way:
        their tokens are returned, by the proposal that will tell. It must not be given up before.
        """
        office, self._office = self._office, None
        if office is None:
            return Effects(), {}
        tenure = office.tenure
        self._left = (tenure.term, office.stamps.left())
        left: dict[ProposalId, Token] = {}
        for proposal_id, under_way in tenure.under_way.items():
            if isinstance(under_way, CommitUnderWay | DeleteUnderWay | OffsetDeleteUnderWay):
                left[proposal_id] = under_way.parked.token
                del tenure.parked[under_way.parked.serial]
        for parked in list(tenure.parked.values()):
            tenure.refuse(parked, ErrorCode.NOT_COORDINATOR)
        effects = tenure.take_effects()
        assert not effects.proposals
        return effects, left

    # --- events

    def handle(self, now_ms: int, request: Request, token: Token) -> Effects:
        """A client's request; `token` comes back in the one Reply to it, now or later."""
        office = self._office
        if office is None:
            refused = Reply(token, refusal(request, ErrorCode.NOT_COORDINATOR))
            return Effects(replies=[refused])
        self._observe(office, now_ms)
        tenure = office.tenure
        if tenure.full() and type(request) in MAY_WAIT:
            tenure.reply(token, refusal(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            office.handlers[type(request)](request, token)
        return tenure.take_effects()

    def on_committed(
        self, now_ms: int, proposal_id: ProposalId, outcome: Buffer | ProposalFailure
    ) -> Effects:
        """What `store.apply` returned for a command of ours, or why it will never be applied."""
        office = self._office
        under_way = office.tenure.under_way.pop(proposal_id, None) if office is not None else None
        if office is None or under_way is None:
            return Effects()  # proposed in an earlier tenure
        self._observe(office, now_ms)
        verdict: Result | ProposalFailure
        verdict = outcome if isinstance(outcome, ProposalFailure) else decode_result(outcome)
        match under_way:
            case SnapshotUnderWay():
                office.rebalance.on_snapshot(under_way, verdict)
            case CommitUnderWay():
                office.offsets.on_commit(under_way, verdict)
            case DeleteUnderWay():
                office.admin.on_delete(under_way, verdict)
            case OffsetDeleteUnderWay():
                office.offsets.on_delete(under_way, verdict)
            case AssignedUnderWay():
                office.assigning.on_snapshot(under_way, verdict)
            case SweepUnderWay():
                self._on_sweep(office)
            case StampUnderWay():
                office.stamps.on_written()
            case ForgettingUnderWay():
                pass  # if the log has not got it, the next sweep looks again
        return office.tenure.take_effects()

    def tick(self, now_ms: int) -> Effects:
        """Time passes: whose patience has ended?"""
        office = self._office
        if office is None:
            return Effects()
        self._observe(office, now_ms)
        while (key := office.tenure.timers.pop_due(now_ms)) is not None:
            office.on_timer(key)
        office.tying.go_on()
        office.stamps.look()
        return office.tenure.take_effects()

    def next_deadline(self) -> int | None:
        """When `tick` wants to be called at the latest; None if nothing can become due.

        With members to watch it is asked for well within `pause_ms_max`, however far their
        deadlines are, so that a longer silence can only be a pause.
        """
        office = self._office
        if office is not None and office.tying.pending:
            return self._seen_ms
        next_ms = office.tenure.timers.next_ms() if office is not None else None
        if office is None or next_ms is None:
            return None
        return min(next_ms, office.stamps.next_ms, self._seen_ms + self._idle_ms_max)

    @property
    def _idle_ms_max(self) -> int:
        """How long we are not called at most, unless we were away."""
        return self._config.pause_ms_max // 2

    def handing_over(self, now_ms: int) -> Effects:
        """Another node is about to be master: what is left of our waits goes into the log first."""
        office = self._office
        if office is None:
            return Effects()
        self._observe(office, now_ms)
        office.stamps.hand_over()
        return office.tenure.take_effects()

    def sweep(self, now_ms: int, wall_ms: int) -> Effects:
        """Every few minutes: forget what no member has cared for during the retention time."""
        office = self._office
        if office is None:
            return Effects()
        self._observe(office, now_ms)
        office.tying.begin(settled=True)
        config = self._config
        command = Sweep(wall_ms, config.offsets_retention_ms, config.idle_group_ms)
        if not office.sweeping and self._store.sweep_due(command):
            office.sweeping = True
            office.tenure.propose(None, command, SweepUnderWay())
        return office.tenure.take_effects()

    def topics_gone(self) -> None:
        """Some topic was deleted: what was committed for it is forgotten, from the next tick on."""
        if self._office is not None:
            self._office.tying.begin()

    def statistics(self) -> CoordinatorStatistics:
        tenure = self._office.tenure if self._office is not None else None
        counters = self._counters
        live = list(tenure.groups.values()) if tenure is not None else []
        assigned = list(self._office.assigning.groups.values()) if self._office is not None else []
        return CoordinatorStatistics(
            active=tenure is not None,
            groups_stored=len(self._store),
            groups_live=Counter(group.visible_state() for group in live),
            members=sum(len(one.members) for one in live)
            + sum(len(one.members) for one in assigned),
            parked=len(tenure.parked) if tenure is not None else 0,
            proposals_under_way=len(tenure.under_way) if tenure is not None else 0,
            rebalances=counters.rebalances,
            sessions_expired=counters.sessions_expired,
            pauses=counters.pauses,
            snapshots_lost=counters.snapshots_lost,
        )

    def _observe(self, office: Office, now_ms: int) -> None:
        """Read the time, and find out whether we were away (SIGSTOP, a suspended machine)."""
        gap_ms = now_ms - self._seen_ms
        assert gap_ms >= 0, "monotonic time went backwards"
        tenure = office.tenure
        self._seen_ms = tenure.now_ms = now_ms
        if gap_ms > self._config.pause_ms_max and len(tenure.timers):
            self._counters.pauses += 1
            tenure.notice(None, "paused", f"nothing was heard for {gap_ms} ms")
            away_ms = gap_ms - self._idle_ms_max  # so long at least: we asked to be called earlier
            tenure.timers.grant(now_ms, away_ms, self._config.grace_ms)

    def _on_sweep(self, office: Office) -> None:
        office.sweeping = False
        for group in office.tenure.groups.values():
            if self._store.get(group.name) is None:
                group.revision = NO_REVISION  # swept while someone was joining: it starts over
        for assigned in office.assigning.groups.values():
            if self._store.get(assigned.name) is None:
                assigned.revision = NO_REVISION
