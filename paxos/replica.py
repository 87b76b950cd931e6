"""One member of one group: events in, effects out (docs/protocol.md, rule by rule).

Theory of operation. `acceptor` decides on ballots, `proposer` owns slots under one ballot,
`learner` orders what is chosen, `lease` says who may act. They are joined in `state/core.py`.
`changes/` has what changes who decides: the steal, new members, the return of a member that has
forgotten promises. `liveness/` acts on the passing of time. None of them imports this module: each
public method here takes the time and one event, hands it to the part concerned, and applies what is
chosen. Effects are appended to a Step. Nothing here waits, reads a clock, logs, or rolls dice of
its own.

Safety rests on ballots and on the order of effects in the Step alone; clocks decide only who *acts*
(answers clients), never what is chosen.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

from paxos import entry as entries
from paxos import statistics
from paxos.base import Base
from paxos.changes import doubt, handover, membership, rejoin, snapshot, testimony, witness
from paxos.entry import BeMaster, Buffer, Config, Entry, EntryKind, Steal
from paxos.ids import BALLOT_ZERO, Ballot, GroupId, Incarnation, NodeId, Now, Slot
from paxos.liveness import asking, mastership, progress
from paxos.liveness.election import Dice
from paxos.liveness.live import Live
from paxos.liveness.questions import Questions
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
from paxos.proposer import Role
from paxos.state.core import Recovered
from paxos.statistics import GroupStatistics
from paxos.step import Applied, FetchState, LearnedRecord, Notice, Send, ServeLog, Step
from paxos.timing import SERVE_SLOTS_MAX, Timing


class Replica(Live):
    """One member of one group, as the rest of the node sees it."""

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
        super().__init__(
            group,
            me,
            incarnation,
            members,
            timing,
            dice,
            heard=heard,
            incarnations=incarnations,
            questions=questions,
            recovered=recovered,
        )
        self._recovered = recovered
        if recovered.base is not None:
            snapshot.begin_with(self, recovered.base)

    # -- restart ------------------------------------------------------------------------------

    def replay(self, now: Now, slot: Slot, entry: Entry) -> None:
        """Apply an entry known from disk to be chosen; never takes over a ballot (R6)."""
        self.learner.replay(slot)
        self.chain.extend(slot, entry)
        self._apply_control(now, slot, entry, live=False)

    def replayed(self, now: Now, step: Step) -> None:
        """Called once after the last replay: what was learned beyond a gap becomes known again."""
        self.acceptor.note_recorded(self.learner.applied)
        self.learner.note_chosen(self.proven)
        self.standstill.begin(now.boot_ns, self.learner)
        if self._recovered.base is not None:
            self.lease.start_deadline(now, self.timing.lease_ns)
        for slot, entry in sorted(self._recovered.learned.items()):
            self.learner.add(slot, entry)
        self._recovered = Recovered()
        self._apply_ready(now, step)

    def recall(self, now: Now, slot: Slot, entry: Entry, step: Step) -> None:
        """The next slot's entry, known from our own log to be chosen: it lay behind damage, and
        what was missing before it has been learned. It needs no new record."""
        assert slot == self.learner.applied + 1, f"gap: {self.learner.applied} then {slot}"
        if self.learner.add(slot, entry):
            self._apply_ready(now, step)

    # -- checkpoints --------------------------------------------------------------------------

    def base(self) -> Base:
        """This replica's part of a checkpoint at the slot that is applied now."""
        return snapshot.taken(self)

    def install(self, now: Now, base: Base, step: Step) -> bool:
        """Go on from a peer's state, which is durable here and installed in the state machine;
        False, and nothing is done, if we are at least as far already."""
        if not snapshot.install(self, now, base, step):
            return False
        self.trimmed_boot_ns = None
        self._apply_ready(now, step)  # a handover, a rejoin or waiting entries may go on now
        return True

    # -- client commands ----------------------------------------------------------------------

    def propose(self, now: Now, chunks: tuple[Buffer, ...], step: Step) -> tuple[Slot, Entry]:
        """Put a batch of commands into the next slot; call only when `can_propose`."""
        assert self.can_propose(now)
        entry = entries.batch(chunks)
        mastership.renew_before(self, now, entry, step)
        return self.place(now, entry, step), entry

    def change_members(self, now: Now, members: Iterable[NodeId], step: Step) -> str:
        """Add or remove one node as soon as nothing is under way; returns "" or why not."""
        return membership.change(self, now, members, step)

    # -- messages -----------------------------------------------------------------------------

    def on_message(self, now: Now, sender: NodeId, message: Message, step: Step) -> None:
        if type(message) is not Progress:  # `_on_progress` sees whether it is worth waking for
            self.wake()
        self._handlers[type(message)](self, now, sender, message, step)

    def _on_prepare(self, now: Now, sender: NodeId, message: Prepare, step: Step) -> None:
        self.see(message.ballot)
        if self.can_vote():
            taken = self.acceptor.on_prepare(sender, message, self.learner.applied, step)
            # Even if we refuse, that member has promised it to itself, and will refuse our entries.
            idle = not self.suspended and not self.proposer.in_flight
            if taken or (idle and sender in self.members):
                self._yield_to(now, message.ballot, step)

    def _on_promise(self, now: Now, sender: NodeId, message: Promise, step: Step) -> None:
        witness.note_witnessed(self, sender, message.ballot)
        proposer = self.proposer
        if (
            proposer.role is Role.PREPARING
            and proposer.ballot == message.ballot
            and proposer.on_promise(sender, message.votes)
        ):
            self._lead(now, step)

    def _on_nack(self, now: Now, sender: NodeId, message: Nack, step: Step) -> None:
        if self.proposer.ballot == message.ballot and message.promised > message.ballot:
            self.see(message.promised)
            self.step_down(now, step)

    def _on_behind(self, now: Now, sender: NodeId, message: Behind, step: Step) -> None:
        if self.proposer.role is not Role.PREPARING or self.proposer.ballot != message.ballot:
            return
        progress.note(self, now, sender, message.applied)
        if message.applied > self.learner.applied:
            if not self.standstill.is_dead(now.boot_ns, self.timing):
                self.step_down(now, step)  # else try without it: it does not teach us
            asking.ask_to_learn(self, now, sender, step)

    def _on_accept(self, now: Now, sender: NodeId, message: Accept, step: Step) -> None:
        self.see(message.ballot)
        if self.can_vote():
            slot, applied = message.slot, self.learner.applied
            chosen = slot <= applied or slot in self.learner.chosen
            if not self.acceptor.on_accept(sender, message, applied, chosen, step):
                return
            self._yield_to(now, message.ballot, step)
        self._learn_counted(now, sender, message, step)

    def _on_accepted(self, now: Now, sender: NodeId, message: Accepted, step: Step) -> None:
        witness.note_witnessed(self, sender, message.ballot)
        proposer = self.proposer
        if proposer.role is not Role.LEADER or proposer.ballot != message.ballot:
            return
        entry = proposer.on_accepted(sender, message.slot)
        if entry is not None:
            self.commit_due = True
            self.learn(now, message.slot, entry, step)
            if entry.kind == EntryKind.STEAL:
                self.flush_commit(step)  # the target waits only for this

    def _on_commit(self, now: Now, sender: NodeId, message: Commit, step: Step) -> None:
        self._learn_counted(now, sender, message, step)

    def _on_learn(self, now: Now, sender: NodeId, message: Learn, step: Step) -> None:
        step.before.append(Send(sender, witness.progress_for(self, sender)))
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
        if self.learner.applied == before:
            return  # a duplicate must not make us ask, or questions would multiply
        asking.was_taught(self, now)
        if reached < self.peer(sender).applied:
            asking.ask_to_learn(self, now, sender, step)  # it has more

    def _on_progress(self, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
        progress.came(self, now, sender, message)
        doubt.compare(self, now, sender, message, step)
        progress.note(self, now, sender, message.applied, message.chosen_to)
        if self.learner.behind:
            self.wake()
        rejoin.on_witnessed(self, now, sender, message, step)
        if sender not in self.members:
            progress.answer_outsider(self, now, sender, step)

    def _on_trimmed(self, now: Now, sender: NodeId, message: Trimmed, step: Step) -> None:
        if not self.peer(sender).asked:
            return
        self.questions.answered(self.group, sender)
        progress.note(self, now, sender, message.applied)
        if message.first > self.learner.applied + 1 and not self.hopeless:
            self.trimmed_boot_ns = now.boot_ns
            step.fetch.append(FetchState(self.group, sender))

    def _on_rejoin_ask(self, now: Now, sender: NodeId, message: RejoinAsk, step: Step) -> None:
        rejoin.on_ask(self, now, sender, message, step)

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
                entry = self.lease_entry(now) if slot == self.suspended else entries.NOOP
            self.place(now, entry, step)
            if entry.kind == EntryKind.CONFIG:
                proposer.close_at(Slot(slot))  # R10: what was found above it is not ours
                break
        proposer.recovers()
        self.election.succeeded()
        step.notices.append(Notice(self.group, "leading", f"{proposer.ballot}"))
        if self.election.eager and not self.suspended:
            mastership.take_or_renew(self, now, step)

    def _yield_to(self, now: Now, ballot: Ballot, step: Step) -> None:
        if self.proposer.role is not Role.FOLLOWER and self.proposer.ballot < ballot:
            self.step_down(now, step)

    # -- learning and applying ----------------------------------------------------------------

    def _learn_counted(
        self, now: Now, sender: NodeId, message: Accept | Commit, step: Step
    ) -> None:
        """The sender counted quorums at a ballot for some slots: our votes at it are chosen there
        (R17). Or it has lost a chosen entry, and had it in a vote at this ballot: then a vote of
        ours at exactly this ballot has the chosen entry as well (changes/testimony.py)."""
        ballot, first, last = message.ballot, message.counted_from, message.counted_to
        learner, votes = self.learner, self.acceptor.votes
        if last > learner.chosen_to:
            self.peer(sender).chosen = last
            learner.note_claim(last)
        if last <= learner.applied:
            return
        slot = Slot(learner.applied + 1)
        vote = votes.get(slot) if slot >= first else None
        while vote is not None and vote[0] == ballot and slot <= last:  # nearly always all
            self.learn(now, slot, vote[1], step)
            slot = Slot(slot + 1)
            vote = votes.get(slot)
        if slot <= last:
            for later in sorted(one for one in votes if first <= one <= last):
                vote = votes.get(later)
                if vote is not None and vote[0] == ballot:
                    self.learn(now, later, vote[1], step)
        self.vote_missing = first <= learner.applied + 1 <= last

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
                self.acceptor.note_recorded(applied)
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
            self.step_down(now, step)  # others fill the slots that we thought we owned (R6b)
        if self.handover is not None:
            handover.entry_applied(self)
        doubt.reached(self, now, step)
        if self.rejoin is not None:
            rejoin.try_to_vote_again(self, step)
        elif self.incomplete_to:
            rejoin.try_to_complete(self, step)
        if self.changing is not None:
            membership.try_to_place(self, now, step)
        if self.election.eager and not self.suspended:
            mastership.take_or_renew(self, now, step)

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
                    self.election.lease_freed_for_us(now)  # two proposes: the second is ours
        elif isinstance(control, Config):
            self.become_members(control.members, slot)
            if step is not None:  # so that a restart knows them: those who left may soon forget
                step.persist.append(LearnedRecord(self.group, slot, entry, slot))
                self.acceptor.note_recorded(slot)
                doubt.look_again(self, now, step)
            if self.proposer.role is not Role.FOLLOWER and step is not None:
                self.step_down(now, step)  # the ballot is bound to the older members (R10)
                self.election.try_at_once()

    def _take_over(self, now: Now, slot: Slot, ballot: Ballot) -> None:
        """Go on under the delegated ballot, without a Prepare (R5, R6); never from a replay.

        Lemma: our members are those among whom the former master prepared this ballot. A Config
        ends the ballot under which it is chosen (R10), everything below this slot is applied here,
        and a handover and a change of members exclude each other.
        """
        if (
            ballot < self.acceptor.promised
            or self.proposer.ballot > ballot
            or not self.can_vote()
            or self.me not in self.members
        ):
            return  # the lease is ours, but the ballot is not usable: prepare a fresh one in time
        self.proposer.take_over(slot, ballot, self.members, now.boot_ns)
        self.election.succeeded()

    # -- what is shown ------------------------------------------------------------------------

    def statistics(self, now: Now) -> GroupStatistics:
        return statistics.taken(self, now)
