"""Two logs that differ: neither is served on before a majority has said which is right (ADR 39).

Members tell each other a hash of all that they have applied (paxos.chain). Where it differs from
ours at some slot, one of both logs is not what was chosen, and nobody can tell whose from those
two. So a member that knows of such a difference is in *doubt*: it neither acts nor votes, until a
majority of the members, itself counted, is known to agree with it there or beyond. Then the other
is wrong, and the group goes on without it. Where no majority can agree any more, the doubt is
*hopeless*: it is written down that this member does not vote, what others would teach it is not
applied on top of what is wrong, and it teaches nobody. It takes an operator to get it out of that
(docs/operations.md, "A log that differs").
"""

from paxos.changes import rejoin
from paxos.ids import SLOT_ZERO, NodeId, Now, Slot
from paxos.messages import ASK_PROGRESS, Learn, Progress
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.state.core import Core
from paxos.step import Notice, Send, Step


def compare(replica: Core, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
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


def reached(replica: Core, now: Now, step: Step) -> None:
    """More is applied: hold it against what others have told that we had not reached."""
    applied = replica.learner.applied
    for node in replica.others(replica.members):
        peer = replica.peer(node)
        if peer.told is not None and peer.told[0] <= applied:
            (slot, chain), peer.told = peer.told, None
            _hold_against(replica, now, node, slot, chain, step)


def _hold_against(
    replica: Core, now: Now, node: NodeId, slot: Slot, chain: int, step: Step
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
    look_again(replica, now, step)


def look_again(replica: Core, now: Now, step: Step) -> None:
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


def forget(replica: Core, node: NodeId) -> None:
    """The node was born again, with another log, perhaps: it is compared anew."""
    replica.diverged.discard(node)
    peer = replica.peer(node)
    peer.told = peer.agreed = None
