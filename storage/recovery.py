"""Reading the log back after a stop, a crash or a power cut (docs/storage-format.md, "Recovery").

The segments are read in order, and every record must carry its own place, the checksum of its
predecessor and a right checksum of its own. Where that ends is either the torn tail of a write that
nobody was ever told about, or damage to something this node has vouched for. The difference is one
comparison: everything below the last known synced place was durable, so

* the end lies below it: `WalDamaged`, the node refuses to start;
* otherwise: what follows is cut off. Whole records behind a bad one are legitimate there, for
  un-synced writes may survive in any subset of sectors; but each of them says what was synced when
  it was written, and one that proves the bad place synced turns the cut into a refusal.

The last known synced place is the highest of the mark (mark.py) and the `synced` fields of all
intact records, those behind the bad place included. (Protocol-aware recovery, Alagappan et al.,
FAST '18: distinguish a crash from corruption, or lose one or the other.)

Before the log is used again, the rest of the last segment and everything after it is made harmless,
durably, or a stale record could be taken for the successor of a new one.
"""

from collections.abc import Iterator
from typing import Final

import attrs
from crc32c import crc32c

from paxos.entry import ENTRY_BYTES_MAX
from paxos.ids import Ballot, GroupId, NodeId, Slot
from storage.disk import Disk, File, write_all
from storage.errors import DirectoryRefused, WalDamaged
from storage.format import (
    ACCEPT,
    CHECKSUM_BYTES,
    FLAG_VOTING,
    FLOOR,
    FORMAT_VERSION,
    LEARNED,
    MAGIC_OFFSET,
    OFFSET_BITS,
    OFFSET_MASK,
    PROMISE,
    RECORD,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RETIRE,
    SEGMENT_HEADER_BYTES,
    STATE,
    VOTING,
    Place,
    RecordFields,
    SegmentHeader,
    decode_floor,
    decode_segment_header,
    place_of,
    record_intact,
    segment_name,
    segment_number,
)
from storage.identity import Identity
from storage.index import LEARNED_BIT, SLOT_GAP_MAX, GroupState
from storage.segments import fill_with_zeros

WINDOW_BYTES: Final = 4 << 20
"""How much of a segment is read at once; a larger record is read whole."""

_MAGIC: Final = RECORD_MAGIC.to_bytes(2, "big")
_VOTES_PRUNE_MASK: Final = 4095
_PROMISING: Final = (ACCEPT, PROMISE)
_SLOTTED: Final = (ACCEPT, LEARNED)


@attrs.frozen(kw_only=True)
class Cut:
    """What recovery cut off: un-synced, so nobody was told about it."""

    file: str
    byte: int
    why: str
    records_after: int
    """Whole records found behind the bad place, dropped with it."""


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
    records: int = 0
    bytes_read: int = 0
    cut: Cut | None = None


@attrs.define(eq=False)
class _Cursor:
    offset: int
    chain: int
    why: str = ""


@attrs.define(eq=False)
class _Remains:
    """What looks like records of this segment behind its end."""

    headers: int = 0
    intact: int = 0
    synced: Place = 0


def walk(file: File, header: SegmentHeader, cursor: _Cursor) -> Iterator[RecordFields]:
    """The segment's records, as far as the chain is unbroken; the cursor says where and why not."""
    window = memoryview(b"")
    base = cursor.offset
    unpack = RECORD.unpack_from
    seed = header.seed
    place = place_of(header.number, cursor.offset)
    while True:
        at = cursor.offset - base
        if at + RECORD_HEADER_BYTES > len(window):
            base, at = cursor.offset, 0
            window = _read(file, base, min(WINDOW_BYTES, header.size - base))
            if len(window) < RECORD_HEADER_BYTES:
                cursor.why = "the file ends here"
                return
        fields: RecordFields = unpack(window, at)
        checksum, magic, _, _, size, previous, own_place, *_ = fields
        if magic != RECORD_MAGIC or own_place != place:
            cursor.why = "there is no record here"
            return
        if previous != cursor.chain:
            cursor.why = "the record here does not continue the one before it"
            return
        end = at + RECORD_HEADER_BYTES + size
        if size > ENTRY_BYTES_MAX or base + end > header.size:
            cursor.why = f"the record here claims {size} bytes"
            return
        if end > len(window):
            base, at, end = cursor.offset, 0, end - at
            window = _read(file, base, min(max(WINDOW_BYTES, end), header.size - base))
        if end > len(window) or crc32c(window[at + CHECKSUM_BYTES : end], seed) != checksum:
            cursor.why = "the checksum of the record here is wrong"
            return
        cursor.offset = base + end
        cursor.chain = checksum
        place += end - at
        yield fields


