"""The requests to the group coordinator and its responses, apart from any wire format.

The broker translates Kafka's requests of every version into these classes and back. Each request is
about one consumer group: the broker splits those of Kafka that name several (DescribeGroups,
DeleteGroups, OffsetFetch v8), since every consumer group may live in another Paxos group.
"""

from collections.abc import Callable, Mapping
from enum import Enum, IntEnum
from typing import Final, NamedTuple, NewType, TypeAlias

import attrs

from coordinator.topics import ANY_TOPIC

ConsumerGroupId = NewType("ConsumerGroupId", str)
MemberId = NewType("MemberId", str)
ProposalId = NewType("ProposalId", int)
Token: TypeAlias = object
"""Whatever the broker needs to find the connection again; opaque here."""

NO_MEMBER = MemberId("")
NO_GENERATION = -1
NO_OFFSET = -1
NO_EPOCH = -1


class ErrorCode(IntEnum):
    """The part of Kafka's error table that a group coordinator needs."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    REQUEST_TIMED_OUT = 7
    """For a change: it is unknown whether it was, or will be, made."""
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_UPDATE_VERSION = 95
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


class Protocol(NamedTuple):
    """One assignment protocol that a member offers (D5), with its opaque metadata (D6)."""

    name: str
    metadata: bytes


class Assignment(NamedTuple):
    member_id: MemberId
    assignment: bytes


class PartitionOffset(NamedTuple):
    """`uid` says which topic of that name is meant (`coordinator.topics`)."""

    partition: int
    offset: int
    leader_epoch: int = NO_EPOCH
    metadata: str = ""
    uid: int = ANY_TOPIC


class TopicOffsets(NamedTuple):
    topic: str
    partitions: tuple[PartitionOffset, ...]


class TopicPartitions(NamedTuple):
    topic: str
    partitions: tuple[int, ...]


class PartitionError(NamedTuple):
    partition: int
    error: ErrorCode


class TopicErrors(NamedTuple):
    topic: str
    partitions: tuple[PartitionError, ...]


# --- requests -------------------------------------------------------------------------------------


@attrs.frozen(kw_only=True)
class JoinGroup:
    """`require_known_member_id`: v4+ (KIP-394). `supports_skip_assignment`: v9+ (KIP-814).

    In v0 `rebalance_timeout_ms` is the session timeout; so is any value that is not positive.
    """

    group: ConsumerGroupId
    member_id: MemberId = NO_MEMBER
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    protocol_type: str
    protocols: tuple[Protocol, ...]
    require_known_member_id: bool = False
    supports_skip_assignment: bool = False


@attrs.frozen(kw_only=True)
class SyncGroup:
    """`protocol_type` and `protocol_name` come with v5+ and are checked if they are not None."""

    group: ConsumerGroupId
    generation: int
    member_id: MemberId
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[Assignment, ...] = ()


@attrs.frozen(kw_only=True)
class Heartbeat:
    group: ConsumerGroupId
    generation: int
    member_id: MemberId
    instance_id: str | None = None


class LeavingMember(NamedTuple):
    member_id: MemberId
    instance_id: str | None = None
    reason: str = ""


@attrs.frozen(kw_only=True)
class LeaveGroup:
    """v3+ names several members; v0-2 is a batch of one."""

    group: ConsumerGroupId
    members: tuple[LeavingMember, ...]


class TopicIdPartitions(NamedTuple):
    topic_id: bytes
    partitions: tuple[int, ...]


@attrs.frozen(kw_only=True)
class AssignedHeartbeat:
    """Kafka's ConsumerGroupHeartbeat (KIP-848): joins, continues, leaves, and reports what it owns.

    None means "as before". `epoch` 0 joins, -1 leaves, -2 leaves as a static member for a while.
    `names_itself`: v1+, a member generates its own id (KIP-1082), so that a lost answer leaves no
    member behind that no client knows to be itself.
    """

    group: ConsumerGroupId
    member_id: MemberId
    epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: tuple[TopicIdPartitions, ...] | None = None
    names_itself: bool = False


@attrs.frozen(kw_only=True)
class DescribeAssigned:
    """Kafka's ConsumerGroupDescribe, of one group."""

    group: ConsumerGroupId


