"""The sending half of a link: small messages go first, and bulk data uses what is left.

Heartbeats, votes and leases of all groups share a link with the answers to members that are behind.
TCP keeps the order of the bytes that it gets. So it only gets bulk data while almost nothing else
is on the way, including the kernel's queue: a later message waits for at most BULK_AHEAD_BYTES.
"""

from collections import deque
from typing import Final

import attrs

from paxos.entry import Buffer
from paxos.ids import NodeId
from runtime.config.fields import Address
from runtime.membership.versions import LINK_OLDEST
from runtime.network.channel import Channel
from runtime.peers.large_lane import LargeLane

BULK_AHEAD_BYTES: Final = 128 * 1024
"""Bulk data waits while this much of anything is on the way; below it, one more frame is sent."""
BULK_BYTES_MAX: Final = 8 * 1024 * 1024
"""Limit of the bulk data waiting for one peer; more is dropped. One frame always has room."""


@attrs.define(eq=False)
class Outgoing:
    node: NodeId
    large: LargeLane
    addresses: tuple[Address, ...]
    """Tried in turn: first the registry's, then the configuration's."""
    opened: Channel | None = None
    """The connection. It is `channel`, too, unless the peer may not be able to read what is sent:
    then HELLO and TERMS are all that it gets."""
    channel: Channel | None = None
    buffers: list[Buffer] = attrs.Factory(list)
    """Encoded Paxos messages of this round."""
    size: int = 0
    dropped: int = 0
    version: int = LINK_OLDEST
    """The newest version of the link that both sides know (runtime.membership.versions)."""
    reconnects: int = 0
    dialing: bool = False
    """A connection is being opened."""
    dial_at_ns: int = 0
    """When to open the next connection, by the boot clock."""
    attempts: int = 0
    refused: int = 0
    """Consecutive connections that ended soon: the other side refused them."""
    greeted_ns: int = 0
    knows_group_requests: bool = False
    """As its last PING says."""
    refusal: str = ""
    """Why the other side last refused us, or we it."""
    greeted: bool = False
    """HELLO was sent on the connection: with TLS only to the node that was meant."""
    plain: bool = False
    """The next connection is in plain text, as far as that is allowed beside TLS."""
    lost: str = ""
    """Why the last connection ended, if it was a short one."""
    _bulk: deque[tuple[list[Buffer], int]] = attrs.Factory(deque)
    """Complete frames, with their sizes."""
    _bulk_bytes: int = 0

    @property
    def takes_bulk(self) -> bool:
        """Whether no bulk data waits, so that more may be sent."""
        return self.channel is not None and not self._bulk

    @property
    def waits(self) -> bool:
        """Whether there is something to `feed`."""
        return bool(self._bulk) or not self.large.idle

    @property
    def unsent_bytes(self) -> int:
        """Bytes that wait for the peer; each part has a limit."""
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
        """Give the channel large messages, one by one, and then bulk data, while it has little to
        send."""
        channel = self.channel
        if channel is not None and not self.large.idle:
            self.large.feed(channel)
        while self._bulk and channel is not None and channel.queued_bytes < BULK_AHEAD_BYTES:
            frame, size = self._bulk.popleft()
            self._bulk_bytes -= size
            self.dropped += not channel.send(frame, size)
            channel.flush()

    def clear(self) -> None:
        """Drop everything that waited for the old connection."""
        self.buffers, self.size = [], 0
        self._bulk.clear()
        self._bulk_bytes = 0
        self.large.clear()
