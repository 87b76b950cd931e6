"""Sockets of the bare append: frames in, buffers out, on nested epoll.

Deliberately written apart from runtime/: a yardstick that shared the product's code would grow and
shrink with it.
"""

import select
import socket
import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import trio

from wire.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
Callback: TypeAlias = Callable[[int], object]

BUFFER_BYTES: Final = 64 * 1024
LARGE_BYTES: Final = 32 * 1024
"""Larger frames are received into memory of their own, smaller ones copied out."""
JOIN_BELOW_BYTES: Final = 16 * 1024
BUFFERS_MAX: Final = 512
ROUNDS_PER_TURN_MAX: Final = 16
LENGTH: Final = struct.Struct(">I")


class Closed(Exception):
    """The other side has closed the connection, or sends nonsense."""


class Loop:
    """One trio task waits for one epoll descriptor; callbacks do the work."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self._callbacks: dict[int, Callback] = {}

    def watch(self, fd: int, callback: Callback) -> None:
        self._callbacks[fd] = callback
        self.epoll.register(fd, select.EPOLLIN)

    def forget(self, fd: int) -> None:
        if self._callbacks.pop(fd, None) is not None:
            self.epoll.unregister(fd)

    def open_gate(self, inner: "Loop") -> None:
        """Serve the sockets of another loop in the rounds of this one."""
        if inner.epoll.fileno() not in self._callbacks:
            self.watch(inner.epoll.fileno(), lambda _: inner.poll())

    def shut_gate(self, inner: "Loop") -> None:
        """Stop serving them until the gate is opened again."""
        self.forget(inner.epoll.fileno())

    def poll(self) -> bool:
        """Call back for whatever is ready; False if nothing was."""
        polled = self.epoll.poll(0)
        for fd, events in polled:
            callback = self._callbacks.get(fd)
            if callback is not None:
                callback(events)
        return bool(polled)

    async def run(self, end_of_round: Callable[[], None]) -> None:
        while True:
            await trio.lowlevel.wait_readable(self.epoll.fileno())
            for _ in range(ROUNDS_PER_TURN_MAX):
                if not self.poll():
                    break
                end_of_round()


class Stream:
    """One connection, registered in the loop; `on_frame` gets each frame without its length."""

    def __init__(
        self,
        loop: Loop,
        sock: socket.socket,
        *,
        frame_bytes_max: int,
        on_frame: Callable[["Stream", memoryview], None],
        on_closed: Callable[[], object] = lambda: None,
    ) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._loop, self._sock, self._fd = loop, sock, sock.fileno()
        self._frame_bytes_max = frame_bytes_max
        self._on_frame, self._on_closed = on_frame, on_closed
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._filled = 0
        self._large: memoryview | None = None
        self._unsent: list[Buffer] = []
        self.unsent_bytes = 0
        self._blocked = False
        self.closed = False
        loop.watch(self._fd, self._on_ready)

    def _on_ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._blocked = False
            self._loop.epoll.modify(self._fd, select.EPOLLIN)
            self.flush()
        if events & ~select.EPOLLOUT and not self.closed:
            try:
                self._receive()
            except (Closed, OSError, ProtocolError, struct.error, IndexError):
                self.close()

    def _receive(self) -> None:
        room = self._buffer if self._large is None else self._large
        try:
            count = self._sock.recv_into(room[self._filled :])
        except BlockingIOError:
            return
        if not count:
            raise Closed
        self._filled += count
        if self._large is None:
            self._take_small()
        elif self._filled == len(self._large):
            self._large, self._filled = None, 0
            self._on_frame(self, room)

    def _take_small(self) -> None:
        """Hand on complete frames; allocate memory for a large frame that is incomplete."""
        buffer, stop, at = self._buffer, self._filled, 0
        while stop - at >= LENGTH.size:
            size: int = LENGTH.unpack_from(buffer, at)[0]
            body = at + LENGTH.size
            if body + size > stop:
                if size > self._frame_bytes_max:
                    raise Closed
                if size > LARGE_BYTES:
                    self._large = memoryview(bytearray(size))
                    self._large[: stop - body] = buffer[body:stop]
                    self._filled = stop - body
                    return
                break
            self._on_frame(self, memoryview(bytes(buffer[body : body + size])))
            at = body + size
        self._filled = stop - at
        if at:
            buffer[: self._filled] = buffer[at:stop]

    def send(self, buffers: list[Buffer]) -> None:
        """Queue buffers; the sender must bound `unsent_bytes`."""
        self._unsent += buffers
        self.unsent_bytes += sum(map(len, buffers))

    def flush(self) -> None:
        """Send as much as the socket takes; the rest waits until it takes more."""
        while self._unsent and not self._blocked and not self.closed:
            now = self._unsent[:BUFFERS_MAX]
            try:
                sent = self._sock.sendmsg(now)
            except BlockingIOError:
                sent = 0
            except OSError:
                self.close()
                return
            self.unsent_bytes -= sent
            taken = 0
            while taken < len(now) and sent >= len(now[taken]):
                sent -= len(now[taken])
                taken += 1
            del self._unsent[:taken]
            if taken < len(now):
                self._unsent[0] = memoryview(self._unsent[0])[sent:]
                self._blocked = True
                self._loop.epoll.modify(self._fd, select.EPOLLIN | select.EPOLLOUT)

    def close(self) -> None:
        self.closed = True
        self._loop.forget(self._fd)
        self._sock.close()
        self._unsent.clear()
        self.unsent_bytes = 0
        self._on_closed()


def joined(buffers: list[Buffer]) -> list[Buffer]:
    """The same bytes, with runs of small buffers joined."""
    found: list[Buffer] = []
    run: list[Buffer] = []
    for buffer in buffers:
        if len(buffer) < JOIN_BELOW_BYTES:
            run.append(buffer)
            continue
        if run:
            found.append(b"".join(run))
            run = []
        found.append(buffer)
    if run:
        found.append(b"".join(run))
    return found
