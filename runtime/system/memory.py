"""One account of the memory that others can make this node hold.

Whoever takes bytes from a socket, or keeps bytes for one, enters them here before they are there.
The account has two doors, so that one side cannot starve the other: what comes in (unfinished
frames, requests under way, HTTP bodies) and what goes out (answers that their clients have not
read). Behind a full door nobody is refused: the socket is not read, or the answer holds less.

What is small and once per connection (a receive buffer) is entered without asking: the number of
connections is bounded.
"""

from pathlib import Path
from typing import Final

import attrs

ANSWER_SHARE: Final = 4
"""One answer takes a fourth of the room there is: the next one finds some as well."""
UNLIMITED: Final = 1 << 50
"""Control groups write a very large number where there is no limit."""


@attrs.define(eq=False)
class Memory:
    """Plain numbers: they are counted up and down for every request."""

    incoming_max: int
    outgoing_max: int
    buffers: int = 0
    """Receive buffers of all connections."""
    frames: int = 0
    """Large frames that have begun, each in full: so those that have begun can be finished."""
    requests: int = 0
    """Requests that came and are not answered."""
    http: int = 0
    answers: int = 0
    """Answers that are not sent."""
    peers: int = 0
    """Large frames of peers that have begun."""
    waits: int = 0
    """How often somebody had to wait for room."""

    @property
    def incoming(self) -> int:
        return self.frames + self.requests + self.http

    def has_room(self, size: int) -> bool:
        """Whether something of this size may come in; one thing may always be there."""
        incoming = self.incoming
        return not incoming or incoming + size <= self.incoming_max

    @property
    def answer_room(self) -> int:
        """How long the next answer may be."""
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
    """What the connections of clients ask (wire.framing.Room)."""

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

    def grow(self, size: int) -> bool:
        memory = self._memory
        if size > 0 and memory.buffers + size > memory.incoming_max // 2:
            return False
        memory.buffers += size
        return True


class PeerRoom:
    """Peers are few, and what one of them sends is bounded: they are counted and never wait."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def begin(self, size: int) -> bool:
        self._memory.peers += size
        return True

    def end(self, size: int) -> None:
        self._memory.peers -= size

    def grow(self, size: int) -> bool:
        self._memory.buffers += size
        return True


def memory_limit(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> int:
    """What this process's control groups allow it, version 1 or 2; 0 where nothing is limited."""
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
    except (OSError, ValueError):  # there is none here, or it says "max"
        return 0
