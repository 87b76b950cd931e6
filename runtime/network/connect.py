"""Opening a connection to a peer."""

import socket
from typing import Final

import trio

from runtime.config.fields import Address

CONNECT_TIMEOUT_S: Final = 2.0
SILENT_S: Final = 10.0
"""A peer says something every 200 ms; a link on which nothing moves for so long is dead, whatever
TCP hopes for (it would go on for a quarter of an hour)."""


async def connect(address: Address) -> socket.socket | None:
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
