"""Bytes from a hostile or broken peer: a ProtocolError or a value, never anything else."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.messages_of import body, directions, example, name_of
from wire.apis import (
    APIS,
    Api,
    ApiKey,
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
    response_correlation_id,
)
from wire.codec.primitives import ITEMS_MAX, TAGS_MAX, put_uvarint
from wire.errors import ProtocolError
from wire.messages.metadata import MetadataRequest
from wire.messages.produce import ProduceRequest


def sample(api: Api, version: int, direction: str) -> bytes:
    if direction == "request":
        return body(encode_request(example(api.request, version), version, 77, "me"))
    header = RequestHeader(api.key, version, 77, None, 0)
    return body(encode_response(header, example(api.response, version)))


def read(api: Api, version: int, direction: str, frame: bytes) -> object:
    """Read a frame as the other side would, header first."""
    view = memoryview(frame)
    if direction == "response":
        response_correlation_id(view)
        return decode_response(api.key, version, view)
    header = parse_request_header(view)
    return header if isinstance(header, UnsupportedVersion) else decode_request(header, view)


@pytest.mark.parametrize(("api", "version", "direction"), directions(), ids=name_of)
def test_cut_short_at_every_byte(api: Api, version: int, direction: str) -> None:
    frame = sample(api, version, direction)
    read(api, version, direction, frame)
    for size in range(len(frame)):
        with pytest.raises(ProtocolError):
            read(api, version, direction, frame[:size])


@pytest.mark.parametrize(("api", "version", "direction"), directions(), ids=name_of)
def test_every_byte_changed(api: Api, version: int, direction: str) -> None:
    frame = bytearray(sample(api, version, direction))
    errors = []
    for at, byte in enumerate(frame):
        for changed in {0x00, 0x01, 0x7F, 0x80, 0xFF, byte ^ 0x01, byte ^ 0x40} - {byte}:
            frame[at] = changed
            try:
                read(api, version, direction, bytes(frame))
            except ProtocolError as error:
                errors.append(error)
        frame[at] = byte
    assert all(0 <= error.at <= len(frame) and error.where and error.what for error in errors)


@settings(max_examples=300, deadline=None, database=None)
@given(
    api=st.sampled_from(list(APIS.values())),
    data=st.data(),
    tail=st.binary(max_size=200),
)
def test_noise_after_a_header(api: Api, data: st.DataObject, tail: bytes) -> None:
    version = data.draw(st.integers(api.accepted.first, api.accepted.last))
    head = body(encode_request(example(api.request, version), version, 1, None))
    header = parse_request_header(memoryview(head))
    assert isinstance(header, RequestHeader)
    frame = memoryview(head[: header.body_offset] + tail)
    try:
        message = decode_request(header, frame)
    except ProtocolError:
        return
    assert isinstance(message, api.request)


@pytest.mark.parametrize(("api", "version", "direction"), directions(), ids=name_of)
def test_bytes_after_a_message_are_ignored(api: Api, version: int, direction: str) -> None:
    """librdkafka 2.16 was seen sending three bytes more than a Metadata v13 request has."""
    frame = sample(api, version, direction)
    assert read(api, version, direction, frame + b"\x00\x07\xff") == read(
        api, version, direction, frame
    )


def with_unknown_tags(count: int, size: int) -> bytes:
    """Heartbeat v4 with unknown tagged fields in the header and in the body."""
    tags = bytearray()
    put_uvarint(tags, count)
    for tag in range(count):
        put_uvarint(tags, 5000 + tag)
        put_uvarint(tags, size)
        tags += bytes(size)
    head = bytes.fromhex("000c 0004 0000004d 0002") + b"me"
    return head + bytes(tags) + b"\x02g" + bytes(4) + b"\x02m" + b"\x00" + bytes(tags)


@pytest.mark.parametrize(("count", "size"), [(0, 0), (1, 3), (127, 1), (128, 200), (TAGS_MAX, 0)])
def test_unknown_tagged_fields_are_skipped(count: int, size: int) -> None:
    frame = memoryview(with_unknown_tags(count, size))
    header = parse_request_header(frame)
    assert isinstance(header, RequestHeader)
    message = decode_request(header, frame)
    assert message == decode_request(header._replace(body_offset=header.body_offset), frame)
    assert getattr(message, "member_id", None) == "m"


def test_too_many_tagged_fields_are_refused() -> None:
    with pytest.raises(ProtocolError, match="1001 tagged fields"):
        parse_request_header(memoryview(with_unknown_tags(TAGS_MAX + 1, 0)))


@pytest.mark.parametrize("version", range(3, 11))
def test_a_count_beyond_the_bytes_left_is_refused_before_anything_is_made(version: int) -> None:
    message = ProduceRequest(acks=1, timeout_ms=1)
    frame = bytearray(body(encode_request(message, version, 1, None)))
    flexible = version >= 9
    for claimed in (2, 1000, (1 << 31) - 1):
        if flexible:
            lied = bytearray(frame[:-2])
            put_uvarint(lied, claimed + 1)
            lied += b"\x00"
        else:
            lied = bytearray(frame[:-4] + claimed.to_bytes(4, "big"))
        with pytest.raises(ProtocolError, match=f"topic_data.*array of {claimed} elements"):
            read(APIS[ApiKey.PRODUCE], version, "request", bytes(lied))


def produce_with_empty_topics(count: int) -> bytes:
    head = body(encode_request(ProduceRequest(acks=1, timeout_ms=1), 9, 1, None))[:-2]
    frame = bytearray(head)
    put_uvarint(frame, count + 1)
    return bytes(frame + bytes.fromhex("01 01 00") * count + b"\x00")


def metadata_of_nameless_topics(count: int) -> bytes:
    head = body(encode_request(MetadataRequest([]), 9, 1, None))
    at = len(head) - 5  # the array's length, three flags and the tags
    frame = bytearray(head[:at])
    put_uvarint(frame, count + 1)
    return bytes(frame + bytes.fromhex("01 00") * count + head[at + 1 :])


@pytest.mark.parametrize(
    ("key", "made", "most"),
    [
        (ApiKey.PRODUCE, produce_with_empty_topics, ProduceRequest.ITEMS_MAX),
        (ApiKey.METADATA, metadata_of_nameless_topics, ITEMS_MAX),
    ],
)
def test_what_a_frame_makes_us_allocate_is_bounded(
    key: ApiKey, made: Callable[[int], bytes], most: int
) -> None:
    """Three bytes make a topic: without ITEMS_MAX, 16 MiB of them would take half a gigabyte.
    Requests that are decoded on the loop (a Produce, which is mostly records) may hold fewer."""
    message: Any = read(APIS[key], 9, "request", made(most))
    assert len(message.topics if key == ApiKey.METADATA else message.topic_data) == most

    frame = made(most + 1)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=f"array of {most + 1} elements"):
            read(APIS[key], 9, "request", frame)
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        ("", "cut short"),
        ("0012 0000 0000004d", "cut short"),
        ("0012 0000 0000004d fffe", "length of -2"),
        ("0012 0000 0000004d 0003 6d65", "length of 3"),
        ("0012 0000 0000004d 0002 ffff", "UTF-8"),
        ("0012 0003 0000004d 0002 6d65", "cut short"),
        ("0012 0003 0000004d 0002 6d65 01 00 05 00", "length of 5"),
        ("0012 0003 0000004d 0002 6d65 01 ffffffffff 00", "varint longer"),
        ("0012 0003 0000004d 0002 6d65 01 ffffffff1f 00", "does not fit"),
    ],
)
def test_malformed_request_headers(frame: str, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        parse_request_header(memoryview(bytes.fromhex(frame)))


def test_the_error_says_what_where_and_at_which_byte() -> None:
    frame = sample(APIS[ApiKey.PRODUCE], 9, "request")
    at = frame.index(b"s4")  # the first topic's name
    broken = frame[:at] + b"\xff\xff" + frame[at + 2 :]
    with pytest.raises(ProtocolError) as caught:
        read(APIS[ApiKey.PRODUCE], 9, "request", broken)
    assert caught.value.where == "ProduceRequest v9: topic_data[].name"
    assert caught.value.at == at
    assert "UTF-8" in caught.value.what
