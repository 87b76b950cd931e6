"""A hash over all entries applied, in order: two members that agree on it hold the same log.

Each value is the CRC32C of an entry continued from the value before, so one number stands for a
whole prefix. Members tell theirs in Progress; a member compares it with what it had at that slot,
as far back as it remembers. A difference is a proof that agreement or a disk was broken.
"""

from collections import deque
from typing import Final

import attrs
from crc32c import crc32c

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Slot

REMEMBERED_SLOTS: Final = 4096
"""A member further behind than this is compared when it has come closer."""


@attrs.define(eq=False)
class ChainHash:
    value: int = 0
    slot: Slot = SLOT_ZERO
    _recent: deque[int] = attrs.Factory(lambda: deque(maxlen=REMEMBERED_SLOTS))

    def extend(self, slot: Slot, entry: Entry) -> None:
        assert slot == self.slot + 1, f"the chain is at {self.slot}, not before {slot}"
        value = self.value
        for chunk in entry.chunks:
            value = crc32c(chunk, value)
        self.value, self.slot = value, slot
        self._recent.append(value)

    def at(self, slot: Slot) -> int | None:
        """The value after `slot`; None where it is not remembered, or not reached."""
        back = self.slot - slot
        if slot == SLOT_ZERO:
            return 0
        return self._recent[-1 - back] if 0 <= back < len(self._recent) else None
