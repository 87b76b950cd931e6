"""Reading the log back after a stop, a crash or a power cut (docs/storage-format.md, "Recovery").

The segments are read in order, and every record must carry its own place, the checksum of its
predecessor and a correct checksum of its own. Where that ends there is either the torn tail of a
write that was never acknowledged, or damage to something this node has vouched for. One comparison
tells them apart: everything below the last known synced place was durable, so

* if the end lies at or above it, what follows is cut off. Whole records after a bad one are
  legitimate there, for un-synced writes may survive in any subset of sectors. But each of them has
  what was synced when it was written, and one that proves the bad place synced turns it into
* damage: reading goes on after it (walk.py). Entries that may have been in the damaged part are no
  longer read, and groups that may have lost a promise or a vote become non-voting: they learn what
  is missing from their peers (docs/storage-format.md, "Damage").

The last known synced place is the highest of the mark (synced_mark.py) and the `synced` fields of
all intact records, also those after the bad place. (Protocol-aware recovery, Alagappan et al.,
FAST '18: distinguish a crash from corruption, or lose one or the other.)

A log that cannot be read, or contradicts itself, is refused: a segment's header or file is gone, or
two histories are in one log.

If there are checkpoints, the log is read from the oldest segment that one of them needs, and of
older ones only the heads (segment_heads.py). Damage there is found when the data is read.

Before the log is used again, the rest of the last segment and everything after it is made harmless,
durably, or a stale record could be taken for the successor of a new one.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from paxos.ids import Ballot, GroupId, NodeId, Slot
from storage.disk.direct import BLOCK_BYTES, whole_blocks
from storage.disk.files import Disk, File, read_around, write_all
from storage.errors import UNREADABLE, DirectoryRefused, StorageFailed, WalDamaged
from storage.format import (
    ACCEPT,
    DAMAGE,
    FLAG_FORGOTTEN,
    FLAG_SKIP,
    FLAG_VOTING,
    FLOOR,
    FORMAT_VERSION,
    LEARNED,
    OFFSET_BITS,
    OFFSET_MASK,
    PROMISE,
    READABLE_VERSIONS,
    RECORD,
    RECORD_HEADER_BYTES,
    RETIRE,
    SEGMENT_HEADER_BYTES,
    STATE,
    VOTING,
    Place,
    RecordFields,
    SegmentHeader,
    decode_floor,
    decode_segment_header,
    header_intact,
    place_of,
    segment_name,
    segment_number,
)
from storage.identity import Identity
from storage.log import damage_notes
from storage.log.damage_notes import Untouched
from storage.log.index import LEARNED_BIT, SLOT_GAP_MAX, GroupState
from storage.log.log_state import SLOTTED, Cut, LogState
from storage.log.segment_heads import Head, highs_before, read_head, start_of_scan
from storage.log.segments import fill_with_zeros
from storage.log.walk import (
    WINDOW_BYTES,
    Cursor,
    Hole,
    StrayRecords,
    find_stray,
    skip,
    survey,
    walk,
)

_VOTES_PRUNE_MASK: Final = 4095
_PROMISING: Final = (ACCEPT, PROMISE)
_OF_NO_GROUP: Final = (RETIRE, DAMAGE)


class Recovery:
    """One pass over the directory's segments; `run` is the whole story."""

    def __init__(
        self,
        disk: Disk,
        identity: Identity,
        known_synced: Place,
        bases: Mapping[GroupId, tuple[Slot, int]],
        *,
        whole: bool = False,
    ) -> None:
        self._disk = disk
        self._identity = identity
        self._known = known_synced
        self._bases = bases
        """For groups with a checkpoint: its slot, and the segment from which it needs the log."""
        self._whole = whole
        """Read all of it, whatever the checkpoints need."""
        self._heads: dict[int, Head] = {}
        self._searched = False
        """Whether `_known` takes the whole log into account, also what lies after damage."""
        self._notes: dict[tuple[Place, Place], Untouched] = {}
        """For damage that may concern any group, the note of the life that found it."""
        self._headers: dict[int, SegmentHeader | None] = {}
        self._files: dict[int, File] = {}
        self._dirty: set[int] = set()
        """Segments after the end that were written to: not to be taken for prepared ones."""

    def run(self, segment_bytes: int) -> LogState | None:
        """The recovered log, ready to be written to; None if it has never been made.

        Raises:
            WalDamaged: something this node has vouched for is gone, and it cannot tell what.
            DirectoryRefused: the segments are not this node's, or of another format.
        """
        self._open_all()
        if not any(self._headers.values()):
            self._check_never_made()
            self._drop_unused(0, segment_bytes)
            return None
        log = self._scan()
        stray = self._judge(log)
        self._make_harmless(log, stray, segment_bytes)
        self._finish_retiring(log)
        return log

    def examine(self) -> LogState | None:
        """As `run`, but without writing anything."""
        self._open_all()
        if not any(self._headers.values()):
            self._check_never_made()
            return None
        log = self._scan()
        self._judge(log)
        self._finish_retiring(log)
        return log

    def _check_never_made(self) -> None:
        if self._identity.has_log or self._known:
            raise WalDamaged(segment_name(1), 0, "the log that was here is gone")

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
            header = decode_segment_header(read_around(file, SEGMENT_HEADER_BYTES, 0))
            if header is not None:
                self._check_owner(header)
            self._files[number] = file
            self._headers[number] = header if header and header.number == number else None

    def _check_owner(self, header: SegmentHeader) -> None:
        name = segment_name(header.number)
        if header.version not in READABLE_VERSIONS:
            raise DirectoryRefused(
                f"{name} has format version {header.version}; this program reads {FORMAT_VERSION} "
                "and the one before: use the version of the program that wrote it"
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
        """Follow the chain from the oldest segment that is needed as far as it goes, past any
        damage."""
        oldest = min(self._headers)
        self._check_header(oldest)
        number = self._choose_start(oldest)
        header = self._check_header(number)
        log = LogState(number, 0, header.seed, header.size, 1, max(self._headers))
        log.started_at = number
        for group, (slot, _) in self._bases.items():
            log.groups[group] = GroupState(group, first=slot + 1, applied=slot)
        for older in range(oldest, number):
            log.seeds[older] = self._check_header(older).seed
            log.ends[older] = self._check_header(older + 1).previous_end & OFFSET_MASK
        log.highs |= highs_before(self._heads, oldest, number)
        while True:
            cursor = self._scan_segment(log, header)
            log.number, log.segment_end = number, header.size
            log.offset, log.chain = cursor.offset, cursor.chain or 0
            log.bytes_read += cursor.offset
            following = self._headers.get(number + 1)
            goes_on = following is not None and _continues(following, number, cursor)
            if not goes_on and place_of(number + 1, 0) >= self._known:
                log.cut = Cut(
                    file=segment_name(number), byte=cursor.offset, why=cursor.why, records_after=0
                )
                return log
            if following is None:
                raise WalDamaged(segment_name(number + 1), 0, "the segment's header is unreadable")
            log.ends[number] = cursor.offset
            log.highs[number] = {group: state.highest for group, state in log.groups.items()}
            number, header = number + 1, following

    def _check_header(self, number: int) -> SegmentHeader:
        header = self._headers[number]
        if header is None:
            raise WalDamaged(segment_name(number), 0, "the segment's header is unreadable")
        return header

    def _choose_start(self, oldest: int) -> int:
        """The segment to read from; `_known` takes all heads into account afterwards."""
        if self._whole or not self._bases:
            return oldest
        for number in range(oldest + 1, max(self._headers) + 1):
            header, following = self._headers[number], self._headers.get(number + 1)
            if header is None:
                break
            if header.previous_end >> OFFSET_BITS != number - 1:
                what = "it does not continue the one before it"
                raise WalDamaged(segment_name(number), 0, what)
            end = following.previous_end & OFFSET_MASK if following else None
            head = self._heads[number] = read_head(self._files[number], header, end)
            self._known = max(self._known, head.synced)
        # The end of the log is at or after the last synced place: only there may it be torn.
        last = min(self._known >> OFFSET_BITS, *(needs for _, needs in self._bases.values()))
        heads = {number: head for number, head in self._heads.items() if number <= last}
        slots = {group: slot for group, (slot, _) in self._bases.items()}
        return start_of_scan(heads, oldest, slots)

    def _scan_segment(self, log: LogState, header: SegmentHeader) -> Cursor:
        """Scan one segment, noting damage; the returned cursor is where its records end."""
        number, file = header.number, self._files[header.number]
        log.oldest = max(log.oldest, header.oldest)
        log.seeds[number] = header.seed
        following = self._headers.get(number + 1)
        cursor = Cursor(SEGMENT_HEADER_BYTES, header.seed)
        while True:
            for fields in walk(file, header, cursor):
                self._absorb(log, header, fields)
            if following is not None and _continues(following, number, cursor):
                return cursor
            self._search_behind(number, cursor)
            if place_of(number, cursor.offset) >= self._known:
                return cursor
            limit = self._limit(number, following)
            if limit > header.size or cursor.offset > limit:
                raise self._refused(number, cursor)
            if cursor.offset == limit:
                if following is None or cursor.chain is not None:
                    raise self._refused(number, cursor)
                return cursor
            hole = skip(file, header, cursor, limit)
            if hole.foreign:
                raise self._refused(number, cursor)
            self._absorb_hole(log, hole)

    def _limit(self, number: int, following: SegmentHeader | None) -> int:
        """The offset up to which this segment held durable records, some of which are damaged."""
        if self._known >> OFFSET_BITS == number:
            return self._known & OFFSET_MASK
        if following is None:
            raise WalDamaged(segment_name(number + 1), 0, "the segment's header is unreadable")
        if following.previous_end >> OFFSET_BITS != number:
            raise WalDamaged(segment_name(number + 1), 0, "it does not continue the one before it")
        return following.previous_end & OFFSET_MASK

    def _refused(self, number: int, cursor: Cursor) -> WalDamaged:
        known = self._known
        return _damaged(
            place_of(number, cursor.offset),
            f"{cursor.why}, but the log was durable up to {segment_name(known >> OFFSET_BITS)}, "
            f"byte {known & OFFSET_MASK}: two histories have been mixed",
            self._fields_at(number, cursor.offset),
        )

    def _search_behind(self, number: int, cursor: Cursor) -> None:
        """Take into account what is left after the first break of the chain, to the very end."""
        if self._searched:
            return
        header = self._headers[number]
        assert header is not None
        found = [find_stray(self._files[number], number, cursor.offset, header.seed)]
        later = range(number + 1, max(self._headers) + 1)
        found += [self._search_segment(each, cursor.chain or 0) for each in later]
        self._known = max(self._known, *(stray.synced for stray in found))
        self._notes = {
            damage: damage_notes.decode(note)
            for stray in found
            for place, damage, note in stray.notes
            if place < self._known  # otherwise a record before it may have been cut off
        }
        self._searched = True

    def _search_segment(self, number: int, chain: int) -> StrayRecords:
        header = self._headers[number]
        seed = header.seed if header else chain
        return find_stray(self._files[number], number, SEGMENT_HEADER_BYTES, seed)

    def _absorb(self, log: LogState, header: SegmentHeader, fields: RecordFields) -> None:
        (_, _, _, kind, flags, size, _, offset, synced, group_id, node, round_, slot, applied) = (
            fields
        )
        place = header.number << OFFSET_BITS | offset
        log.records += 1
        if synced > self._known:
            self._known = synced
        if kind in _OF_NO_GROUP:
            _absorb_own(log, kind, slot, applied)
            return
        group = log.groups.get(GroupId(group_id))
        if group is None:
            group = log.groups[GroupId(group_id)] = GroupState(GroupId(group_id))
        group.applied = max(group.applied, applied)
        if kind in SLOTTED and slot > group.highest + SLOT_GAP_MAX:
            raise _damaged(place, f"slot {slot} follows slot {group.highest}", fields)
        ballot = group.promised
        if (round_, node) != ballot:  # rarely: making a ballot is the most expensive thing here
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
            self._absorb_state(log, group, place, fields)
        else:
            raise _damaged(place, f"a record of unknown kind {kind}", fields)

    def _absorb_state(
        self, log: LogState, group: GroupState, place: Place, fields: RecordFields
    ) -> None:
        flags, size, node, round_, slot = (fields[at] for at in (4, 5, 10, 11, 12))
        number, offset = place >> OFFSET_BITS, place & OFFSET_MASK
        payload = self._files[number].pread(size, offset + RECORD_HEADER_BYTES)
        if size != FLOOR.size:
            raise _damaged(place, f"a state record of {size} bytes", fields)
        group.promised = max(group.promised, Ballot(round_, NodeId(node)))
        group.voting = bool(flags & FLAG_VOTING)
        group.floor = decode_floor(memoryview(payload))
        if flags & FLAG_FORGOTTEN:
            group.forget_all()
            for highs in log.highs.values():
                highs.pop(group.group, None)
            log.states.pop(group.group, None)
            return
        if log.holes and not flags & FLAG_SKIP:
            log.states.setdefault(group.group, []).append((place, slot))
        if flags & FLAG_SKIP or number == log.started_at:  # what came before is not needed, or gone
            group.forget_through(slot)

    def _absorb_hole(self, log: LogState, hole: Hole) -> None:
        """Forget what the lost records may have changed."""
        log.holes.append(hole)
        if hole.group is None:
            untouched = self._notes.get((hole.start, hole.end), {})
            for state in log.groups.values():
                state.lose_open(untouched.get(state.group, ()))
            return
        group = log.groups.get(hole.group)
        if group is None:
            group = log.groups[hole.group] = GroupState(hole.group)
        assert hole.ballot is not None
        group.applied = max(group.applied, hole.applied)
        group.promised = max(group.promised, hole.ballot)
        if hole.kind in SLOTTED:
            group.lose(hole.slot, hole.ballot if hole.kind == ACCEPT else None)
        elif hole.kind == STATE and hole.start >> OFFSET_BITS == log.started_at:
            group.forget_through(hole.slot)

    def _judge(self, log: LogState) -> StrayRecords:
        """Find out whether something has to be cut off at the end of the chain, and what."""
        stray = find_stray(self._files[log.number], log.number, log.offset, log.seeds[log.number])
        for number in range(log.number + 1, log.highest_file + 1):
            later = self._search_segment(number, log.chain)
            stray.intact += later.intact
            if self._headers[number] is not None or later.headers:
                self._dirty.add(number)
        cut = log.cut
        assert cut is not None, "a scan ends somewhere"
        torn = stray.headers or self._dirty
        log.cut = attrs.evolve(cut, records_after=stray.intact) if torn else None
        return stray

    def _fields_at(self, number: int, offset: int) -> RecordFields | None:
        """The header of the bad record, if that much of it can be read."""
        data = read_around(self._files[number], RECORD_HEADER_BYTES, offset)
        if len(data) < RECORD_HEADER_BYTES:
            return None
        fields: RecordFields = RECORD.unpack(data)
        header = self._headers[number]
        assert header is not None
        return fields if header_intact(memoryview(data), offset, header.seed) else None

    def _make_harmless(self, log: LogState, stray: StrayRecords, segment_bytes: int) -> None:
        """See to it, durably, that nothing after the end looks like ours and all before it is
        synced."""
        self._drop_unused(log.number, segment_bytes)
        log.highest_file = max(self._files)
        last = self._files[log.number]
        self._write_again(log)
        if stray.headers:
            fill_with_zeros(last, log.offset, log.segment_end)
        elif last.size() < log.segment_end:
            fill_with_zeros(last, last.size(), log.segment_end)
        self._disk.sync_directory()

    def _write_again(self, log: LogState) -> None:
        """Make what was found beyond the last known synced place durable, by writing it once more.

        An fdatasync alone is not enough: after a failed one the kernel keeps the pages, readable
        and marked clean, and a second one "succeeds" without them ("fsyncgate").
        """
        for number in range(max(log.started_at, self._known >> OFFSET_BITS), log.number + 1):
            file = self._files[number]
            begun_here = number == self._known >> OFFSET_BITS
            start = self._known & OFFSET_MASK if begun_here else 0
            end = log.offset if number == log.number else log.ends[number]
            # Whole blocks: an unreadable block can only be overwritten as a whole.
            start, end = start - start % BLOCK_BYTES, min(whole_blocks(end), file.size())
            while start < end:
                piece = self._piece(log, number, start, min(WINDOW_BYTES, end - start))
                write_all(file, [piece], start)
                start += len(piece)
            file.fdatasync()

    def _piece(self, log: LogState, number: int, start: int, size: int) -> bytes:
        """What to write again, with zeros for what cannot be read, provided that the scan read
        zeros too: then it is known damage, or covered by a checksum. New damage is not written
        over."""
        file = self._files[number]
        try:
            return file.pread(size, start)
        except StorageFailed as failure:
            if failure.errno not in UNREADABLE:
                raise
            if size > BLOCK_BYTES:
                return self._piece(log, number, start, BLOCK_BYTES)
            if not self._is_as_found(log, number):
                raise
        return bytes(size)

    def _is_as_found(self, log: LogState, number: int) -> bool:
        """Whether scanning a segment again finds the same damage."""
        header = self._headers[number]
        assert header is not None
        end = log.offset if number == log.number else log.ends[number]
        found = survey(self._files[number], header, Cursor(SEGMENT_HEADER_BYTES, header.seed), end)
        holes = [(item.start, item.end) for item in found if isinstance(item, Hole)]
        before = [(hole.start, hole.end) for hole in log.holes]
        return holes == [hole for hole in before if hole[0] >> OFFSET_BITS == number]

    def _drop_unused(self, last: int, segment_bytes: int) -> None:
        """Remove, from the highest down, the files after `last` that cannot be used as they are.

        A file that was prepared ahead stays: it has the right size and was never begun.
        """
        for number in sorted(self._files, reverse=True):
            if number <= last:
                break
            wrong_size = self._files[number].size() != segment_bytes
            if number in self._dirty or number > last + 1 or wrong_size:
                self._disk.remove(segment_name(number))
                self._disk.sync_directory()
                del self._files[number], self._headers[number]

    def _finish_retiring(self, log: LogState) -> None:
        """Forget what the log marks as no longer needed; refuse if more than that is gone."""
        lowest = min(self._files)
        if lowest > log.oldest:
            # Damage may have hit the very record that retired it. But a node that took a lost file
            # for a retired one would count slots as applied that were never applied here.
            raise WalDamaged(segment_name(lowest - 1), 0, "the file is missing")
        if log.oldest > log.number:
            what = f"the log says that segments up to {log.oldest - 1} are no longer needed"
            raise WalDamaged(segment_name(log.number), 0, what)
        if lowest < log.oldest:
            for group, highest in log.highs[log.oldest - 1].items():
                log.groups[group].forget_through(self._surely_retired(log, group, highest))
            log.retired = range(lowest, log.oldest)
            for number in log.retired:
                del log.highs[number], log.seeds[number], log.ends[number]
        for state in log.groups.values():
            base, _ = self._bases.get(state.group, (0, 0))
            state.found_on(base)
            _prune(state, state.proven)

    def _surely_retired(self, log: LogState, group: GroupId, highest: int) -> int:
        """`highest`, or no more than the checkpoint's slot if it comes from a damaged head: that
        may be too high."""
        head = self._heads.get(log.oldest)
        if log.oldest <= log.started_at and head is not None and not head.whole:
            return min(highest, self._bases.get(group, (0, 0))[0])
        return highest


def _absorb_own(log: LogState, kind: int, slot: int, applied: int) -> None:
    """Take in a record that the log wrote about itself."""
    if kind == RETIRE:
        log.oldest = max(log.oldest, slot)
    else:
        log.known_damage.add((slot, applied))


def _absorb_vote(group: GroupState, slot: int, ballot: Ballot, place: Place, size: int) -> None:
    group.put(slot, place, size, 0)
    votes = group.votes
    votes[slot] = (ballot, place, size)
    if not len(votes) & _VOTES_PRUNE_MASK:
        _prune(group, group.applied)


def _continues(following: SegmentHeader, number: int, cursor: Cursor) -> bool:
    """Whether nothing is missing between the cursor and the next segment."""
    if following.previous_end != place_of(number, cursor.offset):
        return False
    return cursor.chain is None or following.seed == cursor.chain


def _prune(group: GroupState, applied: int) -> None:
    """Drop the votes of applied slots: they are decided, and nobody will ask for them."""
    group.votes = {slot: vote for slot, vote in group.votes.items() if slot > applied}


def _damaged(place: Place, what: str, fields: RecordFields | None) -> WalDamaged:
    file, byte = segment_name(place >> OFFSET_BITS), place & OFFSET_MASK
    if fields is None:
        return WalDamaged(file, byte, what)
    return WalDamaged(file, byte, what, group=GroupId(fields[9]), slot=Slot(fields[12]))
