"""OAUTHBEARER and EXTERNAL through the gate: tokens and certificates instead of passwords."""

from typing import Any

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.ports import Connection
from broker.security.authentication import CHECKS_WAITING_MAX, CutOff
from broker.security.exchanges import Denied
from broker.security.listeners import ClientListener, SecurityProtocol
from broker.security.oauth import MESSAGE_BYTES_MAX, OauthExchange
from broker.security.principal import ANONYMOUS, Principal
from broker.security.token_keys import KeySet
from broker.security.tokens import TokenRules
from paxos.ids import MS
from tests.broker.security.test_sasl import Client
from tests.broker.security.tokens_of import KEY_SET, RULES, token
from tests.broker.world import Asked
from wire.error_codes import ErrorCode
from wire.messages.metadata import MetadataRequest
from wire.messages.sasl import SaslHandshakeRequest

SECURE = ClientListener("TLS", SecurityProtocol.SASL_SSL)


@attrs.define
class FakeKeys:
    current: KeySet | None = KEY_SET
    unknown_total: int = 0
    read_total: int = 0
    failed_total: int = 0
    complaint: str = ""

    def missed(self) -> None:
        self.unknown_total += 1

    def hurry(self) -> None:
        """Nothing to look at."""

    def tick(self, _boot_ns: int) -> None:
        """Nothing to look at."""


class Bearer(Client):
    """Of a listener with TLS, to a node that believes tokens and certificates."""

    def __init__(self, rules: TokenRules = RULES, **config: Any) -> None:
        self.keys = FakeKeys()
        wanted = {"mechanisms": ("OAUTHBEARER", "EXTERNAL", "SCRAM-SHA-256")} | config
        super().__init__(**wanted)
        now = self.world[1].broker.groups.now
        self.authentication.new_token_exchange = lambda: OauthExchange(rules, self.keys, now)
        self.authentication.keys = self.keys

    def reconnect(self, certified: str = "", listener: ClientListener = SECURE) -> None:
        self.connection = Connection(listener)
        if certified:
            self.connection.certified = Principal("User", certified)

    @property
    def now_s(self) -> int:
        return self.world[1].broker.groups.now().wall_ns // 1_000_000_000

    def fresh(self, lasts_s: int = 600, **claims: Any) -> bytes:
        return token(**({"exp": self.now_s + lasts_s} | claims))

    def bearer(self, data: bytes, header: bytes = b"n,,") -> Asked:
        self.handshake("OAUTHBEARER")
        return self.token(header + b"\x01auth=Bearer " + data + b"\x01\x01")


def test_a_token_opens_the_gate_and_its_end_is_the_sessions() -> None:
    client = Bearer()
    asked = client.bearer(client.fresh(lasts_s=600))
    assert asked.response.error_code == ErrorCode.NONE
    assert asked.response.auth_bytes == b""
    assert 598_000 < asked.response.session_lifetime_ms <= 600_000
    assert client.connection.principal == Principal("User", "alice")
    assert client.is_served()
    assert client.authentication.succeeded["TLS", "OAUTHBEARER"] == 1
    session = client.connection.session
    assert session is not None
    client.world.advance(590_000, step_ms=10_000)
    assert not session.has_expired(client.world[1].broker.groups.now().boot_ns, 0)
    assert client.bearer(client.fresh()).response.error_code == ErrorCode.NONE
    assert client.authentication.renewed["TLS", "OAUTHBEARER"] == 1
    client.world.advance(590_000, step_ms=10_000)
    assert client.is_served(), "renewed"
    client.world.advance(20_000, step_ms=10_000)
    boot_ns = client.world[1].broker.groups.now().boot_ns
    assert session.has_expired(boot_ns, 0)
    assert client.send(MetadataRequest([]), 9).reply.closed, "expired"
    assert client.authentication.cut_off[CutOff.EXPIRED] == 1


def test_a_refused_token_is_answered_as_rfc_7628_has_it() -> None:
    client = Bearer(attrs.evolve(RULES, scopes=("bus",)))
    for data, status in (
        (client.fresh(aud="another"), "invalid_token"),
        (client.fresh(lasts_s=-60), "invalid_token"),
        (client.fresh(kid="new"), "invalid_token"),
        (client.fresh(scope="read"), "insufficient_scope"),
    ):
        client.reconnect()
        told = client.bearer(data)
        assert told.response.error_code == ErrorCode.NONE
        assert told.response.auth_bytes == b'{"status":"%s","scope":"bus"}' % status.encode()
        last = client.token(b"\x01")
        assert not last.reply.settled, "as late as any failure"
        client.world.advance(100)
        assert last.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert last.response.error_message.startswith("Authentication failed: the token ")
        client.world.advance(30)
        assert last.reply.closed
        assert client.connection.principal == ANONYMOUS
    assert client.authentication.failed == {("TLS", "OAUTHBEARER"): 4}, "each is counted once"
    assert client.keys.unknown_total == 1, "new keys are asked for"


