"""Listening sockets in the data plane: they accept a limited number of connections per round.

When the process is out of file descriptors, accept fails and the connection stays in the backlog,
so a level-triggered listener would be called again for ever. One descriptor is kept in reserve: it
is released for a moment to accept such a connection and close it, so that the client notices.
"""

import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from runtime.config.fields import Address
from runtime.network.dataplane import READ, Plane
from runtime.network.stream import Stream, TcpStream
from runtime.system.journal import Journal
from storage.disk.descriptors import DESCRIPTORS, OUT_OF_DESCRIPTORS
from wire.addresses import canonical_host

ACCEPTS_PER_ROUND_MAX: Final = 64
REFUSED_LOGGED_EVERY: Final = 1_000

OnAccept = Callable[[Stream, str], None]
"""Gets a connection and the address it comes from."""


class Listening(Protocol):
    """A port that this node has bound."""

    accepting: bool

    def accept_again(self) -> None:
        """Start to accept connections, or start again. Raises OSError: the address is in use."""

    def refuse_all(self) -> None:
        """Refuse all connections at once, and keep the port."""

    def close(self) -> None: ...


class Listener:
    def __init__(
        self, plane: Plane, sock: socket.socket, on_accept: OnAccept, backlog: int, journal: Journal
    ) -> None:
        self._plane, self._backlog = plane, backlog
        self.accepting = False
        self._sock, self._on_accept, self._journal = sock, on_accept, journal
        self._reserve = _reserve()
        self.refused = 0
        """Connections refused because there was no file descriptor."""

    @property
    def port(self) -> int:
        return int(self._sock.getsockname()[1])

    def accept_again(self) -> None:
        """Accept connections, for the first time or again.

        Raises:
            OSError: the address is in use.
        """
        self._sock.listen(self._backlog)
        self._sock.setblocking(False)
        self._plane.register(self._sock.fileno(), READ, self.on_ready)
        self.accepting = True

    def refuse_all(self) -> None:
        """Let the kernel refuse all connections at once, and keep the port."""
        self._plane.unregister(self._sock.fileno())
        self._sock.shutdown(socket.SHUT_RD)
        self.accepting = False

    def on_ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_PER_ROUND_MAX):
            try:
                sock, address = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF_DESCRIPTORS:
                    DESCRIPTORS.scarce = True  # the next tick closes connections
                    self._refuse()
                continue  # or the client has hung up already
            stream = TcpStream(fileno=sock.detach())
            try:
                stream.set_no_delay()
                self._on_accept(stream, canonical_host(str(address[0])))
            except OSError as error:
                stream.close()
                self._journal.debug("connection lost at once", reason=str(error))

    def _refuse(self) -> None:
        _close(self._reserve)
        with suppress(OSError):  # the client is gone, or another thread took the descriptor
            self._sock.accept()[0].close()
        self._reserve = _reserve()
        if self.refused % REFUSED_LOGGED_EVERY == 0:
            self._journal.warning("out of file descriptors: raise ulimit -n", refused=self.refused)
        self.refused += 1

    def close(self) -> None:
        self._sock.close()
        _close(self._reserve)


def _reserve() -> int:
    try:
        return os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return -1  # the next refused connection tries again


def _close(descriptor: int) -> None:
    if descriptor >= 0:
        os.close(descriptor)


def listen(
    plane: Plane, address: Address, on_accept: OnAccept, backlog: int, journal: Journal
) -> Listener:
    """Accept connections to `address` in the data plane.

    Raises:
        OSError: the address cannot be bound.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address.host, address.port))
        listener = Listener(plane, sock, on_accept, backlog, journal)
        listener.accept_again()
    except OSError:
        sock.close()
        raise
    return listener