@attrs.frozen(kw_only=True)
class OffsetCommit:
    """`commit_wall_ms` is the broker's wall clock; it is only recorded, and used for expiry."""

    group: ConsumerGroupId
    generation: int = NO_GENERATION
    member_id: MemberId = NO_MEMBER
    instance_id: str | None = None
    commit_wall_ms: int
    topics: tuple[TopicOffsets, ...]


@attrs.frozen(kw_only=True)
class OffsetFetch:
    """`topics` None asks for everything the group has committed.

    `member_id` and `epoch` name the member that asks, from v9 on (KIP-848); NO_MEMBER and -1: none.
    """

    group: ConsumerGroupId
    topics: tuple[TopicPartitions, ...] | None
    member_id: MemberId = NO_MEMBER
    epoch: int = -1


@attrs.frozen(kw_only=True)
class OffsetDelete:
    group: ConsumerGroupId
    topics: tuple[TopicPartitions, ...]


@attrs.frozen(kw_only=True)
class DescribeGroup:
    group: ConsumerGroupId


@attrs.frozen(kw_only=True)
class NameGroups:
    """The names of all groups: a caller lists many in several requests."""


@attrs.frozen(kw_only=True)
class ListGroups:
    """Those of `names` that exist. `states` holds Kafka's state names; empty means all."""

    names: tuple[ConsumerGroupId, ...]
    states: frozenset[str] = frozenset()


@attrs.frozen(kw_only=True)
class DeleteGroup:
    group: ConsumerGroupId


Request: TypeAlias = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroup
    | NameGroups
    | ListGroups
    | DeleteGroup
    | AssignedHeartbeat
    | DescribeAssigned
)


# --- responses ------------------------------------------------------------------------------------


class JoinedMember(NamedTuple):
    """What the leader learns about each member, including itself (D8)."""

    member_id: MemberId
    instance_id: str | None
    metadata: bytes


@attrs.frozen(kw_only=True)
class JoinGroupResponse:
    error: ErrorCode
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: MemberId = NO_MEMBER
    member_id: MemberId = NO_MEMBER
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@attrs.frozen(kw_only=True)
class SyncGroupResponse:
    error: ErrorCode
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@attrs.frozen(kw_only=True)
class HeartbeatResponse:
    error: ErrorCode


class LeftMember(NamedTuple):
    member_id: MemberId
    instance_id: str | None
    error: ErrorCode


@attrs.frozen(kw_only=True)
class LeaveGroupResponse:
    """For v0-2 the error is that of the only member, or `error` if that is not NONE."""

    error: ErrorCode
    members: tuple[LeftMember, ...] = ()


@attrs.frozen(kw_only=True)
class OffsetCommitResponse:
    topics: tuple[TopicErrors, ...]


@attrs.frozen(kw_only=True)
class OffsetFetchResponse:
    """A partition without a committed offset is listed with NO_OFFSET and no error."""

    error: ErrorCode
    topics: tuple[TopicOffsets, ...] = ()


@attrs.frozen(kw_only=True)
class OffsetDeleteResponse:
    error: ErrorCode
    topics: tuple[TopicErrors, ...] = ()


class DescribedMember(NamedTuple):
    member_id: MemberId
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


@attrs.frozen(kw_only=True)
class DescribeGroupResponse:
    """An unknown group is described as Dead, without an error, as Kafka does up to v5."""

    error: ErrorCode
    group: ConsumerGroupId
    state: str = "Dead"
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class ListedGroup(NamedTuple):
    """`type` is Kafka's name of the protocol: "classic", or "consumer" (KIP-848)."""

    group: ConsumerGroupId
    protocol_type: str
    state: str
    type: str = "classic"


@attrs.frozen(kw_only=True)
class NameGroupsResponse:
    error: ErrorCode
    names: tuple[ConsumerGroupId, ...] = ()
    """In no order."""


@attrs.frozen(kw_only=True)
class ListGroupsResponse:
    error: ErrorCode
    groups: tuple[ListedGroup, ...] = ()


@attrs.frozen(kw_only=True)
class DeleteGroupResponse:
    error: ErrorCode


@attrs.frozen(kw_only=True)
class AssignedHeartbeatResponse:
    """`assignment` None: unchanged since the last answer."""

    error: ErrorCode
    message: str | None = None
    member_id: MemberId = NO_MEMBER
    epoch: int = 0
    interval_ms: int = 0
    assignment: tuple[TopicIdPartitions, ...] | None = None


