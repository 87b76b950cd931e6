"""DescribeConfigs (key 32), AlterConfigs (33), IncrementalAlterConfigs (44, KIP-339) and
ListConfigResources (74, KIP-1142)."""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    int8,
    int8_array,
    int16,
    int32,
    string,
    string_array,
)


@attrs.define
class DescribeConfigsResource:
    """`resource_type` is 2 for a topic, 4 for a broker; `configuration_keys` null means all."""

    resource_type: int = int8()
    resource_name: str = string()
    configuration_keys: list[str] | None = string_array(nullable="0+")


@attrs.define
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


@attrs.define
class DescribeConfigsSynonym:
    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


@attrs.define
class DescribeConfigsResourceResult:
    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    documentation: str | None = string("3+", nullable="0+")


@attrs.define
class DescribeConfigsResult:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


@attrs.define
class DescribeConfigsResponse:
    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


@attrs.define
class AlterableConfig:
    name: str = string()
    value: str | None = string(nullable="0+")


@attrs.define
class AlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


@attrs.define
class AlterConfigsRequest:
    """Replaces all settings of a resource: those not named go back to their defaults."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


@attrs.define
class AlterConfigsResourceResponse:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()


@attrs.define
class AlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@attrs.define
class IncrementalAlterableConfig:
    """`config_operation`: 0 sets, 1 deletes, 2 appends to a list, 3 removes from a list."""

    name: str = string()
    config_operation: int = int8()
    value: str | None = string(nullable="0+")


@attrs.define
class IncrementalAlterConfigsResource:
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[IncrementalAlterableConfig] = array(IncrementalAlterableConfig)


@attrs.define
class IncrementalAlterConfigsRequest:
    resources: list[IncrementalAlterConfigsResource] = array(IncrementalAlterConfigsResource)
    validate_only: bool = boolean()


@attrs.define
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


@attrs.define
class ListConfigResourcesRequest:
    """Version 0 is about client metrics alone. No types means all (KIP-1142)."""

    resource_types: list[int] = int8_array("1+")


@attrs.define
class ListedConfigResource:
    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


@attrs.define
class ListConfigResourcesResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ListedConfigResource] = array(ListedConfigResource)
