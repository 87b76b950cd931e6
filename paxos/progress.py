"""What members tell each other now and then: how far they are, and what they remember.

And what their logs are: a hash of all that is applied (paxos.chain). Where it differs from ours at
some slot, one of both logs is not what was chosen, and nobody can tell whose from those two. So a
member that knows of such a difference is in *doubt*: it neither acts nor votes, until a majority of
the members, itself counted, is known to agree with it there or beyond. Then the other is wrong, and
the group goes on without it. Where no majority can agree any more, the doubt is *hopeless*: it is
written down that this member does not vote, what others would teach it is not applied on top of
what is wrong, and it teaches nobody. It takes an operator to get it out of that
(docs/operations.md, "A log that differs").
"""

from typing import TYPE_CHECKING

import attrs

from paxos import rejoin
from paxos.ids import BALLOT_ZERO, INCARNATION_ZERO, SLOT_ZERO, Ballot, NodeId, Now, Slot
from paxos.messages import ASK_PROGRESS, Learn, Progress
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.step import Notice, Send, Step
from paxos.timing import CHOSEN_AHEAD_MAX

if TYPE_CHECKING:
    from paxos.replica import Replica


@attrs.define(eq=False)
class Peer:
    """What we know of another node in this group."""

    applied: Slot = SLOT_ZERO
    witnessed: Ballot = BALLOT_ZERO
    """The highest ballot, of those we used ourselves, that we saw it promise or accept in."""
    chosen: Slot = SLOT_ZERO
    """Up to where it says that slots are chosen, if that is beyond what it has applied."""
    asked: bool = False
    """Whether we ever asked it for entries."""
    questioned_boot_ns: int | None = None
    """When we asked it what it remembers of us, while the answer is on its way."""
    told: tuple[Slot, int] | None = None
    """A slot and its hash there that we have not reached yet."""
    agreed: Slot | None = None
    """The last slot at which our hashes were compared, and equal."""
    differs: Slot = SLOT_ZERO
    """The first at which they were not, while it is among `Replica.diverged`."""
    help: rejoin.Help | None = None
    """It cannot vote, and wants slots to be chosen."""
    told_boot_ns: int | None = None
    """When it last told us how far it is."""
    answered_boot_ns: int | None = None
    """When we last told it how far we are, though it is no member."""


def on_progress(
    replica: "Replica", now: Now, sender: NodeId, message: Progress, step: Step
) -> None:
    peer = replica.peer(sender)
    peer.told_boot_ns, peer.questioned_boot_ns = now.boot_ns, None
    if message.applied <= replica.learner.applied:
        replica.questions.answered(replica.group, sender)  # it has no entries for us
    _compare(replica, now, sender, message, step)
    note(replica, now, sender, message.applied, message.chosen_to)
    if replica.learner.behind:
        replica.wake()
    rejoin.on_witnessed(replica, now, sender, message, step)
    if sender not in replica.members:
        _answer_outsider(replica, now, sender, step)


def note(
    replica: "Replica", now: Now, sender: NodeId, applied: Slot, chosen: Slot = SLOT_ZERO
) -> None:
    """How far a peer says it is. Its newest word counts, and only as long as it is heard: a number
    that was wrong is gone with the next one. Nobody knows of much that is chosen beyond a gap."""
    peer = replica.peer(sender)
    peer.applied = applied
    peer.chosen = min(chosen, Slot(applied + CHOSEN_AHEAD_MAX))
    told = SLOT_ZERO
    for node, one in replica.peers.items():
        if replica.is_heard(node, now):
            told = max(told, one.applied, one.chosen)
    replica.learner.settle(told)


def is_current(replica: "Replica", now: Now) -> bool:
    """Whether a majority of the members have told of late how far they are, in this life, and we
    are as far as any of them: what was chosen before is known here, as far as they know it."""
    long_ns = replica.timing.heard_ns + replica.timing.progress_every_ns
    told = [replica.me]
    for node in replica.others(replica.members):
        at = replica.peer(node).told_boot_ns
        if at is not None and now.boot_ns - at <= long_ns:
            told.append(node)
    behind = replica.learner.behind or replica.doubt
    return not behind and is_quorum(told, replica.members)


