"""One member of one group: events in, effects out (protocol.md section 2, rule by rule).

Theory of operation. `acceptor` decides on ballots, `proposer` owns slots under one ballot,
`learner` orders what is chosen, `lease` says who may act, `handover` gives the mastership away,
`timers` acts on the passing of time. This module is where they meet: each public method takes the
time and one event, changes the state, and appends effects to a Step. Nothing here waits, reads a
clock, logs, or rolls dice of its own.

Safety rests on ballots and on the order of effects in the Step alone; clocks decide only who *acts*
(answers clients), never what is chosen.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import attrs

from paxos import (
    asking,
    counted,
    handover,
    membership,
    progress,
    rejoin,
    statistics,
    testimony,
    timers,
)
from paxos import base as bases
from paxos import entry as entries
from paxos.acceptor import Acceptor, Vote
from paxos.asking import Questions
from paxos.base import Base
from paxos.chain import ChainHash
from paxos.election import Dice, Election
from paxos.entry import BeMaster, Buffer, Config, Entry, EntryKind, Steal
from paxos.ids import (
    BALLOT_ZERO,
    SLOT_ZERO,
    Ballot,
    GroupId,
    Incarnation,
    NodeId,
    Now,
    Slot,
)
from paxos.learner import Learner
from paxos.lease import Lease
from paxos.messages import (
    Accept,
    Accepted,
    Behind,
    Commit,
    Learn,
    Learned,
    Message,
    Nack,
    Prepare,
    Progress,
    Promise,
    RejoinAnswer,
    RejoinAsk,
    StealAbort,
    StealRequest,
    Trimmed,
)
from paxos.progress import Peer
from paxos.proposer import Proposer, Role
from paxos.rejoin import Rejoin
from paxos.standstill import Standstill
from paxos.statistics import GroupStatistics
from paxos.step import Applied, FetchState, LearnedRecord, Notice, Send, ServeLog, Step
from paxos.timing import SERVE_SLOTS_MAX, Timing


@attrs.frozen
class Recovered:
    """What a restart found on disk for one group; `votes` and `learned` only beyond `applied`.
    The first slot to be replayed is the next after the base's; without a base, slot 1."""

    promised: Ballot = BALLOT_ZERO
    votes: Mapping[Slot, Vote] = attrs.Factory(dict)
    learned: Mapping[Slot, Entry] = attrs.Factory(dict)
    voting: bool = True
    floor: Ballot = BALLOT_ZERO
    base: Base | None = None
    proven: Slot = SLOT_ZERO
    """All slots up to here are chosen; where that is beyond what can be replayed, damage has left a
    gap, and `votes` has none of what was voted there."""
    lost: Mapping[Slot, Ballot] = attrs.Factory(dict)
    """Of slots in that gap, where it is known: the ballot of the vote that had the entry."""


