"""A scripted broker on a real socket, for what no good broker does; and a Kafka client in threads.

The script is an async function that gets the stream of each connection. The other client is
confluent-kafka, so each of the two reads what the other has written.
"""

import os
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio
from confluent_kafka import Consumer, Message, Producer

from evenkeel.lifetime import background
from wire.apis import (
    APIS,
    Request,
    RequestHeader,
    Response,
    advertised,
    decode_request,
    encode_response,
    parse_request_header,
)
from wire.messages.api_versions import ApiVersionsResponse

Script = Callable[["PeerStream"], Awaitable[None]]

STEP_S: Final = 30.0


class PeerStream:
    """The broker's end of one connection."""

    def __init__(self, stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]) -> None:
        self.stream = stream
        self._data = b""

    @property
    def address(self) -> tuple[str, int]:
        """The address on which we listen."""
        assert isinstance(self.stream, trio.SocketStream)
        name: tuple[str, int] = self.stream.socket.getsockname()
        return name

    async def read(self) -> tuple[RequestHeader, Request]:
        size = struct.unpack(">i", await self._take(4))[0]
        frame = memoryview(await self._take(size))
        header = parse_request_header(frame)
        assert isinstance(header, RequestHeader)
        return header, decode_request(header, frame)

    async def answer(self, header: RequestHeader, response: Response) -> None:
        await self.stream.send_all(b"".join(encode_response(header, response)))

    def answer_at_once(self, header: RequestHeader, response: Response) -> None:
        """Without a turn for any other task: for things that have to happen at the same time."""
        assert isinstance(self.stream, trio.SocketStream)
        os.write(self.stream.socket.fileno(), b"".join(encode_response(header, response)))

    async def greet(self, only: Iterable[int] = tuple(APIS)) -> None:
        """Answer ApiVersions, with the given keys."""
        header, _ = await self.read()
        rows = [one for one in advertised() if one.api_key in only]
        await self.answer(header, ApiVersionsResponse(api_keys=rows))

    async def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            more = await self.stream.receive_some()
            if not more:
                raise EOFError
            self._data += more
        taken, self._data = self._data[:size], self._data[size:]
        return taken


@asynccontextmanager
async def scripted(
    script: Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[str, int]]:
    """The address of a broker that follows the script on each connection and then closes it."""

    async def serve(stream: trio.SocketStream) -> None:
        secure = None if tls is None else trio.SSLStream(stream, tls, server_side=True)
        try:
            await script(PeerStream(secure or stream))
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            return

    async with background() as nursery:
        listen = partial(trio.serve_tcp, serve, 0, host="127.0.0.1")
        listeners: list[trio.SocketListener] = await nursery.start(listen)
        yield listeners[0].socket.getsockname()


async def read_by_confluent(bootstrap: str, topic: str, count: int) -> list[Message]:
    """The first `count` records of a topic, as confluent-kafka reads them."""

    def read() -> list[Message]:
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{topic}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer(settings)
        consumer.subscribe([topic])
        messages: list[Message] = []
        for _ in range(int(STEP_S / 0.1)):
            messages += consumer.consume(count - len(messages), timeout=0.1)
            if len(messages) >= count:
                break
        consumer.close()
        assert not [one for one in messages if one.error()]
        assert len(messages) == count
        return messages

    return await trio.to_thread.run_sync(read)


async def write_by_confluent(
    bootstrap: str, records: Iterable[dict[str, Any]], **settings: object
) -> None:
    """Produce records given by the arguments of confluent-kafka's `produce`."""

    def write() -> None:
        failures = []
        producer = Producer({"bootstrap.servers": bootstrap, **settings})
        for one in records:
            producer.produce(on_delivery=lambda error, _: failures.append(error), **one)
        assert producer.flush(STEP_S) == 0
        assert not any(failures)

    await trio.to_thread.run_sync(write)
