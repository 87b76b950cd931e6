"""What a replica shows of itself, for status pages and metrics."""

from collections.abc import Mapping

import attrs

from paxos.ids import Ballot, Epoch, GroupId, NodeId, Slot
from paxos.proposer import Role


@attrs.frozen
class GroupStatistics:
    """One look at a replica, for status pages and metrics."""

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
