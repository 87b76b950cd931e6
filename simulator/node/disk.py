"""The simulated disks of a node: records in a list, or the real write-ahead log on a memory disk.

Both are used like the shell's log: `append` returns at once, `begin` starts one fsync of everything
appended, `end` is called when that fsync has taken its time. After a power cut, a prefix of the
unsynced records is left (RecordDisk), or any subset of sectors, from which the recovery of
`storage/` must make a prefix (WalDisk).

Other faults of disks: fail once with EIO (`fail_next`: the process ends), run full (`fill`), get
slow, lose synced data. A loss is noticed in one of three ways: by checksums; by the peers, who know
the directory (`Boot.forgotten` tells the shell what the runtime's admission would find out); or, if
only the last promise of a group is gone, by a peer that remembers it.
"""

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

import attrs

from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, GroupId, Incarnation, Slot
from paxos.state.core import Recovered
from paxos.step import AcceptRecord, PromiseRecord, Record, VotingRecord
from simulator.node.recovery import Restart, Saved, restarts, without

ENTRY_BITS: Final = 26
SLOT_BITS: Final = 30
SLOT_MAX: Final = Slot((1 << SLOT_BITS) - 1)
CHECKPOINT_SHARE: Final = 0.3
"""The share of damage to a disk with checkpoints that hits one of them."""
Archive: TypeAlias = Mapping[GroupId, Sequence[bytes]]
NO_ARCHIVE: Final[Archive] = {}


def never() -> bool:
    return False


class DiskFailed(Exception):
    """The disk failed once; the data being written is not durable, and is not written again."""


@attrs.frozen
class Boot:
    """`forgotten`: groups that have lost promises or votes, as the peers notice. `lost`: groups
    that have lost something since the last boot, whether or not anybody notices."""

    incarnation: Incarnation
    groups: dict[GroupId, Restart]
    forgotten: frozenset[GroupId] = frozenset()
    lost: frozenset[GroupId] = frozenset()


class Disk(Protocol):
    """`durable` lists what has become durable since it was last emptied, for the checkers.

    `slow_ns`: an fsync takes up to this long, 0: as usual. `hung`: none ends.
    """

    durable: list[Record]
    slow_ns: int
    hung: bool
    reads_late: Callable[[], bool]
    """Called for each read that memory could serve: whether it has to wait for the disk."""

    def boot(self, groups: Collection[GroupId]) -> Boot:
        """Recover, and count the boot durably.

        Raises:
            DiskFailed: after `fail_next`.
        """

    def append(self, records: list[Record]) -> None: ...

    @property
    def settled(self) -> bool:
        """Whether everything appended is durable."""

    def begin(self) -> bool:
        """Start an fsync of everything appended; False if there is nothing."""

    def end(self) -> bool:
        """The fsync has ended; False if there was no room, so that it must be ended later.

        Raises:
            DiskFailed: after `fail_next`.
        """

    # -- checkpoints --------------------------------------------------------------------------

    def save(self, group: GroupId, saved: Saved) -> bool:
        """Make a checkpoint durable beside the one before it, at once; False: there is no room.

        Raises:
            DiskFailed: after `fail_next`.
        """

    def newest(self, group: GroupId) -> Saved | None:
        """The checkpoint that was saved last."""

    def retire(self, group: GroupId) -> Slot:
        """Retire the records that the older of two checkpoints covers; returns its slot."""

    def skip(self, group: GroupId, slot: Slot) -> None:
        """The checkpoint came from a peer: the log goes on above `slot`."""

    def forget(self, group: GroupId) -> Recovered:
        """This node has left the group: keep only what it has promised, and that it does not vote,
        should it return."""

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        """Where the encoding of the entry that is being applied begins, for `read_span`."""

    def read_span(self, position: int, size: int) -> memoryview:
        """broker.ports.LogReader."""

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        """broker.ports.AppliedLog."""

    def read_soon(self, position: int, size: int) -> None:
        """broker.ports.AppliedLog."""

    def cut_power(self, chance: random.Random) -> None: ...

    def kill(self) -> None:
        """The process ended, the machine did not."""

    # -- faults -------------------------------------------------------------------------------

    def fail_next(self) -> None:
        """The next fsync, or the next boot, fails with EIO."""

    def fill(self) -> None:
        """No room for anything new, until `mend`."""

    def mend(self) -> None:
        """From now on it works as a disk should; what it has lost stays lost."""

    def remember(self) -> None:
        """Take the copy that `roll_back` restores."""

    def roll_back(self) -> None:
        """The directory of a node that is down becomes an old copy, or empty if there is none."""

    def wipe(self) -> None:
        """The directory of a node that is down is gone."""

    def damage(self, chance: random.Random) -> None:
        """Flip some bits of what a node that is down had synced."""

    @property
    def unsettled(self) -> bool:
        """It has lost something, and the node has not recorded that it may not vote."""


