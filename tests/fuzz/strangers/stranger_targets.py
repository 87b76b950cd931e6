"""Whoever has not proved who he is, as a target: TLS hellos, SASL frames, access tokens, key sets.

Nothing here may raise, prove anybody, or (test_strangers.py) hold more than 64 KiB.
"""

import base64
import json
import struct
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final

from broker.ports import Connection
from broker.security.oauth import OauthExchange
from broker.security.principal import Principal
from broker.security.session import Stage
from broker.security.token_keys import ALGORITHMS, KeysError, KeySet, TokenKey, parse_key_set
from broker.security.tokens import TokenError, TokenRules, check, read_header
from runtime.clients.limits import UNPROVED_FRAMES
from runtime.network.tls_context import TlsContexts, TlsFiles
from runtime.network.tls_stream import TlsStream
from tests.broker.fakes import FakeReply
from tests.broker.security.test_oauth import SECURE, Bearer, FakeKeys
from tests.certs import Certs
from tests.fuzz.broker_targets import frames_of, stream_of
from tests.fuzz.engine import Target, feature_of
from tests.fuzz.mutate import INPUT_BYTES_MAX, Sample, havoc
from tests.runtime.doubles import Recorder
from tests.runtime.network.test_tls_stream import Memory, Way
from wire.apis import encode_request
from wire.errors import ProtocolError
from wire.framing import FrameAssembler
from wire.messages.api_versions import ApiVersionsRequest
from wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

# -- TLS ------------------------------------------------------------------------------------------


def hello(versions: Sequence[int] = (0x0304, 0x0303), name: bytes = b"localhost") -> bytes:
    """A ClientHello (RFC 8446, section 4.1.2) in one record."""

    def sized(size: int, data: bytes) -> bytes:
        return len(data).to_bytes(size, "big") + data

    def words(numbers: Sequence[int]) -> bytes:
        return b"".join(struct.pack(">H", number) for number in numbers)

    share = words([0x001D]) + sized(2, bytes(range(1, 33)))
    extensions = (
        (0, sized(2, b"\0" + sized(2, name))),
        (10, sized(2, words([0x001D, 0x0017]))),
        (13, sized(2, words([0x0403, 0x0804, 0x0401]))),
        (43, sized(1, words(versions))),
        (51, sized(2, share)),
    )
    body = (
        b"\x03\x03"
        + bytes(32)
        + sized(1, bytes(32))
        + sized(2, words([0x1301, 0x1302, 0xC02B, 0xC02F]))
        + sized(1, b"\0")
        + sized(2, b"".join(struct.pack(">H", kind) + sized(2, one) for kind, one in extensions))
    )
    return b"\x16\x03\x01" + sized(2, b"\x01" + sized(3, body))


@cache
def contexts() -> TlsContexts:
    with tempfile.TemporaryDirectory() as folder:
        certs = Certs.new(Path(folder))
        certificate, key = certs.node()
        files = TlsFiles(certificate=certificate, key=key, client_authorities=certs.trusted)
        return TlsContexts(files, ["none", "optional"], Recorder().journal)


