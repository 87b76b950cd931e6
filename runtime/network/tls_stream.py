"""TLS as a stream around a stream: an `ssl.SSLObject` between two buffers in memory.

No thread and no task: the data plane calls when the socket is ready, and everything here happens
within that call. What came encrypted and is no whole record yet waits in one buffer; what is
encrypted and was not accepted by the socket waits in the other, at most ENCRYPTED_BYTES_MAX of it.

A socket that is not readable says nothing about decrypted bytes that wait here, and one without
unsent plain bytes may still have encrypted ones. Therefore the two questions `holds_input` and
`encrypted_bytes`, which `runtime.network.tls_channel` asks after each call.
"""

import ssl
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

from paxos.entry import Buffer
from runtime.network.stream import Stream

ENCRYPTED_BYTES_MAX: Final = 64 * 1024
"""More is not encrypted ahead of what the socket accepts."""
PIECE_BYTES: Final = 32 * 1024
"""What is taken from the socket at once: a record is at most 16 KiB. The buffers of the library
keep their greatest size as long as the connection lives."""
RECEIVE_BYTES_MAX: Final = 256 * 1024
"""Decrypted in one call: the other connections wait meanwhile."""
HANDSHAKE_BYTES_MAX: Final = 64 * 1024
"""Received before the handshake is over: a hello, and a chain of a client's certificates."""
_PLAIN: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "PACKET_LENGTH_TOO_LONG",
    "UNKNOWN_PROTOCOL",
)
RECORD_HEAD_BYTES: Final = 5
"""Type, version and length: RFC 8446, section 5.1."""
_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"


class TlsError(OSError):
    """The other side does not keep to TLS, or is refused. Like any OSError of a stream, it means
    that the connection is lost."""

    def __init__(self, text: str) -> None:
        super().__init__(0, text)


class Shown(NamedTuple):
    """A verified certificate of the other side."""

    chain: tuple[bytes, ...]
    """DER: its own first, then what it was verified by."""
    expires_s: int


