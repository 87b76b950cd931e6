"""Who has not proved who it is gets nothing; who has gets everything, until that changes."""

import hmac
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import wire.scram as scram
from balancer.registry.security import Security
from broker.ports import Connection
from broker.security.authentication import Authentication, AuthenticationConfig
from broker.security.listeners import ClientListener, SecurityProtocol
from broker.security.principal import ANONYMOUS, Principal
from broker.security.users import Users, parse_users, user_line
from tests.broker.world import Asked, World
from wire.apis import APIS, encode_request
from wire.error_codes import ErrorCode
from wire.messages import security as messages
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.metadata import MetadataRequest
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from wire.scram import ClientExchange, ScramMechanism, make_credential, salted_password

SALT = b"0123456789abcdef"
PASSWORD = "cordelia"
SASL = ClientListener("SASL", SecurityProtocol.SASL_PLAINTEXT)
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
S256 = ScramMechanism.SHA_256


class Client:
    """A connection of a SASL listener to node 1 of a world in which `ada` may log in."""

    def __init__(self, **config: Any) -> None:
        self.world = World(nodes=1, groups=1)
        broker = self.world[1].broker
        of_file = {"ada": {int(S256): make_credential(S256, PASSWORD, SALT, 4096)}}
        users = Users(lambda: broker.registry.security, of_file)
        wanted = {"mechanisms": MECHANISMS, "plain_without_tls": True} | config
        broker.authentication = self.authentication = Authentication(
            AuthenticationConfig(**wanted), users, lambda: b"server-nonce"
        )
        self.reconnect()

    def reconnect(self) -> None:
        self.connection = Connection(SASL)

    def raw(self, frame: bytes) -> Asked:
        asked = Asked(36, 1)
        asked.reply.connection = self.connection
        self.world[1].api.handle_frame(memoryview(frame), True, "198.51.100.7", asked.reply)
        self.world.cluster.settle()
        assert not self.world[1].bugs, self.world[1].bugs
        return asked

    def send(self, message: Any, version: int) -> Asked:
        asked = self.raw(b"".join(encode_request(message, version, 7, "test"))[4:])
        api = next(api for api in APIS.values() if api.request is type(message))
        asked._api_key, asked._version = int(api.key), version
        return asked

    def handshake(self, mechanism: str) -> Asked:
        return self.send(SaslHandshakeRequest(mechanism), 1)

    def token(self, token: bytes) -> Asked:
        return self.send(SaslAuthenticateRequest(token), 2)

    def plain(self, user: str, password: str) -> Asked:
        self.handshake("PLAIN")
        return self.token(f"\0{user}\0{password}".encode())

    def scram(self, user: str, password: str, mechanism: ScramMechanism = S256) -> Asked:
        self.handshake(mechanism.sasl_name)
        ours = ClientExchange(mechanism, user, password, b"client-nonce")
        reply = ours.answer(self.token(ours.start()).response.auth_bytes)
        assert reply is not None
        last = self.token(reply)
        if last.reply.frame is not None:
            assert ours.answer(last.response.auth_bytes) is None, "the server proves itself too"
        return last

    def is_served(self) -> bool:
        return self.send(MetadataRequest([]), 9).reply.frame is not None


@pytest.mark.parametrize("how", ["plain", "scram"])
def test_the_right_password_opens_the_gate(how: str) -> None:
    client = Client()
    assert client.send(ApiVersionsRequest("me", "1"), 3).reply.frame is not None
    asked = getattr(client, how)("ada", PASSWORD)
    assert asked.response.error_code == ErrorCode.NONE
    assert asked.response.session_lifetime_ms == 0
    assert asked.reply.is_proved
    assert client.connection.principal == Principal("User", "ada")
    assert client.is_served()


@pytest.mark.parametrize("how", ["plain", "scram"])
@pytest.mark.parametrize(("user", "password"), [("ada", "wrong"), ("nobody", PASSWORD)])
def test_a_failure_is_answered_late_and_the_connection_is_closed(
    how: str, user: str, password: str
) -> None:
    client = Client()
    asked = getattr(client, how)(user, password)
    assert not asked.reply.settled, "a guess costs its connection some time"
    assert asked.reply.stopped == 1
    client.world.advance(100)
    assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    client.world.advance(30)
    assert asked.reply.closed
    assert client.connection.principal == ANONYMOUS
    assert not client.is_served()
    assert sum(client.authentication.failed.values()) == 1


