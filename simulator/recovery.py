"""What a restart makes of the records that survived (the rule in paxos.step.AcceptRecord.applied).

A second, naive implementation beside storage's: it reads the rule as it is written, so that the two
check each other.
"""

from collections.abc import Iterable

import attrs

from paxos.acceptor import Vote
from paxos.entry import Entry
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Slot
from paxos.replica import Recovered
from paxos.step import AcceptRecord, LearnedRecord, PromiseRecord, Record, VotingRecord


@attrs.define(eq=False)
class Found:
    """One group: `chosen` are the entries of slots 1.. that are proven to be chosen."""

    promised: Ballot = BALLOT_ZERO
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    chosen: list[Entry] = attrs.Factory(list)
    _last: dict[Slot, Entry] = attrs.Factory(dict)
    _votes: dict[Slot, Vote] = attrs.Factory(dict)
    _learned: dict[Slot, Entry] = attrs.Factory(dict)

    def absorb(self, record: Record) -> None:
        if isinstance(record, PromiseRecord):
            assert record.ballot >= self.promised, "promises never go back"
            self.promised = record.ballot
        elif isinstance(record, VotingRecord):
            self.voting, self.floor = record.voting, max(self.floor, record.floor)
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

    def _prove(self, applied: Slot) -> None:
        """Every slot up to `applied` is chosen, its last record so far holds the entry."""
        while len(self.chosen) < applied:
            self.chosen.append(self._last[Slot(len(self.chosen) + 1)])

    def recovered(self) -> Recovered:
        applied = len(self.chosen)
        return Recovered(
            self.promised,
            {slot: vote for slot, vote in self._votes.items() if slot > applied},
            {slot: entry for slot, entry in self._learned.items() if slot > applied},
            self.voting,
            self.floor,
        )


def recover(records: Iterable[Record]) -> dict[GroupId, Found]:
    groups: dict[GroupId, Found] = {}
    for record in records:
        found = groups.get(record.group)
        if found is None:
            found = groups[record.group] = Found()
        found.absorb(record)
    return groups


@attrs.frozen
class Restart:
    """What a disk gives back for one group: its state, and the entries to replay from slot 1."""

    recovered: Recovered = attrs.Factory(Recovered)
    chosen: tuple[Entry, ...] = ()


def restarts(records: Iterable[Record]) -> dict[GroupId, Restart]:
    return {
        group: Restart(found.recovered(), tuple(found.chosen))
        for group, found in recover(records).items()
    }
