"""A producer without sequences that keeps its own order, and knows which answers it could have
seen.

It has one connection at a time, to the leader of its one partition, with many requests under way.
After a refusal it stops, waits for the answers to all requests it has begun, and sends again from
the first refused one. So its order holds if the node keeps its promise (F4): the node
also refuses everything that was begun before a refusal could be read. If it acknowledges such a
request, that is a breach, whatever the log looks like in the end.

A client like librdkafka overtakes itself when leaders move: it goes on at the new leader while the
old one still owes answers. So its log says nothing about the node in that case.
"""

import random
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import attrs

from benchmarks.load.frames import TargetError, leaders_of
from tests.exam.load.test_order import HEAD
from wire.apis import ApiKey, decode_response, encode_request
from wire.codec.primitives import Buffer
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from wire.records.batch import Record
from wire.records.batch_writer import build_batch

VERSION: Final = 9
REQUESTS_MAX: Final = 64
BYTES_MAX: Final = 8 << 20
"""Bytes under way at a time; one request may be larger."""
PAUSES_S: Final = (0.0, 0.001, 0.02, 0.045, 0.055, 0.1)
"""Pauses before a refused request is sent again: clients differ, and a node must not rely on
one."""
PIECE: Final = 1 << 16
FRESH_S: Final = 0.02
"""Nothing is begun later than this after the last look for answers. This machine may have received
a refusal longer ago; a program that does not run for that long cannot know of it (ADR 37)."""
FENCE_S: Final = 10.0
UNKNOWN: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
"""Errors after which the batch may have been appended."""


@attrs.define(eq=False)
class Sent:
    index: int
    unsent: deque[memoryview]
    started: bool = False
    """A byte of it was sent: it cannot be taken back."""
    shadow: int | None = None
    """The refused message whose answer came after this one was begun."""


