"""How a running node repairs damage in its log: write again, become non-voting, learn again.

Damage is identified by its position (storage.log.walk.Hole). The affected groups' promises and
votes are still in memory and are written again (paxos.changes.rewriting), or the groups become
non-voting by the rule of paxos.changes.rejoin. The slots in the damaged place are not read any
more. Only after that, in the order of the log, a note says that this damage is known, so that the
next restart does not handle it again.

Lost entries of applied slots are requested from the peers, group by group and node by node, with
the same Learn that a member sends to catch up. They come by value from an applied log, are written
again at the end of our log, and the state machine gets their new positions. Entries of slots that
were not applied yet come the usual way. After a restart there is a gap instead: once the peers have
closed it, the entries after it are *recalled* from our own disk, so that nobody sends them again.

A thread does the reading for this (ADR 47): a disk that needs repair may also hang.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Final, NamedTuple, Protocol, TypeVar

import attrs

from paxos.changes import rejoin, testimony
from paxos.changes.rewriting import write_again
from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, MS, GroupId, NodeId, Now, Slot
from paxos.messages import Learn, Learned, Message, Trimmed
from paxos.multigroup import MultiGroup
from paxos.replica import Replica
from paxos.step import LearnedRecord, PromiseRecord, Send, Step, VotingRecord
from runtime.disk.log_server import ReadEntries, places_of, read_entries
from runtime.system.journal import Journal
from runtime.system.worker import Worker
from storage.errors import StorageFailed, WalDamaged
from storage.format import ACCEPT, LEARNED, RECORD_HEADER_BYTES, Place
from storage.log.wal import Wal
from storage.log.walk import Hole

T = TypeVar("T")
ASK_EVERY_NS: Final = 500 * MS
ASKING_MAX: Final = 4
"""Groups that wait for answers at a time."""
RECALLING_MAX: Final = 4
"""Groups whose entries after a gap are being read, or are in memory, at a time."""
RECALL_BYTES: Final = 512 * 1024
"""What is recalled from our own log per tick and group: the loop has other work."""


class Relocating(Protocol):
    def relocate(self, entry: Entry, old: int, new: int) -> None:
        """An applied entry was written again: its encoding now begins at position `new`."""


@attrs.frozen
class Lost:
    """The place of a slot's damaged record, and the size of its entry."""

    place: Place
    size: int


class Returned(NamedTuple):
    """A lost entry that a peer has sent."""

    slot: Slot
    lost: Lost
    entry: Entry