def _read(file: File, start: int, size: int) -> memoryview:
    return memoryview(file.pread(size, start)) if size > 0 else memoryview(b"")


def hunt(file: File, number: int, start: int, seed: int) -> _Remains:
    """Look for anything at or behind `start` that claims to be a record of this very segment."""
    remains = _Remains()
    base = start
    while len(window := file.pread(WINDOW_BYTES, base)) >= RECORD_HEADER_BYTES:
        resume = len(window) - RECORD_HEADER_BYTES + 1
        at = window.find(_MAGIC, MAGIC_OFFSET)
        while 0 <= at - MAGIC_OFFSET < resume:
            begin = at - MAGIC_OFFSET
            end = begin + 1
            fields: RecordFields = RECORD.unpack_from(window, begin)
            size, place, synced = fields[4], fields[6], fields[7]
            if place == place_of(number, base + begin):
                remains.headers += 1
                if size <= ENTRY_BYTES_MAX and record_intact(
                    _read(file, base + begin, RECORD_HEADER_BYTES + size), place, seed
                ):
                    remains.intact += 1
                    remains.synced = max(remains.synced, synced)
                    end = begin + RECORD_HEADER_BYTES + size
            if end >= resume:
                resume = end
                break
            at = window.find(_MAGIC, end + MAGIC_OFFSET)
        base += resume
    return remains


