"""Saying who we are, to brokers that do what no good one does; and what is held meanwhile."""

import pytest
import trio

from evenkeel import Admin, AuthenticationError, ClientConfig, ConfigurationError, Sasl
from evenkeel.client import open_client
from tests.evenkeel.peers import PeerStream, scripted
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

PATIENT = {"operation_timeout_ms": 60_000}
PLAIN = Sasl(mechanism="PLAIN", username="ann", password="hush, hush")


class Broker:
    """Asks who is there; what it was sent is kept."""

    def __init__(self, answer: SaslAuthenticateResponse, *, challenge: bytes = b"") -> None:
        self.answer, self.challenge = answer, challenge
        self.tokens: list[bytes] = []
        self.order: list[str] = []
        self.slow = trio.Event()

    async def __call__(self, peer: PeerStream) -> None:
        await peer.greet()
        while True:
            header, message = await peer.read()
            self.order.append(type(message).__name__)
            if isinstance(message, SaslHandshakeRequest):
                await peer.answer(header, SaslHandshakeResponse(0, [message.mechanism]))
            elif isinstance(message, SaslAuthenticateRequest):
                self.tokens.append(bytes(message.auth_bytes))
                if self.challenge and message.auth_bytes != b"\x01":
                    said = SaslAuthenticateResponse(auth_bytes=self.challenge)
                    await peer.answer(header, said)
                else:
                    await peer.answer(header, self.answer)
            elif isinstance(message, MetadataRequest):
                brokers = [MetadataResponseBroker(1, "127.0.0.1", 1)]
                await peer.answer(header, MetadataResponse(brokers=brokers, cluster_id="c"))
            else:
                assert isinstance(message, ApiVersionsRequest)
                await self.slow.wait()
                await peer.answer(header, ApiVersionsResponse())


def refusing(text: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(int(ErrorCode.SASL_AUTHENTICATION_FAILED), text)


async def asked(host: str, port: int, sasl: Sasl) -> str | None:
    config = ClientConfig(sasl=sasl, **PATIENT)
    async with Admin(f"{host}:{port}", client=config) as admin:
        with trio.fail_after(10):
            return (await admin.describe_cluster()).cluster_id


async def test_a_brokers_words_are_shown_without_our_password() -> None:
    async with scripted(Broker(refusing("no: hush, hush is wrong"))) as (host, port):
        with pytest.raises(AuthenticationError, match=r"no: \*\*\* is wrong") as told:
            await asked(host, port, PLAIN)
    assert "hush" not in str(told.value) + repr(told.value) + repr(PLAIN)


async def test_a_token_is_asked_for_each_time_and_not_shown() -> None:
    tokens = iter(["first", "second"])

    async def fetched() -> str:
        await trio.lowlevel.checkpoint()
        return next(tokens)

    for source, sent in ((lambda: next(tokens), b"first"), (fetched, b"second")):
        broker = Broker(SaslAuthenticateResponse())
        async with scripted(broker) as (host, port):
            assert await asked(host, port, Sasl(mechanism="OAUTHBEARER", token=source)) == "c"
        assert broker.tokens == [b"n,,\x01auth=Bearer " + sent + b"\x01\x01"]
    refused = Broker(refusing("invalid_token: tkn-1"), challenge=b'{"status":"invalid_token"}')
    async with scripted(refused) as (host, port):
        with pytest.raises(AuthenticationError, match="check the token") as told:
            await asked(host, port, Sasl(mechanism="OAUTHBEARER", token="tkn-1"))
    assert refused.tokens[1] == b"\x01"
    assert "tkn-1" not in str(told.value)


async def test_what_gives_tokens_may_fail() -> None:
    def failing() -> str:
        raise RuntimeError("the secret is hush")

    async with scripted(Broker(SaslAuthenticateResponse())) as (host, port):
        with pytest.raises(AuthenticationError, match=r"has failed \(RuntimeError\)") as told:
            await asked(host, port, Sasl(mechanism="OAUTHBEARER", token=failing))
    assert "hush" not in str(told.value)


async def test_a_broker_that_asks_for_too_much_work_is_refused() -> None:
    """SCRAM's iterations are bounded both ways; so is what a broker may send."""
    for said in (b"i=999999999", b"i=1", b"x" * 10_000):
        nonce_missing = b"r=x,s=AAAA," + said
        broker = Broker(SaslAuthenticateResponse(auth_bytes=nonce_missing))
        scram = Sasl(mechanism="SCRAM-SHA-512", username="ann", password="hush")
        async with scripted(broker) as (host, port):
            with pytest.raises(AuthenticationError, match="SCRAM-SHA-512 failed"):
                await asked(host, port, scram)


async def test_a_listener_without_sasl_says_so() -> None:
    async def plain(peer: PeerStream) -> None:
        await peer.greet()
        header, _ = await peer.read()
        await peer.answer(header, SaslHandshakeResponse(int(ErrorCode.ILLEGAL_SASL_STATE)))

    async with scripted(plain) as (host, port):
        with pytest.raises(AuthenticationError, match="this listener has no SASL"):
            await asked(host, port, PLAIN)


async def test_while_a_session_is_renewed_requests_wait_and_follow_in_order() -> None:
    """What is in flight is answered first, and nothing is between handshake and authentication."""
    broker = Broker(SaslAuthenticateResponse(session_lifetime_ms=200))
    config = ClientConfig(sasl=PLAIN)
    async with (
        scripted(broker) as (host, port),
        open_client(f"{host}:{port}", config) as client,
    ):
        connection = await client.connection(-1)
        slow = connection.submit(ApiVersionsRequest("x", "1"), 3)
        with trio.fail_after(5):
            while connection._held is None:  # noqa: ASYNC110 (nobody is told)
                await trio.sleep(0.01)
        late = [connection.submit(MetadataRequest([]), 1) for _ in range(3)]
        await trio.sleep(0.05)
        assert broker.order.count("SaslHandshakeRequest") == 1, "it waits for what is in flight"
        broker.slow.set()
        with trio.fail_after(5):
            assert isinstance(await slow.wait(), ApiVersionsResponse)
            for one in late:
                assert isinstance(await one.wait(), MetadataResponse)
        assert connection.usable
    renewal = broker.order[2:]
    assert renewal[:6] == [
        "ApiVersionsRequest",
        "SaslHandshakeRequest",
        "SaslAuthenticateRequest",
        *["MetadataRequest"] * 3,
    ]


async def test_a_session_that_cannot_be_renewed_ends_with_all_that_waits() -> None:
    broker = Broker(SaslAuthenticateResponse(session_lifetime_ms=100))
    async with (
        scripted(broker) as (host, port),
        open_client(f"{host}:{port}", ClientConfig(sasl=PLAIN)) as client,
    ):
        connection = await client.connection(-1)
        broker.answer = refusing("no longer")
        with trio.fail_after(5):
            await connection.closed.wait()
        with pytest.raises(AuthenticationError, match="no longer"):
            await connection.submit(MetadataRequest([]), 1).wait()


@pytest.mark.parametrize(
    "settings",
    [
        {"mechanism": "GSSAPI", "username": "a", "password": "b"},
        {"mechanism": "PLAIN", "username": "a"},
        {"mechanism": "PLAIN", "username": "a\0", "password": "b"},
        {"mechanism": "PLAIN", "username": "a", "password": "b", "token": "c"},
        {"mechanism": "OAUTHBEARER"},
        {"mechanism": "OAUTHBEARER", "token": "a", "username": "b"},
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError):
        Sasl(**settings)  # type: ignore[arg-type]  # what a user may write
