"""What members tell each other now and then: how far they are, and what they remember."""

from typing import TYPE_CHECKING

import attrs

from paxos import rejoin
from paxos.ids import BALLOT_ZERO, SLOT_ZERO, Ballot, NodeId, Now, Slot
from paxos.messages import Progress
from paxos.step import Notice, Send, Step

if TYPE_CHECKING:
    from paxos.replica import Replica


@attrs.define(eq=False)
class Peer:
    """What we know of another node in this group."""

    applied: Slot = SLOT_ZERO
    witnessed: Ballot = BALLOT_ZERO
    """The highest ballot we saw it promise or accept in."""
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
    peer.applied, peer.told_boot_ns = message.applied, now.boot_ns
    _compare(replica, sender, message, step)
    replica.learner.heard(max(message.applied, message.chosen_to))
    if replica.learner.behind:
        replica.wake()
    if sender in replica.members:
        if message.incarnation == replica.incarnation:
            replica.verified.add(sender)
    else:
        _answer_outsider(replica, now, sender, step)
    if message.witnessed > replica.acceptor.promised and replica.rejoin is None:
        lost = message.witnessed
        rejoin.stop_voting(replica, now, lost, f"lost promise {lost}", step)


def _answer_outsider(replica: "Replica", now: Now, sender: NodeId, step: Step) -> None:
    """It is to become a member, or was removed and does not know: nobody else tells it anything.
    Not too often, for we may be such a one in its eyes."""
    peer = replica.peer(sender)
    last = peer.answered_boot_ns
    if last is None or now.boot_ns - last >= replica.timing.progress_every_ns:
        peer.answered_boot_ns = now.boot_ns
        step.before.append(Send(sender, replica.progress_for(sender)))


def _compare(replica: "Replica", sender: NodeId, message: Progress, step: Step) -> None:
    """Whether the sender's log is ours, as far as both reach (exam.md section 1)."""
    ours = replica.chain.at(message.applied)
    if ours is None or message.chain < 0 or sender in replica.diverged:
        return
    if ours != message.chain:
        replica.diverged.add(sender)
        detail = f"node {sender} differs at slot {message.applied}"
        step.notices.append(Notice(replica.group, "diverged", detail))
