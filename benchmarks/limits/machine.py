"""What this machine can do: sockets, loopback, disk; as outcomes like those of the loads."""

import os
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.limits import echo
from benchmarks.limits.bare import end, line_of
from benchmarks.limits.ring import BLOCK_BYTES, Ring
from benchmarks.load import usage
from benchmarks.load.histogram import Histogram
from benchmarks.report.results import MS, Figure, Outcome
from benchmarks.suites.bench import start_module
from cluster import state

RING_BYTES: Final = 64 * 1024 * 1024
SIZES: Final = {"4K": BLOCK_BYTES, "1M": 1024 * 1024}
MB: Final = 1e6


@attrs.frozen(kw_only=True)
class Scale:
    """How often, and for how long each time."""

    repetitions: int
    seconds: float


@attrs.frozen(kw_only=True)
class Probe:
    name: str
    title: str
    run: Callable[[Scale], Awaitable[list[Figure]]]

    async def measure(self, scale: Scale) -> Outcome:
        """Measure this part of the machine.

        Raises:
            BenchmarkFailed, ProcessGone, OSError: if it cannot be measured.
        """
        figures = await self.run(scale)
        return Outcome(
            name=self.name, title=self.title, figures=tuple(figures), settings=attrs.asdict(scale)
        )


async def _echo(connections: int, scale: Scale) -> list[Figure]:
    """The kinds take turns, so that drift over time favours none."""
    rates: dict[str, list[float]] = {kind: [] for kind in echo.KINDS}
    costs: dict[str, list[float]] = {kind: [] for kind in echo.KINDS}
    medians: dict[str, list[float]] = {kind: [] for kind in echo.KINDS}
    for _ in range(scale.repetitions):
        for kind in echo.KINDS:
            server = start_module(echo.__name__, kind)
            try:
                port = int(await line_of(server))
                before = usage.snapshot((server.pid,))
                load = partial(echo.load_echo, port, connections, scale.seconds)
                per_s, latency_ns = await trio.to_thread.run_sync(load, abandon_on_cancel=True)
                spent = usage.between(before, usage.snapshot((server.pid,)))
            finally:
                end([server])
            rates[kind].append(per_s)
            costs[kind].append(spent.nodes_s[0] * 1e6 / latency_ns.count)
            medians[kind].append(latency_ns.percentile(50) / MS)
    figures = []
    for kind in echo.KINDS:
        figures.append(Figure(name=f"{kind} /s", values=rates[kind]))
        figures.append(Figure(name=f"{kind} us", values=costs[kind], less_is_better=True))
        if connections == 1:
            p50 = Figure(name=f"{kind} p50 ms", values=medians[kind], less_is_better=True)
            figures.append(p50)
    return figures


async def _loopback(scale: Scale) -> list[Figure]:
    server = start_module(echo.__name__, "sink")
    try:
        port = int(await line_of(server))
        load = partial(echo.load_sink, port, scale.seconds)
        rates = [
            await trio.to_thread.run_sync(load, abandon_on_cancel=True)
            for _ in range(scale.repetitions)
        ]
    finally:
        end([server])
    return [Figure(name="MB/s", values=[one / MB for one in rates])]


async def _disk(scale: Scale) -> list[Figure]:
    return await trio.to_thread.run_sync(_write_and_sync, scale)


def _write_and_sync(scale: Scale) -> list[Figure]:
    """The bare append's own way to write, and the ordinary one, into a file of full size; in turns,
    so that drift over time favours neither."""
    state.DEFAULT_DATA_DIR.mkdir(parents=True, exist_ok=True)
    took: dict[tuple[str, str], list[Histogram]] = {}
    with tempfile.TemporaryDirectory(prefix="disk-", dir=state.DEFAULT_DATA_DIR) as directory:
        ring = Ring(Path(directory) / "ring", RING_BYTES)
        ordinary = _Ordinary(Path(directory) / "ring")
        for _ in range(scale.repetitions):
            for size_name, size in SIZES.items():
                for way, write in (("direct", ring.write), ("cached", ordinary.write)):
                    histogram = _timed(write, size, scale.seconds)
                    took.setdefault((way, size_name), []).append(histogram)
        ordinary.close()
        ring.close()
    return [
        Figure(
            name=f"{way} {size} p{percent} ms",
            values=[one.percentile(percent) / MS for one in histograms],
            less_is_better=True,
        )
        for (way, size), histograms in took.items()
        for percent in (50, 99)
    ]


class _Ordinary:
    """Writes through the page cache, then fdatasync; round and round in an existing file."""

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        self._at = 0

    def write(self, buffers: Sequence[bytes]) -> None:
        if self._at + max(SIZES.values()) > RING_BYTES:
            self._at = 0
        self._at += os.pwritev(self._fd, buffers, self._at)
        os.fdatasync(self._fd)

    def close(self) -> None:
        os.close(self._fd)


def _timed(write: Callable[[list[bytes]], None], size: int, seconds: float) -> Histogram:
    buffers = [b"x" * size]
    took: list[int] = []
    began = now = time.monotonic_ns()
    while now - began < seconds * 1e9:
        write(buffers)
        after = time.monotonic_ns()
        took.append(after - now)
        now = after
    return Histogram(took)


PROBES: Final = (
    Probe(
        name="echo-64",
        title=f"echo of {echo.FRAME_BYTES} B, 64 connections with one frame each",
        run=partial(_echo, 64),
    ),
    Probe(
        name="echo-1",
        title=f"echo of {echo.FRAME_BYTES} B, one connection with one frame",
        run=partial(_echo, 1),
    ),
    Probe(name="loopback", title="one connection, 1 MB at a time", run=_loopback),
    Probe(name="disk", title="write and sync, into a recycled file", run=_disk),
)