class DescribedAssigned(NamedTuple):
    member_id: MemberId
    instance_id: str | None
    rack_id: str | None
    epoch: int
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    pattern: str | None
    assigned: tuple[TopicIdPartitions, ...]
    target: tuple[TopicIdPartitions, ...]
    classic: bool = False
    """It speaks the classic protocol."""


@attrs.frozen(kw_only=True)
class DescribeAssignedResponse:
    error: ErrorCode
    group: ConsumerGroupId
    state: str = "Dead"
    epoch: int = 0
    assignor: str = ""
    members: tuple[DescribedAssigned, ...] = ()


Response: TypeAlias = (
    JoinGroupResponse
    | SyncGroupResponse
    | HeartbeatResponse
    | LeaveGroupResponse
    | OffsetCommitResponse
    | OffsetFetchResponse
    | OffsetDeleteResponse
    | DescribeGroupResponse
    | NameGroupsResponse
    | ListGroupsResponse
    | DeleteGroupResponse
    | AssignedHeartbeatResponse
    | DescribeAssignedResponse
)


CHANGES: Final = frozenset((OffsetCommit, OffsetDelete, DeleteGroup))
"""Requests that change what others read, and take effect at once: the client wants to know whether
they did. Of the other requests (joining, leaving), members see the outcome for themselves."""


def fate_unknown(request: Request) -> Response:
    """The answer if mastership ended before the outcome of the request was known."""
    unknown = type(request) in CHANGES
    error = ErrorCode.REQUEST_TIMED_OUT if unknown else ErrorCode.NOT_COORDINATOR
    return refusal(request, error)


_ONLY_AN_ERROR: Final[Mapping[type, Callable[..., Response]]] = {
    SyncGroup: SyncGroupResponse,
    Heartbeat: HeartbeatResponse,
    LeaveGroup: LeaveGroupResponse,
    OffsetFetch: OffsetFetchResponse,
    OffsetDelete: OffsetDeleteResponse,
    NameGroups: NameGroupsResponse,
    ListGroups: ListGroupsResponse,
    DeleteGroup: DeleteGroupResponse,
}


def refusal(request: Request, error: ErrorCode) -> Response:
    """The response that refuses `request` as a whole."""
    match request:
        case JoinGroup():
            return JoinGroupResponse(error=error, member_id=request.member_id)
        case AssignedHeartbeat():
            return AssignedHeartbeatResponse(error=error, member_id=request.member_id)
        case OffsetCommit():
            return OffsetCommitResponse(
                topics=tuple(
                    TopicErrors(t.topic, tuple(PartitionError(p[0], error) for p in t.partitions))
                    for t in request.topics
                )
            )
        case DescribeGroup():
            return DescribeGroupResponse(error=error, group=request.group)
        case DescribeAssigned():
            return DescribeAssignedResponse(error=error, group=request.group)
        case _:
            return _ONLY_AN_ERROR[type(request)](error=error)


# --- effects --------------------------------------------------------------------------------------


class Reply(NamedTuple):
    token: Token
    response: Response


class Proposal(NamedTuple):
    """Put `command` into an entry of this Paxos group's log, then pass its result to
    `on_committed`.

    `group` is None if the command is about every consumer group of the log.
    """

    proposal_id: ProposalId
    group: ConsumerGroupId | None
    command: bytes


class ProposalFailure(Enum):
    """Why a command will not be applied on behalf of this mastership."""

    NOT_MASTER = "not proposed, this mastership is over"
    UNKNOWN = "mastership lost before the outcome was known"
    OVERLOADED = "refused before it was proposed, a queue is full"


class GroupNotice(NamedTuple):
    """An event that operators may want to know of; `what` is a short code."""

    group: ConsumerGroupId | None
    what: str
    detail: str = ""


@attrs.define(eq=False)
class Effects:
    """What one call asks the caller to do. Replies may be sent at once: nothing has to be
    awaited."""

    replies: list[Reply] = attrs.Factory(list)
    proposals: list[Proposal] = attrs.Factory(list)
    notices: list[GroupNotice] = attrs.Factory(list)
