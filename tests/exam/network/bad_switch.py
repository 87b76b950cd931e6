"""A switch between machines (benchmarks.machines.network) that treats the nodes' traffic badly: it
delays, loses, throttles, and resets connections.

The kernel here may have no netem, so a program passes the frames on: `python -m
tests.exam.network.bad_switch PORTS`, inside the switch's namespace. It reads each order as a line
of JSON and answers with a line. Losses are real: the kernels' TCP sends again. Clients' traffic
passes unchanged.

Each direction between two nodes is a line of its own and keeps its order, as a cable does: a frame
that is delayed for longer delays the frames behind it.
"""

import heapq
import json
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import attrs

from benchmarks.machines import inside
from benchmarks.machines.network import CLIENTS, DEVICE, QUEUE_S, Network

SOL_PACKET: Final = 263
PACKET_VNET_HDR: Final = 15
"""Each frame is read with the work that the kernel still has to do for it (its checksum), and is
written the same way."""
PACKET_IGNORE_OUTGOING: Final = 23
ETH_P_ALL: Final = 3
VNET_BYTES: Final = 10
ETHERNET_BYTES: Final = 14
IP_AT: Final = VNET_BYTES + ETHERNET_BYTES
IPV4: Final = b"\x08\x00"
TCP: Final = 6
ACK, RST, SYN = 0x10, 0x04, 0x02
FRAME_BYTES_MAX: Final = 70_000
BROADCAST: Final = b"\xff" * 6
RESET_S: Final = 1.0
"""Nodes send something every 200 ms, so this is enough to catch every connection they have."""
IDLE_S: Final = 1.0


@attrs.frozen(kw_only=True)
class Treatment:
    """What happens to each frame from one node to another; by default nothing."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """The delay varies by this much in both directions."""
    loss_percent: float = 0.0
    bits_per_s: int = 0


@attrs.define
class Line:
    """One direction between two nodes."""

    free_at: float = 0.0
    """When the last frame will have entered the line."""
    arrives_at: float = 0.0
    """When the last frame will have left it."""

    def arrival(
        self, now: float, size: int, treatment: Treatment, dice: random.Random
    ) -> float | None:
        """When a frame arrives; None if it is lost."""
        if dice.random() * 100 < treatment.loss_percent:
            return None
        begins = max(now, self.free_at)
        if begins - now > QUEUE_S:
            return None
        rate = treatment.bits_per_s
        self.free_at = begins + (size * 8 / rate if rate else 0.0)
        jitter = dice.uniform(-treatment.jitter_ms, treatment.jitter_ms)
        delay_s = max(0.0, treatment.delay_ms + jitter) / 1e3
        self.arrives_at = max(self.arrives_at, self.free_at + delay_s)
        return self.arrives_at


class Switch:
    def __init__(self, ports: Sequence[int], dice: random.Random) -> None:
        self._dice = dice
        self._ports = {number: _port(number) for number in ports}
        self._by_descriptor = {sock.fileno(): number for number, sock in self._ports.items()}
        self._where: dict[bytes, int] = {}
        """From an Ethernet address to its port."""
        self._lines: dict[tuple[int, int], Line] = {}
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._count = 0
        self.treatment = Treatment()
        self.resets_until = 0.0
        self._reset: set[tuple[bytes, bytes]] = set()
        """The connections to reset: addresses and ports, as each side sees them."""
        self._known: set[tuple[bytes, bytes]] = set()

    @property
    def descriptors(self) -> list[int]:
        return list(self._by_descriptor)

    def reset_all(self, now: float) -> int:
        """Reset every connection between nodes as soon as something is sent on it."""
        self._reset, self._known = self._known, set()
        self.resets_until = now + RESET_S
        return len(self._reset)

    def until(self, now: float) -> float:
        """How long until something is due."""
        return max(0.0, self._waiting[0][0] - now) if self._waiting else IDLE_S

    def deliver(self, now: float) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            _, _, port, frame = heapq.heappop(self._waiting)
            self._send(port, frame)

    def take(self, descriptor: int, now: float) -> None:
        source = self._by_descriptor[descriptor]
        try:
            frame = self._ports[source].recv(FRAME_BYTES_MAX)
        except BlockingIOError:
            return
        to, sender = frame[VNET_BYTES : VNET_BYTES + 6], frame[VNET_BYTES + 6 : VNET_BYTES + 12]
        self._where[sender] = source
        target = self._where.get(to)
        if target is None:
            for other in self._ports:
                if other != source:
                    self._send(other, frame)
        elif CLIENTS in (source, target):
            self._send(target, frame)
        else:
            self._between_nodes(source, target, frame, now)

    def _between_nodes(self, source: int, target: int, frame: bytes, now: float) -> None:
        if self._is_reset(source, target, frame, now):
            return
        line = self._lines.setdefault((source, target), Line())
        size = len(frame) - VNET_BYTES
        at = line.arrival(now, size, self.treatment, self._dice)
        if at is not None:
            self._count += 1
            heapq.heappush(self._waiting, (at, self._count, target, frame))

    def _is_reset(self, source: int, target: int, frame: bytes, now: float) -> bool:
        """Whether the frame belongs to a connection that is reset; if so both sides get a reset."""
        segment = Segment.of(frame)
        if segment is None:
            return False
        if segment.connection not in self._reset or now > self.resets_until:
            if not segment.flags & (SYN | RST):
                self._known.add(segment.connection)
            return False
        if segment.flags & ACK:
            self._send(target, segment.reset_ahead())
            self._send(source, segment.reset_back())
        return True

    def _send(self, port: int, frame: bytes) -> None:
        try:
            self._ports[port].send(frame)
        except OSError:
            return  # a full queue or a machine that is gone: the frame is lost, as in any switch


@attrs.frozen
class Segment:
    """The fields of a TCP segment that a reset needs."""

    ethernet: bytes
    source: bytes
    target: bytes
    """Address and port."""
    seq: int
    ack: int
    flags: int

    @classmethod
    def of(cls, frame: bytes) -> "Segment | None":
        if frame[IP_AT - 2 : IP_AT] != IPV4 or frame[IP_AT + 9] != TCP:
            return None
        at = IP_AT + 4 * (frame[IP_AT] & 0x0F)
        seq, ack, _, flags = struct.unpack_from(">IIBB", frame, at + 4)
        addresses = frame[IP_AT + 12 : IP_AT + 16], frame[IP_AT + 16 : IP_AT + 20]
        ports = frame[at : at + 2], frame[at + 2 : at + 4]
        source, target = (a + b for a, b in zip(addresses, ports, strict=True))
        return cls(frame[VNET_BYTES : VNET_BYTES + 12], source, target, seq, ack, flags)

    @property
    def connection(self) -> tuple[bytes, bytes]:
        return min(self.source, self.target), max(self.source, self.target)

    def reset_ahead(self) -> bytes:
        """A reset for the receiver of the segment, in its sender's name."""
        return _reset(self.ethernet, self.source, self.target, self.seq)

    def reset_back(self) -> bytes:
        ethernet = self.ethernet[6:] + self.ethernet[:6]
        return _reset(ethernet, self.target, self.source, self.ack)


