"""What a replica shows of itself, for status pages and metrics."""

from collections.abc import Mapping

import attrs

from paxos.ids import NOBODY, Ballot, Epoch, GroupId, NodeId, Now, Slot
from paxos.proposer import Role
from paxos.state.core import Core


@attrs.frozen
class GroupStatistics:
    """A snapshot of a replica."""

    group: GroupId
    role: Role
    ballot: Ballot
    promised: Ballot
    holder: NodeId
    acting: bool
    voting: bool
    lease_left_ns: int
    lease_ver: Slot
    epoch: Epoch
    applied: Slot
    chosen_to: Slot
    in_flight: int
    members: tuple[NodeId, ...]
    peers_applied: Mapping[NodeId, Slot]
    chain: int
    diverged: tuple[NodeId, ...]
    doubt: bool
    """Whether that may be our own fault: then this member neither acts nor votes."""


def taken(replica: Core, now: Now) -> GroupStatistics:
    proposer, lease, promised = replica.proposer, replica.lease, replica.acceptor.promised
    peers = sorted(replica.peers.items())
    return GroupStatistics(
        group=replica.group,
        role=proposer.role,
        ballot=proposer.ballot if proposer.ballot.round else promised,
        promised=promised,
        holder=NOBODY if lease.free(now, 0) else lease.holder,
        acting=replica.acting(now),
        voting=replica.speaks_for_the_chosen(),
        lease_left_ns=max(0, lease.expires_wall_ns - now.wall_ns),
        lease_ver=lease.ver,
        epoch=lease.epoch,
        applied=replica.learner.applied,
        chosen_to=replica.learner.chosen_to,
        in_flight=len(proposer.in_flight),
        members=replica.members,
        peers_applied={node: peer.applied for node, peer in peers if node != replica.me},
        chain=replica.chain.value,
        diverged=tuple(sorted(replica.diverged)),
        doubt=replica.doubt,
    )
