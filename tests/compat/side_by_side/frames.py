"""Stories about bytes that are no request, and requests that get no answer."""

import struct
from collections.abc import Sequence
from typing import Any, Final

from tests.broker.batches import batch
from tests.compat.side_by_side.peer import Peer
from tests.compat.side_by_side.records import produce
from wire.apis import APIS, ApiKey, Request, encode_request
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.group_admin import ListGroupsRequest
from wire.messages.metadata import MetadataRequest


def frame(body: bytes, size: int | None = None) -> bytes:
    return struct.pack(">i", len(body) if size is None else size) + body


def head(key: int, version: int, correlation: int = 5, body: bytes = b"") -> bytes:
    return frame(struct.pack(">hhih", key, version, correlation, -1) + body)


def whole(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, 5, "x")))


def versions(peer: Peer) -> None:
    peer.raw("an API that is not there", head(999, 0))
    peer.raw("an API with a negative key", head(-1, 0))
    peer.raw("Metadata in a version of the future", head(3, 99))
    peer.raw("Metadata in a negative version", head(3, -1))
    peer.raw("ApiVersions in a version of the future", head(18, 99, body=b"\x00"))
    peer.raw("Produce in version 0", head(0, 0))
    peer.raw("Fetch in version 0", head(1, 0))


def malformed(peer: Peer) -> None:
    peer.raw("a negative length", frame(b"", -1))
    peer.raw("a length of 0", frame(b""))
    peer.raw("a length of 3", frame(b"abc"))
    peer.raw("a length of 2 GB", frame(b"GET / HTTP/1.1", 2**31 - 1))
    peer.raw("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    good = whole(MetadataRequest([], False), 9)[4:]
    peer.raw("cut short", frame(good[:-2]))
    peer.raw("bytes behind the body", frame(good + b"\x00\x00\x00"))
    listed = whole(ListGroupsRequest(), 0)[4:]
    peer.raw("bytes behind the body, not flexible", frame(listed + b"\x00"))
    peer.raw("a client id that is longer than the frame", frame(struct.pack(">hhih", 3, 1, 5, 99)))
    peer.raw("a client id that is no text", frame(struct.pack(">hhih", 18, 0, 5, 2) + b"\xff\xfe"))
    peer.raw("more topics than bytes", head(3, 1, body=struct.pack(">i", 2**31 - 1)))
    peer.raw("fewer than no topics", head(3, 1, body=struct.pack(">i", -5)))
    two = whole(ApiVersionsRequest(), 0)
    peer.raw("two requests at once", two + two)


def without_answers(peer: Peer) -> None:
    peer.topic("acks0")
    peer.raw("acks=0", whole(produce("acks0", batch("a"), acks=0), 7))
    peer.raw("acks=0, unknown topic", whole(produce("nobody", batch("a"), acks=0), 7))
    peer.raw("acks=0, refused", whole(produce("acks0", b"", acks=0), 7))


def empty_requests(peer: Peer) -> None:
    """Every API, also those that are served in order to refuse, with nothing in the request."""
    for key in peer.common:
        if key not in (ApiKey.PRODUCE, ApiKey.FETCH):  # acks=0 and a wait: stories ask for both
            peer.ask("with nothing in it", APIS[key].request())


STORIES: Final[Sequence[Any]] = (versions, malformed, without_answers, empty_requests)
