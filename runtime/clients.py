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

from broker.homes import NO_PRODUCER, Homes
from broker.ports import Connection, Reply
from paxos.entry import Buffer
from runtime.channel import Channel
from runtime.dataplane import Plane
from runtime.journal import Journal
from wire.framing import FrameLimits

FETCH_KEY: Final = b"\x00\x01"
UNANSWERED_MAX: Final = 512
"""Requests one connection may have under way; librdkafka's default is far more, TCP waits."""
UNANSWERED_BYTES_MAX: Final = 64 * 1024 * 1024
UNSENT_BYTES_MAX: Final = 128 * 1024 * 1024
"""Answers a client has not read: over this it is not a slow reader but a broken one."""
REQUEST_NOT_FINISHED_S: Final = 30.0
ANSWER_NOT_READ_S: Final = 60.0
"""A client that takes nothing of what it asked for keeps its answers in our memory."""
REFUSALS_LOGGED_EVERY_S: Final = 1.0
FAULTS_LOGGED_PER_S: Final = 10
USUAL_ENDINGS: Final = (
    "closed by the other side",
    "receive failed",
    "send failed",
    "idle",
    "this node stops",
)
"""Reasons that say nothing against a client."""


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

    __slots__ = ("answer", "client", "connection", "done", "hurry", "size")

    def __init__(self, client: "Client", size: int) -> None:
        self.client = client
        self.connection = client.connection
        self.size = size
        self.done = False
        self.answer: list[Buffer] | None = None
        self.hurry: Callable[[], None] | None = None

    def complete(self, chunks: list[Buffer]) -> None:
        client = self.client
        if client.gone:
            return  # an answer to nobody
        assert not self.done, "a request is answered once"
        self.done = True
        self.answer = chunks
        client.answered(self.size)

    def nothing(self) -> None:
        if self.client.gone:
            return
        assert not self.done, "a request is answered once"
        self.done = True
        self.client.answered(self.size)

    def when_waited(self, hurry: Callable[[], None]) -> None:
        self.hurry = hurry

    def produces(self, producer_id: int) -> None:
        client = self.client
        if client.producer_id != producer_id and not client.gone:
            client.clients.homes.changed(client.producer_id, producer_id)
            client.producer_id = producer_id

    def close(self, reason: str) -> None:
        self.client.close(reason)


