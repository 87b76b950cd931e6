"""TLS over streams that cut bytes as badly as a network may: it arrives whole, or the connection
ends; nothing waits for ever, and nothing grows."""

import errno
import ssl
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import attrs
import pytest

from paxos.entry import Buffer
from runtime.network.tls_context import TlsContexts, TlsFiles
from runtime.network.tls_stream import (
    ENCRYPTED_BYTES_MAX,
    HANDSHAKE_BYTES_MAX,
    TlsError,
    TlsStream,
)
from tests.certs import Certs, now
from tests.runtime.doubles import Recorder

RECORD_OVERHEAD = 64
"""More than what a record adds to the 16 KiB in it, and its share of the next one."""


@attrs.define
class Way:
    """One direction: bytes under way, in pieces of at most `piece`, up to `room` of them."""

    piece: int = 1 << 20
    room: int = 1 << 20
    bytes_held: int = 0
    pieces: deque[bytes] = attrs.Factory(deque)
    ended: bool = False


class Memory:
    """One end of a connection in memory (runtime.network.stream.Stream)."""

    def __init__(self, incoming: Way, outgoing: Way) -> None:
        self.incoming, self.outgoing = incoming, outgoing
        self.broken = self.closed = False

    def fileno(self) -> int:
        return 3

    def recv_into(self, buffer: memoryview) -> int:
        way = self.incoming
        if self.broken:
            raise OSError(errno.ECONNRESET, "reset")
        if not way.pieces:
            if way.ended:
                return 0
            raise BlockingIOError
        first = way.pieces.popleft()
        part, rest = first[: len(buffer)], first[len(buffer) :]
        if rest:
            way.pieces.appendleft(rest)
        buffer[: len(part)] = part
        way.bytes_held -= len(part)
        return len(part)

    def send(self, data: Buffer) -> int:
        way = self.outgoing
        if self.broken:
            raise OSError(errno.EPIPE, "broken pipe")
        count = min(len(data), way.room - way.bytes_held)
        if count <= 0:
            raise BlockingIOError
        taken = bytes(data[:count])
        way.pieces += [taken[at : at + way.piece] for at in range(0, count, way.piece)]
        way.bytes_held += count
        return count

    def sendmsg(self, buffers: Sequence[Buffer]) -> int:
        return self.send(b"".join(buffers))

    def close(self) -> None:
        self.closed = self.outgoing.ended = True

    def unacknowledged_bytes(self) -> int:
        return self.outgoing.bytes_held

    def untaken_bytes(self) -> int:
        return self.incoming.bytes_held

    def has_hung_up(self) -> bool:
        return self.incoming.ended


@attrs.define
class Pair:
    node: TlsStream
    client: TlsStream
    node_raw: Memory
    client_raw: Memory

    def shake(self) -> None:
        for _ in range(100_000):
            for one in (self.client, self.node):
                if not one.established:
                    with suppress(BlockingIOError):
                        one.handshake()
            if self.client.established and self.node.established:
                return
        raise AssertionError("the handshake does not end")


@pytest.fixture(scope="module")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Certs:
    made = Certs.new(tmp_path_factory.mktemp("certificates"))
    made.node()
    made.client()
    return made


def files_of(certs: Certs, stem: str) -> tuple[Path, Path]:
    return certs.folder / f"{stem}.crt", certs.folder / f"{stem}.key"


def server_context(certs: Certs, client_certificates: str = "none") -> ssl.SSLContext:
    certificate, key = files_of(certs, "node")
    files = TlsFiles(certificate=certificate, key=key, client_authorities=certs.trusted)
    return TlsContexts(files, [client_certificates], Recorder().journal).of(client_certificates)


def connected(
    certs: Certs,
    *,
    client_certificates: str = "none",
    client: ssl.SSLContext | None = None,
    piece: int = 1 << 20,
    room: int = 1 << 20,
) -> Pair:
    up, down = Way(piece, room), Way(piece, room)
    node_raw, client_raw = Memory(up, down), Memory(down, up)
    return Pair(
        TlsStream(node_raw, server_context(certs, client_certificates)),
        TlsStream(client_raw, client or certs.context_of(), host="localhost"),
        node_raw,
        client_raw,
    )


def taken(stream: TlsStream, room: int = 100_000) -> bytes | None:
    """What can be received now; None if that is nothing, b"" at the end."""
    buffer = memoryview(bytearray(room))
    try:
        return bytes(buffer[: stream.recv_into(buffer)])
    except BlockingIOError:
        return None


