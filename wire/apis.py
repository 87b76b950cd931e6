"""The table of APIs, and whole frames (header and body): encoding and decoding, for clients and
brokers.

A frame is what follows the 4-byte length prefix. Encoders here INCLUDE that prefix and return a
list of buffers to be sent in order; decoders here expect frames without it, from `wire.framing`.
Header versions: a request has header 1, or 2 if the API version is flexible (KIP-482), and its
client id is never compact. A response has header 0, or 1 if flexible, except that the response of
ApiVersions always has header 0.
"""

import struct
from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeAlias

from wire.api_rows import ROWS
from wire.codec.compiler import decoder, encoder
from wire.codec.prefix import decode_prefix
from wire.codec.primitives import FAILURES, Buffer, bad_length, read_tags, what_failed
from wire.codec.schema import Versions
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages import (
    api_versions,
    assigned_groups,
    configs,
    fetch,
    group_admin,
    leader_epochs,
    list_offsets,
    logs,
    membership,
    metadata,
    offsets,
    placement,
    produce,
    producer_ids,
    sasl,
    security,
    topics,
    transactions,
)
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse


class ApiKey(IntEnum):
    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


Request: TypeAlias = (
    produce.ProduceRequest
    | fetch.FetchRequest
    | list_offsets.ListOffsetsRequest
    | metadata.MetadataRequest
    | offsets.OffsetCommitRequest
    | offsets.OffsetFetchRequest
    | membership.FindCoordinatorRequest
    | membership.JoinGroupRequest
    | membership.HeartbeatRequest
    | membership.LeaveGroupRequest
    | membership.SyncGroupRequest
    | group_admin.DescribeGroupsRequest
    | group_admin.ListGroupsRequest
    | api_versions.ApiVersionsRequest
    | topics.CreateTopicsRequest
    | topics.DeleteTopicsRequest
    | producer_ids.InitProducerIdRequest
    | leader_epochs.OffsetForLeaderEpochRequest
    | configs.DescribeConfigsRequest
    | topics.CreatePartitionsRequest
    | group_admin.DeleteGroupsRequest
    | metadata.DescribeClusterRequest
    | logs.DeleteRecordsRequest
    | configs.AlterConfigsRequest
    | logs.DescribeLogDirsRequest
    | placement.ElectLeadersRequest
    | configs.IncrementalAlterConfigsRequest
    | placement.AlterPartitionReassignmentsRequest
    | placement.ListPartitionReassignmentsRequest
    | offsets.OffsetDeleteRequest
    | assigned_groups.ConsumerGroupHeartbeatRequest
    | assigned_groups.ConsumerGroupDescribeRequest
    | sasl.SaslHandshakeRequest
    | sasl.SaslAuthenticateRequest
    | transactions.AddPartitionsToTxnRequest
    | transactions.AddOffsetsToTxnRequest
    | transactions.EndTxnRequest
    | transactions.TxnOffsetCommitRequest
    | security.DescribeAclsRequest
    | security.CreateAclsRequest
    | security.DeleteAclsRequest
    | logs.AlterReplicaLogDirsRequest
    | security.CreateDelegationTokenRequest
    | security.RenewDelegationTokenRequest
    | security.ExpireDelegationTokenRequest
    | security.DescribeDelegationTokenRequest
    | security.DescribeClientQuotasRequest
    | security.AlterClientQuotasRequest
    | security.DescribeUserScramCredentialsRequest
    | security.AlterUserScramCredentialsRequest
    | metadata.DescribeQuorumRequest
    | producer_ids.DescribeProducersRequest
    | metadata.UnregisterBrokerRequest
    | transactions.DescribeTransactionsRequest
    | transactions.ListTransactionsRequest
    | configs.ListConfigResourcesRequest
    | metadata.DescribeTopicPartitionsRequest
)

