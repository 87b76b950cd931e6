"""TCP between simulated machines: two pipes a connection, each first in first out, with a window.

What is sent is on its way for the link's delay; while the link is cut it stays where it is and goes
on, as a retransmission, some time after the link is whole again. What does not arrive for long ends
the connection on the side that sends, as TCP_USER_TIMEOUT does, and the other side hears nothing of
it. A process that ends closes its connections: what was sent before is still delivered. A machine
that loses its power says nothing.
"""

import errno
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

import attrs

from paxos.entry import Buffer
from paxos.ids import MS
from runtime.network.dataplane import READ, WRITE
from simulator.environment.loop import Loop

WINDOW_BYTES: Final = 256 * 1024
"""Sent and not read by the other side: more is not taken."""
USER_TIMEOUT_NS: Final = 10_000 * MS
GONE: Final = 0x10 | 0x8  # EPOLLHUP, EPOLLERR: reported unasked
RESEND_NS: Final = 200 * MS
"""At most so long after a link is whole again what waited for it is sent anew."""


class Links(Protocol):
    """How it is between machines."""

    def delay_ns(self, source: int, target: int) -> int | None:
        """Of what is sent now; None: nothing goes through."""
        ...


class Watch(Protocol):
    """Who is told that a stream may be ready (the poller of its process)."""

    def touched(self, fd: int) -> None: ...

    def gone(self, fd: int) -> None: ...


@attrs.define(eq=False)
class Pipe:
    """One direction of a connection."""

    loop: Loop
    links: Links
    source: int
    target: int
    arrived: deque[memoryview] = attrs.Factory(deque)
    arrived_bytes: int = 0
    under_way: deque[tuple[int, memoryview]] = attrs.Factory(deque)
    """When it was sent, and what; empty: the end."""
    under_way_bytes: int = 0
    ended: bool = False
    """The reader has come to the end, or will when it has read what arrived."""
    reset: bool = False
    """The reader meets an error."""
    broken: bool = False
    """The writer does, and nothing is delivered any more."""
    reader: "SimStream | None" = None
    writer: "SimStream | None" = None
    arrives_ns: int = 0
    pumping: bool = False

    def send(self, now_ns: int, data: memoryview) -> None:
        self.under_way.append((now_ns, data))
        self.under_way_bytes += len(data)
        self.pump(now_ns)

    def pump(self, now_ns: int) -> None:
        """Have what is first in the row arrive, if the link lets it."""
        if self.pumping or not self.under_way or self.broken:
            return
        delay = self.links.delay_ns(self.source, self.target)
        sent_ns, _ = self.under_way[0]
        if delay is None:
            self.pumping = True
            self.loop.at(max(now_ns, self.loop.now_ns) + RESEND_NS, self._again, sent_ns)
            return
        self.pumping = True
        self.arrives_ns = max(self.arrives_ns, max(sent_ns, self.loop.now_ns - delay) + delay)
        self.loop.at(self.arrives_ns, self._arrive)

    def _again(self, sent_ns: int) -> None:
        self.pumping = False
        if self.under_way and self.loop.now_ns - sent_ns > USER_TIMEOUT_NS:
            self.break_off(half=True)  # the other side hears nothing of it
            return
        self.pump(self.loop.now_ns)

    def _arrive(self) -> None:
        self.pumping = False
        if self.broken or not self.under_way:
            return
        now = self.loop.now_ns
        if self.reader is None:
            self.break_off()  # nobody reads there any more: a reset is the answer
            return
        # All that was sent by now and would arrive by now comes together, as from one segment.
        while self.under_way and self.under_way[0][0] <= now:
            _, data = self.under_way.popleft()
            self.under_way_bytes -= len(data)
            if not len(data):
                self.ended = True
                break
            self.arrived.append(data)
            self.arrived_bytes += len(data)
            if self.under_way and self.under_way[0][0] + 1_000 > now:
                break
        for stream in (self.reader, self.writer):
            if stream is not None:
                stream.touched()
        self.pump(now)

    def room(self) -> int:
        return WINDOW_BYTES - self.under_way_bytes - self.arrived_bytes

    def break_off(self, *, half: bool = False) -> None:
        """As after a reset: what is under way is lost. `half`: the reader does not hear of it."""
        self.broken = True
        self.under_way.clear()
        self.under_way_bytes = 0
        if not half:
            self.reset = True
            self.arrived.clear()
            self.arrived_bytes = 0
        for stream in (self.reader, self.writer):
            if stream is not None:
                stream.touched()


