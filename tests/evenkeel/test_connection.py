"""One connection with peers that break the rules, hang or are old; and callers who give up."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
import trio
import trio.testing

from evenkeel.config import ClientConfig
from evenkeel.connection import Connection
from evenkeel.errors import (
    DisconnectedError,
    TimedOutError,
    UnreachableError,
    UnsupportedError,
)
from evenkeel.lifetime import background
from evenkeel.opening import connect
from tests.evenkeel.peers import PeerStream, Script, scripted
from wire.apis import ApiKey
from wire.error_codes import ErrorCode
from wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from wire.messages.fetch import FetchRequest
from wire.messages.metadata import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

QUICK = ClientConfig(connect_timeout_ms=500, request_timeout_ms=300)
METADATA = MetadataRequest([])


@asynccontextmanager
async def connected(script: Script, config: ClientConfig = QUICK) -> AsyncIterator[Connection]:
    async with scripted(script) as (host, port), background() as nursery:
        yield await connect(nursery, host, port, config)


async def echo(peer: PeerStream) -> None:
    """Answer every question with the requested topic's name as cluster id."""
    await peer.greet()
    while True:
        header, question = await peer.read()
        assert isinstance(question, MetadataRequest)
        assert question.topics is not None
        await peer.answer(header, MetadataResponse(cluster_id=question.topics[0].name))


async def hang(_: PeerStream) -> None:
    await trio.sleep_forever()


async def then(peer: PeerStream, *, do: Callable[[PeerStream], Awaitable[None]]) -> None:
    """Greet, read a question, and do something that is no answer."""
    await peer.greet()
    await peer.read()
    await do(peer)


def after_greeting(do: Callable[[PeerStream], Awaitable[None]]) -> Script:
    return partial(then, do=do)


async def test_many_tasks_share_a_connection() -> None:
    """Every task gets its own answer, in whatever order they asked."""
    answered = []

    async def ask(connection: Connection, name: str) -> None:
        question = MetadataRequest([MetadataRequestTopic(name=name)])
        assert (await connection.request(question, MetadataResponse)).cluster_id == name
        answered.append(name)

    async with connected(echo) as connection, trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(ask, connection, str(number))
    assert len(answered) == 200


async def test_who_is_cancelled_disturbs_nobody() -> None:
    """The late answer is thrown away; the next question gets its own."""
    gate = trio.Event()

    async def slow(peer: PeerStream) -> None:
        await peer.greet()
        first, _ = await peer.read()
        await gate.wait()
        await peer.answer(first, MetadataResponse(cluster_id="for nobody"))
        second, _ = await peer.read()
        await peer.answer(second, MetadataResponse(cluster_id="second"))
        await hang(peer)

    async with connected(slow, ClientConfig()) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.request, METADATA, MetadataResponse)
            await trio.testing.wait_all_tasks_blocked(0.05)
            nursery.cancel_scope.cancel()
        gate.set()
        answer = await connection.request(METADATA, MetadataResponse)
        assert answer.cluster_id == "second"
        assert connection.usable


async def test_an_answer_is_taken_in_that_came_while_our_process_was_paused() -> None:
    """Data and deadline are noticed at the same time; the answer counts, and the connection
    stays."""

    async def pausing(peer: PeerStream) -> None:
        await peer.greet()
        header, _ = await peer.read()
        peer.answer_at_once(header, MetadataResponse(cluster_id="first"))
        pause_everything()
        header, _ = await peer.read()
        await peer.answer(header, MetadataResponse(cluster_id="second"))
        await hang(peer)

    async with connected(pausing) as connection:
        for name in ("first", "second"):
            assert (await connection.request(METADATA, MetadataResponse)).cluster_id == name
        assert connection.usable


def pause_everything() -> None:
    """As SIGSTOP would, for longer than a request may take."""
    time.sleep(QUICK.request_timeout_ms / 1000 * 1.5)


async def test_a_hung_broker_costs_the_request_timeout_and_the_connection() -> None:
    async with connected(after_greeting(hang)) as connection:
        with pytest.raises(TimedOutError, match=r"Metadata to 127.0.0.1:.* not answered in time"):
            await connection.request(METADATA, MetadataResponse)
        assert not connection.usable
        with pytest.raises(TimedOutError):
            await connection.request(METADATA, MetadataResponse)


@pytest.mark.parametrize(
    "noise",
    [
        bytes.fromhex("00000004 0000002a"),  # an answer to something never asked
        bytes.fromhex("00000006 00000001 0000"),  # cut short
        bytes.fromhex("7fffffff 00000001"),  # two gigabytes
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        bytes.fromhex("00000000"),
    ],
)
async def test_what_is_no_answer_ends_the_connection(noise: bytes) -> None:
    async def talk(peer: PeerStream) -> None:
        await peer.stream.send_all(noise)
        await trio.sleep_forever()

    async with connected(after_greeting(talk)) as connection:
        with pytest.raises(DisconnectedError, match="was lost"):
            await connection.request(METADATA, MetadataResponse)
        assert not connection.usable


async def test_everybody_hears_of_a_lost_connection() -> None:
    heard = []

    async def ask(connection: Connection) -> None:
        with pytest.raises(DisconnectedError):
            await connection.request(METADATA, MetadataResponse)
        heard.append(True)

    async def leave(peer: PeerStream) -> None:
        await peer.read()

    async with (
        connected(after_greeting(leave), ClientConfig()) as connection,
        trio.open_nursery() as nursery,
    ):
        for _ in range(5):
            nursery.start_soon(ask, connection)
    assert len(heard) == 5


async def test_nobody_there() -> None:
    async with scripted(echo) as place:
        pass
    async with background() as nursery:
        with pytest.raises(UnreachableError, match="cannot connect"):
            await connect(nursery, *place, QUICK)


async def test_somebody_who_is_no_broker() -> None:
    async with scripted(hang) as place, background() as nursery:
        with pytest.raises(UnreachableError):
            await connect(nursery, *place, QUICK)


async def test_an_old_broker_is_asked_again_in_its_version() -> None:
    """KIP-511: it refuses in version 0 and lists its versions; then the client uses one of
    these."""
    versions = []

    async def old(peer: PeerStream) -> None:
        for code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE):
            header, _ = await peer.read()
            versions.append(header.api_version)
            header = header._replace(api_version=0 if code else header.api_version)
            rows = [ApiVersion(18, 0, 1), ApiVersion(ApiKey.METADATA, 0, 5), ApiVersion(1, 0, 3)]
            await peer.answer(header, ApiVersionsResponse(code, rows))
        header, _ = await peer.read()
        versions.append(header.api_version)
        await peer.answer(header, MetadataResponse(cluster_id="old"))
        await hang(peer)

    async with connected(old) as connection:
        assert (await connection.request(METADATA, MetadataResponse)).cluster_id == "old"
        assert versions == [3, 1, 5]
        with pytest.raises(UnsupportedError, match=r"it speaks 0-3, we 4-16"):
            connection.version_for(FetchRequest)
        with pytest.raises(UnsupportedError, match="not at all"):
            await connection.request(DescribeClusterRequest(), DescribeClusterResponse)
