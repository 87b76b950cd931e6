"""Unbatched Produce requests over raw sockets: one epoll loop, no client library in between.

Closed loop (`rate` 0): every connection has a fixed number of requests outstanding and sends the
next one when an answer comes. Its latencies say how long a request takes at that concurrency, and
hide what would have been sent meanwhile (Gil Tene's coordinated omission). Open loop: requests
arrive at a fixed rate whatever the answers do, pipelined on the connections in turn, and a
request's latency counts from when it was *due*, so a stall costs all requests due during it.

Each connection sends to the partitions that its node leads, as a Kafka client would.
"""

import select
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Final

from benchmarks.load import login, usage
from benchmarks.load.frames import (
    CORRELATION,
    CORRELATION_AT,
    ERROR,
    Leader,
    describe_refusal,
    error_code_at,
    leaders_of,
    produce_frame,
)
from benchmarks.load.histogram import Histogram
from benchmarks.load.jobs import Measured, RequestJob
from benchmarks.load.samples import NONE, PRODUCE, Samples, write_samples

NS: Final = 1_000_000_000
RECEIVE_BYTES: Final = 64 * 1024
ANSWER_TIMEOUT_S: Final = 10.0
"""A request without an answer for this long ends the run, which is then no measurement."""
LATEST_WAKE_S: Final = 0.5
_LENGTH_AND_CORRELATION: Final = struct.Struct(">ii")

Answered = Callable[[int, int, int, int], None]
"""(the connection, the time it counts from, when it was sent, now)."""


class LoadFailed(RuntimeError):
    """The run is not a measurement; the message says why."""


class Connection:
    """One socket to a node, and its outstanding requests, oldest first."""

    def __init__(self, number: int, leader: Leader, job: RequestJob) -> None:
        self._number = number
        self._socket = login.connected(leader.host, leader.port, ANSWER_TIMEOUT_S)
        frames = [
            produce_frame(job.topic, partition, job.record_bytes, job.records)
            for partition in leader.partitions[: job.partitions_max or None]
        ]
        at = number % len(
            frames
        )  # else all connections would step from partition to partition together
        self._frames = cycle([*frames[at:], *frames[:at]])
        self._error_at = 4 + error_code_at(job.topic)
        self._sent: deque[tuple[int, int, int]] = deque()
        self._correlation = 0
        self._buffer = bytearray(RECEIVE_BYTES)
        self._filled = 0

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def outstanding(self) -> int:
        return len(self._sent)

    @property
    def oldest_ns(self) -> int:
        """When the request that has waited longest was sent or due."""
        return self._sent[0][1]

    def send(self, at_ns: int, now: int) -> None:
        """Send the next request now; its latency counts from `at_ns`."""
        self._correlation = correlation = (self._correlation + 1) & 0x7FFF_FFFF
        frame = next(self._frames)
        CORRELATION.pack_into(frame, CORRELATION_AT, correlation)
        self._sent.append((correlation, at_ns, now))
        self._socket.sendall(frame)

    def receive(self, answered: Answered) -> int:
        """Take the answers that have come, once epoll has said so; returns how many.

        Raises:
            LoadFailed: for a refusal, an answer to another request, or the end of the connection.
        """
        count = self._socket.recv_into(memoryview(self._buffer)[self._filled :])
        if count == 0:
            raise LoadFailed("a node closed a connection")
        now = time.monotonic_ns()
        stop = self._filled + count
        at = taken = 0
        while stop - at >= 8:
            size, correlation = _LENGTH_AND_CORRELATION.unpack_from(self._buffer, at)
            if stop - at < 4 + size:
                break
            expected, at_ns, sent_ns = self._sent.popleft() if self._sent else (-1, 0, 0)
            if correlation != expected:
                raise LoadFailed(f"answer {correlation} came instead of {expected}")
            if ERROR.unpack_from(self._buffer, at + self._error_at)[0]:
                frame = memoryview(self._buffer)[at + 4 : at + 4 + size]
                raise LoadFailed(f"refused: {describe_refusal(frame)}")
            answered(self._number, at_ns, sent_ns, now)
            at += 4 + size
            taken += 1
        self._filled = stop - at
        if at:
            self._buffer[: self._filled] = self._buffer[at:stop]
        elif stop == len(self._buffer):
            raise LoadFailed(f"an answer of more than {RECEIVE_BYTES} bytes")
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            taken += self.receive(answered)  # decrypted already: epoll will not tell of it
        return taken

    def close(self) -> None:
        self._socket.close()


