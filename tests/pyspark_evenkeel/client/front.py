"""A front for a real cluster with TLS and SASL, which our own brokers do not serve.

One listener is in front of each node. It ends TLS, authenticates, and forwards every other request
to the node unchanged; in Metadata's answers it replaces the nodes' addresses by its own.
"""

import ssl
import struct
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import attrs
import trio
from confluent_kafka.admin import AdminClient

from evenkeel.lifetime import background
from tests.pyspark_evenkeel.client.scram_server import Login, RefusedLoginError
from tests.spark.bus import WAIT_S, Bus
from wire.apis import (
    APIS,
    ApiKey,
    RequestHeader,
    decode_response,
    encode_response,
)
from wire.codec.compiler import decoder, encoder
from wire.error_codes import ErrorCode
from wire.messages.metadata import MetadataResponse
from wire.messages.sasl import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)

SASL_KEYS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)
Stream = trio.SocketStream | trio.SSLStream[trio.SocketStream]


@attrs.define
class Front:
    """`users` are those who may log in; without any it asks nobody who they are."""

    nodes: Mapping[int, tuple[str, int]]
    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = attrs.Factory(dict)
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    honest: bool = True
    lifetime_ms: int = 0
    logins: int = 0
    places: dict[int, tuple[str, int]] = attrs.Factory(dict)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.places.values())

    async def serve(self, node: int, plain: trio.SocketStream) -> None:
        try:
            stream: Stream = plain
            if self.tls is not None:
                stream = trio.SSLStream(plain, self.tls, server_side=True)
            behind = await trio.open_tcp_stream(*self.nodes[node])
            async with behind:
                await _Visit(self, stream, behind).run()
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            return


@attrs.define
class _Visit:
    """One connection."""

    front: Front
    stream: Stream
    behind: trio.SocketStream
    login: Login | None = None

    async def run(self) -> None:
        while True:
            frame = await _frame(self.stream)
            key, version, correlation_id, name = struct.unpack_from(">hhih", frame)
            if key in SASL_KEYS:
                at = 10 + max(0, name) + APIS[key].flexible(version)
                answer = self._sasl(key, version, correlation_id, memoryview(frame), at)
            else:
                if not self._may_ask(key):
                    raise EOFError  # as Kafka does, without an answer
                await self.behind.send_all(struct.pack(">i", len(frame)) + frame)
                answer = self._changed(key, version, await _frame(self.behind))
            await self.stream.send_all(struct.pack(">i", len(answer)) + answer)

    def _may_ask(self, key: int) -> bool:
        known = self.login is not None and self.login.done
        return not self.front.users or known or key == ApiKey.API_VERSIONS

    def _changed(self, key: int, version: int, frame: bytes) -> bytes:
        if key != ApiKey.METADATA:
            return frame
        answer = decode_response(key, version, memoryview(frame))
        if isinstance(answer, MetadataResponse):
            for broker in answer.brokers:
                broker.host, broker.port = self.front.places[broker.node_id]
        header = RequestHeader(key, version, struct.unpack_from(">i", frame)[0], None, 0)
        return b"".join(encode_response(header, answer))[4:]

    def _sasl(
        self, key: int, version: int, correlation_id: int, frame: memoryview, at: int
    ) -> bytes:
        api = APIS[key]
        request = decoder(api.request, version, api.flexible(version))(frame, at)
        answer: SaslHandshakeResponse | SaslAuthenticateResponse
        if isinstance(request, SaslHandshakeRequest):
            answer = self._handshake(request)
        else:
            assert isinstance(request, SaslAuthenticateRequest)
            answer = self._authenticate(request)
        out = bytearray(struct.pack(">i", correlation_id))
        out += b"\0" * api.response_header_version(version)
        return b"".join(encoder(api.response, version, api.flexible(version))(answer, out))

    def _handshake(self, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
        known = list(self.front.mechanisms)
        if request.mechanism not in known:
            return SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, known)
        self.login = Login(request.mechanism, self.front.users, self.front.honest)
        return SaslHandshakeResponse(0, known)

    def _authenticate(self, request: SaslAuthenticateRequest) -> SaslAuthenticateResponse:
        assert self.login is not None
        try:
            reply = self.login.answer(request.auth_bytes)
        except RefusedLoginError as error:
            return SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, str(error))
        self.front.logins += self.login.done
        return SaslAuthenticateResponse(0, None, reply, self.front.lifetime_ms)


async def _frame(stream: Stream) -> bytes:
    size = struct.unpack(">i", await _exactly(stream, 4))[0]
    return await _exactly(stream, size)


async def _exactly(stream: Stream, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = await stream.receive_some(size - len(data))
        if not more:
            raise EOFError
        data += more
    return bytes(data)


@asynccontextmanager
async def running(front: Front) -> AsyncIterator[Front]:
    async with background() as nursery:
        for node in front.nodes:
            serve = partial(front.serve, node)
            listen = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
            listeners: list[trio.SocketListener] = await nursery.start(listen)
            front.places[node] = listeners[0].socket.getsockname()
        yield front


def nodes_of(bus: Bus) -> dict[int, tuple[str, int]]:
    listed = AdminClient({"bootstrap.servers": bus.bootstrap}).list_topics(timeout=WAIT_S)
    return {one.id: (str(one.host), one.port) for one in listed.brokers.values()}