class Repairs:
    """`reader` is the thread that reads; without one (a node without threads) the loop reads."""

    def __init__(
        self,
        multi: MultiGroup,
        wal: Wal,
        machines: Mapping[GroupId, Relocating],
        journal: Journal,
    ) -> None:
        self._multi, self._wal, self._journal = multi, wal, journal
        self._machines = machines
        self._lost: dict[GroupId, dict[Slot, Lost]] = {}
        self._proven: dict[GroupId, Slot] = {}
        self._trimmed: dict[GroupId, dict[NodeId, Slot]] = {}
        """Where the logs begin of those peers that no longer have the entries."""
        self.given_up: Callable[[GroupId, Place], None] = lambda _group, _place: None
        """Called if no peer's log has what was lost here below a place: only cold data may."""
        self._asked: dict[GroupId, int] = {}
        """Until when each group waits for an answer."""
        self._turn = 0
        self.reader: Worker | None = None
        self._comparing: set[GroupId] = set()
        """Groups whose returned entries wait for the thread. No more are accepted meanwhile, or
        answers would pile up while a disk hangs."""
        self._recalling: set[GroupId] = set()
        """Groups whose slots after a gap are being read."""
        self._recalled: dict[GroupId, tuple[Slot, ReadEntries]] = {}
        """The entries that were read, and the first slot."""
        self.found = 0
        """Damaged places found in the log, including those found at the restart."""
        self.repaired = 0
        """Entries that were learned and written again."""

    @property
    def missing(self) -> int:
        """Applied entries that cannot be read here at present."""
        return sum(map(len, self._lost.values()))

    @property
    def idle(self) -> bool:
        return not self._lost and not self._proven

    def learns_again(self, group: GroupId) -> bool:
        """Whether entries of this group are being requested from peers."""
        return group in self._lost

    def forget(self, group: GroupId) -> None:
        """Forget a group that this node is no longer a member of."""
        for one in (self._lost, self._proven, self._trimmed, self._asked, self._recalled):
            one.pop(group, None)

    # -- damage -------------------------------------------------------------------------------

    def at_boot(self, holes: Iterable[Hole]) -> None:
        """Log the damage found at the restart, which has already been handled."""
        for hole in holes:
            self.found += 1
            self._journal.error("log damaged", where=str(hole))

    def recall_to(self, group: GroupId, proven: Slot) -> None:
        """Recall slots up to `proven`, which are chosen, as far as our own disk has them."""
        self._proven[group] = proven

    def damaged(self, now: Now, hole: Hole, step: Step) -> bool:
        """Handle damage found while running; False if it is known already.

        The caller stages what `step` persists, and then notes the damage in the log.
        """
        wal = self._wal
        if (hole.start, hole.end) in wal.known_damage:
            return False
        self.found += 1
        self._journal.error("log damaged", where=str(hole))
        lost: dict[GroupId, dict[Slot, Lost]] = {}
        for group, slot, place, size in wal.losses(hole.start, hole.end, hole.group):
            lost.setdefault(group, {})[slot] = Lost(place, size)
            wal.drop(group, slot)
        groups = {*self._multi.replicas} if hole.group is None else {hole.group, *lost}
        for group in sorted(groups):
            replica = self._multi.replicas.get(group)
            if replica is not None:
                slots = lost.get(group, {})
                known = None if hole.group is None else set(slots)
                if known is not None and hole.kind in (ACCEPT, LEARNED):
                    known.add(hole.slot)
                if not write_again(replica, known, str(hole), step):
                    rejoin.distrust(replica, now, sorted(slots), str(hole), step)
                self._miss(replica, slots)
                if hole.kind == ACCEPT and hole.ballot is not None and hole.slot in slots:
                    testimony.note(replica, hole.slot, hole.ballot)
        for group in wal.groups():
            if group not in self._multi.replicas and hole.group in (None, group):
                self._write_again_elsewhere(group, step)
        return True

    def _write_again_elsewhere(self, group: GroupId, step: Step) -> None:
        """The log also keeps the promises of groups that this node no longer has."""
        promised, voting, floor = self._wal.acceptor(group)
        if promised != BALLOT_ZERO:
            step.persist.append(PromiseRecord(group, promised))
        step.persist.append(VotingRecord(group, voting, floor))

    def _miss(self, replica: Replica, slots: dict[Slot, Lost]) -> None:
        applied = {slot: one for slot, one in slots.items() if slot <= replica.learner.applied}
        if applied:
            self._lost.setdefault(replica.group, {}).update(applied)

    # -- repair -------------------------------------------------------------------------------

    def tick(self, now: Now, step: Step) -> list[Place]:
        """Request missing entries and recall others; returns where more damage was found."""
        if self._lost:
            self._ask(now, step)
        return [place for group in [*self._proven] for place in self._recall(now, group, step)]

    def _ask(self, now: Now, step: Step) -> None:
        """One request per group at a time, for at most ASKING_MAX groups, so that the load on peers
        and links does not grow with the damage."""
        for group in [*islice(self._lost, ASKING_MAX)]:
            if group in self._comparing or now.boot_ns < self._asked.get(group, 0):
                continue
            self._asked[group] = now.boot_ns + ASK_EVERY_NS
            self._turn += 1
            replica, slots = self._multi.replicas[group], self._lost.pop(group)
            self._lost[group] = slots  # move it to the end, so that other groups get their turn
            others = replica.others(replica.members)
            if others:
                node = others[self._turn % len(others)]
                step.before.append(Send(node, Learn(group, Slot(min(slots) - 1))))

    def on_message(self, sender: NodeId, message: Message) -> None:
        if type(message) is Learned:
            self.on_learned(sender, message)
        elif type(message) is Trimmed:
            self.on_trimmed(sender, message)

    def on_learned(self, sender: NodeId, message: Learned) -> None:
        """Take the entries that we miss from a peer's answer."""
        lost = self._lost.get(message.group)
        if lost is None or message.group in self._comparing:
            return
        returned = [
            Returned(slot, lost[slot], entry)
            for slot, entry in zip(map(Slot, count(message.start)), message.entries, strict=False)
            if slot in lost
        ]
        if returned:
            self._comparing.add(message.group)
            work = partial(self._compare, returned)
            self._read(work, partial(self._repair, sender, message.group))

    def _read(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        if self.reader is None:
            done(work())
        else:
            self.reader.submit(work, done)

    def on_trimmed(self, sender: NodeId, message: Trimmed) -> None:
        """A peer's log begins later. If that is true of all peers, the lost entries no longer exist
        in any log: the group needs a checkpoint in their place, and its batches come from the
        peers' cold data."""
        lost = self._lost.get(message.group)
        if lost is None:
            return
        begins = self._trimmed.setdefault(message.group, {})
        begins[sender] = message.first
        replica = self._multi.replicas[message.group]
        others = replica.others(replica.members)
        if not others or not all(node in begins for node in others):
            return
        least = min(begins[node] for node in others)
        testimony.found_again(replica, [slot for slot in lost if slot < least])
        gone = [lost.pop(slot) for slot in sorted(lost) if slot < least]
        del self._trimmed[message.group]
        if not lost:
            del self._lost[message.group]
        if gone:
            self._journal.warning("entries not repaired", group=message.group, entries=len(gone))
            self.given_up(message.group, max(one.place + one.size for one in gone))

    def _compare(self, returned: Sequence[Returned]) -> list[tuple[Returned, bool | None]]:
        """Whether each entry agrees with the rest of its damaged record; in a thread."""
        agrees = self._wal.agrees
        return [(one, agrees(one.lost.place, one.lost.size, one.entry)) for one in returned]

    def _repair(
        self, sender: NodeId, group: GroupId, compared: Sequence[tuple[Returned, bool | None]]
    ) -> None:
        """Write returned entries again, and tell the state machine their new positions."""
        self._comparing.discard(group)
        self._asked.pop(group, None)
        for one, agrees in compared:
            slots = self._lost.get(group)
            if slots is None or slots.get(one.slot) != one.lost:
                continue  # it was repaired, or given up, meanwhile
            if agrees is False:
                what = f"an entry of {one.entry.size} bytes is not the one of {one.lost.size}"
                self._journal.error(
                    "repair refused",
                    peer=sender,
                    group=group,
                    slot=one.slot,
                    reason=f"{what} that was here",
                )
                continue
            self._write_again(group, one)
            del slots[one.slot]
            if not slots:
                del self._lost[group]

    def _write_again(self, group: GroupId, one: Returned) -> None:
        replica = self._multi.replicas[group]
        record = LearnedRecord(group, one.slot, one.entry, replica.learner.applied)
        place = self._wal.stage(record)
        old, new = one.lost.place + RECORD_HEADER_BYTES, place + RECORD_HEADER_BYTES
        self._machines[group].relocate(one.entry, old, new)
        testimony.found_again(replica, (one.slot,))
        self.repaired += 1

    def _recall(self, now: Now, group: GroupId, step: Step) -> list[Place]:
        """Continue with the entries after a gap, once it is closed."""
        replica, proven = self._multi.replicas[group], self._proven[group]
        start = Slot(replica.learner.applied + 1)
        if start < self._wal.slots(group).start:
            self._recalled.pop(group, None)
            return []  # the state before it comes from a peer (broker.transfer)
        if start > proven:
            del self._proven[group]
            self._recalled.pop(group, None)
            return []
        read = self._recalled_from(group, start, proven)
        if read is None:
            return []
        for slot, entry in enumerate(read.entries, start):
            replica.recall(now, Slot(slot), entry, step)
        damage = read.failure
        return [damage.place] if isinstance(damage, WalDamaged) else []

    def _recalled_from(self, group: GroupId, start: Slot, proven: Slot) -> ReadEntries | None:
        """The entries of our log from that slot on; None: they are still being read."""
        if group not in self._recalling and group not in self._recalled:
            if len(self._recalling) + len(self._recalled) >= RECALLING_MAX:
                return None
            found = places_of(self._wal, group, start, proven, RECALL_BYTES)
            if not found.places:
                return None
            self._recalling.add(group)
            self._read(
                partial(read_entries, found, group, start),
                partial(self._has_recalled, group, start),
            )
        begin, read = self._recalled.pop(group, (start, None))
        return read if begin == start else None

    def _has_recalled(self, group: GroupId, start: Slot, read: ReadEntries) -> None:
        self._recalling.discard(group)
        replica = self._multi.replicas.get(group)
        if group not in self._proven or replica is None or replica.learner.applied + 1 != start:
            return  # dropped, or a peer's state replaced them: the segments may be gone
        if isinstance(read.failure, StorageFailed):
            raise read.failure
        self._recalled[group] = start, read
