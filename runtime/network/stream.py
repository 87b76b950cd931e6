"""A connection, as the data plane needs it, and TCP's."""

import fcntl
import select
import socket
import struct
import termios
from collections.abc import Sequence
from typing import Final, Protocol

from paxos.entry import Buffer

_COUNT: Final = struct.Struct("i")


class Stream(Protocol):
    """Bytes in order, both ways, or an end. It never waits: BlockingIOError says that it would
    have to, any other OSError that the connection is lost."""

    def fileno(self) -> int:
        """What a poller knows it by."""
        ...

    def recv_into(self, buffer: memoryview) -> int:
        """How many bytes were taken; 0: the other side has ended."""
        ...

    def send(self, data: Buffer) -> int:
        """How many of the bytes were taken."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer]) -> int: ...

    def close(self) -> None: ...

    def unacknowledged_bytes(self) -> int:
        """Of what was sent: what the other side's kernel does not have yet."""
        ...

    def untaken_bytes(self) -> int:
        """What has come and was not taken yet."""
        ...

    def has_hung_up(self) -> bool:
        """Whether the other side has ended, though what it sent before may not all be taken."""
        ...


class TcpStream(socket.socket):
    """A connected socket that does not block, and sends small things at once."""

    @classmethod
    def of(cls, sock: socket.socket) -> "TcpStream":
        """The same connection, which `sock` gives up.

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
        """Never block, and send small things at once.

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
        """A number that the kernel knows of the socket."""
        (count,) = _COUNT.unpack(fcntl.ioctl(self, request, bytes(_COUNT.size)))
        return int(count)
