"""Planted bugs: each removes one rule of docs/protocol.md, and the checkers must notice.

A mutant is an edit of a line or two (simulator/mutants/planting.py). `make mutants` runs each
against the swarm and writes docs/mutants.md.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

from balancer.registry.steal_tokens import StealTokens
from broker.proposals.intake import Intake
from paxos import quorum
from paxos.acceptor import Acceptor
from paxos.changes import handover, membership
from paxos.changes.rejoin import on_witnessed
from paxos.learner import Learner
from paxos.lease import Lease
from paxos.liveness import mastership, timers
from paxos.proposer import Proposer
from paxos.replica import Replica
from paxos.state.core import Core
from paxos.state.rejoin import Rejoin
from simulator.mutants import planting
from simulator.mutants.broker import CLAIMS, DATA, GROUPS, PRODUCERS, WRITERS
from simulator.mutants.clocks import CLOCKS
from simulator.mutants.false_messages import WORDS
from simulator.mutants.fences import FENCES
from simulator.mutants.order import ORDER
from simulator.mutants.planting import Mutant, plant
from simulator.mutants.state import DISKS, MEMBERS, STATES
from simulator.mutants.tiering import COLD
from simulator.node.command_node import CommandNode
from simulator.node.node import SimNode
from simulator.node.recovery import Found

CORE_TESTS: Final = "tests/paxos"
BALANCER_TESTS: Final = "tests/balancer"


mutant = partial(planting.mutant, tests=CORE_TESTS)


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Run the body with the mutant planted; without a name, unchanged."""
    if not name:
        yield
        return
    with plant(MUTANTS[name]):
        yield


BALLOTS: Final[Mapping[str, Mutant]] = {
    "forget-promise": mutant(
        "R1",
        "a restarted node remembers a promise only if a vote came with it",
        (
            Core.__init__,
            "promised=max(recovered.promised, recovered.floor)",
            "promised=max([recovered.floor, *(vote[0] for vote in recovered.votes.values())])",
        ),
    ),
    "reuse-ballot": mutant(
        "R1",
        "a new Prepare uses the last ballot's round again",
        (
            Replica.prepare,
            "1 + max(self.round_seen, self.acceptor.promised.round)",
            "max(1, self.acceptor.promised.round)",
        ),
        (
            Acceptor.promise_own,
            'assert ballot > self.promised, f"{ballot} was used or outbid: promised '
            '{self.promised}"',
            "ballot = max(ballot, self.promised)",
        ),
    ),
    "promise-forgets-votes": mutant(
        "basis",
        "a Promise does not report votes",
        (Acceptor.on_prepare, "self.votes_from(prepare.start)", "()"),
    ),
    "promise-below-promise": mutant(
        "basis",
        "a Prepare below the promise is promised, too",
        (Acceptor.on_prepare, "ballot < self.promised", "False"),
    ),
    "vote-below-promise": mutant(
        "basis",
        "an Accept below the promise is voted for",
        (Acceptor.on_accept, "ballot < self.promised", "False"),
        (
            Acceptor._vote,
            "self.promised = ballot",
            "self.promised = max(ballot, self.promised)",
        ),
    ),
    "promise-without-behind": mutant(
        "ADR 3",
        "a Prepare from below the applied prefix is promised without the forgotten votes",
        (Acceptor.on_prepare, "prepare.start <= applied", "False"),
    ),
    "quorum-minus-one-promises": mutant(
        "basis",
        "phase 1 ends one promise early",
        (
            Proposer.on_promise,
            "is_quorum(self.promises, self.members)",
            "len(self.promises) >= len(self.members) // 2",
        ),
    ),
    "quorum-minus-one-votes": mutant(
        "basis",
        "a slot is chosen one vote early",
        (
            Proposer.on_accepted,
            "not is_quorum(flight.votes, self.members)",
            "len(flight.votes) < len(self.members) // 2",
        ),
    ),
    "found-lowest": mutant(
        "basis",
        "phase 1 takes the vote of the lowest ballot",
        (Proposer.found, "ballot > best[slot][0]", "ballot < best[slot][0]"),
    ),
    "found-ignored": mutant(
        "R4b",
        "values that phase 1 found are not proposed again",
        (Replica._lead, "found = proposer.found()", "found: dict[Slot, Entry] = {}"),
    ),
    "new-value-sent-again": mutant(
        "R2",
        "an Accept that is sent again has a new value",
        (
            timers._retransmit,
            "replica.send_accept(slot, flight.entry, deaf, step)",
            "replica.send_accept(slot, replica.lease_entry(now), deaf, step)",
        ),
    ),
    "no-yield": mutant(
        "basis",
        "a proposer that promised a higher ballot continues",
        (Replica._yield_to, "self.proposer.ballot < ballot", "False"),
    ),
    "nack-ignored": mutant(
        "liveness",
        "a proposer that hears of a higher ballot continues",
        (Replica._on_nack, "self.step_down(now, step)", "pass"),
    ),
}

