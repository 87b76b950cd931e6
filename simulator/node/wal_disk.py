"""The real write-ahead log and checkpoint files of a node, on a disk in memory."""

import errno
import random
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from paxos.entry import Entry
from paxos.ids import SLOT_ZERO, GroupId, NodeId, Slot
from paxos.state.core import Recovered
from paxos.step import Record
from simulator.environment.dice import between
from simulator.node.disk import Boot, DiskFailed, never, settle
from simulator.node.recovery import Restart, Saved
from storage import identity
from storage.checkpoints import CheckpointFiles, checkpoint_name
from storage.cold.store import ColdStore
from storage.disk.memory import MemoryDisk, PowerCut
from storage.errors import DiskFull, NoSegment, StorageError, StorageFailed
from storage.format import (
    OFFSET_BITS,
    OFFSET_MASK,
    SEGMENT_HEADER_BYTES,
    Place,
    place_of,
    segment_name,
)
from storage.log.model import WalConfig, WriteBatch
from storage.log.opening import open_wal
from storage.log.wal import Wal

SEGMENT_BYTES: Final = 64 * 1024
SMALL_BYTES: Final = 16 * 1024
CLUSTER: Final = "simulated"
FLIPS: Final = 2
"""Damaged bytes at a time (as `bitflip-file-chunks` of the exam)."""
BAD_BLOCK_CHANCE: Final = 0.15
"""Instead of a flipped bit: the block cannot be read at all until it is written again."""


