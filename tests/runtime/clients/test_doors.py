"""Clients that come by a TLS listener: who they are, and how long they may take to say it."""

from contextlib import suppress
from pathlib import Path

import pytest

from broker.security.listeners import ClientListener, SecurityProtocol
from broker.security.principal import Principal
from broker.security.principal_mapping import PrincipalMapping
from runtime.clients.clients import HANDSHAKE_S
from runtime.clients.doors import Door, TlsDoor
from runtime.network.tls_channel import Handshakes
from runtime.network.tls_context import TlsContexts, TlsFiles
from runtime.network.tls_stream import TlsStream
from tests.certs import Certs
from tests.runtime.clients.test_clients import Harness
from tests.runtime.clients.test_clients import harness as harness  # a fixture
from tests.runtime.doubles import frame

LISTENER = ClientListener("TLS", SecurityProtocol.SSL)


@pytest.fixture
def certs(tmp_path: Path) -> Certs:
    made = Certs.new(tmp_path)
    made.node()
    made.client("alice")
    return made


def door(harness: Harness, certs: Certs, certificates: str, *rules: str) -> Door:
    folder = certs.folder
    files = TlsFiles(
        certificate=folder / "node.crt",
        key=folder / "node.key",
        client_authorities=certs.trusted,
    )
    contexts = TlsContexts(files, [certificates], harness.recorder.journal)
    handshakes = Handshakes(harness.plane)
    mapping = PrincipalMapping(rules)
    return Door(
        LISTENER,
        TlsDoor(
            contexts=contexts,
            client_certificates=certificates,
            handshakes=handshakes,
            mapping=mapping,
        ),
    )


def come(harness: Harness, certs: Certs, door: Door, *, shows: bool = True) -> TlsStream:
    """A client that connects, and has not begun its handshake."""
    accepted, connected = harness.tcp.pair()
    connected.setblocking(False)
    harness.clients.accept(accepted, "10.0.0.1", door)
    folder = certs.folder
    context = certs.context_of((folder / "alice.crt", folder / "alice.key") if shows else None)
    return TlsStream(connected, context, host="localhost")


def shake(harness: Harness, client: TlsStream) -> None:
    for _ in range(200):
        harness.system.advance(3_000_000)
        with suppress(BlockingIOError):
            client.handshake()
        harness.plane.round(1)
        if client.established:
            harness.plane.settle(harness.clients.flush)
            return


def test_a_certificate_makes_a_principal_and_requests_are_answered(
    harness: Harness, certs: Certs
) -> None:
    client = come(harness, certs, door(harness, certs, "required", "RULE:^CN=(.*)$/$1/"))
    shake(harness, client)
    client.send(frame(b"hello"))
    harness.until_asked(1)
    ((said, reply),) = harness.asked
    assert said == b"hello"
    assert reply.connection.listener == LISTENER
    assert reply.connection.principal == Principal("User", "alice")
    reply.complete([frame(b"welcome")])
    harness.settle()
    room = memoryview(bytearray(100))
    assert bytes(room[: client.recv_into(room)]) == frame(b"welcome")


def test_without_a_certificate_it_is_nobody_in_particular(harness: Harness, certs: Certs) -> None:
    client = come(harness, certs, door(harness, certs, "optional"), shows=False)
    shake(harness, client)
    client.send(frame(b"hello"))
    harness.until_asked(1)
    assert str(harness.asked[0][1].connection.principal) == "User:ANONYMOUS"


def test_a_certificate_that_no_rule_knows_is_refused(harness: Harness, certs: Certs) -> None:
    client = come(harness, certs, door(harness, certs, "required", "RULE:^OU=(.*)$/$1/"))
    shake(harness, client)
    assert not harness.clients.connections
    (told,) = harness.recorder.said("client closed")
    assert told["reason"] == "no rule of tls.principal_mapping fits the certificate of 'CN=alice'"


def test_a_handshake_that_does_not_end_is_silent_and_has_a_limit(
    harness: Harness, certs: Certs
) -> None:
    """It holds a place of the silent ones, which newer connections may take, and not for long."""
    entrance = door(harness, certs, "required")
    waiting = come(harness, certs, entrance)
    client = come(harness, certs, entrance)
    shake(harness, client)
    client.send(frame(b"hello"))
    harness.until_asked(1)
    with suppress(BlockingIOError):
        waiting.handshake()
    harness.plane.settle()
    assert len(harness.clients.connections) == 2
    first = next(iter(harness.clients.connections))
    assert not first.has_sent
    harness.pass_seconds(int(HANDSHAKE_S) + 2)
    assert first.gone
    assert len(harness.clients.connections) == 1
    (told,) = harness.recorder.said("client closed")
    assert told["reason"] == "its TLS handshake was not finished in time"


def test_plain_bytes_at_the_tls_door_are_told_as_such(harness: Harness, certs: Certs) -> None:
    accepted, connected = harness.tcp.pair()
    harness.clients.accept(accepted, "10.0.0.1", door(harness, certs, "required"))
    connected.sendall(frame(bytes.fromhex("00120003000000010007") + b"client" * 5))
    harness.plane.settle()
    (told,) = harness.recorder.said("client closed")
    assert told["reason"].startswith("TLS handshake failed: this is no TLS")
