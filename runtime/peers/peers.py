"""Links between nodes: framed TCP, one outgoing connection per peer, bounded queues, reconnects.

A node sends on the connections that it opened and receives on those that it accepted, so each
direction has one owner. The first frame on a connection is HELLO; with TLS both sides have proved
before which nodes they are (runtime.peers.security). A peer that is refused gets
REFUSED, the only frame in the other direction (runtime.membership.handshake). The set of peers
follows the registry: `follow` adds and drops links while the node runs. Messages may be lost (the
protocol retransmits), so a full queue drops them and a broken link forgets its queue; the outcome
of commands forwarded over it is unknown.

Frame: u32 length, u8 kind, body. Kinds: HELLO, PAXOS (messages of paxos.codec, one after another),
PING/PONG (clock readings), FORWARD and FORWARDED (commands of clients and their outcomes), LIFE and
VERDICT (which directory a node has, and what others know of it: runtime.membership.admission),
MASTERS (the groups that the sender is master of: runtime.membership.masters), CATCH_UP (state
transfer: broker.transfer), CONSOLE (reports for the console: runtime.console), TERMS (the node's
lease settings and versions: runtime.membership.lease_terms, versions), GROUP_REQUEST and
GROUP_ANSWER (requests to coordinators: runtime.peers.group_requests), REFUSED.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import attrs

from broker.proposals.intake import LATE, Outcome
from broker.transfer import codec as catchup_codec
from broker.transfer.messages import Message as CatchUpMessage
from paxos import codec
from paxos.clocks.clock import reading
from paxos.codec import PeerError
from paxos.entry import Buffer
from paxos.ids import MS, GroupId, NodeId
from paxos.messages import Message
from paxos.timing import LARGE_ENTRY_BYTES
from runtime.config.fields import Address
from runtime.engine.forwarding import patience_ns
from runtime.engine.ports import Handler
from runtime.membership.admission import Life, Verdict
from runtime.membership.handshake import Hello, Refusal, Refused
from runtime.membership.handshake import refusal as refusal_of
from runtime.membership.lease_terms import TERMS_BYTES, LeaseTerms
from runtime.membership.masters import MasterClaim, decode_claims, encode_claims
from runtime.membership.versions import Versions
from runtime.network.dataplane import Plane
from runtime.network.stream import Dialer, Stream
from runtime.peers.frames import (
    DISK_SHIFT,
    DRAINING,
    FORWARD,
    FRAME,
    KNOWS_GROUP_REQUESTS,
    LINK_SINCE,
    LOW,
    PING,
    PONG,
    Kind,
    decode_outcome,
    encode_outcome,
    framed,
    ping_flags,
)
from runtime.peers.group_requests import GroupRequestLinks
from runtime.peers.incoming import Incoming
from runtime.peers.large_lane import LargeLane
from runtime.peers.outgoing import Outgoing
from runtime.peers.security import PLAIN_LINKS, LinkSecurity
from runtime.peers.version_checks import VersionChecks
from runtime.system.connection_limits import ConnectionRate, SilentConnections
from runtime.system.journal import Journal
from runtime.system.memory import Memory, PeerRoom
from wire.framing import FrameLimits

PEER_FRAME_BYTES_MAX: Final = 96 * 1024 * 1024
"""A Promise or Learned frame may contain a group's whole undecided window."""
PAXOS_FRAME_BYTES: Final = 1024 * 1024
"""A soft limit: messages of a round are sent in frames of about this size."""
PEER_FRAME_STEP_BYTES: Final = 4 * 1024 * 1024
"""Up to this size a peer's frame gets its memory at once; almost all frames are smaller."""
CONNECT_EVERY_NS: Final = 100 * MS
SHORT_LIFE_NS: Final = 2_000 * MS
"""A link that is lost sooner was refused: it is reopened with exponential backoff ..."""
REFUSED_DOUBLINGS_MAX: Final = 5
"""... up to CONNECT_EVERY_NS * 2**5."""
GREETING_BYTES_MAX: Final = 2048
REFUSAL_BYTES_MAX: Final = 2048
GREETING_S: Final = 5.0
UNGREETED_MAX: Final = 64
"""Connections to the peer port that have not sent HELLO yet."""
REFUSALS_LOGGED_EVERY_S: Final = 1.0
CONNECTIONS_PER_IP_PER_S: Final = 200
"""A peer opens one connection, and another one after a loss. Even if the port is flooded from a
peer's own address, the UNGREETED_MAX places leave that peer a fifth of a second for its HELLO,
which it sends at once."""


