"""Every message and version against kio, an independent implementation of the protocol.

We encode a random message of ours and kio reads it; every field must arrive under its own name.
What kio writes for it must be, byte for byte, what we wrote; and what we read from kio's bytes must
be the message we began with.

kio is independent of our codec, but not of our field lists, which were first made from its classes.
Those were compared once, by hand, with Kafka's own definitions as shipped with kafka-python 3.0.12
(2255 pairs of field and version: order, type, nullability, tags, number defaults).
"""

import dataclasses
import datetime
import importlib
import io
import os
import uuid
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from tests.doses import some
from tests.wire.messages_of import body, directions, messages, name_of, present
from wire.apis import (
    APIS,
    Api,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_request_header,
)

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
MS = datetime.timedelta(milliseconds=1)
EXAMPLES = 30 if os.environ.get("EXAM") == "full" else 10
"""For each of 316 versions and directions; neighbouring versions share most of their fields."""


def kio_type(api: Api, version: int, direction: str) -> type[Any]:
    """kio has one module per API, version and direction, and one top-level class in it."""
    api_name = "".join("_" + c.lower() if c.isupper() else c for c in api.name).lstrip("_")
    module = importlib.import_module(f"kio.schema.{api_name}.v{version}.{direction}")
    found = [
        value
        for value in vars(module).values()
        if dataclasses.is_dataclass(value) and value.__type__ is EntityType[direction]
    ]
    assert len(found) == 1
    return found[0]


def assert_same(ours: Any, theirs: Any, version: int) -> None:
    """Field by field, by name (kio drops `_ms`), with kio's richer types converted to ours."""
    if dataclasses.is_dataclass(theirs):
        if ours is None:
            assert theirs == type(theirs)(), "a tagged structure we left out was not a default one"
            return
        names = {field.name.removesuffix("_ms"): field.name for field in present(ours, version)}
        assert names.keys() == {field.name for field in dataclasses.fields(theirs)}
        for kio_name, name in names.items():
            assert_same(getattr(ours, name), getattr(theirs, kio_name), version)
    elif isinstance(theirs, tuple):
        assert len(ours) == len(theirs)
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other, version)
    elif isinstance(theirs, datetime.timedelta):
        assert ours == theirs // MS
    elif isinstance(theirs, datetime.datetime):
        assert ours == (theirs - EPOCH) // MS
    elif isinstance(theirs, uuid.UUID):
        assert ours == theirs.bytes
    elif theirs is None:
        assert ours in (None, bytes(16), -1)  # null, no uuid, no time
    else:
        assert ours == theirs
        assert ours is not None


@pytest.mark.parametrize(("api", "version", "direction"), some(directions()), ids=name_of)
@settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)
@given(data=st.data())
def test_we_and_kio_agree(api: Api, version: int, direction: str, data: st.DataObject) -> None:
    cls = api.request if direction == "request" else api.response
    message = data.draw(messages(cls, version))
    kio_class = kio_type(api, version, direction)
    header_class = kio_class.__header_schema__
    if direction == "request":
        frame = body(encode_request(message, version, 77, "me"))
    else:
        header = RequestHeader(api.key, version, 77, None, 0)
        frame = body(encode_response(header, message))

    kio_header, at = entity_reader(header_class)(frame, 0)
    theirs, size = entity_reader(kio_class)(frame, at)
    assert at + size == len(frame)
    assert kio_header.correlation_id == 77
    assert_same(message, theirs, version)

    back = io.BytesIO()
    entity_writer(header_class)(back, kio_header)
    entity_writer(kio_class)(back, theirs)
    assert back.getvalue() == frame

    view = memoryview(back.getvalue())
    if direction == "request":
        parsed = parse_request_header(view)
        assert isinstance(parsed, RequestHeader)
        assert parsed[:4] == (api.key, version, 77, "me")
        assert parsed.body_offset == at
        assert decode_request(parsed, view) == message
    elif not (api.name == "ApiVersions" and message.error_code == 35):  # read as version 0
        assert decode_response(api.key, version, view) == message


def test_header_versions_are_those_of_kio() -> None:
    for api, version, direction in directions(APIS.values()):
        theirs = kio_type(api, version, direction)
        assert theirs.__api_key__ == api.key
        assert theirs.__flexible__ == api.flexible(version)
        ours = (
            1 + api.flexible(version)
            if direction == "request"
            else api.response_header_version(version)
        )
        assert theirs.__header_schema__.__version__ == ours


def test_every_key_is_in_the_table_once() -> None:
    assert [api.key for api in APIS.values()] == sorted(api.key for api in APIS.values())
    assert len({api.name for api in APIS.values()}) == len(APIS) == 57
