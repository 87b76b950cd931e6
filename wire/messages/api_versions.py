"""ApiVersions (key 18): the first request of a client.

Its response always has header version 0, so that a client which guessed too high a version can read
the refusal (KIP-511); the refusal itself is a version 0 body.
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import array, boolean, int16, int32, int64, string


@attrs.define
class ApiVersionsRequest:
    """The client's name and version (KIP-511); only for operators."""

    client_software_name: str = string("3+")
    client_software_version: str = string("3+")


@attrs.define
class ApiVersion:
    api_key: int = int16()
    min_version: int = int16()
    max_version: int = int16()


@attrs.define
class SupportedFeatureKey:
    name: str = string()
    min_version: int = int16()
    max_version: int = int16()


@attrs.define
class FinalizedFeatureKey:
    name: str = string()
    max_version_level: int = int16()
    min_version_level: int = int16()


@attrs.define
class ApiVersionsResponse:
    error_code: int = int16()
    api_keys: list[ApiVersion] = array(ApiVersion)
    throttle_time_ms: int = int32("1+")
    supported_features: list[SupportedFeatureKey] = array(SupportedFeatureKey, "3+", tag=0)
    finalized_features_epoch: int = int64("3+", default=-1, tag=1)
    finalized_features: list[FinalizedFeatureKey] = array(FinalizedFeatureKey, "3+", tag=2)
    zk_migration_ready: bool = boolean("3+", tag=3)
