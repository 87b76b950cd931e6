"""ACLs (keys 29-31), delegation tokens (38-41), quotas (48, 49) and SCRAM credentials (50, 51).

There is none of it here yet. Tools ask for it all the same, and get the answer of a Kafka without
an authorizer, tokens and quotas (broker.handlers.cluster.absent).
"""

# ruff: noqa: RUF009  (a specifier is an attrs.field: it makes no value that instances would share)

import attrs

from wire.codec.schema import (
    array,
    boolean,
    float64,
    int8,
    int16,
    int32,
    int64,
    octets,
    string,
)


@attrs.define
class DescribeAclsRequest:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@attrs.define
class AclDescription:
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@attrs.define
class DescribeAclsResource:
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    acls: list[AclDescription] = array(AclDescription)


@attrs.define
class DescribeAclsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resources: list[DescribeAclsResource] = array(DescribeAclsResource)


@attrs.define
class AclCreation:
    resource_type: int = int8()
    resource_name: str = string()
    resource_pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@attrs.define
class CreateAclsRequest:
    creations: list[AclCreation] = array(AclCreation)


@attrs.define
class AclCreationResult:
    """One for each creation, in their order."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class CreateAclsResponse:
    throttle_time_ms: int = int32()
    results: list[AclCreationResult] = array(AclCreationResult)


@attrs.define
class DeleteAclsFilter:
    resource_type_filter: int = int8()
    resource_name_filter: str | None = string(nullable="0+")
    pattern_type_filter: int = int8(default=3)
    principal_filter: str | None = string(nullable="0+")
    host_filter: str | None = string(nullable="0+")
    operation: int = int8()
    permission_type: int = int8()


@attrs.define
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = array(DeleteAclsFilter)


@attrs.define
class DeleteAclsMatchingAcl:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    resource_type: int = int8()
    resource_name: str = string()
    pattern_type: int = int8(default=3)
    principal: str = string()
    host: str = string()
    operation: int = int8()
    permission_type: int = int8()


@attrs.define
class DeleteAclsFilterResult:
    """One for each filter, in their order."""

    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    matching_acls: list[DeleteAclsMatchingAcl] = array(DeleteAclsMatchingAcl)


@attrs.define
class DeleteAclsResponse:
    throttle_time_ms: int = int32()
    filter_results: list[DeleteAclsFilterResult] = array(DeleteAclsFilterResult)


# -- delegation tokens (KIP-48) --------------------------------------------------------------------


@attrs.define
class TokenPrincipal:
    """An owner or a renewer."""

    principal_type: str = string()
    principal_name: str = string()


@attrs.define
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = string("3+", nullable="3+")
    owner_principal_name: str | None = string("3+", nullable="3+")
    renewers: list[TokenPrincipal] = array(TokenPrincipal)
    max_lifetime_ms: int = int64()


@attrs.define
class CreateDelegationTokenResponse:
    error_code: int = int16()
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp_ms: int = int64()
    expiry_timestamp_ms: int = int64()
    max_timestamp_ms: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    throttle_time_ms: int = int32()


@attrs.define
class RenewDelegationTokenRequest:
    hmac: bytes = octets()
    renew_period_ms: int = int64()


@attrs.define
class RenewDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@attrs.define
class ExpireDelegationTokenRequest:
    hmac: bytes = octets()
    expiry_time_period_ms: int = int64()


@attrs.define
class ExpireDelegationTokenResponse:
    error_code: int = int16()
    expiry_timestamp_ms: int = int64()
    throttle_time_ms: int = int32()


@attrs.define
class DescribeDelegationTokenRequest:
    """`owners` null means all tokens."""

    owners: list[TokenPrincipal] | None = array(TokenPrincipal, nullable="0+")


@attrs.define
class DescribedDelegationToken:
    principal_type: str = string()
    principal_name: str = string()
    token_requester_principal_type: str = string("3+")
    token_requester_principal_name: str = string("3+")
    issue_timestamp: int = int64()
    expiry_timestamp: int = int64()
    max_timestamp: int = int64()
    token_id: str = string()
    hmac: bytes = octets()
    renewers: list[TokenPrincipal] = array(TokenPrincipal)


@attrs.define
class DescribeDelegationTokenResponse:
    error_code: int = int16()
    tokens: list[DescribedDelegationToken] = array(DescribedDelegationToken)
    throttle_time_ms: int = int32()


# -- quotas (KIP-546) ------------------------------------------------------------------------------


@attrs.define
class QuotaFilter:
    """`match_type`: 0 an exact name, 1 the default, 2 any name."""

    entity_type: str = string()
    match_type: int = int8()
    match: str | None = string(nullable="0+")


@attrs.define
class DescribeClientQuotasRequest:
    components: list[QuotaFilter] = array(QuotaFilter)
    strict: bool = boolean()


@attrs.define
class QuotaEntity:
    """A null name stands for the default."""

    entity_type: str = string()
    entity_name: str | None = string(nullable="0+")


@attrs.define
class QuotaValue:
    key: str = string()
    value: float = float64()


@attrs.define
class DescribedQuota:
    entity: list[QuotaEntity] = array(QuotaEntity)
    values: list[QuotaValue] = array(QuotaValue)


@attrs.define
class DescribeClientQuotasResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entries: list[DescribedQuota] | None = array(DescribedQuota, nullable="0+")


@attrs.define
class QuotaChange:
    key: str = string()
    value: float = float64()
    remove: bool = boolean()


@attrs.define
class AlterQuotaEntry:
    entity: list[QuotaEntity] = array(QuotaEntity)
    ops: list[QuotaChange] = array(QuotaChange)


@attrs.define
class AlterClientQuotasRequest:
    entries: list[AlterQuotaEntry] = array(AlterQuotaEntry)
    validate_only: bool = boolean()


@attrs.define
class AlteredQuotaEntry:
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    entity: list[QuotaEntity] = array(QuotaEntity)


@attrs.define
class AlterClientQuotasResponse:
    throttle_time_ms: int = int32()
    entries: list[AlteredQuotaEntry] = array(AlteredQuotaEntry)


# -- SCRAM credentials (KIP-554) -------------------------------------------------------------------


@attrs.define
class ScramUserName:
    name: str = string()


@attrs.define
class DescribeUserScramCredentialsRequest:
    """`users` null or empty means all."""

    users: list[ScramUserName] | None = array(ScramUserName, nullable="0+")


@attrs.define
class ScramCredentialInfo:
    mechanism: int = int8()
    iterations: int = int32()


@attrs.define
class DescribedScramUser:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    credential_infos: list[ScramCredentialInfo] = array(ScramCredentialInfo)


@attrs.define
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")
    results: list[DescribedScramUser] = array(DescribedScramUser)


@attrs.define
class ScramCredentialDeletion:
    name: str = string()
    mechanism: int = int8()


@attrs.define
class ScramCredentialUpsertion:
    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = octets()
    salted_password: bytes = octets()


@attrs.define
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@attrs.define
class AlteredScramUser:
    user: str = string()
    error_code: int = int16()
    error_message: str | None = string(nullable="0+")


@attrs.define
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = int32()
    results: list[AlteredScramUser] = array(AlteredScramUser)
