"""A bare replicated append: the best that a log of three Python processes can do on this machine.

A leader and two followers, each with one recycled log. The leader takes Produce requests, assigns
offsets, and sends everything from one round of its loop to both followers while its own thread
writes it. Each process makes it durable before it counts, and a request is answered when two of the
three have it. That is all: no elections, leases, ballots, groups, checks, retention or metrics, and
when one process ends, so does the append. Results of the product are given as a share of this.

    python -m benchmarks.limits.append leader LOG LOG_BYTES PARTITIONS
    python -m benchmarks.limits.append follower LOG LOG_BYTES PEER_PORT

The leader prints its ports, for clients and for followers, and "ready" when both followers are
connected.
"""

import gc
import socket
import struct
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from benchmarks.limits.kafka import Topics, read_produce
from benchmarks.limits.ring import BATCH_BYTES_MAX, ENTRY, Log, Ring
from benchmarks.limits.streams import Buffer, Loop, Stream, joined

FOLLOWERS: Final = 2
CLIENT_FRAME_BYTES_MAX: Final = 2 * 1024 * 1024
ROUND_BYTES_MAX: Final = BATCH_BYTES_MAX // 2
"""More data than this ends a round; the last request may add a whole frame."""
WAITING_BYTES_MAX: Final = 32 * 1024 * 1024
"""With more than this to write, or to send to a follower, no new requests are read."""
SWITCH_INTERVAL_S: Final = 1e-4
"""As in node.py: the thread that syncs gets the interpreter sooner."""
ROUND: Final = struct.Struct(">Iq")
"""Length, then the sequence of the round's last entry; in answers, of the last durable entry."""
SEQUENCE: Final = struct.Struct(">q")


class Leader:
    """`run` serves clients until a follower disconnects."""

    def __init__(self, log: Log, partitions: int) -> None:
        self._loop, self._clients = Loop(), Loop()
        self._log = log
        self._loop.watch(log.wakeup, lambda _: log.on_written())
        self._loop.open_gate(self._clients)
        clients = _listen(self._clients, self._on_client)
        peers = _listen(self._loop, self._on_follower)
        self._ports = (clients.getsockname()[1], peers.getsockname()[1])
        self._listeners = (clients, peers)
        self._topics = Topics(self._ports[0], partitions)
        self._durable: dict[Stream, int] = {}
        """The last sequence each follower has reported durable."""
        self._sequence = 0
        self._staged: list[Buffer] = []
        self._staged_bytes = 0
        self._pending: deque[tuple[int, Stream, Buffer]] = deque()
        """Sequence, client, answer: to be sent when everything up to the sequence is durable."""

    async def run(self) -> None:
        print(*self._ports, flush=True)
        await self._loop.run(self._end_of_round)

    def _on_client(self, sock: socket.socket) -> None:
        Stream(
            self._clients, sock, frame_bytes_max=CLIENT_FRAME_BYTES_MAX, on_frame=self._on_request
        )

    def _on_follower(self, sock: socket.socket) -> None:
        follower = Stream(
            self._loop, sock, frame_bytes_max=1024, on_frame=self._on_durable, on_closed=sys.exit
        )
        self._durable[follower] = 0
        if len(self._durable) == FOLLOWERS:
            print("ready", flush=True)

    def _on_request(self, client: Stream, frame: memoryview) -> None:
        produced = read_produce(frame)
        if produced is None:  # answered in its turn, as by Kafka
            self._pending.append((self._sequence, client, b"".join(self._topics.answer(frame))))
            return
        topic = self._topics.topic(produced.topic)
        base = topic.take_offset(produced)
        self._sequence += 1
        head = ENTRY.pack(len(produced.records), self._sequence, produced.partition, base)
        self._staged += (head, produced.records)
        self._staged_bytes += len(head) + len(produced.records)
        answer = topic.answer(produced.correlation, produced.partition, base)
        self._pending.append((self._sequence, client, answer))
        if self._staged_bytes > ROUND_BYTES_MAX:
            self._replicate()

    def _on_durable(self, follower: Stream, frame: memoryview) -> None:
        self._durable[follower] = SEQUENCE.unpack(frame)[0]

    def _end_of_round(self) -> None:
        if self._staged:
            self._replicate()
        self._log.kick()
        self._answer()
        behind = max((one.unsent_bytes for one in self._durable), default=0)
        if max(behind, self._log.waiting_bytes) > WAITING_BYTES_MAX:
            self._loop.shut_gate(self._clients)
        else:
            self._loop.open_gate(self._clients)

    def _replicate(self) -> None:
        """Send what is staged to the followers, and write it here."""
        entries = joined(self._staged)
        head = ROUND.pack(SEQUENCE.size + self._staged_bytes, self._sequence)
        for follower in self._durable:
            follower.send([head, *entries])
            follower.flush()
        self._log.stage(entries, self._staged_bytes, self._sequence)
        self._staged, self._staged_bytes = [], 0

    def _answer(self) -> None:
        """Answer requests that two of the three have on their disks."""
        if len(self._durable) < FOLLOWERS:
            return
        chosen = sorted((self._log.durable, *self._durable.values()))[FOLLOWERS // 2]
        pending = self._pending
        answered: dict[Stream, list[Buffer]] = {}
        while pending and pending[0][0] <= chosen:
            _, client, answer = pending.popleft()
            answered.setdefault(client, []).append(answer)
        for client, answers in answered.items():
            client.send([b"".join(answers)])
            client.flush()


class Follower:
    """Writes what the leader sends, and reports what is durable."""

    def __init__(self, log: Log, peer_port: int) -> None:
        self._loop, self._leader_loop = Loop(), Loop()
        self._log = log
        self._loop.watch(log.wakeup, lambda _: log.on_written())
        self._loop.open_gate(self._leader_loop)
        self._leader = Stream(
            self._leader_loop,
            socket.create_connection(("127.0.0.1", peer_port)),
            frame_bytes_max=SEQUENCE.size + BATCH_BYTES_MAX,
            on_frame=self._on_round,
            on_closed=sys.exit,
        )
        self._told = 0

    async def run(self) -> None:
        await self._loop.run(self._end_of_round)

    def _on_round(self, _leader: Stream, frame: memoryview) -> None:
        entries = frame[SEQUENCE.size :]
        self._log.stage([entries], len(entries), SEQUENCE.unpack_from(frame)[0])

    def _end_of_round(self) -> None:
        log = self._log
        log.kick()
        if log.durable > self._told:
            self._told = log.durable
            self._leader.send([ROUND.pack(SEQUENCE.size, log.durable)])
            self._leader.flush()
        if log.waiting_bytes > WAITING_BYTES_MAX:
            self._loop.shut_gate(self._leader_loop)
        else:
            self._loop.open_gate(self._leader_loop)


def _listen(loop: Loop, on_accept: Callable[[socket.socket], None]) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", 0), backlog=256)
    loop.watch(listener.fileno(), lambda _: on_accept(listener.accept()[0]))
    return listener


def main(arguments: list[str]) -> int:
    role, path, size, number = arguments
    gc.freeze()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    log = Log(Ring(Path(path), int(size)))
    process = Leader(log, int(number)) if role == "leader" else Follower(log, int(number))
    trio.run(process.run)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
