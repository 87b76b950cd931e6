"""What was refused on a connection, nothing that came on it later may overtake (protocol.md F4).

A client has many requests under way. Where one of them is refused and the next is let through, the
client sends the refused one again, behind it: out of order, though each answer by itself was true.
Kafka reads one request of a connection after the other and has most of that by itself; we read
ahead. So a refusal shuts its *lane*, which is the partition for this connection: whatever comes on
it is refused as well, until the client could know. What came before that and is still under way is
refused whenever it would go on (`ports.Connection.shut_since`). Only refusals do that which clients
answer by sending the same again; a final one (too large, say) leaves nothing that could be
overtaken.

When the client could know is seen from outside (runtime/clients/clients.py): its kernel has
acknowledged the answer, and what it had sent by then was taken. Its program needs a moment to look:
it gets SETTLE_NS from the first refusal on, and whoever backs off does so for longer.
"""

from typing import Final

import attrs

from paxos.ids import MS

SETTLE_NS: Final = 50 * MS
"""Well below what clients wait before they try again (100 ms): else they would come too early."""
LANES_MAX: Final = 1_000
"""More at a time, and the whole connection is one lane."""


@attrs.define(eq=False)
class _Shut:
    first: int
    """Number of the refusal that shut it, counted in the connection."""
    last: int
    seen_boot_ns: int = 0
    """When the client could first know; 0: not yet."""


class Lanes:
    """Those of one connection that are shut."""

    def __init__(self) -> None:
        self._shut: dict[tuple[str, int], _Shut] = {}
        self._all: _Shut | None = None

    def __len__(self) -> int:
        return len(self._shut) + (self._all is not None)

    def refused(self, topic: str, index: int, number: int) -> None:
        """The connection's `number`th refusal is for this partition."""
        shut = self._shut.get((topic, index))
        if shut is not None:
            shut.last = number
        elif len(self._shut) < LANES_MAX:
            self._shut[topic, index] = _Shut(number, number)
        elif self._all is None:
            self._all = _Shut(number, number)
        else:
            self._all.last = number

    def is_shut(self, topic: str, index: int) -> bool:
        return self._all is not None or (topic, index) in self._shut

    def seen(self, number: int, boot_ns: int) -> None:
        """The client could know of all refusals up to this one, and what it had sent before that
        has come and was looked at."""
        for lane, shut in list(self._shut.items()):
            if _opens(shut, number, boot_ns):
                del self._shut[lane]
        if self._all is not None and _opens(self._all, number, boot_ns):
            self._all = None


def _opens(shut: _Shut, number: int, boot_ns: int) -> bool:
    """What was refused because the lane was shut need not settle: the client knew by then."""
    if not shut.seen_boot_ns and shut.first <= number:
        shut.seen_boot_ns = boot_ns
    return shut.last <= number and boot_ns - shut.seen_boot_ns >= SETTLE_NS
