"""The first members of a group: every founder computes the same ones, and the load is even."""

from collections import Counter

import pytest

from paxos.changes.membership import first_members
from paxos.ids import REGISTRY_GROUP, GroupId, NodeId

FIVE = [NodeId(node) for node in (3, 1, 5, 4, 2)]


def test_three_nodes_are_members_of_everything() -> None:
    three = [*FIVE[:2], NodeId(2)]
    for group in range(20):
        assert first_members(GroupId(group), three, 3) == (1, 2, 3)


def test_the_registry_is_on_every_founder() -> None:
    assert first_members(REGISTRY_GROUP, FIVE, 3) == (1, 2, 3, 4, 5)


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 5, 7, 9])
@pytest.mark.parametrize("replicas", [1, 2, 3, 5])
def test_members_are_even_and_the_first_master_is_one_of_them(nodes: int, replicas: int) -> None:
    founders = [NodeId(node) for node in range(1, nodes + 1)]
    copies: Counter[NodeId] = Counter()
    for group in range(1, 4 * nodes + 1):
        members = first_members(GroupId(group), founders, replicas)
        assert members == tuple(sorted(set(members)))
        assert len(members) == min(replicas, nodes)
        assert founders[group % nodes] in members  # what runtime.settings.first_guess says
        copies.update(members)
    assert set(copies.values()) == {4 * min(replicas, nodes)}