def passed(source: TlsStream, sink: TlsStream, data: bytes, room: int = 100_000) -> bytes:
    """Send all of it and receive what comes, until it is there."""
    rest, got = memoryview(data), bytearray()
    for _ in range(10 * len(data) + 1_000):
        if len(rest):
            with suppress(BlockingIOError):
                rest = rest[source.send(rest) :]
        else:
            source.push()
        assert source.encrypted_bytes <= ENCRYPTED_BYTES_MAX + 5 * RECORD_OVERHEAD
        got += taken(sink, room) or b""
        if len(got) == len(data):
            return bytes(got)
    raise AssertionError(f"{len(got)} of {len(data)} bytes have come")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_bytes_arrive_whole_in_both_directions_however_they_are_cut(
    certs: Certs, piece: int, newest: ssl.TLSVersion
) -> None:
    context = certs.context_of()
    context.maximum_version = newest
    pair = connected(certs, piece=piece, client=context)
    pair.shake()
    assert pair.node.version == newest.name.replace("_", ".")
    dice = Random(piece)
    for size in (1, 40_000):
        data = dice.randbytes(size)
        assert passed(pair.client, pair.node, data) == data
        assert passed(pair.node, pair.client, data, room=1_000) == data


def test_large_batches_pass_through_a_narrow_connection(certs: Certs) -> None:
    """The buffers in memory stay small although the socket takes little at a time."""
    pair = connected(certs, room=5_000, piece=1_400)
    pair.shake()
    data = Random(1).randbytes(3_000_000)
    assert passed(pair.client, pair.node, data) == data
    assert passed(pair.node, pair.client, data) == data


def test_what_is_encrypted_and_not_taken_is_bounded(certs: Certs) -> None:
    pair = connected(certs)
    pair.shake()
    pair.node_raw.outgoing.room = 0
    data = bytes(1_000_000)
    sent = pair.node.sendmsg([data, data])
    with pytest.raises(BlockingIOError):
        pair.node.send(data)
    assert ENCRYPTED_BYTES_MAX <= pair.node.encrypted_bytes <= ENCRYPTED_BYTES_MAX + 400
    assert sent <= ENCRYPTED_BYTES_MAX
    pair.node_raw.outgoing.room = 1 << 30
    pair.node.push()
    assert pair.node.encrypted_bytes == 0


def test_decrypted_bytes_that_do_not_fit_are_asked_for_again(certs: Certs) -> None:
    """The socket is empty then, and would never become readable for them."""
    pair = connected(certs)
    pair.shake()
    taken(pair.node)  # what the handshake has left
    pair.client.send(bytes(range(200)))
    assert taken(pair.node, room=150) == bytes(range(150))
    assert pair.node_raw.untaken_bytes() == 0
    assert pair.node.holds_input
    assert pair.node.untaken_bytes() == 50
    assert taken(pair.node, room=150) == bytes(range(150, 200))
    assert not pair.node.holds_input
    assert pair.node.untaken_bytes() == 0


def test_a_record_that_is_not_whole_is_partial_and_not_untaken(certs: Certs) -> None:
    pair = connected(certs, piece=10)
    pair.shake()
    taken(pair.node)
    pair.client.send(b"hello, node")
    kept = list(pair.node_raw.incoming.pieces)[1:]
    while len(pair.node_raw.incoming.pieces) > 1:
        pair.node_raw.incoming.pieces.pop()
    pair.node_raw.incoming.bytes_held = 10
    assert taken(pair.node) is None
    assert (pair.node.partial_bytes, pair.node.untaken_bytes()) == (10, 0)
    pair.node_raw.incoming.pieces += kept
    assert taken(pair.node) == b"hello, node"
    assert pair.node.partial_bytes == 0


def test_close_tells_the_other_side_and_what_was_sent_before_comes_first(certs: Certs) -> None:
    pair = connected(certs)
    pair.shake()
    pair.client.send(b"last words")
    pair.client.close()
    assert pair.client_raw.closed
    assert taken(pair.node) == b"last words"
    assert pair.node.holds_input, "the end is still to be told"
    assert taken(pair.node) == b""
    assert pair.node.has_hung_up()
    assert taken(pair.node) == b"", "and it stays the end"


