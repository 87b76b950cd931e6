"""The receiving half of a link: who the peer is, and how much of this node's time it gets.

The loop handles a peer's messages while all other peers and clients wait. A frame can contain tens
of thousands of messages, each of them cheap. So a peer gets PEER_ROUND_NS per round; the rest of
its frame, and whatever came after it, waits for the next round. If that is too slow, TCP pushes
back on the peer.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, Protocol

from paxos import codec
from paxos.codec import PeerError
from paxos.ids import INCARNATION_ZERO, NodeId
from paxos.messages import Message
from runtime.membership.handshake import Hello, Refusal, Refused
from runtime.network.channel import Channel
from runtime.peers.frames import FRAME, Kind
from wire.framing import Room

SILENT_S: Final = 10.0
"""A link without any traffic for this long is dead: a peer sends something every 200 ms. TCP alone
would retry for a quarter of an hour."""
PEER_ROUND_NS: Final = 10_000_000
LOOK_EVERY: Final = 16
"""Messages between two readings of the clock."""


class Receiving(Protocol):
    """The owner of the links (runtime.peers.peers)."""

    rounds: int

    def greeted(self, incoming: "Incoming", hello: Hello) -> None: ...

    def check_versions(self, node: NodeId) -> None: ...

    def on_messages(self, node: NodeId, messages: Iterable[Message]) -> None: ...

    def on_frame(self, node: NodeId, kind: int, body: memoryview, owned: bool) -> None: ...

    def hold(self, incoming: "Incoming") -> None: ...

    def incoming_lost(self, incoming: "Incoming", reason: str) -> None: ...


class Incoming:
    def __init__(
        self, peers: Receiving, host: str, boot_ns: int, clock: Callable[[], int], room: Room
    ) -> None:
        self._peers, self.host, self._clock, self._room = peers, host, clock, room
        self.channel: Channel | None = None
        self.proved: NodeId | None = None
        """The node of its certificate; None: it has shown none (runtime.peers.security)."""
        self.node: NodeId | None = None
        self.incarnation = INCARNATION_ZERO
        self.accepted_boot_ns = boot_ns
        self._received_seen = 0
        self._silent_looks = 0
        self._round = -1
        self._until_ns = 0
        self._rest: Iterator[Message] | None = None
        """The messages of the last frame that there was no time for."""
        self._checked = False
        """Whether the peer has had its opportunity to tell its versions."""
        self._held_bytes = 0
        """The frame that they are in, which stays in memory until then."""

    def on_frame(self, frame: memoryview, owned: bool) -> None:
        if self._round != self._peers.rounds:
            self._begin_round()
        try:
            if not len(frame):
                raise PeerError("an empty frame")
            kind, body = frame[0], frame[1:]
            if self.node is not None and not self._checked:
                self._check(self.node, kind)
            if self.node is None:
                self._greeted(kind, body)
            elif kind == Kind.PAXOS:
                self._hold_bytes(len(frame))
                self._rest = codec.decode_all(body if owned else memoryview(bytes(body)))
                self._peers.on_messages(self.node, self._some(self._rest))
            else:
                self._peers.on_frame(self.node, kind, body, owned)
        except Refused as refused:
            self.refuse(refused.refusal)
        except PeerError as error:
            self.close(str(error))
        self._wait_if_over()
        self._let_go()

    def _greeted(self, kind: int, body: memoryview) -> None:
        if kind != Kind.HELLO:
            raise PeerError("it did not greet")
        self._peers.greeted(self, Hello.decode(body))

    def _check(self, node: NodeId, kind: int) -> None:
        """The frame behind HELLO is TERMS, with the peer's versions, except from older nodes."""
        self._checked = True
        if kind != Kind.TERMS:
            self._peers.check_versions(node)

    # -- the time it has ----------------------------------------------------------------------

    def _begin_round(self) -> None:
        self._round, self._until_ns = self._peers.rounds, self._clock() + PEER_ROUND_NS

    def _some(self, messages: Iterator[Message]) -> Iterator[Message]:
        """The messages that there is time for, but at least one."""
        for count, message in enumerate(messages, 1):
            yield message
            if not count % LOOK_EVERY and self._clock() > self._until_ns:
                return
        self._rest = None

    def _is_over(self) -> bool:
        return self._rest is not None or self._clock() > self._until_ns

    def _wait_if_over(self) -> None:
        """Stop reading until the next round, if the time in this round is up."""
        assert self.channel is not None
        if self.channel.closed:
            self._rest = None
        elif self._is_over():
            self.channel.pause_reading()
            self._peers.hold(self)

    def go_on(self) -> None:
        """Continue in a later round: first with the rest of the frame, then with the socket."""
        assert self.channel is not None
        self._begin_round()
        if self._rest is not None:
            assert self.node is not None
            try:
                self._peers.on_messages(self.node, self._some(self._rest))
            except PeerError as error:
                self.close(str(error))
            self._let_go()
            if self._is_over() and not self.channel.closed:
                self._peers.hold(self)
                return
        self.channel.resume_reading()

    def _hold_bytes(self, size: int) -> None:
        """Count the frame whose messages are being handled, or no frame any more."""
        self._room.end(self._held_bytes)
        self._room.begin(size)
        self._held_bytes = size

    def _let_go(self) -> None:
        """Of the frame, if all of its messages are handled."""
        if self._rest is None:
            self._hold_bytes(0)

    # -- its end ------------------------------------------------------------------------------

    def refuse(self, refusal: Refusal | None) -> None:
        """Tell the peer why it is refused, and close the connection."""
        assert self.channel is not None
        assert refusal is not None
        body = refusal.encode()
        head = FRAME.pack(1 + len(body), Kind.REFUSED)
        self.channel.send([head + body], len(head) + len(body))
        self.channel.flush()
        self.close(refusal.text)

    def look(self) -> None:
        """Close the link after SILENT_S without data. Called once a second, and counts calls: a
        node that was suspended itself must not take that for a peer's silence."""
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
        self._rest = None
        self._hold_bytes(0)
        self._peers.incoming_lost(self, reason)