STEALS: Final[Mapping[str, Mutant]] = {
    "act-until-apply": mutant(
        "R3",
        "the master acts while its Steal is under way",
        (Replica.acting, "self.suspended == SLOT_ZERO\n        and ", ""),
    ),
    "resume-same-ballot": mutant(
        "R4",
        "an unresolved Steal is forgotten and the old ballot used again",
        (
            handover.tick_suspended,
            "replica.prepare(now, step)",
            "replica.suspended, replica.handover = SLOT_ZERO, None\n"
            "        proposer = replica.proposer\n"
            "        proposer.hi = Slot(2**62)",
        ),
    ),
    "keep-range": mutant(
        "R4",
        "the master keeps the slots above its Steal",
        (handover.try_to_send, "proposer.close_at(slot)", "pass"),
    ),
    "naive-fresh-ballot": mutant(
        "R5",
        "the target makes up its own ballot",
        (
            Replica._take_over,
            "if (\n        ballot <",
            "ballot = Ballot(1 + max(ballot.round, self.acceptor.promised.round), self.me)\n"
            "    if (\n        ballot <",
        ),
    ),
    "usurped-ballot": mutant(
        "R5",
        "the target uses the highest ballot it knows, perhaps another node's",
        (
            Replica._apply_control,
            "self._take_over(now, slot, control.ballot)",
            "self._take_over(now, slot, max(control.ballot, self.acceptor.promised))",
        ),
    ),
    "steal-for-any-life": mutant(
        "R6",
        "a Steal goes to a node in any incarnation",
        (
            Replica._apply_control,
            "(control.target, control.target_incarnation) == (self.me, self.incarnation)",
            "control.target == self.me",
        ),
    ),
    "replay-takes-over": mutant(
        "R6",
        "a replayed Steal is taken over again",
        (
            Replica._apply_control,
            "if valid and live and mine:",
            "if valid and control.target == self.me:",
        ),
        (Replica._take_over, "or not self.can_vote()\n", ""),
    ),
    "range-from-old-next": mutant(
        "R6b",
        "a ballot that comes back continues in the old range",
        (
            Proposer.take_over,
            "self.ballot, self.members = ballot, members\n    self.lo = self.next = Slot(slot + 1)",
            "again = self.next if self.ballot == ballot else Slot(slot + 1)\n"
            "    self.ballot, self.members = ballot, members\n"
            "    self.lo = self.next = again",
        ),
        (
            Replica._apply_ready,
            "self.proposer.role is Role.LEADER and self.proposer.next <= applied",
            "False",
        ),
        (
            Replica.learn,
            "self.proposer.role is Role.LEADER and slot >= self.proposer.next",
            "False",
        ),
    ),
    "resume-after-phase-1": mutant(
        "R7",
        "a Steal that phase 1 does not find is taken for lost",
        (
            Replica._lead,
            "last = max(",
            "if self.suspended in found and found[self.suspended].kind != EntryKind.STEAL:\n"
            "        self.suspended, self.handover = SLOT_ZERO, None\n"
            "    last = max(",
        ),
        why_not="within one lease, a minority must vote for a rival's value, the master's phase 1 "
        "must meet that minority, and a third ballot's must not: scenario 4 builds the case",
    ),
    "renew-while-suspended": mutant(
        "R13",
        "the master renews under the old ballot while its Steal is under way",
        (handover.try_to_send, "proposer.close_at(slot)", "proposer.close_at(Slot(slot + 1))"),
        (
            timers.tick,
            "    elif replica.handover is not None and",
            "        mastership.take_or_renew(replica, now, step)\n"
            "    elif replica.handover is not None and",
        ),
        (mastership.propose_lease, "assert not replica.suspended", "pass"),
    ),
    "steal-of-old-version": mutant(
        "R8",
        "a request for an older version of the lease is granted",
        (handover.refusal, "request.lease_ver != replica.lease.ver", "False"),
        why_not="the Steal names the master's own version: such a request only moves the group",
    ),
    "steal-to-old-life": mutant(
        "R6",
        "a request of an earlier incarnation is granted",
        (handover.refusal, "known is not None and known != request.incarnation", "False"),
        why_not="no node acts on it: the group only has no master for one lease",
    ),
    "no-drain": mutant(
        "liveness",
        "the Steal is sent while commands are under way",
        (Intake.flush, "if not self.proposed:", "if True:"),
        (handover.try_to_send, " or proposer.in_flight", ""),
        (handover.try_to_send, "replica.learner.applied == proposer.next - 1", "True"),
    ),
    "token-ignored": mutant(
        "I9",
        "the registry grants the steal token to everybody",
        (StealTokens.acquire, "if in_the_way:", "if False:"),
        tests=BALANCER_TESTS,
    ),
}

