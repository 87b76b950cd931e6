"""What a Progress says about the sender and about the receiver. ADR 4 and ADR 39 rest on it.

When a Progress is sent is a matter of timers. Its content is not: the receiver may break a promise
that we witnessed and do not report, and a wrong hash puts it in doubt.
"""

from paxos.ids import INCARNATION_ZERO, Ballot, NodeId
from paxos.messages import Progress
from paxos.state.core import Core


def note_witnessed(replica: Core, sender: NodeId, ballot: Ballot) -> None:
    """The sender has promised or accepted at this ballot. Remember that only for a ballot that we
    used, as it is in every honest answer (R9): we would repeat a faulty one for ever (F3)."""
    peer = replica.peer(sender)
    if ballot > peer.witnessed and sender != replica.me and replica.proposer.has_used(ballot):
        peer.witnessed = ballot


def progress_for(replica: Core, node: NodeId) -> Progress:
    learner, chain = replica.learner, replica.chain.value
    witnessed = replica.peer(node).witnessed
    life = replica.incarnations.get(node, INCARNATION_ZERO)
    return Progress(replica.group, learner.applied, learner.known_to, witnessed, life, chain)