class SimStream:
    """One side of a connection (runtime.network.stream.Stream). `now_ns`: of who holds it."""

    def __init__(
        self,
        fd: int,
        watch: Watch,
        incoming: Pipe,
        outgoing: Pipe,
        now_ns: Callable[[], int],
        charge: Callable[[int], None],
    ) -> None:
        self.fd, self._watch, self._now_ns, self._charge = fd, watch, now_ns, charge
        self.incoming, self.outgoing = incoming, outgoing
        incoming.reader = outgoing.writer = self
        self.closed = False

    def fileno(self) -> int:
        return self.fd

    def touched(self) -> None:
        if not self.closed:
            self._watch.touched(self.fd)

    def ready(self) -> int:
        """What it is ready for, as epoll has it."""
        if self.incoming.reset or self.outgoing.broken:
            return READ | WRITE | GONE
        events = READ if self.incoming.arrived or self.incoming.ended else 0
        return events | (WRITE if self.outgoing.room() >= WINDOW_BYTES // 3 else 0)

    def recv_into(self, buffer: memoryview) -> int:
        pipe = self.incoming
        self._charge(RECV_NS)
        if pipe.reset or self.outgoing.broken:
            raise OSError(errno.ECONNRESET, "reset")
        filled = 0
        while pipe.arrived and filled < len(buffer):
            first = pipe.arrived[0]
            part = first[: len(buffer) - filled]
            buffer[filled : filled + len(part)] = part
            filled += len(part)
            if len(part) == len(first):
                pipe.arrived.popleft()
            else:
                pipe.arrived[0] = first[len(part) :]
        if filled:
            pipe.arrived_bytes -= filled
            self._charge(filled * BYTE_PS // 1000)
            if pipe.writer is not None:
                pipe.writer.touched()
            return filled
        if pipe.ended:
            return 0
        raise BlockingIOError

    def send(self, data: Buffer) -> int:
        return self.sendmsg([data])

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        pipe = self.outgoing
        self._charge(SEND_NS)
        if pipe.broken:
            raise OSError(errno.EPIPE, "broken pipe")
        room = pipe.room()
        if room <= 0:
            raise BlockingIOError
        data = b"".join(buffers)[:room]
        self._charge(len(data) * BYTE_PS // 1000)
        pipe.send(self._now_ns(), memoryview(data))
        return len(data)

    def close(self) -> None:
        """What was sent is still delivered; unread data is answered with a reset, as in Linux."""
        if self.closed:
            return
        self.closed = True
        self._watch.gone(self.fd)
        now = self._now_ns()
        self.incoming.reader = self.outgoing.writer = None
        if self.incoming.arrived:
            self.vanish()
            return
        if not self.outgoing.broken:
            self.outgoing.send(now, memoryview(b""))

    def vanish(self) -> None:
        """Both directions end at once."""
        if not self.closed:
            self.closed = True
            self._watch.gone(self.fd)
        self.incoming.break_off()
        self.outgoing.break_off()

    def lose_power(self) -> None:
        """Nobody is told: what comes for it is answered when the machine is up again."""
        self.closed = True
        self._watch.gone(self.fd)
        self.incoming.reader = self.outgoing.writer = None
        self.outgoing.broken = True
        self.outgoing.under_way.clear()
        self.outgoing.under_way_bytes = 0

    def unacknowledged_bytes(self) -> int:
        return self.outgoing.under_way_bytes

    def untaken_bytes(self) -> int:
        return self.incoming.arrived_bytes

    def has_hung_up(self) -> bool:
        return self.incoming.ended or self.incoming.reset or self.outgoing.broken


RECV_NS: Final = 6_000
SEND_NS: Final = 9_000
BYTE_PS: Final = 400
"""Picoseconds: what the kernel and the interpreter need for a byte that passes."""
