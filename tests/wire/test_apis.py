"""Frames as on the wire, and the answers to versions that we do not support."""

import pytest

from tests.wire.messages_of import body
from wire.apis import (
    APIS,
    ApiKey,
    RequestHeader,
    UnsupportedVersion,
    advertised,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    encode_unsupported,
    parse_request_header,
    prepare,
    response_correlation_id,
)
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from wire.messages.common import LeaderIdAndEpoch, NodeEndpoint
from wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
    ProgressReport,
    ReportProgress,
)
from wire.messages.membership import JoinGroupResponse
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

# (message, version, the request after its length prefix), written by hand from the protocol.
GOLDEN_REQUESTS = [
    (
        ApiVersionsRequest("librdkafka", "2.16.0"),
        3,
        "0012 0003 00000007 0007 72646b61666b61 00"  # header 2: client id "rdkafka", no tags
        "0b 6c696272646b61666b61 07 322e31362e30 00",
    ),
    (
        MetadataRequest([MetadataRequestTopic(name="t")], allow_auto_topic_creation=False),
        4,
        "0003 0004 00000007 0007 72646b61666b61 00000001 0001 74 00",
    ),
    (
        ProduceRequest(
            None, -1, 30_000, [TopicProduceData("t", [PartitionProduceData(5, memoryview(b"RB"))])]
        ),
        7,
        "0000 0007 00000007 0007 72646b61666b61"
        "ffff ffff 00007530 00000001 0001 74 00000001 00000005 00000002 5242",
    ),
    (
        ProduceRequest(
            None, -1, 30_000, [TopicProduceData("t", [PartitionProduceData(5, memoryview(b"RB"))])]
        ),
        9,
        "0000 0009 00000007 0007 72646b61666b61 00"
        "00 ffff 00007530 02 02 74 02 00000005 03 5242 00 00 00",
    ),
    (
        FetchRequest(max_wait_ms=500, min_bytes=1, progress=ProgressReport(3, 4)),
        12,
        "0001 000c 00000007 0007 72646b61666b61 00"
        "ffffffff 000001f4 00000001 7fffffff 00 00000000 ffffffff 01 01 01"
        "01 904e 11 0000000000000003 0000000000000004 00",  # one tag: 10000, 17 bytes
    ),
]

GOLDEN_RESPONSES = [
    (
        ApiKey.API_VERSIONS,
        ApiVersionsResponse(0, [ApiVersion(18, 0, 4)]),
        3,
        "00000007 0000 02 0012 0000 0004 00 00000000 00",  # header 0 although the body is flexible
    ),
    (
        ApiKey.PRODUCE,
        ProduceResponse(
            [
                TopicProduceResponse(
                    "t",
                    [
                        PartitionProduceResponse(
                            5, 6, -1, current_leader=LeaderIdAndEpoch(2, 9), log_start_offset=0
                        )
                    ],
                )
            ],
            0,
            [NodeEndpoint(2, "h", 9092, None)],
        ),
        10,
        "00000007 00"
        "02 02 74 02 00000005 0006 ffffffffffffffff ffffffffffffffff 0000000000000000 01 00"
        "01 00 09 00000002 00000009 00"  # one tag: 0, 9 bytes, leader 2, epoch 9, no tags
        "00 00000000"
        "01 00 0d 02 00000002 02 68 00002384 00 00",  # one tag: 0, 13 bytes, one endpoint
    ),
    (
        ApiKey.FETCH,
        FetchResponse(
            responses=[
                FetchableTopicResponse(
                    "t",
                    partitions=[
                        PartitionData(
                            5,
                            0,
                            9,
                            9,
                            0,
                            report_progress=ReportProgress(6, 50),
                            records=memoryview(b""),
                        )
                    ],
                )
            ]
        ),
        12,
        "00000007 00 00000000 0000 00000000 02 02 74 02"
        "00000005 0000 0000000000000009 0000000000000009 0000000000000000 00 ffffffff 01"
        "01 904e 0d 0000000000000006 00000032 00 00 00",  # one tag: 10000, 13 bytes
    ),
]


@pytest.mark.parametrize(("message", "version", "expected"), GOLDEN_REQUESTS)
def test_golden_requests(message: MetadataRequest, version: int, expected: str) -> None:
    frame = body(encode_request(message, version, 7, "rdkafka"))
    assert frame.hex() == bytes.fromhex(expected).hex()
    header = parse_request_header(memoryview(frame))
    assert isinstance(header, RequestHeader)
    assert header.client_id == "rdkafka"
    assert decode_request(header, memoryview(frame)) == message


