"""What a restart finds in the log, and the Wal goes on from."""

from typing import Final

import attrs

from paxos.ids import GroupId
from storage.format import ACCEPT, FLAG_FORGOTTEN, FLAG_SKIP, LEARNED, STATE, Place
from storage.log.index import GroupState
from storage.log.walk import Hole

SLOTTED: Final = (ACCEPT, LEARNED)
"""Kinds of records that hold the entry of a slot."""


@attrs.frozen(kw_only=True)
class Cut:
    """What recovery cut off: it was not synced, so it was never acknowledged."""

    file: str
    byte: int
    why: str
    records_after: int
    """Whole records found after the bad place, dropped with it."""


@attrs.define(eq=False)
class LogState:
    """The log as recovery found it; the Wal goes on from here."""

    number: int
    """The segment being written."""
    offset: int
    chain: int
    segment_end: int
    oldest: int
    highest_file: int
    groups: dict[GroupId, GroupState] = attrs.Factory(dict)
    highs: dict[int, dict[GroupId, int]] = attrs.Factory(dict)
    """For every closed segment, the highest slot each group had recorded when it was closed."""
    seeds: dict[int, int] = attrs.Factory(dict)
    ends: dict[int, int] = attrs.Factory(dict)
    """Where the records of every closed segment end."""
    retired: range = range(0)
    holes: list[Hole] = attrs.Factory(list)
    """All damage, old and new."""
    known_damage: set[tuple[Place, Place]] = attrs.Factory(set)
    """Damage that an earlier restart, or the running node, had found and dealt with."""
    states: dict[GroupId, list[tuple[Place, int]]] = attrs.Factory(dict)
    """Per group, the STATE records at heads of segments after the first damage: their places, and
    the highest slot of the group that was recorded by then."""
    records: int = 0
    bytes_read: int = 0
    cut: Cut | None = None
    started_at: int = 1
    """The segment from which it was read."""

    @property
    def new_damage(self) -> list[Hole]:
        return [hole for hole in self.holes if (hole.start, hole.end) not in self.known_damage]

    def costs_vote(self, hole: Hole, group: GroupState) -> bool:
        """Whether the hole may have cost a promise or a vote of the group; False only if the rest
        of the log proves that it has not (docs/adr/0046).

        *One record with an intact header.* The header has the ballot, so no promise is lost, and
        the slot: a vote for a slot that is proven to be chosen will not be asked for.

        *Records of any group.* The head of a later segment has the group's promise, so that is not
        lost, and its highest slot: if that is proven to be chosen, so is every slot that was voted
        for. (If the damaged record is such a head itself, there was no vote in it.)
        """
        if hole.group not in (None, group.group):
            return False
        if hole.kind in SLOTTED and hole.slot <= group.proven:
            return False
        a_head = hole.kind == STATE and not hole.flags & (FLAG_SKIP | FLAG_FORGOTTEN)
        return not any(
            place >= hole.end and (a_head or highest <= group.proven)
            for place, highest in self.states.get(group.group, ())
        )
