"""Connections to the HTTP port: silent and endless ones keep nobody out."""

from typing import Any

import trio
import trio.testing
from trio.testing import MockClock, memory_stream_pair

from runtime.http.server import CONNECTIONS_A_SECOND, CONNECTIONS_MAX, Send, Stream
from runtime.system.connection_limits import BURST_S
from tests.runtime.doubles import Tcp
from tests.runtime.http.test_http import Reply, echo, exchange, read_all, request, serving


async def test_the_oldest_connection_gives_up_its_place(autojump_clock: MockClock) -> None:
    """Silent connections keep out neither a supervisor's probe nor the operator."""
    server, _ = serving(get_x=echo)
    async with trio.open_nursery() as nursery:
        clients = []
        for _ in range(CONNECTIONS_MAX):
            client, node = memory_stream_pair()
            clients.append(client)
            nursery.start_soon(server.handle, node)
            await trio.testing.wait_all_tasks_blocked()
        assert (await exchange(server, request("GET", "/x"))).status == 200
        assert await clients[0].receive_some() == b"", "the oldest has gone for it"
        await clients[1].send_all(request("GET", "/x"))
        assert Reply(await read_all(clients[1].receive_stream)).status == 200
        assert server.displaced_total == 1
        nursery.cancel_scope.cancel()


async def test_a_crowd_that_comes_at_once_does_not_push_out_who_came_last() -> None:
    """Tasks begin in any order; places are assigned in the order of the connections."""
    server, _ = serving(get_x=echo)
    tcp = Tcp()
    try:
        for _ in range(10):
            async with trio.open_nursery() as nursery:
                server.nursery = nursery
                for _ in range(2 * CONNECTIONS_MAX):
                    server.accept(tcp.pair()[0], "127.0.0.1")
                accepted, asks = tcp.pair()
                asks.sendall(request("GET", "/x"))
                server.accept(accepted, "127.0.0.1")
                answer = await trio.to_thread.run_sync(asks.recv, 12)
                assert answer == b"HTTP/1.1 200"
                nursery.cancel_scope.cancel()
    finally:
        tcp.close()


async def test_an_address_that_connects_in_a_loop_is_refused_and_no_other(
    autojump_clock: MockClock,
) -> None:
    """It would push out those that are about to log in, and each handshake costs the loop time."""
    server, _ = serving(get_x=echo)
    tcp = Tcp()
    at_once = BURST_S * CONNECTIONS_A_SECOND
    try:
        async with trio.open_nursery() as nursery:
            server.nursery = nursery

            async def take(host: str, count: int) -> int:
                """How many of these connections it serves."""
                before = server.displaced_total
                for _ in range(count):
                    server.accept(tcp.pair()[0], host)
                served = len(server._unproved) + server.displaced_total - before
                for scope in [*server._unproved]:
                    scope.cancel()
                await trio.testing.wait_all_tasks_blocked()
                return served

            assert await take("10.0.0.7", at_once + 50) == at_once
            assert await take("10.0.0.7", 1) == 0
            assert await take("10.0.0.8", 1) == 1
            assert await take("127.0.0.1", at_once + 50) == at_once + 50
            assert await take("2001:db8::1", at_once) == at_once
            assert await take("2001:db8::2", 1) == 0, "one machine has a whole /64"
            await trio.sleep(1)
            assert await take("10.0.0.7", at_once) == CONNECTIONS_A_SECOND
            nursery.cancel_scope.cancel()
    finally:
        tcp.close()


async def test_streams_do_not_take_all_places(autojump_clock: MockClock) -> None:
    """Streams stay, so there are fewer of them than places."""

    async def endless(send: Send) -> None:
        await send(b"x")
        await trio.sleep_forever()

    async def stream(_body: Any) -> Stream:
        return Stream("text/plain", endless)

    server, _ = serving(get_x=echo, get_stream=stream)
    async with trio.open_nursery() as nursery:
        for _ in range(CONNECTIONS_MAX):
            client, node = memory_stream_pair()
            nursery.start_soon(server.handle, node)
            await client.send_all(request("GET", "/stream"))
            await trio.testing.wait_all_tasks_blocked()
        assert (await exchange(server, request("GET", "/stream"))).status == 503
        assert (await exchange(server, request("GET", "/x"))).status == 200
        nursery.cancel_scope.cancel()
