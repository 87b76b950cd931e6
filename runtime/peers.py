"""Links between nodes: framed TCP, one outgoing connection per peer, bounded queues, reconnects.

A node sends on the connections it opened and receives on those it accepted, so each direction has
one owner. The first frame on a connection is HELLO; who does not belong is told so (REFUSED, the
only frame that travels against the direction: runtime.greeting). Which peers there are follows the
registry: `follow` adds and drops links while the node runs. Losing messages is legal (the protocol
retransmits), so a full queue drops and a broken link forgets what it held; forwarded commands are
told to be unknown.

Frame: u32 length, u8 kind, body. Kinds: HELLO, PAXOS (messages of paxos.codec, one after another),
PING/PONG (clock readings), FORWARD and FORWARDED (commands of clients and their outcomes), LIFE and
VERDICT (whose directory a node has, and what the others know of it: runtime.admission), MASTERS
(which groups the sender is master of: runtime.masters), CATCH_UP (what a member gets that the logs
do not reach back to: broker.catchup), CONSOLE (what one node shows of all: runtime.console),
REFUSED.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Final

import attrs
import trio

from broker.catchup import codec as catchup_codec
from broker.catchup.messages import Message as CatchUpMessage
from broker.intake import LATE, Done, Elsewhere, Outcome, Why
from paxos import codec
from paxos.codec import PeerError
from paxos.entry import Buffer
from paxos.ids import INCARNATION_ZERO, GroupId, NodeId
from paxos.messages import Message
from runtime.admission import Life, Verdict
from runtime.channel import Channel
from runtime.dataplane import Plane
from runtime.engine_ports import Handler
from runtime.fields import Address
from runtime.forwarded import FORWARD_TIMEOUT_NS
from runtime.greeting import Hello, Refusal, Refused
from runtime.greeting import refusal as refusal_of
from runtime.journal import Journal
from runtime.masters import Word, decode_words, encode_words
from wire.framing import FrameLimits

PEER_FRAME_BYTES_MAX: Final = 96 * 1024 * 1024
"""A Promise or Learned frame may carry a group's whole undecided window."""
PAXOS_FRAME_BYTES: Final = 1024 * 1024
"""Soft: messages of a round are sent in frames of about this size."""
PEER_FRAME_STEP_BYTES: Final = 4 * 1024 * 1024
"""A peer's frame gets its memory at once up to here: that is nearly all of them."""
CONNECT_EVERY_S: Final = 0.1
CONNECT_TIMEOUT_S: Final = 2.0
SHORT_LIFE_S: Final = 2.0
"""A link lost sooner was refused by the other side: it is opened again ever less often ..."""
REFUSED_DOUBLINGS_MAX: Final = 5
"""... down to once in CONNECT_EVERY_S * 2**5."""
SILENT_S: Final = 10.0
"""A peer says something every 200 ms; a link on which nothing moves for so long is dead, whatever
TCP hopes for (it would go on for a quarter of an hour)."""
GREETING_BYTES_MAX: Final = 2048
REFUSAL_BYTES_MAX: Final = 2048
GREETING_S: Final = 5.0
UNGREETED_MAX: Final = 64
"""Connections to the peer port that have not said yet who they are."""
REFUSALS_LOGGED_EVERY_S: Final = 1.0
RESULT_BYTES_MAX: Final = 1024 * 1024


class Kind(IntEnum):
    HELLO = 1
    PAXOS = 2
    PING = 3
    PONG = 4
    FORWARD = 5
    FORWARDED = 6
    LIFE = 7
    VERDICT = 8
    MASTERS = 9
    CATCH_UP = 10
    REFUSED = 11
    CONSOLE = 12


_FRAME: Final = struct.Struct(">IB")
_PING: Final = struct.Struct(">qqB")
_DRAINING: Final = 1
_LOW: Final = 2
_PONG: Final = struct.Struct(">qqq")
_FORWARD: Final = struct.Struct(">QIBq")
_FORWARDED: Final = struct.Struct(">QBi")
_WHY: Final = tuple(Why)


@attrs.define(eq=False)
class Outgoing:
    """The sending half of a link."""

    node: NodeId
    addresses: tuple[Address, ...]
    """Tried in turn: the registry's first, then the configuration's."""
    channel: Channel | None = None
    buffers: list[Buffer] = attrs.Factory(list)
    """Encoded Paxos messages of this round."""
    size: int = 0
    dropped: int = 0
    reconnects: int = 0
    lost: trio.Event = attrs.Factory(trio.Event)
    scope: trio.CancelScope | None = None
    """Of its task; None while there is none."""
    refusal: str = ""
    """Why the other side refused us last."""


