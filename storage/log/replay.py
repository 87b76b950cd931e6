"""Reading many entries of one group in their order, in large spans."""

from collections.abc import Iterator
from typing import Final, Protocol

from paxos.entry import Entry, EntryError, decode
from paxos.ids import GroupId, Slot
from storage.errors import WalDamaged
from storage.format import (
    OFFSET_BITS,
    OFFSET_MASK,
    RECORD,
    RECORD_HEADER_BYTES,
    Place,
    record_intact,
    segment_name,
)

GAP_BYTES: Final = 4096
"""Entries of a group closer than this are read together: a call costs more than the gap."""
SPAN_BYTES: Final = 1 << 20


class Records(Protocol):
    """What `replay` needs of the log."""

    def find(self, group: GroupId, slot: Slot) -> tuple[Place, int]: ...

    def read_span(self, position: Place, size: int) -> memoryview: ...

    def decode_record(
        self, record: memoryview, place: Place, group: GroupId, slot: Slot
    ) -> Entry: ...


def replay(
    log: Records, group: GroupId, start: Slot, end: Slot
) -> Iterator[tuple[Slot, Entry, Place]]:
    """See Wal.replay."""
    slot = start
    while slot <= end:
        run = _run(log, group, slot, end)
        first = run[0][0]
        size = run[-1][0] + RECORD_HEADER_BYTES + run[-1][1] - first
        # A copy: the newest batches stay in the memory tail, while the buffer they were read into
        # is to be used again (direct.py).
        data = memoryview(bytes(log.read_span(first, size)))
        for place, size in run:
            at = place - first
            record = data[at : at + RECORD_HEADER_BYTES + size]
            entry = log.decode_record(record, place, group, slot)
            yield slot, entry, place + RECORD_HEADER_BYTES
            slot = Slot(slot + 1)


def _run(log: Records, group: GroupId, slot: Slot, end: Slot) -> list[tuple[Place, int]]:
    """Records of consecutive slots, from `slot` on, that are worth reading together."""
    place, size = log.find(group, slot)
    run = [(place, size)]
    span_end = place + SPAN_BYTES
    while slot < end:
        reached = place + RECORD_HEADER_BYTES + size
        slot = Slot(slot + 1)
        place, size = log.find(group, slot)
        near = reached <= place <= reached + GAP_BYTES
        if not near or place + RECORD_HEADER_BYTES + size > span_end:
            break
        if place >> OFFSET_BITS != reached >> OFFSET_BITS:
            break
        run.append((place, size))
    return run


def decoded(record: memoryview, place: Place, seed: int, group: GroupId, slot: Slot) -> Entry:
    """The entry of a record, verified to be the one we wrote.

    Raises:
        WalDamaged: it is another one.
    """
    fields = RECORD.unpack_from(record)
    problem = "the checksum of the record here is wrong"
    if record_intact(record, place, seed) and (fields[9], fields[12]) == (group, slot):
        try:
            return decode(record[RECORD_HEADER_BYTES:])
        except EntryError as error:
            problem = f"the record here holds no entry: {error}"
    file, byte = segment_name(place >> OFFSET_BITS), place & OFFSET_MASK
    raise WalDamaged(file, byte, problem, group=group, slot=slot)
