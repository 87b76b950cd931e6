"""Reading a segment record by record, and past what is damaged in it.

A restart, the scrubber and `evenkeel data verify` all read this way, so they find the same damage
under the same name: a `Hole`, from the place where the chain of records breaks to the place where
it can be taken up again.

The header of a damaged record tells whose it was, because it has a checksum of its own: then
exactly one slot of one group is lost. If the header is damaged as well, by more than one byte
(header_repair.py), the hole goes up to the next intact header, and what was in it is anybody's
guess. (Protocol-aware recovery, Alagappan et al., FAST '18: tell a crash from corruption, and know
what was lost by an identifier that is checked apart from the content.)
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs
from crc32c import crc32c

from paxos.entry import ENTRY_BYTES_MAX, Buffer
from paxos.ids import SLOT_ZERO, Ballot, GroupId, NodeId, Slot
from storage.disk.files import File, read_around
from storage.format import (
    CHECKSUMS_BYTES,
    DAMAGE,
    MAGIC_OFFSET,
    OFFSET_BITS,
    OFFSET_MASK,
    RECORD,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    Place,
    RecordFields,
    SegmentHeader,
    header_intact,
    place_of,
    record_intact,
    segment_name,
)
from storage.log.header_repair import repaired_header

WINDOW_BYTES: Final = 4 << 20
"""How much of a segment is read at once; a larger record is read whole."""

_MAGIC: Final = RECORD_MAGIC.to_bytes(2, "big")


@attrs.define(eq=False)
class Cursor:
    """Where a walk is. `chain` is the checksum of the record before; None: right after a hole."""

    offset: int
    chain: int | None
    why: str = ""
    """Why the walk ended here."""
    window_bytes: int = WINDOW_BYTES


@attrs.frozen
class Hole:
    """Damage from `start` to `end`, both places of one segment.

    `group` is None if nobody knows whose records were there. Otherwise it and the fields after it
    come from the intact header of the one damaged record.
    """

    start: Place
    end: Place
    why: str
    group: GroupId | None = None
    kind: int = 0
    slot: Slot = SLOT_ZERO
    ballot: Ballot | None = None
    applied: int = 0
    flags: int = 0
    foreign: bool = False
    """Not a damaged record: intact records of two different histories follow each other."""

    @property
    def file(self) -> str:
        return segment_name(self.start >> OFFSET_BITS)

    @property
    def byte(self) -> int:
        return self.start & OFFSET_MASK

    def __str__(self) -> str:
        whose = "" if self.group is None else f" (group {self.group}, slot {self.slot})"
        return f"{self.file}, byte {self.byte}{whose}: {self.why}"


@attrs.define(eq=False)
class StrayRecords:
    """What looks like records of this segment after its end."""

    headers: int = 0
    intact: int = 0
    synced: Place = 0
    notes: list[tuple[Place, tuple[Place, Place], bytes]] = attrs.Factory(list)
    """Of each DAMAGE record: its place, the damage, and the note (damage_notes.py)."""


def walk(
    file: File, header: SegmentHeader, cursor: Cursor, until: int | None = None
) -> Iterator[RecordFields]:
    """The segment's records, as far as the chain is unbroken; the cursor tells where and why it
    ended.

    A record without a payload is intact if its header is: then only its checksum was damaged.
    """
    window = memoryview(b"")
    base = cursor.offset
    unpack = RECORD.unpack_from
    seed = header.seed
    stop = header.size if until is None else until
    while True:
        offset = cursor.offset
        at = offset - base
        if offset >= stop:
            cursor.why = "the end"
            return
        if at + RECORD_HEADER_BYTES > len(window):
            base, at = offset, 0
            window = _read(file, base, min(cursor.window_bytes, header.size - base))
            if len(window) < RECORD_HEADER_BYTES:
                cursor.why = "the file ends here"
                return
        fields: RecordFields = unpack(window, at)
        checksum, header_checksum, magic, _, _, size, previous, own_offset, *_ = fields
        if magic != RECORD_MAGIC or own_offset != offset:
            cursor.why = "there is no record here"
            return
        if previous != cursor.chain and cursor.chain is not None:
            cursor.why = "the record here does not continue the one before it"
            return
        end = at + RECORD_HEADER_BYTES + size
        if size > ENTRY_BYTES_MAX or base + end > header.size:
            cursor.why = f"the record here claims {size} bytes"
            return
        if end > len(window):
            base, at, end = offset, 0, end - at
            window = _read(file, base, min(max(cursor.window_bytes, end), header.size - base))
        if end > len(window) or crc32c(window[at + CHECKSUMS_BYTES : end], seed) != checksum:
            if size or not header_intact(window[at:end], offset, seed):
                cursor.why = "the checksum of the record here is wrong"
                return
            checksum = header_checksum
        cursor.offset = base + end
        cursor.chain = checksum
        yield fields


def skip(file: File, header: SegmentHeader, cursor: Cursor, limit: int) -> Hole:
    """Move the cursor past the damage it is at, to `limit` at the furthest.

    `limit` is where the last record that is known to have been there ended.
    """
    number, start, why = header.number, cursor.offset, cursor.why
    place = place_of(number, start)
    fields = _whose(file, header, cursor)
    if fields is not None:
        kind, size, previous = fields[3], fields[5], fields[6]
        if cursor.chain is not None and previous != cursor.chain:
            return Hole(place, place, why, foreign=True)
        cursor.offset = min(start + RECORD_HEADER_BYTES + size, header.size)
        cursor.chain = None
        return Hole(
            place,
            place_of(number, cursor.offset),
            why,
            GroupId(fields[9]),
            kind,
            Slot(fields[12]),
            Ballot(fields[11], NodeId(fields[10])),
            fields[13],
            fields[4],
        )
    following = next_header(file, header, start + 1, limit)
    cursor.offset = limit if following is None else following
    cursor.chain = None
    return Hole(place, place_of(number, cursor.offset), why)


def _whose(file: File, header: SegmentHeader, cursor: Cursor) -> RecordFields | None:
    """The header of the damaged record, perhaps with one damaged byte repaired; None if unknown."""
    head = memoryview(read_around(file, RECORD_HEADER_BYTES, cursor.offset))
    if len(head) == RECORD_HEADER_BYTES and header_intact(head, cursor.offset, header.seed):
        fields: RecordFields = RECORD.unpack(head)
        return fields
    return repaired_header(file, cursor.offset, header.seed, cursor.chain, header.size)


def survey(
    file: File, header: SegmentHeader, cursor: Cursor, limit: int
) -> Iterator[RecordFields | Hole]:
    """Records and damage of a segment that is known to hold records up to `limit`."""
    limit = min(limit, header.size)
    while cursor.offset < limit:
        yield from walk(file, header, cursor, limit)
        if cursor.offset >= limit:
            return
        hole = skip(file, header, cursor, limit)
        if hole.foreign:  # the chain is broken here: go on without it
            cursor.chain = None
        yield hole


def agrees(file: File, seed: int, start: int, size: int, chunks: Sequence[Buffer]) -> bool | None:
    """Whether the record at `start`, now damaged, held this payload; None: nobody can tell.

    Its checksum is in the record itself, where it may be what was damaged, and in the next one.
    """
    head = memoryview(read_around(file, RECORD_HEADER_BYTES, start))
    if len(head) < RECORD_HEADER_BYTES or not header_intact(head, start, seed):
        return None
    checksum = crc32c(head[CHECKSUMS_BYTES:], seed)
    for chunk in chunks:
        checksum = crc32c(chunk, checksum)
    fields: RecordFields = RECORD.unpack(head)
    if checksum == fields[0]:
        return True
    behind = start + RECORD_HEADER_BYTES + size
    following = memoryview(read_around(file, RECORD_HEADER_BYTES, behind))
    if len(following) < RECORD_HEADER_BYTES or not header_intact(following, behind, seed):
        return None
    said: RecordFields = RECORD.unpack(following)
    return checksum == said[6]


def next_header(file: File, header: SegmentHeader, start: int, stop: int) -> int | None:
    """The first offset from `start` on, below `stop`, with an intact record header."""
    for begin, head in _candidates(file, start, stop):
        if header_intact(head, begin, header.seed):
            return begin
    return None


def find_stray(file: File, number: int, start: int, seed: int) -> StrayRecords:
    """Look for anything from `start` on that could be a record of this very segment."""
    stray = StrayRecords()
    behind = start
    for begin, head in _candidates(file, start, file.size()):
        if begin < behind or not header_intact(head, begin, seed):
            continue  # within an intact record, or left from this file's earlier use
        fields: RecordFields = RECORD.unpack(head)
        kind, size, synced = fields[3], fields[5], fields[8]
        stray.headers += 1
        if size > ENTRY_BYTES_MAX:
            continue
        record, place = _read(file, begin, RECORD_HEADER_BYTES + size), place_of(number, begin)
        if record_intact(record, place, seed):
            stray.intact += 1
            stray.synced = max(stray.synced, synced)
            behind = begin + RECORD_HEADER_BYTES + size
            if kind == DAMAGE and size:
                note = bytes(record[RECORD_HEADER_BYTES:])
                stray.notes.append((place, (fields[12], fields[13]), note))
    return stray


def _candidates(file: File, start: int, stop: int) -> Iterator[tuple[int, memoryview]]:
    """Everything in [start, stop) with a record's magic and its own offset."""
    base = start
    while (
        len(window := read_around(file, WINDOW_BYTES, base)) >= RECORD_HEADER_BYTES and base < stop
    ):
        resume = len(window) - RECORD_HEADER_BYTES + 1
        view = memoryview(window)
        at = window.find(_MAGIC, MAGIC_OFFSET)
        while 0 <= at - MAGIC_OFFSET < resume:
            begin = at - MAGIC_OFFSET
            if base + begin >= stop:
                return
            head = view[begin : begin + RECORD_HEADER_BYTES]
            if RECORD.unpack(head)[7] == base + begin:
                yield base + begin, head
            at = window.find(_MAGIC, at + 1)
        base += resume


def _read(file: File, start: int, size: int) -> memoryview:
    return memoryview(read_around(file, size, start)) if size > 0 else memoryview(b"")
