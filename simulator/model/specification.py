"""The rules of docs/protocol.md as an executable specification: which event may follow which.

Each method is a guard over the abstract state of one group (who has promised and voted what, which
slots of which ballot belong to whom, what is decided, how far each node has applied it) and then
the event's effect on it. It knows only rules: no timer, no retransmission, no message that must be
sent. So the code refines the rules if every trace of it is accepted; it need not use everything
that the rules allow.

It shares no code with paxos/ except the names of things. Every refusal names the rule.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NoReturn

import attrs

from paxos.entry import EntryKind
from paxos.ids import (
    BALLOT_ZERO,
    EPOCH_ZERO,
    INCARNATION_ZERO,
    NOBODY,
    SLOT_ZERO,
    Ballot,
    Epoch,
    Incarnation,
    NodeId,
    Slot,
)
from simulator.model import events
from simulator.model.events import Event, Value

PAIR: Final = 2
FOR_EVER: Final = Slot(2**62)


class Refused(AssertionError):
    """No rule allows this event in this state."""

    def __init__(self, rule: str, why: str, event: Event) -> None:
        super().__init__(f"{rule}: {why}: {event}")
        self.rule, self.event = rule, event


@attrs.define
class Lease:
    """The lease record after the prefix that a node has applied."""

    holder: NodeId = NOBODY
    incarnation: Incarnation = INCARNATION_ZERO
    version: Slot = SLOT_ZERO
    epoch: Epoch = EPOCH_ZERO
    expires_ns: int = 0

    def apply(self, slot: Slot, value: Value) -> bool:
        """The effect of a lease entry; False if it names another version (R8)."""
        if value.prev_ver != self.version:
            return False
        same = (value.node, value.incarnation) == (self.holder, self.incarnation)
        if same and value.kind == EntryKind.BE_MASTER:
            self.expires_ns = max(self.expires_ns, value.expires_ns)  # R15
        else:
            self.holder, self.incarnation = value.node, value.incarnation
            self.expires_ns = value.expires_ns
            self.epoch = Epoch(self.epoch + 1)
        self.version = slot
        return True


@attrs.define
class Range:
    """Slots that a node owns under a ballot. Everything up to `recover_to` must be applied before
    it may propose a Steal there (R4b)."""

    low: Slot
    high: Slot
    recover_to: Slot
    found: Mapping[Slot, Value]


@attrs.define
class PreparedBallot:
    """Phase 1 of one ballot: the members it is bound to (R10), and the promises received."""

    start: Slot
    incarnation: Incarnation
    members: tuple[NodeId, ...]
    promised: set[NodeId] = attrs.Factory(set)
    promises: dict[NodeId, tuple[events.Vote, ...]] = attrs.Factory(dict)
    """The promises that the node has received, by sender."""
    complete: bool = False


@attrs.define
class Node:
    incarnation: Incarnation = INCARNATION_ZERO
    up: bool = False
    promised: Ballot = BALLOT_ZERO
    """Durable, like the votes: per slot, what it voted for at which ballot."""
    votes: dict[Slot, dict[Ballot, Value]] = attrs.Factory(dict)
    applied: Slot = SLOT_ZERO
    lease: Lease = attrs.Factory(Lease)
    suspended: Slot = SLOT_ZERO
    ranges: dict[Ballot, list[Range]] = attrs.Factory(dict)
    counted: dict[Ballot, Slot] = attrs.Factory(dict)
    own: set[tuple[Slot, str]] = attrs.Factory(set)
    """What it has proposed in this life: slots and digests."""
    told: set[NodeId] = attrs.Factory(set)
    """Who has told this life what it remembers of the node."""
    has_forgotten: bool = False
    """Its disk has lost something it had acknowledged, at some time."""
    forgotten: set[Slot] = attrs.Factory(set)
    """Slots in which its disk has lost a vote."""
    floor: Ballot = BALLOT_ZERO
    """The highest ballot that has led with a promise that its disk may have lost."""

    def end_life(self) -> None:
        self.up = False
        self.suspended = SLOT_ZERO
        self.ranges.clear()
        self.counted.clear()
        self.own.clear()
        self.told.clear()


class Specification:
    """One group; `feed` it the events of a trace."""

    def __init__(self, members: Iterable[NodeId], margin_ns: int) -> None:
        self._margin_ns = margin_ns
        self._configs: dict[Slot, tuple[NodeId, ...]] = {SLOT_ZERO: tuple(members)}
        self._nodes: dict[NodeId, Node] = {}
        self._ballots: dict[Ballot, PreparedBallot] = {}
        self._proposed: dict[tuple[Ballot, Slot], Value] = {}
        self._voters: dict[tuple[Ballot, Slot], set[NodeId]] = {}
        self._promises: set[tuple[NodeId, Ballot, tuple[events.Vote, ...]]] = set()
        self.decided: dict[Slot, Value] = {}
        self.events = 0

    def feed(self, event: Event) -> None:
        self.events += 1
        self._guards[type(event)](self, self._node(event.node), event)

    def _node(self, node: NodeId) -> Node:
        known = self._nodes.get(node)
        if known is None:
            known = self._nodes[node] = Node()
        return known

    def _members_at(self, slot: Slot) -> tuple[NodeId, ...]:
        return self._configs[max(at for at in self._configs if at < slot)]

    # -- a node's life --------------------------------------------------------------------------

    def _booted(self, node: Node, event: events.Booted) -> None:
        node.end_life()  # of a life that ended before it could report it
        believed = {slot: (ballot, value) for slot, ballot, value in event.votes}
        lost = {
            slot: max(votes)
            for slot, votes in node.votes.items()
            if slot > event.applied and believed.get(slot, (BALLOT_ZERO,))[0] < max(votes)
        }
        if event.forgot:
            self._forgets(node, event, lost)
        elif event.incarnation <= node.incarnation:
            raise Refused("R6", f"incarnation {node.incarnation} is used again", event)
        elif event.promised < node.promised:
            raise Refused("R1", f"it had promised {node.promised}", event)
        elif lost:
            raise Refused("R18", f"its votes {lost} are gone", event)
        node.promised = event.promised
        for slot, (ballot, value) in believed.items():  # may not have been seen to become durable
            self._vote(event, node, slot, ballot, value)
        node.up, node.incarnation = True, event.incarnation
        node.applied, node.lease = SLOT_ZERO, Lease()
        for index, value in enumerate(event.log):
            self._apply(event, node, Slot(index + 1), value)

    def _forgets(self, node: Node, event: events.Booted, lost: Iterable[Slot]) -> None:
        """Its lost votes still count: that is why it may not vote again too soon (ADR 4)."""
        node.has_forgotten = True
        for slot in lost:
            del node.votes[slot]
            node.forgotten.add(slot)
        for ballot, prepared in self._ballots.items():
            if event.promised < ballot and prepared.complete and event.node in prepared.promises:
                node.floor = max(node.floor, ballot)

    def _told(self, node: Node, event: events.Told) -> None:
        if event.incarnation == node.incarnation:
            node.told.add(event.source)

    def _may_vote(self, node: Node, ballot: Ballot, event: Event) -> None:
        """Whether this life may take part in `ballot`: a majority, counting itself, must have told
        it what they remember of it, and what it has forgotten must no longer matter."""
        members = self._configs[SLOT_ZERO]
        told = 1 + len(node.told.intersection(members))
        if len(self._configs) == 1 and event.node in members and 2 * told <= len(members):
            raise Refused("ADR 4", "no majority has told it what they remember", event)
        node.forgotten -= self.decided.keys()
        if len(self._configs[max(self._configs)]) == PAIR:
            node.forgotten.clear()  # the other has voted for everything that counts (ADR 39)
        if node.forgotten:
            raise Refused("ADR 4", f"its votes in slots {sorted(node.forgotten)} are lost", event)
        if ballot < node.floor:
            raise Refused("ADR 4", f"it had a part in {node.floor}", event)

    def _crashed(self, node: Node, _event: events.Crashed) -> None:
        node.end_life()

    # -- the acceptor ---------------------------------------------------------------------------

    def _promise_durable(self, node: Node, event: events.PromiseDurable) -> None:
        if event.ballot < node.promised:
            raise Refused("R1", f"it has promised {node.promised}", event)
        node.promised = event.ballot

    def _vote_durable(self, node: Node, event: events.VoteDurable) -> None:
        if event.ballot < node.promised:
            raise Refused("acceptor", f"it has promised {node.promised}", event)
        node.promised = event.ballot
        self._vote(event, node, event.slot, event.ballot, event.value)

    def _vote(self, event: Event, node: Node, slot: Slot, ballot: Ballot, value: Value) -> None:
        if self._proposed.get((ballot, slot)) != value:
            raise Refused("I1", f"nobody has proposed that at {ballot} in slot {slot}", event)
        node.votes.setdefault(slot, {})[ballot] = value
        voters = self._voters.setdefault((ballot, slot), set())
        voters.add(event.node)
        members = self._ballots[ballot].members
        if 2 * sum(voter in members for voter in voters) > len(members):
            if self.decided.setdefault(slot, value) != value:
                raise Refused("I2", f"slot {slot} is decided otherwise", event)
            if value.kind == EntryKind.CONFIG:
                self._configs[slot] = value.members

    def _promised(self, node: Node, event: events.Promised) -> None:
        self._may_vote(node, event.ballot, event)
        if node.promised < event.ballot:
            raise Refused("R18", f"only {node.promised} is durable", event)
        prepared = self._ballots.get(event.ballot)
        if prepared is None:
            raise Refused("R1", "nobody has prepared that ballot", event)
        told = {slot: ballot for slot, ballot, _ in event.votes}
        for slot, votes in node.votes.items():
            below = max((ballot for ballot in votes if ballot < event.ballot), default=BALLOT_ZERO)
            if slot >= prepared.start and told.get(slot, BALLOT_ZERO) < below:
                raise Refused("promise", f"it conceals its vote {below} in slot {slot}", event)
        for slot, ballot, value in event.votes:
            if node.votes.get(slot, {}).get(ballot) != value:
                raise Refused("R18", f"no such vote in slot {slot} is durable", event)
        self._promises.add((event.node, event.ballot, event.votes))
        prepared.promised.add(event.node)

    def _accepted(self, node: Node, event: events.Accepted) -> None:
        """With a durable vote, or without one in a slot that is already decided (ADR 3)."""
        self._may_vote(node, event.ballot, event)
        voted = event.ballot in node.votes.get(event.slot, {})
        if node.promised < event.ballot or not (voted or event.slot in self.decided):
            raise Refused("R18", "that vote is not durable", event)

    # -- the proposer ---------------------------------------------------------------------------

    def _prepared(self, node: Node, event: events.Prepared) -> None:
        ballot = event.ballot
        if ballot.node != event.node:
            raise Refused("R1", "a ballot of another node", event)
        if node.promised < ballot:
            raise Refused("R1", f"only {node.promised} is durable", event)
        known = self._ballots.get(ballot)
        if known is not None:
            if (known.incarnation, known.start) == (node.incarnation, event.start):
                return
            if not node.has_forgotten or known.promised - {event.node}:
                raise Refused("R1", "a ballot used before", event)
        if event.start > node.applied + 1:
            raise Refused("prepare", f"it has applied only up to {node.applied}", event)
        members = self._members_at(event.start)
        if event.node not in members:
            raise Refused("R10", f"the members are {members}", event)
        self._ballots[ballot] = PreparedBallot(event.start, node.incarnation, members)

    def _promise_received(self, node: Node, event: events.PromiseReceived) -> None:
        ballot = event.ballot
        if (event.source, ballot, event.votes) not in self._promises:
            raise Refused("network", "nobody has sent that", event)
        prepared = self._ballots[ballot]
        mine = ballot.node == event.node and prepared.incarnation == node.incarnation
        if not mine or prepared.complete:
            return
        prepared.promises[event.source] = event.votes
        members = prepared.members
        if 2 * sum(one in members for one in prepared.promises) <= len(members):
            return
        prepared.complete = True
        best: dict[Slot, tuple[Ballot, Value]] = {}
        for votes in prepared.promises.values():
            for slot, at, value in votes:
                if slot >= prepared.start and (slot not in best or at > best[slot][0]):
                    best[slot] = (at, value)
        found = {slot: value for slot, (_, value) in best.items()}
        last = max(found, default=Slot(prepared.start - 1))
        node.ranges.setdefault(ballot, []).append(Range(prepared.start, FOR_EVER, last, found))

    def _proposes(self, node: Node, event: events.Proposed) -> None:
        ballot, slot, value = event.ballot, event.slot, event.value
        ranges = [one for one in node.ranges.get(ballot, ()) if one.low <= slot <= one.high]
        if not ranges:
            self._not_its_own(node.ranges.get(ballot, []), event)
        known = self._proposed.get((ballot, slot))
        if known is not None:
            if known != value:
                raise Refused("I1", f"{known} is proposed there", event)
            return
        if value.kind == EntryKind.CONFIG:
            ranges[-1].high = slot  # R10, also if phase 1 only found it
        if not self._is_found_or_fills_gap(node, ranges[-1], event):
            self._fresh(node, ranges[-1], event)
        self._proposed[ballot, slot] = value
        node.own.add((slot, value.digest))

    def _not_its_own(self, ranges: list[Range], event: events.Proposed) -> NoReturn:
        ballot = event.ballot
        prepared = self._ballots.get(ballot)
        if prepared is None:
            raise Refused("R5", "that ballot was never prepared", event)
        if not ranges and ballot.node == event.node and not prepared.complete:
            raise Refused("phase 1", f"only {sorted(prepared.promises)} have promised", event)
        if not ranges:
            raise Refused("R5 R6", "in this life it was not given that ballot", event)
        if event.slot > ranges[-1].high:
            raise Refused("R4 R10", f"its last slot there is {ranges[-1].high}", event)
        raise Refused("R6b", f"that ballot came to it above slot {ranges[-1].low - 1}", event)

    def _is_found_or_fills_gap(self, node: Node, own: Range, event: events.Proposed) -> bool:
        """What phase 1 has found, or what is decided, stays in its slot; gaps hold nothing new."""
        slot, value = event.slot, event.value
        if slot in own.found or (slot in self.decided and self.decided[slot] == value):
            if value not in (own.found.get(slot), self.decided.get(slot)):
                raise Refused("phase 1", f"{own.found.get(slot)} was found there", event)
            return True
        if slot <= own.recover_to and value.kind != EntryKind.NOOP and slot != node.suspended:
            raise Refused("phase 1", "a gap below what was found", event)
        return value.kind == EntryKind.NOOP

    def _fresh(self, node: Node, own: Range, event: events.Proposed) -> None:
        value, lease = event.value, node.lease
        if value.kind == EntryKind.BATCH:
            if not self._acting(node, event.node, event.wall_ns):
                raise Refused("R13", "commands of clients, and it may not act", event)
        elif value.kind == EntryKind.BE_MASTER:
            if (value.node, value.incarnation) != (event.node, node.incarnation):
                raise Refused("R11", f"it is incarnation {node.incarnation}", event)
            if node.suspended not in (0, event.slot):
                raise Refused("R13", "it is suspended", event)
            free = lease.version == 0 or event.wall_ns > lease.expires_ns + self._margin_ns
            if lease.holder != event.node and not free:
                raise Refused("R12", f"node {lease.holder} holds the lease", event)
            if value.prev_ver != lease.version:
                raise Refused("R8", f"it knows version {lease.version}", event)
        elif value.kind == EntryKind.STEAL:
            self._steals(node, own, event)
        elif value.kind == EntryKind.CONFIG:
            if not self._acting(node, event.node, event.wall_ns):
                raise Refused("R13", "a change of members, and it may not act", event)
            before = self._members_at(event.slot)
            if len(set(value.members) ^ set(before)) != 1:
                raise Refused("R10", f"more than one change to {before}", event)

    def _steals(self, node: Node, own: Range, event: events.Proposed) -> None:
        value, slot = event.value, event.slot
        if not self._acting(node, event.node, event.wall_ns):
            raise Refused("R13", "a Steal by a node that may not act", event)
        if event.suspended != slot:
            raise Refused("R3", "the Steal leaves before its master stops acting", event)
        if node.applied < own.recover_to:
            raise Refused("R4b", f"what was found up to {own.recover_to} is not applied", event)
        if (value.source, value.ballot) != (event.node, event.ballot):
            raise Refused("R5", "the Steal names another ballot", event)
        if value.prev_ver != node.lease.version:
            raise Refused("R8", f"it knows version {node.lease.version}", event)
        node.suspended = slot
        own.high = slot  # R4: the rest is given away, whatever happens

    def _counts(self, node: Node, event: events.Counted) -> None:
        first = max(event.first, node.counted.get(event.ballot, SLOT_ZERO) + 1)
        for slot in range(first, event.last + 1):
            value = self._proposed.get((event.ballot, Slot(slot)))
            if value is None or self.decided.get(Slot(slot)) != value:
                raise Refused("R17", f"slot {slot} is not decided at that ballot", event)
        node.counted[event.ballot] = max(event.last, node.counted.get(event.ballot, event.last))

    # -- the learner ----------------------------------------------------------------------------

    def _taught(self, node: Node, event: events.Taught) -> None:
        if event.slot > node.applied or self.decided.get(event.slot) != event.value:
            raise Refused("I3", "that is not what was decided and applied", event)

    def _applied(self, node: Node, event: events.Applied) -> None:
        valid = self._apply(event, node, event.slot, event.value)
        value = event.value
        taken = value.kind == EntryKind.STEAL and valid
        if taken and (value.node, value.incarnation) == (event.node, node.incarnation):
            own = Range(Slot(event.slot + 1), FOR_EVER, event.slot, {})  # R5, R6, R6b
            node.ranges.setdefault(value.ballot, []).append(own)
            node.counted.pop(value.ballot, None)

    def _apply(self, event: Event, node: Node, slot: Slot, value: Value) -> bool:
        if slot != node.applied + 1:
            raise Refused("I3", f"it has applied up to {node.applied}", event)
        if self.decided.get(slot) != value:
            raise Refused("I3", f"slot {slot} is decided: {self.decided.get(slot)}", event)
        node.applied = slot
        if 0 < node.suspended <= slot:
            node.suspended = SLOT_ZERO  # R7: only now is the Steal's outcome known
        lease_entry = value.kind in (EntryKind.BE_MASTER, EntryKind.STEAL)
        return lease_entry and node.lease.apply(slot, value)

    # -- the master -----------------------------------------------------------------------------

    def _acting(self, node: Node, me: NodeId, wall_ns: int) -> bool:
        lease = node.lease
        return (
            node.up
            and (lease.holder, lease.incarnation) == (me, node.incarnation)  # R11
            and node.suspended == 0  # R3, R13
            and wall_ns < lease.expires_ns - self._margin_ns  # R12
        )

    def _suspends(self, node: Node, event: events.Suspended) -> None:
        if event.slot != node.suspended:
            raise Refused("R7", f"its Steal in slot {node.suspended} is not resolved", event)

    def _acts(self, node: Node, event: events.Acts) -> None:
        if not self._acting(node, event.node, event.wall_ns):
            raise Refused("R3 R11 R12", f"{node.lease}, suspended {node.suspended}", event)

    def _read_answered(self, node: Node, event: events.ReadAnswered) -> None:
        if not self._acting(node, event.node, event.wall_ns) or event.epoch != node.lease.epoch:
            raise Refused("R14", f"the epoch is {node.lease.epoch}, {node.lease}", event)

    def _acknowledged(self, node: Node, event: events.Acknowledged) -> None:
        value = self.decided.get(event.slot)
        if not 0 < event.slot <= node.applied or value is None:
            raise Refused("R14", "the command is not applied", event)
        if (event.slot, value.digest) not in node.own:
            raise Refused("R14", f"in that slot is {value}, which it has not proposed", event)
        if not self._acting(node, event.node, event.wall_ns):
            raise Refused("R14", f"it does not act: {node.lease}", event)

    _guards: Final[Mapping[type[Any], Callable[..., None]]] = {
        events.Booted: _booted,
        events.Crashed: _crashed,
        events.PromiseDurable: _promise_durable,
        events.VoteDurable: _vote_durable,
        events.Prepared: _prepared,
        events.Promised: _promised,
        events.PromiseReceived: _promise_received,
        events.Told: _told,
        events.Proposed: _proposes,
        events.Accepted: _accepted,
        events.Counted: _counts,
        events.Taught: _taught,
        events.Applied: _applied,
        events.Suspended: _suspends,
        events.Acts: _acts,
        events.ReadAnswered: _read_answered,
        events.Acknowledged: _acknowledged,
    }
