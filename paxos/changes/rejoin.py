"""How an acceptor that lost part of its disk gets its vote back (ADR 4, ADR 39, ADR 45).

Such a node no longer knows what it promised and voted. It becomes non-voting, asks all members what
they have seen, and votes again once all of this holds:

- A majority of the members, itself not counted, has answered this incarnation. *Lemma*: every
  quorum that it was ever part of shares another member with that majority. So `bar`, the highest
  slot that they had voted in, proposed or applied, covers every slot decided with its vote.
- A majority, itself not counted, has said since that it has applied a slot beyond `bar`, and its
  records prove it (`Acceptor.recorded`), so it cannot forget that. `floor` is the highest ballot
  that they had promised by then. *Lemma*: a proposer that is in phase 1 with a promise that we have
  forgotten has one of them in its quorum. Either that member promised before it told us so, and
  `floor` is no less than the ballot; or it answers Behind, and the ballot never leads.
- It has applied a slot beyond `bar + WINDOW_MAX`. *Lemma*: a master has at most WINDOW_MAX open
  slots, so this slot was begun after the answers, and all forgotten votes are in slots before it,
  which are decided.

The lemmas are proved in ADR 4, and for members that change meanwhile in ADR 22. The rule is
`Rejoin.may_vote`.

*Two members* are different. There is no third to ask, and nothing is chosen without both, so the
rule above would wait for ever. But the other has voted for whatever may be chosen, takes part in
every phase 1, and has forgotten nothing. So nothing that this one forgot can do harm, with two
exceptions. It must not reuse a ballot of its own that the other never saw: it goes on far above.
And it must know who the members are: it waits until it has applied what the other has, and the
other does not answer while it has voted for a Config that it does not know to be chosen, for with
that Config the quorums are different (ADR 39).

An idle group would keep the node waiting for that many renewals of the lease. So a master that is
asked and has nothing else to propose fills slots with NoOps.

A loss is noticed in three ways: a peer witnessed a higher ballot than our disk knows; the shell
found damage in the log that may have been a promise or a vote (`distrust`); or the peers say that
the whole directory is not the one they know (docs/storage-format.md, "Damage" and "Lost and
rolled-back directories").
"""

from collections.abc import Iterable
from typing import Final

from paxos.changes import testimony
from paxos.entry import NOOP
from paxos.ids import SLOT_ZERO, Ballot, Incarnation, NodeId, Now, Slot
from paxos.messages import ASK_PROGRESS, Learn, Progress, RejoinAnswer, RejoinAsk
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.state.core import Core
from paxos.state.rejoin import Allegation, Help, Rejoin, is_pair
from paxos.step import Notice, Send, Step, VotingRecord
from paxos.timing import WINDOW_MAX

ROUNDS_FORGOTTEN: Final = 1 << 16
"""More ballots than one of a pair can have begun without the other: it prepares only while it hears
the other, which then answers or outbids it."""
GAP_PATIENCE: Final = 2
"""In units of Timing.heard_ns: how long the other of a pair may take to learn what was lost."""
FILLED_PER_ASK: Final = 8
"""NoOps that an idle master proposes when it is asked (every Timing.progress_every_ns)."""
SILENT_ASKS: Final = 4
"""A node that has not asked this many times in a row either votes again or is gone."""


def on_ask(replica: Core, now: Now, sender: NodeId, ask: RejoinAsk, step: Step) -> None:
    """The sender cannot vote, and asks for help. Note that even if we cannot vote either and tell
    it nothing: soon we may have to count who votes (`is_asking`)."""
    life = replica.incarnations.get(sender)
    if life is not None and life != ask.incarnation:
        return  # from another life of the node
    if replica.speaks_for_the_chosen():
        answer(replica, now, sender, ask, step)
    replica.peer(sender).cannot_vote_boot_ns = now.boot_ns


def answer(replica: Core, now: Now, sender: NodeId, ask: RejoinAsk, step: Step) -> None:
    """Tell the sender what it must not contradict, and help it.

    The answer has `acceptor.recorded` and not what is applied: it must hold in all our later lives.
    """
    acceptor, known = replica.acceptor, _known_slot(replica)
    if is_pair(replica.me, replica.members) and acceptor.voted_config():
        return
    told = RejoinAnswer(replica.group, ask.incarnation, acceptor.promised, known, acceptor.recorded)
    step.after.append(Send(sender, told))
    _help(replica, now, sender, ask.incarnation, step)


