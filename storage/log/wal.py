"""One write-ahead log per node for all its groups: one fdatasync makes all their records durable.

Theory of operation. The log works in two halves, so that the event loop never waits for the disk:

* the loop's thread `stage`s records: a record gets its place, header and checksum, its entry's
  buffers are kept by reference, and it enters the index; `take` hands everything staged since the
  last take to the writer;
* the batch becomes durable as a whole, whatever the number of groups and records (group commit): as
  a rule the loop's thread `begin`s that and the kernel does it meanwhile, otherwise the writer's
  thread `write`s it, with gathered writes and one fdatasync;
* the loop's thread learns of it by `written`, and only then may what depends on it be sent.

A third thread may `prepare_next` the file of the segment after this one. Records can be read from
the moment they are staged: what is not written yet is served from the staged buffers. Any thread
may call `read_span`; all other reads belong to the loop's thread.

A failed write or fdatasync is final (`StorageFailed`): the log takes nothing more, the shell exits.
File format: format.py. What a restart makes of the files: recovery.py.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import assert_never

from crc32c import crc32c

from paxos.entry import ENTRY_BYTES_MAX, Buffer, Entry
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Slot
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord, Record, VotingRecord
from storage.disk.direct import whole_blocks
from storage.disk.files import File, read_around, read_long_around
from storage.errors import NotInLog, StorageFailed, WalDamaged
from storage.format import (
    ACCEPT,
    DAMAGE,
    FLAG_FORGOTTEN,
    FLAG_SKIP,
    FLAG_VOTING,
    FLOOR,
    LEARNED,
    OFFSET_BITS,
    OFFSET_MASK,
    PROMISE,
    RECORD_BODY,
    RECORD_CHECKSUMS,
    RECORD_HEADER_BYTES,
    RECORD_MAGIC,
    RETIRE,
    SEGMENT_HEADER_BYTES,
    STATE,
    VOTING,
    Place,
    SegmentHeader,
    decode_segment_header,
    encode_floor,
    place_of,
    segment_name,
)
from storage.identity import Identity
from storage.log import damage_notes
from storage.log.index import LEARNED_BIT, GroupState
from storage.log.live_segments import NO_BOUND, LiveSegments
from storage.log.log_state import LogState
from storage.log.log_writes import LogWrites
from storage.log.model import GROUPS_MAX, Durability, Part, WalConfig, WalStatistics, WriteBatch
from storage.log.replay import decoded, replay
from storage.log.segments import SegmentFiles
from storage.log.staged import cut_out
from storage.log.synced_mark import SyncedMark
from storage.log.walk import agrees


class Wal:
    """See the module's docstring for who may call what."""

    def __init__(
        self,
        files: SegmentFiles,
        mark: SyncedMark,
        identity: Identity,
        config: WalConfig,
        log: LogState,
    ) -> None:
        self._files, self.threads = files, files.threads
        files.file(log.number)
        self._writes = LogWrites(files, mark, config)
        self._identity = identity
        self._config = config
        self._groups = log.groups
        self._kept = LiveSegments(log.oldest, log.highs, log.seeds, log.ends)
        self.known_damage = log.known_damage
        """Begin and end of the damage that is noted in the log already."""
        self._retiring: deque[tuple[Place, range]] = deque()
        self._groups_max = min(
            GROUPS_MAX, config.segment_bytes // 2 // (RECORD_HEADER_BYTES + FLOOR.size)
        )

        self._number = log.number
        self._base = place_of(log.number, 0)
        self._offset = log.offset
        self._segment_end = log.segment_end
        self._seed = log.seeds[log.number]
        self._chain = log.chain
        self._written = self._taken = self._synced = place_of(log.number, log.offset)

        self._part_offset = log.offset
        self._buffers: list[Buffer] = []
        self._parts: list[Part] = []
        self._tail: tuple[list[Place], list[tuple[Buffer, ...]]] = ([], [])
        """Places and bytes of all pieces not yet written; replaced, never shortened, so that a
        reader in another thread may go on with the pair that it has."""
        self._unwritten: dict[Place, Entry] = {}

        self._pieces_taken = 0
        self.bytes_staged = self._bytes_taken = self._bytes_written = 0
        self.records = 0

    # ---- the loop's half ------------------------------------------------------------------------

    def stage(self, record: Record) -> Place:
        """Give the record its place and index it; nothing is on disk before `written`."""
        if isinstance(record, AcceptRecord):
            group = self._groups.get(record.group) or self._new_group(record.group)
            ballot = record.ballot
            assert ballot >= group.promised, f"{record} after a promise of {group.promised}"
            place = self._append_entry(ACCEPT, group, record.slot, ballot, record)
            group.promised = ballot
            return place
        group = self._groups.get(record.group) or self._new_group(record.group)
        if isinstance(record, LearnedRecord):
            return self._append_entry(LEARNED, group, record.slot, BALLOT_ZERO, record)
        if isinstance(record, PromiseRecord):
            ballot = record.ballot
            assert ballot >= group.promised, f"{record} after a promise of {group.promised}"
            group.promised = ballot
            return self._append(PROMISE, 0, record.group, 0, ballot, group.applied, (), 0)
        if isinstance(record, VotingRecord):
            group.voting, group.floor = record.voting, record.floor
            flags, floor = FLAG_VOTING if record.voting else 0, record.floor
            group.applied = max(group.applied, record.applied)
            return self._append(VOTING, flags, record.group, 0, floor, group.applied, (), 0)
        assert_never(record)

    def take(self) -> WriteBatch | None:
        """Everything staged since the last take, for the writer; None if there is nothing."""
        end = self._base | self._offset
        if end == self._taken:
            return None
        parts = self._parts
        parts.append(Part(self._number, self._part_offset, self._buffers))
        pieces = len(self._tail[0]) - self._pieces_taken
        size = self.bytes_staged - self._bytes_taken
        batch = WriteBatch(tuple(parts), self._taken, end, pieces, size)
        self._parts = []
        self._buffers = []
        self._part_offset = self._offset
        self._taken = end
        self._pieces_taken += pieces
        self._bytes_taken = self.bytes_staged
        return batch

    def written(self, batch: WriteBatch) -> None:
        """`write(batch)` has returned: its records are as durable as the configuration says."""
        assert batch.start == self._written, f"batch {batch.start} after {self._written}"
        self._written = batch.end
        self._bytes_written += batch.size
        if self._config.durability is Durability.FSYNC:
            self._synced = batch.end
        places, pieces = self._tail
        done = batch.pieces
        for place in places[:done]:
            self._unwritten.pop(place, None)
        self._tail = (places[done:], pieces[done:])
        self._pieces_taken -= done
        while self._retiring and self._retiring[0][0] <= batch.end:
            self._files.retire(self._retiring.popleft()[1])

    @property
    def wants_segment(self) -> bool:
        """Whether `prepare_next` has something to do."""
        return self._files.highest <= self._number or self._files.surplus

    @property
    def synced(self) -> Place:
        """Everything below this place is durable."""
        return self._synced

    @property
    def bytes_unwritten(self) -> int:
        """Staged and not yet reported written: held in memory."""
        return self.bytes_staged - self._bytes_written

    @property
    def end(self) -> Place:
        """Where the next record goes, unless it begins a segment."""
        return self._base | self._offset

    # ---- what is not needed any more ------------------------------------------------------------

    def needed_from(self, group: GroupId, slot: Slot) -> int:
        """The lowest segment that may hold a record of the group for a slot above `slot`."""
        return self._kept.needed_from(group, slot, self._number)

    def retire(self, until: Mapping[GroupId, Slot], below: int = NO_BOUND) -> int:
        """Free the oldest segments that hold no slot above `until`; returns how many.

        The caller has every slot up to `until` applied and durable elsewhere (in a checkpoint), and
        no longer reads the segments below number `below`: only those are freed.
        """
        freed = self._kept.free(until, below, self._number)
        if freed:
            for group, highest in self._kept.highs[freed[-1]].items():
                self._groups[group].forget_through(highest)
            self._kept.drop(freed)
            self._append(RETIRE, 0, GroupId(0), freed.stop, BALLOT_ZERO, 0, (), 0)
            self._retiring.append((self.end, freed))
        return len(freed)

    def skip(self, group: GroupId, slot: Slot) -> None:
        """The group's state up to `slot` came from a peer, and is durable here in a checkpoint:
        forget what the log has up to there. The next record may be far ahead."""
        state = self._groups.get(group) or self._new_group(group)
        state.forget_through(slot)
        state.applied = max(state.applied, slot)
        self._append_state(state, slot, FLAG_SKIP)

    def forget_group(self, group: GroupId) -> None:
        """This node is no longer a member of the group, and needs none of its slots. Remove its
        checkpoints first. Its promise is kept; should the node return, it is non-voting."""
        state = self._groups.get(group)
        if state is not None:
            state.forget_all()
            self._kept.forget(group)
            self._append_state(state, 0, FLAG_FORGOTTEN)

    def acceptor(self, group: GroupId) -> tuple[Ballot, bool, Ballot]:
        """The group's acceptor as it was staged last: promised, voting, floor. For a group that
        this node becomes a member of, perhaps once more."""
        state = self._groups.get(group) or GroupState(group)
        return state.promised, state.voting, state.floor

    def statistics(self) -> WalStatistics:
        ready = max(0, self._files.highest - self._number)
        return WalStatistics(
            durability=self._config.durability,
            bytes_staged=self.bytes_staged,
            records=self.records,
            batches=self._writes.batches,
            syncs=self._writes.syncs,
            segments=self._number - self._kept.oldest + 1,
            bytes_unwritten=self.bytes_unwritten,
            synced=self._synced,
            end=self.end,
            bytes_left=self._segment_end - self._offset + ready * self._config.segment_bytes,
        )

    def begin(self, batch: WriteBatch, wakeup: int) -> bool:
        """See `LogWrites.begin`."""
        return self._writes.begin(batch, wakeup)

    def finish(self, wait_s: float = 0.0) -> bool | None:
        """See `LogWrites.finish`."""
        return self._writes.finish(wait_s)

    # ---- the writer's half ----------------------------------------------------------------------

    def write(self, batch: WriteBatch) -> None:
        """See `LogWrites.write`."""
        self._writes.write(batch)

    def prepare_next(self, *, zeros: bool = True) -> bool:
        """Create the file of the next segment, in any thread but the loop's; False if it is there.

        Without `zeros` it is only reserved: for times when segments fill within seconds.

        Raises:
            DiskFull: nothing is lost yet; the log goes on until the ready segments are full.
        """
        return self._files.prepare_next(self._number + 1, zeros=zeros)

    def stop_preparing(self) -> None:
        """The node stops: filling a file with zeros ends soon."""
        self._files.stop_preparing()

    # ---- damage ---------------------------------------------------------------------------------

    @property
    def reached(self) -> Place:
        """Everything below this place is as durable as the configuration says."""
        return self._written

    def kept(self) -> range:
        """The numbers of the segments in use."""
        return range(self._kept.oldest, self._number + 1)

    def scrub_target(self, number: int) -> tuple[File, SegmentHeader, int]:
        """What any thread needs to check a segment: its file, its header, where its records end.

        Raises:
            NotInLog: it was retired, or its start is not written yet.
        """
        kept, written = self._kept, self._written  # `ends` are where records were staged to
        end, seed = kept.ends.get(number), kept.seeds.get(number)
        if seed is None or number not in self.kept():
            raise NotInLog(f"{segment_name(number)} was retired")
        if number > written >> OFFSET_BITS:
            raise NotInLog(f"{segment_name(number)} is not written yet")
        if number == written >> OFFSET_BITS:
            end = written & OFFSET_MASK
        assert end is not None, f"{segment_name(number)} was left without an end"
        file = self._files.file(number)
        header = decode_segment_header(read_around(file, SEGMENT_HEADER_BYTES, 0))
        if header is None or (header.number, header.seed) != (number, seed):
            raise WalDamaged(file.name, 0, "the segment's header is unreadable")
        return file, header, end

    def losses(
        self, start: Place, end: Place, whose: GroupId | None = None
    ) -> Iterator[tuple[GroupId, Slot, Place, int]]:
        """The entries whose latest record is in [start, end), with its place and size: those of one
        group, or all."""
        for group in sorted(self._groups) if whose is None else self._groups.keys() & {whose}:
            state = self._groups[group]
            for slot in state.within(start, end):
                yield group, slot, *state.find(slot)

    def readable_to(self, group: GroupId, slot: Slot, end: Slot) -> Slot:
        """The last slot from `slot` to `end` before the first missing one."""
        return self._group(group).readable_to(slot, end)

    def drop(self, group: GroupId, slot: Slot) -> None:
        """The slot's record is damaged: reading it raises `NotInLog` until it is learned anew."""
        self._group(group).drop(slot)

    def agrees(self, place: Place, size: int, entry: Entry) -> bool | None:
        """Whether the damaged record at `place` held this entry; None: nobody can tell."""
        number = place >> OFFSET_BITS
        if entry.size != size:
            return False
        seed = self._kept.seeds.get(number)
        if seed is None:
            return None
        try:
            return agrees(self._files.file(number), seed, place & OFFSET_MASK, size, entry.chunks)
        except StorageFailed:
            if number in self._kept.seeds:
                raise
            return None  # the segment was retired meanwhile

    def note_damage(self, start: Place, end: Place, *, unattributed: bool = False) -> None:
        """Note damage for later restarts; for `unattributed` damage found while running, also what
        it did not hit. Stage its consequences first."""
        self.known_damage.add((start, end))
        note = damage_notes.encode(self._groups.values(), start) if unattributed else b""
        self._append(DAMAGE, 0, GroupId(0), start, BALLOT_ZERO, end, (note,), len(note))

    # ---- reading --------------------------------------------------------------------------------

    def payload_position(self, group: GroupId, slot: Slot) -> Place:
        """Where the entry's encoding begins: position + k is its byte k, for `read_span`."""
        return self.find(group, slot)[0] + RECORD_HEADER_BYTES

    def groups(self) -> list[GroupId]:
        """The groups that have records."""
        return sorted(self._groups)

    def slots(self, group: GroupId) -> range:
        """The slots from the first that is kept to the highest recorded; there may be gaps."""
        state = self._groups.get(group)
        return range(state.first, state.highest + 1) if state else range(0)

    def read_entry(self, group: GroupId, slot: Slot) -> Entry:
        """The slot's entry: chosen if the slot is applied.

        Raises:
            NotInLog: it was never recorded, or it was retired.
            WalDamaged: the disk returns other bytes than were written.
        """
        place, size = self.find(group, slot)
        return self._unwritten.get(place) or self.read_recorded(place, size, group, slot)

    def read_recorded(self, place: Place, size: int, group: GroupId, slot: Slot) -> Entry:
        """The entry of one particular record on disk, which need not be the latest of its slot."""
        data = bytes(self._read_file(place, RECORD_HEADER_BYTES + size))  # it may be kept
        return self.decode_record(memoryview(data), place, group, slot)

    def read_span(self, position: Place, size: int) -> memoryview:
        """Raw bytes of the log within one segment, record headers included; any thread.

        They are not checked here: a span need not hold whole records. Record batches carry their
        own checksum, which their readers verify.

        Raises:
            NotInLog: the span is not in the log, or its segment was retired.
        """
        end = position + size
        places, pieces = self._tail
        if size < 0 or position >> OFFSET_BITS < self._kept.oldest or end > self.end:
            raise NotInLog(f"{size} bytes at {_say(position)}: the log ends at {_say(self.end)}")
        if not places or end <= places[0]:
            data = self._read_file(position, size)
        elif position >= places[0]:
            data = cut_out(places, pieces, position, end)
        else:
            head = self._read_file(position, places[0] - position)
            data = memoryview(b"".join((head, cut_out(places, pieces, places[0], end))))
        if position >> OFFSET_BITS < self._kept.oldest:  # retired, and perhaps reused meanwhile
            raise NotInLog(f"{_say(position)} was retired")
        return data

    def read_span_now(self, position: Place, size: int) -> memoryview | None:
        """As `read_span`, but without waiting for the disk; None: call `read_span` in another
        thread, which also raises what is wrong."""
        places, pieces = self._tail
        number, end = position >> OFFSET_BITS, position + size
        if size < 0 or number < self._kept.oldest or end > self.end:
            return None
        if places and position >= places[0]:
            return cut_out(places, pieces, position, end)
        file = self._files.opened(number)
        if file is None or (places and end > places[0]):
            return None
        data = file.read_now(size, position & OFFSET_MASK)
        return data if number >= self._kept.oldest else None

    def read_soon(self, position: Place, size: int) -> None:
        """Read ahead for a `read_span` with these arguments, if the span is in the log and durable,
        and its file open."""
        places, _ = self._tail
        durable = places[0] if places else self.end
        number = position >> OFFSET_BITS
        if number >= self._kept.oldest and position + size <= durable:
            file = self._files.opened(number)
            if file is not None:
                file.read_soon(size, position & OFFSET_MASK)

    def replay(self, group: GroupId, start: Slot, end: Slot) -> Iterator[tuple[Slot, Entry, Place]]:
        """The entries of slots `start` to `end` with their payload positions, read in large spans.

        The entries are views of a span of up to `replay.SPAN_BYTES`: keep none of them for long.

        Raises:
            NotInLog: one of the slots is not recorded.
            WalDamaged: the disk returns other bytes than were written.
        """
        return replay(self, group, start, end)

    def _group(self, group: GroupId) -> GroupState:
        state = self._groups.get(group)
        if state is None:
            raise NotInLog(f"group {group} has no records in the log")
        return state

    def find(self, group: GroupId, slot: Slot) -> tuple[Place, int]:
        """The place of the latest record of the slot's entry, and the size of the entry."""
        return self._group(group).find(slot)

    def _read_file(self, position: Place, size: int) -> memoryview:
        file = self._files.file(position >> OFFSET_BITS)
        data = read_long_around(file, size, position & OFFSET_MASK)
        if len(data) != size:
            raise WalDamaged(file.name, (position & OFFSET_MASK) + len(data), "the file ends here")
        return data

    def decode_record(self, record: memoryview, place: Place, group: GroupId, slot: Slot) -> Entry:
        """See `storage.log.replay.decoded`."""
        return decoded(record, place, self._kept.seeds[place >> OFFSET_BITS], group, slot)

    # ---- staging --------------------------------------------------------------------------------

    def _new_group(self, group: GroupId) -> GroupState:
        assert len(self._groups) < self._groups_max, f"more than {self._groups_max} groups"
        state = self._groups[group] = GroupState(group)
        return state

    def _append_entry(
        self,
        kind: int,
        group: GroupState,
        slot: Slot,
        ballot: Ballot,
        record: AcceptRecord | LearnedRecord,
    ) -> Place:
        entry = record.entry
        size = entry.size
        assert 0 < size <= ENTRY_BYTES_MAX, f"an entry of {size} bytes"
        applied = record.applied
        place = self._append(kind, 0, group.group, slot, ballot, applied, entry.chunks, size)
        if applied > group.applied:
            group.applied = applied
        group.put(slot, place, size, LEARNED_BIT if kind == LEARNED else 0)
        self._unwritten[place] = entry
        return place

    def _append(
        self,
        kind: int,
        flags: int,
        group: GroupId,
        slot: int,
        ballot: Ballot,
        applied: int,
        chunks: tuple[Buffer, ...],
        size: int,
    ) -> Place:
        whole = RECORD_HEADER_BYTES + size
        if self._offset + whole > self._segment_end:
            self._begin_segment(whole)
        place = self._base | self._offset
        body = RECORD_BODY.pack(
            RECORD_MAGIC,
            kind,
            flags,
            size,
            self._chain,
            self._offset,
            self._synced,
            group,
            ballot[1],
            ballot[0],
            slot,
            applied,
        )
        checksum = header_checksum = crc32c(body, self._seed)
        for chunk in chunks:
            checksum = crc32c(chunk, checksum)
        self._chain = checksum
        self.records += 1
        head = RECORD_CHECKSUMS.pack(checksum, header_checksum) + body
        self._keep(place, (head, *chunks), whole)
        return place

    def _keep(self, place: Place, piece: tuple[Buffer, ...], size: int) -> None:
        """Hold the bytes for the writer and for readers until they are written."""
        places, pieces = self._tail
        pieces.append(piece)  # first: a reader that sees the place finds the piece
        places.append(place)
        self._buffers += piece
        self._offset += size
        self.bytes_staged += size

    def _begin_segment(self, needed: int) -> None:
        """Go on in the next segment. It begins with its header and the state of every group, so
        that the segments before it can be retired one day without losing a promise."""
        previous_end = self._base | self._offset
        self._kept.close(self._number, self._offset, self._groups.values())
        if self._buffers:
            self._parts.append(Part(self._number, self._part_offset, self._buffers))
        self._number += 1
        self._base = place_of(self._number, 0)
        self._offset = self._part_offset = 0
        self._buffers = []
        self._seed = self._kept.seeds[self._number] = self._chain
        damage = self._kept.repeated(self.known_damage)
        states = len(self._groups) * (RECORD_HEADER_BYTES + FLOOR.size)
        states += len(damage) * RECORD_HEADER_BYTES
        # What peers may send does not depend on our configuration: if a segment of the usual size
        # is too small for one entry, that entry gets a larger one.
        least = whole_blocks(SEGMENT_HEADER_BYTES + states + needed)
        self._segment_end = max(self._config.segment_bytes, least)
        header = SegmentHeader(
            number=self._number,
            size=self._segment_end,
            previous_end=previous_end,
            oldest=self._kept.oldest,
            seed=self._seed,
            cluster=self._identity.cluster,
            node=self._identity.node,
            incarnation=self._identity.incarnation,
        )
        self._keep(self._base, (header.encode(),), SEGMENT_HEADER_BYTES)
        for _, state in sorted(self._groups.items()):
            self._append_state(state, state.highest, 0)
        for start, end in damage:
            self._append(DAMAGE, 0, GroupId(0), start, BALLOT_ZERO, end, (), 0)

    def _append_state(self, state: GroupState, slot: int, flags: int) -> None:
        floor = encode_floor(state.floor)
        self._append(
            STATE,
            flags | (FLAG_VOTING if state.voting else 0),
            state.group,
            slot,
            state.promised,
            state.applied,
            (floor,),
            len(floor),
        )


def _say(place: Place) -> str:
    return f"{segment_name(place >> OFFSET_BITS)}, byte {place & OFFSET_MASK}"
