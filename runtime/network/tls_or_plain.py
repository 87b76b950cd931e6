"""A stream that turns out to be TLS or plain text with its first byte, on the side that accepts.

For links between nodes while a cluster is converted to TLS. A handshake begins with a record of
type 22 (RFC 8446, section 5.1), a greeting with the length of its frame, below 2^24: with 0. What
is neither is left to TLS, which refuses it in words.
"""

from collections.abc import Sequence
from typing import Final

from paxos.entry import Buffer
from runtime.network.tls_stream import TlsError, TlsStream

PLAIN_FIRST: Final = 0


class TlsOrPlain(TlsStream):
    """Until `handshake` has returned True, nothing can be sent or received, as with TLS."""

    _first = b""
    """Of plain text, what was read to find that out."""

    def handshake(self) -> bool:
        if not self.started:
            self._take()
            if self._ended:
                raise TlsError("closed by the other side before it said anything")
            first = self._arrived.read(1)
            if first and first[0] == PLAIN_FIRST:
                self.plain = self.established = self.holds_input = True
                self._first = first
                return True
            self._rewind(first)
        return super().handshake()

    def _rewind(self, first: bytes) -> None:
        """Put a byte back in front of what else has come."""
        self._arrived.write(first + self._arrived.read())

    def recv_into(self, buffer: memoryview) -> int:
        if not self.plain:
            return super().recv_into(buffer)
        held = self._first + self._arrived.read(max(0, len(buffer) - len(self._first)))
        if not held:
            return self._inner.recv_into(buffer)
        part, self._first = held[: len(buffer)], held[len(buffer) :]
        buffer[: len(part)] = part
        self.holds_input = bool(self._first or self._arrived.pending)
        return len(part)

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        return self._inner.sendmsg(buffers) if self.plain else super().sendmsg(buffers)

    @property
    def partial_bytes(self) -> int:
        return 0 if self.plain else super().partial_bytes

    def close(self) -> None:
        if self.plain:
            self._inner.close()
        else:
            super().close()
