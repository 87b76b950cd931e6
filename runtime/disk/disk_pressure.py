"""What a node refuses while disks are nearly full: its own, or those of its peers.

A disk that hangs, or is slower than the incoming data, fills the memory instead: data that waits
for it counts like a full disk (`unwritten_bytes`).

There are three levels. *Low*: clients' commands are refused, and masters move to nodes with room.
*Critical*: the reserve is used; peers' large entries are dropped too, which the protocol allows
like any lost message. Leases, promises, steals and small commands continue in the remaining space.
*Stuck*: there is no room for another record, and the node does nothing.

A master also refuses commands if so many members are low that those with room are not a majority.
Otherwise it would fill the disks of the others; or, once those accept nothing more, it would have
undecided entries that block the lease renewals after them.
"""

from collections.abc import Collection
from typing import Final

import attrs

from paxos.ids import MS, NodeId
from paxos.messages import Accept, Learned, Message
from paxos.quorum import quorum_size
from storage.disk.space import Room

ENTRY_BYTES_MAX: Final = 512
LEARNED_BYTES_MAX: Final = 64 * 1024
UNWRITTEN_BYTES_MAX: Final = 64 << 20
"""If more data than this waits in memory for the disk for OVERLOADED_NS, or half as much again at
any time, the node is low and critical; at more than twice as much it is stuck."""
OVERLOADED_NS: Final = 1_000 * MS
"""One message of 10 MB in each of seven Paxos groups exceeds the bound for the half second that a
healthy disk takes for them, which is no reason to refuse anything."""


@attrs.define(eq=False)
class DiskPressure:
    low: bool = False
    critical: bool = False
    stuck: bool = False
    overloaded: bool = False
    """The reason is the data that waits in memory, not free space."""
    low_peers: set[NodeId] = attrs.Factory(set)
    """Peers that have said that they are low."""
    _waits_since_ns: int | None = None
    """Since when more than UNWRITTEN_BYTES_MAX wait in memory, on the boot clock."""

    def seen(
        self, now_ns: int, room: Room | None, unwritten_bytes: int = 0, *, starved: bool = False
    ) -> None:
        """Update the level from the last measurement of free space (None: there is none yet), the
        bytes that wait in memory, and whether there is no room at all for the next batch."""
        full = room is not None and room.low
        self.overloaded = self._is_overloaded(now_ns, unwritten_bytes)
        self.low = full or self.overloaded
        self.critical = self.overloaded or (full and room is not None and not room.reserve)
        self.stuck = starved or unwritten_bytes > 2 * UNWRITTEN_BYTES_MAX

    def _is_overloaded(self, now_ns: int, unwritten_bytes: int) -> bool:
        if unwritten_bytes <= UNWRITTEN_BYTES_MAX:
            self._waits_since_ns = None
            return False
        if self._waits_since_ns is None:
            self._waits_since_ns = now_ns
        waited_ns = now_ns - self._waits_since_ns
        return waited_ns >= OVERLOADED_NS or unwritten_bytes > UNWRITTEN_BYTES_MAX * 3 // 2

    def heard(self, node: NodeId, low: bool) -> None:
        if low:
            self.low_peers.add(node)
        else:
            self.low_peers.discard(node)

    def refuses_commands(self, members: Collection[NodeId]) -> bool:
        """Whether a master of a group with these members refuses clients' commands."""
        if not self.low and not self.low_peers:
            return False  # the usual case; this runs for every command
        able = len(members) - self.low - len(self.low_peers.intersection(members))
        return self.low or able < quorum_size(members)

    def refuses(self, message: Message) -> bool:
        """Whether to drop a peer's message."""
        return self.critical and _is_bulk(message)


def _is_bulk(message: Message) -> bool:
    """Whether handling it would write much to the disk."""
    if type(message) is Accept:
        return message.entry.size > ENTRY_BYTES_MAX
    if type(message) is Learned:
        return sum(entry.size for entry in message.entries) > LEARNED_BYTES_MAX
    return False
