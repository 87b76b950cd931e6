"""The segments in use: which slots each of them may still hold, and which are not needed any more.

For every closed segment the highest slot of each group at its end is known. That tells where the
records above a slot begin, and which segments are not needed.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from paxos.ids import GroupId, Slot
from storage.format import OFFSET_BITS, Place
from storage.log.index import GroupState

NO_BOUND: Final = 1 << OFFSET_BITS
"""Above every segment's number."""
KNOWN_DAMAGE_MAX: Final = 256
"""How much known damage is repeated at the head of a segment. After a restart the scrubber finds
the rest again, at the cost of another round of repair."""


@attrs.define(eq=False)
class LiveSegments:
    oldest: int
    highs: dict[int, dict[GroupId, int]]
    """For every closed segment, the highest slot each group had recorded when it was closed."""
    seeds: dict[int, int]
    ends: dict[int, int]
    """Where the records of every closed segment end."""

    def close(self, number: int, offset: int, groups: Iterable[GroupState]) -> None:
        self.highs[number] = {state.group: state.highest for state in groups}
        self.ends[number] = offset

    def needed_from(self, group: GroupId, slot: Slot, current: int) -> int:
        """The lowest segment that may hold a record of the group for a slot above `slot`."""
        for number in range(self.oldest, current):
            if self.highs[number].get(group, 0) > slot:
                return number
        return current

    def free(self, until: Mapping[GroupId, Slot], below: int, current: int) -> range:
        """The oldest segments, below number `below`, that hold no slot above `until`."""
        oldest = self.oldest
        while oldest < min(below, current) and all(
            highest <= until.get(group, 0) for group, highest in self.highs[oldest].items()
        ):
            oldest += 1
        return range(self.oldest, oldest)

    def drop(self, freed: range) -> None:
        for number in freed:
            del self.highs[number], self.seeds[number], self.ends[number]
        self.oldest = freed.stop

    def forget(self, group: GroupId) -> None:
        """None of the group's records are needed any more."""
        for highs in self.highs.values():
            highs.pop(group, None)

    def repeated(self, damage: Iterable[tuple[Place, Place]]) -> list[tuple[Place, Place]]:
        """The damage that a new segment lists, so that a restart need not read older ones."""
        inside = (one for one in damage if one[0] >> OFFSET_BITS >= self.oldest)
        return sorted(inside)[-KNOWN_DAMAGE_MAX:]
