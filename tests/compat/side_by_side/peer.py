"""One of the two brokers, as a story sees it: requests by our own codec, answers written down."""

import socket
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from itertools import count
from typing import Any, Final

import attrs

from tests.compat.side_by_side.plain import Tree, plain
from wire.apis import (
    APIS,
    Request,
    api_of,
    decode_response,
    encode_request,
    response_correlation_id,
)
from wire.error_codes import ErrorCode
from wire.errors import ProtocolError
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from wire.messages.membership import FindCoordinatorRequest
from wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from wire.messages.producer_ids import InitProducerIdRequest
from wire.messages.topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

ANSWER_S_MAX: Final = 15.0
RAW_S_MAX: Final = 3.0
READY_S_MAX: Final = 60.0
CLIENT_ID: Final = "side-by-side"
LAST: Final = 77_777
"""The correlation id of the good request behind raw bytes."""
_LENGTH: Final = struct.Struct(">i")
NOT_YET: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Which(Enum):
    """In which versions a question is asked."""

    ALL = "all"
    NEWEST = "newest"
    """For requests that change something, and would find it changed the second time."""


class NoAnswer(Enum):
    CLOSED = "the connection is closed"
    SILENCE = "no answer"


Asked = Request | Callable[[int], Request]
"""A request, or one made for a version: what it creates must not exist yet."""


@attrs.frozen
class Answer:
    """`where`: story and question; the same on both sides."""

    where: str
    version: int
    tree: Tree