class TlsHello(Target):
    """A client's side of a handshake: it goes on, or ends the connection with a reason."""

    name: ClassVar = "tls-hello"
    declared = (OSError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        del dice
        finished = b"\x14\x03\x03\0\1\1" + b"\x17\x03\x03\0\x35" + bytes(0x35)
        for data in (hello(), hello((0x0303,)), hello((0x0302,)), hello(name=b"x" * 200)):
            yield Sample(data)
            yield Sample(data + finished)
        yield Sample(b"\x15\x03\x01\0\2\2\x28")

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        data = havoc(sample.data, dice, pool)
        if len(data) > 9 and dice.random() < 0.7:  # lengths of the record and of the message
            size = min(len(data) - 5, 0xFFFF)
            data = data[:3] + struct.pack(">H", size) + data[5:]
            data = data[:6] + max(0, size - 4).to_bytes(3, "big") + data[9:]
        return data[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        up, down = Way(), Way()
        client = Memory(down, up)
        client.send(data)
        client.close()
        stream = TlsStream(Memory(up, down), contexts().of("optional"))
        try:
            while not stream.handshake():
                pass
        finally:
            assert not stream.established, "nobody finishes a handshake with bytes of before it"
            stream.close()
        return ()


# -- SASL -----------------------------------------------------------------------------------------

MESSAGES: Final = (
    ("PLAIN", b"\0ada\0wrong"),
    ("PLAIN", b"other\0ada\0wrong"),
    ("SCRAM-SHA-256", b"n,,n=ada,r=nonce"),
    ("SCRAM-SHA-512", b"n,a=ada,n=ada,r=nonce,x=y"),
    ("OAUTHBEARER", b"n,a=ada,\x01auth=Bearer e30.e30.e30\x01key=value\x01\x01"),
    ("EXTERNAL", b"admin"),
    ("GSSAPI", b"\x60\x82\x01\0\x06\x09\x2a\x86\x48\x86\xf7\x12\x01\x02\x02"),
)


def encoded(message: Any, version: int) -> bytes:
    return b"".join(encode_request(message, version, 7, "fuzz"))[4:]


@cache
def bearer() -> Bearer:
    """A node, for all inputs: nothing of a connection outlives it."""
    return Bearer(mechanisms=("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "EXTERNAL"))


class SaslFrames(Target):
    """A connection of a SASL listener before it is proved, behind the real framing: every frame is
    answered once or costs the connection, and nobody comes in."""

    name: ClassVar = "sasl-frames"

    def samples(self, dice: Random) -> Iterator[Sample]:
        del dice
        asks = encoded(ApiVersionsRequest("fuzz", "1"), 3)
        for mechanism, message in MESSAGES:
            framed = [encoded(SaslAuthenticateRequest(message), version) for version in (0, 1, 2)]
            yield Sample(stream_of([asks, encoded(SaslHandshakeRequest(mechanism), 1), *framed]))
            yield Sample(stream_of([encoded(SaslHandshakeRequest(mechanism), 0), message, message]))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        if dice.random() < 0.1:
            return havoc(sample.data, dice, pool)
        frames = frames_of(sample.data) or [b""]
        for _ in range(dice.choice((1, 1, 2, 4))):
            at = dice.randrange(len(frames))
            if dice.random() < 0.8:
                frames[at] = havoc(frames[at], dice, pool)
            else:
                frames.insert(at, dice.choice(frames_of(dice.choice(pool).data) or [b""]))
        return stream_of(frames)[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        client, features = bearer(), set()
        connection = Connection(SECURE)
        connection.certified = Principal("User", "carol")
        try:
            for reply in self._received(client, connection, data):
                what = "closed" if reply.closed else "answered" if reply.frame else "late"
                assert connection.session is not None
                features.add(f"{what} {connection.session.stage.value}")
        except ProtocolError as error:
            features.add(feature_of(error))
        session = connection.session
        assert session is not None
        if session.stage is Stage.PROVED:
            assert session.mechanism == "EXTERNAL", "nobody knows a password"
        return features

    def _received(self, client: Bearer, connection: Connection, data: bytes) -> Iterator[FakeReply]:
        assembler, at = FrameAssembler(UNPROVED_FRAMES), 0
        node = client.world[1]
        while at < len(data):
            room = assembler.buffer_to_fill()
            piece = data[at : at + len(room)]
            room[: len(piece)] = piece
            assembler.received(len(piece))
            at += len(piece)
            for frame in assembler.frames():
                reply = FakeReply(connection=connection)
                node.api.handle_frame(frame.data, frame.owned, "198.51.100.7", reply)
                client.world.cluster.settle()
                assert not node.bugs, node.bugs
                if connection.session is not None and connection.session.stage is Stage.ENDED:
                    client.world.advance(200, step_ms=100)
                yield reply
                if reply.closed is not None or reply.is_proved:
                    return


# -- tokens ---------------------------------------------------------------------------------------


class _SignsAnything(TokenKey):
    """So that what comes after the signature is attacked, too."""

    def signed(self, algorithm: str, signature: bytes, data: memoryview) -> bool:
        return bool(signature and len(data) and algorithm in self.algorithms)


RULES: Final = TokenRules(issuer="i", audiences=("a",), algorithms=ALGORITHMS, scopes=("s",))
ANY_KEY: Final = KeySet((_SignsAnything("k", frozenset(ALGORITHMS), None),))
NOW_S: Final = 1_000_000
CLAIMS: Final = {"iss": "i", "aud": ["a", "b"], "sub": "x", "scope": "s t", "exp": NOW_S + 60}


def _joined(parts: Iterable[bytes]) -> bytes:
    return b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)


def _parts(token: bytes) -> list[bytes]:
    return [base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)) for part in token.split(b".")]


class Tokens(Target):
    """A token's header, as anybody writes it, and its claims, as if they were signed."""

    name: ClassVar = "access-tokens"
    declared = (TokenError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        del dice
        for header in (
            {"alg": "RS256", "kid": "k"},
            {"alg": "none"},
            {"alg": "ES256", "typ": "JWT"},
        ):
            for more in ({}, {"nbf": NOW_S, "iat": 1.5}, {"aud": "a", "scope": ["s"]}):
                claims = json.dumps(CLAIMS | more).encode()
                yield Sample(_joined((json.dumps(header).encode(), claims, b"signature")))

    def mutate(self, sample: Sample, dice: Random, pool: Sequence[Sample]) -> bytes:
        if dice.random() < 0.3:
            return havoc(sample.data, dice, pool)
        try:
            parts = _parts(sample.data)
        except ValueError:
            return havoc(sample.data, dice, pool)
        at = dice.randrange(len(parts))
        parts[at] = havoc(parts[at], dice, ())
        return _joined(parts)[:INPUT_BYTES_MAX]

    def run(self, data: bytes) -> Iterable[str]:
        step = OauthExchange(RULES, FakeKeys(None), lambda: NotImplemented).step(data)
        whom = check(read_header(data, ANY_KEY, RULES), RULES, NOW_S)
        assert whom.name.isprintable()
        assert whom.expires_s > NOW_S
        return (type(step).__name__, "proved")


class KeySets(Target):
    """What is fetched from `oauth.jwks_url`."""

    name: ClassVar = "key-sets"
    declared = (KeysError,)

    def samples(self, dice: Random) -> Iterator[Sample]:
        del dice
        number = base64.urlsafe_b64encode(b"\xc5" + bytes(254) + b"\x01").decode()
        point = {
            "kty": "EC",
            "crv": "P-256",
            "x": "axfR8uEsQkf4vOblY6RA8ncDfYEt6zOg9KE5RdiYwpY",
            "y": "T-NC4v4af5uO5-tKfA-eFivOM1drMV7Oy7ZAaDe_UfU",
        }
        for key in ({"kty": "RSA", "n": number, "e": "AQAB"}, point, {"kty": "oct", "k": "AAAA"}):
            more = {"kid": "1", "use": "sig", "key_ops": ["verify"]}
            yield Sample(json.dumps({"keys": [key, key | more]}).encode())

    def run(self, data: bytes) -> Iterable[str]:
        found = parse_key_set(data)
        return (f"{len(found.keys)} keys", *(one.split(": ")[1] for one in found.left_out))


def stranger_targets() -> list[Target]:
    return [TlsHello(), SaslFrames(), Tokens(), KeySets()]
