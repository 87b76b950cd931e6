"""The classic consumer group: FindCoordinator, JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

Keys 10, 11, 14, 12 and 13. Static membership is KIP-345, batched leaving its version 3.
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int8, int16, int32, octets, string, string_array


@attrs.define
class FindCoordinatorRequest:
    """`key_type` is 0 for a group, 1 for a transactional id; many keys from version 4 on."""

    key: str = string("0-3")
    key_type: int = int8("1+")
    coordinator_keys: list[str] = string_array("4+")


@attrs.define
class Coordinator:
    key: str = string()
    node_id: int = int32()
    host: str = string()
    port: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class FindCoordinatorResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16("0-3")
    coordinators: list[Coordinator] = array(Coordinator, "4+")
    error_message: str | None = string("1-3", nullable="0+")
    node_id: int = int32("0-3")
    host: str = string("0-3")
    port: int = int32("0-3")


@attrs.define
class JoinGroupRequestProtocol:
    """An assignment protocol that a member supports; `metadata` is opaque to the coordinator."""

    name: str = string()
    metadata: bytes = octets()


@attrs.define
class JoinGroupRequest:
    """`rebalance_timeout_ms` is -1 in version 0, which uses the session timeout for both."""

    group_id: str = string()
    session_timeout_ms: int = int32()
    rebalance_timeout_ms: int = int32("1+", default=-1)
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+")
    protocol_type: str = string()
    protocols: list[JoinGroupRequestProtocol] = array(JoinGroupRequestProtocol)
    reason: str | None = string("8+", nullable="0+")


@attrs.define
class JoinGroupResponseMember:
    member_id: str = string()
    group_instance_id: str | None = string("5+", nullable="0+")
    metadata: bytes = octets()


@attrs.define
class JoinGroupResponse:
    """`members` is only filled for the leader, which computes the assignment."""

    throttle_time_ms: int = int32("2+")
    error_code: int = int16()
    generation_id: int = int32(default=-1)
    protocol_type: str | None = string("7+", nullable="0+")
    protocol_name: str | None = string(nullable="7+")
    leader: str = string()
    skip_assignment: bool = boolean("9+")
    member_id: str = string()
    members: list[JoinGroupResponseMember] = array(JoinGroupResponseMember)


@attrs.define
class SyncGroupRequestAssignment:
    member_id: str = string()
    assignment: bytes = octets()


@attrs.define
class SyncGroupRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+")
    protocol_type: str | None = string("5+", nullable="0+")
    protocol_name: str | None = string("5+", nullable="0+")
    assignments: list[SyncGroupRequestAssignment] = array(SyncGroupRequestAssignment)


@attrs.define
class SyncGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    protocol_type: str | None = string("5+", nullable="0+")
    protocol_name: str | None = string("5+", nullable="0+")
    assignment: bytes = octets()


@attrs.define
class HeartbeatRequest:
    group_id: str = string()
    generation_id: int = int32()
    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="0+")


@attrs.define
class HeartbeatResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()


@attrs.define
class MemberIdentity:
    """A member that leaves; one request may name several since version 3."""

    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    reason: str | None = string("5+", nullable="0+")


@attrs.define
class LeaveGroupRequest:
    group_id: str = string()
    member_id: str = string("0-2")
    members: list[MemberIdentity] = array(MemberIdentity, "3+")


@attrs.define
class MemberResponse:
    member_id: str = string()
    group_instance_id: str | None = string(nullable="0+")
    error_code: int = int16()


@attrs.define
class LeaveGroupResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    members: list[MemberResponse] = array(MemberResponse, "3+")
