"""Opening connections to peers. Only this part of a link waits, so it uses trio tasks."""

import socket
from collections.abc import Callable
from typing import Final

import trio

from runtime.config.fields import Address
from runtime.network.stream import TcpStream
from runtime.system.journal import Journal

CONNECT_TIMEOUT_S: Final = 2.0
SILENT_S: Final = 10.0
"""A link without any traffic for this long is dead: a peer sends something every 200 ms. TCP alone
would retry for a quarter of an hour."""


async def connect(address: Address) -> TcpStream | str:
    """Open a connection; else the reason, in words, that it failed or took too long."""
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        try:
            stream = await trio.open_tcp_stream(address.host, address.port)
            sock = TcpStream(fileno=stream.socket.detach())
            sock.set_no_delay()
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENT_S * 1000))
        except OSError as error:
            return in_words(error)
        return sock
    return f"no answer within {CONNECT_TIMEOUT_S:.0f} s: a firewall, or no such machine"


def in_words(error: BaseException) -> str:
    """Why a connection failed. trio tries every address of a name, and raises one error for all."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(dict.fromkeys(in_words(one) for one in error.exceptions))
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved: {error.strerror}"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused: nothing listens there"
    return str(getattr(error, "strerror", None) or error)


class TrioDialer:
    """Opens each connection in a task of its own (runtime.network.stream.Dialer).

    Peers are dialed several times a second: the journal gets the reason of a failure when it is
    new, and one line when the connection is there again.
    """

    def __init__(self, nursery: trio.Nursery, journal: Journal | None = None) -> None:
        self._nursery, self._journal = nursery, journal
        self._reasons: dict[Address, str] = {}
        """Why the last attempt failed; addresses are those of the configuration and registry."""

    def dial(self, address: Address, done: Callable[[TcpStream | None], None]) -> None:
        self._nursery.start_soon(self._dial, address, done)

    async def _dial(self, address: Address, done: Callable[[TcpStream | None], None]) -> None:
        made = await connect(address)
        self._note(address, made if isinstance(made, str) else "")
        done(None if isinstance(made, str) else made)

    def _note(self, address: Address, reason: str) -> None:
        before = self._reasons.pop(address, "")
        if reason:
            self._reasons[address] = reason
        if self._journal is None or reason == before:
            return
        if reason:
            self._journal.warning("no connection to a peer", address=str(address), reason=reason)
        else:
            self._journal.info("connected to a peer again", address=str(address), was=before)
