"""TLS around a connection of the HTTP port: trio's, because HTTP is served by trio's tasks.

(Kafka's and peers' connections are the data plane's: runtime.network.tls_stream.)
"""

import ssl
from typing import Final

import trio

HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""Received before the handshake is over: a hello, and a chain of certificates."""
REFILL_BYTES: Final = 16 * 1024
"""Taken from the socket at once."""


class _Bounded(trio.abc.Stream):
    """The bytes of a connection, that ends when a handshake has too many."""

    def __init__(self, inner: trio.abc.Stream) -> None:
        self._inner = inner
        self.left: int | None = HANDSHAKE_BYTES_MAX
        """What may still come; None: anything, for the handshake is over."""

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        data = bytes(await self._inner.receive_some(min(max_bytes or REFILL_BYTES, REFILL_BYTES)))
        if self.left is not None:
            self.left -= len(data)
            if self.left < 0:
                raise trio.BrokenResourceError("the TLS handshake has too many bytes")
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._inner.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._inner.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._inner.aclose()


async def secured(stream: trio.abc.Stream, context: ssl.SSLContext) -> trio.abc.Stream:
    """The same connection with TLS, once its handshake is over.

    Raises:
        trio.BrokenResourceError: the client does not keep to TLS, or is gone.
    """
    inner = _Bounded(stream)
    top = trio.SSLStream(inner, context, server_side=True, https_compatible=True)
    await top.do_handshake()
    inner.left = None
    return top