@attrs.define
class Peer:
    name: str
    host: str
    port: int
    common: Mapping[int, range] = attrs.Factory(dict)
    """API key -> the versions that both sides serve."""
    answers: list[Answer] = attrs.Factory(list)
    story: str = ""
    loose: frozenset[str] = frozenset()
    _socket: socket.socket | None = None
    _numbers: Iterator[int] = attrs.Factory(count)

    def begin(self, story: str) -> None:
        self.story, self.loose = story, frozenset()

    def loosely(self, *fields: str) -> None:
        """For the rest of this story, of these numbers only the sign is compared."""
        self.loose = frozenset(fields)

    # -- recorded ------------------------------------------------------------------------------

    def ask(self, what: str, request: Asked, which: Which = Which.ALL, least: int = 0) -> Any:
        """Ask in every common version from `least` on, write the answers down; returns the last."""
        sample = request(0) if callable(request) else request
        versions = self.common.get(api_of(type(sample)).key, range(0))
        chosen = [version for version in versions if version >= least]
        answer: Any = None
        for version in chosen if which is Which.ALL else chosen[-1:]:
            asked = request(version) if callable(request) else request
            answer = self.send(asked, version)
            where = f"{self.story}: {api_of(type(sample)).name}, {what}"
            self.answers.append(Answer(where, version, plain(answer, version, asked, self.loose)))
        return answer

    def raw(self, what: str, *frames: bytes) -> None:
        """Bytes as they are, and a good request behind them: what comes back before its answer."""
        self.close()
        told = []
        try:
            link = self._link()
            link.settimeout(RAW_S_MAX)
            for frame in (*frames, *encode_request(ApiVersionsRequest(), 0, LAST, CLIENT_ID)):
                link.sendall(frame)
            while not told or told[-1] != LAST:
                told.append(response_correlation_id(memoryview(self._receive(link))))
            end = "stays open"
        except TimeoutError:
            end = NoAnswer.SILENCE.value
        except OSError:
            end = NoAnswer.CLOSED.value
        self.close()
        answered = [one for one in told if one != LAST]
        self.answers.append(Answer(f"{self.story}: {what}", -1, f"answered {answered}, {end}"))

    # -- not recorded --------------------------------------------------------------------------

    def send(self, request: Request, version: int) -> Any:
        """The answer, or why there is none."""
        api = api_of(type(request))
        try:
            link = self._link()
            for chunk in encode_request(request, version, next(self._numbers) % 2**31, CLIENT_ID):
                link.sendall(chunk)
            frame = self._receive(link)
        except TimeoutError:
            self.close()
            return NoAnswer.SILENCE
        except OSError:
            self.close()
            return NoAnswer.CLOSED
        try:
            return decode_response(api.key, version, memoryview(frame))
        except ProtocolError as error:
            return f"unreadable: {error}"

    def quiet(self, request: Request) -> Any:
        """In the newest version that both have."""
        return self.send(request, self.common[api_of(type(request)).key][-1])

    def topic(self, name: str, partitions: int = 1, **configs: str) -> bytes:
        """Create a topic and wait until it can be used; its id."""
        settings = [
            CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()
        ]
        wanted = CreatableTopic(name, partitions, 1, configs=settings)
        (made,) = self.quiet(CreateTopicsRequest([wanted])).topics
        assert made.error_code == 0, (self.name, made)
        return self.known(name)

    def known(self, name: str) -> bytes:
        """Wait until every partition of it has a leader; its id."""
        deadline = time.monotonic() + READY_S_MAX
        while True:
            asked = MetadataRequest([MetadataRequestTopic(name=name)], False)
            (found,) = self.quiet(asked).topics
            led = [one for one in found.partitions if one.error_code == 0 and one.leader_id >= 0]
            if found.error_code == 0 and len(led) == len(found.partitions):
                self._until_leading(name, len(led))
                return bytes(found.topic_id)
            assert time.monotonic() < deadline, (self.name, found)
            time.sleep(0.05)

    def _until_leading(self, topic: str, partitions: int) -> None:
        """Kafka's metadata names a leader before it knows that it is one."""
        parts = [ListOffsetsPartition(number, timestamp=-2) for number in range(partitions)]
        asked = ListOffsetsRequest(-1, topics=[ListOffsetsTopic(topic, parts)])
        self.until(
            "does not lead",
            lambda: all(one.error_code == 0 for one in self.quiet(asked).topics[0].partitions),
        )

    def write(self, request: Request) -> None:
        """Produce what is to be read, again until it is there: a new leader refuses at first."""
        self.until(
            "cannot be written to",
            lambda: all(
                part.error_code == 0
                for topic in self.quiet(request).responses
                for part in topic.partition_responses
            ),
        )

    def until(self, what: str, true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S_MAX
        while not true():
            assert time.monotonic() < deadline, f"{self.name}: {what}"
            time.sleep(0.05)

    def coordinates(self, group: str) -> None:
        """Wait until this node is the group's coordinator, and answers as one."""
        asked = FindCoordinatorRequest(key=group, coordinator_keys=[group])
        self.until(
            "no coordinator",
            lambda: all(one.error_code not in NOT_YET for one in self.quiet(asked).coordinators),
        )

    def warm(self) -> None:
        """Wait for what a fresh Kafka makes at its first use: coordinators and producer ids."""
        self.coordinates("warm")
        ids = InitProducerIdRequest(None, 60_000)
        self.until("no producer ids", lambda: self.quiet(ids).error_code == 0)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _link(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection((self.host, self.port), ANSWER_S_MAX)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self._socket

    def _receive(self, link: socket.socket) -> bytes:
        (size,) = _LENGTH.unpack(self._exactly(link, _LENGTH.size))
        return self._exactly(link, size)

    @staticmethod
    def _exactly(link: socket.socket, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            chunk = link.recv(size - len(data))
            if not chunk:
                raise ConnectionResetError
            data += chunk
        return bytes(data)


def advertised(peer: Peer) -> dict[int, range]:
    rows: Any = peer.send(ApiVersionsRequest(CLIENT_ID, "1"), 3)
    return {one.api_key: range(one.min_version, one.max_version + 1) for one in rows.api_keys}


def common(one: Mapping[int, range], other: Mapping[int, range]) -> dict[int, range]:
    """The versions that both advertise, and that our codec has."""
    both = {}
    for key in sorted(one.keys() & other.keys() & APIS.keys()):
        accepted = APIS[key].accepted
        first = max(one[key].start, other[key].start, accepted.first)
        stop = min(one[key].stop, other[key].stop, accepted.last + 1)
        if first < stop:
            both[key] = range(first, stop)
    return both
