"""The simulated disks of a node: records in a list, or the real write-ahead log on a memory disk.

Both are used the same way, as the shell uses its log: `append` at once, `begin` takes all that was
appended for one fsync, `end` when that fsync has taken its time. A power cut keeps of what was not
synced a prefix of the records (RecordDisk), or any subset of sectors, from which the recovery of
`storage/` must make a prefix (WalDisk).

What else disks do: fail once with EIO (`fail_next`: the process ends), run full (`fill`), get slow,
lose what they had synced. A loss is noticed in one of three ways: by checksums, by the peers, who
know the directory (`Boot.forgotten`: what the shell is told there, the runtime's admission finds
out), or, where only the last promise of a group is gone, by a peer that remembers it.
"""

import errno
import random
from collections.abc import Collection
from contextlib import suppress
from typing import Final, Protocol

import attrs

from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, GroupId, Incarnation, NodeId, Slot
from paxos.replica import Recovered
from paxos.step import AcceptRecord, PromiseRecord, Record, VotingRecord
from simulator.dice import between
from simulator.recovery import Restart, restarts
from storage import identity
from storage.direct import BLOCK_BYTES
from storage.errors import DiskFull, NoSegment, StorageError, StorageFailed
from storage.format import OFFSET_BITS, OFFSET_MASK, SEGMENT_HEADER_BYTES, Place, segment_name
from storage.memory_disk import MemoryDisk, PowerCut
from storage.model import WalConfig, WriteBatch
from storage.opening import open_wal
from storage.wal import Wal

SEGMENT_BYTES: Final = 64 * 1024
CLUSTER: Final = "simulated"
ENTRY_BITS: Final = 32
FLIPS: Final = 2
"""Damaged bytes at a time (exam.md section 2, `bitflip-file-chunks`)."""
BAD_BLOCK_CHANCE: Final = 0.15
"""Instead of a flipped bit: the block cannot be read at all. Never one that is still written to,
for that would be a loss of later (seed 3038)."""


class DiskFailed(Exception):
    """The disk failed once; what was being written is not durable, and is not tried again."""


@attrs.frozen
class Boot:
    """`forgotten`: groups of which promises or votes are gone, as the peers notice. `lost`: those
    that have lost something since the last boot, whether or not anybody notices."""

    incarnation: Incarnation
    groups: dict[GroupId, Restart]
    forgotten: frozenset[GroupId] = frozenset()
    lost: frozenset[GroupId] = frozenset()


class Disk(Protocol):
    """`durable` lists what has become durable since it was last emptied, for the checkers.

    `slow_ns`: an fsync takes up to so long, 0: as usual.
    """

    durable: list[Record]
    slow_ns: int

    def boot(self, groups: Collection[GroupId]) -> Boot:
        """Recover, and count the boot durably.

        Raises:
            DiskFailed: as it was told to.
        """

    def append(self, records: list[Record]) -> None: ...

    @property
    def settled(self) -> bool:
        """Whether all that was appended is durable."""

    def begin(self) -> bool:
        """Start an fsync of all that was appended; False where there is nothing."""

    def end(self) -> bool:
        """The fsync has ended; False where there was no room, so that it is to be ended later.

        Raises:
            DiskFailed: as it was told to.
        """

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        """Where the encoding of an entry begins that is being applied, for `read_span`."""

    def read_span(self, position: int, size: int) -> memoryview:
        """broker.ports.LogReader."""

    def cut_power(self, chance: random.Random) -> None: ...

    def kill(self) -> None:
        """The process ended, the machine did not."""

    # -- faults -------------------------------------------------------------------------------

    def fail_next(self) -> None:
        """The next fsync, or the next boot, fails with EIO."""

    def fill(self) -> None:
        """No room for anything new, until it is mended."""

    def mend(self) -> None:
        """From now on it works as a disk should; what it has lost is lost."""

    def remember(self) -> None:
        """Take the copy that `roll_back` brings back."""

    def roll_back(self) -> None:
        """The directory of a node that is down is an old copy, or empty where there is none."""

    def wipe(self) -> None:
        """The directory of a node that is down is gone."""

    def damage(self, chance: random.Random) -> None:
        """Some bits of what a node that is down had synced are flipped."""

    @property
    def unsettled(self) -> bool:
        """It has lost something, and the node has not written down that it may not vote."""


