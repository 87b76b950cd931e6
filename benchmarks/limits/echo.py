"""The cost of sockets: echo servers of three kinds, a sink, and the clients that load them.

    python -m benchmarks.limits.echo trio|nested|epoll|sink

A server is a process of its own, prints its port, and serves until it is killed. *trio* has a task
per connection, as in trio's documentation; *nested* is one trio task that waits for an epoll
descriptor, as the product does; *epoll* has no trio at all. The sink reads everything and reports
how much it was.
"""

import select
import socket
import struct
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from benchmarks.limits.streams import Loop
from benchmarks.load.histogram import Histogram

FRAME_BYTES: Final = 128
RECEIVE_BYTES: Final = 64 * 1024
SINK_RECEIVE_BYTES: Final = 1024 * 1024
SINK_SEND_BYTES: Final = 1024 * 1024
NS: Final = 1_000_000_000
ANSWER_S_MAX: Final = 10.0
COUNT: Final = struct.Struct(">Q")
KINDS: Final = ("trio", "nested", "epoll")


# --- servers -------------------------------------------------------------------------------------


async def _serve_trio() -> None:
    async def echo(stream: trio.SocketStream) -> None:
        async for data in stream:
            await stream.send_all(data)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    print(listeners[0].socket.getsockname()[1], flush=True)
    await trio.serve_listeners(echo, listeners)


async def _serve_nested() -> None:
    loop = Loop()
    _listen(loop.watch, loop.forget)
    await loop.run(lambda: None)


def _serve_epoll() -> None:
    epoll = select.epoll()
    callbacks: dict[int, Callable[[int], None]] = {}

    def watch(fd: int, callback: Callable[[int], None]) -> None:
        callbacks[fd] = callback
        epoll.register(fd, select.EPOLLIN)

    _listen(watch, epoll.unregister)
    while True:
        for fd, events in epoll.poll():
            callbacks[fd](events)


def _listen(
    watch: Callable[[int, Callable[[int], None]], None], forget: Callable[[int], None]
) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    buffer = memoryview(bytearray(RECEIVE_BYTES))

    def accept(_events: int) -> None:
        sock, _ = listener.accept()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        watch(sock.fileno(), partial(echo, sock))

    def echo(sock: socket.socket, _events: int) -> None:
        count = sock.recv_into(buffer)
        if count:
            sock.send(buffer[:count])
        else:
            forget(sock.fileno())
            sock.close()

    watch(listener.fileno(), accept)
    print(listener.getsockname()[1], flush=True)


def _serve_sink() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    buffer = bytearray(SINK_RECEIVE_BYTES)
    while True:
        sock, _ = listener.accept()
        with sock:
            total = 0
            while count := sock.recv_into(buffer):
                total += count
            sock.sendall(COUNT.pack(total))


# --- clients -------------------------------------------------------------------------------------


def _receive_frame(sock: socket.socket) -> None:
    missing = FRAME_BYTES
    while missing:
        got = len(sock.recv(missing))
        if not got:
            raise ConnectionError("the echo server closed the connection")
        missing -= got


def load_echo(port: int, connections: int, seconds: float) -> tuple[float, Histogram]:
    """Every connection sends a frame when its last one has come back; returns frames a second,
    latencies.

    Raises:
        OSError: if the server does not answer.
    """
    frame = b"x" * FRAME_BYTES
    epoll = select.epoll()
    socks = {}
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        socks[sock.fileno()] = sock
        epoll.register(sock.fileno(), select.EPOLLIN)
    latencies: list[int] = []
    began = time.monotonic_ns()
    end = began + int(seconds * NS)
    sent = dict.fromkeys(socks, began)
    for sock in socks.values():
        sock.sendall(frame)
    now = began
    while now < end:
        polled = epoll.poll(ANSWER_S_MAX)
        if not polled:
            raise TimeoutError("an echo did not come back")
        for fd, _ in polled:
            sock = socks[fd]
            _receive_frame(sock)
            now = time.monotonic_ns()
            latencies.append(now - sent[fd])
            sent[fd] = now
            sock.sendall(frame)
    epoll.close()
    for sock in socks.values():
        _receive_frame(sock)  # closing with an unread echo would reset the server's socket
        sock.close()
    return len(latencies) * NS / (now - began), Histogram(latencies)


def load_sink(port: int, seconds: float) -> float:
    """The bytes a second that one connection carries.

    Raises:
        OSError: if the sink does not answer.
    """
    chunk = bytes(SINK_SEND_BYTES)
    with socket.create_connection(("127.0.0.1", port), ANSWER_S_MAX) as sock:
        began = time.monotonic()
        while time.monotonic() < began + seconds:
            sock.sendall(chunk)
        sock.shutdown(socket.SHUT_WR)
        answer = sock.recv(COUNT.size, socket.MSG_WAITALL)
        took = time.monotonic() - began
    total: int = COUNT.unpack(answer)[0]
    return total / took


def main(arguments: list[str]) -> None:
    match arguments:
        case ["trio"]:
            trio.run(_serve_trio)
        case ["nested"]:
            trio.run(_serve_nested)
        case ["epoll"]:
            _serve_epoll()
        case ["sink"]:
            _serve_sink()
        case _:
            sys.exit(f"echo: one of {', '.join(KINDS)}, sink, not {' '.join(arguments)!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
