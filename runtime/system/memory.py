"""One account of all memory that clients and peers can make this node use.

Code that reads bytes from a socket, or keeps bytes for one, enters them here before it allocates
them. There are two budgets, so that neither side can starve the other: incoming data (unfinished
frames, requests in progress, HTTP bodies) and outgoing data (answers that their clients have not
read). A full budget refuses nobody: the socket is not read, or the answer is shorter.

Small things that every connection has once (a receive buffer) are entered without a check against
these budgets: the number of connections is limited.
"""

from pathlib import Path
from typing import Final

import attrs

ANSWER_SHARE: Final = 4
"""One answer may take a fourth of the remaining room, so that the next one finds some as well."""
UNLIMITED: Final = 1 << 50
"""A control group's limit of at least this means no limit."""


@attrs.define(eq=False)
class Memory:
    """Bytes in use by kind. Plain numbers, because every request changes them."""

    incoming_max: int
    outgoing_max: int
    buffers: int = 0
    """Receive buffers of all connections."""
    frames: int = 0
    """Large frames of clients that have begun, at their full size, so that they can be finished."""
    requests: int = 0
    """Requests that are not answered yet."""
    http: int = 0
    answers: int = 0
    """Answers that are not sent yet."""
    peers: int = 0
    """Large frames of peers that have begun."""
    waits: int = 0
    """How often something had to wait for room."""

    @property
    def incoming(self) -> int:
        return self.frames + self.requests + self.http

    def has_room(self, size: int) -> bool:
        """Whether this much may come in; always true if there is nothing else."""
        incoming = self.incoming
        return not incoming or incoming + size <= self.incoming_max

    @property
    def answer_room(self) -> int:
        """How many bytes the next answer may have."""
        return max(0, self.outgoing_max - self.answers) // ANSWER_SHARE

    def by_kind(self) -> dict[str, int]:
        return {
            "buffers": self.buffers,
            "frames": self.frames,
            "requests": self.requests,
            "http": self.http,
            "answers": self.answers,
            "peers": self.peers,
        }


class ClientRoom:
    """The budget of client connections (wire.framing.Room)."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def begin(self, size: int) -> bool:
        memory = self._memory
        if not memory.has_room(size):
            return False
        memory.frames += size
        return True

    def end(self, size: int) -> None:
        self._memory.frames -= size

    def open(self, size: int) -> None:
        self._memory.buffers += size

    def grow(self, size: int) -> bool:
        memory = self._memory
        if size > 0 and memory.buffers + size > memory.incoming_max // 2:
            return False
        memory.buffers += size
        return True


class PeerRoom:
    """Counts what peers use. They never wait: they are few, and send a limited amount each."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def begin(self, size: int) -> bool:
        self._memory.peers += size
        return True

    def end(self, size: int) -> None:
        self._memory.peers -= size

    def open(self, size: int) -> None:
        self._memory.buffers += size

    def grow(self, size: int) -> bool:
        self._memory.buffers += size
        return True


def memory_limit(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """The memory limit of this process's control groups (version 1 or 2) in bytes; 0: none."""
    limits = []
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers == "":
            places = [root, root / "unified"]
            file = "memory.max"
        elif "memory" in controllers.split(","):
            places = [root / "memory"]
            file = "memory.limit_in_bytes"
        else:
            continue
        for place in places:
            where = place / name.lstrip("/")
            limits += [_number(one / file) for one in (where, *where.parents) if place <= one]
    known = [limit for limit in limits if 0 < limit < UNLIMITED]
    return min(known, default=0)


def _number(path: Path) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # no such file, or it says "max"
        return 0