Response: TypeAlias = (
    produce.ProduceResponse
    | fetch.FetchResponse
    | list_offsets.ListOffsetsResponse
    | metadata.MetadataResponse
    | offsets.OffsetCommitResponse
    | offsets.OffsetFetchResponse
    | membership.FindCoordinatorResponse
    | membership.JoinGroupResponse
    | membership.HeartbeatResponse
    | membership.LeaveGroupResponse
    | membership.SyncGroupResponse
    | group_admin.DescribeGroupsResponse
    | group_admin.ListGroupsResponse
    | api_versions.ApiVersionsResponse
    | topics.CreateTopicsResponse
    | topics.DeleteTopicsResponse
    | producer_ids.InitProducerIdResponse
    | leader_epochs.OffsetForLeaderEpochResponse
    | configs.DescribeConfigsResponse
    | topics.CreatePartitionsResponse
    | group_admin.DeleteGroupsResponse
    | metadata.DescribeClusterResponse
    | logs.DeleteRecordsResponse
    | configs.AlterConfigsResponse
    | logs.DescribeLogDirsResponse
    | placement.ElectLeadersResponse
    | configs.IncrementalAlterConfigsResponse
    | placement.AlterPartitionReassignmentsResponse
    | placement.ListPartitionReassignmentsResponse
    | offsets.OffsetDeleteResponse
    | assigned_groups.ConsumerGroupHeartbeatResponse
    | assigned_groups.ConsumerGroupDescribeResponse
    | sasl.SaslHandshakeResponse
    | sasl.SaslAuthenticateResponse
    | transactions.AddPartitionsToTxnResponse
    | transactions.AddOffsetsToTxnResponse
    | transactions.EndTxnResponse
    | transactions.TxnOffsetCommitResponse
    | security.DescribeAclsResponse
    | security.CreateAclsResponse
    | security.DeleteAclsResponse
    | logs.AlterReplicaLogDirsResponse
    | security.CreateDelegationTokenResponse
    | security.RenewDelegationTokenResponse
    | security.ExpireDelegationTokenResponse
    | security.DescribeDelegationTokenResponse
    | security.DescribeClientQuotasResponse
    | security.AlterClientQuotasResponse
    | security.DescribeUserScramCredentialsResponse
    | security.AlterUserScramCredentialsResponse
    | metadata.DescribeQuorumResponse
    | producer_ids.DescribeProducersResponse
    | metadata.UnregisterBrokerResponse
    | transactions.DescribeTransactionsResponse
    | transactions.ListTransactionsResponse
    | configs.ListConfigResourcesResponse
    | metadata.DescribeTopicPartitionsResponse
)


class Api(NamedTuple):
    """One row of the table. `advertised` is what ApiVersions says, `accepted` what we decode."""

    key: ApiKey
    name: str
    request: type[Request]
    response: type[Response]
    advertised: Versions
    accepted: Versions
    flexible_from: int

    def flexible(self, version: int) -> bool:
        return version >= self.flexible_from

    def response_header_version(self, version: int) -> int:
        return 1 if self.flexible(version) and self.key is not ApiKey.API_VERSIONS else 0

    def common_version(self, theirs: ApiVersion | None, at_most: int) -> int | None:
        """The newest version up to `at_most` that both sides speak; None if there is none."""
        if theirs is None:
            return None
        version = min(at_most, theirs.max_version)
        return version if version >= max(self.accepted.first, theirs.min_version) else None


APIS: Final[dict[int, Api]] = {
    row.key: Api(
        ApiKey(row.key),
        row.name,
        row.request,
        row.response,
        Versions.parse(row.advertised or row.accepted),
        Versions.parse(row.accepted),
        row.flexible_from,
    )
    for row in ROWS
}
_API_OF_REQUEST: Final[dict[type, Api]] = {row.request: row for row in APIS.values()}