class Replica:
    """`heard` (boot time a node was last heard) and `incarnations` are shared by all groups."""

    def __init__(
        self,
        group: GroupId,
        me: NodeId,
        incarnation: Incarnation,
        members: Iterable[NodeId],
        timing: Timing,
        dice: Dice,
        *,
        heard: dict[NodeId, int],
        incarnations: dict[NodeId, Incarnation],
        questions: Questions | None = None,
        recovered: Recovered | None = None,
    ) -> None:
        recovered = recovered or Recovered()
        self.group, self.me, self.incarnation = group, me, incarnation
        self.members: tuple[NodeId, ...] = tuple(sorted(members))
        self.configured: Slot = SLOT_ZERO
        """The Config that made them members."""
        self.contacts: tuple[NodeId, ...] = ()
        """Whom to ask beside the members we know of: a node that begins a group knows its founders,
        and nothing of those who came after them but by hearsay, which is no base for a quorum."""
        self.changing: membership.Change | None = None
        self.timing = timing
        self.election = Election(timing=timing, dice=dice)
        self.heard, self.incarnations = heard, incarnations
        self.questions = questions or Questions()
        self.acceptor = Acceptor(
            group=group,
            promised=max(recovered.promised, recovered.floor),
            votes=dict(recovered.votes),
            voting=recovered.voting,
            votes_bytes=sum(vote[1].size for vote in recovered.votes.values()),
        )
        self.learner = Learner()
        self.chain = ChainHash()
        self.diverged: set[NodeId] = set()
        """Members whose log differs from ours: never empty only if something is badly broken."""
        self.doubt = self.hopeless = False
        """Ours may be the wrong one; and no majority can say that it is not (paxos.progress)."""
        self.lease = Lease()
        self.proposer = Proposer()
        self.handover: handover.Handover | None = None
        self.suspended: Slot = SLOT_ZERO
        """`susp`: the slot of our unresolved Steal; while set we do not act (R3, R7)."""
        self.rejoin: Rejoin | None = None if recovered.voting else Rejoin()
        self.commit_due = False
        self._recovered = recovered
        self.verified: set[NodeId] = set()
        self.told: set[NodeId] = set()
        """Who has told this life what it remembers of those before: it has no more to tell."""
        self.proven = recovered.proven  # rejoin.has_gap
        self.lost = dict(recovered.lost)  # testimony
        self.doubts: dict[NodeId, rejoin.Doubt] = {}
        """Who says that we have forgotten a promise: it is asked once more."""
        self.peers: dict[NodeId, Peer] = {}
        self.round_seen = self.acceptor.promised.round
        self._own_be_master: Slot = SLOT_ZERO
        self.settle_since = 0
        self.progress_at = 0
        self.learn_at = 0
        self.standstill = Standstill()
        self.vote_missing = False
        """The next slot is chosen at a ballot we did not vote at: only its value will help."""
        self.trimmed_boot_ns: int | None = None
        """When somebody told us last that its log begins beyond the end of ours."""
        self.rests_until_boot_ns = self.rests_until_wall_ns = 0
        """Before both there is nothing to do for `timers.tick`, unless something `wake`s us."""
        if recovered.base is not None:
            bases.begin_with(self, recovered.base)

    # -- restart ------------------------------------------------------------------------------

    def replay(self, now: Now, slot: Slot, entry: Entry) -> None:
        """Apply an entry known from disk to be chosen; never takes over a ballot (R6)."""
        assert slot == self.learner.applied + 1, f"gap: {self.learner.applied} then {slot}"
        self.learner.applied = slot
        self.learner.heard(slot)
        self.chain.extend(slot, entry)
        self._apply_control(now, slot, entry, live=False)

    def replayed(self, now: Now, step: Step) -> None:
        """Called once after the last replay: what was learned beyond a gap becomes known again."""
        self.acceptor.recorded = self.learner.applied
        self.learner.heard(self.proven)
        self.standstill.begin(now.boot_ns, self.learner)
        if self._recovered.base is not None:
            self.lease.heard(now, self.timing.lease_ns)
        for slot, entry in sorted(self._recovered.learned.items()):
            self.learner.add(slot, entry)
        self._recovered = Recovered()
        self._apply_ready(now, step)

    # -- checkpoints --------------------------------------------------------------------------

    def base(self) -> Base:
        """What a checkpoint at the slot that is applied now has to hold for this replica."""
        return bases.taken(self)

    def install(self, now: Now, base: Base, step: Step) -> bool:
        """Go on from the state of a peer, which is durable here and in the state machine; False
        (and nothing happens) where we are as far ourselves."""
        return bases.install(self, now, base, step)

    # -- what may be done ---------------------------------------------------------------------

    def acting(self, now: Now) -> bool:
        """Whether this node may answer for the group at this moment (R11, R12, R13)."""
        return (
            self.suspended == SLOT_ZERO
            and not self.doubt
            and self.lease.held_by(self.me, self.incarnation)
            and self.lease.safely_before_expiry(now, self.timing.margin_ns)
        )

    def ready(self) -> bool:
        """Whether we may propose: leading, and everything phase 1 found is applied."""
        proposer = self.proposer
        return (
            proposer.role is Role.LEADER
            and self.learner.applied >= proposer.recover_to
            and proposer.next <= proposer.hi
        )

    def can_propose(self, now: Now) -> bool:
        """Whether clients' commands may go into a new entry now (not while the window is full)."""
        return (
            len(self.proposer.in_flight) < self.timing.window
            and self.changing is None
            and (self.handover is None or handover.serves_on(self, now))
            and self.ready()
            and self.acting(now)
        )

    def can_vote(self) -> bool:
        """Not while rejoining or in doubt, nor before peers told us what they remember of us."""
        known = len(self.verified) + 1 > len(self.members) // 2 or self.members == (self.me,)
        at_odds = self.rejoin is not None or self.doubt or self.doubts
        return known and not at_odds and not rejoin.has_gap(self)

    @property
    def handing_to(self) -> NodeId | None:
        """The node the group is being handed to, from the drain until the Steal's fate is known."""
        return None if self.handover is None else self.handover.target

    def forwarding_to(self, now: Now) -> NodeId | None:
        """The node commands should go to instead of us, while we hand the group to it."""
        if self.handover is None or handover.serves_on(self, now):
            return None
        return self.handover.target

    # -- client commands ----------------------------------------------------------------------

    def propose(self, now: Now, chunks: tuple[Buffer, ...], step: Step) -> tuple[Slot, Entry]:
        """Put a batch of commands into the next slot; call only when `can_propose`."""
        assert self.can_propose(now)
        entry = entries.batch(chunks)
        timers.renew_before(self, now, entry, step)
        return self.place(now, entry, step), entry

    def change_members(self, now: Now, members: Iterable[NodeId], step: Step) -> str:
        """Add or remove one node as soon as nothing is under way; returns "" or why not."""
        return membership.change(self, now, members, step)

    # -- messages -----------------------------------------------------------------------------

    def on_message(self, now: Now, sender: NodeId, message: Message, step: Step) -> None:
        if type(message) is not Progress:  # which wakes us where it says much
            self.wake()
        self._handlers[type(message)](self, now, sender, message, step)

    def _on_prepare(self, now: Now, sender: NodeId, message: Prepare, step: Step) -> None:
        self._see(message.ballot)
        if self.can_vote():
            taken = self.acceptor.on_prepare(sender, message, self.learner.applied, step)
            # Refused or not, a member has promised that to itself: it refuses what we propose next.
            idle = not self.suspended and not self.proposer.in_flight
            if taken or (idle and sender in self.members):
                self._yield_to(now, message.ballot, step)

    def _on_promise(self, now: Now, sender: NodeId, message: Promise, step: Step) -> None:
        progress.witness(self, sender, message.ballot)
        proposer = self.proposer
        if (
            proposer.role is Role.PREPARING
            and proposer.ballot == message.ballot
            and proposer.on_promise(sender, message.votes)
        ):
            self._lead(now, step)

    def _on_nack(self, now: Now, sender: NodeId, message: Nack, step: Step) -> None:
        if self.proposer.ballot == message.ballot and message.promised > message.ballot:
            self._see(message.promised)
            self.step_down(now, step)

    def _on_behind(self, now: Now, sender: NodeId, message: Behind, step: Step) -> None:
        if self.proposer.role is not Role.PREPARING or self.proposer.ballot != message.ballot:
            return
        progress.note(self, now, sender, message.applied)
        if message.applied > self.learner.applied:
            if not self.standstill.is_dead(now.boot_ns, self.timing):
                self.step_down(now, step)  # else a quorum without it will do: it cannot teach us
            asking.ask_to_learn(self, now, sender, step)

    def _on_accept(self, now: Now, sender: NodeId, message: Accept, step: Step) -> None:
        self._see(message.ballot)
        if self.can_vote():
            slot, applied = message.slot, self.learner.applied
            chosen = slot <= applied or slot in self.learner.chosen
            if not self.acceptor.on_accept(sender, message, applied, chosen, step):
                return
            self._yield_to(now, message.ballot, step)
        counted.learn(self, now, sender, message, step)

    def _on_accepted(self, now: Now, sender: NodeId, message: Accepted, step: Step) -> None:
        progress.witness(self, sender, message.ballot)
        proposer = self.proposer
        if proposer.role is not Role.LEADER or proposer.ballot != message.ballot:
            return
        entry = proposer.on_accepted(sender, message.slot)
        if entry is not None:
            self.commit_due = True
            self.learn(now, message.slot, entry, step)
            if entry.kind == EntryKind.STEAL:
                self.flush_commit(step)  # the target waits for nothing else

    def _on_commit(self, now: Now, sender: NodeId, message: Commit, step: Step) -> None:
        counted.learn(self, now, sender, message, step)

    def _on_learn(self, now: Now, sender: NodeId, message: Learn, step: Step) -> None:
        step.before.append(Send(sender, progress.progress_for(self, sender)))
        applied = self.learner.applied
        if message.applied < applied and not self.hopeless:
            start = Slot(message.applied + 1)
            end = Slot(min(applied, message.applied + SERVE_SLOTS_MAX))
            step.serve.append(ServeLog(sender, self.group, start, end))

    def _on_learned(self, now: Now, sender: NodeId, message: Learned, step: Step) -> None:
        reached = Slot(message.start + len(message.entries) - 1)
        if not asking.may_be_an_answer(self, sender, reached):
            return
        self.questions.answered(self.group, sender)
        before = self.learner.applied
        for offset, entry in enumerate(message.entries):
            self.learn(now, Slot(message.start + offset), entry, step)
        # A duplicate teaches nothing and asks for nothing: else questions would breed.
        if self.learner.applied > before and reached < self.peer(sender).applied:
            asking.ask_to_learn(self, now, sender, step)  # it has more; the rest comes by itself

    def _on_progress(self, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
        progress.on_progress(self, now, sender, message, step)

    def _on_trimmed(self, now: Now, sender: NodeId, message: Trimmed, step: Step) -> None:
        if not self.peer(sender).asked:
            return
        self.questions.answered(self.group, sender)
        progress.note(self, now, sender, message.applied)
        if message.first > self.learner.applied + 1 and not self.hopeless:
            self.trimmed_boot_ns = now.boot_ns
            step.fetch.append(FetchState(self.group, sender))

    def _on_rejoin_ask(self, now: Now, sender: NodeId, message: RejoinAsk, step: Step) -> None:
        if self.can_vote():  # else we have forgotten things ourselves, or may have
            rejoin.answer(self, now, sender, message, step)

    def _on_rejoin_answer(
        self, now: Now, sender: NodeId, message: RejoinAnswer, step: Step
    ) -> None:
        if self.rejoin is None or message.incarnation != self.incarnation:
            return
        self.rejoin.on_answer(sender, message)
        rejoin.try_to_vote_again(self, step)

    def _on_steal_request(
        self, now: Now, sender: NodeId, message: StealRequest, step: Step
    ) -> None:
        handover.on_request(self, now, sender, message, step)

    def _on_steal_abort(self, now: Now, sender: NodeId, message: StealAbort, step: Step) -> None:
        if sender in self.members:
            step.notices.append(Notice(self.group, "steal-refused", message.reason))

    _handlers: ClassVar[Mapping[type[Any], Callable[..., None]]] = {
        Prepare: _on_prepare,
        Promise: _on_promise,
        Nack: _on_nack,
        Behind: _on_behind,
        Accept: _on_accept,
        Accepted: _on_accepted,
        Commit: _on_commit,
        Learn: _on_learn,
        Learned: _on_learned,
        Trimmed: _on_trimmed,
        Progress: _on_progress,
        RejoinAsk: _on_rejoin_ask,
        RejoinAnswer: _on_rejoin_answer,
        StealRequest: _on_steal_request,
        StealAbort: _on_steal_abort,
    }

    # -- proposing ----------------------------------------------------------------------------

    def prepare(self, now: Now, step: Step) -> None:
        """Phase 1 for all open slots with a ballot never used before (R1)."""
        assert self.me in self.members
        ballot = Ballot(1 + max(self.round_seen, self.acceptor.promised.round), self.me)
        self._see(ballot)
        self.acceptor.promise_own(ballot, step)
        start = Slot(self.learner.applied + 1)
        self.proposer.start_preparing(ballot, start, self.members, now.boot_ns)
        message = Prepare(self.group, ballot, start)
        step.after.extend(Send(peer, message) for peer in self.others(self.members))
        own = Promise(self.group, ballot, self.acceptor.votes_from(start))
        step.after.append(Send(self.me, own))

    def _lead(self, now: Now, step: Step) -> None:
        """A quorum promised: re-propose whatever may have been chosen, then lead."""
        proposer = self.proposer
        found = proposer.found()
        proposer.lead(now.boot_ns)
        first = Slot(max(proposer.lo, self.learner.applied + 1))
        proposer.start_at(first)
        last = max(self.suspended, first - 1, *found, *self.learner.chosen)
        for slot in range(first, last + 1):
            entry = self.learner.chosen.get(Slot(slot)) or found.get(Slot(slot))
            if entry is None:
                entry = self._lease_entry(now) if slot == self.suspended else entries.NOOP
            self.place(now, entry, step)
            if entry.kind == EntryKind.CONFIG:
                proposer.close_at(Slot(slot))  # R10: what was found above it is not ours
                break
        proposer.recover_to = Slot(proposer.next - 1)
        self.election.succeeded()
        step.notices.append(Notice(self.group, "leading", f"{proposer.ballot}"))
        if self.election.eager and not self.suspended:
            timers.mastership(self, now, step)

    def place(self, now: Now, entry: Entry, step: Step) -> Slot:
        self.wake()
        proposer = self.proposer
        slot = proposer.place(entry, now.boot_ns)
        self.send_accept(slot, entry, self.others(proposer.members), step)
        self.commit_due = False  # the Accept carries what was counted
        if proposer.ballot >= self.acceptor.promised and self.rejoin is None:
            self.acceptor.vote_own(
                self.me, slot, proposer.ballot, entry, self.learner.applied, step
            )
        return slot

    def send_accept(self, slot: Slot, entry: Entry, to: Iterable[NodeId], step: Step) -> None:
        proposer = self.proposer
        message = Accept(self.group, proposer.ballot, slot, entry, proposer.lo, proposer.counted_to)
        step.before.extend(Send(peer, message) for peer in to)

    def _lease_entry(self, now: Now) -> Entry:
        expires = now.wall_ns + self.timing.lease_ns
        return entries.be_master(BeMaster(self.me, self.incarnation, self.lease.ver, expires))

    def lease_in_flight(self) -> bool:
        return self._own_be_master in self.proposer.in_flight

    def propose_lease(self, now: Now, step: Step) -> None:
        """Take or renew the lease; never while suspended (R13)."""
        assert not self.suspended
        self.election.eager = False
        self._own_be_master = self.place(now, self._lease_entry(now), step)

    def _yield_to(self, now: Now, ballot: Ballot, step: Step) -> None:
        if self.proposer.role is not Role.FOLLOWER and self.proposer.ballot < ballot:
            self.step_down(now, step)

    def step_down(self, now: Now, step: Step) -> None:
        """Keeps lease and suspension; a steal that was still draining is called off."""
        if self.proposer.role is Role.LEADER:
            step.notices.append(Notice(self.group, "stepped-down", f"{self.proposer.ballot}"))
        self.proposer.step_down()
        if self.changing is not None:
            membership.give_up(self, "stepped down", step)
        if self.handover is not None and self.handover.draining:
            handover.call_off(self, "stepped down", step)
        self.election.back_off(now)

    # -- learning and applying ----------------------------------------------------------------

    def learn(self, now: Now, slot: Slot, entry: Entry, step: Step) -> None:
        if self.hopeless:
            return
        flight = self.proposer.in_flight.get(slot)
        unused = self.proposer.role is Role.LEADER and slot >= self.proposer.next
        if unused or (flight is not None and not flight.entry.same_as(entry)):
            self.step_down(now, step)  # outvoted: somebody has a higher ballot
        if self.learner.add(slot, entry):
            vote = self.acceptor.votes.get(slot)
            if vote is None or not vote[1].same_as(entry):
                applied = self.learner.applied
                step.persist.append(LearnedRecord(self.group, slot, entry, applied))
                self.acceptor.recorded = applied
            self._apply_ready(now, step)

    def _apply_ready(self, now: Now, step: Step) -> None:
        self.wake()
        for slot, entry in self.learner.take_ready():
            self.acceptor.forget(slot)
            if self.lost:
                testimony.found_again(self, (slot,))
            self.chain.extend(slot, entry)
            self.proposer.done(slot, entry)
            step.applied.append(Applied(self.group, slot, entry))
            if entry.control is not None:
                self._apply_control(now, slot, entry, live=True, step=step)
        applied = self.learner.applied
        if self.proposer.role is Role.LEADER and self.proposer.next <= applied:
            self.step_down(now, step)  # others fill the slots we thought were ours (R6b)
        if self.handover is not None:
            handover.entry_applied(self)
        progress.reached(self, now, step)
        if self.rejoin is not None:
            rejoin.try_to_vote_again(self, step)
        if self.changing is not None:
            membership.try_to_place(self, now, step)
        if self.election.eager and not self.suspended:
            timers.mastership(self, now, step)

    def _apply_control(
        self, now: Now, slot: Slot, entry: Entry, *, live: bool, step: Step | None = None
    ) -> None:
        control = entry.control
        longest = self.timing.lease_ns
        if isinstance(control, BeMaster):
            self.lease.apply_be_master(slot, control, now, longest)
        elif isinstance(control, Steal):
            valid = self.lease.apply_steal(slot, control, now, longest)
            mine = (control.target, control.target_incarnation) == (self.me, self.incarnation)
            if valid and live and mine:
                if control.ballot != BALLOT_ZERO:
                    self._take_over(now, slot, control.ballot)
                elif control.source != self.me:
                    self.election.called(now)  # two proposes: the second is ours
        elif isinstance(control, Config):
            self.members, self.configured = tuple(sorted(control.members)), slot
            if self.me in self.members:
                self.contacts = ()
            if step is not None:  # so that a restart knows them: who left may soon have forgotten
                step.persist.append(LearnedRecord(self.group, slot, entry, slot))
                self.acceptor.recorded = slot
                progress.look_at_doubt(self, now, step)
            if self.proposer.role is not Role.FOLLOWER and step is not None:
                self.step_down(now, step)  # the ballot is bound to the older members (R10)
                self.election.backoff_until = 0

    def _take_over(self, now: Now, slot: Slot, ballot: Ballot) -> None:
        """Go on under the delegated ballot, without a Prepare (R5, R6); never from a replay."""
        if (
            ballot < self.acceptor.promised
            or self.proposer.ballot > ballot
            or not self.can_vote()
            or self.me not in self.members
        ):
            return  # the lease is ours but the ballot is not usable: tick() prepares a fresh one
        self.proposer.take_over(slot, ballot, self.members, now.boot_ns)
        self.election.succeeded()

    def flush_commit(self, step: Step) -> None:
        """Tell the members what we counted, where no Accept has carried it yet."""
        self.commit_due = False
        proposer = self.proposer
        if proposer.role is Role.LEADER and proposer.counted_to >= proposer.lo:
            commit = Commit(self.group, proposer.ballot, proposer.lo, proposer.counted_to)
            step.before.extend(Send(peer, commit) for peer in self.others(proposer.members))

    # -- small things -------------------------------------------------------------------------

    def wake(self) -> None:
        """Something has happened, or is about to: `timers.tick` has to look at all of it again."""
        self.rests_until_boot_ns = 0

    def statistics(self, now: Now) -> GroupStatistics:
        return statistics.taken(self, now)

    def _see(self, ballot: Ballot) -> None:
        if ballot.round > self.round_seen:
            self.round_seen = ballot.round

    def peer(self, node: NodeId) -> Peer:
        peer = self.peers.get(node)
        if peer is None:
            peer = self.peers[node] = Peer()
        return peer

    def others(self, members: tuple[NodeId, ...]) -> list[NodeId]:
        return [node for node in members if node != self.me]

    def acquaintances(self) -> list[NodeId]:
        """Who may tell us something."""
        others = self.others(self.members)
        return others + [node for node in self.others(self.contacts) if node not in others]

    def is_heard(self, node: NodeId, now: Now) -> bool:
        heard = self.heard.get(node)
        return heard is not None and now.boot_ns - heard < self.timing.heard_ns
