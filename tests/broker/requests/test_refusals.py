"""A request that is refused as a whole: the client is told, or loses its connection."""

from typing import Any, Final, cast

import pytest

from broker.requests.refusals import CONSUMER_GROUPS_FROM, top_level_error
from wire.apis import APIS, ApiKey, RequestHeader, decode_response, encode_response
from wire.error_codes import ErrorCode
from wire.messages.offsets import OffsetFetchResponse

ERROR: Final = ErrorCode.INVALID_REQUEST
EVERY_VERSION: Final = [
    (ApiKey(key), version)
    for key, api in APIS.items()
    for version in range(api.accepted.first, api.accepted.last + 1)
]
NOTHING: Final = memoryview(b"")


def header_of(key: int, version: int, at: int = 0) -> RequestHeader:
    return RequestHeader(key, version, 7, None, at)


def told(header: RequestHeader, answer: Any) -> Any:
    """What a client reads."""
    frame = b"".join(encode_response(header, answer))[4:]
    return decode_response(header.api_key, header.api_version, memoryview(frame))


@pytest.mark.parametrize(
    ("key", "version"), EVERY_VERSION, ids=[f"{key.name}-{at}" for key, at in EVERY_VERSION]
)
def test_no_answer_without_its_error(key: ApiKey, version: int) -> None:
    """What a version does not have is not sent: the rest would say that nothing is there."""
    header = header_of(key, version)
    answer = top_level_error(header, NOTHING, ERROR)
    if answer is not None:
        assert told(header, answer).error_code == ERROR


def test_versions_with_an_error_top_level_error_use_it() -> None:
    tried = [(ApiKey.METADATA, 13), (ApiKey.FETCH, 7), (ApiKey.OFFSET_FETCH, 7)]
    assert all(top_level_error(header_of(*one), NOTHING, ERROR) is not None for one in tried)
    silent = [(ApiKey.METADATA, 12), (ApiKey.FETCH, 6), (ApiKey.OFFSET_FETCH, 1)]
    assert all(top_level_error(header_of(*one), NOTHING, ERROR) is None for one in silent)


@pytest.mark.parametrize("version", [8, 9])
def test_a_consumer_group_is_told_that_its_offsets_are_not(version: int) -> None:
    """From version 8 on each consumer group has its error, and an empty answer is a protocol
    violation to some clients and "nothing committed" to others."""
    assert version >= CONSUMER_GROUPS_FROM
    name = "gruppe-ü".encode()
    frame = memoryview(b"head" + bytes((2, len(name) + 1)) + name + b"the first of many topics")
    header = header_of(ApiKey.OFFSET_FETCH, version, at=4)
    answer = top_level_error(header, frame, ERROR)
    (group,) = cast(OffsetFetchResponse, told(header, answer)).groups
    assert (group.group_id, group.error_code) == ("gruppe-ü", ERROR)


@pytest.mark.parametrize("body", [b"", b"\x02", b"\x02\x09short", b"\x02\x03\xff\xfe", b"\x02\x00"])
def test_what_names_no_consumer_group_loses_its_connection(body: bytes) -> None:
    assert top_level_error(header_of(ApiKey.OFFSET_FETCH, 8), memoryview(body), ERROR) is None
