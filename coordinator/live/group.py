"""One consumer group as its coordinator sees it: volatile, and at times ahead of the log.

Data and queries on it; `membership` changes it (and `rebalance`, for the phases).
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import attrs

from coordinator.live.pending import Pending
from coordinator.model import (
    NO_MEMBER,
    ConsumerGroupId,
    ErrorCode,
    JoinedMember,
    JoinGroup,
    JoinGroupResponse,
    MemberId,
    Protocol,
    Request,
    Response,
    SyncGroup,
)
from coordinator.replicated.commands import GroupSnapshot, MemberRecord
from coordinator.replicated.stored import NO_REVISION, StoredGroup
from coordinator.states import GroupEvent, GroupState, next_state

MEMBER_OVERHEAD_BYTES: Final = 64
"""Lengths and numbers of one member in a snapshot, rounded up."""


@attrs.define(eq=False)
class LiveMember:
    """A member. It takes part in the next generation iff its JoinGroup is deferred (`join`).

    `established`: it has been in a generation, so it is in the log. `restarted_from`: the id of the
    static member that this one has just replaced without a rebalance (KIP-345).
    """

    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    established: bool = False
    own_bytes: int = 0
    join: Pending[JoinGroup] | None = None
    sync: Pending[SyncGroup] | None = None
    restarted_from: MemberId | None = None

    def __attrs_post_init__(self) -> None:
        names = (self.member_id, self.instance_id or "", self.client_id, self.client_host)
        self.own_bytes = sum(len(name.encode()) for name in names) + protocols_bytes(self.protocols)

    def record(self) -> MemberRecord:
        return MemberRecord(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.session_timeout_ms,
            self.rebalance_timeout_ms,
            self.protocols,
            self.assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        """The member's metadata for this protocol."""
        for name, metadata in self.protocols:
            if name == protocol_name:
                return metadata
        return b""

    def update(self, request: JoinGroup) -> None:
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.session_timeout_ms = request.session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms(request)
        self.protocols = request.protocols
        self.__attrs_post_init__()

    def size_bytes(self) -> int:
        return MEMBER_OVERHEAD_BYTES + self.own_bytes + len(self.assignment)


@attrs.frozen
class LeaveWait:
    """A LeaveGroup that is answered once the log has `version`: only then is the member gone. After
    the last member with broker-side assignment has left, it may be that one's heartbeat."""

    version: int
    pending: Pending[Request]
    response: Response