@pytest.mark.parametrize(("key", "message", "version", "expected"), GOLDEN_RESPONSES)
def test_golden_responses(
    key: ApiKey, message: ProduceResponse, version: int, expected: str
) -> None:
    frame = body(encode_response(RequestHeader(key, version, 7, None, 0), message))
    assert frame.hex() == bytes.fromhex(expected).hex()
    assert response_correlation_id(memoryview(frame)) == 7
    assert decode_response(key, version, memoryview(frame)) == message


def test_records_are_neither_copied_in_nor_out() -> None:
    """Produce passes on views of the frame; Fetch sends the very buffers that it was given."""
    payload = bytes(5000)
    request = ProduceRequest(
        topic_data=[TopicProduceData("t", [PartitionProduceData(0, memoryview(payload))])]
    )
    frame = bytearray(body(encode_request(request, 9, 1, None)))
    header = parse_request_header(memoryview(frame))
    assert isinstance(header, RequestHeader)
    decoded = decode_request(header, memoryview(frame))
    assert isinstance(decoded, ProduceRequest)
    view = decoded.topic_data[0].partition_data[0].records
    assert view is not None
    assert view.obj is frame

    head, first, second = b"h" * 16, memoryview(payload), b"p" * 3000
    partitions = [PartitionData(0, 0, 9, records=[head, first, second]), PartitionData(1)]
    response = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
    chunks = encode_response(RequestHeader(ApiKey.FETCH, 12, 1, None, 0), response)
    assert [chunk for chunk in chunks if chunk is first or chunk is second] == [first, second]
    assert len(chunks) == 4  # everything else joined, the 16 patched bytes too
    whole = decode_response(ApiKey.FETCH, 12, memoryview(body(chunks)))
    assert isinstance(whole, FetchResponse)
    assert whole.responses[0].partitions[0].records == head + payload + second
    assert whole.responses[0].partitions[1].records is None


def test_a_too_new_api_versions_request_is_refused_in_version_0() -> None:
    frame = memoryview(bytes.fromhex("0012 0005 00000007 0002 6d65 00 09"))
    refused = parse_request_header(frame)
    assert refused == UnsupportedVersion(18, 5, 7)
    chunks = encode_unsupported(refused)
    assert chunks is not None
    answer = body(chunks)
    assert answer.hex() == bytes.fromhex("00000007 0023 00000001 0012 0000 0004").hex()
    response = decode_response(ApiKey.API_VERSIONS, 4, memoryview(answer))
    assert response == ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, [ApiVersion(18, 0, 4)])


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 11), (1, 3), (1, 17), (4, 0), (-1, 0)])
def test_other_versions_have_no_answer(key: int, version: int) -> None:
    head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big")
    refused = parse_request_header(memoryview(head + bytes.fromhex("00000007 ffff")))
    assert refused == UnsupportedVersion(key, version, 7)
    assert encode_unsupported(refused) is None


def test_what_is_advertised() -> None:
    """Old librdkafka switches features on by exact versions (kafka.md section 2)."""
    ranges = {one.api_key: (one.min_version, one.max_version) for one in advertised()}
    assert ranges[ApiKey.PRODUCE] == (0, 10)
    assert ranges[ApiKey.FETCH] == (4, 16)
    assert ranges[ApiKey.METADATA] == (0, 13)
    assert all(ranges[key][0] == 0 for key in (10, 11, 12, 13, 14, 18, 22))
    assert len(ranges) == len(APIS)


def test_prepare_compiles_every_version() -> None:
    prepare(APIS[key].key for key in APIS)
    for api in APIS.values():
        for version in range(api.accepted.first, api.accepted.last + 1):
            header = RequestHeader(api.key, version, 1, None, 0)
            assert encode_response(header, api.response())


def test_a_version_we_do_not_speak_is_our_own_bug() -> None:
    with pytest.raises(AssertionError):
        encode_request(ProduceRequest(), 2, 1, None)
    with pytest.raises(AssertionError):
        encode_response(RequestHeader(ApiKey.PRODUCE, 2, 1, None, 0), ProduceResponse())


def test_none_is_empty_where_a_version_has_no_null() -> None:
    """So a handler need not know since which version a name may be null."""
    for version, expected in ((0, "00000000"), (1, "ffffffff")):
        frame = body(encode_request(MetadataRequest(), version, 1, None))
        assert frame[10:].hex() == expected  # all topics in both cases
    header = RequestHeader(ApiKey.JOIN_GROUP, 5, 1, None, 0)
    frame = body(encode_response(header, JoinGroupResponse(error_code=ErrorCode.NOT_COORDINATOR)))
    response = decode_response(ApiKey.JOIN_GROUP, 5, memoryview(frame))
    assert response == JoinGroupResponse(error_code=16, protocol_name="")
