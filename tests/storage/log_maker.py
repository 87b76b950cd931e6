"""Logs for tests: random legal records, and a plain description of what a restart must find."""

from collections.abc import Iterable, Iterator
from random import Random

import attrs

from paxos.entry import Entry, batch
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, NodeId, Slot
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord, Record, VotingRecord
from storage.checkpoints import Checkpoint, CheckpointFiles
from storage.disk.files import Disk
from storage.identity import boot
from storage.log.model import Recovered, WalConfig
from storage.log.opening import open_wal
from storage.log.wal import Wal

CLUSTER = "test-cluster"
NODE = NodeId(7)
SMALL = WalConfig(segment_bytes=4096)


def start(disk: Disk, config: WalConfig = SMALL) -> tuple[Wal, Recovered]:
    return open_wal(disk, boot(disk, CLUSTER, NODE), config)


def start_from(
    disk: Disk, config: WalConfig = SMALL
) -> tuple[Wal, Recovered, CheckpointFiles, dict[GroupId, Checkpoint]]:
    """As a node boots: from its checkpoints, and the part of the log that they need."""
    identity = boot(disk, CLUSTER, NODE)
    files = CheckpointFiles(disk, identity)
    found = {group: files.load(group) for group in files.groups()}
    loaded = {group: one for group, one in found.items() if one is not None and not one.lost}
    bases = {group: (one.slot, one.needs) for group, one in loaded.items()}
    wal, recovered = open_wal(disk, identity, config, (), bases)
    return wal, recovered, files, loaded


def sync(wal: Wal) -> None:
    """Loop, writer and loop again, with everything that is staged."""
    batch_ = wal.take()
    if batch_ is not None:
        wal.write(batch_)
        wal.written(batch_)


def accept(
    slot: int, data: bytes = b"data", *, group: int = 1, round_: int = 1, applied: int = 0
) -> AcceptRecord:
    ballot = Ballot(round_, NODE)
    return AcceptRecord(GroupId(group), Slot(slot), ballot, batch((data,)), Slot(applied))


def learned(slot: int, data: bytes, *, group: int = 1, applied: int = 0) -> LearnedRecord:
    return LearnedRecord(GroupId(group), Slot(slot), batch((data,)), Slot(applied))


def promise(round_: int, *, group: int = 1) -> PromiseRecord:
    return PromiseRecord(GroupId(group), Ballot(round_, NODE))


def encoded(entry: Entry) -> bytes:
    return b"".join(entry.chunks)


@attrs.define
class GroupImage:
    """One group as a restart must find it."""

    promised: Ballot = BALLOT_ZERO
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    applied: int = 0
    proven: int = 0
    """Slots up to here are known to be chosen; without damage this equals what is applied."""
    votes: dict[int, tuple[Ballot, bytes]] = attrs.Factory(dict)
    learned: dict[int, bytes] = attrs.Factory(dict)
    entries: dict[int, bytes] = attrs.Factory(dict)
    all_votes: dict[int, tuple[Ballot, bytes]] = attrs.field(factory=dict, eq=False)
    """All votes ever, including those for applied slots."""

    def visible(self) -> "GroupImage":
        open_votes = {slot: vote for slot, vote in self.votes.items() if slot > self.applied}
        open_learned = {slot: data for slot, data in self.learned.items() if slot > self.applied}
        return attrs.evolve(
            self,
            proven=self.applied,
            votes=open_votes,
            learned=open_learned,
            entries=dict(self.entries),
            all_votes=dict(self.votes),
        )


Image = dict[int, GroupImage]


@attrs.frozen
class Skip:
    """The state up to `slot` came from a peer."""

    group: GroupId
    slot: Slot


def images(records: Iterable[Record | Skip]) -> list[Image]:
    """What a restart must find after each prefix of `records`, the empty one first."""
    groups: Image = {}
    found: list[Image] = [{}]
    for record in records:
        group = groups.setdefault(record.group, GroupImage())
        if isinstance(record, Skip):
            group.applied = max(group.applied, record.slot)
        elif isinstance(record, AcceptRecord):
            group.promised = record.ballot
            group.votes[record.slot] = (record.ballot, encoded(record.entry))
            if record.slot not in group.learned:
                group.entries[record.slot] = encoded(record.entry)
            group.applied = max(group.applied, record.applied)
        elif isinstance(record, LearnedRecord):
            group.learned[record.slot] = group.entries[record.slot] = encoded(record.entry)
            group.applied = max(group.applied, record.applied)
        elif isinstance(record, PromiseRecord):
            group.promised = record.ballot
        else:
            group.voting, group.floor = record.voting, record.floor
            group.applied = max(group.applied, record.applied)
        found.append({number: image.visible() for number, image in groups.items()})
    return found


def image_of(wal: Wal, recovered: Recovered) -> Image:
    """What this restart found, with every entry read back."""
    found: Image = {}
    for number, group in recovered.groups.items():
        image = GroupImage(group.promised, group.voting, group.floor, group.applied, group.proven)
        image.votes = {slot: (b, encoded(entry)) for slot, (b, entry) in group.votes.items()}
        image.learned = {slot: encoded(entry) for slot, entry in group.learned.items()}
        image.entries = entries_of(wal, number)
        found[number] = image
    return found