class RecordDisk:
    def __init__(self) -> None:
        self.durable: list[Record] = []
        self.slow_ns = 0
        self._platter: list[Record] = []
        self._cached: list[Record] = []
        self._syncing = 0
        self._boots = 0
        self._placed: list[Entry] = []
        self._failing = self._full = False
        self._copy = 0
        self._forgotten: set[GroupId] = set()
        self._all_forgotten = False
        self._lost: set[GroupId] = set()
        self.keep_at_cut: int | None = None
        """For scripts: how many un-synced records survive the next power cut; None: chance says."""

    def boot(self, groups: Collection[GroupId]) -> Boot:
        if self._failing:
            self._failing = False
            raise DiskFailed("read")
        self._boots += 1
        self._placed = []
        if self._all_forgotten:
            self._all_forgotten = False
            self._forgotten, self._lost = set(groups), set(groups)
        found, lost = restarts(self._platter), self._lost
        self._lost = set()
        return Boot(Incarnation(self._boots), found, frozenset(self._forgotten), frozenset(lost))

    def append(self, records: list[Record]) -> None:
        self._cached.extend(records)

    @property
    def settled(self) -> bool:
        return not self._cached

    def begin(self) -> bool:
        assert not self._syncing
        self._syncing = len(self._cached)
        return self._syncing > 0

    def end(self) -> bool:
        if self._failing:
            self._failing = False
            raise DiskFailed("fsync")
        if self._full:
            return False
        self._keep(self._syncing)
        self._syncing = 0
        return True

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        """Entries lie so far apart that no reader takes two for neighbours."""
        self._placed.append(entry)
        return (len(self._placed) - 1) << ENTRY_BITS

    def read_span(self, position: int, size: int) -> memoryview:
        encoded = b"".join(self._placed[position >> ENTRY_BITS].chunks)
        start = position & ((1 << ENTRY_BITS) - 1)
        assert start + size <= len(encoded)
        return memoryview(encoded)[start : start + size]

    def cut_power(self, chance: random.Random) -> None:
        kept = chance.randint(0, len(self._cached))
        self._keep(kept if self.keep_at_cut is None else min(self.keep_at_cut, len(self._cached)))
        self.keep_at_cut = None
        self.kill()

    def kill(self) -> None:
        self._cached.clear()
        self._syncing = 0

    def fail_next(self) -> None:
        self._failing = True

    def fill(self) -> None:
        self._full = True

    def mend(self) -> None:
        self._failing = self._full = False
        self.slow_ns = 0

    def remember(self) -> None:
        self._copy = len(self._platter)

    def roll_back(self) -> None:
        self.lose_tail(len(self._platter) - min(self._copy, len(self._platter)))
        self._all_forgotten = True

    def wipe(self) -> None:
        self._platter.clear()
        self._copy = 0
        self._all_forgotten = True

    def damage(self, chance: random.Random) -> None:
        """A record knows no bits: all that a group wrote from some place on is unreadable."""
        if self._platter:
            at = chance.randrange(len(self._platter))
            group = self._platter[at].group
            self._lose_from(group, at)
            self._forgotten.add(group)

    def lose_tail(self, count: int) -> None:
        """A disk that lied: the last `count` records were acknowledged, and are gone."""
        at = len(self._platter) - count
        self._lost.update(record.group for record in self._platter[at:])
        del self._platter[at:]

    def lose_promise(self, group: GroupId) -> bool:
        """A disk that lied: what the group wrote at its last ballot is gone, and nothing tells;
        False where it has promised but one."""
        promised, at = BALLOT_ZERO, 0
        raises = 0
        for index, record in enumerate(self._platter):
            if record.group != group:
                continue
            if isinstance(record, VotingRecord):
                raises = 0
            elif isinstance(record, AcceptRecord | PromiseRecord) and record.ballot > promised:
                promised, at, raises = record.ballot, index, raises + 1
        if raises < 2:
            return False
        self._lose_from(group, at)
        return True

    @property
    def unsettled(self) -> bool:
        return self._all_forgotten or bool(self._forgotten)

    def _lose_from(self, group: GroupId, at: int) -> None:
        later = [record for record in self._platter[at:] if record.group != group]
        self._platter[at:] = later
        self._lost.add(group)

    def _keep(self, count: int) -> None:
        kept = self._cached[:count]
        del self._cached[:count]
        self._platter.extend(kept)
        self.durable.extend(kept)
        if self._forgotten:
            _settle(self._forgotten, kept)


def _settle(forgotten: set[GroupId], written: list[Record]) -> None:
    """Once it is durable that a group does not vote, the loss need not be noticed again."""
    for record in written:
        if isinstance(record, VotingRecord) and not record.voting:
            forgotten.discard(record.group)


