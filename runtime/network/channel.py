"""One TCP connection in the data plane: frames in, buffers out, with limits for both.

Reading: usually one recv per readiness, into the assembler's memory. Writing: the output of a round
is sent together at its end; small buffers are joined, large ones are sent from where they are.
Whatever the socket does not accept waits for EPOLLOUT, up to a limit in bytes.
"""

import select
from collections.abc import Callable
from typing import Final

from paxos.entry import Buffer
from runtime.network.dataplane import READ, WRITE, Plane
from runtime.network.stream import Stream
from wire.errors import ProtocolError
from wire.framing import ENDLESS, FrameAssembler, FrameLimits, Room

SEND_BUFFERS_MAX: Final = 512
"""Buffers per sendmsg; below IOV_MAX."""
JOIN_BELOW_BYTES: Final = 4096
"""Adjacent smaller buffers are joined before sending: a memcpy is cheaper than one more iovec."""
SEND_BYTES_PER_ROUND_MAX: Final = 4 * 1024 * 1024
RECEIVES_PER_ROUND_MAX: Final = 4
DELIVERS_NS: Final = 3_000_000
"""How long frames of one connection are handed on in one round, before the others' turn."""
GONE: Final = select.EPOLLHUP | select.EPOLLERR
"""Always reported, even if not requested: a channel that does not read must act on them, or the
loop spins."""


def _nothing(_value: object) -> None:
    """A callback that does nothing."""


def _no_news() -> None:
    """A callback that does nothing."""


def _no_frame(_data: memoryview, _value: int) -> None:
    """A callback that does nothing."""