class TlsStream:
    """A runtime.network.stream.Stream. Until `handshake` has returned True, nothing can be sent or
    received."""

    plain = False
    """Whether it has turned out to be no TLS, which only a subclass allows."""

    def __init__(
        self, inner: Stream, context: ssl.SSLContext, *, host: str = "", dialed: bool = False
    ) -> None:
        """As the server's side; as a client's with `host`, or where we have `dialed` somebody who
        is known by something else than the name of a host."""
        self._inner = inner
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = dialed or bool(host)
        self._ssl = context.wrap_bio(
            self._arrived,
            self._leaving,
            server_side=not client,
            server_hostname=host or None,
        )
        self._rest: Buffer = b""
        """What was taken out of `_leaving`, and not accepted by the socket."""
        self.established = False
        self.holds_input = False
        """Whether a call of `recv_into` may return something without anything more arriving."""
        self._came_bytes = 0
        self._head = b""
        """The beginning of a record's head, where that has not come whole."""
        self._body_bytes = self._body_missing = 0
        """Of the record whose head came last: its length, and what has not come of it."""
        self._ended = False
        """The other side has said that nothing more comes, or its socket has ended."""

    def fileno(self) -> int:
        return self._inner.fileno()

    # -- the handshake ------------------------------------------------------------------------

    def handshake(self) -> bool:
        """Go on with the handshake; returns whether it is over.

        Raises:
            BlockingIOError: it waits for the other side.
            OSError: it has failed, or the connection is lost.
        """
        while not self.established:
            try:
                self._ssl.do_handshake()
                self.established = self.holds_input = True
            except ssl.SSLWantReadError:
                self._push_quietly()
                self._take()
                if self._ended:
                    raise TlsError("closed by the other side during its TLS handshake") from None
            except ssl.SSLError as error:
                self._push_quietly()  # the alert that says why
                raise TlsError(f"TLS handshake failed: {in_words(error)}") from error
        self._push_quietly()
        return True

    @property
    def started(self) -> bool:
        """Whether anything of a handshake has come."""
        return self._came_bytes > 0

    def peer_subject(self) -> Any:  # noqa: ANN401  ssl's nested tuples
        """The subject of the certificate that the other side has shown and that was verified; None
        if it has shown none."""
        shown = self._ssl.getpeercert()
        return shown.get("subject", ()) if shown else None

    def shown(self) -> Shown | None:
        """The certificate of the other side that was verified, with the chain it was verified by;
        None if it has shown none."""
        parts = self._ssl.getpeercert()
        own = self._ssl.getpeercert(binary_form=True)
        if not parts or own is None:
            return None
        return Shown(_verified_chain(self._ssl) or (own,), _expiry_s(parts))

    def peer_names(self) -> tuple[str, ...]:
        """The DNS names of the certificate that was verified, in its order."""
        shown: Any = self._ssl.getpeercert() or {}
        return tuple(str(name) for kind, name in shown.get("subjectAltName", ()) if kind == "DNS")

    @property
    def version(self) -> str:
        """`TLSv1.2` or `TLSv1.3`; "" before the handshake."""
        return self._ssl.version() or ""

    # -- in -----------------------------------------------------------------------------------

    def recv_into(self, buffer: memoryview) -> int:
        """Decrypt into `buffer`, as much as fits and has come, up to RECEIVE_BYTES_MAX."""
        filled, wanted = 0, min(len(buffer), RECEIVE_BYTES_MAX)
        while filled < wanted:
            try:
                count = self._decrypt(buffer[filled:wanted])
            except ssl.SSLWantReadError:
                if self._comes():
                    continue
                break
            except ssl.SSLEOFError:  # the socket has ended without a word: frames tell their length
                count = 0
            except ssl.SSLError as error:
                self._push_quietly()
                raise TlsError(f"TLS: {in_words(error)}") from error
            if not count:
                self._ended = self.holds_input = True  # the next call says so
                return filled
            filled += count
        else:
            self.holds_input = True
        if not filled:
            raise BlockingIOError
        return filled

    def _decrypt(self, buffer: memoryview) -> int:
        count: Any = self._ssl.read(len(buffer), buffer)  # type: ignore[arg-type, unused-ignore]
        return int(count)

    def _comes(self) -> bool:
        """Take more from the socket; returns whether there was any."""
        try:
            self._take()
        except BlockingIOError:
            self.holds_input = False
            return False
        if self.encrypted_bytes > 2 * ENCRYPTED_BYTES_MAX and not self._pushed():
            raise TlsError("TLS: it asks for more new keys than it reads")
        return True

    def _take(self) -> None:
        """Take one piece from the socket.

        Raises:
            BlockingIOError: nothing has come.
            OSError: the connection is lost, or this is no handshake any more.
        """
        if self._ended:
            return
        count = self._inner.recv_into(_PIECE)
        if not count:
            self._ended = True
            self._arrived.write_eof()
            return
        if not self.established:
            self._came_bytes += count
            if self._came_bytes > HANDSHAKE_BYTES_MAX:
                raise TlsError("TLS handshake failed: it has too many bytes")
        self._arrived.write(_PIECE[:count])
        self._measure(_PIECE[:count])

    def _measure(self, came: memoryview) -> None:
        """Follow the records' heads: the library keeps to itself how much of one it has."""
        at, size = 0, len(came)
        while at < size:
            if self._body_missing:
                step = min(self._body_missing, size - at)
                self._body_missing -= step
                at += step
                continue
            step = min(RECORD_HEAD_BYTES - len(self._head), size - at)
            self._head += bytes(came[at : at + step])
            at += step
            if len(self._head) == RECORD_HEAD_BYTES:
                self._body_bytes = self._body_missing = int.from_bytes(self._head[3:], "big")
                self._head = b""

    # -- out ----------------------------------------------------------------------------------

    def send(self, data: Buffer) -> int:
        return self.sendmsg((data,))

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        """Encrypt and send; returns how many bytes were encrypted. They count as sent, although up
        to ENCRYPTED_BYTES_MAX of them may wait here (`push`)."""
        sent = 0
        for buffer in buffers:
            view = memoryview(buffer)
            while len(view):
                if self.encrypted_bytes >= ENCRYPTED_BYTES_MAX and not self._pushed():
                    if not sent:
                        raise BlockingIOError
                    return sent
                count = self._encrypt(view[: max(1, ENCRYPTED_BYTES_MAX - self.encrypted_bytes)])
                view = view[count:]
                sent += count
        self._pushed()
        return sent

    def _encrypt(self, view: memoryview) -> int:
        try:
            return self._ssl.write(view)
        except ssl.SSLError as error:
            raise TlsError(f"TLS: {in_words(error)}") from error

    def push(self) -> None:
        """Send what is encrypted, as far as the socket accepts it.

        Raises:
            OSError: the connection is lost.
        """
        self._pushed()

    def _pushed(self) -> bool:
        """Send what is encrypted; returns whether all of it was accepted."""
        while self.encrypted_bytes:
            if not len(self._rest):
                self._rest = memoryview(self._leaving.read())
            try:
                count = self._inner.send(self._rest)
            except BlockingIOError:
                return False
            self._rest = memoryview(self._rest)[count:] if count < len(self._rest) else b""
        return True

    def _push_quietly(self) -> None:
        """For what may be lost, such as the reason why a connection ends."""
        with suppress(OSError):
            self._pushed()

    @property
    def encrypted_bytes(self) -> int:
        """Encrypted, and not accepted by the socket yet."""
        return len(self._rest) + self._leaving.pending

    # -- both ---------------------------------------------------------------------------------

    def close(self) -> None:
        """Say that nothing more comes, as far as that goes at once, and close the socket."""
        if self.established:
            with suppress(ssl.SSLError):  # it wants the other side's word as well
                self._ssl.unwrap()
            self._push_quietly()
        self._inner.close()

    def unacknowledged_bytes(self) -> int:
        """Encrypted ones, that the socket has accepted."""
        return self._inner.unacknowledged_bytes()

    def untaken_bytes(self) -> int:
        """In the socket, and what could be decrypted here."""
        held = self._arrived.pending + self._ssl.pending() if self.holds_input else 0
        return self._inner.untaken_bytes() + held

    @property
    def partial_bytes(self) -> int:
        """Those of a record that is not whole yet: nothing can be said of what is in it."""
        if self._body_missing:
            return RECORD_HEAD_BYTES + self._body_bytes - self._body_missing
        return len(self._head)

    def has_hung_up(self) -> bool:
        return self._ended or self._inner.has_hung_up()


