"""What one mastership knows and forgets with it: live groups, deadlines, requests under way.

The parts of the coordinator share it. Each entry point of `coordinator.Coordinator` lets them work,
then proposes the snapshots that have become due and returns the effects.
"""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, TypeAlias, TypeVar

import attrs

from coordinator.limits import CoordinatorConfig
from coordinator.live.group import LiveGroup
from coordinator.live.live_assigned import LiveAssigned
from coordinator.live.pending import Pending
from coordinator.model import (
    ConsumerGroupId,
    DeleteGroup,
    Effects,
    ErrorCode,
    GroupNotice,
    MemberId,
    OffsetCommit,
    OffsetDelete,
    OffsetDeleteResponse,
    Proposal,
    ProposalId,
    Reply,
    Request,
    Response,
    Token,
    TopicErrors,
    refusal,
)
from coordinator.replicated.commands import Command, encode
from coordinator.replicated.store import GroupStore
from coordinator.states import GroupState
from coordinator.timers import TimerKey, TimerKind, Timers, Wait

R = TypeVar("R", bound=Request)

MEMBER_ID_BYTES: Final = 16
"""Random-looking bytes in a member id, as many as in a UUID."""


@attrs.frozen(eq=False)
class SnapshotUnderWay:
    """`group` is a reference: a view that was discarded since has no use for the outcome."""

    group: LiveGroup
    version: int


@attrs.frozen(eq=False)
class CommitUnderWay:
    """`topics`: why a partition was not proposed; NONE where the log decides."""

    pending: Pending[OffsetCommit]
    topics: tuple[TopicErrors, ...]


@attrs.frozen(eq=False)
class DeleteUnderWay:
    pending: Pending[DeleteGroup]


@attrs.frozen(eq=False)
class OffsetDeleteUnderWay:
    pending: Pending[OffsetDelete]
    response: OffsetDeleteResponse


@attrs.frozen(eq=False)
class SweepUnderWay:
    pass


@attrs.frozen(eq=False)
class ForgettingUnderWay:
    """Forgets offsets of deleted topics; no request waits for it."""


@attrs.frozen(eq=False)
class AssignedUnderWay:
    """As SnapshotUnderWay, for a group with broker-side assignment."""

    group: LiveAssigned
    version: int


@attrs.frozen(eq=False)
class WaitRecordsUnderWay:
    """Records the remaining time of waits; no request waits for it."""


UnderWay: TypeAlias = (
    SnapshotUnderWay
    | CommitUnderWay
    | DeleteUnderWay
    | OffsetDeleteUnderWay
    | SweepUnderWay
    | ForgettingUnderWay
    | AssignedUnderWay
    | WaitRecordsUnderWay
)


@attrs.define
class Counters:
    """Totals since this Coordinator was made; they outlive a tenure."""

    proposals: int = 0
    member_ids: int = 0
    rebalances: int = 0
    sessions_expired: int = 0
    pauses: int = 0
    snapshots_lost: int = 0