class WalDisk:
    def __init__(self, node: NodeId) -> None:
        self.durable: list[Record] = []
        self.slow_ns = 0
        self._node = node
        self._files = MemoryDisk()
        self._copy: MemoryDisk | None = None
        self._wal: Wal | None = None
        self._staged: list[Record] = []
        self._batch: tuple[WriteBatch, list[Record]] | None = None
        self._booted = 0
        self._reached: Place = 0
        """How far its log went, as peers remember."""
        self._failing = False
        self._all_forgotten = False
        self._forgotten: set[GroupId] = set()

    def boot(self, groups: Collection[GroupId]) -> Boot:
        files = self._files
        files.close()
        if self._failing:
            self._failing = False
            files.fail("fdatasync", errno.EIO)
        try:
            who = identity.boot(files, CLUSTER, self._node, first=self._booted + 1)
            config = WalConfig(segment_bytes=SEGMENT_BYTES)
            wal, recovered = open_wal(files, who, config, groups)
        except StorageFailed as failed:
            raise DiskFailed(str(failed)) from failed
        except StorageError:
            self.wipe()  # what the message tells the operator to do
            return self.boot(groups)
        self._wal, self._booted = wal, who.incarnation
        lost = frozenset(groups if recovered.damage else ())
        if self._all_forgotten or recovered.end < self._reached:
            self._all_forgotten = False
            self._forgotten = set(groups)
            lost = frozenset(groups)
        self._reached = wal.reached
        found = {}
        for group, state in recovered.groups.items():
            assert state.retained_from == 1
            chosen = tuple(
                wal.read_entry(group, Slot(slot)) for slot in range(1, state.applied + 1)
            )
            from_disk = Recovered(
                state.promised, state.votes, state.learned, state.voting, state.floor
            )
            found[group] = Restart(from_disk, chosen)
            if not state.voting:
                self._forgotten.discard(group)
        return Boot(who.incarnation, found, frozenset(self._forgotten), lost)

    def append(self, records: list[Record]) -> None:
        assert self._wal is not None
        for record in records:
            self._wal.stage(record)
        self._staged.extend(records)

    @property
    def settled(self) -> bool:
        return not self._staged and self._batch is None

    def begin(self) -> bool:
        assert self._wal is not None
        assert self._batch is None
        batch = self._wal.take()
        if batch is None:
            return False
        self._batch = (batch, self._staged)
        self._staged = []
        return True

    def end(self) -> bool:
        wal = self._wal
        assert wal is not None
        assert self._batch is not None
        batch, records = self._batch
        if self._failing:
            self._failing = False
            self._files.fail("fdatasync", errno.EIO)
        try:
            wal.write(batch)
        except NoSegment:
            return False
        except StorageFailed as failed:
            raise DiskFailed(str(failed)) from failed
        self._batch = None
        wal.written(batch)
        self._reached = wal.reached
        self.durable.extend(records)
        if self._forgotten:
            _settle(self._forgotten, records)
        if wal.wants_segment:
            with suppress(DiskFull):  # nothing is lost yet: it goes on while there are segments
                wal.prepare_next()
        return True

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        assert self._wal is not None
        return self._wal.payload_position(group, slot)

    def read_span(self, position: int, size: int) -> memoryview:
        assert self._wal is not None
        return self._wal.read_span(Place(position), size)

    def cut_power(self, chance: random.Random) -> None:
        files = self._files
        if self._batch is not None and self._wal is not None and chance.random() < 0.7:
            files.stop("fdatasync")
            with suppress(PowerCut, NoSegment):  # what we asked for, or too full for it
                self._wal.write(self._batch[0])
        survival = chance.choice((0.0, 0.3, 0.9, 1.0))
        files.crash(lambda: chance.random() < survival)
        self._let_go()

    def kill(self) -> None:
        self._files.kill()
        self._let_go()

    def _let_go(self) -> None:
        self._wal = self._batch = None
        self._staged = []

    def fail_next(self) -> None:
        self._failing = True

    def fill(self) -> None:
        files = self._files
        files.capacity_bytes = sum(len(files.content(name)) for name in files.names())

    def mend(self) -> None:
        self._failing = False
        self._files.capacity_bytes = None
        self.slow_ns = 0

    def remember(self) -> None:
        self._copy = self._files.clone()

    def roll_back(self) -> None:
        if self._copy is None:
            self.wipe()
            return
        self._files = self._copy.clone()
        self._all_forgotten = True

    def wipe(self) -> None:
        self._files = MemoryDisk()
        self._all_forgotten = True

    @property
    def unsettled(self) -> bool:
        return self._all_forgotten or bool(self._forgotten)

    def damage(self, chance: random.Random) -> None:
        """In the log's records mostly, in any file now and then."""
        files = self._files
        if not files.names():
            return  # it was lost as a whole
        last, end = self._reached >> OFFSET_BITS, self._reached & OFFSET_MASK
        for _ in range(FLIPS):
            name = segment_name(between(chance, max(1, last - 1), max(1, last)))
            low, high = SEGMENT_HEADER_BYTES, end if name == segment_name(last) else SEGMENT_BYTES
            if chance.random() < 0.1 or high <= low:
                name = chance.choice(files.names())
                low, high = 0, len(files.content(name))
            if name in files.names() and high > low:
                at = between(chance, low, high - 1)
                whole = (at // BLOCK_BYTES + 1) * BLOCK_BYTES <= high
                if whole and chance.random() < BAD_BLOCK_CHANCE:
                    files.lose_block(name, at)
                else:
                    files.corrupt(name, at, 1 << chance.randrange(8))