_PIECE: Final = memoryview(bytearray(PIECE_BYTES))
"""What was just received, and is copied at once: one for all, since one thread serves them."""


def _verified_chain(connection: Any) -> tuple[bytes, ...]:  # noqa: ANN401
    """Any: before Python 3.13 only the object inside `ssl.SSLObject` tells it."""
    tell = getattr(connection, "get_verified_chain", None)
    if tell is not None:
        return tuple(tell())
    tell = getattr(connection._sslobj, "get_verified_chain", None)
    chain = tell() if tell is not None else None
    return tuple(one.public_bytes(_DER) for one in chain or ())


_DER: Final = 2
"""OpenSSL's number, as in the module _ssl."""


def _expiry_s(parts: Any) -> int:  # noqa: ANN401  ssl's dictionary
    return int(ssl.cert_time_to_seconds(parts["notAfter"]))


def in_words(error: ssl.SSLError) -> str:
    """Why TLS failed, as an operator may want to read it."""
    reason = error.reason or ""
    if reason in _PLAIN:
        return "this is no TLS: the other side does without it, or speaks another protocol"
    if reason == _NO_CERTIFICATE:
        return "the client has shown no certificate"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the other side's certificate is refused: {error.verify_message}"
    _, alert, what = reason.partition("_ALERT_")
    if alert:
        return f"the other side ends it: {what.lower().replace('_', ' ')}"
    return reason.lower().replace("_", " ") or str(error)
