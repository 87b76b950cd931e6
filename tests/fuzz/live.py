"""Mutated frames over real sockets to a real node, beside a healthy client (exam, row X2).

    python -m tests.fuzz.live --frames 100000

Shooters connect to the Kafka, peer and HTTP ports. They send mutated streams, random bytes, a TLS
hello or an HTTP request, in one piece or in several, and leave after an answer, at once, or by a
reset. Meanwhile an unmodified Kafka client produces. In the end the node is alive, none of its
handlers has failed, its memory is bounded, and the client has noticed nothing.
"""

import argparse
import itertools
import math
import socket
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import attrs
import trio

from cluster import workload
from cluster.launcher import launch
from cluster.spec import plan
from cluster.state import NodeState
from cluster.workload import SteadyProducer
from runtime.config.config import Address
from tests.fuzz.engine import Target
from tests.fuzz.mutate import Sample
from tests.fuzz.shapes import refused_streams
from tests.fuzz.targets import target_named

TOPIC: Final = "healthy"
"""No mutant names it."""
RATE: Final = 100
SHOOTERS: Final = 8
WAIT_S: Final = 0.02
GAP_MS_MAX: Final = 2_000
RSS_GROWN_KIB_MAX: Final = 256 << 10
"""Mutants create topics and consumer groups, which stay: a limited number, but many."""
QUICK: Final = ("limits.connections_per_ip_max=1000", "limits.connections_per_ip_per_s=1000000")


@attrs.define
class Tally:
    """The results of a run."""

    frames: int = 0
    connections: int = 0
    refused: int = 0
    """Connections that were not accepted, or that ended before everything was sent."""
    answers: int = 0
    acknowledged: int = 0
    gap_ms: float = 0.0
    rss_grown_kib: int = 0
    problems: list[str] = attrs.Factory(list)


class Ammunition:
    """Endless streams for one port."""

    def __init__(self, target: Target, dice: Random) -> None:
        self._target, self._dice = target, dice
        self._pool = list(target.samples(dice))
        self._shapes = [Sample(shape.data) for shape in refused_streams()]

    def streams(self) -> Iterator[bytes]:
        dice = self._dice
        while True:
            kind = dice.random()
            if kind < 0.05:
                yield dice.choice(self._shapes).data
            elif kind < 0.08:
                yield dice.randbytes(dice.choice((1, 4, 100, 5_000)))
            else:
                yield self._target.mutate(dice.choice(self._pool), dice, self._pool)


def frames_in(stream: bytes) -> int:
    """How many frames a reader that trusts the lengths would find; a rest counts as one."""
    count = at = 0
    while at < len(stream):
        at += 4 + int.from_bytes(stream[at : at + 4], "big")
        count += 1
    return count


async def shoot(address: Address, ammunition: Ammunition, tally: Tally, frames: int) -> None:
    """Connection after connection, until all shooters together have sent that many frames."""
    dice = Random(tally.connections)
    for stream in ammunition.streams():
        if tally.frames >= frames:
            return
        tally.frames += frames_in(stream)
        tally.connections += 1
        try:
            await _one_connection(address, stream, dice, tally)
        except OSError:
            tally.refused += 1


async def _one_connection(address: Address, stream: bytes, dice: Random, tally: Tally) -> None:
    sock = trio.socket.socket()
    with sock:
        await sock.connect((address.host, address.port))
        piece = dice.choice((1 << 20, 1 << 20, 1_000, 7))
        for at in range(0, min(len(stream), 50 * piece), piece):
            await sock.send(stream[at : at + piece])
        end = dice.random()
        if end < 0.2:  # no close at all
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif end < 0.6:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        if end > 0.3:
            with trio.move_on_after(WAIT_S):
                while await sock.recv(1 << 16):
                    tally.answers += 1


def rss_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text("ascii")
    return int(status.partition("VmRSS:")[2].split()[0])


def failed_handlers(log: Path) -> list[str]:
    """What the node reports about its own bugs."""
    lines = log.read_text("utf-8", "replace").splitlines()
    return [line[:2_000] for line in lines if "request handler failed" in line]


async def run(folder: Path, *, frames: int, seed: int) -> Tally:
    """One node under fire beside one healthy client."""
    spec, _ = plan(folder / "data", node_count=1, groups=3, fixed_ports=False)
    tally = Tally()
    async with launch(spec, overrides=QUICK) as cluster:
        await cluster.start_all()
        create = partial(workload.create_topic, partitions=3, replication=1)
        await trio.to_thread.run_sync(partial(create, spec.bootstrap, TOPIC))
        producer = SteadyProducer(spec.bootstrap, TOPIC, partitions=3, rate=RATE, name="healthy")
        node = spec.node(1)
        before_kib = rss_kib(cluster.pid_of(1))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.to_thread.run_sync, producer.run)
            async with trio.open_nursery() as shooters:
                for number in range(SHOOTERS):
                    name, address = _aims(node)[number % 4]
                    dice = Random(f"{seed} {number}")
                    shots = Ammunition(target_named(name), dice)
                    shooters.start_soon(shoot, address, shots, tally, frames)
            producer.stop()
        tally.rss_grown_kib = rss_kib(cluster.pid_of(1)) - before_kib
        _judge(tally, producer, cluster.state_of(1), spec.log_path(1))
    return tally


def _aims(node: object) -> list[tuple[str, Address]]:
    kafka, peer, http = (getattr(node, port) for port in ("kafka", "peer", "http"))
    return [("broker", kafka), ("broker", kafka), ("peer-link", peer), ("http-admin", http)]


def _judge(tally: Tally, producer: SteadyProducer, state: NodeState, log: Path) -> None:
    tally.acknowledged = producer.acknowledged
    times = sorted(time for acks in producer.acks_ns for time in acks)
    gaps = [after - before for before, after in itertools.pairwise(times)]
    tally.gap_ms = max(gaps, default=math.inf) / 1e6
    problems = tally.problems
    problems += failed_handlers(log)
    problems += producer.errors
    if state is not NodeState.RUNNING:
        problems.append(f"the node is {state.name}")
    if tally.gap_ms > GAP_MS_MAX:
        problems.append(f"the healthy client waited {tally.gap_ms:.0f} ms")
    if tally.rss_grown_kib > RSS_GROWN_KIB_MAX:
        problems.append(f"the node has grown by {tally.rss_grown_kib} KiB")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.live")
    parser.add_argument("--frames", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        tally = trio.run(partial(run, Path(folder), frames=options.frames, seed=options.seed))
    for name, value in attrs.asdict(tally).items():
        print(f"{name:16} {value}")  # noqa: T201 (a command)
    return 1 if tally.problems else 0


if __name__ == "__main__":
    sys.exit(main())
