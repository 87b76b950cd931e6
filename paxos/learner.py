"""The learner: which slots are known to be chosen, and how far the log is applied."""

from collections.abc import Iterator

import attrs

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, Slot


@attrs.define(kw_only=True, eq=False)
class Learner:
    applied: Slot = SLOT_ZERO
    chosen: dict[Slot, Entry] = attrs.Factory(dict)
    """Entries that are chosen beyond a gap, and wait to be applied."""
    known_to: Slot = SLOT_ZERO
    """The highest slot that we know to be chosen: we have its entry, or a state that covers it."""
    chosen_to: Slot = SLOT_ZERO
    """The highest slot that we know, or a peer claims, to be chosen. We never repeat a claim: a
    wrong number must neither spread nor outlive the message that corrects it."""

    def note_chosen(self, slot: Slot) -> None:
        self.known_to = max(self.known_to, slot)
        self.chosen_to = max(self.chosen_to, slot)

    def note_claim(self, slot: Slot) -> None:
        """Somebody claims that this slot is chosen."""
        self.chosen_to = max(self.chosen_to, slot)

    def claims_are(self, claimed: Slot) -> None:
        """Note the highest of the claims that count now, instead of any earlier one."""
        self.chosen_to = max(self.known_to, claimed)

    def add(self, slot: Slot, entry: Entry) -> bool:
        """Note a chosen entry; returns False if it is already known or applied."""
        self.note_chosen(slot)
        if slot <= self.applied or slot in self.chosen:
            return False
        self.chosen[slot] = entry
        return True

    def replay(self, slot: Slot) -> None:
        """The next slot's entry is known from disk to be chosen."""
        assert slot == self.applied + 1, f"gap: {self.applied} then {slot}"
        self.applied = slot
        self.note_chosen(slot)

    def forget(self, slot: Slot) -> None:
        """An entry beyond the gap is gone from the disk: it has to be learned anew."""
        self.chosen.pop(slot, None)

    def skip(self, slot: Slot) -> None:
        """A base covers every slot up to this one: all are chosen, and their effect is known."""
        assert slot > self.applied
        self.applied = slot
        self.note_chosen(slot)
        for known in [known for known in self.chosen if known <= slot]:
            del self.chosen[known]

    def take_ready(self) -> Iterator[tuple[Slot, Entry]]:
        """The next slots to apply, in order, each once; `applied` already counts it."""
        while (slot := Slot(self.applied + 1)) in self.chosen:
            self.applied = slot
            yield slot, self.chosen.pop(slot)

    @property
    def behind(self) -> bool:
        return self.chosen_to > self.applied