class WalDisk:
    """`settles`: there are cold segments, and the log's own segments are small."""

    def __init__(self, node: NodeId, *, settles: bool = False) -> None:
        self.durable: list[Record] = []
        self.slow_ns = 0
        self.hung = False
        self.reads_late: Callable[[], bool] = never
        self._node = node
        self._files = MemoryDisk()
        self._copy: MemoryDisk | None = None
        self._wal: Wal | None = None
        self._checkpoints: CheckpointFiles | None = None
        self._settles = settles
        self.cold: ColdStore | None = None
        self.retires_below: Callable[[], int] | None = None
        """The lowest segment of the log that batches may still be read from."""
        self.in_hand: list[Callable[[random.Random], None]] = []
        """Called when the power goes: what threads are writing is torn."""
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
        files.reads_late = lambda: self.reads_late()
        if self._failing:
            self._failing = False
            files.fail("fdatasync", errno.EIO)
        try:
            who = identity.boot(files, CLUSTER, self._node, first=self._booted + 1)
            config = WalConfig(segment_bytes=SMALL_BYTES if self._settles else SEGMENT_BYTES)
            checkpoints = CheckpointFiles(files, who)
            saved = {group: checkpoints.load(group) for group in checkpoints.groups()}
            begun = {group: one for group, one in saved.items() if one and not one.lost}
            places = {group: (one.slot, one.needs) for group, one in begun.items()}
            wal, recovered = open_wal(files, who, config, groups, places)
            self.cold = ColdStore(files, who) if self._settles else None
        except StorageFailed as failed:
            raise DiskFailed(str(failed)) from failed
        except StorageError:
            self.wipe()  # what the message tells the operator to do
            return self.boot(groups)
        self._wal, self._checkpoints, self._booted = wal, checkpoints, who.incarnation
        unfounded = {group for group, state in recovered.groups.items() if not state.founded}
        lost = frozenset(groups if recovered.damage else unfounded)
        if self._all_forgotten or recovered.end < self._reached:
            self._all_forgotten = False
            self._forgotten = set(groups)
            lost = frozenset(groups)
        self._reached = wal.reached
        found = {}
        for group, state in recovered.groups.items():
            chosen = tuple(
                wal.read_entry(group, Slot(slot))
                for slot in range(state.base + 1, state.applied + 1)
            )
            chunks = begun[group].chunks if group in begun else ()
            base = Saved(state.base, chunks).base if chunks else None
            from_disk = Recovered(
                state.promised,
                state.votes,
                state.learned,
                state.voting,
                state.floor,
                base,
                state.proven,
                state.lost,
            )
            found[group] = Restart(from_disk, chosen, chunks)
            if not state.voting:
                self._forgotten.discard(group)
        return Boot(who.incarnation, found, frozenset(self._forgotten), lost)

    @property
    def files(self) -> MemoryDisk:
        return self._files

    @property
    def wal(self) -> Wal:
        assert self._wal is not None
        return self._wal

    @property
    def checkpoints(self) -> CheckpointFiles:
        assert self._checkpoints is not None
        return self._checkpoints

    @property
    def log_from(self) -> Place | None:
        """Where the log begins, for code that knows what lay below."""
        return place_of(self.wal.kept().start, 0) if self._settles else None

    def arm(self) -> None:
        """If the disk is to fail, it does so at the next write."""
        if self._failing:
            self._failing = False
            self._files.fail("fdatasync", errno.EIO)

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
        self.arm()
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
            settle(self._forgotten, records)
        if wal.wants_segment:
            with suppress(DiskFull):  # nothing is lost yet: it goes on while there are segments
                wal.prepare_next()
        return True

    def save(self, group: GroupId, saved: Saved) -> bool:
        assert self._wal is not None
        assert self._checkpoints is not None
        self.arm()
        needs = self._wal.needed_from(group, saved.slot)
        try:
            self._checkpoints.save(group, saved.slot, needs, saved.chunks)
        except DiskFull:
            return False
        except StorageFailed as failed:
            raise DiskFailed(str(failed)) from failed
        return True

    def newest(self, group: GroupId) -> Saved | None:
        assert self._checkpoints is not None
        found = self._checkpoints.load(group)
        return Saved(found.slot, found.chunks) if found and not found.lost else None

    def retire(self, group: GroupId) -> Slot:
        assert self._wal is not None
        checkpoints = self._checkpoints
        assert checkpoints is not None
        slots = {one: checkpoints.slot(one) or SLOT_ZERO for one in checkpoints.groups()}
        if self.retires_below is None:
            self._wal.retire(slots)
        elif all(group in slots or not self._wal.slots(group) for group in self._wal.groups()):
            self._wal.retire(slots, self.retires_below())
        return slots.get(group, SLOT_ZERO)

    def skip(self, group: GroupId, slot: Slot) -> None:
        assert self._wal is not None
        self._wal.skip(group, slot)

    def forget(self, group: GroupId) -> Recovered:
        assert self._wal is not None
        assert self._checkpoints is not None
        self._checkpoints.remove(group)
        self._wal.forget_group(group)
        promised, _, floor = self._wal.acceptor(group)
        return Recovered(promised, voting=False, floor=max(promised, floor))

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        assert self._wal is not None
        return self._wal.payload_position(group, slot)

    def read_span(self, position: int, size: int) -> memoryview:
        assert self._wal is not None
        return self._wal.read_span(Place(position), size)

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        assert self._wal is not None
        return self._wal.read_span_now(Place(position), size)

    def read_soon(self, position: int, size: int) -> None:
        assert self._wal is not None
        self._wal.read_soon(Place(position), size)

    def cut_power(self, chance: random.Random) -> None:
        files = self._files
        for cut in self.in_hand:
            cut(chance)
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
        self._wal = self._batch = self._checkpoints = self.cold = self.retires_below = None
        self.in_hand = []
        self._staged = []

    def fail_next(self) -> None:
        self._failing = True

    def fill(self) -> None:
        files = self._files
        files.capacity_bytes = sum(len(files.content(name)) for name in files.names())

    def mend(self) -> None:
        self._failing = self.hung = False
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

    def damage_checkpoint(self, group: GroupId) -> None:
        """Damage the newest checkpoint: no restart begins with it."""
        names = [name for name in map(checkpoint_name, self._files.names()) if name is not None]
        newest = str(max(name for name in names if name.group == group))
        self._files.corrupt(newest, len(self._files.content(newest)) // 2, 1)

    @property
    def unsettled(self) -> bool:
        return self._all_forgotten or bool(self._forgotten)

    def damage(self, chance: random.Random) -> None:
        """Mostly in the log's records, sometimes in any file."""
        files = self._files
        if not files.names():
            return  # it was lost as a whole
        last, end = self._reached >> OFFSET_BITS, self._reached & OFFSET_MASK
        for _ in range(FLIPS):
            name = segment_name(between(chance, max(1, last - 1), max(1, last)))
            size = len(files.content(name)) if name in files.names() else 0
            low, high = SEGMENT_HEADER_BYTES, end if name == segment_name(last) else size
            if chance.random() < 0.1 or high <= low:
                name = chance.choice(files.names())
                low, high = 0, len(files.content(name))
            if name in files.names() and high > low:
                at = between(chance, low, high - 1)
                if chance.random() < BAD_BLOCK_CHANCE:
                    files.lose_block(name, at)
                else:
                    files.corrupt(name, at, 1 << chance.randrange(8))
