"""Which sets of members decide: any majority."""

from collections.abc import Collection

from paxos.ids import NodeId


def quorum_size(members: Collection[NodeId]) -> int:
    """The smallest number of members any two sets of which share a member."""
    return len(members) // 2 + 1


def is_quorum(voters: Collection[NodeId], members: Collection[NodeId]) -> bool:
    """Whether `voters` (distinct) are a majority of `members`; outsiders do not count."""
    count = 0
    for voter in voters:  # runs for every vote: a generator would take three times as long
        if voter in members:
            count += 1
    return count > len(members) // 2