@pytest.mark.parametrize("how", ["plain", "scram"])
def test_an_unknown_user_costs_what_a_wrong_password_costs(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many HMACs and as many iterations, and the same words."""
    costs, words = [], []
    for user, password in (("ada", "wrong"), ("nobody", PASSWORD)):
        client = Client()
        count = {"hmac": 0, "rounds": 0}
        digest, derive = hmac.digest, scram.hashlib.pbkdf2_hmac

        def counted(*args: Any, count: Any = count, digest: Any = digest) -> bytes:
            count["hmac"] += 1
            return digest(*args)

        def derived(
            name: str,
            data: bytes,
            salt: bytes,
            rounds: int,
            count: Any = count,
            derive: Any = derive,
        ) -> bytes:
            count["rounds"] += rounds
            return derive(name, data, salt, rounds)

        with monkeypatch.context() as patch:
            patch.setattr(hmac, "digest", counted)
            patch.setattr(scram.hashlib, "pbkdf2_hmac", derived)
            asked = getattr(client, how)(user, password)
        client.world.advance(100)
        costs.append(count)
        words.append(asked.response.error_message)
    assert costs[0] == costs[1]
    assert costs[0]["hmac"] > 0
    assert words[0] == words[1]


def test_a_stranger_gets_no_other_request_through() -> None:
    for message, version in (
        (MetadataRequest([]), 9),
        (SaslAuthenticateRequest(b"x"), 2),  # before the handshake
        (messages.DescribeUserScramCredentialsRequest(None), 0),
    ):
        client = Client()
        assert client.send(message, version).reply.closed
    client = Client()
    client.handshake("SCRAM-SHA-256")
    assert client.send(MetadataRequest([]), 9).reply.closed, "nor in the middle"


@given(frames=st.lists(st.binary(max_size=80), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_garbage_never_opens_the_gate(frames: list[bytes]) -> None:
    client = Client()
    for mechanism in MECHANISMS:
        client.reconnect()
        client.handshake(mechanism)
        for frame in frames:
            client.token(frame)
            client.raw(frame)
        assert client.connection.session is not None
        assert not client.connection.session.proved
        assert client.connection.principal == ANONYMOUS


def test_an_answer_cannot_be_used_twice() -> None:
    client = Client()
    client.handshake("SCRAM-SHA-256")
    ours = ClientExchange(S256, "ada", PASSWORD, b"n")
    reply = ours.answer(client.token(ours.start()).response.auth_bytes)
    assert reply is not None
    session = client.connection.session
    assert session is not None
    exchange = session.exchange
    assert exchange is not None
    exchange.step(reply[:-8] + b"AAAAAAA=")
    assert "over" in str(exchange.step(reply)), "one attempt an exchange"


def test_bare_frames_of_the_oldest_handshake() -> None:
    client = Client()
    client.send(SaslHandshakeRequest("PLAIN"), 0)
    assert client.raw(b"\0ada\0" + PASSWORD.encode()).reply.frame == b"\0\0\0\0"
    assert client.is_served()


def test_mechanisms_that_are_not_offered() -> None:
    client = Client(plain_without_tls=False)
    for mechanism in ("PLAIN", "GSSAPI", "OAUTHBEARER", "nonsense"):
        client.reconnect()
        asked = client.handshake(mechanism)
        client.world.advance(130)
        assert asked.response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert asked.response.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert asked.reply.closed


def test_a_node_without_authentication_lets_nobody_in() -> None:
    client = Client()
    client.world[1].broker.authentication = None
    assert client.handshake("PLAIN").reply.closed
    assert not client.is_served()


def test_a_session_ends_and_is_renewed_by_the_same_principal_only() -> None:
    client = Client(reauth_ns=5_000_000_000)
    assert client.plain("ada", PASSWORD).response.session_lifetime_ms == 5_000
    client.world.advance(2_000)
    assert client.plain("ada", PASSWORD).response.error_code == ErrorCode.NONE
    client.world.advance(4_000)
    assert client.is_served(), "renewed"
    client.world.advance(1_500)
    assert client.send(MetadataRequest([]), 9).reply.closed, "expired"
    assert client.plain("ada", PASSWORD).response.error_code == ErrorCode.NONE
    client.world.advance(1_500)
    client.handshake("SCRAM-SHA-256")
    asked = client.token(b"n,,n=ada,r=x")
    client.world.advance(100)
    assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED, "another mechanism"


def test_names_that_nobody_has_look_like_users() -> None:
    """Iterations and salts are distributed as those of users, and stay with the name."""
    security = Security()
    of_file = {
        f"user{number}": {1: make_credential(S256, "x", bytes(16 if number % 4 else 24), 4096)}
        for number in range(32)
    } | {f"strong{number}": {1: make_credential(S256, "x", SALT, 5000)} for number in range(32)}
    users = Users(lambda: security, of_file)
    names = [f"nobody{number}" for number in range(400)]
    made = [users.find_or_stand_in(name, S256) for name in names]
    assert all(found is None for found, _ in made)
    shapes = Counter((one.iterations, len(one.salt)) for _, one in made)
    assert shapes.keys() == {(4096, 16), (4096, 24), (5000, 16)}
    assert 140 < shapes[5000, 16] < 260
    assert 20 < shapes[4096, 24] < 90
    assert made == [users.find_or_stand_in(name, S256) for name in names]
    (_, empty) = Users(lambda: security, {}).find_or_stand_in("nobody", S256)
    assert (empty.iterations, len(empty.salt)) == (4096, 16)
    _, other = users.find_or_stand_in("nobody1", ScramMechanism.SHA_512)
    assert (other.iterations, len(other.salt)) == (4096, 16), "by mechanism"


# -- credentials by protocol ----------------------------------------------------------------------


def alter(client: Client, user: str, password: str, **other: Any) -> Any:
    values = {"mechanism": 1, "iterations": 4096, "salt": SALT} | other
    salted = salted_password(S256, password, SALT, 4096)
    one = messages.ScramCredentialUpsertion(user, salted_password=salted, **values)
    request = messages.AlterUserScramCredentialsRequest([], [one])
    (result,) = client.world.ask(1, request, 0).results
    return ErrorCode(result.error_code)


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.world[1].registry.cluster_version = client.world[1].registry.cluster_version
    return client


def test_users_made_by_protocol_log_in_and_are_described(admin: Client) -> None:
    assert alter(admin, "bob", "hunter2") == ErrorCode.NONE
    assert admin.scram("bob", "hunter2").response.error_code == ErrorCode.NONE
    request = messages.DescribeUserScramCredentialsRequest(None)
    (found,) = admin.world.ask(1, request, 0).results
    assert [(one.mechanism, one.iterations) for one in found.credential_infos] == [(1, 4096)]
    proof = admin.connection.session.proof  # type: ignore[union-attr]
    assert proof is not None
    assert admin.authentication.users.holds(proof)
    assert alter(admin, "bob", "hunter3") == ErrorCode.NONE
    assert not admin.authentication.users.holds(proof), "open connections are cut off by this"
    deletion = messages.ScramCredentialDeletion("bob", 1)
    delete = messages.AlterUserScramCredentialsRequest([deletion], [])
    (result,) = admin.world.ask(1, delete, 0).results
    assert result.error_code == ErrorCode.NONE
    (result,) = admin.world.ask(1, delete, 0).results
    assert result.error_code == ErrorCode.RESOURCE_NOT_FOUND


@pytest.mark.parametrize(
    ("user", "other", "error"),
    [
        ("bob", {"iterations": 4095}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("bob", {"iterations": 1_000_001}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("bob", {"mechanism": 2}, ErrorCode.UNACCEPTABLE_CREDENTIAL),  # a salt of another length
        ("bob", {"mechanism": 3}, ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ("bob", {"salt": b""}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ("", {}, ErrorCode.UNACCEPTABLE_CREDENTIAL),
    ],
)
def test_credentials_that_are_refused(
    admin: Client, user: str, other: dict[str, Any], error: ErrorCode
) -> None:
    assert alter(admin, user, "x", **other) == error
    assert admin.world[1].registry.security.is_empty


def test_a_registered_user_is_not_looked_up_in_the_file(admin: Client) -> None:
    assert alter(admin, "ada", "changed") == ErrorCode.NONE
    asked = admin.scram("ada", PASSWORD)
    admin.world.advance(100)
    assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_file_of_users_is_read_back_and_tells_no_secret() -> None:
    credential = make_credential(S256, PASSWORD, SALT, 5_000)
    text = "# first\n" + user_line("ada", S256, credential) + "\n"
    assert parse_users(text) == {"ada": {1: credential}}
    assert "salt" not in repr(credential)
    for wrong in ("ada", "ada SCRAM-SHA-1 x", "ada SCRAM-SHA-256 salt=x", text + text):
        with pytest.raises(ValueError, match="line "):
            parse_users(wrong)


def test_a_user_of_the_file_does_not_come_back(admin: Client) -> None:
    """Deleted in the registry, she would have the password of the first hour again."""
    assert alter(admin, "ada", "changed") == ErrorCode.NONE
    deletion = messages.ScramCredentialDeletion("ada", 1)
    delete = messages.AlterUserScramCredentialsRequest([deletion], [])
    (result,) = admin.world.ask(1, delete, 0).results
    assert result.error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert "bootstrap_users_file" in result.error_message
    assert admin.scram("ada", "changed").response.error_code == ErrorCode.NONE, "it is as it was"
    other = messages.ScramCredentialUpsertion("ada", 2, 4096, SALT, bytes(64))
    change = messages.AlterUserScramCredentialsRequest([deletion], [other])
    (result,) = admin.world.ask(1, change, 0).results
    assert result.error_code == ErrorCode.NONE, "she has another one"
    admin.reconnect()
    asked = admin.scram("ada", PASSWORD)
    admin.world.advance(100)
    assert asked.response.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