class Peers:
    def __init__(
        self,
        plane: Plane,
        handler: Handler,
        hello: Hello,
        addresses: dict[NodeId, Address],
        queue_bytes_max: int,
        journal: Journal,
    ) -> None:
        self._plane, self._handler, self._hello = plane, handler, hello
        self._queue_bytes_max = queue_bytes_max
        self._journal = journal
        self._configured = {
            node: address for node, address in sorted(addresses.items()) if node != hello.node
        }
        self.outgoing: dict[NodeId, Outgoing] = {}
        self.removed: frozenset[NodeId] = frozenset()
        self._links_changed = trio.Event()
        self._incoming: dict[NodeId, _Incoming] = {}
        self._ungreeted: dict[_Incoming, None] = {}
        self._flags = 0
        self.on_console: Callable[[NodeId, memoryview], None] = lambda _node, _body: None
        """What a peer asks and says for the console."""
        self._encoded: tuple[Message | None, list[Buffer], int] = (None, [], 0)
        """The last message, as it was sent, and its size."""
        self._refused = 0
        self._refusal_logged_ns = -int(REFUSALS_LOGGED_EVERY_S * 1e9)
        self.follow({}, frozenset())

    # -- who there is -------------------------------------------------------------------------

    def follow(self, registered: Mapping[NodeId, Address], removed: frozenset[NodeId]) -> None:
        """Have a link to each node of the registry and of the configuration, removed ones
        excepted."""
        self.removed = removed
        wanted = sorted(({*registered, *self._configured} - removed) - {self._hello.node})
        for node in [node for node in self.outgoing if node not in wanted]:
            self._drop(node)
        for node in wanted:
            named = (registered.get(node), self._configured.get(node))
            addresses = tuple(dict.fromkeys(one for one in named if one is not None))
            link = self.outgoing.get(node)
            if link is None:
                self.outgoing[node] = Outgoing(node, addresses)
                self._links_changed.set()
            else:
                link.addresses = addresses
        if self._hello.node not in removed:
            for node in sorted(removed & self._incoming.keys()):
                caller = attrs.evolve(self._hello, node=node, to=self._hello.node)
                self._incoming[node].refuse(self._refusal(caller))

    def _drop(self, node: NodeId) -> None:
        link = self.outgoing.pop(node)
        if link.channel is not None:
            link.channel.close("the node is none of this cluster's any more")
        if link.scope is not None:
            link.scope.cancel()

    # -- sending ------------------------------------------------------------------------------

    def send(self, to: NodeId, message: Message) -> None:
        """Queue one message for the end of the round; dropped where there is no link."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None:
            return
        if message is not self._encoded[0]:  # an Accept goes to every follower, one after the other
            buffers: list[Buffer] = []
            self._encoded = message, buffers, codec.encode(message, buffers)
        _, buffers, size = self._encoded
        link.buffers += buffers
        link.size += size
        if link.size >= PAXOS_FRAME_BYTES:
            self._seal(link)

    def forward(
        self,
        to: NodeId,
        number: int,
        group: GroupId,
        flags: int,
        chunks: tuple[Buffer, ...],
        size: int,
    ) -> bool:
        """Send a client's command to another node; False where it cannot be sent. It says until
        when its client waits: a link may hold it for longer, and nobody wants it then."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None:
            return False
        self._seal(link)
        until_wall_ns = self._handler.wall_ns() + FORWARD_TIMEOUT_NS
        head = _FORWARD.pack(number, group, flags, until_wall_ns)
        frame = _FRAME.pack(1 + len(head) + size, Kind.FORWARD) + head
        return link.channel.send([frame, *chunks], len(frame) + size)

    def answer_forward(self, to: NodeId, number: int, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            body = _FORWARDED.pack(number, 0, 0 if outcome.at_home else -1) + outcome.result
        else:
            master = -1 if outcome.master is None else outcome.master
            body = _FORWARDED.pack(number, 1 + _WHY.index(outcome.why), master)
        self._send_small(to, Kind.FORWARDED, body)

    def answer_life(self, to: NodeId, verdict: Verdict) -> None:
        self._send_small(to, Kind.VERDICT, verdict.encode())

    def tell_masters(self, to: NodeId, words: Iterable[Word]) -> None:
        body = encode_words(words)
        if body:
            self._send_small(to, Kind.MASTERS, body)

    def console(self, to: NodeId, body: bytes) -> None:
        self._send_small(to, Kind.CONSOLE, body)

    @property
    def linked(self) -> list[NodeId]:
        """Who can be sent something now."""
        return [node for node, link in self.outgoing.items() if link.channel is not None]

    def catch_up(self, to: NodeId, message: CatchUpMessage) -> None:
        """Send a question or an answer; as good as lost on the way where it cannot be sent."""
        link = self.outgoing.get(to)
        if link is None or link.channel is None:
            return
        self._seal(link)
        buffers = catchup_codec.encode(message)
        size = sum(map(len, buffers))
        if not link.channel.send(
            [_FRAME.pack(1 + size, Kind.CATCH_UP), *buffers], size + _FRAME.size
        ):
            link.dropped += 1

    def ping(self, *, draining: bool, low: bool = False) -> None:
        """Ask every peer for its clock, and say whether this node still takes masters, and whether
        its disk is nearly full."""
        self._flags = (_DRAINING if draining else 0) | (_LOW if low else 0)
        life = self._handler.life()
        for node in self.outgoing:
            if life is not None:
                self._send_small(node, Kind.LIFE, life.encode())
            self._ping_one(node)

    def _ping_one(self, node: NodeId) -> None:
        body = _PING.pack(self._handler.wall_ns(), self._handler.boot_ns(), self._flags)
        self._send_small(node, Kind.PING, body)

    def _send_small(self, to: NodeId, kind: Kind, body: bytes) -> None:
        link = self.outgoing.get(to)
        if link is not None and link.channel is not None:
            self._seal(link)
            frame = _FRAME.pack(1 + len(body), kind) + body
            if not link.channel.send([frame], len(frame)):
                link.dropped += 1

    def _seal(self, link: Outgoing) -> None:
        """Close the frame of Paxos messages that is being filled."""
        if not link.size or link.channel is None:
            return
        head = _FRAME.pack(1 + link.size, Kind.PAXOS)
        if not link.channel.send([head, *link.buffers], _FRAME.size + link.size):
            link.dropped += 1
        link.buffers = []
        link.size = 0

    def flush(self) -> None:
        """One send per peer: the end of a round."""
        self._encoded = (None, [], 0)
        for link in self.outgoing.values():
            if link.channel is not None:
                self._seal(link)
                if link.channel.unsent_bytes:
                    link.channel.flush()

    def connected(self, node: NodeId) -> bool:
        """Whether we can both send to and hear from the node."""
        link = self.outgoing.get(node)
        return link is not None and link.channel is not None and node in self._incoming

    # -- outgoing connections -----------------------------------------------------------------

    async def run(self) -> None:
        """One task per peer, as long as there is that peer."""
        async with trio.open_nursery() as nursery:
            while True:
                self._links_changed = trio.Event()
                for link in self.outgoing.values():
                    if link.scope is None:
                        link.scope = trio.CancelScope()
                        nursery.start_soon(self.keep_connected, link, link.scope)
                await self._links_changed.wait()

    async def keep_connected(self, link: Outgoing, scope: trio.CancelScope) -> None:
        """Connect, greet, wait until the connection is lost, again."""
        refused = attempts = 0
        with scope:
            while True:
                sock = await _connect(link.addresses[attempts % len(link.addresses)])
                attempts += 1
                if sock is None:
                    await trio.sleep(CONNECT_EVERY_S)
                    continue
                began = trio.current_time()
                self.greet(link, sock)
                await link.lost.wait()
                short = trio.current_time() - began < SHORT_LIFE_S
                refused = min(refused + 1, REFUSED_DOUBLINGS_MAX) if short else 0
                attempts -= not short  # it was the right address
                await trio.sleep(CONNECT_EVERY_S * 2**refused)

    def greet(self, link: Outgoing, sock: socket.socket) -> None:
        """Use a connection we have opened: the first thing on it is who we are."""
        link.lost = trio.Event()
        link.buffers, link.size = [], 0
        link.channel = channel = Channel(
            self._plane,
            sock,
            FrameLimits(default=REFUSAL_BYTES_MAX),
            on_frame=lambda frame, _owned: self._answered(link, frame),
            on_closed=lambda reason: self._outgoing_lost(link, reason),
            unsent_bytes_max=self._queue_bytes_max,
        )
        link.reconnects += 1
        body = attrs.evolve(self._hello, to=link.node).encode()
        frame = _FRAME.pack(1 + len(body), Kind.HELLO) + body
        life = self._handler.life()
        if life is not None:  # before any verdict of ours can travel on this link
            body = life.encode()
            frame += _FRAME.pack(1 + len(body), Kind.LIFE) + body
        channel.send([frame], len(frame))
        if link.node in self._incoming:  # else the answer could not come
            self._ping_one(link.node)
        channel.flush()

    def _answered(self, link: Outgoing, frame: memoryview) -> None:
        """The only thing that is ever said on a link that we opened: that we are refused."""
        assert link.channel is not None
        try:
            if not len(frame) or frame[0] != Kind.REFUSED:
                raise PeerError("it answered on a link of ours")
            refusal = Refusal.decode(frame[1:])
        except PeerError as error:
            link.channel.close(str(error))
            return
        if refusal.text != link.refusal:  # once: we ask again and again
            link.refusal = refusal.text
            self._journal.warning("refused by peer", peer=link.node, reason=refusal.text)
        link.channel.close("refused")
        self._handler.on_refused(link.node, refusal.why)

    def _outgoing_lost(self, link: Outgoing, reason: str) -> None:
        link.channel = None
        link.buffers, link.size = [], 0
        link.lost.set()
        self._journal.info("peer link lost", peer=link.node, reason=reason)
        self._handler.peer_down(link.node)

    # -- incoming connections -----------------------------------------------------------------

    def accept(self, sock: socket.socket, host: str) -> None:
        """A connection to the peer port: it must greet first, briefly and soon."""
        if len(self._ungreeted) >= UNGREETED_MAX:
            sock.close()
            self._refuse(host, "too many connections that have not greeted")
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        incoming = _Incoming(self, host, self._handler.boot_ns())
        incoming.channel = Channel(
            self._plane,
            sock,
            FrameLimits(default=GREETING_BYTES_MAX),
            on_frame=incoming.on_frame,
            on_closed=incoming.on_closed,
            unsent_bytes_max=0,
        )
        self._ungreeted[incoming] = None

    def greeted(self, incoming: "_Incoming", hello: Hello) -> None:
        """Check who is calling.

        Raises:
            PeerError: a stranger.
        """
        refusal = self._refusal(hello)
        if refusal is not None:
            raise Refused(refusal)
        assert incoming.channel is not None
        incoming.channel.limit_frames(
            FrameLimits(default=PEER_FRAME_BYTES_MAX, step=PEER_FRAME_STEP_BYTES)
        )
        incoming.node, incoming.incarnation = hello.node, hello.incarnation
        del self._ungreeted[incoming]
        old = self._incoming.get(hello.node)
        self._incoming[hello.node] = incoming
        if old is not None:
            old.close("replaced by a newer connection")
        self._journal.info("peer up", peer=hello.node, incarnation=hello.incarnation)
        self._handler.peer_up(hello.node, hello.incarnation)
        self._ping_one(hello.node)  # its clock is wanted before anything is decided by ours

    def _refusal(self, hello: Hello) -> Refusal | None:
        old = self._incoming.get(hello.node)
        return refusal_of(
            self._hello,
            hello,
            known=self.outgoing,
            removed=self.removed,
            connected=None if old is None else old.incarnation,
        )

    def incoming_lost(self, incoming: "_Incoming", reason: str) -> None:
        node = incoming.node
        if node is None:
            self._ungreeted.pop(incoming, None)
            self._refuse(incoming.host, reason)
        elif self._incoming.get(node) is incoming:
            del self._incoming[node]
            self._journal.info("peer down", peer=node, reason=reason)
            self._handler.peer_down(node)

    def _refuse(self, host: str, reason: str) -> None:
        self._refused += 1
        now = self._handler.boot_ns()
        if now - self._refusal_logged_ns >= REFUSALS_LOGGED_EVERY_S * 1e9:
            self._refusal_logged_ns = now
            self._journal.warning(
                "peer connection refused", host=host, reason=reason, refused=self._refused
            )

    def tick(self) -> None:
        """Once a second: close what has not greeted in time, and what has been silent for long."""
        now = self._handler.boot_ns()
        for incoming in [*self._ungreeted]:
            if now - incoming.accepted_boot_ns > GREETING_S * 1e9:
                incoming.close("it did not greet in time")
        for incoming in [*self._incoming.values()]:
            incoming.look()

    # -- frames -------------------------------------------------------------------------------

    def on_frame(self, node: NodeId, kind: int, body: memoryview, owned: bool) -> None:
        """Dispatch one frame of a greeted peer.

        Raises:
            PeerError: nonsense.
        """
        handler = self._handler
        if kind == Kind.PAXOS:
            kept = body if owned else memoryview(bytes(body))
            handler.on_messages(node, codec.decode_all(kept))
        elif kind == Kind.FORWARD and len(body) > _FORWARD.size:
            number, group, flags, until_wall_ns = _FORWARD.unpack_from(body)
            flags |= LATE * (handler.wall_ns() > until_wall_ns)
            command = body[_FORWARD.size :]
            kept = command if owned else memoryview(bytes(command))
            handler.on_forward(node, number, GroupId(group), flags, kept)
        elif kind == Kind.FORWARDED and len(body) >= _FORWARDED.size:
            handler.on_forwarded(node, *_decode_outcome(body))
        elif kind == Kind.PING and len(body) == _PING.size:
            asked_wall, asked_boot, flags = _PING.unpack(body)
            handler.on_draining(node, bool(flags & _DRAINING))
            handler.on_low(node, bool(flags & _LOW))
            answer = _PONG.pack(asked_wall, asked_boot, handler.wall_ns())
            self._send_small(node, Kind.PONG, answer)
        elif kind == Kind.PONG and len(body) == _PONG.size:
            asked_wall, asked_boot, theirs = _PONG.unpack(body)
            half = (handler.boot_ns() - asked_boot) // 2
            handler.on_clock(node, theirs - (asked_wall + half), half)
        elif kind == Kind.LIFE:
            handler.on_life(node, Life.decode(body))
        elif kind == Kind.VERDICT:
            handler.on_verdict(node, Verdict.decode(body))
        elif kind == Kind.MASTERS:
            handler.on_masters(node, decode_words(body))
        elif kind == Kind.CATCH_UP:
            kept = body if owned else memoryview(bytes(body))
            handler.on_catch_up(node, catchup_codec.decode(kept))
        elif kind == Kind.CONSOLE:
            self.on_console(node, body)
        else:
            raise PeerError(f"a frame of kind {kind} and {len(body)} bytes")

    def close(self) -> None:
        for link in self.outgoing.values():
            if link.channel is not None:
                link.channel.close("this node stops")
        for incoming in [*self._incoming.values(), *self._ungreeted]:
            incoming.close("this node stops")


class _Incoming:
    """The receiving half of a link."""

    def __init__(self, peers: Peers, host: str, boot_ns: int) -> None:
        self._peers, self.host = peers, host
        self.channel: Channel | None = None
        self.node: NodeId | None = None
        self.incarnation = INCARNATION_ZERO
        self.accepted_boot_ns = boot_ns
        self._received_seen = 0
        self._silent_looks = 0

    def on_frame(self, frame: memoryview, owned: bool) -> None:
        try:
            if not len(frame):
                raise PeerError("an empty frame")
            kind, body = frame[0], frame[1:]
            if self.node is not None:
                self._peers.on_frame(self.node, kind, body, owned)
            elif kind == Kind.HELLO:
                self._peers.greeted(self, Hello.decode(body))
            else:
                raise PeerError("it did not greet")
        except Refused as refused:
            self.refuse(refused.refusal)
        except PeerError as error:
            self.close(str(error))

    def refuse(self, refusal: Refusal | None) -> None:
        """Say why, and close."""
        assert self.channel is not None
        assert refusal is not None
        body = refusal.encode()
        head = _FRAME.pack(1 + len(body), Kind.REFUSED)
        self.channel.send([head + body], len(head) + len(body))
        self.channel.flush()
        self.close(refusal.text)

    def look(self) -> None:
        """Counted in looks, a second apart: a node that was stopped itself must not blame others
        for the silence."""
        assert self.channel is not None
        if self.channel.received_bytes != self._received_seen:
            self._received_seen, self._silent_looks = self.channel.received_bytes, 0
        elif self._silent_looks >= SILENT_S:
            self.close("it was silent")
        else:
            self._silent_looks += 1

    def close(self, reason: str) -> None:
        assert self.channel is not None
        self.channel.close(reason)

    def on_closed(self, reason: str) -> None:
        self._peers.incoming_lost(self, reason)


def _decode_outcome(body: memoryview) -> tuple[int, Outcome]:
    number, code, master = _FORWARDED.unpack_from(body)
    result = body[_FORWARDED.size :]
    if code == 0 and len(result) <= RESULT_BYTES_MAX:
        return number, Done(bytes(result), at_home=master >= 0)
    if not 1 <= code <= len(_WHY):
        raise PeerError(f"an outcome of code {code}")
    return number, Elsewhere(_WHY[code - 1], None if master < 0 else NodeId(master))


async def _connect(address: Address) -> socket.socket | None:
    """A connected, non-blocking socket; None where nobody answers."""
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
            sock = socket.socket(fileno=stream.socket.detach())
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S * 1000))
        except OSError:
            return None
        return sock
    return None
