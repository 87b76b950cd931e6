"""Opening connections to peers. Only this part of a link waits, so it uses trio tasks."""

import socket
from collections.abc import Callable
from typing import Final

import trio

from runtime.config.fields import Address
from runtime.network.stream import TcpStream

CONNECT_TIMEOUT_S: Final = 2.0
SILENT_S: Final = 10.0
"""A link without any traffic for this long is dead: a peer sends something every 200 ms. TCP alone
would retry for a quarter of an hour."""


async def connect(address: Address) -> TcpStream | None:
    """Open a connection; None if that fails or takes longer than CONNECT_TIMEOUT_S."""
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
            sock = TcpStream(fileno=stream.socket.detach())
            sock.set_no_delay()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S * 1000))
        except OSError:
            return None
        return sock
    return None


class TrioDialer:
    """Opens each connection in a task of its own (runtime.peers.peers.Dialer)."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery

    def dial(self, address: Address, done: Callable[[TcpStream | None], None]) -> None:
        self._nursery.start_soon(self._dial, address, done)

    async def _dial(self, address: Address, done: Callable[[TcpStream | None], None]) -> None:
        done(await connect(address))