LEASES: Final[Mapping[str, Mutant]] = {
    "no-cas": mutant(
        "R8",
        "lease entries are valid whatever version they name",
        (Lease.apply_be_master, "value.prev_ver != self.ver", "False"),
        (Lease.apply_steal, "value.prev_ver != self.ver", "False"),
    ),
    "no-incarnation": mutant(
        "R6, R11",
        "boots are not counted",
        (SimNode.incarnation_of, "return counted", "return Incarnation(1)"),
    ),
    "act-on-replayed-lease": mutant(
        "R11",
        "a restarted node keeps acting under its old lease",
        (
            Lease.held_by,
            "self.holder == node and self.incarnation == incarnation",
            "self.holder == node",
        ),
    ),
    "no-holder-margin": mutant(
        "R12",
        "the holder acts to the last moment",
        (Lease.safely_before_expiry, " - margin_ns", ""),
    ),
    "no-other-margin": mutant(
        "R12",
        "others start too early",
        (Lease.free, " + margin_ns", " - margin_ns"),
    ),
    "wall-clock-only": mutant(
        "R12",
        "the holder trusts only its wall clock",
        (Lease.safely_before_expiry, "now.boot_ns < self.deadline_boot_ns - margin_ns", "True"),
    ),
    "distrusted-clock": mutant(
        "R12",
        "the holder acts on a clock that it knows to be wrong",
        (Lease.safely_before_expiry, "now.trusted", "True"),
    ),
    "renewal-shortens": mutant(
        "R15",
        "a renewal sets the expiry, even to an earlier time",
        (
            Lease.apply_be_master,
            "max(value.expires_wall_ns, self.expires_wall_ns)",
            "value.expires_wall_ns",
        ),
        (Lease.apply_be_master, "max(deadline, self.deadline_boot_ns)", "deadline"),
        why_not="a renewal is due only when its expiry is later (T_renew > 2 eps, R15)",
    ),
}