@attrs.define(eq=False)
class LiveGroup:
    """Versions count the changes that must reach the log, one snapshot under way at a time.

    A JoinGroup is answered when `durable` has reached `join_version` (the generation, or a static
    member's new id), a SyncGroup when it has reached `sync_version` (the assignments). So once any
    client knows a generation, no later coordinator gives out the same number again.
    """

    name: ConsumerGroupId
    state: GroupState = GroupState.EMPTY
    generation: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId | None = None
    members: dict[MemberId, LiveMember] = attrs.Factory(dict)
    offered: Counter[str] = attrs.Factory(Counter)
    """Name of a protocol -> how many members offer it."""
    static: dict[str, MemberId] = attrs.Factory(dict)
    pending: dict[MemberId, None] = attrs.Factory(dict)
    """Lent an id with MEMBER_ID_REQUIRED and have not yet joined with it; the oldest first."""

    unsynced: set[MemberId] = attrs.Factory(set)
    """Joined this generation and have not asked for their assignment; only tested for
    membership."""

    leaving: list[LeaveWait] = attrs.Factory(list)

    initial: bool = False
    """In the delay before the first generation of an empty group."""
    initial_left_ms: int = 0
    newcomer: bool = False

    revision: int = NO_REVISION
    version: int = 0
    durable: int = 0
    join_version: int = 0
    sync_version: int = 0
    snapshot_under_way: bool = False
    converts: bool = False
    """The log still has it as a group with broker-side assignment."""

    @classmethod
    def from_stored(cls, stored: StoredGroup) -> "LiveGroup":
        """The view of a coordinator that has just taken over: what is in the log, no more."""
        group = cls(
            name=stored.name,
            state=stored.state,
            generation=stored.generation,
            protocol_type=stored.protocol_type,
            protocol_name=stored.protocol_name,
            leader=stored.leader,
            revision=stored.revision,
        )
        for record in stored.members.values():
            group.add(
                LiveMember(
                    record.member_id,
                    record.instance_id,
                    record.client_id,
                    record.client_host,
                    record.session_timeout_ms,
                    record.rebalance_timeout_ms,
                    record.protocols,
                    record.assignment,
                    established=True,
                )
            )
        if group.state == GroupState.COMPLETING_REBALANCE:
            group.unsynced = set(group.members)
        return group

    def advance(self, event: GroupEvent) -> None:
        """The only way to change the state."""
        self.state = next_state(self.state, event)

    def touch(self) -> int:
        """Record a change that must be in the log before it is visible."""
        self.version += 1
        return self.version

    def add(self, member: LiveMember) -> None:
        assert member.member_id not in self.members
        self.members[member.member_id] = member
        self._offer(member)
        if member.instance_id is not None:
            self.static[member.instance_id] = member.member_id

    def discard(self, member: LiveMember) -> None:
        del self.members[member.member_id]
        self._offer_no_more(member)
        self.unsynced.discard(member.member_id)
        if member.instance_id is not None:
            del self.static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = None  # the next generation has a new one, among those who join it

    def fence(self, member_id: MemberId, instance_id: str | None) -> ErrorCode:
        """Whether this is a member, and the current one of its instance id."""
        if instance_id is not None:
            known = self.static.get(instance_id)
            if known is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if known != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def change(self, member: LiveMember, request: JoinGroup) -> None:
        """Take over the fields of a member's new JoinGroup."""
        self._offer_no_more(member)
        member.update(request)
        self._offer(member)
        self.protocol_type = request.protocol_type

    def _offer(self, member: LiveMember) -> None:
        self.offered.update({name for name, _ in member.protocols})

    def _offer_no_more(self, member: LiveMember) -> None:
        """A name that nobody offers any more is forgotten: clients choose the names."""
        for name in {name for name, _ in member.protocols}:
            self.offered[name] -= 1
            if not self.offered[name]:
                del self.offered[name]

    def supports(self, request: JoinGroup) -> bool:
        """Whether the other members share a protocol with this one (D5)."""
        own = self.members.get(self.static.get(request.instance_id or "", request.member_id))
        others_count = len(self.members) - (own is not None)
        if others_count == 0:
            return True
        own_names = {name for name, _ in own.protocols} if own is not None else set()
        return request.protocol_type == self.protocol_type and any(
            self.offered[name] - (name in own_names) == others_count
            for name, _ in request.protocols
        )

    def all_joined(self) -> bool:
        return not self.pending and all(m.join is not None for m in self.members.values())

    def rebalance_timeout_ms(self) -> int:
        return max((m.rebalance_timeout_ms for m in self.members.values()), default=0)

    def size_bytes(self) -> int:
        return sum(member.size_bytes() for member in self.members.values())

    def visible_state(self) -> GroupState:
        """The state as clients may see it: assignments that are not in the log yet do not count."""
        if self.state == GroupState.STABLE and self.durable < self.sync_version:
            return GroupState.COMPLETING_REBALANCE
        return self.state

    def snapshot(self) -> GroupSnapshot:
        """What goes into the log: only members that have been in a generation."""
        members = tuple(m.record() for m in self.members.values() if m.established)
        leader = self.members.get(self.leader or NO_MEMBER)
        return GroupSnapshot(
            self.name,
            self.revision,
            self.generation,
            self.state if members else GroupState.EMPTY,
            self.protocol_type,
            self.protocol_name,
            leader.member_id if leader is not None and leader.established else None,
            members,
            self.converts,
        )

    def join_response(self, member: LiveMember, request: JoinGroup) -> JoinGroupResponse:
        """What `member` is told about the present generation (D8)."""
        leader, tell_all = self.leader or NO_MEMBER, member.member_id == self.leader
        skip = False
        if member.restarted_from is not None and tell_all:
            # The assignment stands, so a restarted leader must not make one. It is told to skip it
            # (KIP-814), or, with an older version, that its former self is the leader.
            skip = tell_all = request.supports_skip_assignment
            leader = member.member_id if skip else member.restarted_from
        return JoinGroupResponse(
            error=ErrorCode.NONE,
            generation=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=leader,
            member_id=member.member_id,
            members=tuple(
                JoinedMember(m.member_id, m.instance_id, m.metadata(self.protocol_name))
                for m in self.members.values()
            )
            if tell_all
            else (),
            skip_assignment=skip,
        )


def rebalance_timeout_ms(request: JoinGroup) -> int:
    if request.rebalance_timeout_ms > 0:
        return request.rebalance_timeout_ms
    return request.session_timeout_ms


def protocols_bytes(protocols: Sequence[Protocol]) -> int:
    return sum(len(name.encode()) + len(metadata) + 6 for name, metadata in protocols)


def common_protocols(offers: Sequence[Sequence[Protocol]]) -> set[str]:
    """The names that all members offer."""
    assert offers
    return set.intersection(*({protocol.name for protocol in offer} for offer in offers))


def choose_protocol(offers: Mapping[MemberId, Sequence[Protocol]], leader: MemberId) -> str:
    """Each member votes for the first of its protocols that all support; most votes win (D5).

    The leader's preference breaks a tie: it has to do the work.
    """
    common = common_protocols(list(offers.values()))
    assert common, "a member was let in with whom nobody can agree"
    votes = dict.fromkeys(common, 0)
    for offer in offers.values():
        votes[next(name for name, _ in offer if name in common)] += 1
    most = max(votes.values())
    return next(name for name, _ in offers[leader] if votes.get(name) == most)