class Client:
    """One connection."""

    def __init__(self, clients: "Clients", host: str) -> None:
        self.clients, self.host = clients, host
        self.channel: Channel | None = None
        self.connection = Connection()
        self.queue: deque[Place] = deque()
        self.unanswered_bytes = 0
        self.producer_id = NO_PRODUCER
        self.paused = False
        self.dirty = False
        self.active_boot_ns = 0
        """When a request came last; like the next two it is as exact as housekeeping is often."""
        self.unfinished_boot_ns = 0
        """When a request was first seen unfinished; older than `active` where that was another."""
        self.unread_boot_ns = 0
        self.sent_seen = -1

    def on_frame(self, frame: memoryview, owned: bool) -> None:
        clients, queue = self.clients, self.queue
        size = len(frame)
        place = Place(self, size)
        if queue:
            before = queue[-1]
            if before.hurry is not None and not before.done and bytes(frame[:2]) != FETCH_KEY:
                before.hurry()
        queue.append(place)
        self.unanswered_bytes += size
        clients.unanswered_bytes += size
        self.active_boot_ns = clients.round_boot_ns
        if clients.unanswered_bytes > clients.limits.pending_bytes_per_node:
            self.push_back()
        try:
            clients.serve(frame, owned, self.host, place)
        except Exception as error:  # noqa: BLE001  told with its traceback, costs one connection
            clients.bug(self, error)
        if len(queue) >= UNANSWERED_MAX or self.unanswered_bytes >= UNANSWERED_BYTES_MAX:
            self._pause()

    def answered(self, size: int) -> None:
        """A request of `size` bytes waits for nothing any more but its turn."""
        clients = self.clients
        self.unanswered_bytes -= size
        clients.unanswered_bytes -= size
        if not self.dirty:
            self.dirty = True
            clients.dirty.append(self)

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
            if self.clients.full:
                self.clients.waiting[self] = None
            else:
                self.paused = False
                channel.resume_reading()

    def _pause(self) -> None:
        if not self.paused and self.channel is not None:
            self.paused = True
            self.channel.pause_reading()

    def push_back(self) -> None:
        """The node holds too much unanswered data: stop reading until it is less."""
        self._pause()

    def overdue(self, now: int, idle_ns: int) -> str:
        """Why this connection has lasted long enough, or "" if it may go on."""
        channel = self.channel
        if channel is None:
            return ""
        if not channel.unsent_bytes:
            self.sent_seen = -1
        elif self.sent_seen != channel.sent_bytes:
            self.sent_seen, self.unread_boot_ns = channel.sent_bytes, now
        elif now - self.unread_boot_ns > ANSWER_NOT_READ_S * 1e9:
            return "it does not read its answers"
        if self.paused or not channel.partial_bytes:
            self.unfinished_boot_ns = 0
        elif self.unfinished_boot_ns <= self.active_boot_ns:
            self.unfinished_boot_ns = now
        elif now - self.unfinished_boot_ns > REQUEST_NOT_FINISHED_S * 1e9:
            return "a request was not finished in time"
        waits = self.queue or channel.unsent_bytes or channel.partial_bytes
        return "idle" if not waits and now - self.active_boot_ns > idle_ns else ""

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
        self._plane, self.serve, self.limits = plane, serve, limits
        self._journal, self._boot_ns = journal, boot_ns
        self._by_host: Counter[str] = Counter()
        self.round_boot_ns = boot_ns()
        """Of the last housekeeping."""
        self._refused_logged_ns = 0
        self._faults_since_ns = 0
        self._faults_logged = 0
        self.homes = Homes()
        self.connections: set[Client] = set()
        self.dirty: list[Client] = []
        self.waiting: dict[Client, None] = {}
        """Pushed back, and ready to go on as soon as the node is not full any more."""
        self.unanswered_bytes = 0
        self.accepted_total = 0
        self.refused_total = 0

    def accept(self, sock: socket.socket, host: str) -> None:
        limits = self.limits
        if len(self.connections) >= limits.connections_max:
            self._refuse(sock, host, "connections_max")
        elif self._by_host[host] >= limits.connections_per_ip_max:
            self._refuse(sock, host, "connections_per_ip_max")
        else:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client = Client(self, host)
            client.active_boot_ns = self.round_boot_ns
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

    @property
    def full(self) -> bool:
        """Whether all clients together have as much unanswered as this node wants to hold."""
        return self.unanswered_bytes > self.limits.pending_bytes_per_node

    def bug(self, client: Client, error: Exception) -> None:
        """Ours, and loud; but it costs only the connection that led to it."""
        self._journal.bug(f"connection of {client.host}", error)
        client.close(f"internal error: {type(error).__name__}")

    def flush(self) -> None:
        """The end of a round: one send per connection that has answers."""
        while self.dirty or (self.waiting and not self.full):
            dirty, self.dirty = self.dirty, []
            if self.waiting and not self.full:
                dirty += self.waiting
                self.waiting = {}
            for client in dirty:
                self._flush(client)

    def _flush(self, client: Client) -> None:
        try:
            client.flush()
        except Exception as error:  # noqa: BLE001  told with its traceback, costs one connection
            self.bug(client, error)

    def closed(self, client: Client, reason: str) -> None:
        if client in self.connections:
            self.connections.discard(client)
            self._by_host[client.host] -= 1
            if not self._by_host[client.host]:
                del self._by_host[client.host]
            self.unanswered_bytes -= client.unanswered_bytes
            self.homes.changed(client.producer_id, NO_PRODUCER)
            client.producer_id = NO_PRODUCER
            client.queue.clear()  # answers to nobody
            self.waiting.pop(client, None)
            self._tell(client.host, reason)

    def _tell(self, host: str, reason: str) -> None:
        """Why a connection ended: what clients usually do in the debug log, faults for everyone to
        see, but a flood of them not in full."""
        if reason.startswith(USUAL_ENDINGS):
            self._journal.debug("client gone", host=host, reason=reason)
            return
        now = self._boot_ns()
        if now - self._faults_since_ns > 1_000_000_000:
            self._faults_since_ns, self._faults_logged = now, 0
        self._faults_logged += 1
        if self._faults_logged <= FAULTS_LOGGED_PER_S:
            self._journal.warning("client closed", host=host, reason=reason)

    def tick(self) -> None:
        """Housekeeping: close what is idle, stuck in the middle of a request, or never read."""
        now = self.round_boot_ns = self._boot_ns()
        for client in list(self.connections):
            reason = client.overdue(now, self.limits.idle_ns)
            if reason:
                client.close(reason)

    def close_all(self, reason: str) -> None:
        for client in list(self.connections):
            client.close(reason)