class Generator:
    """All connections of one run; `close` it."""

    def __init__(self, job: RequestJob, leaders: Sequence[Leader]) -> None:
        self._job = job
        self._connections = [
            Connection(number, self._node_of(number, leaders), job)
            for number in range(job.connections)
        ]
        self._by_fd = {one.fileno(): one for one in self._connections}
        self._epoll = select.epoll()
        for fd in self._by_fd:
            self._epoll.register(fd, select.EPOLLIN)
        self._latencies: list[int] = []
        self._counted = 0
        self._snapshots: list[usage.Snapshot] = []
        self._checked_ns = 0
        self._from_ns = self._to_ns = 0
        self._samples = None if job.samples is None else Samples()
        self._spent: usage.Usage | None = None

    def _node_of(self, connection: int, leaders: Sequence[Leader]) -> Leader:
        return leaders[(self._job.first_node + connection) % len(leaders)]

    def run(self) -> Measured:
        """Warm up, measure, wait for what is outstanding.

        Raises:
            LoadFailed: if any request was refused or not answered.
        """
        began = time.monotonic_ns()
        self._from_ns = began + int(self._job.warm_up_s * NS)
        self._to_ns = self._from_ns + int(self._job.window_s * NS)
        if self._job.rate:
            self._open_loop(began)
        else:
            self._closed_loop(began)
        self._drain()
        begin, end = self._snapshots
        self._spent = usage.between(begin, end)
        return Measured(
            seconds=self._job.window_s,
            count=self._counted,
            bytes=self._counted * self._job.request_bytes,
            usage=self._spent,
            latency_ns=Histogram(self._latencies),
        )

    def keep_samples(self) -> None:
        """Write the samples of all answered requests, if the job asks for them."""
        if self._samples is None or self._job.samples is None:
            return
        spent = self._spent
        write_samples(
            self._job.samples,
            self._samples,
            window_ns=(self._from_ns, self._to_ns),
            others_share=None if spent is None else spent.others_share,
        )

    def failed(self, why: str) -> None:
        """End the load with a last row that gives the reason."""
        if self._samples is not None:
            self._samples.add_failure(PRODUCE, time.monotonic_ns(), 1, why)

    def close(self) -> None:
        self._epoll.close()
        for connection in self._connections:
            connection.close()

    def _closed_loop(self, now: int) -> None:
        for connection in self._connections:
            for _ in range(self._job.in_flight):
                connection.send(now, now)
        answered = self._answered_closed
        while self._goes_on(now):
            for connection in self._readable(min(LATEST_WAKE_S, (self._to_ns - now) / NS)):
                for _ in range(connection.receive(answered)):
                    now = time.monotonic_ns()
                    connection.send(now, now)
            now = time.monotonic_ns()

    def _open_loop(self, now: int) -> None:
        turn = cycle(self._connections)
        interval = NS / self._job.rate
        began, arrivals, due = now, 0, now
        while self._goes_on(now):
            while due <= now:
                next(turn).send(due, now)
                arrivals += 1
                due = began + int(arrivals * interval)
            for connection in self._readable(max(0, min(due, self._to_ns) - now) / NS):
                connection.receive(self._answered_open)
            now = time.monotonic_ns()
        while due < self._to_ns:  # requests delayed by a full socket are late, not left out
            next(turn).send(due, time.monotonic_ns())
            arrivals += 1
            due = began + int(arrivals * interval)

    def _drain(self) -> None:
        """Wait for every answer without sending more; open-loop latencies still count."""
        answered = self._answered_open if self._job.rate else self._answered_closed
        while any(one.outstanding for one in self._connections):
            for connection in self._readable(LATEST_WAKE_S):
                connection.receive(answered)
            self._check_stuck(time.monotonic_ns())

    def _readable(self, timeout_s: float) -> Iterator[Connection]:
        """select(2) on the epoll descriptor: it waits in microseconds, epoll_wait(2) in ms."""
        if timeout_s > 0:
            select.select([self._epoll], [], [], timeout_s)
        for fd, _ in self._epoll.poll(0):
            yield self._by_fd[fd]

    def _answered_closed(self, connection: int, _at_ns: int, sent_ns: int, now: int) -> None:
        if self._samples is not None:
            self._samples.add(PRODUCE, connection, NONE, sent_ns, now, self._job.request_bytes)
        if self._from_ns <= now < self._to_ns:
            self._counted += 1
            self._latencies.append(now - sent_ns)

    def _answered_open(self, connection: int, due_ns: int, sent_ns: int, now: int) -> None:
        if self._samples is not None:
            self._samples.add(PRODUCE, connection, due_ns, sent_ns, now, self._job.request_bytes)
        if self._from_ns <= now < self._to_ns:
            self._counted += 1
        if self._from_ns <= due_ns < self._to_ns:
            self._latencies.append(now - due_ns)

    def _goes_on(self, now: int) -> bool:
        """Whether the window is not over yet; takes a usage snapshot at each of its edges."""
        edges = (self._from_ns, self._to_ns)
        if now >= edges[len(self._snapshots)]:
            self._snapshots.append(usage.snapshot(self._job.pids))
        if now - self._checked_ns > LATEST_WAKE_S * NS:
            self._check_stuck(now)
        return len(self._snapshots) < len(edges)

    def _check_stuck(self, now: int) -> None:
        self._checked_ns = now
        for connection in self._connections:
            if connection.outstanding and now - connection.oldest_ns > ANSWER_TIMEOUT_S * NS:
                raise LoadFailed(f"a request was not answered within {ANSWER_TIMEOUT_S:.0f} s")


def run(job: RequestJob) -> Measured:
    """Find the leaders, connect, and load them.

    Raises:
        LoadFailed: if it is not a measurement.
        TargetError: if the topic's leaders cannot be found.
    """
    generator = Generator(job, leaders_of(job.bootstrap, job.topic))
    try:
        return generator.run()
    except (LoadFailed, OSError, usage.ProcessGone) as error:
        generator.failed(str(error))
        raise LoadFailed(str(error)) from error
    finally:
        generator.close()
        generator.keep_samples()
