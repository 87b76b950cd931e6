"""What a node does while disks are nearly full: its own, and those of its peers.

A disk that hangs, or is slower than what comes, fills the memory instead: what waits for it counts
like a disk that gets full (`unwritten_bytes`).

Three steps. *Low*: clients' commands are refused, and masters go where there is room. *Scarce*: the
reserve is given up; now peers' large entries are not taken any more either, which is as legal as
losing them on the way: leases, promises, steals and small commands go on in what is left. *Stuck*:
there is no room for another record, and the node is as good as paused.

A master refuses as well when so many members are low that those with room are no majority: they
would fill the disks of the others, or, once those take nothing, have entries undecided that block
the renewal of the lease behind them.
"""

from collections.abc import Collection
from typing import Final

import attrs

from paxos.ids import NodeId
from paxos.messages import Accept, Learned, Message
from paxos.quorum import quorum_size
from storage.disk.space import Room

ENTRY_BYTES_MAX: Final = 512
LEARNED_BYTES_MAX: Final = 64 * 1024
UNWRITTEN_BYTES_MAX: Final = 64 << 20
"""What waits in memory for the disk, before the node is low and scarce; twice as much, and it is
stuck."""


@attrs.define(eq=False)
class DiskPressure:
    low: bool = False
    critical: bool = False
    stuck: bool = False
    overloaded: bool = False
    """For the sake of what waits in memory."""
    low_peers: set[NodeId] = attrs.Factory(set)
    """Those who say that they are low."""

    def seen(self, room: Room | None, unwritten_bytes: int = 0, *, starved: bool = False) -> None:
        """What was last measured of the disk (None: nothing yet), how much waits for it in memory,
        and whether the next batch finds no room at all."""
        full = room is not None and room.low
        self.overloaded = unwritten_bytes > UNWRITTEN_BYTES_MAX
        self.low = full or self.overloaded
        self.critical = self.overloaded or (full and room is not None and not room.reserve)
        self.stuck = starved or unwritten_bytes > 2 * UNWRITTEN_BYTES_MAX

    def heard(self, node: NodeId, low: bool) -> None:
        if low:
            self.low_peers.add(node)
        else:
            self.low_peers.discard(node)

    def refuses_commands(self, members: Collection[NodeId]) -> bool:
        """Whether a master of these members takes nothing from clients."""
        if not self.low and not self.low_peers:
            return False  # asked for every command: nearly always this
        able = len(members) - self.low - len(self.low_peers.intersection(members))
        return self.low or able < quorum_size(members)

    def refuses(self, message: Message) -> bool:
        """Whether a peer's message is not even looked at."""
        return self.critical and _is_bulk(message)


def _is_bulk(message: Message) -> bool:
    """Whether it would cost much room on the disk."""
    if type(message) is Accept:
        return message.entry.size > ENTRY_BYTES_MAX
    if type(message) is Learned:
        return sum(entry.size for entry in message.entries) > LEARNED_BYTES_MAX
    return False
