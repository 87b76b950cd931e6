"""The cost of processes, from /proc: CPU time and memory of the nodes, and of everything else.

On a shared machine a rate alone says little. The CPU time that the nodes take for a message hardly
changes when other processes want the cores too, and their share says how much the rates suffer.
"""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import attrs

TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
PROC: Final = Path("/proc")


class ProcessGone(RuntimeError):
    """A process that was to be measured has ended."""


@attrs.frozen
class Usage:
    """CPU seconds spent between two snapshots."""

    seconds: float
    nodes_s: tuple[float, ...]
    """Of each node, in the order of the given pids."""
    client_s: float
    others_s: float
    """Of everything else on this machine, including the kernel's own work."""
    sent_bytes: tuple[int, ...] = ()
    received_bytes: tuple[int, ...] = ()
    """Of each node's network namespace, over all interfaces except loopback, headers included. A
    node with a namespace of its own (benchmarks.machines) has its own figures, otherwise all have
    the same."""

    @property
    def others_share(self) -> float:
        """The part of the whole machine that others took."""
        return self.others_s / (self.seconds * cores())


@attrs.frozen
class Snapshot:
    at_ns: int
    nodes_s: tuple[float, ...]
    client_s: float
    machine_s: float
    sent_bytes: tuple[int, ...]
    received_bytes: tuple[int, ...]


def cores() -> int:
    return os.cpu_count() or 1


def snapshot(pids: Sequence[int]) -> Snapshot:
    """CPU time so far: of these processes, of this one, and of the machine.

    Raises:
        ProcessGone: if one of them has ended.
    """
    nodes = tuple(cpu_s(pid) for pid in pids)
    moved = [network_bytes(pid) for pid in pids]
    return Snapshot(
        time.monotonic_ns(),
        nodes,
        time.process_time(),
        machine_busy_s(),
        tuple(sent for sent, _ in moved),
        tuple(received for _, received in moved),
    )


def between(begin: Snapshot, end: Snapshot) -> Usage:
    nodes = tuple(after - before for before, after in zip(begin.nodes_s, end.nodes_s, strict=True))
    client = end.client_s - begin.client_s
    others = max(0.0, end.machine_s - begin.machine_s - sum(nodes) - client)
    return Usage(
        (end.at_ns - begin.at_ns) / 1e9,
        nodes,
        client,
        others,
        _differences(begin.sent_bytes, end.sent_bytes),
        _differences(begin.received_bytes, end.received_bytes),
    )


def _differences(begin: Sequence[int], end: Sequence[int]) -> tuple[int, ...]:
    return tuple(after - before for before, after in zip(begin, end, strict=True))


def cpu_s(pid: int) -> float:
    """User and system time of all threads, without waited-for children (proc_pid_stat(5)).

    Raises:
        ProcessGone: if it has ended.
    """
    # The name in parentheses may contain spaces: what follows it is counted from field 3.
    fields = _read(pid, "stat").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def network_bytes(pid: int) -> tuple[int, int]:
    """(sent, received) on all interfaces that this process sees, except loopback.

    Raises:
        ProcessGone: if it has ended.
    """
    sent = received = 0
    for line in _read(pid, "net/dev").splitlines()[2:]:
        name, _, counters = line.partition(":")
        if name.strip() != "lo":
            fields = counters.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return sent, received


def rss_bytes(pid: int) -> int:
    """Resident memory, shared pages included.

    Raises:
        ProcessGone: if it has ended.
    """
    fields = dict(line.split(":", 1) for line in _read(pid, "status").splitlines() if ":" in line)
    return int(fields["VmRSS"].split()[0]) * 1024


def machine_busy_s() -> float:
    """CPU time of all cores that was neither idle nor waiting for disks (proc_stat(5))."""
    line = (PROC / "stat").read_text(encoding="ascii").partition("\n")[0]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, line.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S


def _read(pid: int, name: str) -> str:
    try:
        return (PROC / str(pid) / name).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError) as error:
        raise ProcessGone(f"process {pid} has ended") from error


def to_json(usage: Usage) -> dict[str, Any]:
    return attrs.asdict(usage)


def from_json(value: Mapping[str, Any]) -> Usage:
    lists = ("nodes_s", "sent_bytes", "received_bytes")
    return Usage(**{**value, **{name: tuple(value[name]) for name in lists}})
