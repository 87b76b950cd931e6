"""How an acceptor that lost part of its disk may vote again (protocol.md section 4, "Lost disk").

Such a node no longer knows what it promised and voted. It becomes non-voting, asks all members what
they have seen, and votes again once

- a majority of the members, itself not counted, has answered this incarnation: every quorum it was
  ever part of shares a member with that majority, so `bar` covers every slot such a quorum may have
  decided before;
- a majority, itself not counted, has told besides that they have applied a slot beyond `bar`, and
  will not forget it. `floor` is the highest ballot they had promised by then. Who is in phase 1
  with a promise of ours that we have forgotten has one of them in its quorum as well; that one has
  promised before it told us so, and `floor` is no less than that ballot, or it says Behind;
- a slot beyond `bar + WINDOW_MAX` is applied. A master has at most WINDOW_MAX open slots, so such a
  slot was begun after the answers, and older votes of ours still in flight concern earlier slots.

An idle group would keep it waiting for as many renewals of the lease. So a master that is asked and
has nothing else to propose fills slots with nothing.

What was lost is noticed in three ways: a peer has witnessed a higher ballot than our disk knows,
the shell has found damage in the log (`distrust`), or the peers say that the whole directory is not
the one they know (docs/storage-format.md, "Damage" and "A directory that is not the one").
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import attrs

from paxos.entry import NOOP, Entry
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, Incarnation, NodeId, Now, Slot
from paxos.messages import RejoinAnswer, RejoinAsk
from paxos.proposer import Role
from paxos.quorum import quorum_size
from paxos.step import Notice, Send, Step, VotingRecord
from paxos.timing import WINDOW_MAX

if TYPE_CHECKING:
    from paxos.replica import Replica

FILLED_PER_ASK: Final = 8
"""Slots an idle master fills with nothing when it is asked (every Timing.progress_every_ns)."""
SILENT_ASKS: Final = 4
"""Who has not asked for so many times that long may vote again, or is gone."""


@attrs.define(kw_only=True, eq=False)
class Rejoin:
    applied: dict[NodeId, Slot] = attrs.Factory(dict)
    """Of those who have answered: how far they have got since."""
    floor: Ballot = BALLOT_ZERO
    bar: Slot = SLOT_ZERO

    def on_answer(self, sender: NodeId, answer: RejoinAnswer) -> None:
        """Only the first answer of each raises the bar: the group goes on meanwhile, and a bar that
        rose with it would never be passed."""
        if sender not in self.applied:
            self.bar = max(self.bar, answer.last_voted, answer.applied)
        self.applied[sender] = max(self.applied.get(sender, SLOT_ZERO), answer.applied)
        self.floor = max(self.floor, answer.promised)

    def may_vote(
        self, me: NodeId, members: tuple[NodeId, ...], applied: Slot, configured: Slot = SLOT_ZERO
    ) -> bool:
        """`configured`: the slot since which these are the members. What was decided by others than
        them, and their majority cannot tell of, lies below it (docs/adr/0022)."""
        bar = max(self.bar, configured)
        past = [node for node, slot in self.applied.items() if slot > bar]
        others = sum(1 for node in past if node in members and node != me)
        return others >= quorum_size(members) and applied > bar + WINDOW_MAX


@attrs.define(eq=False)
class Help:
    """What a master does for a member that cannot vote: fill slots up to `until`, if it is idle."""

    incarnation: Incarnation
    until: Slot
    asked_boot_ns: int


def answer(replica: "Replica", now: Now, sender: NodeId, ask: RejoinAsk, step: Step) -> None:
    """Tell a member that has forgotten things what it must not contradict, and help it."""
    acceptor, known = replica.acceptor, _known_slot(replica)
    told = RejoinAnswer(replica.group, ask.incarnation, acceptor.promised, known, acceptor.recorded)
    step.after.append(Send(sender, told))
    _help(replica, now, sender, ask.incarnation, step)


def _help(
    replica: "Replica", now: Now, sender: NodeId, incarnation: Incarnation, step: Step
) -> None:
    """Asked again and again we go no further than anybody could need who began to ask then; one who
    was silent for a while begins anew, and a change of members raises the bar of all. Who is no
    member is helped as well: it is to become one, and must vote before it does."""
    peer, proposer = replica.peer(sender), replica.proposer
    one = peer.help
    if one is None or one.incarnation != incarnation or not is_asking(replica, now, sender):
        until = Slot(_known_slot(replica) + 2 * WINDOW_MAX)
        one = peer.help = Help(incarnation, until, now.boot_ns)
    one.asked_boot_ns = now.boot_ns
    one.until = max(one.until, Slot(replica.configured + 2 * WINDOW_MAX))
    if proposer.in_flight:
        return
    for _ in range(FILLED_PER_ASK):
        if not replica.can_propose(now) or proposer.next > one.until:
            return
        replica.place(now, NOOP, step)


def is_asking(replica: "Replica", now: Now, node: NodeId) -> bool:
    """Whether a member has told us lately that it may not vote."""
    one, silent_ns = replica.peer(node).help, SILENT_ASKS * replica.timing.progress_every_ns
    return one is not None and now.boot_ns - one.asked_boot_ns <= silent_ns


def _known_slot(replica: "Replica") -> Slot:
    """The highest slot that this replica has voted in, proposed or applied."""
    voted = max(replica.acceptor.votes, default=SLOT_ZERO)
    return max(voted, Slot(replica.proposer.next - 1), replica.learner.applied)


def stop_voting(
    replica: "Replica",
    now: Now,
    floor: Ballot,
    why: str,
    step: Step,
    *,
    bar: Slot = SLOT_ZERO,
) -> None:
    """Promises or votes of ours may be forgotten: be silent until that can do no harm."""
    replica.wake()
    replica.rejoin = Rejoin(floor=floor, bar=bar)
    replica.acceptor.voting = False
    step.persist.append(VotingRecord(replica.group, False, floor))
    step.notices.append(Notice(replica.group, "non-voting", why))
    if replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    ask = RejoinAsk(replica.group, replica.incarnation)
    step.before.extend(Send(node, ask) for node in replica.acquaintances())


def try_to_vote_again(replica: "Replica", step: Step) -> None:
    rejoin = replica.rejoin
    assert rejoin is not None
    applied = replica.learner.applied
    if rejoin.may_vote(replica.me, replica.members, applied, replica.configured):
        replica.acceptor.promised = max(replica.acceptor.promised, rejoin.floor)
        replica.acceptor.voting = True
        replica.rejoin = None
        floor = replica.acceptor.promised
        step.persist.append(VotingRecord(replica.group, True, floor))
        step.notices.append(Notice(replica.group, "voting-again", f"floor {floor}"))


def distrust(replica: "Replica", now: Now, lost: Iterable[Slot], why: str, step: Step) -> None:
    """The log is not what this replica has written. The entries of the `lost` slots are gone: those
    not applied yet are forgotten here as well, to be learned anew with a record of their own.

    It may vote again in this life, and find damage once more. Then an answer to its first question
    may still be under way and say too little; so what we know of our own votes counts too.
    """
    replica.wake()
    bar = _known_slot(replica)
    for slot in lost:
        if slot > replica.learner.applied:
            replica.acceptor.forget(slot)
            replica.learner.chosen.pop(slot, None)
    if replica.rejoin is None:
        stop_voting(replica, now, replica.acceptor.promised, why, step, bar=bar)


def recall(replica: "Replica", now: Now, slot: Slot, entry: Entry, step: Step) -> None:
    """The next slot's entry, known from our own log to be chosen: it lay behind damage, and what
    was missing before it has been learned. It needs no new record."""
    assert slot == replica.learner.applied + 1, f"gap: {replica.learner.applied} then {slot}"
    if replica.learner.add(slot, entry):
        replica._apply_ready(now, step)