def test_a_connection_that_ends_without_a_word_is_an_end_too(certs: Certs) -> None:
    """librdkafka closes the socket; a frame tells its length, so a cut one is noticed anyway."""
    pair = connected(certs)
    pair.shake()
    pair.client.send(b"last words")
    pair.client_raw.close()
    assert taken(pair.node) == b"last words"
    assert taken(pair.node) == b""


def test_a_reset_in_the_middle_is_an_error(certs: Certs) -> None:
    pair = connected(certs)
    pair.shake()
    pair.node_raw.broken = True
    with pytest.raises(OSError, match="reset"):
        taken(pair.node)
    with pytest.raises(OSError, match="broken pipe"):
        pair.node.send(b"x")


def test_a_record_that_was_changed_on_its_way_ends_the_connection(certs: Certs) -> None:
    pair = connected(certs)
    pair.shake()
    taken(pair.node)
    pair.client.send(b"pay 10")
    (record,) = pair.node_raw.incoming.pieces
    pair.node_raw.incoming.pieces[0] = record[:-1] + bytes((record[-1] ^ 1,))
    with pytest.raises(TlsError, match="TLS"):
        taken(pair.node)


# -- handshakes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "this is no TLS"),
        (bytes.fromhex("0000002300120003000000010007 6b61666b61") + bytes(30), "this is no TLS"),
        (bytes(range(256)), "this is no TLS"),
    ],
)
def test_who_does_not_speak_tls_is_told_apart(certs: Certs, said: bytes, reason: str) -> None:
    pair = connected(certs)
    pair.client_raw.send(said)
    with pytest.raises(TlsError, match=reason):
        pair.node.handshake()


def test_a_truncated_handshake_ends_as_one(certs: Certs) -> None:
    pair = connected(certs)
    with pytest.raises(BlockingIOError):
        pair.client.handshake()
    hello = b"".join(pair.node_raw.incoming.pieces)
    for length in (0, 1, 5, len(hello) - 1):
        cut = connected(certs)
        if length:
            cut.client_raw.send(hello[:length])
        with pytest.raises(BlockingIOError):
            cut.node.handshake()
        cut.client_raw.close()
        with pytest.raises(TlsError, match="closed by the other side during its TLS handshake"):
            cut.node.handshake()


def test_a_handshake_has_a_limit_in_bytes(certs: Certs) -> None:
    """A record of handshake after the other, none of which ends the first message."""
    pair = connected(certs)
    head = bytes.fromhex("01ffffff")  # a hello of 16 MB
    record = bytes.fromhex("160301 4000") + head + bytes(0x4000 - len(head))
    with pytest.raises(TlsError):
        _feed(pair, record, 2 * HANDSHAKE_BYTES_MAX // len(record))
    assert pair.node._arrived.pending <= HANDSHAKE_BYTES_MAX


def _feed(pair: Pair, record: bytes, times: int) -> None:
    for _ in range(times):
        pair.client_raw.send(record)
        with suppress(BlockingIOError):
            pair.node.handshake()


def test_garbage_after_the_handshake_ends_the_connection(certs: Certs) -> None:
    pair = connected(certs)
    pair.shake()
    taken(pair.node)
    pair.client_raw.send(Random(3).randbytes(100))
    with pytest.raises(TlsError):
        taken(pair.node)


def test_a_client_shows_who_it_is(certs: Certs) -> None:
    context = certs.context_of(files_of(certs, "alice"))
    pair = connected(certs, client_certificates="required", client=context)
    pair.shake()
    assert pair.node.peer_subject() == ((("commonName", "alice"),),)


def test_a_client_that_shows_nothing_is_let_in_only_where_that_is_optional(certs: Certs) -> None:
    optional = connected(certs, client_certificates="optional")
    optional.shake()
    assert optional.node.peer_subject() is None
    required = connected(certs, client_certificates="required")
    with pytest.raises(TlsError, match="the client has shown no certificate"):
        required.shake()


def test_strangers_and_expired_certificates_are_refused(certs: Certs, tmp_path: Path) -> None:
    others = Certs.new(tmp_path)
    context = certs.context_of(others.client("mallory"))
    pair = connected(certs, client_certificates="required", client=context)
    with pytest.raises(TlsError, match="certificate is refused"):
        pair.shake()
    late = certs.authority.issue("late", (), -1, now()).write(tmp_path, "late")
    pair = connected(certs, client_certificates="optional", client=certs.context_of(late))
    with pytest.raises(TlsError, match="expired"):
        pair.shake()


def test_tls_1_1_is_refused(certs: Certs) -> None:
    context = server_context(certs)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
