"""The acceptor: what a member has promised and voted. It decides on ballots alone (R9).

It does not look, on purpose, at who sends (a Steal delegates ballots), at the lease, at whether an
earlier Steal is applied, or at gaps below the slot. It forgets votes for applied slots: they are
chosen, and a Prepare that starts at one gets Behind (ADR 3).
"""

import attrs

from paxos.entry import Entry, EntryKind
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, GroupId, NodeId, Slot
from paxos.messages import Accept, Accepted, Behind, Nack, Prepare, Promise
from paxos.step import AcceptRecord, PromiseRecord, Send, Step
from paxos.timing import ACCEPT_AHEAD_BYTES_MAX, ACCEPT_AHEAD_SLOTS_MAX

Vote = tuple[Ballot, Entry]


@attrs.define(kw_only=True, eq=False)
class Acceptor:
    group: GroupId
    promised: Ballot = BALLOT_ZERO
    votes: dict[Slot, Vote] = attrs.Factory(dict)
    voting: bool = True
    votes_bytes: int = 0
    recorded: Slot = SLOT_ZERO
    """The applied prefix that our records prove: no restart falls behind it.

    Lemma (ADR 4, "Why the others must pass the bar"): a member that has told a rejoining one that
    it applied a slot must answer Behind to every Prepare from there, in every later life. So it
    reports this slot and not `Learner.applied`: a record that is not written yet proves nothing.
    """

    def promise_own(self, ballot: Ballot, step: Step) -> None:
        """Promise our own new ballot: durable before the Prepare leaves (R1)."""
        assert ballot > self.promised, f"{ballot} was used or outbid: promised {self.promised}"
        self.promised = ballot
        step.persist.append(PromiseRecord(self.group, ballot))

    def votes_from(self, start: Slot) -> tuple[tuple[Slot, Ballot, Entry], ...]:
        return tuple((slot, *self.votes[slot]) for slot in sorted(self.votes) if slot >= start)

    def on_prepare(self, sender: NodeId, prepare: Prepare, applied: Slot, step: Step) -> bool:
        """Promise or refuse; returns whether the ballot was promised."""
        group, ballot = self.group, prepare.ballot
        if ballot < self.promised:
            step.after.append(Send(sender, Nack(group, ballot, self.promised)))
            return False
        if prepare.start <= applied:  # its votes are forgotten; refusing is always legal
            step.before.append(Send(sender, Behind(group, ballot, applied)))
            return False
        self.promised = ballot
        step.persist.append(PromiseRecord(group, ballot))
        promise = Promise(group, ballot, self.votes_from(prepare.start))
        step.after.append(Send(sender, promise))
        return True

    def on_accept(
        self, sender: NodeId, accept: Accept, applied: Slot, chosen: bool, step: Step
    ) -> bool:
        """Vote or refuse; returns whether the accept's ballot stands (is at least promised).

        A slot known to be chosen is acknowledged without a vote record: the latest record of a
        slot must stay the chosen one, for a restart to replay it, and a stale ballot may still
        carry another value here.

        Lemma (ADR 3): no quorum for another value v' at b' needs this acknowledgement. Let b1 be
        the first ballot above b' that proposed anything but v' here; some ballot did, for the
        choice is not v'. Phase 1 of b1 was complete before the choice, so before we knew of it: we
        were not in it, or we would refuse b'. Its quorum and that of v' share another member, which
        voted for v' before it promised b1. So b1 found v', and proposed v'.
        """
        ballot, slot = accept.ballot, accept.slot
        if ballot < self.promised:
            step.after.append(Send(sender, Nack(self.group, ballot, self.promised)))
            return False
        if not chosen:
            known = self.votes.get(slot)
            if known is None or known[0] != ballot:
                if not self._has_room(slot, accept.entry, applied):
                    return True
                self._vote(slot, ballot, accept.entry, applied, step)
        elif ballot > self.promised:
            # The vote would add nothing, but the promise that goes with it does.
            self.promised = ballot
            step.persist.append(PromiseRecord(self.group, ballot))
        step.after.append(Send(sender, Accepted(self.group, ballot, slot)))
        return True

    def vote_own(
        self, me: NodeId, slot: Slot, ballot: Ballot, entry: Entry, applied: Slot, step: Step
    ) -> None:
        """The proposer's own vote: counted when durable, so it is sent to ourselves `after`."""
        self._vote(slot, ballot, entry, applied, step)
        step.after.append(Send(me, Accepted(self.group, ballot, slot)))

    def voted_config(self) -> bool:
        """Whether it has voted for a change of members that is not known to be chosen."""
        return any(entry.kind == EntryKind.CONFIG for _, entry in self.votes.values())

    def forget(self, slot: Slot) -> Vote | None:
        """Drop the vote of a slot that is being applied, and return it."""
        vote = self.votes.pop(slot, None)
        if vote is not None:
            self.votes_bytes -= vote[1].size
        return vote

    def note_recorded(self, applied: Slot) -> None:
        """A record says that the prefix up to here is applied."""
        self.recorded = applied

    def stop_voting(self) -> None:
        """Promises or votes may be forgotten (paxos/changes/rejoin.py)."""
        self.voting = False

    def vote_again(self, floor: Ballot) -> None:
        """Whatever was forgotten does no harm, provided that nothing below `floor` is promised."""
        assert floor >= self.promised
        self.promised, self.voting = floor, True

    def _has_room(self, slot: Slot, entry: Entry, applied: Slot) -> bool:
        if slot == applied + 1:
            return True  # always, so that a full table cannot block progress
        return (
            slot <= applied + ACCEPT_AHEAD_SLOTS_MAX
            and self.votes_bytes + entry.size <= ACCEPT_AHEAD_BYTES_MAX
        )

    def _vote(self, slot: Slot, ballot: Ballot, entry: Entry, applied: Slot, step: Step) -> None:
        old = self.votes.get(slot)
        if old is not None:
            self.votes_bytes -= old[1].size
        self.promised = ballot
        self.votes[slot] = (ballot, entry)
        self.votes_bytes += entry.size
        self.recorded = applied
        step.persist.append(AcceptRecord(self.group, slot, ballot, entry, applied))