class RecordDisk:
    """`archive` has the entries of all slots that were ever chosen: what the state machines refer
    to is not lost when a log is retired. It stands for the cold segments."""

    def __init__(self, archive: Archive = NO_ARCHIVE) -> None:
        self.durable: list[Record] = []
        self.slow_ns = 0
        self.hung = False
        self.reads_late: Callable[[], bool] = never
        self._platter: list[Record] = []
        self._cached: list[Record] = []
        self._syncing = 0
        self._boots = 0
        self._archive = archive
        self._saved: dict[GroupId, list[Saved]] = {}
        """The last two generations, oldest first."""
        self._retired: dict[GroupId, Slot] = {}
        """Slots up to here are only in checkpoints."""
        self._failing = self._full = False
        self._copy = _Copy()
        self._forgotten: set[GroupId] = set()
        self._all_forgotten = False
        self._lost: set[GroupId] = set()
        self.keep_at_cut: int | None = None
        """For scripts: how many unsynced records survive the next power cut; None: random."""

    def boot(self, groups: Collection[GroupId]) -> Boot:
        if self._failing:
            self._failing = False
            raise DiskFailed("read")
        self._boots += 1
        if self._all_forgotten:
            self._all_forgotten = False
            self._forgotten, self._lost = set(groups), set(groups)
        newest = {group: kept[-1] for group, kept in self._saved.items()}
        found = restarts(self._platter, newest)
        for group, slot in self._retired.items():
            one = found.get(group)
            if one is None or not one.founded or one.applied < slot:
                self._forgotten.add(group)
                self._lost.add(group)
        lost, self._lost = self._lost, set()
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

    def save(self, group: GroupId, saved: Saved) -> bool:
        if self._failing:
            self._failing = False
            raise DiskFailed("fsync of a checkpoint")
        if self._full:
            return False
        self._saved[group] = [*self._saved.get(group, ())[-1:], saved]
        return True

    def newest(self, group: GroupId) -> Saved | None:
        kept = self._saved.get(group)
        return kept[-1] if kept else None

    def retire(self, group: GroupId) -> Slot:
        kept = self._saved.get(group, [])
        until = kept[0].slot if len(kept) > 1 else SLOT_ZERO
        if until > self._retired.get(group, SLOT_ZERO):
            self._platter = without(self._platter, group, until)
            self._retired[group] = until
        return until

    def skip(self, group: GroupId, slot: Slot) -> None:
        self._platter = without(self._platter, group, slot)
        self._retired[group] = slot

    def forget(self, group: GroupId) -> Recovered:
        self._platter = without(self._platter, group, SLOT_MAX)
        self._cached = without(self._cached, group, SLOT_MAX)
        self._syncing = min(self._syncing, len(self._cached))
        written = [r for r in (*self._platter, *self._cached) if r.group == group]
        found = restarts(written).get(group, Restart()).recovered
        floor = max(found.promised, found.floor)
        self._platter.append(VotingRecord(group, False, floor))
        self._saved.pop(group, None)
        self._retired.pop(group, None)
        return Recovered(found.promised, voting=False, floor=floor)

    def place(self, group: GroupId, slot: Slot, entry: Entry) -> int:
        """Entries lie so far apart that no reader takes two for neighbours."""
        return (group << SLOT_BITS | slot) << ENTRY_BITS

    def read_span(self, position: int, size: int) -> memoryview:
        where = position >> ENTRY_BITS
        slot = where & ((1 << SLOT_BITS) - 1)
        encoded = self._archive[GroupId(where >> SLOT_BITS)][slot - 1]
        start = position & ((1 << ENTRY_BITS) - 1)
        assert start + size <= len(encoded)
        return memoryview(encoded)[start : start + size]

    def read_span_now(self, position: int, size: int) -> memoryview | None:
        return None if self.reads_late() else self.read_span(position, size)

    def read_soon(self, position: int, size: int) -> None:
        pass  # it is in memory

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
        self._failing = self._full = self.hung = False
        self.slow_ns = 0

    def remember(self) -> None:
        saved = {group: list(kept) for group, kept in self._saved.items()}
        self._copy = _Copy(list(self._platter), saved, dict(self._retired))

    def roll_back(self) -> None:
        copy = self._copy
        self._platter = list(copy.platter)
        self._saved = {group: list(kept) for group, kept in copy.saved.items()}
        self._retired = dict(copy.retired)
        self._all_forgotten = True

    def wipe(self) -> None:
        self._copy = _Copy()
        self.roll_back()

    def damage(self, chance: random.Random) -> None:
        """A record has no bits: everything that a group wrote from some place on becomes
        unreadable, or its newest checkpoint does."""
        if self._saved and chance.random() < CHECKPOINT_SHARE:
            self.damage_checkpoint(chance.choice(sorted(self._saved)))
        elif self._platter:
            at = chance.randrange(len(self._platter))
            group = self._platter[at].group
            self._lose_from(group, at)
            self._forgotten.add(group)

    def damage_checkpoint(self, group: GroupId) -> None:
        """Damage the newest checkpoint: no restart begins with it."""
        self._saved[group].pop()
        if not self._saved[group]:
            del self._saved[group]

    def lose_tail(self, count: int) -> None:
        """A disk that lied: the last `count` records were acknowledged, and are gone."""
        at = len(self._platter) - count
        self._lost.update(record.group for record in self._platter[at:])
        del self._platter[at:]

    def lose_promise(self, group: GroupId) -> bool:
        """A disk that lied: what the group wrote at its last ballot is gone, and nothing shows it;
        False if it has promised only one ballot."""
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
            settle(self._forgotten, kept)


@attrs.define
class _Copy:
    platter: list[Record] = attrs.Factory(list)
    saved: dict[GroupId, list[Saved]] = attrs.Factory(dict)
    retired: dict[GroupId, Slot] = attrs.Factory(dict)


def settle(forgotten: set[GroupId], written: list[Record]) -> None:
    """Once it is durable that a group does not vote, its loss need not be noticed again."""
    for record in written:
        if isinstance(record, VotingRecord) and not record.voting:
            forgotten.discard(record.group)
