"""Which nodes are the members of a group: the first ones, as every founder reckons them.

A group's members are in its own log (Config entries, R10). Before the first of those, they follow
from what all founders' configurations agree on; so they are a pure function of it, for ever.
"""

from collections.abc import Iterable

from paxos.ids import REGISTRY_GROUP, GroupId, NodeId


def first_members(group: GroupId, founders: Iterable[NodeId], replicas: int) -> tuple[NodeId, ...]:
    """The members of a group's first configuration, ascending.

    The registry's group is on every founder, any other on `replicas` of them: on the one that its
    number falls on, which is its first master, and on those that follow it in a circle. So groups
    and first masters are even, and the groups of one node are backed by more than two others.
    """
    assert replicas > 0, "a group without members"
    nodes = sorted(set(founders))
    if group == REGISTRY_GROUP or replicas >= len(nodes):
        return tuple(nodes)
    first = group % len(nodes)
    return tuple(sorted(nodes[(first + step) % len(nodes)] for step in range(replicas)))