class Channel:
    """Calls `on_frame(data, owned)` for each frame, and `on_closed(reason)` once, whichever side
    closes.

    `on_no_room(size)`: there is no room for the next frame; nothing is read until `resume_reading`.
    `on_sent`: the socket has accepted more of the waiting output. `on_over(kept, size)`: a frame
    was oversized, and this is the part of it that was kept.
    """

    def __init__(
        self,
        plane: Plane,
        sock: Stream,
        limits: FrameLimits,
        *,
        on_frame: Callable[[memoryview, bool], None],
        on_closed: Callable[[str], None],
        unsent_bytes_max: int,
        room: Room = ENDLESS,
        on_no_room: Callable[[int], None] = _nothing,
        on_sent: Callable[[], None] = _no_news,
        on_over: Callable[[memoryview, int], None] = _no_frame,
        urgent: bool = False,
    ) -> None:
        self._plane, self._sock = plane, sock
        self._fd = sock.fileno()
        self._assembler = FrameAssembler(limits, room)
        self._on_frame, self._on_closed = on_frame, on_closed
        self._on_no_room, self._on_sent, self._on_over = on_no_room, on_sent, on_over
        self._unsent: list[Buffer] = []
        self.unsent_bytes = 0
        self.unsent_bytes_max = unsent_bytes_max
        self._events = READ
        self._held = False
        """Reading was paused before all received frames were handed on: they come first."""
        self._again = False
        """Another round is needed even if nothing arrives. Waiting for the socket to be writable
        brings one: it usually is."""
        self.closed = False
        self.received_bytes = 0
        self.sent_bytes = 0
        try:
            plane.register(self._fd, self._events, self._on_ready, urgent=urgent)
        except OSError:  # the kernel may refuse to poll one more
            self._assembler.drop()
            raise

    # -- in -----------------------------------------------------------------------------------

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._again = False
            self.flush()
            self._on_sent()
        if self.closed:
            return
        if not self._events & READ:
            if events & GONE:
                self.close("lost while it was not being read")
        elif self._held:
            self._deliver()
        elif events & ~WRITE:
            self._receive()

    def _receive(self) -> None:
        """Receive what has arrived. If it fills the buffer, there is probably more, such as the
        rest of a large frame after its head: that is received in the same round."""
        assembler = self._assembler
        for _ in range(RECEIVES_PER_ROUND_MAX):
            room = assembler.buffer_to_fill()
            try:
                count = self._sock.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self.close(f"receive failed: {error.strerror}")
                return
            if not count:
                self.close("closed by the other side")
                return
            self.received_bytes += count
            assembler.received(count)
            self._deliver()
            if count < len(room) or self._held or self.closed:
                return

    def _deliver(self) -> None:
        """Hand on the received frames, until reading is paused, there is no room for the next
        frame, or DELIVERS_NS have passed."""
        on_frame, clock = self._on_frame, self._plane.boot_ns
        self._held = True
        until_ns = clock() + DELIVERS_NS
        try:
            for data, owned in self._assembler.frames():
                if self._assembler.over:
                    self._on_over(data, self._assembler.over)
                else:
                    on_frame(data, owned)
                if self.closed or not self._events & READ:
                    return
                if clock() >= until_ns:
                    self._want_a_round()
                    return
        except ProtocolError as error:
            self.close(str(error))
            return
        if self._assembler.missing_room:
            self.pause_reading()
            self._on_no_room(self._assembler.missing_room)
        else:
            self._held = False

    def pause_reading(self) -> None:
        """Back-pressure: hand on no more frames, and leave the sender's data in the socket."""
        self._want(self._events & ~READ)

    def resume_reading(self) -> None:
        """Read again; frames that were already received are handed on in the next round."""
        self._want(self._events | READ)
        if self._held:
            self._want_a_round()

    def _want_a_round(self) -> None:
        self._again = True
        self._want(self._events | WRITE)

    def limit_frames(self, limits: FrameLimits) -> None:
        """Set other limits for the next frames, e.g. once the sender is known."""
        self._assembler.limits = limits

    @property
    def shaking(self) -> bool:
        """Whether a handshake comes first, and is not over yet."""
        return False

    @property
    def encrypted(self) -> bool:
        """Whether nobody on the way can read or change anything."""
        return False

    def has_hung_up(self) -> bool:
        """Whether the other side has closed, even if not all of its data was read."""
        return self.closed or self._sock.has_hung_up()

    @property
    def acknowledged_bytes(self) -> int:
        """How many of the sent bytes the other side's kernel has."""
        return self.sent_bytes - self._sock.unacknowledged_bytes()

    @property
    def queued_bytes(self) -> int:
        """Bytes on the way: waiting here, or in this kernel and not acknowledged yet."""
        return self.unsent_bytes + (0 if self.closed else self._sock.unacknowledged_bytes())

    @property
    def untaken_bytes(self) -> int:
        """Bytes that have arrived and were not read yet."""
        return 0 if self.closed else self._sock.untaken_bytes()

    @property
    def dry(self) -> bool:
        """Whether everything that has arrived was handed on."""
        return not self.partial_bytes and not self.untaken_bytes

    @property
    def partial_bytes(self) -> int:
        return self._assembler.partial_bytes

    @property
    def holds_bytes(self) -> int:
        """Room reserved for an unfinished frame."""
        return self._assembler.holds_bytes

    def shrink(self) -> None:
        self._assembler.shrink()

    # -- out ----------------------------------------------------------------------------------

    def send(self, buffers: list[Buffer], size: int) -> bool:
        """Queue buffers for the end of the round; False if that exceeds `unsent_bytes_max`, or the
        channel is closed."""
        if self.closed:
            return False
        if self.unsent_bytes and self.unsent_bytes + size > self.unsent_bytes_max:
            return False
        self._unsent += buffers
        self.unsent_bytes += size
        return True

    def flush(self) -> None:
        """Send as much as the socket accepts."""
        sent_now = 0
        while self._unsent and not self.closed:
            if sent_now > SEND_BYTES_PER_ROUND_MAX:
                self._want(self._events | WRITE)
                return
            joined = join_small(self._unsent[:SEND_BUFFERS_MAX])
            taken = min(len(self._unsent), SEND_BUFFERS_MAX)
            total = sum(map(len, joined))
            try:
                sent = self._sock.sendmsg(joined) if len(joined) > 1 else self._sock.send(joined[0])
            except BlockingIOError:
                self._want(self._events | WRITE)
                return
            except OSError as error:
                self.close(f"send failed: {error.strerror}")
                return
            sent_now += sent
            self.sent_bytes += sent
            self.unsent_bytes -= sent
            if sent == total:
                del self._unsent[:taken]
                continue
            self._unsent[:taken] = _rest(joined, sent)
            self._want(self._events | WRITE)
            return
        if self._events & WRITE and not self._again and not self.closed:
            self._want(self._events & ~WRITE)

    def _want(self, events: int) -> None:
        if events != self._events and not self.closed:
            self._events = events
            self._plane.modify(self._fd, events)

    def close(self, reason: str) -> None:
        if self.closed:
            return
        self.closed = True
        self._plane.unregister(self._fd)
        self._sock.close()
        self._unsent.clear()
        self.unsent_bytes = 0
        self._assembler.drop()
        on_closed, self._on_closed = self._on_closed, _nothing
        # Our owner and we refer to each other: break the cycle, so that no garbage has to wait.
        self._on_frame = self._on_over = _no_frame
        self._on_no_room, self._on_sent = _nothing, _no_news
        on_closed(reason)


def join_small(buffers: list[Buffer]) -> list[Buffer]:
    """The same bytes in fewer buffers: adjacent small ones are joined."""
    if len(buffers) == 1:
        return buffers
    joined: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BELOW_BYTES:
            run.append(buffer)
            continue
        if run:
            joined.append(run[0] if len(run) == 1 else b"".join(run))
            run = []
        joined.append(buffer)
    if run:
        joined.append(run[0] if len(run) == 1 else b"".join(run))
    return joined


def _rest(buffers: list[Buffer], sent: int) -> list[Buffer]:
    """The buffers without their first `sent` bytes."""
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
