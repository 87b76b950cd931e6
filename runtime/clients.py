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
from paxos.ids import GroupId
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
SENT_AHEAD_BYTES: Final = 4 * 1024 * 1024
"""What a client's socket holds that has not reached us: Linux lets it grow to so much."""
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

    __slots__ = ("answer", "client", "connection", "done", "hurry", "refusal", "size")

    def __init__(self, client: "Client", size: int) -> None:
        self.client = client
        self.connection = client.connection
        self.size = size
        self.done = False
        self.answer: list[Buffer] | None = None
        self.hurry: Callable[[], None] | None = None
        self.refusal = 0
        """The last that its answer tells of, counted in the connection."""

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

    def refused(self, topic: str, index: int) -> None:
        client = self.client
        self.refusal = client.connection.refused(topic, index)
        if not client.gone:
            client.clients.wary[client] = None

    def hold_back(self, group: GroupId) -> None:
        self.client.last_size = self.size
        self.client.clients.hold_back(self.client, group)

    def produces(self, producer_id: int) -> None:
        client = self.client
        if client.producer_id != producer_id and not client.gone:
            client.clients.homes.changed(client.producer_id, producer_id)
            client.producer_id = producer_id

    def stop_reading(self) -> None:
        self.client.looked_at += 1
        self.client.pause()

    def read_on(self) -> None:
        self.client.looked_at -= 1
        self.client.go_on()

    def close(self, reason: str) -> None:
        self.client.close(reason)

    def has_hung_up(self) -> bool:
        channel = self.client.channel
        return channel is None or channel.has_hung_up()


@attrs.define
class Sight:
    """From when on a client could see the refusals up to `number`, and has nothing on its way to us
    that it sent before: the answers are out; its kernel has acknowledged them; and what it had
    given its kernel by then has come, because nothing more comes or because enough has."""

    number: int
    told_at: int | None = None
    """Bytes sent, once the answers are among them."""
    behind: int | None = None
    """Bytes received, with all that the client may have had in its socket at that time."""


class Crowd:
    """Clients that are not read, because together they send more than is done; first come, first
    served. Otherwise a refusal in the middle of a pipeline would let later requests overtake."""

    def __init__(self) -> None:
        self.clients: dict[Client, None] = {}
        self.released_bytes = 0
        """What those who went on of late are likely to send, and have not sent yet."""

    def join(self, client: "Client") -> None:
        client.held_by = self
        self.clients[client] = None
        self.released_bytes = max(0, self.released_bytes - client.last_size)

    def leave(self, client: "Client") -> None:
        client.held_by = None
        del self.clients[client]

    def let_go(self, room: int) -> "list[Client]":
        """Those for whom there is room now; one at least where there is any."""
        gone = []
        while self.clients and self.released_bytes < room:
            client = next(iter(self.clients))
            self.leave(client)
            self.released_bytes += client.last_size
            gone.append(client)
        return gone


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
        self.looked_at = 0
        """Batches of it that are still being read: nothing may overtake them."""
        self.held_by: Crowd | None = None
        """Whose crowd it waits in: then it is paused whatever its own account says."""
        self.last_size = 0
        """Of the request that crowded them: as much is likely to follow."""
        self.known = 0
        """The last of the refusals that its client could see."""
        self.sight: Sight | None = None
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
            self.last_size = size
            clients.hold_back(self, None)
        try:
            clients.serve(frame, owned, self.host, place)
        except Exception as error:  # noqa: BLE001  told with its traceback, costs one connection
            clients.bug(self, error)
        if len(queue) >= UNANSWERED_MAX or self.unanswered_bytes >= UNANSWERED_BYTES_MAX:
            self.pause()

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
        if self.paused:
            self.go_on()

    def pause(self) -> None:
        if not self.paused and self.channel is not None:
            self.paused = True
            self.channel.pause_reading()

    def go_on(self) -> None:
        """Read again, if nothing speaks against it any more."""
        low = len(self.queue) < UNANSWERED_MAX // 2
        if self.held_by is not None or self.looked_at:
            return
        if low and self.unanswered_bytes < UNANSWERED_BYTES_MAX // 2:
            if self.clients.full:
                self.clients.hold_back(self, None)
            elif self.paused and self.channel is not None:
                self.paused = False
                self.channel.resume_reading()

    def look(self, boot_ns: int) -> None:
        """Whether the client could know of refusals by now."""
        connection, channel = self.connection, self.channel
        assert channel is not None
        connection.seen(self.known, boot_ns)
        if self.sight is None:
            self.sight = Sight(connection.refusals)
        sight = self.sight
        if sight.told_at is None:
            if any(0 < place.refusal <= sight.number for place in self.queue):
                return
            sight.told_at = channel.sent_bytes + channel.unsent_bytes
        if sight.behind is None:
            if channel.acknowledged_bytes < sight.told_at:
                return
            sight.behind = channel.received_bytes + SENT_AHEAD_BYTES
        taken = channel.received_bytes - channel.partial_bytes
        if taken >= sight.behind or (not self.paused and channel.dry):
            self.sight, self.known = None, sight.number
            connection.seen(self.known, boot_ns)

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
        self.room: Callable[[GroupId], int] = lambda _: UNANSWERED_BYTES_MAX
        """How many more bytes a group's held back clients may send."""
        self.crowds: dict[GroupId | None, Crowd] = {}
        """Who waits until a group, or the node, has less to do."""
        self.unanswered_bytes = 0
        self.wary: dict[Client, None] = {}
        """Who was refused something, and may not know it yet."""
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
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for client in dirty:
                self._flush(client)
        if self.crowds:
            self._relieve()

    def hold_back(self, client: Client, group: GroupId | None) -> None:
        """Read no more of a client until the group, or for None the node, has less to do."""
        if client.held_by is None and not client.gone:
            crowd = self.crowds.get(group)
            if crowd is None:
                crowd = self.crowds[group] = Crowd()
            crowd.join(client)
            client.pause()

    def _relieve(self) -> None:
        """Let go on who has waited longest, and no more of them than there is room for what they
        are likely to send."""
        for group, crowd in list(self.crowds.items()):
            if group is None:
                room = self.limits.pending_bytes_per_node - self.unanswered_bytes + 1
            else:
                room = self.room(group)
            for client in crowd.let_go(room):
                client.go_on()
            if not crowd.clients and not crowd.released_bytes:
                del self.crowds[group]

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
            if client.held_by is not None:
                client.held_by.leave(client)
            self.wary.pop(client, None)
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

    def look(self) -> None:
        """Every tick: who was let go on has had the time to send something, or has nothing; and who
        was refused something may have seen that."""
        if self.wary:
            boot_ns = self._boot_ns()
            for client in list(self.wary):
                client.look(boot_ns)
                if client.connection.lanes is None:
                    client.sight = None
                    del self.wary[client]
        for crowd in self.crowds.values():
            crowd.released_bytes = 0

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
