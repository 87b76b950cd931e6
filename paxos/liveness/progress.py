"""How far the others claim to be: it decides whom we ask, and whether we are behind."""

from paxos.changes import witness
from paxos.ids import SLOT_ZERO, NodeId, Now, Slot
from paxos.liveness import asking
from paxos.liveness.live import Live
from paxos.messages import Progress
from paxos.quorum import is_quorum
from paxos.step import Send, Step
from paxos.timing import CHOSEN_AHEAD_MAX


def came(replica: Live, now: Now, sender: NodeId, message: Progress) -> None:
    """A Progress is an answer to whatever we asked the sender."""
    peer = replica.peer(sender)
    peer.progress_boot_ns, peer.questioned_boot_ns = now.boot_ns, None
    if message.applied <= replica.learner.applied:
        asking.had_nothing(replica, now, sender)


def note(replica: Live, now: Now, sender: NodeId, applied: Slot, chosen: Slot = SLOT_ZERO) -> None:
    """Note a peer's position. Only its newest message counts, and only while the peer is heard, so
    the next message corrects a wrong number. No honest member knows of slots far beyond its gap."""
    peer = replica.peer(sender)
    peer.applied = applied
    peer.chosen = min(chosen, Slot(applied + CHOSEN_AHEAD_MAX))
    told = SLOT_ZERO
    for node, one in replica.peers.items():
        if replica.is_heard(node, now):
            told = max(told, one.applied, one.chosen)
    replica.learner.claims_are(told)


def is_current(replica: Live, now: Now) -> bool:
    """Whether a majority of the members have recently told this incarnation their positions, and
    none of them is ahead of us: then we know what was chosen before, as far as they know it."""
    long_ns = replica.timing.heard_ns + replica.timing.progress_every_ns
    told = [replica.me]
    for node in replica.others(replica.members):
        at = replica.peer(node).progress_boot_ns
        if at is not None and now.boot_ns - at <= long_ns:
            told.append(node)
    behind = replica.learner.behind or replica.doubt
    return not behind and is_quorum(told, replica.members)


def answer_outsider(replica: Live, now: Now, sender: NodeId, step: Step) -> None:
    """The sender is to become a member, or was removed and does not know it: nobody else tells it
    anything. Do this not too often, for to the sender we may be the outsider."""
    peer = replica.peer(sender)
    last = peer.reported_boot_ns
    if last is None or now.boot_ns - last >= replica.timing.progress_every_ns:
        peer.reported_boot_ns = now.boot_ns
        step.before.append(Send(sender, witness.progress_for(replica, sender)))


def link_is_up(replica: Live, node: NodeId, *, reborn: bool) -> None:
    """The last link may have lost messages; a restarted node may have another log."""
    peer = replica.peer(node)
    peer.questioned_boot_ns = None
    if reborn:
        peer.progress_boot_ns = None