class Tenure:
    """`secret` is random and unknown to clients: it makes member ids impossible to guess.

    `no_mixing` says why no group may become one with members of both protocols now: not every node
    could read it. A group that is one already goes on: whoever has its log has read that.
    """

    def __init__(
        self,
        store: GroupStore,
        config: CoordinatorConfig,
        term: int,
        secret: bytes,
        counters: Counters,
        no_mixing: Callable[[], str] = lambda: "",
    ) -> None:
        self.store = store
        self.no_mixing = no_mixing
        self.config = config
        self.counters = counters
        self.groups: dict[ConsumerGroupId, LiveGroup] = {}
        self.assigned: dict[ConsumerGroupId, LiveAssigned] = {}
        """The groups with broker-side assignment. Where the log has a group as one of the other
        kind, it is about to become one of this kind: what is live counts."""
        self.timers = Timers()
        self.lent: dict[tuple[ConsumerGroupId, MemberId], None] = {}
        """Ids lent to clients to join with, of all groups, the oldest first."""
        self.under_way: dict[ProposalId, UnderWay] = {}
        self.pending: dict[int, Pending[Request]] = {}
        self.now_ms = 0
        self.left: dict[TimerKey, Wait] = {}
        """What this mastership knew of its waits before it was suspended for a while."""
        self.term = term
        self._secret = secret
        self._serial = 0
        self._effects = Effects()

    def take_effects(self) -> Effects:
        effects, self._effects = self._effects, Effects()
        return effects

    # --- requests and answers

    def reply(self, token: Token, response: Response) -> None:
        self._effects.replies.append(Reply(token, response))

    def defer(self, request: R, token: Token) -> Pending[R]:
        self._serial += 1
        pending = Pending(self._serial, token, request)
        self.pending[pending.serial] = pending
        return pending

    def full(self) -> bool:
        return len(self.pending) >= self.config.pending_max

    def answer(self, pending: Pending[Request], response: Response) -> None:
        del self.pending[pending.serial]
        self.reply(pending.token, response)

    def refuse(self, pending: Pending[Request], error: ErrorCode) -> None:
        self.answer(pending, refusal(pending.request, error))

    def notice(self, group: ConsumerGroupId | None, what: str, detail: str = "") -> None:
        self._effects.notices.append(GroupNotice(group, what, detail))

    # --- waits

    def wait(self, key: TimerKey, wait_ms: int) -> None:
        """Wait from now on: the event waited for has come."""
        self.timers.begin(key, self.now_ms, wait_ms)

    def go_on_waiting(self, key: TimerKey, wait_ms: int, known: Wait | None) -> None:
        """Take over a wait of which `known` is left; all of it if that is None."""
        known = self.left.get(key, known)
        self.timers.resume(key, self.now_ms, wait_ms, known, self.config.grace_ms)

    # --- the log

    def propose(
        self, group: ConsumerGroupId | None, command: Command | bytes, under_way: UnderWay
    ) -> None:
        data = command if isinstance(command, bytes) else encode(command)
        self.counters.proposals += 1
        proposal_id = ProposalId(self.counters.proposals)
        self.under_way[proposal_id] = under_way
        self._effects.proposals.append(Proposal(proposal_id, group, data))

    def flush(self, group: LiveGroup) -> None:
        """Propose the group's present state, unless the log has it or an older snapshot is under
        way."""
        if group.snapshot_under_way or group.durable >= group.version:
            return
        if group.state == GroupState.DEAD:
            return
        group.snapshot_under_way = True
        self.propose(group.name, group.snapshot(), SnapshotUnderWay(group, group.version))

    # --- groups

    def open(self, name: ConsumerGroupId) -> LiveGroup:
        """A live view of a group that has no members yet."""
        assert name not in self.groups
        stored = self.store.get(name)
        group = LiveGroup(name) if stored is None else LiveGroup.from_stored(stored)
        assert group.state == GroupState.EMPTY, f"{name} has to be adopted"
        self.groups[name] = group
        return group

    def room_for_live(self) -> bool:
        return len(self.groups) < self.config.groups_max

    def room_for_member(self) -> bool:
        """Every member, and every client that may become one, has a deadline."""
        return len(self.timers) < self.config.members_max

    def lend(self, group: LiveGroup, member_id: MemberId, session_ms: int) -> None:
        """Give a client an id to join with (KIP-394): a client that never comes back for it leaves
        no member behind. Clients come back at once, so the id need not last for a long session."""
        group.pending[member_id] = None
        self.lent[group.name, member_id] = None
        key = TimerKey(TimerKind.PENDING, group.name, member_id)
        self.wait(key, min(session_ms, self.config.lent_ms_max))

    def take_back(self, group: LiveGroup, member_id: MemberId) -> None:
        """End the loan: the client has joined with the id, or must ask for another."""
        del group.pending[member_id]
        del self.lent[group.name, member_id]
        self.timers.cancel(TimerKey(TimerKind.PENDING, group.name, member_id))

    def room_in_log(self, name: ConsumerGroupId) -> bool:
        return self.store.get(name) is not None or len(self.store) < self.config.groups_max

    def forget_if_idle(self, group: LiveGroup) -> None:
        """A group without members needs no live view: the log has all of it."""
        if (
            group.state == GroupState.EMPTY
            and not group.pending
            and not group.snapshot_under_way
            and group.durable >= group.version
            and self.groups.get(group.name) is group
        ):
            assert not group.members
            del self.groups[group.name]

    def new_member_id(self, prefix: str) -> MemberId:
        """Knowing a member id is the only proof of being that member, so it cannot be guessed, and
        a new cluster does not give it out again. `term` is a slot, and the count continues across
        tenures."""
        self.counters.member_ids += 1
        number = b"%d-%d" % (self.term, self.counters.member_ids)
        digest = blake2b(number, key=self._secret, digest_size=MEMBER_ID_BYTES)
        return MemberId(f"{prefix}-{digest.hexdigest()}")
