"""Two logs that differ: nobody serves from either before a majority agrees with it (ADR 39).

Members tell each other a hash of all that they have applied (paxos.chain). If it differs from ours
at some slot, one of the two logs is not what was chosen, and the two alone cannot tell which. So a
member that knows of a difference is in *doubt*: it neither acts nor votes until it knows that a
majority of the members, itself included, agrees with it at that slot or beyond. Then the other log
is wrong, and the group goes on without that member. If no majority can agree any more, the doubt is
*hopeless*: the member durably gives up its vote, applies nothing on top of a log that may be wrong,
and teaches nobody. Only an operator can help it (docs/operations.md, "A log that differs").
"""

from paxos.changes import rejoin
from paxos.ids import SLOT_ZERO, NodeId, Now, Slot
from paxos.messages import ASK_PROGRESS, Learn, Progress
from paxos.proposer import Role
from paxos.quorum import is_quorum
from paxos.state.core import Core
from paxos.step import Notice, Send, Step


def compare(replica: Core, now: Now, sender: NodeId, message: Progress, step: Step) -> None:
    """Compare the sender's log with ours, as far as both reach."""
    if sender in replica.diverged:
        return
    peer = replica.peer(sender)
    if message.chain < 0:  # an older version sends no hash: believe it
        both = min(message.applied, replica.learner.applied)
        peer.agreed = max(peer.agreed or SLOT_ZERO, both)
    elif message.applied <= replica.learner.applied:
        _hold_against(replica, now, sender, message.applied, message.chain, step)
    elif peer.ahead is None or message.applied < peer.ahead[0]:
        # Keep the lowest: even a member that is always a little behind reaches it.
        peer.ahead = message.applied, message.chain


def reached(replica: Core, now: Now, step: Step) -> None:
    """We have applied more: compare it with hashes that peers sent for slots ahead of ours."""
    applied = replica.learner.applied
    for node in replica.others(replica.members):
        peer = replica.peer(node)
        if peer.ahead is not None and peer.ahead[0] <= applied:
            (slot, chain), peer.ahead = peer.ahead, None
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
    """A comparison or the members have changed: decide again whether to doubt."""
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
    if replica.doubt and not was:  # the answer is a Progress, with a hash to compare
        learn = Learn(replica.group, ASK_PROGRESS)
        step.before.extend(Send(node, learn) for node in sorted(others - wrong))
    if replica.doubt and replica.proposer.role is not Role.FOLLOWER:
        replica.step_down(now, step)
    if replica.hopeless and replica.rejoin is None:
        rejoin.stop_voting(replica, now, replica.acceptor.promised, "its log differs", step)
    elif replica.rejoin is not None and not replica.doubt:
        rejoin.try_to_vote_again(replica, step)


def forget(replica: Core, node: NodeId) -> None:
    """The node has restarted, perhaps with another log: compare it anew."""
    replica.diverged.discard(node)
    peer = replica.peer(node)
    peer.ahead = peer.agreed = None