LEARNING: Final[Mapping[str, Mutant]] = {
    "config-keeps-ballot": mutant(
        "R10",
        "a membership change does not close the ballot",
        (membership.try_to_place, "proposer.close_at(slot)", "pass"),
        (Replica._lead, "entry.kind == EntryKind.CONFIG", "False"),
        (
            Replica._apply_control,
            "self.proposer.role is not Role.FOLLOWER and step is not None",
            "False",
        ),
    ),
    "outsiders-count": mutant(
        "R10",
        "votes of nodes that are not members count",
        (quorum.is_quorum, "if voter in members", "if True"),
        why_not="Accept and Prepare go only to members: nobody else answers",
    ),
    "commit-any": mutant(
        "R17",
        "a slot number alone makes any vote in that slot chosen",
        (Replica._learn_counted, "vote is not None and vote[0] == ballot", "vote is not None"),
    ),
    "count-what-was-learned": mutant(
        "R17",
        "a learned slot is announced by number even if it was not our value",
        (Proposer.done, " and flight.entry.same_as(entry)", ""),
        why_not="it takes a slot learned before a takeover, and a ballot unknown to the target "
        "that adopts what the target has proposed below: a unit test builds the case",
    ),
    "apply-out-of-order": mutant(
        "I3",
        "chosen entries are applied across a gap",
        (
            Learner.take_ready,
            "(slot := Slot(self.applied + 1)) in self.chosen",
            "self.chosen and (slot := min(self.chosen))",
        ),
    ),
    "vote-over-chosen": mutant(
        "ADR 3",
        "a slot known to be chosen is voted for again",
        (Replica._on_accept, "slot <= applied or slot in self.learner.chosen", "slot <= applied"),
    ),
    "learned-not-written": mutant(
        "R18",
        "a value that was learned is not written to the log",
        (Replica.learn, "vote is None or not vote[1].same_as(entry)", "False"),
    ),
    "recovery-ignores-learned": mutant(
        "R18",
        "a restart takes the last vote for the chosen entry",
        (
            Found.absorb,
            "self._last[record.slot] = record.entry",
            "if isinstance(record, AcceptRecord) or record.slot not in self._last:\n"
            "            self._last[record.slot] = record.entry",
        ),
    ),
    "vote-before-verified": mutant(
        "ADR 4",
        "a restarted node votes before its peers have said what they witnessed",
        (
            Replica.can_vote,
            "is_quorum((*self.verified, self.me), self.members)",
            "True",
        ),
    ),
    "told-by-the-past": mutant(
        "ADR 4",
        "a message to an earlier life counts as sent to this one",
        (on_witnessed, "message.incarnation == replica.incarnation", "True"),
    ),
    "lost-disk-unnoticed": mutant(
        "ADR 4",
        "a node that has forgotten promises continues to vote",
        (on_witnessed, "message.witnessed > replica.acceptor.promised", "False"),
    ),
    "rejoin-at-once": mutant(
        "ADR 4",
        "a node that has forgotten promises votes after the first answer",
        (
            Rejoin.may_vote,
            "others >= quorum_size(members) and applied > bar + WINDOW_MAX",
            "others >= 1",
        ),
    ),
    "rejoin-unpassed": mutant(
        "ADR 4",
        "a node that has forgotten promises votes before the others have passed the bar",
        (Rejoin.may_vote, "if one.applied > bar", "if one.applied >= 0"),
        why_not="a candidate must be paused for a whole rejoin while a third node has a gap: "
        "scenario 27",
    ),
    "amnesia-unnoticed": mutant(
        "ADR 4",
        "a node whose directory is lost or an old copy is not warned",
        (SimNode.knows_it_forgot, "return True", "return False"),
    ),
}

DURABLE: Final[Mapping[str, Mutant]] = {
    "reply-before-fsync": mutant(
        "R18",
        "messages that need the disk leave before the fsync",
        (SimNode.may_send_after, "self._synced == self._appended", "True"),
    ),
    "prepare-before-fsync": mutant(
        "R1",
        "a Prepare leaves before its ballot is durable",
        (
            Replica.prepare,
            "step.after.extend(Send(peer, message)",
            "step.before.extend(Send(peer, message)",
        ),
    ),
    "promise-before-fsync": mutant(
        "R18",
        "a Promise leaves before it is durable",
        (
            Acceptor.on_prepare,
            "step.after.append(Send(sender, promise))",
            "step.before.append(Send(sender, promise))",
        ),
    ),
    "accepted-before-fsync": mutant(
        "R18",
        "an Accepted leaves before the vote is durable",
        (
            Acceptor.on_accept,
            "step.after.append(Send(sender, Accepted(",
            "step.before.append(Send(sender, Accepted(",
        ),
    ),
    "own-vote-before-fsync": mutant(
        "R18",
        "the proposer counts its own vote before it is durable",
        (Acceptor.vote_own, "step.after.append", "step.before.append"),
    ),
    "promise-not-written": mutant(
        "R18",
        "a Promise is not written to the log",
        (Acceptor.on_prepare, "step.persist.append(PromiseRecord(group, ballot))", "pass"),
    ),
}