def _reset(ethernet: bytes, source: bytes, target: bytes, seq: int) -> bytes:
    tcp = source[4:] + target[4:] + struct.pack(">IIBBHHH", seq, 0, 5 << 4, RST, 0, 0, 0)
    pseudo = source[:4] + target[:4] + struct.pack(">BBH", 0, TCP, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", _checksum(pseudo + tcp)) + tcp[18:]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, TCP, 0)
    head += source[:4] + target[:4]
    head = head[:10] + struct.pack(">H", _checksum(head)) + head[12:]
    return bytes(VNET_BYTES) + ethernet + IPV4 + head + tcp


def _checksum(data: bytes) -> int:
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def _port(number: int) -> socket.socket:
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    sock.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind((f"port{number}", ETH_P_ALL))
    sock.setblocking(False)
    return sock


def main(ports: Sequence[int]) -> None:
    switch = Switch(ports, random.Random(9))
    orders = sys.stdin.fileno()
    print("ready", flush=True)  # noqa: T201 (its answers)
    while True:
        ready, _, _ = select.select(
            [orders, *switch.descriptors], [], [], switch.until(time.monotonic())
        )
        now = time.monotonic()
        for descriptor in ready:
            if descriptor != orders:
                switch.take(descriptor, now)
                continue
            line = sys.stdin.readline()
            if not line:
                return
            order = json.loads(line)
            if order == "reset":
                print(switch.reset_all(now), flush=True)  # noqa: T201
            else:
                switch.treatment = Treatment(**order)
                print("treated", flush=True)  # noqa: T201
        switch.deliver(time.monotonic())


# -- for tests that have a network ----------------------------------------------------------------


@attrs.define
class BadSwitch:
    """The running program."""

    _process: subprocess.Popen[str]

    def treat(self, treatment: Treatment) -> None:
        self._order(attrs.asdict(treatment))

    def reset(self) -> int:
        """How many connections between nodes are still to be reset."""
        return int(self._order("reset"))

    def _order(self, order: object) -> str:
        told, answers = self._process.stdin, self._process.stdout
        assert told is not None
        assert answers is not None
        told.write(json.dumps(order) + "\n")
        told.flush()
        answer = answers.readline()
        assert answer, "the switch has ended"
        return answer


@contextmanager
def bad_switch(net: Network) -> Iterator[BadSwitch]:
    """Replaces the network's own switch, which passes everything on."""
    ports = [*range(1, len(net.machines) + 1), CLIENTS]
    for machine in (*net.machines, net.clients):  # a frame is lost alone, not with forty others
        machine.run("ip", [f"link set {DEVICE} gso_max_segs 1"])
    net.switch.run("ip", [f"link set port{number} nomaster" for number in ports])
    start = [sys.executable, "-I", "-S", inside.__file__, net.switch.path]
    with subprocess.Popen(
        [*start, sys.executable, "-m", "tests.exam.network.bad_switch", *map(str, ports)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield BadSwitch(process)
        finally:
            process.kill()


if __name__ == "__main__":
    main([int(one) for one in sys.argv[1:]])
