"""DescribeGroups (key 15), ListGroups (16) and DeleteGroups (42)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int16, int32, octets, string, string_array


@attrs.define
class DescribeGroupsRequest:
    groups: list[str] = string_array()
    include_authorized_operations: bool = boolean("3+")


@attrs.define
class DescribedGroupMember:
    """`client_host` starts with a slash, as Java prints addresses."""

    member_id: str = string()
    group_instance_id: str | None = string("4+", nullable="0+")
    client_id: str = string()
    client_host: str = string()
    member_metadata: bytes = octets()
    member_assignment: bytes = octets()


@attrs.define
class DescribedGroup:
    """From version 6 on an unknown consumer group is an error, and not "Dead" (KIP-1043)."""

    error_code: int = int16()
    error_message: str | None = string("6+", nullable="6+")
    group_id: str = string()
    group_state: str = string()
    protocol_type: str = string()
    protocol_data: str = string()
    members: list[DescribedGroupMember] = array(DescribedGroupMember)
    authorized_operations: int = int32("3+", default=-2147483648)


@attrs.define
class DescribeGroupsResponse:
    throttle_time_ms: int = int32("1+")
    groups: list[DescribedGroup] = array(DescribedGroup)


@attrs.define
class ListGroupsRequest:
    states_filter: list[str] = string_array("4+")
    types_filter: list[str] = string_array("5+")


@attrs.define
class ListedGroup:
    group_id: str = string()
    protocol_type: str = string()
    group_state: str = string("4+")
    group_type: str = string("5+")


@attrs.define
class ListGroupsResponse:
    throttle_time_ms: int = int32("1+")
    error_code: int = int16()
    groups: list[ListedGroup] = array(ListedGroup)


@attrs.define
class DeleteGroupsRequest:
    groups_names: list[str] = string_array()


@attrs.define
class DeletableGroupResult:
    group_id: str = string()
    error_code: int = int16()


@attrs.define
class DeleteGroupsResponse:
    throttle_time_ms: int = int32()
    results: list[DeletableGroupResult] = array(DeletableGroupResult)