def entries_of(wal: Wal, group: GroupId) -> dict[int, bytes]:
    entries: dict[int, bytes] = {}
    for slot in wal.slots(group):
        try:
            entries[slot] = encoded(wal.read_entry(group, slot))
        except LookupError:
            continue
        size = wal.find(group, slot)[1]
        assert bytes(wal.read_span(wal.payload_position(group, slot), size)) == entries[slot]
    return entries


def concerned(recovered: Recovered, groups: Iterable[int]) -> set[int]:
    """The groups that may have lost something by the damage that a restart has found."""
    if recovered.unattributed:
        return set(groups)
    return {hole.group for hole in recovered.damage if hole.group is not None}


def is_salvaged(found: Image, hit: set[int], truth: Image) -> bool:
    """Whether `found` equals `truth` except for damaged groups, and nothing about these is wrong.

    Damaged groups may lack entries. They may vote only if they know everything that binds them:
    their promises, and each vote for a slot that is not known to be chosen. No other group lacks
    anything.
    """
    if {number: one for number, one in found.items() if number not in hit} != {
        number: one for number, one in truth.items() if number not in hit
    }:
        return False
    for number in hit & found.keys():
        one, whole = found[number], truth.get(number, GroupImage())
        if one.voting and not _knows_its_votes(one, whole):
            return False
        if one.applied > whole.applied:
            return False
        if one.entries.items() - whole.entries.items():
            return False
        if any(slot not in one.entries for slot in range(1, one.applied + 1)):
            return False
    return True


def _knows_its_votes(one: GroupImage, whole: GroupImage) -> bool:
    open_votes = {slot: vote for slot, vote in whole.all_votes.items() if slot > one.proven}
    return (
        whole.voting
        and (one.promised, one.floor) == (whole.promised, whole.floor)
        and one.proven <= whole.applied
        and one.votes == open_votes
    )


class Author:
    """Draws legal records: ballots never go back, slots stay within a window above `applied`."""

    def __init__(self, dice: Random, groups: int = 3, size_max: int = 200) -> None:
        self._dice = dice
        self._size_max = size_max
        self._rounds = dict.fromkeys(range(groups), 0)
        self._applied = dict.fromkeys(range(groups), 0)
        self._chosen: dict[tuple[int, int], bytes] = {}
        """Chosen entries that were learned: the same each time."""

    def record(self) -> Record:
        dice = self._dice
        group = dice.choice(sorted(self._rounds))
        kind = dice.choices(["accept", "learned", "promise", "voting"], [10, 2, 1, 1])[0]
        if kind == "promise" or self._rounds[group] == 0:
            self._rounds[group] += 1
            return promise(self._rounds[group], group=group)
        if kind == "voting":
            floor = Ballot(self._rounds[group], NODE)
            return VotingRecord(GroupId(group), dice.random() < 0.5, floor)
        applied = self._applied[group]
        slot = applied + dice.choice([1, 1, 1, 1, 1, 2, 3, 4])
        data = dice.randbytes(dice.randint(0, self._size_max))
        if kind == "learned":
            data = self._chosen.setdefault((group, slot), data)
            return learned(slot, data, group=group, applied=applied)
        data = self._chosen.get((group, slot), data)  # after that nobody votes for another value
        return accept(slot, data, group=group, round_=self._rounds[group], applied=applied)

    def note(self, record: Record) -> None:
        """Apply a slot now and then: the next one, if it has a record."""
        if isinstance(record, AcceptRecord | LearnedRecord):
            number = record.group
            if record.slot == self._applied[number] + 1 and self._dice.random() < 0.8:
                self._applied[number] = record.slot

    def applied(self) -> dict[GroupId, Slot]:
        return {GroupId(group): Slot(slot) for group, slot in self._applied.items()}

    def skip(self, group: GroupId, slot: Slot) -> None:
        self._applied[group] = slot

    def resume(self, image: Image) -> None:
        """Continue from what a restart has found."""
        for number in self._rounds:
            group = image.get(number, GroupImage())
            self._rounds[number] = group.promised.round
            self._applied[number] = group.applied

    def records(self, count: int) -> Iterator[Record]:
        for _ in range(count):
            record = self.record()
            self.note(record)
            yield record


def differences(image: Image, expected: Image) -> str:
    """The differences of two images, in short."""
    words = []
    for number in sorted(image.keys() | expected.keys()):
        one = attrs.asdict(image.get(number, GroupImage()), recurse=False)
        other = attrs.asdict(expected.get(number, GroupImage()), recurse=False)
        words += [
            f"group {number} {field}: {_brief(one[field])}, not {_brief(other[field])}"
            for field in one
            if one[field] != other[field] and field != "all_votes"
        ]
    return "; ".join(words)


def _brief(value: object) -> str:
    return str(sorted(value)) if isinstance(value, dict) else str(value)
