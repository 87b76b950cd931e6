"""A simulated client's connections to whole nodes: Kafka frames on a byte stream to each.

What is asked before the connection is there waits for it. A request that is not answered in time
ends its connection, and all that was under way on it, as with librdkafka and Java; the next one
makes a new one. kafkajs goes on on the old one (`keeps`): an answer that comes late is for nobody.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from paxos.entry import Buffer
from paxos.ids import MS
from runtime.network.stream import Stream
from simulator.environment.loop import Loop
from simulator.environment.trace import Trace
from simulator.environment.violation import Violation
from simulator.whole.host import KAFKA_PORT
from simulator.whole.machine import Lan
from simulator.whole.streams import Pipe, SimStream
from wire.apis import APIS, Request, decode_response, encode_request, response_correlation_id
from wire.messages.api_versions import ApiVersionsRequest

_KEYS: Final = {api.request: int(key) for key, api in APIS.items()}
NAMES_VERSION: Final = 3
NAMES_NS: Final = 1_500 * MS
_ROOM: Final = memoryview(bytearray(64 * 1024))
"""Where what has come lies until it is taken over, within one event."""


class _Call(NamedTuple):
    api_key: int
    version: int
    answered: Callable[[Any], None]


class Connection:
    """To one node. `lost` is told once."""

    def __init__(self, calls: "StreamCalls", target: int, number: int) -> None:
        self._calls, self.target, self.number = calls, target, number
        self._stream: SimStream | None = None
        self._unsent: deque[memoryview] = deque()
        self._received = bytearray()
        self._under_way: dict[int, _Call] = {}
        self.closed = False
        self._looks = False
        calls.lan.connect(calls.address, target, KAFKA_PORT, self._made, self._dialled, calls.now())

    @property
    def made(self) -> bool:
        return self._stream is not None

    @property
    def asked(self) -> int:
        """Requests that are not answered yet."""
        return len(self._under_way)

    @property
    def unsent(self) -> bool:
        """Whether the socket has not taken everything."""
        return bool(self._unsent)

    def ask(self, number: int, frame: bytes, call: _Call, timeout_ns: int) -> None:
        self._under_way[number] = call
        self._calls.loop.after(timeout_ns, self._timed_out, number)
        self.say(frame)

    def say(self, frame: bytes) -> None:
        """Nobody waits for an answer."""
        self._unsent.append(memoryview(frame))
        self._flush()

    def _made(self, incoming: Pipe, outgoing: Pipe) -> SimStream:
        stream = SimStream(0, self, incoming, outgoing, self._calls.now, _free)
        self._stream = stream
        return stream

    def _dialled(self, stream: Stream | None) -> None:
        if self.closed:
            if stream is not None:
                stream.close()
        elif stream is None:
            self.close()
        else:
            self._flush()

    def touched(self, _fd: int) -> None:
        if not self._looks and not self.closed:
            self._looks = True
            self._calls.loop.after(0, self._look)

    def gone(self, _fd: int) -> None:
        """Nobody polls it."""

    def _look(self) -> None:
        self._looks = False
        if self.closed or self._stream is None:
            return
        try:
            while count := self._stream.recv_into(_ROOM):
                self._received += _ROOM[:count]
        except BlockingIOError:
            self._take_frames()
            self._flush()
            return
        except OSError:
            self._take_frames()
            self.close()
            return
        self._take_frames()
        self.close()

    def _take_frames(self) -> None:
        received = self._received
        while len(received) >= 4:
            size = int.from_bytes(received[:4], "big")
            if len(received) < 4 + size or self.closed:
                return
            frame = memoryview(bytes(received[4 : 4 + size]))
            del received[: 4 + size]
            self._calls.trace.mix(frame.tobytes())
            number = response_correlation_id(frame)
            if number != next(iter(self._under_way), None):
                raise Violation(f"answers: {number} came, not that of the oldest request")
            call = self._under_way.pop(number)
            call.answered(decode_response(call.api_key, call.version, frame))

    def _flush(self) -> None:
        stream = self._stream
        if stream is None or self.closed:
            return
        try:
            while self._unsent:
                first = self._unsent[0]
                taken = stream.send(first)
                if taken < len(first):
                    self._unsent[0] = first[taken:]
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            return
        except OSError:
            self.close()

    def _timed_out(self, number: int) -> None:
        call = self._under_way.get(number)
        if call is not None and self._calls.keeps:
            self._under_way[number] = call._replace(answered=_nobody)
            call.answered(None)
        elif call is not None:
            self.close()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._stream is not None:
            self._stream.close()
        self._calls.lost(self)
        under_way, self._under_way = self._under_way, {}
        for call in under_way.values():
            call.answered(None)


class StreamCalls:
    """simulator.clients.surroundings.Calls."""

    def __init__(
        self,
        loop: Loop,
        lan: Lan,
        trace: Trace,
        address: int,
        *,
        keeps: bool = False,
        software: str = "",
    ) -> None:
        self.loop, self.lan, self.trace, self.address = loop, lan, trace, address
        self.keeps, self.software = keeps, software
        self.ended: Callable[[int], None] = _nobody
        """Told of the node whose connection has ended."""
        self._connections: dict[int, Connection] = {}
        self._connected = self._asked = 0

    def now(self) -> int:
        return self.loop.now_ns

    def call(
        self,
        target: int,
        message: Request,
        version: int,
        timeout_ns: int,
        answered: Callable[[Any], None],
    ) -> None:
        number, data = self._frame(message, version)
        call = _Call(_KEYS[type(message)], version, answered)
        self.connected(target).ask(number, data, call, timeout_ns)

    def say(self, target: int, message: Request, version: int) -> None:
        """A request that has no answer (acks=0)."""
        _, data = self._frame(message, version)
        self.connected(target).say(data)

    def _frame(self, message: Request, version: int) -> tuple[int, bytes]:
        self._asked += 1
        number = self._asked
        frame: list[Buffer] = encode_request(message, version, number, f"client-{self.address}")
        data = b"".join(frame)
        self.trace.mix(data)
        return number, data

    def connection(self, target: int) -> int:
        return self.connected(target).number

    def connected(self, target: int) -> Connection:
        found = self._connections.get(target)
        if found is None:
            self._connected += 1
            found = self._connections[target] = Connection(self, target, self._connected)
            if self.software:
                self._name_itself(found)
        return found

    def _name_itself(self, connection: Connection) -> None:
        """As all do who know how, before anything else."""
        request = ApiVersionsRequest(self.software, "1")
        number, data = self._frame(request, NAMES_VERSION)
        call = _Call(_KEYS[ApiVersionsRequest], NAMES_VERSION, _nobody)
        connection.ask(number, data, call, NAMES_NS)

    def found(self, target: int) -> Connection | None:
        """The connection that there is, or is being made."""
        return self._connections.get(target)

    def numbers(self) -> set[int]:
        """Of the connections that live."""
        return {one.number for one in self._connections.values()}

    def drop(self, target: int) -> None:
        found = self._connections.get(target)
        if found is not None:
            found.close()

    def lost(self, connection: Connection) -> None:
        if self._connections.get(connection.target) is connection:
            del self._connections[connection.target]
            self.ended(connection.target)


def _nobody(_response: object) -> None:
    """Whoever asked has given up."""


def _free(_ns: int) -> None:
    """A client's time is its own."""