CLIENTS: Final[Mapping[str, Mutant]] = {
    "ack-while-not-acting": mutant(
        "R14",
        "a former master acknowledges what it sees applied",
        (Intake.applied, " and self.replica.acting(now)", ""),
    ),
    "ack-anothers-entry": mutant(
        "R14",
        "a node takes whatever is applied in its slot for its own entry",
        (Intake.applied, "ours.same_as(entry) and ", ""),
        (Intake.applied, "assert len(results) == len(batch)", "pass"),
        (Intake.applied, "strict=True", "strict=False"),
    ),
    "ack-unknown": mutant(
        "R14",
        "a command with an unknown outcome is acknowledged",
        (
            Intake.forget_proposed,
            "for _, batch in proposed.values():\n"
            "        self.group_commit.forgotten(len(batch))\n"
            "        self._return_to_senders(batch, FailureReason.UNKNOWN, now)",
            "for slot, (_, batch) in proposed.items():\n"
            "        for pending in batch:\n"
            '            pending.done(Done(slot.to_bytes(8, "big")))',
        ),
    ),
    "ack-when-proposed": mutant(
        "R14",
        "a command is acknowledged as soon as it is proposed",
        (
            Intake.flush,
            "self.proposed[slot] = (entry, batch)",
            "for pending in batch:\n"
            '            pending.done(Done(slot.to_bytes(8, "big")))\n'
            "        self.proposed[slot] = (entry, [])",
        ),
        (Intake.applied, "assert len(results) == len(batch)", "pass"),
        (Intake.applied, "strict=True", "strict=False"),
    ),
    "read-no-epoch": mutant(
        "R14",
        "a read survives a change of master",
        (CommandNode.may_answer_read, " and replica.lease.epoch == epoch", ""),
    ),
    "read-checked-before": mutant(
        "R14",
        "a read checks the lease first, and reads afterwards",
        (
            CommandNode._on_read,
            "group = self.groups[read.group]\n",
            "group = self.groups[read.group]\n"
            "    if not group.replica.acting(self.now()):\n        return\n",
        ),
        (
            CommandNode.may_answer_read,
            "replica.acting(self.now()) and replica.lease.epoch == epoch",
            "True",
        ),
    ),
    "dedup-table-lost": mutant(
        "R16",
        "a restarted node has forgotten which commands it executed",
        (
            SimNode.boot,
            "replica.replayed(now, step)",
            "self.machines[ident].where.clear()\n        replica.replayed(now, step)",
        ),
    ),
    "forwarded-twice": mutant(
        "forward",
        "a forwarded command is forwarded again",
        (
            Intake.submit_forwarded,
            "pending.done(refusal)",
            "self.forwards.append(Forward(replica.lease.holder, pending, handing=False))",
        ),
        why_not="a command that is forwarded in circles still executes once",
    ),
}

MUTANTS: Final[Mapping[str, Mutant]] = {
    **BALLOTS,
    **STEALS,
    **LEASES,
    **LEARNING,
    **DURABLE,
    **CLIENTS,
    **PRODUCERS,
    **WRITERS,
    **DATA,
    **GROUPS,
    **FENCES,
    **CLAIMS,
    **ORDER,
    **DISKS,
    **STATES,
    **MEMBERS,
    **COLD,
    **CLOCKS,
    **WORDS,
}