def _help(replica: Core, now: Now, sender: NodeId, incarnation: Incarnation, step: Step) -> None:
    """Fill slots, but no more than the sender needs, counted from when it began to ask. If it was
    silent for a while, it begins anew, and a change of members raises everybody's bar. Nodes that
    are not members are helped as well: they must be able to vote before they become members."""
    peer, proposer = replica.peer(sender), replica.proposer
    one = peer.help
    if one is None or one.incarnation != incarnation or not is_asking(replica, now, sender):
        until = Slot(_known_slot(replica) + 2 * WINDOW_MAX)
        one = peer.help = Help(incarnation, until)
    one.until = max(one.until, Slot(replica.configured + 2 * WINDOW_MAX))
    if proposer.in_flight:
        return
    for _ in range(FILLED_PER_ASK):
        if not replica.can_propose(now) or proposer.next > one.until:
            return
        replica.place(now, NOOP, step)


def is_asking(replica: Core, now: Now, node: NodeId) -> bool:
    """Whether a member has told us lately that it may not vote."""
    at, silent_ns = replica.peer(node).cannot_vote_boot_ns, replica.timing.progress_every_ns
    return at is not None and now.boot_ns - at <= SILENT_ASKS * silent_ns


def _known_slot(replica: Core) -> Slot:
    """The highest slot that this replica has voted in, proposed or applied."""
    voted = max(replica.acceptor.votes, default=SLOT_ZERO)
    return max(voted, Slot(replica.proposer.next - 1), replica.learner.applied)