def witness(replica: "Replica", sender: NodeId, ballot: Ballot) -> None:
    """It has promised or accepted: remembered where it answers a ballot that we used, as every
    honest answer does (R9). Else one faulty message would have us say for ever that it did."""
    peer = replica.peer(sender)
    if ballot > peer.witnessed and sender != replica.me and replica.proposer.has_used(ballot):
        peer.witnessed = ballot


def progress_for(replica: "Replica", node: NodeId) -> Progress:
    learner, chain = replica.learner, replica.chain.value
    witnessed = replica.peer(node).witnessed
    life = replica.incarnations.get(node, INCARNATION_ZERO)
    return Progress(replica.group, learner.applied, learner.known_to, witnessed, life, chain)


def _answer_outsider(replica: "Replica", now: Now, sender: NodeId, step: Step) -> None:
    """It is to become a member, or was removed and does not know: nobody else tells it anything.
    Not too often, for we may be such a one in its eyes."""
    peer = replica.peer(sender)
    last = peer.answered_boot_ns
    if last is None or now.boot_ns - last >= replica.timing.progress_every_ns:
        peer.answered_boot_ns = now.boot_ns
        step.before.append(Send(sender, progress_for(replica, sender)))


def _compare(replica: "Replica", now: Now, sender: NodeId, message: Progress, step: Step) -> None:
    """Whether the sender's log is ours, as far as both reach (exam.md section 1)."""
    if sender in replica.diverged:
        return
    peer = replica.peer(sender)
    if message.chain < 0:  # an older kind of member: it is believed
        both = min(message.applied, replica.learner.applied)
        peer.agreed = max(peer.agreed or SLOT_ZERO, both)
    elif message.applied <= replica.learner.applied:
        _hold_against(replica, now, sender, message.applied, message.chain, step)
    elif peer.told is None or message.applied < peer.told[0]:
        # The oldest: who is always a little behind gets there, too. A lower one corrects it.
        peer.told = message.applied, message.chain


def reached(replica: "Replica", now: Now, step: Step) -> None:
    """More is applied: hold it against what others have told that we had not reached."""
    applied = replica.learner.applied
    for node in replica.others(replica.members):
        peer = replica.peer(node)
        if peer.told is not None and peer.told[0] <= applied:
            (slot, chain), peer.told = peer.told, None
            _hold_against(replica, now, node, slot, chain, step)


def _hold_against(
    replica: "Replica", now: Now, node: NodeId, slot: Slot, chain: int, step: Step
) -> None:
    ours = replica.chain.at(slot)
    if ours is None or node in replica.diverged:
        return
    peer = replica.peer(node)
    if ours == chain:
        peer.agreed = slot if peer.agreed is None else max(peer.agreed, slot)
    else:
        replica.diverged.add(node)
        peer.differs = slot
        detail = f"node {node} differs at slot {slot}"
        step.notices.append(Notice(replica.group, "diverged", detail))
    look_at_doubt(replica, now, step)


def look_at_doubt(replica: "Replica", now: Now, step: Step) -> None:
    """What is compared has changed, or who is a member."""
    others = set(replica.others(replica.members))
    wrong = replica.diverged & others
    was, was_hopeless = replica.doubt, replica.hopeless
    replica.hopeless = replica.me in replica.members and not is_quorum(
        set(replica.members) - wrong, replica.members
    )
    since = max((replica.peer(node).differs for node in wrong), default=SLOT_ZERO)
    replica.doubt = bool(wrong) and not rejoin.agrees(replica, since)
    if replica.doubt != was or replica.hopeless != was_hopeless:
        replica.wake()
        what = "hopeless" if replica.hopeless else "in-doubt" if replica.doubt else "out-of-doubt"
        nodes = ", ".join(map(str, sorted(wrong))) or "nobody"
        detail = f"{nodes} of {len(replica.members)} differ, last at slot {since}"
        step.notices.append(Notice(replica.group, what, detail))
    if replica.doubt and not was:  # who is asked to teach says first how far it is
        learn = Learn(replica.group, ASK_PROGRESS)
        step.before.extend(Send(node, learn) for node in sorted(others - wrong))
    if replica.doubt and replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    if replica.hopeless and replica.rejoin is None:
        rejoin.stop_voting(replica, now, replica.acceptor.promised, "its log differs", step)
    elif replica.rejoin is not None and not replica.doubt:
        rejoin.try_to_vote_again(replica, step)