class Recovery:
    """One pass over the directory's segments; `run` is the whole story."""

    def __init__(self, disk: Disk, identity: Identity, known_synced: Place) -> None:
        self._disk = disk
        self._identity = identity
        self._known = known_synced
        self._headers: dict[int, SegmentHeader | None] = {}
        self._files: dict[int, File] = {}
        self._soiled: set[int] = set()
        """Segments behind the end that were written to: not to be taken for prepared ones."""

    def run(self, segment_bytes: int) -> LogState | None:
        """The recovered log, ready to be written to; None if it has never been made.

        Raises:
            WalDamaged: something that was vouched for is not there any more.
            DirectoryRefused: the segments are not this node's, or of another format.
        """
        self._open_all()
        if not any(self._headers.values()):
            if self._identity.has_log or self._known:
                raise WalDamaged(segment_name(1), 0, "the log that was here is gone")
            self._drop_unused(0, segment_bytes)
            return None
        log = self._scan()
        remains = self._judge(log)
        self._make_harmless(log, remains, segment_bytes)
        self._finish_retiring(log)
        return log

    def _open_all(self) -> None:
        numbers = []
        for name in self._disk.names():
            number = segment_number(name)
            if number is not None:
                numbers.append(number)
        for number in sorted(numbers):
            if self._headers and number - 1 not in self._headers:
                raise WalDamaged(segment_name(number - 1), 0, "the file is missing")
            file = self._disk.open(segment_name(number))
            header = decode_segment_header(file.pread(SEGMENT_HEADER_BYTES, 0))
            if header is not None:
                self._check_owner(header)
            self._files[number] = file
            self._headers[number] = header if header and header.number == number else None

    def _check_owner(self, header: SegmentHeader) -> None:
        name = segment_name(header.number)
        if header.version != FORMAT_VERSION:
            raise DirectoryRefused(
                f"{name} has format version {header.version}; this program reads {FORMAT_VERSION}: "
                "use the version of the program that wrote it"
            )
        if (header.cluster, header.node) != (self._identity.cluster, self._identity.node):
            raise DirectoryRefused(
                f"{name} was written by node {header.node} of cluster {header.cluster!r}, and this "
                f"is node {self._identity.node} of {self._identity.cluster!r}: segments of two "
                "nodes have been mixed"
            )
        if header.incarnation > self._identity.incarnation:
            raise DirectoryRefused(
                f"{name} was written in incarnation {header.incarnation}, but the identity file "
                f"says {self._identity.incarnation}: one of them is an old copy"
            )

    def _scan(self) -> LogState:
        """Follow the chain from the oldest segment as far as it goes."""
        number = min(self._headers)
        header = self._headers[number]
        if header is None:
            raise WalDamaged(segment_name(number), 0, "the segment's header is unreadable")
        log = LogState(number, 0, header.seed, header.size, 1, max(self._headers))
        while True:
            log.oldest = max(log.oldest, header.oldest)
            log.seeds[number] = header.seed
            cursor = _Cursor(SEGMENT_HEADER_BYTES, header.seed)
            for fields in walk(self._files[number], header, cursor):
                self._absorb(log, fields)
            log.number, log.segment_end = number, header.size
            log.offset, log.chain = cursor.offset, cursor.chain
            log.bytes_read += cursor.offset
            end = place_of(number, cursor.offset)
            following = self._headers.get(number + 1)
            if following is None or (following.seed, following.previous_end) != (log.chain, end):
                log.cut = Cut(
                    file=segment_name(number),
                    byte=cursor.offset,
                    why=cursor.why,
                    records_after=0,
                )
                return log
            log.ends[number] = cursor.offset
            log.highs[number] = {group: state.highest for group, state in log.groups.items()}
            number, header = number + 1, following

    def _absorb(self, log: LogState, fields: RecordFields) -> None:
        _, _, kind, flags, size, _, place, synced, group_id, node, round_, slot, applied = fields
        log.records += 1
        if synced > self._known:
            self._known = synced
        if kind == RETIRE:
            log.oldest = max(log.oldest, slot)
            return
        group = log.groups.get(GroupId(group_id))
        if group is None:
            group = log.groups[GroupId(group_id)] = GroupState(GroupId(group_id))
        group.applied = max(group.applied, applied)
        if kind in _SLOTTED and slot > group.highest + SLOT_GAP_MAX:
            raise _damaged(place, f"slot {slot} follows slot {group.highest}", fields)
        ballot = group.promised
        if (round_, node) != ballot:  # seldom: making a ballot is the dearest thing here
            ballot = Ballot(round_, NodeId(node))
        if kind in _PROMISING:
            if ballot < group.promised:
                raise _damaged(place, f"{ballot} follows a promise of {group.promised}", fields)
            group.promised = ballot
            if kind == ACCEPT:
                _absorb_vote(group, slot, ballot, place, size)
        elif kind == LEARNED:
            group.put(slot, place, size, LEARNED_BIT)
        elif kind == VOTING:
            group.voting, group.floor = bool(flags & FLAG_VOTING), ballot
        elif kind == STATE:
            self._absorb_state(group, fields)
        else:
            raise _damaged(place, f"a record of unknown kind {kind}", fields)

    def _absorb_state(self, group: GroupState, fields: RecordFields) -> None:
        flags, size, place, node, round_, slot = (fields[at] for at in (3, 4, 6, 9, 10, 11))
        number, offset = place >> OFFSET_BITS, place & OFFSET_MASK
        payload = self._files[number].pread(size, offset + RECORD_HEADER_BYTES)
        if size != FLOOR.size:
            raise _damaged(place, f"a state record of {size} bytes", fields)
        group.promised = max(group.promised, Ballot(round_, NodeId(node)))
        group.voting = bool(flags & FLAG_VOTING)
        group.floor = decode_floor(memoryview(payload))
        if number == min(self._files):  # what came before was retired with its segments
            group.first = slot + 1

    def _judge(self, log: LogState) -> _Remains:
        """Decide whether the end of the chain may be an end; what is behind it is returned."""
        remains = hunt(self._files[log.number], log.number, log.offset, log.seeds[log.number])
        for number in range(log.number + 1, log.highest_file + 1):
            header = self._headers[number]
            seed = header.seed if header else log.chain
            later = hunt(self._files[number], number, SEGMENT_HEADER_BYTES, seed)
            remains.intact += later.intact
            remains.synced = max(remains.synced, later.synced)
            if header is not None or later.headers:
                self._soiled.add(number)
        known = max(self._known, remains.synced)
        cut = log.cut
        assert cut is not None, "a scan ends somewhere"
        if place_of(log.number, log.offset) < known:
            fields = self._fields_at(log.number, log.offset)
            raise _damaged(
                place_of(log.number, log.offset),
                f"{cut.why}, but the log was durable up to {segment_name(known >> OFFSET_BITS)}, "
                f"byte {known & OFFSET_MASK}",
                fields,
            )
        self._known = known
        torn = remains.headers or self._soiled
        log.cut = attrs.evolve(cut, records_after=remains.intact) if torn else None
        return remains

    def _fields_at(self, number: int, offset: int) -> RecordFields | None:
        """The header of the bad record, if that much of it can be read."""
        data = self._files[number].pread(RECORD_HEADER_BYTES, offset)
        if len(data) < RECORD_HEADER_BYTES:
            return None
        fields: RecordFields = RECORD.unpack(data)
        whole = fields[1] == RECORD_MAGIC and fields[6] == place_of(number, offset)
        return fields if whole else None

    def _make_harmless(self, log: LogState, remains: _Remains, segment_bytes: int) -> None:
        """Durably: nothing behind the end looks like ours, and nothing before it is un-synced."""
        self._drop_unused(log.number, segment_bytes)
        log.highest_file = max(self._files)
        last = self._files[log.number]
        if remains.headers:
            fill_with_zeros(last, log.offset, log.segment_end)
        elif last.size() < log.segment_end:
            fill_with_zeros(last, last.size(), log.segment_end)
        self._write_again(log)
        self._disk.sync_directory()

    def _write_again(self, log: LogState) -> None:
        """Make what was found beyond the last known synced place durable, by writing it once more.

        An fdatasync alone would not do: after a failed one the kernel keeps the pages, readable and
        marked clean, and a second one "succeeds" without them ("fsyncgate").
        """
        for number in range(max(min(self._files), self._known >> OFFSET_BITS), log.number + 1):
            file = self._files[number]
            begun_here = number == self._known >> OFFSET_BITS
            start = self._known & OFFSET_MASK if begun_here else 0
            end = log.offset if number == log.number else log.ends[number]
            while start < end:
                piece = file.pread(min(WINDOW_BYTES, end - start), start)
                write_all(file, [piece], start)
                start += len(piece)
            file.fdatasync()

    def _drop_unused(self, last: int, segment_bytes: int) -> None:
        """Remove, from the top down, the files behind `last` that cannot be used as they are.

        What stays is a file prepared in time: of the right size, never begun.
        """
        for number in sorted(self._files, reverse=True):
            if number <= last:
                break
            wrong_size = self._files[number].size() != segment_bytes
            if number in self._soiled or number > last + 1 or wrong_size:
                self._disk.remove(segment_name(number))
                self._disk.sync_directory()
                del self._files[number], self._headers[number]

    def _finish_retiring(self, log: LogState) -> None:
        """Forget what the log itself says is no longer needed; refuse if more than that is gone."""
        lowest = min(self._files)
        if lowest > log.oldest:
            raise WalDamaged(segment_name(lowest - 1), 0, "the file is missing")
        if log.oldest > log.number:
            what = f"the log says that segments up to {log.oldest - 1} are no longer needed"
            raise WalDamaged(segment_name(log.number), 0, what)
        if lowest < log.oldest:
            for group, highest in log.highs[log.oldest - 1].items():
                log.groups[group].forget_through(highest)
            log.retired = range(lowest, log.oldest)
            for number in log.retired:
                del log.highs[number], log.seeds[number]
        for state in log.groups.values():
            state.applied = max(state.applied, state.first - 1)  # retired, hence applied
            _prune(state)


def _absorb_vote(group: GroupState, slot: int, ballot: Ballot, place: Place, size: int) -> None:
    group.put(slot, place, size, 0)
    votes = group.votes
    votes[slot] = (ballot, place, size)
    if not len(votes) & _VOTES_PRUNE_MASK:
        _prune(group)


def _prune(group: GroupState) -> None:
    """Votes of applied slots are decided: nobody will ask for them."""
    applied = group.applied
    group.votes = {slot: vote for slot, vote in group.votes.items() if slot > applied}


def _damaged(place: Place, what: str, fields: RecordFields | None) -> WalDamaged:
    file, byte = segment_name(place >> OFFSET_BITS), place & OFFSET_MASK
    if fields is None:
        return WalDamaged(file, byte, what)
    return WalDamaged(file, byte, what, group=GroupId(fields[8]), slot=Slot(fields[11]))
