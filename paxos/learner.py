"""The learner: which slots are known chosen, and how far the log is applied without a gap."""

from collections.abc import Iterator

import attrs

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Slot


@attrs.define(kw_only=True, eq=False)
class Learner:
    applied: Slot = SLOT_ZERO
    chosen: dict[Slot, Entry] = attrs.Factory(dict)
    """Chosen beyond a gap, waiting to be applied."""
    known_to: Slot = SLOT_ZERO
    """The highest slot that we know is chosen: we have its entry, or a state that covers it."""
    chosen_to: Slot = SLOT_ZERO
    """... and the highest one that anybody has said is chosen, as far as that counts now. It is
    not told to others: a wrong number must not spread, nor outlive the word that corrects it."""

    def heard(self, slot: Slot) -> None:
        self.known_to = max(self.known_to, slot)
        self.chosen_to = max(self.chosen_to, slot)

    def told(self, slot: Slot) -> None:
        """Somebody says that this slot is chosen."""
        self.chosen_to = max(self.chosen_to, slot)

    def settle(self, told: Slot) -> None:
        """This is the most that anybody says by now."""
        self.chosen_to = max(self.known_to, told)

    def add(self, slot: Slot, entry: Entry) -> bool:
        """Note a chosen entry; returns False where it is already known or applied."""
        self.heard(slot)
        if slot <= self.applied or slot in self.chosen:
            return False
        self.chosen[slot] = entry
        return True

    def replay(self, slot: Slot) -> None:
        """The next slot's entry is known from disk to be chosen."""
        assert slot == self.applied + 1, f"gap: {self.applied} then {slot}"
        self.applied = slot
        self.heard(slot)

    def forget(self, slot: Slot) -> None:
        """An entry beyond the gap is gone from the disk: it has to be learned anew."""
        self.chosen.pop(slot, None)

    def skip(self, slot: Slot) -> None:
        """Every slot up to this one is chosen, and what it did is known."""
        assert slot > self.applied
        self.applied = slot
        self.heard(slot)
        for known in [known for known in self.chosen if known <= slot]:
            del self.chosen[known]

    def take_ready(self) -> Iterator[tuple[Slot, Entry]]:
        """Apply the next slots in order: each is yielded once, `applied` already counts it."""
        while (slot := Slot(self.applied + 1)) in self.chosen:
            self.applied = slot
            yield slot, self.chosen.pop(slot)

    @property
    def behind(self) -> bool:
        return self.chosen_to > self.applied
