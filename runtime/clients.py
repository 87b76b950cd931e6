"""Kafka clients' connections: requests in, answers out in the order of the requests, with limits.

Every request takes a place in its connection's queue; an answer leaves when all before it have left
(kafka.md section 5). What a connection may have unanswered is bounded in number and in bytes: over
the bound its socket is not read, so TCP pushes back on that client and on nobody else.
"""

import socket
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, Protocol

import attrs

from broker.ports import Reply
from paxos.entry import Buffer
from runtime.channel import Channel
from runtime.dataplane import Plane
from runtime.journal import Journal
from wire.framing import FrameLimits

UNANSWERED_MAX: Final = 512
"""Requests one connection may have under way; librdkafka's default is far more, TCP waits."""
UNANSWERED_BYTES_MAX: Final = 64 * 1024 * 1024
UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Answers a client has not read: over this it is not a slow reader but a broken one."""
REQUEST_NOT_FINISHED_S: Final = 30.0
REFUSALS_LOGGED_EVERY_S: Final = 1.0


class Serve(Protocol):
    def __call__(self, frame: memoryview, owned: bool, client_host: str, reply: Reply) -> None: ...


@attrs.frozen(kw_only=True)
class ClientLimits:
    connections_max: int
    connections_per_ip_max: int
    pending_bytes_per_node: int
    idle_ns: int
    frames: FrameLimits


class Place:
    """One request's place in its connection's queue of answers (a broker.ports.Reply)."""

    __slots__ = ("answer", "client", "done", "size")

    def __init__(self, client: "Client", size: int) -> None:
        self.client = client
        self.size = size
        self.done = False
        self.answer: list[Buffer] | None = None

    def complete(self, chunks: list[Buffer]) -> None:
        if self.client.gone:
            return  # an answer to nobody
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = chunks
        self.client.answered(self)

    def nothing(self) -> None:
        if self.client.gone:
            return
        assert not self.done, "a request is answered once"
        self.done = True
        self.client.answered(self)

    def close(self, reason: str) -> None:
        self.client.close(reason)


class Client:
    """One connection."""

    def __init__(self, clients: "Clients", host: str) -> None:
        self.clients, self.host = clients, host
        self.channel: Channel | None = None
        self.queue: deque[Place] = deque()
        self.unanswered_bytes = 0
        self.paused = False
        self.dirty = False
        self.active_boot_ns = 0

    def on_frame(self, frame: memoryview, owned: bool) -> None:
        place = Place(self, len(frame))
        self.queue.append(place)
        self.unanswered_bytes += place.size
        self.clients.unanswered_bytes += place.size
        self.clients.heard(self)
        self.clients.serve(frame, owned, self.host, place)
        if len(self.queue) >= UNANSWERED_MAX or self.unanswered_bytes >= UNANSWERED_BYTES_MAX:
            self._pause()

    def answered(self, place: Place) -> None:
        self.unanswered_bytes -= place.size
        self.clients.unanswered_bytes -= place.size
        if not self.dirty:
            self.dirty = True
            self.clients.dirty.append(self)

    def flush(self) -> None:
        """Send every answer whose turn has come; called at the end of a round."""
        self.dirty = False
        channel, queue = self.channel, self.queue
        if channel is None or channel.closed:
            return
        buffers: list[Buffer] = []
        while queue and queue[0].done:
            answer = queue.popleft().answer
            if answer is not None:
                buffers += answer
        if buffers and not channel.send(buffers, sum(map(len, buffers))):
            self.close("the client does not read its answers")
            return
        channel.flush()
        low = len(queue) < UNANSWERED_MAX // 2
        if self.paused and low and self.unanswered_bytes < UNANSWERED_BYTES_MAX // 2:
            self.paused = False
            channel.resume_reading()

    def _pause(self) -> None:
        if not self.paused and self.channel is not None:
            self.paused = True
            self.channel.pause_reading()

    def push_back(self) -> None:
        """The node holds too much unanswered data: stop reading until it is less."""
        self._pause()

    def close(self, reason: str) -> None:
        if self.channel is not None:
            self.channel.close(reason)

    @property
    def gone(self) -> bool:
        return self.channel is None or self.channel.closed

    def on_closed(self, reason: str) -> None:
        self.clients.closed(self, reason)


class Clients:
    def __init__(
        self,
        plane: Plane,
        serve: Serve,
        limits: ClientLimits,
        journal: Journal,
        boot_ns: Callable[[], int],
    ) -> None:
        self._plane, self.serve, self._limits = plane, serve, limits
        self._journal, self._boot_ns = journal, boot_ns
        self._by_host: Counter[str] = Counter()
        self._round_boot_ns = boot_ns()
        self._refused_logged_ns = 0
        self.connections: set[Client] = set()
        self.dirty: list[Client] = []
        self.unanswered_bytes = 0
        self.accepted_total = 0
        self.refused_total = 0

    def accept(self, sock: socket.socket, host: str) -> None:
        limits = self._limits
        if len(self.connections) >= limits.connections_max:
            self._refuse(sock, host, "connections_max")
        elif self._by_host[host] >= limits.connections_per_ip_max:
            self._refuse(sock, host, "connections_per_ip_max")
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = Client(self, host)
            client.active_boot_ns = self._round_boot_ns
            client.channel = Channel(
                self._plane,
                sock,
                limits.frames,
                on_frame=client.on_frame,
                on_closed=client.on_closed,
                unsent_bytes_max=UNSENT_BYTES_MAX,
            )
            self.connections.add(client)
            self._by_host[host] += 1
            self.accepted_total += 1

    def _refuse(self, sock: socket.socket, host: str, limit: str) -> None:
        sock.close()
        self.refused_total += 1
        now = self._boot_ns()
        if now - self._refused_logged_ns > REFUSALS_LOGGED_EVERY_S * 1e9:
            self._refused_logged_ns = now
            self._journal.warning(
                "client refused", host=host, limit=f"limits.{limit}", refused=self.refused_total
            )

    def heard(self, client: Client) -> None:
        client.active_boot_ns = self._round_boot_ns
        if self.unanswered_bytes > self._limits.pending_bytes_per_node:
            client.push_back()

    def flush(self) -> None:
        """The end of a round: one send per connection that has answers."""
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for client in dirty:
                client.flush()

    def closed(self, client: Client, reason: str) -> None:
        if client in self.connections:
            self.connections.discard(client)
            self._by_host[client.host] -= 1
            if not self._by_host[client.host]:
                del self._by_host[client.host]
            left = sum(place.size for place in client.queue if not place.done)
            self.unanswered_bytes -= left
            for place in client.queue:
                place.size = 0  # late answers must not be counted again
            self._journal.debug("client gone", host=client.host, reason=reason)

    def tick(self) -> None:
        """Close what is idle or stuck in the middle of a request; wake what was pushed back."""
        now = self._round_boot_ns = self._boot_ns()
        for client in list(self.connections):
            silent = now - client.active_boot_ns
            channel = client.channel
            if channel is None or client.queue:
                if client.paused and not client.dirty:
                    client.dirty = True
                    self.dirty.append(client)
            elif channel.partial_bytes and silent > REQUEST_NOT_FINISHED_S * 1e9:
                client.close("a request was not finished in time")
            elif silent > self._limits.idle_ns:
                client.close("idle")

    def close_all(self, reason: str) -> None:
        for client in list(self.connections):
            client.close(reason)
