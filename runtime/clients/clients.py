"""Kafka clients' connections: requests in, answers out in the order of the requests, with limits.

Every request has a slot in its connection's queue; an answer is sent once all before it are sent
(docs/kafka.md). The unanswered requests of a connection are limited in number and in bytes: above
the limit its socket is not read, so that TCP pushes back on that client and on no other.
"""

from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from typing import Protocol

from broker.ports import Connection, Reply
from broker.producers.producer_connections import NO_PRODUCER, ProducerConnections
from paxos.entry import Buffer
from paxos.ids import GroupId
from runtime.clients.backpressure import Backpressure, RefusalSight
from runtime.clients.doors import PLAIN, Door
from runtime.clients.endings import Endings
from runtime.clients.limits import (
    ANSWER_NOT_READ_S,
    ANSWERS_AHEAD_BYTES,
    FETCH_KEY,
    FIRST_REQUEST_S,
    HANDSHAKE_S,
    HELD_PROGRESS_BYTES,
    NOT_SEEN,
    REFUSALS_LOGGED_EVERY_S,
    REQUEST_NOT_FINISHED_S,
    SENT_AHEAD_BYTES,
    UNANSWERED_BYTES_MAX,
    UNANSWERED_MAX,
    UNPROVED_FRAMES,
    UNSENT_BYTES_MAX,
    ClientLimits,
)
from runtime.clients.muted import MutedClients
from runtime.clients.places import Places
from runtime.clients.response_slot import ResponseSlot
from runtime.network.channel import Channel
from runtime.network.dataplane import Plane
from runtime.network.stream import Stream
from runtime.system.connection_limits import ConnectionRate, SilentConnections
from runtime.system.journal import Journal
from runtime.system.memory import ClientRoom, Memory


class Serve(Protocol):
    def __call__(self, frame: memoryview, owned: bool, client_host: str, reply: Reply) -> None: ...


ServeOver = Callable[[int, memoryview, bool, str, Reply], None]
"""Handles an oversized request, given its length and the part of it that was kept."""


def _close_over(size: int, _kept: memoryview, _owned: bool, _host: str, reply: Reply) -> None:
    reply.close(f"a request of {size} bytes")


