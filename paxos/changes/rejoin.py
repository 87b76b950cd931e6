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

*Two members* are another matter: there is no third to ask, and nothing is ever chosen without both,
so the rule above would wait for ever. But then the other has voted for whatever may be chosen and
takes part in every phase 1; it has forgotten nothing, so nothing that this one has forgotten can do
harm, with two exceptions. A ballot of its own that the other never saw must not be used again: it
goes on far above. And it must know who the members are: it has applied what the other has, and the
other does not answer while it has voted for a Config that it does not know to be chosen, for with
that one the quorums are others (docs/adr/0045).

An idle group would keep it waiting for as many renewals of the lease. So a master that is asked and
has nothing else to propose fills slots with nothing.

What was lost is noticed in three ways: a peer has witnessed a higher ballot than our disk knows,
the shell has found damage in the log that may have been a promise or a vote (`distrust`), or the
peers say that the whole directory is not the one they know (docs/storage-format.md, "Damage" and "A
directory that is not the one").
"""

from collections.abc import Iterable
from typing import Final

from paxos.entry import NOOP
from paxos.ids import SLOT_ZERO, Ballot, Incarnation, NodeId, Now, Slot
from paxos.messages import ASK_PROGRESS, Learn, Progress, RejoinAnswer, RejoinAsk
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.state.core import Core
from paxos.state.rejoin import Doubt, Help, Rejoin, is_pair
from paxos.step import Notice, Send, Step, VotingRecord
from paxos.timing import WINDOW_MAX

ROUNDS_FORGOTTEN: Final = 1 << 16
"""More ballots than one of a pair can have begun without the other: it prepares only while it hears
that one, which then answers or outbids it."""
GAP_PATIENCE: Final = 2
"""In times of Timing.heard_ns: so long the other one of a pair may take to know what was lost."""
FILLED_PER_ASK: Final = 8
"""Slots an idle master fills with nothing when it is asked (every Timing.progress_every_ns)."""
SILENT_ASKS: Final = 4
"""Who has not asked for so many times that long may vote again, or is gone."""


def answer(replica: Core, now: Now, sender: NodeId, ask: RejoinAsk, step: Step) -> None:
    """Tell a member that has forgotten things what it must not contradict, and help it."""
    life = replica.incarnations.get(sender)
    if life is not None and life != ask.incarnation:
        return  # not from the node that is there now: each life is helped so far, and no further
    acceptor, known = replica.acceptor, _known_slot(replica)
    if is_pair(replica.me, replica.members) and acceptor.voted_config():
        return
    told = RejoinAnswer(replica.group, ask.incarnation, acceptor.promised, known, acceptor.recorded)
    step.after.append(Send(sender, told))
    _help(replica, now, sender, ask.incarnation, step)


def _help(replica: Core, now: Now, sender: NodeId, incarnation: Incarnation, step: Step) -> None:
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


def is_asking(replica: Core, now: Now, node: NodeId) -> bool:
    """Whether a member has told us lately that it may not vote."""
    one, silent_ns = replica.peer(node).help, SILENT_ASKS * replica.timing.progress_every_ns
    return one is not None and now.boot_ns - one.asked_boot_ns <= silent_ns


def _known_slot(replica: Core) -> Slot:
    """The highest slot that this replica has voted in, proposed or applied."""
    voted = max(replica.acceptor.votes, default=SLOT_ZERO)
    return max(voted, Slot(replica.proposer.next - 1), replica.learner.applied)


def on_witnessed(replica: Core, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
    """A peer says what it remembers of us. If that is more than we know, we have lost a promise.

    Only an earlier life of ours can have: what this one promised it knows. So a peer's word counts
    until it has told this life, knowing that it is this one; and it has to be said twice, for a
    single wrong message must not take our vote. Until then we do not vote, which harms nobody.
    """
    life = replica.incarnations.get(sender)
    doubt = replica.doubts.get(sender)
    claims = message.witnessed > replica.acceptor.promised and replica.rejoin is None
    if claims and sender in replica.witnesses:
        what = f"{message.witnessed} promised, says node {sender}"
        step.notices.append(Notice(replica.group, "impossible", what))
    elif doubt is not None and (claims or doubt.life != life):  # who is born again has forgotten
        replica.witnesses.add(sender)
        _believe(replica, now, sender, step)
    elif claims:
        replica.wake()
        replica.doubts[sender] = Doubt(now.boot_ns, life)
        replica.peer(sender).questioned_boot_ns = now.boot_ns
        step.before.append(Send(sender, Learn(replica.group, ASK_PROGRESS)))
    elif message.incarnation == replica.incarnation:
        replica.doubts.pop(sender, None)
        replica.witnesses.add(sender)
        if sender in replica.members:
            replica.verified.add(sender)


def tick_doubts(replica: Core, now: Now, step: Step) -> None:
    """Who cannot be asked once more is believed: it may have been the only one to know."""
    for node, doubt in replica.doubts.items():
        waited_ns = now.boot_ns - doubt.since_boot_ns
        if waited_ns > replica.timing.heard_ns and not replica.is_heard(node, now):
            _believe(replica, now, node, step)
            return


def _give_up_gap(replica: Core) -> None:
    """What was voted there can do no harm, or an operator takes that upon him; who is alone has to
    fill it with nothing first."""
    if len(replica.members) > 1:
        replica.proven = SLOT_ZERO


def nothing_is_left_beyond(replica: Core, slot: Slot) -> None:
    """An operator gives up what was chosen there; who is alone fills the slots up to it."""
    replica.proven = min(replica.proven, slot)


def tick_gap(replica: Core, now: Now, stalled_ns: int, step: Step) -> None:
    """Of two members: what was lost here the other may have voted for, and not know to be chosen.
    It cannot find out without this one's promise, and this one gives none that leaves it out. Then
    it is the other's vote that counts, as the rule for two has it."""
    if not replica.has_gap() or not is_pair(replica.me, replica.members):
        return
    (other,) = replica.others(replica.members)
    peer, applied = replica.peer(other), replica.learner.applied
    has_none = peer.progress_boot_ns is not None and max(peer.applied, peer.chosen) <= applied
    if (
        has_none
        and replica.is_heard(other, now)
        and stalled_ns > GAP_PATIENCE * replica.timing.heard_ns
    ):
        stop_voting(replica, now, replica.acceptor.promised, "nobody knows what was lost", step)


def _believe(replica: Core, now: Now, node: NodeId, step: Step) -> None:
    """Its number goes nowhere: what has to be kept, a majority will say (Rejoin.floor_of)."""
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
    """Promises or votes of ours may be forgotten: be silent until that can do no harm."""
    replica.wake()
    replica.doubts.clear()
    replica.rejoin = Rejoin(floor=floor, bar=bar)
    replica.acceptor.stop_voting()
    step.persist.append(VotingRecord(replica.group, False, floor))
    step.notices.append(Notice(replica.group, "non-voting", why))
    if replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    ask = RejoinAsk(replica.group, replica.incarnation)
    step.before.extend(Send(node, ask) for node in replica.acquaintances())


def agrees(replica: Core, since: Slot = SLOT_ZERO) -> bool:
    """Whether a majority, this member counted, was found to have its log, at `since` or beyond."""
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
        return  # its log may be wrong, too: it is compared with every Progress
    if rejoin.may_vote(replica.me, members, replica.learner.applied, replica.configured):
        _vote_again(replica, "voting-again", step, jump=is_pair(replica.me, members))


def recover_unsafely(replica: Core, step: Step) -> None:
    """An operator knows that what was forgotten is worth less than a group without a vote."""
    replica.wake()
    _give_up_gap(replica)
    if replica.rejoin is not None:
        _vote_again(replica, "unsafe-recovered", step, jump=True)


def _vote_again(replica: Core, what: str, step: Step, *, jump: bool) -> None:
    rejoin, acceptor = replica.rejoin, replica.acceptor
    assert rejoin is not None
    floor = max(acceptor.promised, rejoin.floor_of(replica.members))
    if jump:
        floor = Ballot(floor.round + ROUNDS_FORGOTTEN, floor.node)
    acceptor.vote_again(floor)
    replica.rejoin = None
    _give_up_gap(replica)
    replica.witnesses.update(replica.peers)  # whatever they remember, it can do no harm any more
    step.persist.append(VotingRecord(replica.group, True, floor))
    step.notices.append(Notice(replica.group, what, f"floor {floor}"))


def distrust(replica: Core, now: Now, lost: Iterable[Slot], why: str, step: Step) -> None:
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
            replica.learner.forget(slot)
    if replica.rejoin is None:
        stop_voting(replica, now, replica.acceptor.promised, why, step, bar=bar)
