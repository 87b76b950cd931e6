"""The bare append's three processes, started and stopped for a measurement."""

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from benchmarks.limits import append, kafka, ring
from benchmarks.suites.bench import BenchmarkFailed, start_module
from benchmarks.target import Target
from cluster import state

START_S_MAX: Final = 60.0
"""Three files of zeros have to be written and synced."""


@attrs.frozen(kw_only=True)
class Bare:
    target: Target
    logs: tuple[Path, ...]
    """The leader's first."""


@asynccontextmanager
async def bare_append(partitions: int, log_bytes: int = ring.RING_BYTES) -> AsyncIterator[Bare]:
    """A leader and two followers with empty logs, next to where clusters keep theirs.

    Raises:
        BenchmarkFailed: if they do not start.
    """
    state.DEFAULT_DATA_DIR.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(prefix="bare-append-", dir=state.DEFAULT_DATA_DIR))
    logs = tuple(directory / f"log-{node}" for node in kafka.NODES)
    processes: list[subprocess.Popen[bytes]] = []
    try:
        leader = _start(processes, "leader", logs[0], log_bytes, partitions)
        client_port, peer_port = (await line_of(leader)).split()
        for log in logs[1:]:
            _start(processes, "follower", log, log_bytes, int(peer_port))
        await line_of(leader)
        target = Target(
            bootstrap=f"127.0.0.1:{client_port}",
            replication=len(kafka.NODES),
            pids=tuple(one.pid for one in processes),
            configuration={
                "processes": len(processes),
                "partitions": partitions,
                "log_bytes": log_bytes,
                "batch_bytes_max": ring.BATCH_BYTES_MAX,
            },
        )
        yield Bare(target=target, logs=logs)
    finally:
        end(processes)
        shutil.rmtree(directory)


def _start(
    processes: list[subprocess.Popen[bytes]], role: str, log: Path, *numbers: int
) -> subprocess.Popen[bytes]:
    process = start_module(append.__name__, role, str(log), *map(str, numbers))
    processes.append(process)
    return process


async def line_of(process: subprocess.Popen[bytes]) -> str:
    """The next line that a process prints.

    Raises:
        BenchmarkFailed: if it ends instead, or takes too long.
    """
    assert process.stdout is not None
    line = b""
    with trio.move_on_after(START_S_MAX):
        line = await trio.to_thread.run_sync(process.stdout.readline, abandon_on_cancel=True)
    if not line:
        process.kill()
        told = process.communicate()[1].decode(errors="replace").strip().splitlines()
        raise BenchmarkFailed(f"a process did not start: {told[-1] if told else 'no error output'}")
    return line.decode()


def end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        with process:  # waits, and closes the pipes
            pass
