"""What a restart makes of the records that survived (the rule in paxos.step.AcceptRecord.applied).

A second, naive implementation beside storage's: it follows the rule to the letter, so that the two
check each other. A checkpoint proves all slots up to its own.
"""

from collections.abc import Iterable, Mapping

import attrs

from broker.state_machine.checkpoint_chunks import decode_chunk
from paxos import base as bases
from paxos.acceptor import Vote
from paxos.base import Base
from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, GroupId, Slot
from paxos.state.core import Recovered
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord, Record, VotingRecord


@attrs.frozen
class Saved:
    """A checkpoint of a group; the first of its chunks is the replica's base."""

    slot: Slot
    chunks: tuple[bytes, ...]

    @property
    def base(self) -> Base:
        return bases.decode(bytes(decode_chunk(self.chunks[0]).body))


@attrs.define(eq=False)
class Found:
    """One group: `chosen` are the entries of the slots after `base` that are proven chosen."""

    base: Slot = SLOT_ZERO
    promised: Ballot = BALLOT_ZERO
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    chosen: list[Entry] = attrs.Factory(list)
    _proven: Slot = SLOT_ZERO
    _last: dict[Slot, Entry] = attrs.Factory(dict)
    _votes: dict[Slot, Vote] = attrs.Factory(dict)
    _learned: dict[Slot, Entry] = attrs.Factory(dict)

    def absorb(self, record: Record) -> None:
        if isinstance(record, PromiseRecord):
            assert record.ballot >= self.promised, "promises never go back"
            self.promised = record.ballot
        elif isinstance(record, VotingRecord):
            self.voting, self.floor = record.voting, max(self.floor, record.floor)
            self._prove(record.applied)
        else:
            self._prove(record.applied)
            if isinstance(record, AcceptRecord):
                assert record.ballot >= self.promised, "votes never go below the promise"
                self.promised = record.ballot
                self._votes[record.slot] = (record.ballot, record.entry)
            else:
                assert isinstance(record, LearnedRecord)
                self._learned[record.slot] = record.entry
            self._last[record.slot] = record.entry
            if not self.founded:
                self._prove(self._proven)  # perhaps the missing entry has been learned again

    @property
    def applied(self) -> Slot:
        return Slot(self.base + len(self.chosen))

    @property
    def founded(self) -> bool:
        """False: a proven entry is not here, because the checkpoint that had it is gone."""
        return self.applied >= self._proven

    def _prove(self, applied: Slot) -> None:
        """Every slot up to `applied` is chosen; its last record so far holds the entry."""
        self._proven = max(self._proven, applied)
        while len(self.chosen) < self._proven - self.base:
            entry = self._last.get(Slot(self.applied + 1))
            if entry is None:
                return
            self.chosen.append(entry)

    def recovered(self, base: Base | None) -> Recovered:
        applied, open_from = self.applied, max(self._proven, self.applied)
        return Recovered(
            self.promised,
            {slot: vote for slot, vote in self._votes.items() if slot > open_from},
            {slot: entry for slot, entry in self._learned.items() if slot > applied},
            self.voting,
            self.floor,
            base,
            open_from,
        )


@attrs.frozen
class Restart:
    """What a disk returns for one group: the checkpoint to start with, its replica's state, and the
    entries to replay after it."""

    recovered: Recovered = attrs.Factory(Recovered)
    chosen: tuple[Entry, ...] = ()
    chunks: tuple[bytes, ...] = ()
    founded: bool = True

    @property
    def applied(self) -> int:
        base = self.recovered.base
        return len(self.chosen) + (0 if base is None else base.slot)


NOTHING_SAVED: Mapping[GroupId, Saved] = {}


def restarts(
    records: Iterable[Record], saved: Mapping[GroupId, Saved] = NOTHING_SAVED
) -> dict[GroupId, Restart]:
    """`saved`: for each group with a checkpoint, the one to start with."""
    groups = {group: Found(one.slot) for group, one in saved.items()}
    for record in records:
        found = groups.get(record.group)
        if found is None:
            found = groups[record.group] = Found()
        found.absorb(record)
    return {group: _restart(found, saved.get(group)) for group, found in groups.items()}


def _restart(found: Found, saved: Saved | None) -> Restart:
    recovered = found.recovered(None if saved is None else saved.base)
    chunks = () if saved is None else saved.chunks
    return Restart(recovered, tuple(found.chosen), chunks, found.founded)


def without(records: Iterable[Record], group: GroupId, until: Slot) -> list[Record]:
    """The records that are left when a log is retired: the group's promise stays."""
    kept: list[Record] = []
    promised = BALLOT_ZERO
    for record in records:
        if record.group != group or isinstance(record, VotingRecord):
            kept.append(record)
            continue
        if isinstance(record, AcceptRecord | PromiseRecord):
            promised, risen = record.ballot, record.ballot > promised
            if isinstance(record, PromiseRecord) or record.slot <= until:
                if risen:
                    kept.append(PromiseRecord(group, promised))
                continue
        elif record.slot <= until:
            continue
        kept.append(record)
    return kept
