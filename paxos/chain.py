"""A hash over all entries applied, in order: two members that agree on it hold the same log.

Each value is the CRC32C of an entry continued from the value before, so one number stands for a
whole prefix. Members tell theirs in Progress; a member compares it with what it had at that slot,
as far back as it remembers. A difference proves that agreement or a disk was broken.
"""

from array import array
from typing import Final

import attrs
from crc32c import crc32c

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Slot

REMEMBERED_SLOTS: Final = 4096
"""How far back hashes are remembered. A member further behind is compared once it is closer."""


def _remembered() -> "array[int]":
    """Four bytes a slot: a node may have a thousand groups."""
    return array("I", bytes(4 * REMEMBERED_SLOTS))


@attrs.define(eq=False)
class ChainHash:
    value: int = 0
    slot: Slot = SLOT_ZERO
    start: Slot = SLOT_ZERO
    """Nothing is known of slots before this one: a checkpoint covers them."""
    _recent: "array[int]" = attrs.Factory(_remembered)
    """A ring: the value after a slot is at the slot's number modulo the length."""

    def begin_after(self, slot: Slot, value: int) -> None:
        """Go on from a checkpoint: only the hash of the entries up to `slot` is known."""
        self.value = value
        self.slot = self.start = slot
        self._recent = _remembered()
        self._recent[slot % REMEMBERED_SLOTS] = value

    def extend(self, slot: Slot, entry: Entry) -> None:
        assert slot == self.slot + 1, f"the chain is at {self.slot}, not before {slot}"
        value = self.value
        for chunk in entry.chunks:
            value = crc32c(chunk, value)
        self.value, self.slot = value, slot
        self._recent[slot % REMEMBERED_SLOTS] = value

    def at(self, slot: Slot) -> int | None:
        """The value after `slot`; None if it is not remembered, or not reached yet."""
        if slot == SLOT_ZERO:
            return 0
        known = max(self.slot - REMEMBERED_SLOTS, self.start - 1) < slot <= self.slot
        return self._recent[slot % REMEMBERED_SLOTS] if known else None