def test_a_failure_counts_when_it_is_told_and_nothing_else_helps() -> None:
    client = Bearer()
    client.bearer(client.fresh(aud="another"))
    assert client.authentication.failed == {("TLS", "OAUTHBEARER"): 1}
    right = client.token(b"n,,\x01auth=Bearer " + client.fresh() + b"\x01\x01")
    client.world.advance(100)
    assert right.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_an_authorization_id_must_be_the_name_in_the_token() -> None:
    client = Bearer()
    asked = client.bearer(client.fresh(), b"n,a=alice,")
    assert asked.response.error_code == ErrorCode.NONE
    client.reconnect()
    asked = client.bearer(client.fresh(), b"n,a=admin,")
    client.world.advance(100)
    assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"p=x,,\x01auth=Bearer a.b.c\x01\x01",
        b"n,b=x,\x01auth=Bearer a.b.c\x01\x01",
        b"n,a=\xff,\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01",
        b"n,,\x01auth=Basic a.b.c\x01\x01",
        b"n,,\x01auth=Bearer a.b.c\x01auth=Bearer a.b.c\x01\x01",
        b"n,,\x01auth=Bearer " + b"a" * MESSAGE_BYTES_MAX + b"\x01\x01",
    ],
)
def test_messages_that_are_none(message: bytes) -> None:
    client = Bearer()
    exchange = OauthExchange(RULES, client.keys, client.world[1].broker.groups.now)
    assert isinstance(exchange.step(message), Denied)
    assert isinstance(exchange.step(message), Denied), "one attempt"


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_garbage_raises_nothing(data: bytes) -> None:
    keys = FakeKeys()
    for message in (data, b"n,,\x01auth=Bearer " + data + b"\x01\x01"):
        exchange = OauthExchange(RULES, keys, lambda: pytest.fail("nothing is that far"))
        exchange.step(message)
        exchange.step(data)


def test_another_principal_and_too_many_at_once() -> None:
    client = Bearer(reauth_ns=3_600_000 * MS)
    assert client.bearer(client.fresh()).response.error_code == ErrorCode.NONE
    client.world.advance(2_000)
    asked = client.bearer(client.fresh(sub="mallory"))
    client.world.advance(100)
    assert "Cannot change principals" in asked.response.error_message
    client.reconnect()
    client.authentication.checks_waiting = CHECKS_WAITING_MAX
    assert client.bearer(client.fresh()).reply.closed


def test_a_bug_in_the_thread_costs_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("broker.security.oauth.check", broken)
    client = Bearer()
    node = client.world[1]
    with pytest.raises(AssertionError, match="a bug"):  # which the harness looks for
        client.bearer(client.fresh())
    assert len(node.bugs) == 1
    node.bugs.clear()
    assert not client.is_served()


def test_tokens_are_offered_where_nobody_sees_them() -> None:
    plain = ClientListener("PLAIN", SecurityProtocol.SASL_PLAINTEXT)
    client = Bearer()
    client.reconnect(listener=plain)
    asked = client.handshake("OAUTHBEARER")
    client.world.advance(130)
    assert asked.response.mechanisms == ["SCRAM-SHA-256"]
    assert asked.reply.closed
    client = Bearer(tokens_without_tls=True)
    client.reconnect(listener=plain)
    assert client.bearer(client.fresh()).response.error_code == ErrorCode.NONE
    client = Bearer()
    client.authentication.new_token_exchange = None
    asked = client.handshake("OAUTHBEARER")
    client.world.advance(100)
    assert "OAUTHBEARER" not in asked.response.mechanisms


# -- EXTERNAL -------------------------------------------------------------------------------------


@pytest.mark.parametrize("authzid", [b"", b"ada"])
def test_a_certificate_opens_the_gate(authzid: bytes) -> None:
    client = Bearer()
    client.reconnect("ada")
    assert not client.is_served(), "a certificate alone is not what the listener asks for"
    client.reconnect("ada")
    client.handshake("EXTERNAL")
    assert client.token(authzid).response.error_code == ErrorCode.NONE
    assert client.connection.principal == Principal("User", "ada")
    assert client.authentication.succeeded["TLS", "EXTERNAL"] == 1


def test_nobody_is_somebody_else_by_a_certificate() -> None:
    client = Bearer()
    for authzid in (b"admin", b"ada\0", b"User:ada", b"\xff"):
        client.reconnect("ada")
        client.handshake("EXTERNAL")
        asked = client.token(authzid)
        client.world.advance(100)
        assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client.reconnect()
    asked = client.send(SaslHandshakeRequest("EXTERNAL"), 1)
    client.world.advance(130)
    assert asked.response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert asked.reply.closed is not None
    assert "needs a certificate" in asked.reply.closed
