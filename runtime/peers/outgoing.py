"""The sending half of a link: what is small goes first, and bulk fills what is left.

Heartbeats, votes and leases of all groups share a link with the answers to members that are behind.
TCP keeps the order of what it was given. So bulk is given to it only where nearly nothing else is
on the way, the kernel's own queue included: whatever comes next waits for BULK_AHEAD_BYTES at most.
"""

from collections import deque
from typing import Final

import attrs

from paxos.entry import Buffer
from paxos.ids import NodeId
from runtime.config.fields import Address
from runtime.network.channel import Channel
from runtime.peers.large_lane import LargeLane

BULK_AHEAD_BYTES: Final = 128 * 1024
"""Bulk waits while so much of anything is under way; one piece more may be, then."""
BULK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Waiting for one peer; more is as good as lost on the way. One piece always has room."""


@attrs.define(eq=False)
class Outgoing:
    node: NodeId
    large: LargeLane
    addresses: tuple[Address, ...]
    """Tried in turn: the registry's first, then the configuration's."""
    channel: Channel | None = None
    buffers: list[Buffer] = attrs.Factory(list)
    """Encoded Paxos messages of this round."""
    size: int = 0
    dropped: int = 0
    reconnects: int = 0
    dialing: bool = False
    """Somebody tries to open a connection."""
    dial_at_ns: int = 0
    """Not before, by the boot clock."""
    attempts: int = 0
    refused: int = 0
    """Connections in a row that the other side soon ended."""
    greeted_ns: int = 0
    terms_told: bool = False
    refusal: str = ""
    """Why the other side refused us last."""
    _bulk: deque[tuple[list[Buffer], int]] = attrs.Factory(deque)
    """Whole frames."""
    _bulk_bytes: int = 0

    @property
    def takes_bulk(self) -> bool:
        """Whether what it was given is on its way."""
        return self.channel is not None and not self._bulk

    @property
    def waits(self) -> bool:
        """Whether there is something to `feed`."""
        return bool(self._bulk) or not self.large.idle

    @property
    def unsent_bytes(self) -> int:
        """What waits for the peer; each of its parts is bounded."""
        channel = self.channel
        given = 0 if channel is None else channel.unsent_bytes
        return self.size + self._bulk_bytes + self.large.bytes + given

    def add_bulk(self, frame: list[Buffer], size: int) -> None:
        if self._bulk and self._bulk_bytes + size > BULK_BYTES_MAX:
            self.dropped += 1
            return
        self._bulk.append((frame, size))
        self._bulk_bytes += size

    def feed(self) -> None:
        """Give the channel what is large, one by one, and then bulk, if it has little to do."""
        channel = self.channel
        if channel is not None and not self.large.idle:
            self.large.feed(channel)
        while self._bulk and channel is not None and channel.queued_bytes < BULK_AHEAD_BYTES:
            frame, size = self._bulk.popleft()
            self._bulk_bytes -= size
            self.dropped += not channel.send(frame, size)
            channel.flush()

    def clear(self) -> None:
        """The link is another one now: what the old one held is lost."""
        self.buffers, self.size = [], 0
        self._bulk.clear()
        self._bulk_bytes = 0
        self.large.clear()