def on_witnessed(replica: Core, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
    """A peer says what it remembers of us. If that is more than we know, we have lost a promise.

    Only an earlier life can have lost one: this life knows what it promised. So a peer's memory
    counts until the peer has told it to this life, naming this life. The peer also has to say it
    twice: a single wrong message must not cost our vote. Until it has, we do not vote, which harms
    nobody (F3, ADR 45).
    """
    life = replica.incarnations.get(sender)
    allegation = replica.alleged.get(sender)
    claims = message.witnessed > replica.acceptor.promised and replica.rejoin is None
    if claims and sender in replica.witnesses:
        what = f"{message.witnessed} promised, says node {sender}"
        step.notices.append(Notice(replica.group, "impossible", what))
    elif allegation is not None and (claims or allegation.life != life):
        # It says so again; or it has restarted since, and cannot remember any more.
        replica.witnesses.add(sender)
        _believe(replica, now, sender, step)
    elif claims:
        replica.wake()
        replica.alleged[sender] = Allegation(now.boot_ns, life)
        replica.peer(sender).questioned_boot_ns = now.boot_ns
        step.before.append(Send(sender, Learn(replica.group, ASK_PROGRESS)))
    elif message.incarnation == replica.incarnation:
        replica.alleged.pop(sender, None)
        replica.witnesses.add(sender)
        if sender in replica.members:
            replica.verified.add(sender)


def tick_allegations(replica: Core, now: Now, step: Step) -> None:
    """Believe a peer that can no longer be asked again: it may have been the only one to know."""
    for node, allegation in replica.alleged.items():
        waited_ns = now.boot_ns - allegation.since_boot_ns
        if waited_ns > replica.timing.heard_ns and not replica.is_heard(node, now):
            _believe(replica, now, node, step)
            return


def _give_up_gap(replica: Core) -> None:
    """Votes in the gap can do no harm any more, or an operator takes the risk. A group of one has
    to fill the gap with NoOps first."""
    if len(replica.members) > 1:
        replica.proven = SLOT_ZERO
        applied = replica.learner.applied
        testimony.found_again(replica, [slot for slot in replica.lost if slot > applied])


def nothing_is_left_beyond(replica: Core, slot: Slot) -> None:
    """An operator gives up what was chosen beyond the slot; a group of one fills those below."""
    replica.proven = min(replica.proven, slot)


def tick_gap(replica: Core, now: Now, stalled_ns: int, step: Step) -> None:
    """In a group of two, the other may have voted for what we lost without knowing that it is
    chosen. It cannot find out without our promise, and we give none with a gap. So we give up our
    vote, and the rule for two lets the other's vote count. The other may know of later slots; if it
    has a gap itself, it does not answer."""
    if not replica.has_gap() or not is_pair(replica.me, replica.members):
        return
    (other,) = replica.others(replica.members)
    peer, applied = replica.peer(other), replica.learner.applied
    has_none = peer.progress_boot_ns is not None and peer.applied <= applied
    if (
        has_none
        and replica.is_heard(other, now)
        and stalled_ns > GAP_PATIENCE * replica.timing.heard_ns
    ):
        stop_voting(replica, now, replica.acceptor.promised, "nobody knows what was lost", step)


def _believe(replica: Core, now: Now, node: NodeId, step: Step) -> None:
    """The peer's number is not used: a majority will say what to keep (`Rejoin.floor_of`)."""
    why = f"lost a promise, says node {node}"
    stop_voting(replica, now, replica.acceptor.promised, why, step)


def stop_voting(
    replica: Core,
    now: Now,
    floor: Ballot,
    why: str,
    step: Step,
    *,
    bar: Slot = SLOT_ZERO,
) -> None:
    """We may have forgotten promises or votes: do not vote until that can do no harm."""
    replica.wake()
    replica.alleged.clear()
    replica.rejoin = Rejoin(floor=floor, bar=bar)
    replica.incomplete_to = SLOT_ZERO
    replica.acceptor.stop_voting()
    step.persist.append(VotingRecord(replica.group, False, floor))
    step.notices.append(Notice(replica.group, "non-voting", why))
    if replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    ask = RejoinAsk(replica.group, replica.incarnation)
    step.before.extend(Send(node, ask) for node in replica.others_to_ask())


def agrees(replica: Core, since: Slot = SLOT_ZERO) -> bool:
    """Whether a majority, this member included, has the same log, compared at `since` or beyond."""
    same = [replica.me]
    for node in replica.others(replica.members):
        agreed = replica.peer(node).agreed
        if agreed is not None and agreed >= since and node not in replica.diverged:
            same.append(node)
    return is_quorum(same, replica.members)


def try_to_vote_again(replica: Core, step: Step) -> None:
    rejoin, members = replica.rejoin, replica.members
    assert rejoin is not None
    if replica.doubt or not agrees(replica):
        return  # its log may be wrong, too; every Progress compares it
    if rejoin.may_vote(replica.me, members, replica.learner.applied, replica.configured):
        if is_pair(replica.me, members):
            replica.incomplete_to = rejoin.bar_of(members)
        _vote_again(replica, "voting-again", step, jump=is_pair(replica.me, members))


def try_to_complete(replica: Core, step: Step) -> None:
    """One of two has applied all that the other had voted for: it is a second copy."""
    applied = replica.learner.applied
    if applied >= replica.incomplete_to:
        replica.incomplete_to = SLOT_ZERO
        promised = replica.acceptor.promised
        step.persist.append(VotingRecord(replica.group, True, promised, applied))
        replica.acceptor.note_recorded(applied)


def recover_unsafely(replica: Core, step: Step) -> None:
    """An operator decides that a vote is worth more than what may have been forgotten."""
    replica.wake()
    _give_up_gap(replica)
    if replica.rejoin is not None:
        _vote_again(replica, "unsafe-recovered", step, jump=True)
    elif replica.incomplete_to:
        replica.incomplete_to = replica.learner.applied
        try_to_complete(replica, step)


def _vote_again(replica: Core, what: str, step: Step, *, jump: bool) -> None:
    rejoin, acceptor = replica.rejoin, replica.acceptor
    assert rejoin is not None
    floor = max(acceptor.promised, rejoin.floor_of(replica.members))
    if jump:
        floor = Ballot(floor.round + ROUNDS_FORGOTTEN, floor.node)
    acceptor.vote_again(floor)
    replica.rejoin = None
    _give_up_gap(replica)
    replica.witnesses.update(replica.peers)  # whatever they remember can do no harm any more
    if replica.incomplete_to:
        step.persist.append(VotingRecord(replica.group, False, floor))
        try_to_complete(replica, step)
    else:
        step.persist.append(VotingRecord(replica.group, True, floor))
    step.notices.append(Notice(replica.group, what, f"floor {floor}"))


def distrust(replica: Core, now: Now, lost: Iterable[Slot], why: str, step: Step) -> None:
    """The log no longer has all that this replica wrote. The entries of the `lost` slots are gone:
    those not applied yet are forgotten here as well, and learned anew with their own record.

    The replica may vote again in this life and then find more damage, while an answer to its first
    question is still on its way and says too little. So what we know of our own votes counts too.
    """
    replica.wake()
    bar = _known_slot(replica)
    for slot in lost:
        if slot > replica.learner.applied:
            replica.acceptor.forget(slot)
            replica.learner.forget(slot)
    if replica.rejoin is None:
        stop_voting(replica, now, replica.acceptor.promised, why, step, bar=bar)
