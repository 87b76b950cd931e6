"""What a member tells another about itself, and about that one: what ADR 4 and ADR 39 rest on.

When it is told is a matter of timers. What is told is not: a promise that was witnessed and is not
told may be broken, and a hash that is wrong puts a member in doubt.
"""

from paxos.ids import INCARNATION_ZERO, Ballot, NodeId
from paxos.messages import Progress
from paxos.state.core import Core


def note_witnessed(replica: Core, sender: NodeId, ballot: Ballot) -> None:
    """It has promised or accepted: remembered where it answers a ballot that we used, as every
    honest answer does (R9). Else one faulty message would have us say for ever that it did."""
    peer = replica.peer(sender)
    if ballot > peer.witnessed and sender != replica.me and replica.proposer.has_used(ballot):
        peer.witnessed = ballot


def progress_for(replica: Core, node: NodeId) -> Progress:
    learner, chain = replica.learner, replica.chain.value
    witnessed = replica.peer(node).witnessed
    life = replica.incarnations.get(node, INCARNATION_ZERO)
    return Progress(replica.group, learner.applied, learner.known_to, witnessed, life, chain)
