"""Reading what is staged and not yet written, from the buffers themselves."""

from bisect import bisect_right

from paxos.entry import Buffer
from storage.errors import NotInLog
from storage.format import OFFSET_MASK, Place


def cut_out(
    places: list[Place], pieces: list[tuple[Buffer, ...]], start: Place, end: Place
) -> memoryview:
    """The bytes [start, end) of one segment from staged pieces, without a copy if one has them all.

    Raises:
        NotInLog: the segment ends before `end`.
    """
    found: list[Buffer] = []
    at = bisect_right(places, start) - 1
    place = places[at]
    while place < end:
        if at == len(places) or places[at] != place:
            raise NotInLog(f"the segment ends at byte {place & OFFSET_MASK}")
        for buffer in pieces[at]:
            behind = place + len(buffer)
            if place < end and behind > start:
                found.append(memoryview(buffer)[max(0, start - place) : end - place])
            place = behind
        at += 1
    return memoryview(found[0] if len(found) == 1 else b"".join(found))
