"""The start of a message that was too long to keep (wire.codec.prefix)."""

from typing import Any, Final

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.doses import some
from tests.wire.messages_of import directions, messages
from wire.apis import Api
from wire.codec.compiler import decoder, encoder
from wire.codec.prefix import decode_prefix
from wire.codec.schema import fields_of
from wire.errors import ProtocolError
from wire.messages.group_admin import DeleteGroupsRequest
from wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

REQUESTS: Final = [
    (api, version) for api, version, direction in directions() if direction == "request"
]


def encoded(message: Any, version: int, flexible: bool) -> bytes:
    return b"".join(encoder(type(message), version, flexible)(message, bytearray()))


def untagged(message: Any) -> Any:
    """The same without its tagged fields, which a prefix leaves out, and with records as bytes."""
    made = type(message)()
    for field in fields_of(type(message)):
        value = getattr(message, field.name)
        if field.spec.tag is not None:
            continue
        if isinstance(value, memoryview):
            value = value.tobytes()
        elif isinstance(value, list):
            value = [untagged(one) if attrs.has(type(one)) else one for one in value]
        elif attrs.has(type(value)):
            value = untagged(value)
        setattr(made, field.name, value)
    return made


@pytest.mark.parametrize(
    ("api", "version"),
    some(REQUESTS),
    ids=[f"{api.name}-{version}" for api, version in some(REQUESTS)],
)
@given(data=st.data())
def test_whole_and_broken_off(api: Api, version: int, data: st.DataObject) -> None:
    """The generated decoder agrees on a whole message. Of a part, we read no more than is there,
    and nothing that the whole does not say."""
    flexible = api.flexible(version)
    message = data.draw(messages(api.request, version))
    frame = memoryview(encoded(message, version, flexible))
    whole = untagged(decoder(api.request, version, flexible)(frame, 0))
    assert decode_prefix(api.request, version, flexible=flexible, view=frame, pos=0) == whole
    cut = data.draw(st.integers(0, len(frame)))
    part = decode_prefix(api.request, version, flexible=flexible, view=frame[:cut], pos=0)
    assert begins(part, whole)


def begins(part: Any, whole: Any) -> bool:
    """Whether every value of `part` equals that of `whole`, is a prefix of it, or is a default."""
    default = type(part)()
    for field in fields_of(type(part)):
        mine, theirs = getattr(part, field.name), getattr(whole, field.name)
        if mine == theirs or mine == getattr(default, field.name):
            continue
        if attrs.has(type(mine)) and theirs is not None and begins(mine, theirs):
            continue
        if not isinstance(mine, list) or not isinstance(theirs, list) or len(mine) > len(theirs):
            return False
        pairs = zip(mine, theirs, strict=False)
        if not all(a == b or (attrs.has(type(a)) and begins(a, b)) for a, b in pairs):
            return False
    return True


@pytest.mark.parametrize("flexible", [False, True])
def test_an_item_counts_from_its_first_field_on(flexible: bool) -> None:
    version = 8 if flexible else 7
    partition = OffsetCommitRequestPartition(3, 77, committed_metadata="note")
    topic = OffsetCommitRequestTopic("topic-name", [partition, partition])
    frame = encoded(OffsetCommitRequest("g", topics=[topic]), version, flexible)

    def read(view: bytes) -> OffsetCommitRequest:
        made: OffsetCommitRequest = decode_prefix(
            OffsetCommitRequest, version, flexible=flexible, view=memoryview(view), pos=0
        )
        return made

    name = frame.index(b"topic-name")
    assert read(frame[: name + 4]).topics == []
    (named,) = read(frame[: name + 10]).topics
    assert (named.name, named.partitions) == ("topic-name", [])
    note = frame.index(b"note")
    (named,) = read(frame[: note + 2]).topics
    assert [one.partition_index for one in named.partitions] == [3]
    assert named.partitions[0].committed_offset == 77


@pytest.mark.parametrize(
    ("version", "bytes_there"),
    [
        (1, b"\xff\xff\xff\xff"),  # null, where null is not allowed
        (1, b"\x00\x00\x00\x01\xff\xff"),
        (1, b"\x00\x00\x00\x01\x00\x01\xff"),  # not UTF-8
        (2, b"\xff\xff\xff\xff\x7f"),  # a varint of more than 32 bits
        (2, b"\x02\x00"),
    ],
)
def test_what_is_malformed_is_said_to_be(version: int, bytes_there: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_prefix(
            DeleteGroupsRequest, version, flexible=version == 2, view=memoryview(bytes_there), pos=0
        )


def test_a_count_alone_takes_no_memory() -> None:
    made: DeleteGroupsRequest = decode_prefix(
        DeleteGroupsRequest, 1, flexible=False, view=memoryview(b"\x7f\xff\xff\xff\0\x01a"), pos=0
    )
    assert made.groups_names == ["a"]