@attrs.define(eq=False, slots=False)
class Careful:
    """`run` returns when everything is acknowledged (with acks=0: sent)."""

    bootstrap: str
    topic: str
    number: int
    partition: int
    message_bytes: int
    messages: int
    acks: int
    breaches: list[tuple[int, int]] = attrs.field(init=False, factory=list)
    """(refused, acknowledged although it was begun before the refusal could be known)."""
    shadows: int = attrs.field(init=False, default=0)
    """How many requests were begun before a refusal: each might have been a breach."""
    unsure: int = attrs.field(init=False, default=0)
    """Messages of unknown fate: they were sent again and may be there twice."""
    whole: bool = attrs.field(init=False, default=False)
    """acks=0: the last connection was still open when everything sent on it had been handled."""
    connections: list[int] = attrs.field(init=False, factory=list)
    """The first message of each."""

    def __attrs_post_init__(self) -> None:
        self._todo = deque(range(self.messages))
        self._flight: deque[Sent] = deque()
        self._again: list[int] = []
        self._pad = bytes(self.message_bytes - HEAD.size)
        self._chance = random.Random(self.number)
        self._answer = bytearray()
        self._looked = 0.0

    def run(self, done_s: float) -> None:
        until = time.monotonic() + done_s
        while self._todo or self._flight:
            if time.monotonic() > until:
                raise TimeoutError(f"{len(self._todo) + len(self._flight)} messages are left")
            connection = self._connect()
            if connection is None:
                time.sleep(0.05)
                continue
            with connection, suppress(OSError):
                self._talk(connection, until)
            self._lost()

    def _connect(self) -> socket.socket | None:
        with suppress(TargetError, OSError):
            for leader in leaders_of(self.bootstrap, self.topic):
                if self.partition in leader.partitions:
                    connection = socket.create_connection((leader.host, leader.port), 5.0)
                    connection.setblocking(False)
                    self.connections.append(self._todo[0])
                    return connection
        return None

    def _lost(self) -> None:
        """The connection has ended: the fate of everything under way is unknown."""
        self._answer.clear()
        if self.acks:
            self.unsure += len(self._flight)
            self._again += [one.index for one in self._flight]
        self._flight.clear()
        self._resume()

    def _resume(self) -> None:
        self._todo.extendleft(sorted(self._again, reverse=True))
        self._again.clear()

    # -- one connection -----------------------------------------------------------------------

    def _talk(self, connection: socket.socket, until: float) -> None:
        """Returns when all is done, another node leads, or the connection ends."""
        moved = False
        while time.monotonic() < until:
            moved = self._read(connection) or moved
            if self._again and not self._flight:
                self._resume()
                if moved:
                    return
                time.sleep(self._chance.choice(PAUSES_S))
            self._begin()
            if not self._flight and not self._todo:
                if not self.acks:
                    self.whole = self._is_open(connection)
                return
            self._write(connection)
            wants = [connection] if any(one.unsent for one in self._flight) else []
            select.select([connection], wants, [], 0.5)

    def _is_open(self, connection: socket.socket) -> bool:
        """Answers leave in order, and a failed Produce closes its connection."""
        connection.setblocking(True)
        connection.settimeout(FENCE_S)
        asked = encode_request(ApiVersionsRequest("exam", "1"), 3, 2, "exam")
        connection.sendall(b"".join(asked))
        return bool(connection.recv(1))

    def _begin(self) -> None:
        """A request that begins here knows only the answers that have been read by now."""
        if self._again:
            return
        room = BYTES_MAX - len(self._flight) * self.message_bytes
        while self._todo and len(self._flight) < REQUESTS_MAX and (room > 0 or not self._flight):
            index = self._todo.popleft()
            chunks = deque(memoryview(chunk).cast("B") for chunk in self._request(index))
            self._flight.append(Sent(index, chunks))
            room -= self.message_bytes
            if room > 0 and len(self._flight) % 8 == 0:
                return  # look for answers now and then

    def _request(self, index: int) -> Sequence[Buffer]:
        value = HEAD.pack(self.number, index) + self._pad
        batch = build_batch([Record(value, timestamp_ms=time.time_ns() // 1_000_000)])
        data = PartitionProduceData(self.partition, memoryview(batch))
        topic = TopicProduceData(self.topic, [data])
        return encode_request(ProduceRequest(None, self.acks, 30_000, [topic]), VERSION, 1, "exam")

    def _write(self, connection: socket.socket) -> None:
        with suppress(BlockingIOError):
            for one in self._flight:
                if not one.started and time.monotonic() - self._looked > FRESH_S:
                    break
                while one.unsent:
                    chunk = one.unsent[0]
                    count = connection.send(chunk[:PIECE])
                    one.started = True
                    if count < len(chunk):
                        one.unsent[0] = chunk[count:]
                    else:
                        one.unsent.popleft()
        if not self.acks:  # acks=0: there are no answers
            while self._flight and not self._flight[0].unsent:
                self._flight.popleft()

    def _read(self, connection: socket.socket) -> bool:
        """Take the answers that have arrived. True: another node leads."""
        moved = False
        with suppress(BlockingIOError):
            while True:
                data = connection.recv(PIECE)
                if not data:
                    raise ConnectionResetError("closed by the node")
                self._answer += data
        self._looked = time.monotonic()
        while len(self._answer) >= 4:
            size = int.from_bytes(self._answer[:4], "big")
            if len(self._answer) < 4 + size:
                break
            frame = memoryview(bytes(self._answer[4 : 4 + size]))
            del self._answer[: 4 + size]
            answer = decode_response(ApiKey.PRODUCE, VERSION, frame)
            assert isinstance(answer, ProduceResponse)
            code = ErrorCode(answer.responses[0].partition_responses[0].error_code)
            moved = self._heard(self._flight.popleft(), code) or moved
        return moved

    def _heard(self, sent: Sent, code: ErrorCode) -> bool:
        if code is ErrorCode.NONE:
            if sent.shadow is not None:
                self.breaches.append((sent.shadow, sent.index))
            return False
        assert code.retriable, code
        self._again.append(sent.index)
        if code in UNKNOWN:
            self.unsure += 1
        while self._flight and not self._flight[-1].started:
            self._again.append(self._flight.pop().index)
        if code not in UNKNOWN:
            for one in self._flight:
                if one.shadow is None:
                    one.shadow = sent.index
                    self.shadows += 1
        return code is ErrorCode.NOT_LEADER_OR_FOLLOWER
