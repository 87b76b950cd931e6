"""Doubles for the tests of the shell: clocks, a plane, connected sockets.

Sockets are real, on loopback: these tests are about what the kernel does with small buffers, resets
and half-sent frames. Nothing waits for time to pass; `FakePlane.run_until` waits for the sockets
themselves, and fails when they stay silent.
"""

import io
import json
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from broker.transfer.messages import Message as CatchUpMessage
from paxos.ids import MS, NodeId
from runtime.membership.admission import Life, Verdict
from runtime.membership.handshake import RefusalReason
from runtime.membership.masters import MasterClaim
from runtime.network.dataplane import Callback
from runtime.network.stream import TcpStream
from runtime.system.journal import Journal

START_WALL_NS = 1_800_000_000 * 1_000 * MS
START_BOOT_NS = 5_000_000 * MS
GIVE_UP_MS = 5_000
"""A socket that is not ready after this time never will be."""


class FakeSystemClock:
    """The operating system's clocks. `advance` lets time pass; setting `wall` is like calling
    `date`."""

    def __init__(self) -> None:
        self.wall, self.boot = START_WALL_NS, START_BOOT_NS

    def wall_ns(self) -> int:
        return self.wall

    def boot_ns(self) -> int:
        return self.boot

    def advance(self, ns: int) -> None:
        self.wall += ns
        self.boot += ns


class Lives:
    """The part of a peer handler that concerns directories (runtime.membership.admission)."""

    own_life: Life | None = None

    @cached_property
    def lives(self) -> list[tuple[NodeId, Life]]:
        return []

    @cached_property
    def verdicts(self) -> list[tuple[NodeId, Verdict]]:
        return []

    def on_life(self, node: NodeId, life: Life) -> None:
        self.lives.append((node, life))

    def on_verdict(self, node: NodeId, verdict: Verdict) -> None:
        self.verdicts.append((node, verdict))

    @cached_property
    def masters(self) -> list[tuple[NodeId, list[MasterClaim]]]:
        return []

    @cached_property
    def catch_ups(self) -> list[tuple[NodeId, CatchUpMessage]]:
        return []

    def on_catch_up(self, node: NodeId, message: CatchUpMessage) -> None:
        self.catch_ups.append((node, message))

    def on_masters(self, node: NodeId, words: list[MasterClaim]) -> None:
        self.masters.append((node, words))

    @cached_property
    def refusals(self) -> list[tuple[NodeId, RefusalReason]]:
        return []

    def on_refused(self, node: NodeId, why: RefusalReason) -> None:
        self.refusals.append((node, why))

    def life(self, to: NodeId) -> Life | None:
        return self.own_life


class FakePlane:
    """A runtime.network.dataplane.Plane whose rounds the test makes one by one."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callback] = {}
        self.events: dict[int, int] = {}

    def register(self, fd: int, events: int, callback: Callback, *, urgent: bool = False) -> None:
        assert fd not in self.callbacks, "epoll refuses to register a descriptor twice"
        self.callbacks[fd], self.events[fd] = callback, events

    def boot_ns(self) -> int:
        return time.monotonic_ns()

    def modify(self, fd: int, events: int) -> None:
        assert fd in self.callbacks, "epoll knows no such descriptor"
        self.events[fd] = events

    def unregister(self, fd: int) -> None:
        self.callbacks.pop(fd, None)
        self.events.pop(fd, None)

    def ready(self, timeout_ms: int = 0) -> list[tuple[int, int]]:
        """What epoll would report now; as there, HUP and ERR come unasked."""
        poll = select.poll()
        for fd, events in self.events.items():
            poll.register(fd, events)
        return poll.poll(timeout_ms)

    def round(self, timeout_ms: int = 0) -> int:
        """Call the callbacks of ready sockets; returns how many there were."""
        found = self.ready(timeout_ms)
        for fd, events in found:
            callback = self.callbacks.get(fd)
            if callback is not None:
                callback(events)
        return len(found)

    def run_until(
        self, condition: Callable[[], object], end: Callable[[], None] | None = None
    ) -> None:
        """Make rounds until the condition holds; `end` is called after each, as in the data
        plane."""
        while not condition():
            assert self.round(GIVE_UP_MS), "no socket is ready, and the condition does not hold"
            if end is not None:
                end()

    def settle(self, end: Callable[[], None] | None = None) -> None:
        """Make rounds until no socket is ready any more; work done before also ends a round."""
        if end is not None:
            end()
        while self.round(1):
            if end is not None:
                end()


class Recorder:
    """A journal in memory, read back as values."""

    def __init__(self, level: str = "debug") -> None:
        self.stream = io.StringIO()
        self.journal = Journal(level, self.stream)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.stream.getvalue().splitlines()]

    def said(self, event: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["event"] == event]


@contextmanager
def unix_pair(send_bytes: int = 0) -> Iterator[tuple[TcpStream, TcpStream]]:
    """(ours, theirs), neither blocking; `send_bytes` makes the kernel take little at a time."""
    ours, theirs = map(TcpStream.of, socket.socketpair())
    with ours, theirs:
        for sock in (ours, theirs):
            sock.setblocking(False)
            if send_bytes:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_bytes)
        yield ours, theirs


class Tcp:
    """Connected pairs of TCP sockets on loopback; all of them are closed at the end."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]

    def pair(self) -> tuple[TcpStream, TcpStream]:
        """(accepted, connected): the first does not block, the second waits GIVE_UP_MS."""
        connected = TcpStream.of(socket.create_connection(self._listener.getsockname()))
        accepted = TcpStream.of(self._listener.accept()[0])
        connected.settimeout(GIVE_UP_MS / 1000)
        self._sockets += [connected, accepted]
        return accepted, connected

    def close(self) -> None:
        for sock in self._sockets:
            sock.close()


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly that many bytes; fewer only if the other side ends."""
    data = b""
    while len(data) < size and (more := sock.recv(size - len(data))):
        data += more
    return data


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body
