"""What the log knows of each group in memory: promises, and where each slot's entry lies.

Twelve bytes a slot: slots are dense, so two arrays indexed by slot are smaller and faster than any
map. The entry to read for a slot is the latest one recorded, except that a vote never replaces an
entry learned by value, which is certainly chosen: a late Accept at an old ballot may get a vote
after the slot was learned, and its value need not be the chosen one.
"""

from array import array
from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Slot
from storage.errors import NotInLog
from storage.format import Place

LEARNED_BIT: Final = 1 << 31
_SIZE_MASK: Final = LEARNED_BIT - 1

SLOT_GAP_MAX: Final = 1 << 20
"""A slot further ahead of the highest recorded one is our bug, and would waste memory."""


def _words() -> "array[int]":
    return array("Q")


def _halves() -> "array[int]":
    return array("I")


@attrs.define(eq=False)
class GroupState:
    """`first` is the lowest slot that is indexed: lower ones were retired with their segments.

    `votes` (slot -> ballot, place, size) is filled by recovery only; afterwards the acceptor itself
    knows its votes.
    """

    group: GroupId
    promised: Ballot = BALLOT_ZERO
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    applied: int = 0
    first: int = 1
    proven: int = 0
    """Every slot up to here is chosen; above `applied` only if damage has left a gap."""
    places: "array[int]" = attrs.Factory(_words)
    sizes: "array[int]" = attrs.Factory(_halves)
    votes: dict[int, tuple[Ballot, Place, int]] = attrs.Factory(dict)
    damaged: dict[int, Ballot] = attrs.Factory(dict)
    """Slots of which a damaged record was a vote, by its header, and the ballot of the latest such
    record; intact records may follow it. Filled by recovery only."""

    @property
    def highest(self) -> int:
        """The highest slot ever recorded."""
        return self.first + len(self.places) - 1

    def put(self, slot: int, place: Place, size: int, learned_bit: int) -> None:
        """Note that an entry of `size` bytes for `slot` was recorded in the record at `place`."""
        places = self.places
        at = slot - self.first
        if at == len(places):
            places.append(place)
            self.sizes.append(size | learned_bit)
        elif at > len(places):
            self._widen(slot)
            self.put(slot, place, size, learned_bit)
        elif at >= 0 and (learned_bit or not self.sizes[at] & LEARNED_BIT):
            places[at] = place
            self.sizes[at] = size | learned_bit

    def _widen(self, slot: int) -> None:
        """Leave the slots between the highest recorded one and `slot` empty."""
        missing = slot - self.highest - 1
        assert missing < SLOT_GAP_MAX, f"group {self.group}: slot {slot} after {self.highest}"
        self.places.frombytes(bytes(missing * self.places.itemsize))
        self.sizes.frombytes(bytes(missing * self.sizes.itemsize))

    def find(self, slot: int) -> tuple[Place, int]:
        """The place of the slot's record and the size of its entry.

        Raises:
            NotInLog: nothing is recorded for the slot, or it was retired.
        """
        at = slot - self.first
        if not 0 <= at < len(self.places) or not self.places[at]:
            raise NotInLog(
                f"group {self.group}: slot {slot} is not in the log, which holds some of "
                f"{self.first} to {self.highest}"
            )
        return self.places[at], self.sizes[at] & _SIZE_MASK

    def lose(self, slot: int, ballot: Ballot | None = None) -> None:
        """A later record of the slot is damaged, so what was recorded before is not the slot's
        entry, unless it was learned by value. `ballot`: the damaged record was a vote at it."""
        at = slot - self.first
        if 0 <= at < len(self.places) and not self.sizes[at] & LEARNED_BIT:
            self.drop(slot)
        if ballot is not None:
            self.damaged[slot] = ballot
        else:
            self.damaged.pop(slot, None)

    def lost_votes(self) -> dict[Slot, Ballot]:
        """For chosen slots whose entry is missing, the ballot of the vote that had it: if a slot is
        proven to be chosen, its last record has the chosen entry, even if it is damaged
        (paxos.changes.testimony)."""
        return {
            Slot(slot): ballot
            for slot, ballot in sorted(self.damaged.items())
            if self.applied < slot <= self.proven and not self._has(slot)
        }

    def _has(self, slot: int) -> bool:
        at = slot - self.first
        return 0 <= at < len(self.places) and bool(self.places[at])

    def drop(self, slot: int) -> None:
        """Never read the slot's entry from where it lies now."""
        at = slot - self.first
        if 0 <= at < len(self.places):  # else a checkpoint covers it
            self.places[at] = self.sizes[at] = 0
        self.votes.pop(slot, None)

    def lose_open(self, untouched: Sequence[range] = ()) -> None:
        """The damage may have hit records of any open slot, except those that a later life knew to
        be untouched (damage_notes.py): that life has written its open votes again."""
        for slot in range(max(self.applied + 1, self.first), self.highest + 1):
            if any(slot in slots for slots in untouched):
                self.votes.pop(slot, None)
            else:
                self.lose(slot)
        self.damaged = {slot: one for slot, one in self.damaged.items() if slot <= self.applied}

    def close_gap(self) -> None:
        """Lower `applied` to what can be replayed; `proven` remembers how far it went."""
        self.proven = self.applied
        end = self.applied - self.first + 1
        if end > len(self.places):  # the records of the highest slots are lost
            self.applied = self.highest
            end = len(self.places)
        if end > 0:
            try:
                gap = self.places.index(0, 0, end)
            except ValueError:
                return
            self.applied = self.first + gap - 1

    def readable_to(self, slot: int, end: int) -> Slot:
        """The last slot from `slot` to `end` before the first missing one."""
        assert slot >= self.first, f"slot {slot} was retired: the first one is {self.first}"
        try:
            return Slot(
                self.first + self.places.index(0, slot - self.first, end - self.first + 1) - 1
            )
        except ValueError:
            return Slot(min(end, self.highest))

    def within(self, start: Place, end: Place) -> list[Slot]:
        """The slots whose latest record begins in [start, end)."""
        first = self.first
        return [Slot(first + at) for at, place in enumerate(self.places) if start <= place < end]

    def ranges_before(self, end: Place) -> Iterator[range]:
        """The slots whose latest record begins before `end`, the highest ones first."""
        stop = 0
        for at in range(len(self.places) - 1, -1, -1):
            if 0 < self.places[at] < end:
                stop = stop or at + 1
            elif stop:
                yield range(self.first + at + 1, self.first + stop)
                stop = 0
        if stop:
            yield range(self.first, self.first + stop)

    def learned_after(self, applied: int) -> list[Slot]:
        """The slots above `applied` whose entry was learned by value."""
        start = max(applied + 1, self.first)
        return [
            Slot(slot)
            for slot in range(start, self.highest + 1)
            if self.sizes[slot - self.first] & LEARNED_BIT
        ]

    def found_on(self, base: int) -> None:
        """Go on from a checkpoint at `base`, 0 for none, when all of the log has been read.

        `applied` ends where something is missing; `proven` remembers how far it went.
        """
        self.forget_through(base)
        retired = self.first - 1  # hence applied
        self.applied = max(self.applied, retired)
        self.close_gap()
        if retired > base:  # nothing of it can be replayed
            self.applied = base

    @property
    def founded(self) -> bool:
        """Whether nothing is missing between the checkpoint and the log."""
        return self.applied >= self.first - 1

    def forget_all(self) -> None:
        """This node is no longer a member. It keeps its promises, but it must not vote without the
        slots that it forgets here: if it returns, it does so non-voting."""
        self.voting, self.floor = False, max(self.promised, self.floor)
        self.applied, self.proven, self.first = 0, 0, 1
        del self.places[:], self.sizes[:]
        self.votes.clear()
        self.damaged.clear()

    def forget_through(self, slot: int) -> None:
        """Drop the index of slots up to and including `slot`."""
        count = min(max(0, slot - self.first + 1), len(self.places))
        del self.places[:count]
        del self.sizes[:count]
        self.first = max(self.first, slot + 1)