class Peers(VersionChecks):
    def __init__(
        self,
        plane: Plane,
        handler: Handler,
        hello: Hello,
        addresses: dict[NodeId, Address],
        queue_bytes_max: int,
        journal: Journal,
        memory: Memory | None = None,
        security: LinkSecurity = PLAIN_LINKS,
    ) -> None:
        super().__init__(self._ping_one)
        self.security = security
        self._plane, self._handler, self._hello = plane, handler, hello
        self._memory = memory or Memory(queue_bytes_max, queue_bytes_max)
        self._room = PeerRoom(self._memory)
        self._queue_bytes_max = queue_bytes_max
        self._journal = journal
        self._configured = {
            node: address for node, address in sorted(addresses.items()) if node != hello.node
        }
        self.removed: frozenset[NodeId] = frozenset()
        self.dialer: Dialer | None = None
        self._ungreeted: SilentConnections[Incoming] = SilentConnections()
        self._rate = ConnectionRate(CONNECTIONS_PER_IP_PER_S, handler.boot_ns)
        self._flags = ping_flags()
        self.terms: LeaseTerms | None = None
        self._held: dict[Incoming, int] = {}
        self.rounds = 0
        self.on_console: Callable[[NodeId, memoryview], None] = lambda _node, _body: None
        """Called with each CONSOLE frame of a peer."""
        self.group_requests = GroupRequestLinks(self)
        self._encoded: tuple[Message | None, list[Buffer], int] = (None, [], 0)
        """The last message sent, its encoding, and its size."""
        self.refused_total = 0
        """Connections to this node's port that were not let in."""
        self._refusal_logged_ns = -int(REFUSALS_LOGGED_EVERY_S * 1e9)
        self.follow({}, frozenset())

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait to be sent to all peers."""
        return sum(link.unsent_bytes for link in self.outgoing.values())

    # -- the set of peers ---------------------------------------------------------------------

    def follow(
        self, registered: Mapping[NodeId, Address], removed: frozenset[NodeId]
    ) -> list[NodeId]:
        """Keep a link to each node of the registry and of the configuration, except removed ones;
        returns the nodes whose links were dropped."""
        self.removed = removed
        wanted = sorted(({*registered, *self._configured} - removed) - {self._hello.node})
        dropped = [node for node in self.outgoing if node not in wanted]
        for node in dropped:
            self._drop(node)
        for node in wanted:
            named = (registered.get(node), self._configured.get(node))
            addresses = tuple(dict.fromkeys(one for one in named if one is not None))
            link = self.outgoing.get(node)
            if link is None:
                lane = LargeLane(self._queue_bytes_max)
                self.outgoing[node] = Outgoing(node, lane, addresses)
            else:
                link.addresses = addresses
        if self._hello.node not in removed:
            for node in sorted(removed & self._incoming.keys()):
                caller = attrs.evolve(self._hello, node=node, to=self._hello.node)
                self._incoming[node].refuse(self._refusal(caller))
        return dropped

    def _drop(self, node: NodeId) -> None:
        link = self.outgoing.pop(node)
        if link.opened is not None:
            link.opened.close("the node is no longer in this cluster")

    # -- sending ------------------------------------------------------------------------------

    def send(self, to: NodeId, message: Message) -> None:
        """Queue one message for the end of the round; dropped if there is no link."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None:
            return
        if message is not self._encoded[0]:  # an Accept goes to every follower, one after the other
            buffers: list[Buffer] = []
            self._encoded = message, buffers, codec.encode(message, buffers)
        _, buffers, size = self._encoded
        if link.large.takes(message, size):
            frame = [FRAME.pack(1 + size, Kind.PAXOS), *buffers]
            link.dropped += not link.large.add(message, frame, FRAME.size + size)
            return
        link.buffers += buffers
        link.size += size
        if link.size >= PAXOS_FRAME_BYTES:
            self._seal(link)

    def send_bulk(self, to: NodeId, message: Message) -> None:
        """Queue one large message after all small ones; dropped if there is no link."""
        link = self.outgoing.get(to)
        if link is not None and link.channel is not None:
            buffers: list[Buffer] = [b""]
            size = codec.encode(message, buffers)
            buffers[0] = FRAME.pack(1 + size, Kind.PAXOS)
            link.add_bulk(buffers, FRAME.size + size)

    def takes_bulk(self, to: NodeId) -> bool:
        link = self.outgoing.get(to)
        return link is not None and link.takes_bulk

    def forward(
        self,
        to: NodeId,
        number: int,
        group: GroupId,
        flags: int,
        chunks: tuple[Buffer, ...],
        size: int,
    ) -> bool:
        """Send a client's command to another node; False if it cannot be sent. The frame says until
        when the client waits: if it takes longer on the link, nobody waits for the outcome."""
        until_wall_ns = self._handler.wall_ns() + patience_ns(size)
        head = FORWARD.pack(number, group, flags, until_wall_ns)
        return self.send_frame(to, Kind.FORWARD, (head, *chunks), group)

    def send_frame(
        self, to: NodeId, kind: Kind, chunks: tuple[Buffer, ...], group: GroupId | None
    ) -> bool:
        """Send a frame, perhaps a large one; those about one group keep their order. False if it
        cannot be sent."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None or link.version < LINK_SINCE[kind]:
            return False
        size = sum(map(len, chunks))
        frame = [FRAME.pack(1 + size, kind), *chunks]
        if size >= LARGE_ENTRY_BYTES or group in link.large.last:
            return link.large.add_frame(frame, FRAME.size + size, group)
        self._seal(link)
        return link.channel.send(frame, FRAME.size + size)

    def knows_group_requests(self, to: NodeId) -> bool:
        """Whether the node can be asked for a client of ours, and could answer."""
        return self.connected(to) and self.outgoing[to].knows_group_requests

    def answer_forward(self, to: NodeId, number: int, outcome: Outcome) -> None:
        self._send_small(to, Kind.FORWARDED, encode_outcome(number, outcome))

    def answer_life(self, to: NodeId, verdict: Verdict) -> None:
        self._send_small(to, Kind.VERDICT, verdict.encode())

    def tell_masters(self, to: NodeId, words: Iterable[MasterClaim]) -> None:
        body = encode_claims(words)
        if body:
            self._send_small(to, Kind.MASTERS, body)

    def console(self, to: NodeId, body: bytes) -> None:
        self._send_small(to, Kind.CONSOLE, body)

    @property
    def linked(self) -> list[NodeId]:
        """The nodes that can be sent something now."""
        return [node for node, link in self.outgoing.items() if link.channel is not None]

    def catch_up(self, to: NodeId, message: CatchUpMessage) -> None:
        """Send a message of a state transfer; dropped if it cannot be sent."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None:
            return
        buffers = catchup_codec.encode(message)
        size = sum(map(len, buffers))
        link.add_bulk([FRAME.pack(1 + size, Kind.CATCH_UP), *buffers], size + FRAME.size)

    def ping(self, *, draining: bool, low: bool = False, disk_class: int = 0) -> None:
        """Ask every peer for its clock, and tell it whether this node gives its masters away, and
        whether its disk is nearly full and how fast it is (storage.disk.health)."""
        self._flags = ping_flags(draining=draining, low=low, disk_class=disk_class)
        for node in self.linked:
            life = self._handler.life(node)
            if life is not None:
                self._send_small(node, Kind.LIFE, life.encode())
            self._ping_one(node)

    def _ping_one(self, node: NodeId) -> None:
        body = PING.pack(self._handler.wall_ns(), self._handler.boot_ns(), self._flags)
        self._send_small(node, Kind.PING, body)

    def _send_small(self, to: NodeId, kind: Kind, body: bytes) -> None:
        link = self.outgoing.get(to)
        if link is not None and link.channel is not None and link.version >= LINK_SINCE[kind]:
            self._seal(link)
            frame = framed(kind, body)
            if not link.channel.send([frame], len(frame)):
                link.dropped += 1

    def _seal(self, link: Outgoing) -> None:
        """Complete the frame of Paxos messages that is being filled, and queue it."""
        if not link.size or link.channel is None:
            return
        head = FRAME.pack(1 + link.size, Kind.PAXOS)
        if not link.channel.send([head, *link.buffers], FRAME.size + link.size):
            link.dropped += 1
        link.buffers = []
        link.size = 0

    def flush(self) -> None:
        """Send what is queued, with one write per peer; at the end of a round."""
        self._encoded = (None, [], 0)
        for link in self.outgoing.values():
            channel = link.channel
            if channel is not None:
                if link.size:
                    self._seal(link)
                if channel.unsent_bytes:
                    channel.flush()
                if link.waits:
                    link.feed()

    # -- outgoing connections -----------------------------------------------------------------

    def dial(self) -> None:
        """Open missing connections, one at a time to each peer; called often."""
        dialer, now = self.dialer, self._handler.boot_ns()
        if dialer is None:
            return  # this node has not started yet
        for link in self.outgoing.values():
            if link.opened is None and not link.dialing and now >= link.dial_at_ns:
                link.dialing = True
                address = link.addresses[link.attempts % len(link.addresses)]
                link.attempts += 1
                dialer.dial(address, partial(self._dialed, link))

    def _dialed(self, link: Outgoing, stream: Stream | None) -> None:
        link.dialing = False
        if stream is None:
            link.plain = False
            link.dial_at_ns = self._handler.boot_ns() + CONNECT_EVERY_NS
        elif self.outgoing.get(link.node) is not link:
            stream.close()  # it was dropped meanwhile
        else:
            self.greet(link, stream)

    def greet(self, link: Outgoing, sock: Stream) -> None:
        """Use a connection that we have opened: the first frame on it is HELLO. With TLS the node
        at its other end has proved who it is before."""
        link.clear()
        link.greeted_ns = self._handler.boot_ns()
        link.knows_group_requests = link.greeted = False
        link.reconnects += 1
        link.opened = self.security.dialed(
            self._plane,
            sock,
            FrameLimits(default=REFUSAL_BYTES_MAX),
            link,
            lambda: self._greet(link),
            on_frame=lambda frame, _owned: self._answered(link, frame),
            on_closed=lambda reason: self._outgoing_lost(link, reason),
            unsent_bytes_max=self._queue_bytes_max,
            urgent=True,
        )
        if not link.opened.shaking:
            self._greet(link)

    def _greet(self, link: Outgoing) -> None:
        channel = link.opened
        assert channel is not None
        link.greeted = True
        link.version = self.versions.link(link.node)
        if not self.versions.problem(link.node):  # else until it has told what it reads
            link.channel = channel
        frame = framed(Kind.HELLO, attrs.evolve(self._hello, to=link.node).encode())
        if self.terms is not None:  # at once: the other side may require that we tell our versions
            frame += framed(Kind.TERMS, self.versions.terms(self.terms))
        life = self._handler.life(link.node)
        if life is not None:  # before any verdict of ours is sent on this link
            frame += framed(Kind.LIFE, life.encode())
        channel.send([frame], len(frame))
        if link.node in self._incoming:  # else the answer could not be sent
            self._ping_one(link.node)
        channel.flush()

    def _answered(self, link: Outgoing, frame: memoryview) -> None:
        """Handle REFUSED, the only frame that is ever received on a connection that we opened."""
        assert link.opened is not None
        try:
            if not len(frame) or frame[0] != Kind.REFUSED:
                raise PeerError("it answered on a link of ours")
            refusal = Refusal.decode(frame[1:])
        except PeerError as error:
            link.opened.close(str(error))
            return
        if refusal.text != link.refusal:  # log it once: we connect again and again
            link.refusal = refusal.text
            self._journal.warning("refused by peer", peer=link.node, reason=refusal.text)
        link.opened.close("refused")
        self._handler.on_refused(link.node, refusal.why)

    def _outgoing_lost(self, link: Outgoing, reason: str) -> None:
        link.plain = self.security.plain_next(link)
        link.channel = link.opened = None
        link.clear()
        now = self._handler.boot_ns()
        short = now - link.greeted_ns < SHORT_LIFE_NS
        link.refused = min(link.refused + 1, REFUSED_DOUBLINGS_MAX) if short else 0
        link.attempts -= not short or link.plain  # it was the right address
        link.dial_at_ns = now + CONNECT_EVERY_NS * 2**link.refused
        if not link.greeted:
            self._no_link(link, self.security.in_words(reason))
        elif not (self.security.encrypts and short and link.lost == reason):
            self._journal.info("peer link lost", peer=link.node, reason=reason)
        link.lost = reason if short else ""
        self._handler.peer_down(link.node)
        self.group_requests.lost(link.node)

    def _no_link(self, link: Outgoing, reason: str) -> None:
        """Say once why there is none, for we connect again and again."""
        if reason != link.refusal:
            link.refusal = reason
            self._journal.warning("no link to a peer", peer=link.node, reason=reason)

    # -- incoming connections -----------------------------------------------------------------

    def accept(self, sock: Stream, host: str) -> None:
        """Take a connection to the peer port; it must first send a short HELLO, and soon."""
        if not self._rate.takes(host):
            sock.close()
            self._refuse(host, "too many connections a second")
            return
        if len(self._ungreeted) >= UNGREETED_MAX:  # silent ones keep nobody out
            known = {one.host for link in self.outgoing.values() for one in link.addresses}
            oldest = self._ungreeted.least(host, known)
            assert oldest is not None
            oldest.close("it has not greeted, and its place is wanted")
        incoming = Incoming(self, host, self._handler.boot_ns(), self._plane.boot_ns, self._room)
        incoming.channel = self.security.accepted(
            self._plane,
            sock,
            FrameLimits(default=GREETING_BYTES_MAX),
            incoming,
            on_frame=incoming.on_frame,
            on_closed=incoming.on_closed,
            unsent_bytes_max=0,
            room=self._room,
            urgent=True,
        )
        self._ungreeted.add(incoming)

    def greeted(self, incoming: "Incoming", hello: Hello) -> None:
        """Check the HELLO of a connection, and accept it as that node's link.

        Raises:
            PeerError: it is not the node that it says. (Refused: it is told why.)
        """
        self.security.check(incoming, hello.node, self._incoming.get(hello.node))
        refusal = self._refusal(hello)
        if refusal is not None:
            raise Refused(refusal)
        assert incoming.channel is not None
        incoming.channel.limit_frames(
            FrameLimits(default=PEER_FRAME_BYTES_MAX, step=PEER_FRAME_STEP_BYTES)
        )
        incoming.node, incoming.incarnation = hello.node, hello.incarnation
        self._ungreeted.discard(incoming)
        self.versions.greeted(hello.node, hello.incarnation)
        old = self._incoming.get(hello.node)
        self._incoming[hello.node] = incoming
        if old is not None:
            old.close("replaced by a newer connection")
        self._journal.info("peer up", peer=hello.node, incarnation=hello.incarnation)
        self._handler.peer_up(hello.node, hello.incarnation)
        self._ping_one(hello.node)  # a reading of its clock is needed before we trust our own

    def _refusal(self, hello: Hello) -> Refusal | None:
        old = self._incoming.get(hello.node)
        return refusal_of(
            self._hello,
            hello,
            known=self.outgoing,
            removed=self.removed,
            connected=None if old is None else old.incarnation,
        )

    def incoming_lost(self, incoming: "Incoming", reason: str) -> None:
        node = incoming.node
        if node is None:
            self._ungreeted.discard(incoming)
            self._refuse(incoming.host, self.security.in_words(reason))
        elif self._incoming.get(node) is incoming:
            del self._incoming[node]
            self._journal.info("peer down", peer=node, reason=reason)
            self._handler.peer_down(node)
            self.group_requests.lost(node)

    def _refuse(self, host: str, reason: str) -> None:
        self.refused_total += 1
        now = self._handler.boot_ns()
        if now - self._refusal_logged_ns >= REFUSALS_LOGGED_EVERY_S * 1e9:
            self._refusal_logged_ns = now
            self._journal.warning(
                "peer connection refused", host=host, reason=reason, refused=self.refused_total
            )

    def tick(self) -> None:
        """Close connections without a HELLO in time, and silent links; called once a second."""
        now = self._handler.boot_ns()
        for incoming in [*self._ungreeted]:
            if now - incoming.accepted_boot_ns > GREETING_S * 1e9:
                incoming.close("it did not greet in time")
        for link in self.outgoing.values():
            late = now - link.greeted_ns > GREETING_S * 1e9
            if link.opened is not None and not link.greeted and late:
                link.opened.close("its TLS handshake takes too long")
        for incoming in [*self._incoming.values()]:
            incoming.look()

    # -- frames -------------------------------------------------------------------------------

    def on_frame(self, node: NodeId, kind: int, body: memoryview, owned: bool) -> None:
        """Dispatch a frame of a known peer that is not one of Paxos messages.

        Raises:
            PeerError: the frame is malformed.
        """
        handler = self._handler
        if kind == Kind.FORWARD and len(body) > FORWARD.size:
            number, group, flags, until_wall_ns = FORWARD.unpack_from(body)
            flags |= LATE * (handler.wall_ns() > until_wall_ns)
            command = body[FORWARD.size :]
            kept = command if owned else memoryview(bytes(command))
            handler.on_forward(node, number, GroupId(group), flags, kept)
        elif kind == Kind.FORWARDED:
            handler.on_forwarded(node, *decode_outcome(body))
        elif kind == Kind.PING and len(body) == PING.size:
            self._on_ping(node, *PING.unpack(body))
        elif kind == Kind.PONG and len(body) == PONG.size:
            asked_wall, asked_boot, theirs = PONG.unpack(body)
            boot = handler.boot_ns()
            handler.on_clock(node, *reading(asked_wall, asked_boot, theirs, boot))
        elif kind == Kind.LIFE:
            handler.on_life(node, Life.decode(body))
        elif kind == Kind.VERDICT:
            handler.on_verdict(node, Verdict.decode(body))
        elif kind == Kind.MASTERS:
            handler.on_masters(node, decode_claims(body))
        elif kind == Kind.CATCH_UP:
            kept = body if owned else memoryview(bytes(body))
            handler.on_catch_up(node, catchup_codec.decode(kept))
        elif kind == Kind.TERMS:
            handler.on_terms(node, LeaseTerms.decode(body))
            self.versions.told(node, Versions.decode(body[TERMS_BYTES:]))
            self.check_versions(node)
        elif kind == Kind.CONSOLE:
            self.on_console(node, body)
        elif kind in (Kind.GROUP_REQUEST, Kind.GROUP_ANSWER):
            self.group_requests.on_frame(node, kind, body)
        else:
            raise PeerError(f"a frame of kind {kind} and {len(body)} bytes")

    def _on_ping(self, node: NodeId, asked_wall: int, asked_boot: int, flags: int) -> None:
        handler = self._handler
        handler.on_time(node, asked_wall)
        handler.on_draining(node, bool(flags & DRAINING))
        handler.on_low(node, bool(flags & LOW))
        handler.on_disk(node, flags >> DISK_SHIFT)
        link = self.outgoing.get(node)
        if link is not None:
            link.knows_group_requests = bool(flags & KNOWS_GROUP_REQUESTS)
        self._send_small(node, Kind.PONG, PONG.pack(asked_wall, asked_boot, handler.wall_ns()))

    def on_messages(self, node: NodeId, messages: Iterable[Message]) -> None:
        """Handle Paxos messages, as many as there is time for in this round."""
        self._handler.on_messages(node, messages)

    # -- rounds -------------------------------------------------------------------------------

    def hold(self, incoming: "Incoming") -> None:
        """Continue with this link in the next round: its time in this one is up."""
        self._held[incoming] = self.rounds

    def go_on(self) -> None:
        """Continue with links that had to stop in an earlier round; called at the end of each."""
        if self._held:
            for incoming in [one for one, since in self._held.items() if since != self.rounds]:
                del self._held[incoming]
                incoming.go_on()
        self.rounds += 1

    @property
    def waits(self) -> bool:
        """Whether a link has messages that there was no time for."""
        return bool(self._held)

    def close(self) -> None:
        for link in self.outgoing.values():
            if link.opened is not None:
                link.opened.close("this node stops")
        for incoming in [*self._incoming.values(), *self._ungreeted]:
            incoming.close("this node stops")