class RequestHeader(NamedTuple):
    """The request's head; its body begins at byte `body_offset` of the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_offset: int


class UnsupportedVersion(NamedTuple):
    """A request of a version that we do not accept; `encode_unsupported` answers it."""

    api_key: int
    api_version: int
    correlation_id: int


_REQUEST_HEAD: Final = struct.Struct(">hhih")
_PREFIXED_HEAD: Final = struct.Struct(">ihhih")
_LENGTH: Final = struct.Struct(">i")
_RESPONSE_HEAD: Final = struct.Struct(">ii")
_FLEXIBLE_RESPONSE_HEAD: Final = struct.Struct(">iix")
_CORRELATION_ID: Final = struct.Struct(">i")
_ERROR_CODE: Final = struct.Struct(">h")


class _Codec(NamedTuple):
    """The server side of one version of one API, looked up once per frame."""

    flexible_header: bool
    flexible_answer: bool
    decode_request: Callable[[memoryview, int], Any]
    encode_response: Callable[[Any, bytearray], list[Buffer]]


_codecs: Final[dict[tuple[int, int], _Codec]] = {}


def _codec(api_key: int, api_version: int) -> _Codec | None:
    """Compile the server side of a version at its first use; None if it is not accepted."""
    api = APIS.get(api_key)
    if api is None or not api.accepted.has(api_version):
        return None
    flexible = api.flexible(api_version)
    codec = _Codec(
        flexible,
        api.response_header_version(api_version) == 1,
        decoder(api.request, api_version, flexible),
        encoder(api.response, api_version, flexible),
    )
    _codecs[api_key, api_version] = codec
    return codec


def _accepted_codec(api_key: int, api_version: int) -> _Codec:
    codec = _codec(api_key, api_version)
    assert codec is not None, f"API {api_key} v{api_version} is not supported here"
    return codec


def prepare(keys: Iterable[ApiKey]) -> None:
    """Compile the server side of all accepted versions now rather than at a first request."""
    for key in keys:
        accepted = APIS[key].accepted
        for version in range(accepted.first, accepted.last + 1):
            _accepted_codec(key, version)


def parse_request_header(frame: memoryview) -> RequestHeader | UnsupportedVersion:
    """Read a request's header and check its version.

    Raises:
        ProtocolError: the bytes are not a request header.
    """
    pos = 0
    try:
        api_key, api_version, correlation_id, size = _REQUEST_HEAD.unpack_from(frame)
        codec = _codecs.get((api_key, api_version)) or _codec(api_key, api_version)
        if codec is None:
            return UnsupportedVersion(api_key, api_version, correlation_id)
        pos = _REQUEST_HEAD.size
        client_id = None
        if size >= 0:
            stop = pos + size
            if stop > len(frame):
                raise bad_length(size, len(frame) - pos)
            client_id = frame[pos:stop].tobytes().decode()
            pos = stop
        elif size != -1:
            raise bad_length(size, len(frame) - pos)
        if codec.flexible_header:
            tags = frame[pos]
            pos += 1
            if tags:
                pos = read_tags(frame, pos, tags, None, {})
    except FAILURES as error:
        raise ProtocolError(what_failed(error), "RequestHeader", pos) from error
    values = (api_key, api_version, correlation_id, client_id, pos)
    return tuple.__new__(RequestHeader, values)  # half the cost of RequestHeader()


def decode_request(header: RequestHeader, frame: memoryview) -> Request:
    """Decode the body; strings and metadata are copied, records are views of `frame`.

    Raises:
        ProtocolError: the body is malformed. Bytes after it are ignored (librdkafka 2.16 was seen
            to send some).
    """
    key = header.api_key, header.api_version
    codec = _codecs.get(key) or _accepted_codec(*key)
    message: Request = codec.decode_request(frame, header.body_offset)
    return message


def decode_request_prefix(header: RequestHeader, prefix: memoryview) -> Request:
    """Decode the kept beginning of a request whose frame was too long (wire.codec.prefix).

    Raises:
        ProtocolError: the kept bytes are malformed.
    """
    api = APIS[header.api_key]
    flexible = api.flexible(header.api_version)
    message: Request = decode_prefix(
        api.request, header.api_version, flexible=flexible, view=prefix, pos=header.body_offset
    )
    return message


def encode_response(header: RequestHeader, message: Response) -> list[Buffer]:
    """The whole response to the request with this header, length prefix included."""
    key = header.api_key, header.api_version
    codec = _codecs.get(key) or _accepted_codec(*key)
    if codec.flexible_answer:
        out = bytearray(_FLEXIBLE_RESPONSE_HEAD.pack(0, header.correlation_id))
    else:
        out = bytearray(_RESPONSE_HEAD.pack(0, header.correlation_id))
    return _with_length(codec.encode_response(message, out))


def _with_length(chunks: list[Buffer]) -> list[Buffer]:
    """Fill in the length prefix, for which the first four bytes of the first chunk are free."""
    head = chunks[0]
    assert isinstance(head, bytearray)
    _LENGTH.pack_into(head, 0, sum(map(len, chunks)) - _LENGTH.size)
    return chunks


def advertised() -> list[ApiVersion]:
    """The contents of the ApiVersions response, in order of the keys."""
    return [ApiVersion(int(row.key), *row.advertised) for row in APIS.values()]


def encode_unsupported(request: UnsupportedVersion) -> list[Buffer] | None:
    """The response that refuses a version; None if Kafka has none and closes the connection.

    Only ApiVersions has one that every client can read: a version 0 body with error 35 that lists
    ApiVersions itself (KIP-511). For other APIs we do not know the format of the response.
    """
    if request.api_key != ApiKey.API_VERSIONS:
        return None
    own = APIS[ApiKey.API_VERSIONS]
    message = ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(int(own.key), *own.advertised)],
    )
    header = RequestHeader(request.api_key, 0, request.correlation_id, None, 0)
    return encode_response(header, message)


def api_of(request: type[Request]) -> Api:
    """The row of a request class."""
    return _API_OF_REQUEST[request]


def encode_request(
    message: Request, api_version: int, correlation_id: int, client_id: str | None
) -> list[Buffer]:
    """A whole request, length prefix included, as a client sends it."""
    api = _API_OF_REQUEST[type(message)]
    assert api.accepted.has(api_version), f"{api.name} v{api_version} is not supported here"
    flexible = api.flexible(api_version)
    name = b"" if client_id is None else client_id.encode()
    size = -1 if client_id is None else len(name)
    out = bytearray(_PREFIXED_HEAD.pack(0, api.key, api_version, correlation_id, size))
    out += name
    if flexible:
        out.append(0)
    return _with_length(encoder(api.request, api_version, flexible)(message, out))


def response_correlation_id(frame: memoryview) -> int:
    """The id of the request that a response answers; a response names no API and no version.

    Raises:
        ProtocolError: the frame is too short for it.
    """
    if len(frame) < _CORRELATION_ID.size:
        raise ProtocolError("cut short", "ResponseHeader", 0)
    correlation_id: int = _CORRELATION_ID.unpack_from(frame)[0]
    return correlation_id


def decode_response(api_key: int, api_version: int, frame: memoryview) -> Response:
    """Decode the response to a request that was sent in this version.

    An ApiVersions response with error UNSUPPORTED_VERSION is decoded as version 0, whatever version
    was requested. If that fails it counts as a response without versions: librdkafka's mock cluster
    has its own format for it.

    Raises:
        ProtocolError: the frame is malformed.
    """
    api = APIS[api_key]
    assert api.accepted.has(api_version), f"{api.name} v{api_version} is not supported here"
    pos = _CORRELATION_ID.size
    refused = False
    try:
        if api.response_header_version(api_version) == 1:
            tags = frame[pos]
            pos = read_tags(frame, pos + 1, tags, None, {}) if tags else pos + 1
        elif (
            api.key is ApiKey.API_VERSIONS
            and _ERROR_CODE.unpack_from(frame, pos)[0] == ErrorCode.UNSUPPORTED_VERSION
        ):
            api_version, refused = 0, True
    except FAILURES as error:
        raise ProtocolError(what_failed(error), "ResponseHeader", pos) from error
    decode = decoder(api.response, api_version, api.flexible(api_version))
    try:
        message: Response = decode(frame, pos)
    except ProtocolError:
        if not refused:
            raise
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return message
