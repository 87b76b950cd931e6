"""Nothing overtakes a refused request on its connection (docs/protocol.md F4, ADR 37).

A client keeps many requests in flight. If one is refused and the next is accepted, the client
retries the refused one behind it: out of order, although each answer by itself was correct. Kafka
mostly avoids this by handling one request of a connection at a time; we read ahead. So a refusal
raises a barrier for its partition on this connection (a *lane* in ADR 37): later requests are
refused as well until the client could know. Earlier requests that are still under way are refused
when they would continue (`ports.Connection.would_overtake`). Only refusals that clients retry raise
a barrier; after a final one (say, too large) there is nothing to overtake.

Whether the client could know is seen from outside (runtime/clients/clients.py): its kernel has
acknowledged the answer, and what it had sent by then was read. The client program needs a moment to
notice: it gets CLIENT_REACTION_NS after the first refusal. Clients that back off take longer
anyway.
"""

from typing import Final

import attrs

from paxos.ids import MS

CLIENT_REACTION_NS: Final = 50 * MS
"""Well below the usual retry backoff of clients (100 ms): a retry must not come too early."""
BARRIERS_MAX: Final = 1_000
"""Beyond this the whole connection is blocked."""


@attrs.define(eq=False)
class _Shut:
    first: int
    """Number of the refusal that raised the barrier, counted per connection."""
    last: int
    seen_boot_ns: int = 0
    """When the client could first know; 0: not yet."""


class OrderingBarriers:
    """The partitions that are blocked on one connection."""

    def __init__(self) -> None:
        self._shut: dict[tuple[str, int], _Shut] = {}
        self._all: _Shut | None = None

    def __len__(self) -> int:
        return len(self._shut) + (self._all is not None)

    def refused(self, topic: str, index: int, number: int) -> None:
        """Raise a barrier: the connection's `number`th refusal is for this partition."""
        shut = self._shut.get((topic, index))
        if shut is not None:
            shut.last = number
        elif len(self._shut) < BARRIERS_MAX:
            self._shut[topic, index] = _Shut(number, number)
        elif self._all is None:
            self._all = _Shut(number, number)
        else:
            self._all.last = number

    def is_blocked(self, topic: str, index: int) -> bool:
        return self._all is not None or (topic, index) in self._shut

    def seen(self, number: int, boot_ns: int) -> None:
        """The client could know of all refusals up to this one, and everything it had sent before
        then has arrived and been handled."""
        for partition, shut in list(self._shut.items()):
            if _opens(shut, number, boot_ns):
                del self._shut[partition]
        if self._all is not None and _opens(self._all, number, boot_ns):
            self._all = None


def _opens(shut: _Shut, number: int, boot_ns: int) -> bool:
    """Only the first refusal starts the reaction time: from then on the client knew of the
    barrier."""
    if not shut.seen_boot_ns and shut.first <= number:
        shut.seen_boot_ns = boot_ns
    return shut.last <= number and boot_ns - shut.seen_boot_ns >= CLIENT_REACTION_NS