class Client:
    """One connection of a client."""

    def __init__(self, clients: "Clients", host: str, door: Door) -> None:
        self.clients, self.host = clients, host
        self.channel: Channel | None = None
        self.connection = Connection(door.listener)
        self.queue: deque[ResponseSlot] = deque()
        self.unanswered_bytes = 0
        self.producer_id = NO_PRODUCER
        self.paused = False
        self.looked_at = 0
        """How many of its batches are still being validated: nothing may overtake them."""
        self.held_by: Backpressure[Client] | None = None
        """What it waits for; then it is paused, whatever its own limits allow."""
        self.last_size = 0
        """The size of the request that caused the wait: the next is likely to be as large."""
        self.known = 0
        """The last of the refusals that the client could have seen."""
        self.sight: RefusalSight | None = None
        self.dirty = False
        self.missing_room = 0
        """The room that its next request waits for; it is not read meanwhile."""
        self.answer_bytes = 0
        """Bytes of answers that wait for their turn, or for the socket."""
        self.queued_answer_bytes = 0
        """Those of them that wait for their turn."""
        self.opened_boot_ns = 0
        self.has_sent = False
        self.received_seen = 0
        self.active_boot_ns = 0
        """When the last request came; this and the next two are as exact as housekeeping."""
        self.unfinished_boot_ns = 0
        """When a request was first seen unfinished, or had come on well; older than `active` where
        that was another."""
        self.unfinished_received = 0
        """How much had been received then."""
        self.unread_boot_ns = 0
        self.sent_seen = -1

    def on_over(self, kept: memoryview, size: int) -> None:
        """An oversized request was discarded: answer with an error, in its turn."""
        self._take(kept, True, partial(self.clients.serve_over, size))

    def on_frame(self, frame: memoryview, owned: bool) -> None:
        self._take(frame, owned, self.clients.serve)

    def _take(self, frame: memoryview, owned: bool, serve: "Serve") -> None:
        clients, queue = self.clients, self.queue
        size = len(frame)
        place = ResponseSlot(self, size)
        if queue:
            before = queue[-1]
            if before.hurry is not None and not before.done and bytes(frame[:2]) != FETCH_KEY:
                before.hurry()
        queue.append(place)
        self.unanswered_bytes += size
        clients.memory.requests += size
        self.active_boot_ns = clients.round_boot_ns
        if not self.has_sent and self.connection.session is None:
            self._speaks()
        if clients.memory.requests > clients.limits.pending_bytes_per_node:
            self.last_size = size
            clients.hold_back(self, None)
        try:
            serve(frame, owned, self.host, place)
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            clients.bug(self, error)
        if len(queue) >= UNANSWERED_MAX or self.unanswered_bytes >= UNANSWERED_BYTES_MAX:
            self.pause()

    def _speaks(self) -> None:
        """It is no silent connection any more."""
        self.has_sent = True
        self.clients.silent.discard(self)

    def proved(self) -> None:
        """The client has proved who it is, for the first time or again."""
        if not self.gone and not self.has_sent:
            self._speaks()
            assert self.channel is not None
            self.channel.limit_frames(self.clients.limits.frames)

    @property
    def answer_room(self) -> int:
        return self.clients.memory.answer_room

    def refused(self, topic: str, index: int) -> int:
        """Count the refusal of one of its batches; returns its number on this connection."""
        if not self.gone:
            self.clients.unaware_of_refusal[self] = None
        return self.connection.refused(topic, index)

    def hold_back(self, size: int, group: GroupId) -> None:
        self.last_size = size
        self.clients.hold_back(self, group)

    def produces(self, producer_id: int) -> None:
        if self.producer_id != producer_id and not self.gone:
            self.clients.producer_connections.changed(self.producer_id, producer_id)
            self.producer_id = producer_id

    def stop_reading(self) -> None:
        self.looked_at += 1
        self.pause()

    def read_on(self) -> None:
        self.looked_at -= 1
        self.go_on()

    def mute(self, until_boot_ns: int) -> None:
        self.clients.muted.join(self, until_boot_ns)

    def has_hung_up(self) -> bool:
        return self.channel is None or self.channel.has_hung_up()

    def answered(self, size: int) -> None:
        """A request of `size` bytes now has its answer, which waits for its turn."""
        clients = self.clients
        self.unanswered_bytes -= size
        clients.memory.requests -= size
        if not self.dirty:
            self.dirty = True
            clients.dirty.append(self)

    def holds_answers(self, size: int) -> None:
        """Count an answer that waits for its turn; with too many bytes, stop reading."""
        self.queued_answer_bytes += size
        self.answer_bytes += size
        self.clients.memory.answers += size
        if self.answer_bytes >= ANSWERS_AHEAD_BYTES:
            self.pause()

    def sent(self) -> None:
        """Update the accounts after the socket has accepted something, and perhaps read again."""
        assert self.channel is not None
        left = self.queued_answer_bytes + self.channel.unsent_bytes
        self.clients.memory.answers += left - self.answer_bytes
        self.answer_bytes = left
        if self.paused and not self.channel.closed:
            self.go_on()

    def flush(self) -> None:
        """Send every answer whose turn has come; called at the end of a round."""
        self.dirty = False
        channel, queue = self.channel, self.queue
        if channel is None or channel.closed:
            return
        buffers: list[Buffer] = []
        size = 0
        while queue and queue[0].done:
            place = queue.popleft()
            if place.answer is not None:
                buffers += place.answer
                size += place.answer_bytes
        self.queued_answer_bytes -= size
        if buffers and not channel.send(buffers, size):
            self.close("the client does not read its answers")
            return
        channel.flush()
        if not channel.closed:
            self.sent()

    def pause(self) -> None:
        if not self.paused and self.channel is not None:
            self.paused = True
            self.channel.pause_reading()

    def go_on(self) -> None:
        """Read again, if no limit forbids it."""
        low = len(self.queue) < UNANSWERED_MAX // 2
        if self.held_by is not None or self.looked_at or self.missing_room or self.clients.stops:
            return
        if self.answer_bytes >= ANSWERS_AHEAD_BYTES // 2 or self in self.clients.muted:
            return
        if low and self.unanswered_bytes < UNANSWERED_BYTES_MAX // 2:
            if self.clients.full:
                self.clients.hold_back(self, None)
            elif self.paused and self.channel is not None:
                self.paused = False
                self.channel.resume_reading()

    def on_no_room(self, size: int) -> None:
        """Wait for memory: there is no room for its next request, which is large."""
        self.paused, self.missing_room = True, size
        self.clients.waiting[self] = None
        self.clients.memory.waits += 1

    def look(self, boot_ns: int) -> None:
        """Check whether the client could have seen its refusals by now."""
        connection, channel = self.connection, self.channel
        assert channel is not None
        connection.seen(self.known, boot_ns)
        if self.sight is None:
            self.sight = RefusalSight(connection.refusals)
        sight = self.sight
        if sight.told_at is None:
            if any(0 < place.refusal <= sight.number for place in self.queue):
                return
            sight.told_at = channel.sent_bytes + channel.unsent_bytes
        if sight.behind is None:
            if channel.acknowledged_bytes < sight.told_at:
                return
            come = channel.received_bytes + channel.untaken_bytes
            sight.behind = come + SENT_AHEAD_BYTES
        taken = channel.received_bytes - channel.partial_bytes
        if taken >= sight.behind or (not self.paused and channel.dry):
            self.sight, self.known = None, sight.number
            connection.seen(self.known, boot_ns)

    def stands_still(self) -> bool:
        """Whether its request makes no progress although we read it; call every second."""
        channel = self.channel
        assert channel is not None
        seen, self.received_seen = self.received_seen, channel.received_bytes
        takes_answers = self.answer_bytes < ANSWERS_AHEAD_BYTES // 2
        if takes_answers and (self.paused or channel.untaken_bytes):
            self.received_seen = NOT_SEEN  # it waits for us, and gets a whole second after that
            return False
        return seen != NOT_SEEN and self.received_seen - seen < HELD_PROGRESS_BYTES

    def overdue(self, now: int, idle_ns: int) -> str:
        """Why this connection must be closed; "" if it may stay."""
        channel = self.channel
        if channel is None:
            return ""
        if not self.has_sent:
            late = self._late(channel, now - self.opened_boot_ns)
            if late or self.connection.session is not None:
                return late
        if not channel.unsent_bytes:
            self.sent_seen = -1
        elif self.sent_seen != channel.sent_bytes:
            self.sent_seen, self.unread_boot_ns = channel.sent_bytes, now
        elif now - self.unread_boot_ns > ANSWER_NOT_READ_S * 1e9:
            return "it does not read its answers"
        if self.paused or not channel.partial_bytes:
            self.unfinished_boot_ns = 0
        elif (
            self.unfinished_boot_ns <= self.active_boot_ns
            or channel.received_bytes - self.unfinished_received >= HELD_PROGRESS_BYTES
        ):
            self.unfinished_boot_ns, self.unfinished_received = now, channel.received_bytes
        elif now - self.unfinished_boot_ns > REQUEST_NOT_FINISHED_S * 1e9:
            return "a request was not finished in time"
        waits = self.queue or channel.unsent_bytes or channel.partial_bytes
        return "idle" if not waits and now - self.active_boot_ns > idle_ns else ""

    def _late(self, channel: Channel, passed_ns: int) -> str:
        """What it should have done since it connected; "" if there is time left."""
        if channel.shaking and passed_ns > HANDSHAKE_S * 1e9:
            return "its TLS handshake was not finished in time"
        if self.connection.session is not None:
            late = passed_ns > self.clients.limits.authenticate_ns
            return "it has not authenticated in time" if late else ""
        if passed_ns > FIRST_REQUEST_S * 1e9:
            if not channel.partial_bytes:
                return "it has not asked anything"
            if channel.received_bytes < HELD_PROGRESS_BYTES:
                return "a request was not finished in time"
        return ""

    @property
    def rests(self) -> bool:
        """Whether it has no request in progress, and nothing to receive or send."""
        channel = self.channel
        if channel is None or channel.closed or not self.has_sent or self.queue:
            return False
        return not channel.unsent_bytes and channel.dry

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
        memory: Memory | None = None,
        serve_over: "ServeOver | None" = None,
    ) -> None:
        self._plane, self.serve, self.limits = plane, serve, limits
        self.serve_over = serve_over or _close_over
        self.memory = memory or Memory(limits.pending_bytes_per_node, limits.answer_bytes_per_node)
        self._memory_room = ClientRoom(self.memory)
        self.silent: SilentConnections[Client] = SilentConnections()
        self.rate = ConnectionRate(limits.connections_per_ip_per_s, boot_ns)
        self.waiting: dict[Client, None] = {}
        """Clients whose next request waits for memory; first come, first served."""
        self._short_seen = False
        """Whether a client waited for memory at the last housekeeping."""
        self.connections_max = limits.connections_max
        self._journal, self._boot_ns = journal, boot_ns
        self._by_host: Counter[str] = Counter()
        self.round_boot_ns = boot_ns()
        """The time of the last housekeeping."""
        self._refused_logged_ns = 0
        self._endings = Endings(journal, boot_ns)
        self.muted: MutedClients[Client] = MutedClients()
        self.producer_connections = ProducerConnections()
        self.connections: dict[Client, None] = {}
        """In order of arrival, so that loops over them are deterministic."""
        self._places: Places[Client] = Places(self.connections, self._by_host, self.silent, boot_ns)
        self.dirty: list[Client] = []
        self.room: Callable[[GroupId], int] = lambda _: UNANSWERED_BYTES_MAX
        """How many more bytes the paused clients of a group may send."""
        self.backpressure: dict[GroupId | None, Backpressure[Client]] = {}
        """Clients that wait until a group, or (None) the node, has less to do."""
        self.unaware_of_refusal: dict[Client, None] = {}
        """Clients with a refused batch that may not have seen the refusal yet."""
        self.stops = False
        self.accepted_total = 0
        self.displaced_total = 0
        self.refused_total = 0

    @property
    def unanswered_bytes(self) -> int:
        return self.memory.requests

    def stop_reading(self) -> None:
        """Answer what was read, and take nothing more."""
        self.stops = True
        for client in self.connections:
            client.pause()

    def accept(self, sock: Stream, host: str, door: Door = PLAIN) -> None:
        if self.stops:
            sock.close()
            return
        limit = self._keeps_out(host)
        if limit:
            self._refuse(sock, host, limit)
            return
        client = Client(self, host, door)
        client.active_boot_ns = client.opened_boot_ns = self.round_boot_ns
        client.channel = door.channel(
            self._plane,
            sock,
            UNPROVED_FRAMES if door.listener.protocol.sasl else self.limits.frames,
            client.connection,
            on_frame=client.on_frame,
            on_closed=client.on_closed,
            unsent_bytes_max=UNSENT_BYTES_MAX,
            room=self._memory_room,
            on_no_room=client.on_no_room,
            on_sent=client.sent,
            on_over=client.on_over,
        )
        self.connections[client] = None
        self.silent.add(client)
        self._by_host[host] += 1
        self.accepted_total += 1

    def _keeps_out(self, host: str) -> str:
        """The limit that refuses one more connection from this address; "" if none does. First, an
        unused connection is closed in its favour."""
        limits = self.limits
        if not self.rate.takes(host):
            return "connections_per_ip_per_s"
        if self._by_host[host] >= limits.connections_per_ip_max:
            self.displaced_total += self._places.make(host, of_any=False)
        if self._by_host[host] >= limits.connections_per_ip_max:
            return "connections_per_ip_max"
        if len(self.connections) >= self.connections_max:
            self.displaced_total += self._places.make(host, of_any=True)
        return "connections_max" if len(self.connections) >= self.connections_max else ""

    def fit(self, connections_max: int) -> None:
        """Lower the limit of connections, because the process may open fewer files."""
        self.connections_max = min(self.limits.connections_max, connections_max)
        self.close_idlest(len(self.connections) - self.connections_max)

    def close_idlest(self, count: int) -> None:
        """Close this many connections, because their descriptors are needed for other files."""
        for client in self._idlest(count):
            client.close("file descriptors are scarce")

    def _idlest(self, count: int) -> list[Client]:
        """Connections without a request, then those whose last request was longest ago."""
        if count <= 0:
            return []
        return sorted(
            self.connections, key=lambda one: (one.has_sent, one.active_boot_ns, one.opened_boot_ns)
        )[:count]

    def _refuse(self, sock: Stream, host: str, limit: str) -> None:
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
        """Whether the unanswered requests of all clients together exceed the limit."""
        return self.memory.requests > self.limits.pending_bytes_per_node

    def bug(self, client: Client, error: Exception) -> None:
        """Log a bug of ours, and close only the connection that triggered it."""
        self._journal.bug(f"connection of {client.host}", error)
        client.close(f"internal error: {type(error).__name__}")

    def flush(self) -> None:
        """Send answers, with one write per connection; at the end of a round."""
        while self.dirty:
            dirty, self.dirty = self.dirty, []
            for client in dirty:
                self._flush(client)
        if self.backpressure:
            self._relieve()
        if self.waiting:
            self._make_room()

    def hold_back(self, client: Client, group: GroupId | None) -> None:
        """Do not read a client until the group, or (None) the node, has less to do."""
        if client.held_by is None and not client.gone:
            waiting_clients = self.backpressure.get(group)
            if waiting_clients is None:
                waiting_clients = self.backpressure[group] = Backpressure()
            waiting_clients.join(client)
            client.pause()

    def _relieve(self) -> None:
        """Read again those clients that have waited longest, as long as there is room for what they
        are likely to send."""
        for group, waiting_clients in list(self.backpressure.items()):
            if group is None:
                room = self.limits.pending_bytes_per_node - self.unanswered_bytes + 1
            else:
                room = self.room(group)
            for client in waiting_clients.let_go(room):
                client.go_on()
            if not waiting_clients.clients and not waiting_clients.released_bytes:
                del self.backpressure[group]

    def _make_room(self) -> None:
        """Read the large requests that there is now room for, in order of arrival."""
        memory, promised = self.memory, 0
        for client in list(self.waiting):
            if not memory.has_room(promised + client.missing_room):
                return
            promised += client.missing_room
            del self.waiting[client]
            client.missing_room = 0
            client.go_on()

    def _give_way(self) -> None:
        """Close clients that hold memory which others wait for and make no progress; called every
        second."""
        short, self._short_seen = self._short_seen, bool(self.waiting)
        full = self.memory.answers >= self.memory.outgoing_max // 2
        for client in list(self.connections):
            channel = client.channel
            assert channel is not None
            if client.stands_still() and short and self.waiting and channel.holds_bytes:
                client.close("its request did not come, and others wait for the memory")
            elif full and channel.unsent_bytes and client.sent_seen == channel.sent_bytes:
                client.close("it does not read its answers, and others wait for the memory")
            else:
                channel.shrink()

    def _flush(self, client: Client) -> None:
        try:
            client.flush()
        except Exception as error:  # noqa: BLE001  logged with its traceback, costs one connection
            self.bug(client, error)

    def closed(self, client: Client, reason: str) -> None:
        if client in self.connections:
            del self.connections[client]
            self._by_host[client.host] -= 1
            if not self._by_host[client.host]:
                del self._by_host[client.host]
            self.memory.requests -= client.unanswered_bytes
            self.memory.answers -= client.answer_bytes
            client.answer_bytes = client.queued_answer_bytes = 0
            self.silent.discard(client)
            self.waiting.pop(client, None)
            self.producer_connections.changed(client.producer_id, NO_PRODUCER)
            client.producer_id = NO_PRODUCER
            client.queue.clear()  # their answers have no receiver
            if client.held_by is not None:
                client.held_by.leave(client)
            self.unaware_of_refusal.pop(client, None)
            self.muted.leave(client)
            self._endings.tell(client.host, reason)

    def look(self) -> None:
        """Called every tick: clients with refusals may have seen them, and released clients have
        had the time to send something."""
        if self.unaware_of_refusal:
            boot_ns = self._boot_ns()
            for client in list(self.unaware_of_refusal):
                client.look(boot_ns)
                if client.connection.barriers is None:
                    client.sight = None
                    del self.unaware_of_refusal[client]
        for waiting_clients in self.backpressure.values():
            waiting_clients.released_bytes = 0
        for client in self.muted.let_go(self._boot_ns()):
            client.go_on()

    def tick(self) -> None:
        """Housekeeping: close connections that are idle, stuck in a request, or do not read."""
        now = self.round_boot_ns = self._boot_ns()
        self._give_way()
        for client in list(self.connections):
            reason = client.overdue(now, self.limits.idle_ns)
            if reason:
                client.close(reason)

    def close_all(self, reason: str) -> None:
        for client in list(self.connections):
            client.close(reason)
