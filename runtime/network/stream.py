"""The interface of a connection in the data plane, and TCP connections."""

import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from paxos.entry import Buffer
from runtime.config.fields import Address

_COUNT: Final = struct.Struct("i")


class Stream(Protocol):
    """A reliable byte stream in both directions. It never blocks: BlockingIOError means that it
    would have to, any other OSError that the connection is lost."""

    def fileno(self) -> int:
        """The descriptor to register with a poller."""
        ...

    def recv_into(self, buffer: memoryview) -> int:
        """Receive into `buffer`; returns the number of bytes, 0 if the other side has closed."""
        ...

    def send(self, data: Buffer) -> int:
        """Send the beginning of `data`; returns how many bytes were accepted."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer]) -> int: ...

    def close(self) -> None: ...

    def unacknowledged_bytes(self) -> int:
        """Sent bytes that the other side's kernel does not have yet."""
        ...

    def untaken_bytes(self) -> int:
        """Bytes that have arrived and were not received yet."""
        ...

    def has_hung_up(self) -> bool:
        """Whether the other side has closed, even if not all of its data was received."""
        ...


class Dialer(Protocol):
    def dial(self, address: Address, done: Callable[[Stream | None], None]) -> None:
        """Open a connection; `done` is called later, with None if that failed or took too long."""


class TcpStream(socket.socket):
    """A connected socket that never blocks, and sends small writes at once."""

    @classmethod
    def of(cls, sock: socket.socket) -> "TcpStream":
        """Take over the connection of `sock`, which is detached.

        Raises:
            OSError: it is lost already.
        """
        stream = cls(fileno=sock.detach())
        try:
            stream.set_no_delay()
        except OSError:
            stream.close()
            raise
        return stream

    def set_no_delay(self) -> None:
        """Make the socket non-blocking, and let it send small writes at once.

        Raises:
            OSError: the connection is lost already.
        """
        self.setblocking(False)
        if self.family != socket.AF_UNIX:
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def unacknowledged_bytes(self) -> int:
        return self._asked(termios.TIOCOUTQ)

    def untaken_bytes(self) -> int:
        return self._asked(termios.FIONREAD)

    def has_hung_up(self) -> bool:
        poller = select.poll()
        poller.register(self.fileno(), select.POLLRDHUP)
        return bool(poller.poll(0))

    def _asked(self, request: int) -> int:
        """Query the kernel for a number about the socket."""
        (count,) = _COUNT.unpack(fcntl.ioctl(self, request, bytes(_COUNT.size)))
        return int(count)
