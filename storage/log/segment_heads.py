"""What the head of a segment tells about everything before it, for segments that are not read.

A restart from checkpoints reads the log from the oldest segment that one of them needs. Older ones
are kept for the batches in them. For those it has to know what `retire` needs: the highest slot of
each group. The STATE records at the head of the next segment have it.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from paxos.ids import GroupId
from storage.disk.files import File
from storage.format import (
    DAMAGE,
    FLAG_FORGOTTEN,
    FLAG_SKIP,
    SEGMENT_HEADER_BYTES,
    STATE,
    Place,
    SegmentHeader,
)
from storage.log.walk import Cursor, walk

HEAD_WINDOW_BYTES: Final = 16 * 1024


@attrs.define(eq=False)
class Head:
    highs: dict[GroupId, int] = attrs.Factory(dict)
    """The highest slot of each group before this segment."""
    synced: Place = 0
    whole: bool = False
    """Whether it was read to its end; otherwise there may be more groups."""


def read_head(file: File, header: SegmentHeader, end: int | None) -> Head:
    """The head of a segment whose records end at `end`, None if that is unknown."""
    head = Head()
    cursor = Cursor(SEGMENT_HEADER_BYTES, header.seed, window_bytes=HEAD_WINDOW_BYTES)
    for fields in walk(file, header, cursor, end):
        _, _, _, kind, flags, _, _, _, synced, group, _, _, slot, _ = fields
        head.synced = max(head.synced, synced)
        if kind == STATE and not flags & (FLAG_SKIP | FLAG_FORGOTTEN):
            head.highs[GroupId(group)] = slot
        elif kind != DAMAGE:
            head.whole = True
            return head
    head.whole = cursor.offset == end
    return head


def start_of_scan(heads: Mapping[int, Head], oldest: int, slots: Mapping[GroupId, int]) -> int:
    """The highest segment before which no group has a slot above that of its checkpoint.

    For a group without a checkpoint every slot counts. A damaged head proves nothing.
    """
    start = oldest
    for number in sorted(heads):
        head = heads[number]
        if any(highest > slots.get(group, 0) for group, highest in head.highs.items()):
            break
        if head.whole:
            start = number
    return start


def highs_before(
    heads: Mapping[int, Head], oldest: int, start: int
) -> dict[int, dict[GroupId, int]]:
    """For the segments from `oldest` to the one before `start`: each group's highest slot then.

    If a head is damaged, it is that of a later one: a number that is too high keeps a segment
    longer, and does no other harm. If it was lower later, the group was forgotten in between.
    """
    highs: dict[int, dict[GroupId, int]] = {}
    later: dict[GroupId, int] = {}
    for number in range(start, oldest, -1):
        head = heads[number]
        found = dict(head.highs) if head.whole else later | head.highs
        for group, highest in later.items():
            if found.get(group, 0) > highest:
                found[group] = highest
        highs[number - 1] = later = found
    return highs
