"""The vectors of RFC 7677, and two sides back to back."""

import base64

import pytest

from wire.scram import (
    ClientExchange,
    ScramError,
    ScramMechanism,
    ServerExchange,
    make_credential,
    parse_client_first,
)

NONCE = b"rOprNGfwEbeRWgbNEkqO"
REST = b"%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def test_the_exchange_of_rfc_7677() -> None:
    sha = ScramMechanism.SHA_256
    client = ClientExchange(sha, "user", "pencil", NONCE)
    assert client.start() == b"n,,n=user,r=" + NONCE
    credential = make_credential(sha, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    server = ServerExchange.begin(sha, parse_client_first(client.start()), credential, REST)
    assert server.challenge == b"r=" + NONCE + REST + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert client.answer(server.challenge) == FINAL
    right, signature = server.finish(FINAL)
    assert right
    assert signature == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert client.answer(signature) is None


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_names_and_passwords_of_any_kind(mechanism: ScramMechanism) -> None:
    credential = make_credential(mechanism, "pä=ss,wörd", b"salt", 4096)
    client = ClientExchange(mechanism, "a=b,c", "pä=ss,wörd", b"x")
    first = parse_client_first(client.start())
    assert first.username == "a=b,c"
    server = ServerExchange.begin(mechanism, first, credential, b"y")
    final = client.answer(server.challenge)
    assert final is not None
    assert server.finish(final)[0]
    with pytest.raises(ScramError):
        client.answer(b"v=AAAA")


@pytest.mark.parametrize(
    "message",
    [
        *(b"", b"n,,", b"n,,n=,r=x", b"n,,n=u", b"n,,n=u,r=", b"p=tls-unique,,n=u,r=x"),
        *(b"n,a=other,n=u,r=x", b"n,,n=a=b,r=x", b"n,,n=\xff,r=x", b"n,,n=u,r=a b", b"n" * 5000),
    ],
)
def test_first_messages_that_are_refused(message: bytes) -> None:
    with pytest.raises(ScramError):
        parse_client_first(message)


@pytest.mark.parametrize(
    "iterations",
    [b"", b"x", b"-4096", b"4095", b"1000001", b"0000004096" + b"0000", b"0000004096" + b"0" * 20],
)
def test_a_broker_cannot_make_us_count_for_ever(iterations: bytes) -> None:
    """Neither hash for minutes, nor fail with an error that nobody expects."""
    client = ClientExchange(ScramMechanism.SHA_256, "user", "pencil", NONCE)
    client.start()
    with pytest.raises(ScramError, match="iterations must be"):
        client.answer(b"r=" + NONCE + REST + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=" + iterations)
