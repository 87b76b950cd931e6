"""A channel over TLS: the handshake first, then what a channel does, with two more questions.

After each call of the stream: are decrypted bytes left there? Then another round is asked for, for
the socket will not become readable for them. Are encrypted bytes left? Then the channel waits for
the socket to be writable, also while it does not read. Channels without TLS ask nothing of this:
it is a class of its own so that they cost what they did.

A handshake is a signature on the loop: HANDSHAKES_PER_ROUND_MAX steps of handshakes are made in
HANDSHAKES_EVERY_NS, and the other connections wait for another round. Whoever is not through after
a while is closed by its owner (runtime.clients), which counts it as silent.
"""

from collections.abc import Callable
from typing import Any, Final

from runtime.network.channel import GONE, Channel
from runtime.network.dataplane import READ, WRITE, Plane
from runtime.network.tls_stream import Shown, TlsError, TlsStream
from wire.framing import FrameLimits

HANDSHAKES_PER_ROUND_MAX: Final = 4
HANDSHAKES_EVERY_NS: Final = 2_000_000
"""A step with a signature takes 0.1 ms (P-256) to 1 ms (RSA): at most half of the time is theirs,
and mostly a tenth."""


class Handshakes:
    """How many steps of handshakes may be made now; one for all connections of a node."""

    def __init__(self, plane: Plane) -> None:
        self._plane = plane
        self._since_ns = -HANDSHAKES_EVERY_NS
        self._made = 0
        self.done_total = 0
        self.failed_total = 0

    def may_go_on(self) -> bool:
        now = self._plane.boot_ns()
        if now - self._since_ns >= HANDSHAKES_EVERY_NS:
            self._since_ns, self._made = now, 0
        if self._made >= HANDSHAKES_PER_ROUND_MAX:
            return False
        self._made += 1
        return True


class TlsChannel(Channel):
    """`on_secured` is called once, when the handshake is over; it returns why the other side is not
    let in, or "". `_sock` is a TlsStream."""

    _sock: TlsStream
    closed: bool = False

    def __init__(
        self,
        plane: Plane,
        sock: TlsStream,
        limits: FrameLimits,
        *,
        handshakes: Handshakes,
        on_secured: Callable[[TlsStream], str],
        believed_by: int = 0,
        **others: Any,  # noqa: ANN401  those of Channel
    ) -> None:
        self._plain_unsent = self._plain_sent = 0
        self._handshakes, self._on_secured = handshakes, on_secured
        self.believed_by = believed_by
        """Which of the node's files of authorities the other side's certificate was verified by."""
        self.shown: Shown | None = None
        """That certificate, once the handshake is over."""
        super().__init__(plane, sock, limits, **others)

    # -- the two questions --------------------------------------------------------------------

    @property
    def _waiting_encrypted(self) -> int:
        """Of the bytes that were given to the stream, those that the socket has not accepted."""
        return 0 if self.closed else min(self._sock.encrypted_bytes, self._plain_sent)

    @property
    def unsent_bytes(self) -> int:
        return self._plain_unsent + self._waiting_encrypted

    @unsent_bytes.setter
    def unsent_bytes(self, value: int) -> None:
        self._plain_unsent = max(0, value - self._waiting_encrypted)

    @property
    def sent_bytes(self) -> int:
        return self._plain_sent - self._waiting_encrypted

    @sent_bytes.setter
    def sent_bytes(self, value: int) -> None:
        self._plain_sent = value + self._waiting_encrypted

    @property
    def partial_bytes(self) -> int:
        return super().partial_bytes + (0 if self.closed else self._sock.partial_bytes)

    @property
    def shaking(self) -> bool:
        """Whether the handshake is not over yet."""
        return not self._sock.established

    @property
    def encrypted(self) -> bool:
        return self._sock.established and not self._sock.plain

    @property
    def heard(self) -> bool:
        """Whether the other side has said anything at all."""
        return self._sock.started

    def _on_ready(self, events: int) -> None:
        sock = self._sock
        if not sock.established:
            if not self._events & READ:
                if events & GONE:
                    self.close("lost while it was not being read")
                self._want(0)
                return
            if not self._shake():
                return
            events |= READ  # its first request may have come with the end of the handshake
        if sock.holds_input:
            events |= READ
        super()._on_ready(events)
        self._look_again()

    def _look_again(self) -> None:
        """Ask for another round, or for a writable socket, where something is left in the
        stream."""
        if self.closed:
            return
        sock = self._sock
        # Also what reading has produced: alerts, other keys.
        if sock.encrypted_bytes and not self._push():
            return
        if sock.holds_input and self._events & READ:
            self._want_a_round()

    def resume_reading(self) -> None:
        super().resume_reading()
        self._look_again()

    def flush(self) -> None:
        if self.closed or not self._sock.established:
            return
        super().flush()
        if self._sock.encrypted_bytes:  # a closed stream sends nothing
            self._push()

    def _push(self) -> bool:
        """Send what is encrypted; returns whether the channel is still open."""
        try:
            self._sock.push()
        except OSError as error:
            self.close(f"send failed: {error.strerror}")
            return False
        if self._sock.encrypted_bytes:
            self._want(self._events | WRITE)
        return True

    def begin(self) -> None:
        """Say the first word, as who has dialed must, in the next round."""
        self._want_a_round()

    # -- the handshake ------------------------------------------------------------------------

    def _shake(self) -> bool:
        """Go on with the handshake; returns whether it is over and the channel still open."""
        self._again = False
        if not self._handshakes.may_go_on():
            self._want_a_round()
            return False
        sock, handshakes = self._sock, self._handshakes
        try:
            sock.handshake()
        except BlockingIOError:
            self._want(READ | (WRITE if sock.encrypted_bytes else 0))
            return False
        except TlsError as error:
            handshakes.failed_total += 1
            self.close(str(error.strerror))
            return False
        except OSError as error:
            handshakes.failed_total += 1
            self.close(f"receive failed: {error.strerror}")
            return False
        refusal = self._on_secured(sock)
        if refusal:
            handshakes.failed_total += 1
            self.close(refusal)
            return False
        handshakes.done_total += 1
        self.shown = None if sock.plain else sock.shown()
        return True

    def close(self, reason: str) -> None:
        if not self.closed:
            # They are asked for after the end as well, and the stream is closed then.
            self._plain_sent = self.sent_bytes
        super().close(reason)
        self._on_secured = _nobody


def _nobody(_sock: TlsStream) -> str:
    """A callback that does nothing."""
    return ""
